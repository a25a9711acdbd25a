"""Java's HttpClient, in HTTP/2 and HTTP/1.1, its WebSocket, and HttpURLConnection: told of the proxy and of the CA by
JAVA_TOOL_OPTIONS and the trust store of `stile ca bundle`, as in `stile run`. The program is tests/clients/java."""

import json
import subprocess
import threading

import pytest

pytest.importorskip("aiohttp", reason="python3-aiohttp is not installed")

import runlib
from browserlib import PageOrigin
from clientlib import build_java, env_of, run
from stilelib import SLOWER, Stile, allow, default_rules

pytestmark = pytest.mark.xdist_group("java")  # compiled once


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    return build_java(tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="module")
def sockets(origin):
    o = PageOrigin(origin.pki)
    yield o
    o.stop()


@pytest.fixture(scope="module")
def world_of_all(origin, sockets, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("stile"), origin, rules=[
        *default_rules(), allow(f"wss://origin.test:{sockets.port}/socket")])
    yield s
    s.finish()


@pytest.fixture(scope="module")
def env(world_of_all, tmp_path_factory):
    return env_of(world_of_all, tmp_path_factory.mktemp("env"))


@pytest.fixture
def world(world_of_all):
    return world_of_all.settled()


@pytest.fixture
def base(origin):
    return f"https://origin.test:{origin.tls}"


@pytest.mark.parametrize("how, version, allowed, denied", [("http2", "2", 45, 3), ("http1", "1.1", 45, 3), ("old", "1.1", 7, 3)])
def test_clients(world, env, java, base, how, version, allowed, denied):
    since = world.mark()
    assert run(*java, how, base, env=env).stdout == "well\n"
    records = world.settled().records(since)
    assert {r["http"] for r in records if "http" in r and r["event"].startswith("request.")} == {version}
    ends = [r for r in records if r["event"] == "request.end"]
    assert len(ends) == allowed and {r["status"] for r in ends} == {200} and not [r for r in ends if "error" in r]
    assert [r["reason"] for r in records if r["event"] == "request.deny"] == ["denied_by_rule"] * denied


def test_clear_http(world, env, java, origin):
    """It asks for h2c in passing, and goes on without."""
    assert run(*java, "get", f"http://origin.test:{origin.plain}/ok/a", env=env).stdout == "200 ok /ok/a\n\n"
    assert "denied_by_rule" in run(*java, "get", f"http://origin.test:{origin.plain}/no/a", env=env).stdout


def test_each_event_comes_before_the_next(world, env, java, origin, base):
    with subprocess.Popen([*java, "events", f"{base}/sse?n=4&gate=java"], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as p:
        killer = threading.Timer(60 * SLOWER, p.kill)
        killer.start()
        try:
            for i in range(4):
                origin.open_gate(f"java.{i}")
                assert p.stdout.readline() == f"data: {i}\n"
            assert p.stdout.read() == "" and p.wait() == 0
        finally:
            killer.cancel()
            p.kill()


def test_a_websocket(world, env, java, sockets):
    since = world.mark()
    assert run(*java, "socket", f"wss://origin.test:{sockets.port}/socket", env=env).stdout == "70003\n1000\n"
    end = world.settled().wait_record(since, event="request.end", scheme="wss")
    assert end["bytes_out"] > 70000 and end["bytes_in"] > 70000
    # The JVM exits behind both Close frames; what of TLS it has not read by then resets its connection.
    assert end.get("error") in (None, "client_closed")
    got = run(*java, "socket", f"wss://origin.test:{sockets.port}/other", env=env, status=1)
    assert "WebSocketHandshakeException" in got.stderr
    assert world.wait_record(since, event="request.deny", scheme="wss")["reason"] == "no_rule"


@pytest.mark.parametrize("how, said", [("get", "java.io.IOException: Tunnel failed, got: 403"),
                                       ("oldget", 'Proxy returns "HTTP/1.1 403 Forbidden by stile (no_rule)"')])
def test_a_host_of_no_rule(world, env, java, how, said):
    """The older client shows the words behind the status, and those hold the reason."""
    since = world.mark()
    assert said in run(*java, how, "https://evil.test/x", env=env).stdout
    assert world.wait_record(since, event="tunnel.deny", host="evil.test")["reason"] == "no_rule"


def test_in_a_sandbox(java, origin, base, tmp_path):
    (tmp_path / "stile.yaml").write_text(json.dumps({
        "version": 1, "upstream": {"hosts": {"origin.test": "127.0.0.1"}, "trust": [str(origin.pki / "ca.pem")]},
        "policies": {"default": {"rules": default_rules()}}}))
    shown = [a for part in java for p in str(part).split(":") if p.startswith("/tmp/") for a in ("--show", p)]
    script = '"$@" http2 "$BASE" && "$@" old "$BASE" && "$@" get https://evil.test/x'
    got = subprocess.run(runlib.argv_of(tmp_path / "log", "sh", "-c", script, "sh", *java, args=["--env", f"BASE={base}", *shown]),
                         cwd=tmp_path, capture_output=True, text=True, timeout=120 * SLOWER,
                         env=runlib.clean_env(HOME=str(tmp_path)))
    assert got.stdout.startswith("well\nwell\n403 {") and "no_rule" in got.stdout, (got.stdout, got.stderr)
