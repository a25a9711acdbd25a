"""Go's net/http and grpc-go on both sides of stile: HTTP/2 and HTTP/1.1, trailers, both ways at once, the four kinds
of calls, and what a program sees of a refusal. The program is tests/clients/go."""

import json
import subprocess

import pytest

import runlib
from clientlib import GoOrigin, build_go, env_of, run
from stilelib import Stile, allow

pytestmark = pytest.mark.xdist_group("go")  # built once
NAMES = {"hosts": {n: "127.0.0.1" for n in ("origin.test", "evil.test")}}


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    return build_go(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def go(program, origin):
    o = GoOrigin(program, origin.pki)
    yield o
    o.stop()


def rules(go) -> list[dict]:
    http, grpc = (f"https://origin.test:{port}" for port in (go.http, go.grpc))
    return [allow(http, f"{grpc}/package.Service/*"), {"deny": [f"{http}/no/**", f"{grpc}/package.Service/Secret"]}]


@pytest.fixture(scope="module")
def world_of_all(origin, go, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("stile"), origin, rules=rules(go))
    yield s
    s.finish()


@pytest.fixture
def world(world_of_all):
    return world_of_all.settled()


@pytest.fixture
def env(world, tmp_path):
    return env_of(world, tmp_path)


@pytest.mark.parametrize("version", ["2", "1"])
def test_net_http(world, env, program, go, version):
    since = world.mark()
    got = run(program, "http", f"https://origin.test:{go.http}", version, env=env)
    assert got.stdout == "well\n"
    records = world.settled().records(since)
    assert {r["http"] for r in records if "http" in r} == {"2" if version == "2" else "1.1"}
    ends = [r for r in records if r["event"] == "request.end"]
    assert [e["path"] for e in ends if "error" in e] == ["/cut"]
    assert sum(e["path"].startswith("/ok/") for e in ends) == 50 + 6
    refused = [r for r in records if r["event"] == "request.deny"]
    assert [(r["method"], r["reason"]) for r in refused] == [(m, "denied_by_rule") for m in ("GET", "POST", "POST")]
    # With HTTP/1.1 it dials more than it uses in the end.
    unused = {r["reason"] for r in records if r["event"].startswith("tunnel.")}
    assert unused <= ({"client_closed", "client_tls_failed"} if version == "1" else set())


@pytest.mark.parametrize("deny, said", [
    ("refuse", 'error: Get "https://evil.test/x": Forbidden by stile (no_rule)\n'),
    ("explain", "403 {")])
def test_a_host_of_no_rule(stile, origin, program, tmp_path, deny, said):
    """Go shows of a refused CONNECT the words behind its status: so they hold the reason."""
    s = stile(rules=[allow("https://origin.test")], extra=f"deny: {deny}")
    got = run(program, "get", "https://evil.test/x", env=env_of(s, tmp_path)).stdout
    assert got.startswith(said), got
    if deny == "explain":
        assert json.loads(got[4:])["reason"] == "no_rule"
    assert s.wait_record(reason="no_rule")["host"] == "evil.test"


def test_clear_http(stile, origin, program, tmp_path):
    s = stile()
    env = env_of(s, tmp_path)
    assert run(program, "get", f"http://origin.test:{origin.plain}/ok/a", env=env).stdout == "200 ok /ok/a\n\n"
    assert "denied_by_rule" in run(program, "get", f"http://origin.test:{origin.plain}/no/a", env=env).stdout


def test_it_does_not_trust_the_ca(world, env, program, go):
    since = world.mark()
    got = run(program, "get", f"https://origin.test:{go.http}/ok/a", env={**env, "SSL_CERT_FILE": "/etc/hostname"})
    assert "certificate signed by unknown authority" in got.stdout
    assert world.wait_record(since)["reason"] == "leaf_rejected"
    assert len(world.records(since)) == 1


def test_grpc(world, env, program, go):
    since = world.mark()
    assert run(program, "grpc", f"origin.test:{go.grpc}", env=env).stdout == "well\n"
    ends = world.settled().wait_records(5, since, event="request.end", http="2", status=200)
    assert [e["path"].rsplit("/", 1)[1] for e in ends] == ["Unary", "Server", "Client", "Both", "Fails"]
    assert not [e for e in ends if "error" in e]


def test_grpc_is_refused_in_its_own_words(world, env, program, go):
    since = world.mark()
    lines = run(program, "grpc-denied", f"origin.test:{go.grpc}", env=env).stdout.splitlines()
    refused = world.wait_records(2, since, event="request.deny")
    for line, record in zip(lines, refused, strict=False):
        assert line.startswith(f"PermissionDenied stile refused this call: {record['reason']}: ") and record["id"] in line
    assert [r["reason"] for r in refused] == ["denied_by_rule", "no_rule"]
    assert lines[2:] == ["OK unary x"]


def test_in_a_sandbox(program, go, origin, tmp_path):
    """Nothing is asked of the user, and the names are nobody's but stile's."""
    (tmp_path / "stile.yaml").write_text(json.dumps({
        "version": 1, "upstream": {**NAMES, "trust": [str(origin.pki / "ca.pem")]},
        "policies": {"default": {"rules": rules(go)}}}))
    script = (f"{program} http https://origin.test:{go.http} 2 && {program} grpc origin.test:{go.grpc} && "
              f"{program} get https://evil.test/x")
    got = subprocess.run(runlib.argv_of(tmp_path / "log", "sh", "-c", script, args=["--show", str(program)]), cwd=tmp_path, capture_output=True, text=True,
                         env=runlib.clean_env(HOME=str(tmp_path)), timeout=120)
    assert got.stdout.startswith("well\nwell\n403 {") and "no_rule" in got.stdout, (got.stdout, got.stderr)
