"""Package managers and their mirrors: pip, npm, apt, cargo and Go, each beside `stile serve` and within `stile run`. What a
rule allows installs; what none allows is refused before it reaches the mirror, and the tool says why."""

import os
import re

import pytest

from mirrorlib import WAYS, Mirror, add_apt, add_crate, add_go, add_npm, add_wheel, call, real_cargo, refused, tool
from stilelib import LOOPBACK, wait_for


@pytest.fixture(scope="module")
def mirrors(origin, tmp_path_factory):
    """(in clear, in TLS): the same packages below /yes and /no."""
    made = [Mirror(origin.pki, tls=False), Mirror(origin.pki)]
    for m in made:
        for base in ("/yes", "/no"):
            add_wheel(m, base)
            add_npm(m, base)
            add_crate(m, base)
            add_go(m, base)
            add_apt(m, base, tmp_path_factory.mktemp("deb"))
    yield made
    for m in made:
        m.close()


@pytest.fixture(scope="module", params=["serve", "run"])
def way_of_all(request, mirrors, origin, tmp_path_factory):
    rules = [{"allow": [f"{m.url}/yes/**" for m in mirrors], "methods": ["GET"], "addresses": LOOPBACK}]
    w = WAYS[request.param](tmp_path_factory.mktemp(request.param), origin, rules)
    yield w
    w.close()


@pytest.fixture
def way(way_of_all, mirrors):
    way_of_all.records()
    for m in mirrors:
        m.asked.clear()
    return way_of_all


@pytest.fixture
def mirror(mirrors):
    return mirrors[1]


@pytest.fixture
def either(request, mirrors):
    return mirrors[request.param == "https"]


both = pytest.mark.parametrize("either", ["http", "https"], indirect=True)


def only_refusal(way, since, reason="no_rule", **want) -> dict:
    """The one thing that was refused since then, however often. A tunnel that nobody used is not meant, nor one
    within which a program ended before it asked for anything: Go dials for each request and exits at the first refusal."""
    def is_meant(r):
        return r["reason"] != "client_closed" and not re.search(
            "closed the connection during the TLS handshake|cut the connection without a request", r.get("error_detail", ""))

    found = wait_for(lambda: [r for r in refused(way, since) if is_meant(r)])
    assert {r["reason"] for r in found} == {reason}, found
    for key, value in want.items():
        assert {r.get(key) for r in found} == {value}, found
    return found[0]


# ---- pip ----


def pip(way, home, *args, status=0):
    return way.go("/usr/bin/python3", "-m", "pip", "install", "--no-compile", "--no-cache-dir", "--disable-pip-version-check",
                  "--retries", "0", "--no-input", "--target", home / "lib", *args, "tiny==1.0", home=home, status=status)


@pytest.fixture(scope="session")
def has_pip():
    if call("/usr/bin/python3", "-m", "pip", "--version", status=None).returncode:
        pytest.skip("pip is not installed")


def test_pip(way, mirror, has_pip, tmp_path):
    pip(way, tmp_path, "--index-url", f"{mirror.url}/yes/simple")
    assert "42" in (tmp_path / "lib" / "tiny.py").read_text()
    assert mirror.paths() == ["/yes/simple/tiny/", "/yes/files/tiny-1.0-py3-none-any.whl"]


def test_pip_of_another_index(way, mirror, has_pip, tmp_path):
    since = len(way.records())
    got = pip(way, tmp_path, "-vv", "--index-url", f"{mirror.url}/no/simple", status=1)
    assert "403 Client Error: Forbidden by stile (no_rule)" in got.said
    only_refusal(way, since, path="/no/simple/tiny/", event="request.deny")
    assert mirror.asked == []


def test_pip_of_another_file(way, mirrors, has_pip, tmp_path):
    """The index, in clear, may be read, and what it points to may not: pip says so without being asked to be verbose."""
    since = len(way.records())
    clear, mirror = mirrors
    name = "tiny-1.0-py3-none-any.whl"
    clear.add("/yes/mixed/tiny/", f"<a href='{mirror.url}/no/files/{name}'>{name}</a>", "text/html")
    got = pip(way, tmp_path, "--trusted-host", "origin.test", "--index-url", f"{clear.url}/yes/mixed", status=1)
    assert "Forbidden by stile (no_rule)" in got.said
    only_refusal(way, since, path=f"/no/files/{name}")
    assert clear.paths() == ["/yes/mixed/tiny/"] and mirror.asked == []


def test_pip_of_another_host(way, has_pip, tmp_path):
    since = len(way.records())
    got = pip(way, tmp_path, "-vv", "--index-url", "https://evil.test/simple", status=1)
    assert "by stile (no_rule)" in got.said
    only_refusal(way, since, host="evil.test")


# ---- npm ----


def npm(way, home, registry, *args, status=0):
    (home / ".npmrc").write_text(f"registry={registry}/\n//{registry.split('://')[1]}/:_authToken=t\nfetch-retries=0\n"
                                 "audit=false\nfund=false\nupdate-notifier=false\n")
    return way.go(tool("npm"), *args, home=home, status=status)


def test_npm(way, mirror, tmp_path):
    """A scoped name: its slash stays encoded from npm to the registry."""
    (tmp_path / "package.json").write_text('{"name": "user", "version": "1.0.0"}')
    npm(way, tmp_path, f"{mirror.url}/yes", "install", "@acme/tiny")
    assert "42" in (tmp_path / "node_modules" / "@acme" / "tiny" / "index.js").read_text()
    assert mirror.paths() == ["/yes/@acme%2Ftiny", "/yes/@acme/tiny/-/tiny-1.0.0.tgz"]


def test_npm_of_another_registry(way, mirror, tmp_path):
    since = len(way.records())
    (tmp_path / "package.json").write_text('{"name": "user", "version": "1.0.0"}')
    got = npm(way, tmp_path, f"{mirror.url}/no", "install", "@acme/tiny", status=1)
    assert "403" in got.said and "denied" in got.said
    only_refusal(way, since, path="/no/@acme%2Ftiny")
    assert mirror.asked == []


def test_npm_may_read_and_not_publish(way, mirror, tmp_path):
    since = len(way.records())
    (tmp_path / "package.json").write_text('{"name": "@acme/tiny", "version": "2.0.0"}')
    got = npm(way, tmp_path, f"{mirror.url}/yes", "publish", "--access", "public", status=1)
    assert "403" in got.said and "PUT" in got.said and "denied" in got.said
    only_refusal(way, since, path="/yes/@acme%2Ftiny", method="PUT")
    assert mirror.paths("PUT") == []


# ---- apt ----


def apt(way, home, source, *args, status=0, suite="/"):
    """With lists, cache and sources of its own, so that nobody has to be root."""
    for d in ("etc", "state/lists/partial", "cache/archives/partial"):
        (home / d).mkdir(parents=True, exist_ok=True)
    (home / "etc" / "sources.list").write_text(f"deb [trusted=yes] {source} {suite}\n")
    (home / "state" / "status").write_text("")
    options = {"Dir::Etc::SourceList": home / "etc" / "sources.list", "Dir::Etc::SourceParts": "-", "Dir::State": home / "state",
               "Dir::State::status": home / "state" / "status", "Dir::Cache": home / "cache", "APT::Sandbox::User": "",
               "Acquire::Languages": "none", "Acquire::Retries": "0", "Debug::NoLocking": "true"}
    if way.kind == "serve":  # which is told in its own configuration, and by no variable
        options["Acquire::https::CAInfo"] = way.trust / "ca-bundle.pem"
    return way.go(tool("apt-get"), *[x for k, v in options.items() for x in ("-o", f"{k}={v}")], *args, home=home, status=status)


@both
def test_apt(way, either, tmp_path):
    source = f"{either.url}/yes"
    apt(way, tmp_path, source, "update")
    apt(way, tmp_path, source, "download", "tiny")
    assert (tmp_path / "tiny_1.0_all.deb").read_bytes() == either.files["/yes/tiny_1.0_all.deb"][1]
    assert {"/yes/Release", "/yes/Packages.gz", "/yes/tiny_1.0_all.deb"} <= set(either.paths())


@both
def test_apt_of_another_repository(way, either, tmp_path):
    since = len(way.records())
    got = apt(way, tmp_path, f"{either.url}/no", "update", "-o", "APT::Update::Error-Mode=any", status=100)
    assert "403" in got.said and "by stile (no_rule)" in got.said
    only_refusal(way, since, host="origin.test")
    assert either.asked == []


def test_apt_of_a_dot(way, mirror, tmp_path):
    """`URL ./` makes apt ask for /./Packages, of which two readers could think two things: `URL /` is the way to say it."""
    since = len(way.records())
    got = apt(way, tmp_path, f"{mirror.url}/yes", "update", "-o", "APT::Update::Error-Mode=any", status=100, suite="./")
    assert "400" in got.said and "by stile (ambiguous_url)" in got.said
    only_refusal(way, since, reason="ambiguous_url")
    assert mirror.asked == []


# ---- cargo ----


def cargo(way, home, base, status=0):
    for d in (".cargo", "src"):
        (home / d).mkdir(exist_ok=True)
    (home / ".cargo" / "config.toml").write_text(f'[registries.mine]\nindex = "sparse+{base}/index/"\n[net]\nretry = 0\n')
    (home / "src" / "lib.rs").write_text("")
    (home / "Cargo.toml").write_text('[package]\nname = "user"\nversion = "0.1.0"\nedition = "2021"\n'
                                     '[dependencies]\ntiny = { version = "1", registry = "mine" }\n')
    program = real_cargo()
    path = f"{os.path.dirname(program)}:{os.environ['PATH']}"
    return way.go("env", f"PATH={path}", program, "fetch", home=home, status=status)


def test_cargo(way, mirror, tmp_path):
    cargo(way, tmp_path, f"{mirror.url}/yes")
    assert mirror.paths() == ["/yes/index/config.json", "/yes/index/ti/ny/tiny", "/yes/crates/tiny/1.0.0/download"]
    assert list((tmp_path / ".cargo").rglob("tiny-1.0.0.crate"))


def test_cargo_of_another_index(way, mirror, tmp_path):
    since = len(way.records())
    got = cargo(way, tmp_path, f"{mirror.url}/no", status=101)
    assert "403" in got.said and "no_rule" in got.said
    only_refusal(way, since, path="/no/index/config.json")
    assert mirror.asked == []


# ---- Go ----


def go(way, home, base, status=0):
    (home / "go.mod").write_text("module example.test/user\n\ngo 1.19\n")
    return way.go("env", f"GOPROXY={base}", "GOFLAGS=-mod=mod", "GONOSUMDB=example.test", "GONOSUMCHECK=1", "GOTOOLCHAIN=local",
                  f"GOCACHE={home}/cache", f"GOPATH={home}/path", "GOFLAGS=-modcacherw", tool("go"), "get",
                  "example.test/tiny@v1.0.0", home=home, status=status)


def test_go(way, mirror, tmp_path):
    go(way, tmp_path, f"{mirror.url}/yes")
    assert "example.test/tiny v1.0.0" in (tmp_path / "go.mod").read_text()
    assert "/yes/example.test/tiny/@v/v1.0.0.zip" in mirror.paths()


def test_go_of_another_proxy(way, mirror, tmp_path):
    since = len(way.records())
    got = go(way, tmp_path, f"{mirror.url}/no", status=1)
    assert "403 Forbidden" in got.said
    only_refusal(way, since, event="request.deny")
    assert mirror.asked == []
