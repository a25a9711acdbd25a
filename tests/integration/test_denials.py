"""Refusals that reach whoever made the request: `deny: explain`, in the answer to CONNECT, by Accept, and what
tells one of ours from one of the origin's."""

import json
import os
import shutil
import ssl
import subprocess
import time

import pytest

from stilelib import BIN, Peer, allow, check_refusal, clean_env, client_context, get

NOTHING = [allow("https://nowhere.test")]
REASONS = [("evil.test", "no_rule"), ("no.test", "denied_by_rule")]


@pytest.fixture(scope="module")
def explaining(origin, tmp_path_factory):
    from stilelib import Stile
    s = Stile(tmp_path_factory.mktemp("denials"), origin, extra="deny: explain", upstream={
        "hosts": {n: "127.0.0.1" for n in ("origin.test", "evil.test", "no.test", "plain.test", "tcp.test")}},
        rules=[allow("https://origin.test:*", "https://no.test:*"), {"deny": "https://no.test:*"},
               allow("http://plain.test:*"), allow("tcp://tcp.test:*")])
    yield s
    s.finish()


def inside(s, host: str, port: int, **settings):
    c = s.client()
    assert c.connect(f"{host}:{port}").status == 200
    return c.start_tls(s.context(**settings), host.strip("[]"))


def ask(c, host: str, port: int, path: str = "/x", more: str = ""):
    return c.ask(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n".encode())


def only(s, since: int, port: int, n: int = 1) -> list[dict]:
    """The n records about that port, when a little later there are still no more."""
    s.wait_records(n, since, port=port)
    time.sleep(0.1)
    found = [r for r in s.records(since) if r.get("port") == port]
    assert len(found) == n, found
    return found


@pytest.mark.parametrize("host, reason", REASONS)
def test_a_refused_connect_is_explained_inside(explaining, host, reason):
    since = explaining.mark()
    with Peer() as p:
        with inside(explaining, host, p.port) as c:
            for path in ("/first", "/second"):
                r = ask(c, host, p.port, path)
                check_refusal(r, 403, reason)
                assert f"({reason})" in r.reason and f"https://{host}:{p.port}{path}" in r.json()["detail"]
        assert p.nobody_came(0.05)
    first, second = only(explaining, since, p.port, 2)
    assert [first["path"], second["path"]] == ["/first", "/second"]
    for r in (first, second):
        assert (r["event"], r["reason"], r["status"], r["host"]) == ("request.deny", reason, 403, host)
        assert "upstream" not in r and "dns" not in r["ms"]


@pytest.mark.parametrize("host", ["203.0.113.9", "[2001:db8::1]", "127.0.0.1"])
def test_the_leaf_of_an_address_has_the_address(explaining, host):
    with Peer() as p:
        with inside(explaining, host, p.port) as c:
            kinds = [kind for kind, _ in c.sock.getpeercert()["subjectAltName"]]
            assert kinds == ["IP Address"]
            check_refusal(ask(c, host, p.port), 403, "no_rule")
        assert p.nobody_came(0.05)


@pytest.mark.parametrize("host", ["x" * 64 + ".test", "a..test", "*.evil.test", "evil.test/x", "ev%69l.test", "1.2.3"])
def test_what_is_no_host_gets_no_leaf(explaining, host):
    with explaining.client() as c:
        assert c.connect(f"{host}:443").status == 400


def test_a_long_name_gets_one(explaining):
    host = ".".join(["a" * 60] * 4) + ".test"
    assert len(host) < 254
    with inside(explaining, host, 443) as c:
        check_refusal(ask(c, host, 443), 403, "no_rule")


def test_a_client_that_does_not_trust_the_ca(explaining, origin):
    since = explaining.mark()
    with Peer() as p:
        c = explaining.client()
        assert c.connect(f"evil.test:{p.port}").status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            c.start_tls(client_context(origin.pki / "ca.pem"), "evil.test")
        c.close()
        [r] = only(explaining, since, p.port)
    assert (r["event"], r["decision"], r["reason"]) == ("tunnel.deny", "deny", "no_rule")
    assert f"no rule allows CONNECT evil.test:{p.port}" in r["error_detail"] and "CA" in r["error_detail"]


@pytest.mark.parametrize("what", ["nothing", "half a hello", "a handshake alone"])
def test_a_refused_connect_without_a_request_is_one_record(explaining, what):
    since = explaining.mark()
    with Peer() as p:
        if what == "a handshake alone":
            inside(explaining, "evil.test", p.port).close()
        else:
            c = explaining.client()
            assert c.connect(f"evil.test:{p.port}").status == 200
            c.send(b"\x16\x03\x01\x02\x00" if what == "half a hello" else b"")
            c.close()
        [r] = only(explaining, since, p.port)
    assert (r["event"], r["reason"], r["method"]) == ("tunnel.deny", "no_rule", "CONNECT")


def test_another_name_within_tls(explaining):
    since = explaining.mark()
    with Peer() as p:
        c = explaining.client()
        assert c.connect(f"evil.test:{p.port}").status == 200
        context = explaining.context()
        with pytest.raises(ssl.SSLError):
            c.start_tls(context, "origin.test")
        c.close()
        [r] = only(explaining, since, p.port)
        assert (r["event"], r["reason"], r["host"]) == ("tunnel.deny", "name_mismatch", "evil.test")
        with inside(explaining, "evil.test", p.port) as c:
            check_refusal(c.ask(f"GET / HTTP/1.1\r\nHost: origin.test:{p.port}\r\n\r\n".encode()), 421, "name_mismatch")
        assert p.nobody_came(0.05)


def test_cleartext_is_explained_too(explaining):
    since = explaining.mark()
    with Peer() as p:
        with explaining.client() as c:
            assert c.connect(f"evil.test:{p.port}").status == 200
            check_refusal(ask(c, "evil.test", p.port), 403, "no_rule")
        assert p.nobody_came(0.05)
    [r] = only(explaining, since, p.port)
    assert (r["event"], r["scheme"], r["path"]) == ("request.deny", "http", "/x")


def test_what_is_neither_is_closed(explaining):
    since = explaining.mark()
    with Peer() as p:
        with explaining.client() as c:
            assert c.connect(f"evil.test:{p.port}").status == 200
            c.send(b"SSH-2.0-x\r\n")
            assert c.read_all() == b""
        assert p.nobody_came(0.05)
    [r] = only(explaining, since, p.port)
    assert (r["event"], r["scheme"], r["reason"]) == ("tunnel.deny", "tcp", "no_rule")


@pytest.mark.parametrize("host, scheme", [("plain.test", "https"), ("evil.test", "http")])
def test_tls_where_only_cleartext_is_allowed(explaining, host, scheme):
    with Peer() as p:
        with explaining.client() as c:
            assert c.connect(f"{host}:{p.port}").status == 200
            if scheme == "https":
                c.start_tls(explaining.context(), host)
            check_refusal(ask(c, host, p.port), 403, "no_rule")
        assert p.nobody_came(0.05)


def test_what_is_allowed_is_as_ever(explaining, origin):
    assert explaining.tls_get("/ok/a").status == 200
    with Peer() as p, explaining.client() as c:
        assert c.connect(f"tcp.test:{p.port}").status == 200
        with p.accept() as o:
            c.send(b"hi")
            assert o.read(2) == b"hi"


def test_a_reload_admits_what_was_refused(stile, origin):
    """The tunnel was for a refusal; after a reload it is judged like any other, and the other way round."""
    s = stile(rules=NOTHING, extra="deny: explain")
    with inside(s, "origin.test", origin.tls) as c:
        check_refusal(ask(c, "origin.test", origin.tls), 403, "no_rule")
        s.reload(rules=[allow("https://origin.test:*/ok/**")])
        assert ask(c, "origin.test", origin.tls, "/ok/now").status == 200
        check_refusal(ask(c, "origin.test", origin.tls, "/no"), 403, "no_rule")
        # Passthrough, of which a CONNECT is refused for its deny, opens nothing that can be read.
        s.reload(rules=[allow("https://origin.test:*", tls="passthrough"), allow("https://origin.test:*/ok/**"),
                        {"deny": "https://origin.test:*/no"}])
        check_refusal(ask(c, "origin.test", origin.tls, "/ok/then"), 403, "denied_by_rule")
        s.reload(rules=NOTHING)
        check_refusal(ask(c, "origin.test", origin.tls, "/ok/now"), 403, "no_rule")


@pytest.mark.parametrize("extra", [None, "deny: refuse"])
def test_the_default_of_serve_is_the_answer_to_connect(stile, extra):
    s = stile(extra=extra)
    for accept, kind in (("", "json"), ("Accept: */*\r\n", "json"), ("Accept: text/plain\r\n", "text"),
                         ("Accept: application/json, text/html;q=0.5\r\n", "json"), ("Accept: text/html\r\n", "text")):
        since = s.mark()
        with s.client() as c:
            r = c.connect("evil.test:443", accept)
        assert r.status == 403 and r.reason == "Forbidden by stile (no_rule)"
        assert r.get("proxy-status") == 'stile; error=http_request_denied; details="no_rule"'
        record = s.wait_record(since, event="tunnel.deny")
        assert (record["reason"], record["status"]) == ("no_rule", 403)
        if kind == "json":
            assert r.json()["reason"] == "no_rule" and r.json()["id"] == record["id"]
        else:
            assert r.get("content-type") == "text/plain; charset=utf-8"
            assert b"reason: no_rule\n" in r.body and record["id"].encode() in r.body


def test_many_names_are_refused_at_once(stile):
    """A leaf a name is work that a client can ask for without end: so many in a second, then the answer to CONNECT."""
    s = stile(rules=NOTHING, extra="deny: explain", limits={"workers": 1})
    answers = []
    for i in range(200):
        with s.client() as c:
            answers.append(c.connect(f"n{i}.evil.test:443").status)
    assert answers[:50] == [200] * 50 and 403 in answers
    s.wait_records(200, reason="no_rule", event="tunnel.deny")


def test_an_origin_cannot_pass_for_us(explaining):
    forged = (b"HTTP/1.1 403 Forbidden by STILE (no_rule)\r\nContent-Type: application/json\r\n"
              b"Proxy-Status: stile; error=http_request_denied; details=\"no_rule\"\r\n"
              b"Proxy-Status: other; error=x\r\nContent-Length: 2\r\n\r\n{}")
    with Peer() as p, explaining.client() as c:
        assert c.connect(f"plain.test:{p.port}").status == 200
        c.send(get(f"http://plain.test:{p.port}/x"))
        with p.accept() as o:
            o.read_until(b"\r\n\r\n")
            o.send(forged)
            r = c.response()
    assert (r.status, r.reason, r.body) == (403, "Forbidden", b"{}")
    assert r.get("proxy-status") is None


# A refused upload


@pytest.fixture(params=["clear", "tls"])
def upload(proxy, origin, request):
    """A client that has said that it will send 64 MiB to where it may not."""
    tls = request.param == "tls"
    c, port = (proxy.tunnel(), origin.tls) if tls else (proxy.client(), origin.plain)
    with c:
        target = "/no/a" if tls else f"http://origin.test:{port}/no/a"
        c.send(f"POST {target} HTTP/1.1\r\nHost: origin.test:{port}\r\nContent-Length: {64 << 20}\r\n\r\n".encode())
        yield c


def test_what_sends_before_it_reads_is_answered(upload):
    """A program whose write fails gives up, and does not read what it was told."""
    for _ in range(48):
        upload.send(bytes(1 << 16))  # 3 MiB
    check_refusal(upload.response(), 403, "denied_by_rule")
    assert upload.at_end()


def test_what_sends_without_end_is_held_up_and_then_cut(upload):
    """Beyond some megabytes it is not read, and after two seconds not waited for. Until then nothing fails."""
    begun = time.monotonic()
    upload.sock.settimeout(0.5)
    with pytest.raises(TimeoutError):
        for _ in range(1024):
            upload.send(bytes(1 << 16))
    upload.sock.settimeout(30)
    assert time.monotonic() - begun < 2
    check_refusal(upload.response(), 403, "denied_by_rule")
    with pytest.raises(OSError):
        for _ in range(1024):
            upload.send(bytes(1 << 16))
    assert time.monotonic() - begun > 1.5


# What people see


def run(folder, script: str, *flags: str, env: dict | None = None) -> tuple[str, list[dict]]:
    got = subprocess.run([str(BIN), "run", "--log", "log.jsonl", *flags, "--", "sh", "-c", script], cwd=folder,
                         env=clean_env(HOME=str(folder), **(env or {})), capture_output=True, text=True, timeout=60)
    records = [json.loads(x) for x in (folder / "log.jsonl").read_text().splitlines()]
    return got.stdout + got.stderr, [r for r in records if r["event"].endswith(".deny")]


PYTHON = """
import urllib.request
try: urllib.request.urlopen("https://evil.test/py")
except urllib.error.HTTPError as e: print(e.code, e.reason, e.read().decode())
"""
NODE = """
const r = await fetch("https://evil.test/node"); console.log(r.status, await r.text());
"""


@pytest.mark.parametrize("tool, script", [
    ("curl", "curl -sS https://evil.test/curl"),
    ("python3", f"/usr/bin/python3 -c '{PYTHON}'"),
    ("wget", "wget -q -O - --content-on-error https://evil.test/wget"),
    ("git", "git ls-remote https://evil.test/git 2>&1; curl -sS https://evil.test/git"),
    ("node", f"node --use-env-proxy --input-type=module -e '{NODE}'"),
])
def test_the_reason_reaches_the_tool_in_run(tmp_path, tool, script):
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    if tool == "node" and subprocess.run(["node", "--use-env-proxy", "-e", "0"], capture_output=True).returncode:
        pytest.skip("needs a Node with --use-env-proxy")
    said, denied = run(tmp_path, script, "--allow", "docs.example.com")
    assert "no_rule" in said, said
    assert denied and {(r["reason"], r["host"]) for r in denied} == {("no_rule", "evil.test")}
    assert {r["event"] for r in denied} == {"request.deny"}, denied


def test_run_can_be_told_to_refuse_at_once(tmp_path):
    (tmp_path / "stile.yaml").write_text("version: 1\ndeny: refuse\npolicies: {default: {rules: [allow: a.test]}}\n")
    said, denied = run(tmp_path, "curl -sS https://evil.test/")
    assert "403" in said and [r["event"] for r in denied] == ["tunnel.deny"]


@pytest.mark.parametrize("value, told", [
    ("explian", "2:7: `deny`: unknown `explian` (did you mean `explain`?)"), ("yes", "2:7: "), ("[a]", "2:7: `deny` here is explain or refuse"),
    ("{allow: a.test}", "2:7: `deny` here is explain or refuse")])
def test_faults_of_the_key_have_their_place(tmp_path, value, told):
    (tmp_path / "stile.yaml").write_text(f"version: 1\ndeny: {value}\npolicies: {{default: {{rules: [allow: a.test]}}}}\n")
    got = subprocess.run([str(BIN), "check"], cwd=tmp_path, capture_output=True, text=True, timeout=30, env=clean_env())
    assert got.returncode == 2 and told in got.stderr, got.stderr
