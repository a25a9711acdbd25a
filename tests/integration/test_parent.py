"""`upstream.proxy`: origins behind a proxy of the company's. What is judged is what it is asked for, its answers are
believed no more than an origin's, and its credential is seen by it alone."""

import base64
import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

import runlib
import test_websocket
from parentlib import Parent
from stilelib import BIN, SANITIZED, TIMEOUT, Peer, allow, check_refusal, clean_env, get, wait_for

RULES = [allow("http://origin.test:*", "https://origin.test:*"),
         allow("pass.test:*", tls="passthrough"), allow("tcp://raw.test:*")]
HOSTS = {"origin.test": "127.0.0.1", "pass.test": "127.0.0.1", "raw.test": "127.0.0.1"}


@pytest.fixture
def parent():
    with Parent() as p:
        yield p


def through(stile, parent, *, proxy=None, upstream=None, **more):
    """A stile whose way out leads through parent."""
    more.setdefault("rules", RULES)
    value = {"url": f"http://127.0.0.1:{parent.port}", **proxy} if proxy else f"http://127.0.0.1:{parent.port}"
    return stile(upstream={"hosts": HOSTS, "proxy": value, **(upstream or {})}, **more)


def login(user="user", password="secret"):
    return b"Proxy-Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()) + b"\r\n"


def ended(s, since=0, **want):
    return s.wait_record(since, event="request.end", **want)


# ---- each way of carrying ----


def test_clear_http(stile, parent):
    s = through(stile, parent)
    r = s.get("/ok/a")
    assert (r.status, r.body) == (200, b"ok /ok/a\n")
    target = f"127.0.0.1:{s.origin.plain}"
    assert parent.heads == [f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()]
    end = ended(s)
    assert (end["upstream"], end["via"]) == (target, f"127.0.0.1:{parent.port}")
    start = s.records()[[r["event"] for r in s.records()].index("request.start")]
    assert start["via"] == end["via"] and "upstream" not in start


def test_inspected(stile, parent):
    s = through(stile, parent)
    r = s.tls_get("/ok/a")
    assert (r.status, r.body) == (200, b"ok /ok/a\n")
    assert parent.targets == [f"127.0.0.1:{s.origin.tls}"]
    end = ended(s)
    assert (end["upstream"], end["via"]) == (parent.targets[0], f"127.0.0.1:{parent.port}")
    assert end["ms"]["connect"] > 0 and end["ms"]["tls"] > 0


def test_passed_through(stile, parent):
    s = through(stile, parent)
    context = s.context()
    context.load_verify_locations(s.origin.pki / "ca.pem")
    context.check_hostname = False
    with s.client() as c:
        assert c.connect(f"pass.test:{s.origin.tls}").status == 200
        c.start_tls(context, "pass.test")
        assert c.ask(get("https://x/ok/a", host="pass.test").replace(b"https://x", b"")).body == b"ok /ok/a\n"
    end = s.wait_record(event="tunnel.end")
    assert (end["upstream"], end["via"]) == (f"127.0.0.1:{s.origin.tls}", f"127.0.0.1:{parent.port}")
    assert end["bytes_in"] > 0 and end["bytes_out"] > 0


def test_raw_tcp(stile, parent):
    s = through(stile, parent)
    with Peer() as peer, s.client() as c:
        assert c.connect(f"raw.test:{peer.port}").status == 200
        with peer.accept() as there:
            c.send(b"\x00hello")
            assert there.read(6) == b"\x00hello"
            there.send(b"back")
            assert c.read(4) == b"back"
            there.half_close()
            assert c.at_end()
    end = s.wait_record(event="tunnel.end")
    assert (end["bytes_out"], end["bytes_in"], end["via"]) == (6, 4, f"127.0.0.1:{parent.port}")


@pytest.mark.parametrize("size", [5, 50000])
def test_an_origin_that_speaks_at_once(stile, size):
    """Its first bytes come in one piece with the proxy's 200; none is lost, and all are counted."""
    early = (b"hello" * size)[:size]
    with Parent(early=early) as parent, Peer() as peer:
        s = through(stile, parent)
        with s.client() as c:
            assert c.connect(f"raw.test:{peer.port}").status == 200
            c.send(b"x")
            with peer.accept() as there:
                assert there.read(1) == b"x"
                assert c.read(size) == early
                there.send(b"later")
                assert c.read(5) == b"later"
        assert s.wait_record(event="tunnel.end")["bytes_in"] == size + 5


def test_old_proxies_say_http_1_0(stile):
    with Parent(greeting=b"HTTP/1.0 200 Connection established\r\nProxy-agent: x\r\n\r\n") as parent:
        assert through(stile, parent).tls_get("/ok/a").status == 200


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
                                      b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                                      b"HTTP/1.1 204 No Content\r\n\r\n",
                                      b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"])
def test_a_success_has_no_body_whatever_it_says(stile, greeting):
    with Parent(greeting=greeting) as parent:
        s = through(stile, parent)
        assert s.tls_get("/ok/a").body == s.get("/ok/a").body == b"ok /ok/a\n"


def test_connections_through_it_are_kept(stile, parent):
    s = through(stile, parent)
    with s.client() as c:
        for i in range(3):
            r = c.ask(get(f"http://origin.test:{s.origin.plain}/ok/{i}"))
            assert r.body == f"ok /ok/{i}\n".encode()
    assert len(parent.heads) == 1
    ends = s.wait_records(3, event="request.end")
    assert {e["via"] for e in ends} == {f"127.0.0.1:{parent.port}"}
    assert {e["upstream"] for e in ends} == {f"127.0.0.1:{s.origin.plain}"}


def test_a_reload_changes_the_way(stile, parent):
    """What was kept under the old configuration serves nothing under the new one."""
    s = through(stile, parent)
    with Parent() as other:
        assert s.get("/ok/a").status == 200
        s.reload(upstream={"hosts": HOSTS, "proxy": f"http://127.0.0.1:{other.port}"})
        assert s.get("/ok/b").status == 200
        s.reload(upstream={"hosts": HOSTS})
        assert s.get("/ok/c").status == 200
        assert (len(parent.heads), len(other.heads)) == (1, 1)
    vias = [e.get("via") for e in s.wait_records(3, event="request.end")]
    assert vias == [f"127.0.0.1:{parent.port}", f"127.0.0.1:{other.port}", None]


# ---- the address, or the name ----


def test_what_is_not_admitted_is_never_asked_for(stile, parent):
    s = through(stile, parent, rules=[{"allow": ["http://origin.test:*", "tcp://raw.test:*"]}])
    check_refusal(s.get("/ok/a"), 403, "address_denied")
    check_refusal(s.get("/ok/a", host="evil.test"), 403, "no_rule")
    with s.client() as c:
        check_refusal(c.connect("raw.test:1"), 403, "address_denied")
    assert parent.heads == []
    assert all("via" not in r or r["event"].endswith(".deny") for r in s.records())


def test_one_address_after_the_other(stile):
    """A proxy that cannot reach the first is asked for the next, each time on a connection of its own."""
    def answer(target, head):
        return b"HTTP/1.1 503 No\r\n\r\n" if not target.startswith("127.0.0.1:") else None

    with Parent(answer) as parent:
        s = through(stile, parent, upstream={"hosts": {"origin.test": ["::1", "127.0.0.9", "127.0.0.1"]}})
        assert s.get("/ok/a").status == 200
        port = s.origin.plain
        assert sorted(parent.targets) == sorted([f"[::1]:{port}", f"127.0.0.9:{port}", f"127.0.0.1:{port}"])
        assert parent.targets[-1] == f"127.0.0.1:{port}" == ended(s)["upstream"]


@pytest.mark.parametrize("status", [403, 407])
def test_a_refusal_is_no_reason_to_try_another_address(stile, status):
    with Parent(lambda t, h: b"HTTP/1.1 %d No\r\n\r\n" % status) as parent:
        s = through(stile, parent, upstream={"hosts": {"origin.test": ["127.0.0.9", "127.0.0.1"]}})
        check_refusal(s.get("/ok/a"), 502, "proxy_refused")
        assert len(parent.heads) == 1


def test_it_is_not_asked_for_more_than_a_few(stile):
    with Parent(lambda t, h: b"HTTP/1.1 502 No\r\n\r\n") as parent:
        s = through(stile, parent, upstream={"hosts": {"origin.test": [f"127.0.1.{i}" for i in range(1, 21)]}})
        check_refusal(s.get("/ok/a"), 502, "proxy_refused")
        assert len(set(parent.targets)) == len(parent.targets) == 6


def test_the_name_where_the_admin_says_so(stile):
    """Nothing is looked up here: the only name server is one that nobody runs."""
    with Parent(names={"far.test": "127.0.0.1"}) as parent, Peer() as dead:
        s = through(stile, parent, proxy={"send": "name"}, upstream={"dns": [f"127.0.0.1:{dead.port}"]},
                    rules=[{"allow": ["http://far.test:*", "tcp://far.test:*"]}])
        assert s.get("/ok/a", host="far.test").body == b"ok /ok/a\n"
        assert parent.targets == [f"far.test:{s.origin.plain}"]
        end = ended(s)
        assert "upstream" not in end and end["via"] == f"127.0.0.1:{parent.port}"
        with Peer() as peer, s.client() as c:
            assert c.connect(f"far.test:{peer.port}").status == 200
            c.send(b"\x00x")
            with peer.accept() as there:
                assert there.read(2) == b"\x00x"
        s.wait_record(event="tunnel.end")


def test_an_address_is_judged_even_where_names_are_sent(stile, parent):
    s = through(stile, parent, proxy={"send": "name"}, rules=[{"allow": ["http://127.0.0.1:*", "http://origin.test:*"]}])
    check_refusal(s.get("/ok/a", host="127.0.0.1"), 403, "address_denied")
    # A fixed name too: the admin gave its address here.
    check_refusal(s.get("/ok/a"), 403, "address_denied")
    assert parent.heads == []


@pytest.mark.parametrize("spared", ["origin.test", "*.test", "127.0.0.0/8", "127.0.0.1"])
def test_no_proxy(stile, parent, spared):
    s = through(stile, parent, proxy={"no_proxy": ["other.example", spared]})
    assert s.get("/ok/a").status == s.tls_get("/ok/a").status == 200
    assert parent.heads == []
    for end in s.wait_records(2, event="request.end"):
        assert end["upstream"].startswith("127.0.0.1:") and "via" not in end


@pytest.mark.parametrize("spared", ["rigin.test", "*.origin.test", "test", "10.0.0.0/8"])
def test_no_proxy_that_means_another_host(stile, parent, spared):
    s = through(stile, parent, proxy={"no_proxy": [spared]})
    assert s.get("/ok/a").status == 200
    assert len(parent.heads) == 1


def test_addresses_that_are_spared_are_dialled_alone(stile, parent):
    s = through(stile, parent, proxy={"no_proxy": ["127.0.0.1"]},
                upstream={"hosts": {"origin.test": ["127.0.0.9", "127.0.0.1"]}})
    assert s.get("/ok/a").status == 200
    assert parent.heads == [] and ended(s)["upstream"] == f"127.0.0.1:{s.origin.plain}"


# ---- the credential ----


def with_login(stile, parent, tmp_path, value, how="basic", **more):
    (tmp_path / "login").write_text(value)
    return through(stile, parent, proxy={"credential": "proxy", **more},
                   credentials={"proxy": {"from": {"file": str(tmp_path / "login")}, "as": how}})


@pytest.mark.parametrize("value, how, want", [("user:secret\n", "basic", login()),
                                              ("secret", {"basic": "user"}, login()),
                                              ("t0ken", "bearer", b"Proxy-Authorization: Bearer t0ken\r\n")])
def test_it_is_sent_to_the_proxy_and_to_nobody_else(stile, parent, tmp_path, value, how, want):
    s = with_login(stile, parent, tmp_path, value, how)
    mark = s.origin.mark()
    assert s.get("/ok/a").status == 200
    assert want in parent.heads[0] and parent.heads[0].count(b"\r\n") == 4
    assert b"Proxy-Authorization" not in s.origin.since(mark)


def test_from_a_variable(stile, parent, canary):
    s = through(stile, parent, proxy={"credential": "proxy"}, env={"PROXY_LOGIN": f"user:{canary}"},
                credentials={"proxy": {"from": {"env": "PROXY_LOGIN"}, "as": "basic"}})
    assert s.get("/ok/a").status == 200
    assert login("user", canary) in parent.heads[0]


def test_a_new_value_is_taken_up(stile, parent, tmp_path):
    s = with_login(stile, parent, tmp_path, "user:one")
    assert s.get("/ok/a").status == 200
    (tmp_path / "login").write_text("user:two")
    s.wait_stderr("has a new value")
    s.reload(limits={"connections": 99})  # so that no kept connection is used
    assert s.get("/ok/a").status == 200
    assert login("user", "two") in parent.heads[-1]


@pytest.mark.parametrize("value", ["", "no-colon", "user:a\nb", None])
def test_one_that_is_not_to_be_had(stile, parent, tmp_path, value):
    s = with_login(stile, parent, tmp_path, value or "")
    if value is None:
        (tmp_path / "login").unlink()
        s.wait_stderr("not available")
    r = s.get("/ok/a")
    check_refusal(r, 503, "credential_unavailable")
    assert ended(s)["error"] == "credential_unavailable"
    assert parent.heads == []
    if value:
        assert value not in s.stderr and value.encode() not in s.log_path.read_bytes() + r.body


@pytest.mark.parametrize("refused", [False, True])
def test_the_canary_is_nowhere(stile, tmp_path, canary, refused):
    encoded = base64.b64encode(f"user:{canary}".encode()).decode().rstrip("=")
    answer = (lambda t, head: b"HTTP/1.1 407 Give me " + head.split(b"\r\n")[2] + b"\r\n\r\n") if refused else None
    with Parent(answer) as parent:
        s = with_login(stile, parent, tmp_path, f"user:{canary}")
        answers = [s.get("/ok/a"), s.get("/status/500")]
        said = b"".join(r.body + repr(r.fields).encode() for r in answers)
        for args in (["check", s.config], ["explain", "-c", s.config, "GET", f"http://origin.test:{s.origin.plain}/x"]):
            got = subprocess.run([str(BIN), *map(str, args)], capture_output=True, timeout=TIMEOUT, env=clean_env())
            said += got.stdout + got.stderr
        s.stop()
        said += s.stderr.encode() + s.log_path.read_bytes()
        assert len(parent.heads) >= 1 and login("user", canary) in parent.heads[0]
    for secret in (canary, encoded):
        assert secret.encode() not in said
    if refused:
        assert [r.status for r in answers] == [502, 502] and b"it does not take the credential" in said


def test_the_one_who_asks_cannot_bring_its_own(stile, parent):
    s = through(stile, parent)
    r = s.get("/echo", more="Proxy-Authorization: Basic eDp5\r\n")
    assert r.status == 200 and b"eDp5" not in r.body + parent.heads[0]


# ---- answers that are none ----


def hang(sock):
    while sock.recv(4096):
        pass


def drip(sock):
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        sock.sendall(b"X-A: b\r\n")
        time.sleep(0.05)


def endless(sock):
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        sock.sendall(b"X-A: " + b"b" * 1000 + b"\r\n")


def interim(sock):
    while True:
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.01)


ANSWERS = {
    "403": (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno\n", 502, "proxy_refused"),
    "407": (b"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\n\r\n", 502, "proxy_refused"),
    "500": (b"HTTP/1.1 500 Oh\r\n\r\n", 502, "proxy_refused"),
    "502": (b"HTTP/1.1 502 Bad\r\n\r\n", 502, "proxy_refused"),
    "504": (b"HTTP/1.0 504 Late\r\n\r\n", 502, "proxy_refused"),
    "302": (b"HTTP/1.1 302 Login\r\nLocation: http://login.test/\r\n\r\n", 502, "proxy_refused"),
    "101": (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 502, "proxy_malformed"),
    "garbage": (b"\x00\x01\x02 nothing of the kind\r\n\r\n", 502, "proxy_malformed"),
    "http/0.9": (b"<html>no</html>\n", 502, "proxy_malformed"),
    "another protocol": (b"SSH-2.0-x\r\n\r\n", 502, "proxy_malformed"),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", 502, "proxy_malformed"),
    "bare lf": (b"HTTP/1.1 200 OK\n\n", 502, "proxy_malformed"),
    "both lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 502, "proxy_malformed"),
    "nothing": (b"", 502, "proxy_unreachable"),
    "half a head": (b"HTTP/1.1 200 OK\r\nX-A: ", 502, "proxy_unreachable"),
    "endless head": (endless, 502, "proxy_malformed"),
    "endless interim": (interim, 502, "proxy_malformed"),
    "silence": (hang, 504, "proxy_timeout"),
    "a slow head": (drip, 504, "proxy_timeout"),
}


@pytest.mark.parametrize("how", ["http", "https", "tcp"])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers(stile, name, how):
    answer, status, reason = ANSWERS[name]
    with Parent(lambda target, head: answer) as parent:
        s = through(stile, parent, limits={"dial": "1500ms" if SANITIZED else "400ms"})
        if how == "tcp":
            with s.client() as c:
                # A tcp:// tunnel is answered once it stands.
                check_refusal(c.connect("raw.test:9"), status, reason)
            end = s.wait_record(event="tunnel.end")
        else:
            r = s.get("/ok/a") if how == "http" else s.tls_get("/ok/a")
            check_refusal(r, status, reason)
            if status == 502 and reason == "proxy_refused":
                assert name in r.json()["detail"]
            end = ended(s)
        assert (end["error"], end["via"]) == (reason, f"127.0.0.1:{parent.port}")
        assert "error_detail" in end and end["ms"]["total"] < 20000
        assert len(parent.heads) == 1


def test_nobody_listens_there(stile, parent):
    s = through(stile, parent)
    parent.close()
    check_refusal(s.get("/ok/a"), 502, "proxy_unreachable")
    assert "refused" in ended(s)["error_detail"]


def test_it_has_no_address(stile):
    with Peer() as dead:
        s = stile(rules=RULES, upstream={"hosts": HOSTS, "proxy": "http://nowhere.invalid:3128",
                                         "dns": [f"127.0.0.1:{dead.port}"]}, limits={"dns": "500ms", "dial": "5s"})
        r = s.get("/ok/a")
        check_refusal(r, (502, 504), ("proxy_unreachable", "proxy_timeout"))
        assert ended(s)["via"] == "nowhere.invalid:3128"


def test_it_is_found_by_its_own_name(stile, parent):
    s = stile(rules=RULES, upstream={"hosts": {**HOSTS, "proxy.test": "127.0.0.1"},
                                     "proxy": f"http://proxy.test:{parent.port}"})
    assert s.get("/ok/a").status == 200
    assert ended(s)["via"] == f"proxy.test:{parent.port}"


def test_not_through_itself(stile):
    """Stile as its own proxy would go in circles."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    s = stile(rules=RULES, listen=[{"proxy": f"127.0.0.1:{port}"}],
              upstream={"hosts": HOSTS, "proxy": f"http://127.0.0.1:{port}"})
    check_refusal(s.get("/ok/a"), 502, "proxy_unreachable")
    assert "stile itself" in ended(s)["error_detail"]
    assert len(s.records()) == 4  # start, load, and the one request


def test_through_another_stile(stile, tmp_path):
    far = stile(rules=[allow("tcp://127.0.0.1:*")])
    near = stile(rules=RULES, upstream={"hosts": HOSTS, "proxy": f"http://127.0.0.1:{far.port}"})
    assert near.tls_get("/ok/a").body == b"ok /ok/a\n"


def test_a_client_that_leaves_in_the_middle(stile):
    with Parent(lambda t, h: hang) as parent:
        s = through(stile, parent, limits={"dial": "1s"})
        with s.client() as c:
            c.send(get(f"http://origin.test:{s.origin.plain}/x"))
            wait_for(lambda: parent.heads)
        assert ended(s)["error"] in ("client_closed", "proxy_timeout")
        wait_for(lambda: parent.open[0].fileno() < 0, why="the connection to the proxy is closed")


def test_stopping_in_the_middle(stile):
    with Parent(lambda t, h: hang) as parent:
        s = through(stile, parent, limits={"drain": "100ms"})
        with s.client() as c:
            c.send(get(f"http://origin.test:{s.origin.plain}/x"))
            wait_for(lambda: parent.heads)
            s.stop()
        assert [r["event"] for r in s.records()].count("request.end") == 1


# ---- an https:// proxy ----


@pytest.fixture
def tls_parent(tmp_path):
    """Its certificate is for proxy.test."""
    runlib.make_certificates(tmp_path, "proxy.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "origin.pem", tmp_path / "origin.key")
    with Parent(context=context) as p:
        p.ca = tmp_path / "origin-ca.pem"
        yield p


def through_tls(stile, parent, origin, name="proxy.test", trusted=True, **more):
    trust = [str(origin.pki / "ca.pem")] + [str(parent.ca)] * trusted
    return stile(rules=RULES, upstream={"hosts": {**HOSTS, "proxy.test": "127.0.0.1", "else.test": "127.0.0.1"},
                                        "trust": trust, "proxy": f"https://{name}:{parent.port}"}, **more)


def test_tls_within_tls(stile, tls_parent, origin):
    s = through_tls(stile, tls_parent, origin)
    assert s.tls_get("/ok/a").body == s.get("/ok/a").body == b"ok /ok/a\n"
    assert tls_parent.targets == [f"127.0.0.1:{s.origin.tls}", f"127.0.0.1:{s.origin.plain}"]
    assert {e["via"] for e in s.wait_records(2, event="request.end")} == {f"proxy.test:{tls_parent.port}"}


@pytest.mark.parametrize("how", ["http", "https"])
def test_much_within_tls(stile, tls_parent, origin, how):
    """Both ways, larger than any buffer."""
    s = through_tls(stile, tls_parent, origin)
    n = 3 << 20
    body = os.urandom(1 << 16) * (n >> 16)
    more = f"Content-Length: {n}\r\n"
    with s.client() if how == "http" else s.tunnel() as c:
        host = f"origin.test:{origin.plain if how == 'http' else origin.tls}"
        target = f"http://{host}/upload" if how == "http" else "/upload"
        c.send(f"POST {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode() + body)
        assert c.response("POST").json()["sha256"] == hashlib.sha256(body).hexdigest()
        target = target.replace("/upload", f"/bytes/{n}")
        r = c.ask(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert r.status == 200 and len(r.body) == n and r.whole
    assert len(tls_parent.heads) == 1


def test_tunnels_within_tls(stile, tls_parent, origin):
    s = through_tls(stile, tls_parent, origin)
    n = 1 << 20
    with Peer() as peer, s.client() as c:
        assert c.connect(f"raw.test:{peer.port}").status == 200
        c.send(b"\x00" * 5)
        with peer.accept() as there:
            assert there.read(5) == b"\x00" * 5
            sender = threading.Thread(target=there.send, args=(b"y" * n,))
            sender.start()
            assert c.read(n) == b"y" * n
            sender.join(TIMEOUT)
            there.close()
            assert c.at_end()
    end = s.wait_record(event="tunnel.end")
    assert (end["bytes_out"], end["bytes_in"], end["via"]) == (5, n, f"proxy.test:{tls_parent.port}")


def test_a_tunnel_within_tls_that_is_idle(stile, tls_parent, origin):
    s = through_tls(stile, tls_parent, origin, limits={"tunnel_idle": "300ms"})
    with Peer() as peer, s.client() as c:
        assert c.connect(f"raw.test:{peer.port}").status == 200
        c.send(b"\x00")
        with peer.accept() as there:
            assert there.read(1) == b"\x00"
            assert s.wait_record(event="tunnel.end")["error"] == "tunnel_idle"


def test_a_revoked_tunnel_within_tls(stile, tls_parent, origin):
    s = through_tls(stile, tls_parent, origin)
    with Peer() as peer, s.client() as c:
        assert c.connect(f"raw.test:{peer.port}").status == 200
        c.send(b"\x00")
        with peer.accept() as there:
            assert there.read(1) == b"\x00"
            s.reload(rules=[allow("http://origin.test:*")])
            assert s.wait_record(event="tunnel.end")["error"] == "policy_revoked"


def test_a_body_that_the_proxy_cuts_never_looks_whole(stile, tmp_path, tls_parent, origin):
    """Close-delimited, in clear behind TLS: without close_notify nobody can say that it was all."""
    def answer(target, head):
        def cut(sock):
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while not sock.recv(4096).endswith(b"\r\n\r\n"):
                pass
            sock.sendall(b"HTTP/1.0 200 OK\r\n\r\nhalf of it")
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        return cut

    tls_parent.answer = answer
    s = through_tls(stile, tls_parent, origin)
    with s.client() as c:
        c.send(get(f"http://origin.test:{origin.plain}/x"))
        r = c.response()
        assert r.status == 502 or not r.whole
    assert ended(s)["error"] == "upstream_closed"


@pytest.mark.parametrize("name, trusted", [("else.test", True), ("proxy.test", False)])
def test_a_proxy_that_does_not_verify(stile, tls_parent, origin, tmp_path, canary, name, trusted):
    (tmp_path / "login").write_text(f"user:{canary}")
    s = through_tls(stile, tls_parent, origin, name, trusted)
    check_refusal(s.get("/ok/a"), 502, "proxy_unreachable")
    assert "certificate" in ended(s)["error_detail"] and tls_parent.heads == []


def test_a_proxy_that_speaks_no_tls(stile, parent, origin, tmp_path):
    runlib.make_certificates(tmp_path, "proxy.test")
    parent.ca = tmp_path / "origin-ca.pem"
    s = through_tls(stile, parent, origin, limits={"dial": "1s"})
    check_refusal(s.get("/ok/a"), (502, 504), ("proxy_unreachable", "proxy_timeout"))


@pytest.mark.parametrize("tls", [False, True])
def test_a_websocket(request, stile, origin, tls):
    p = request.getfixturevalue("tls_parent" if tls else "parent")
    rules = [allow("ws://origin.test:*")]
    url = f"https://proxy.test:{p.port}" if tls else f"http://127.0.0.1:{p.port}"
    more = {"trust": [str(p.ca)]} if tls else {}
    s = stile(rules=rules, upstream={"hosts": {**HOSTS, "proxy.test": "127.0.0.1"}, "proxy": url, **more})
    with Peer() as peer, s.client() as c:
        c.send(test_websocket.clear(peer.port))
        with peer.accept() as there:
            assert b"Upgrade: websocket" in there.read_head()
            there.send(test_websocket.yes() + b"early")
            assert c.response_head().status == 101
            assert c.read(5) == b"early"
            c.send(b"x" * 100000)
            assert there.read(100000) == b"x" * 100000
            there.send(b"y" * 100000)
            assert c.read(100000) == b"y" * 100000
    end = s.wait_record(event="request.end", status=101)
    assert (end["bytes_in"], end["bytes_out"]) == (100005, 100000) and end["via"].endswith(f":{p.port}")


def test_a_websocket_whose_name_was_sent_outlives_a_reload(stile):
    """No address of it is known here that a rule could take back; a rule that goes still ends it."""
    rules = [{"allow": "ws://far.test:*"}]
    with Parent(names={"far.test": "127.0.0.1"}) as parent, Peer() as peer:
        s = through(stile, parent, proxy={"send": "name"}, rules=rules)
        with s.client() as c:
            c.send(test_websocket.hello(peer.port, target=f"http://far.test:{peer.port}/ws/a").replace(
                b"Host: origin.test", b"Host: far.test"))
            with peer.accept() as there:
                there.read_head()
                s.reload(rules=[*rules, {"deny": "ws://far.test:*/no"}])  # while it is a request
                there.send(test_websocket.yes())
                assert c.response_head().status == 101
                s.reload(rules=rules)
                c.send(b"still")
                assert there.read(5) == b"still"
                s.reload(rules=[{"allow": "ws://other.test:*"}])
                assert c.read_all() == b""
        assert s.wait_record(event="request.end")["error"] == "policy_revoked"


# ---- proxies that people have ----


def tinyproxy(tmp_path, *more):
    program = shutil.which("tinyproxy") or pytest.skip("tinyproxy is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "tiny.conf").write_text(f"Port {port}\nListen 127.0.0.1\nTimeout 60\nAllow 127.0.0.1\n"
                                        + "".join(f"{x}\n" for x in more))
    return port, [program, "-d", "-c", str(tmp_path / "tiny.conf")]


def squid(tmp_path, *more):
    program = shutil.which("squid") or shutil.which("squid", path="/usr/sbin") or pytest.skip("squid is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # It becomes another user, who must reach its files.
    (tmp_path / "squid.conf").write_text(f"""http_port 127.0.0.1:{port}
pid_filename none
cache_log /dev/null
access_log none
coredump_dir none
cache deny all
shutdown_lifetime 0 seconds
pinger_enable off
{os.linesep.join(more) or 'http_access allow all'}
""")
    return port, [program, "-N", "-f", str(tmp_path / "squid.conf")]


def up(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


@pytest.mark.parametrize("make", [tinyproxy, squid])
def test_real_proxies(stile, tmp_path, make):
    port, argv = make(tmp_path)
    with open(tmp_path / "out", "w") as out:
        proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=clean_env())
    try:
        wait_for(lambda: up(port), why=(tmp_path / "out").read_text())
        s = stile(rules=RULES, upstream={"hosts": HOSTS, "proxy": f"http://127.0.0.1:{port}"})
        assert s.get("/ok/a").body == s.tls_get("/ok/a").body == b"ok /ok/a\n"
        with Peer() as peer, s.client() as c:
            assert c.connect(f"raw.test:{peer.port}").status == 200
            c.send(b"\x00x")
            with peer.accept() as there:
                there.send(b"back")
                assert (there.read(2), c.read(4)) == (b"\x00x", b"back")
        with socket.create_server(("127.0.0.1", 0)) as free:
            closed = free.getsockname()[1]
        since = s.mark()
        check_refusal(s.ask(get(f"http://origin.test:{closed}/")), 502, "proxy_refused")
        assert ended(s, since)["via"] == f"127.0.0.1:{port}"
    finally:
        proc.terminate()
        proc.wait(TIMEOUT)


def test_tinyproxy_with_a_password(stile, tmp_path, canary):
    port, argv = tinyproxy(tmp_path, f"BasicAuth user {canary}")
    proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            env=clean_env())
    try:
        wait_for(lambda: up(port))
        s = stile(rules=RULES, upstream={"hosts": HOSTS, "proxy": f"http://127.0.0.1:{port}"})
        check_refusal(s.get("/ok/a"), 502, "proxy_refused")
        assert "it wants a credential" in ended(s)["error_detail"]
        (tmp_path / "login").write_text(f"user:{canary}")
        s.reload(upstream={"hosts": HOSTS, "proxy": {"url": f"http://127.0.0.1:{port}", "credential": "proxy"}},
                 credentials={"proxy": {"from": {"file": str(tmp_path / "login")}, "as": "basic"}})
        assert s.get("/ok/a").status == 200
    finally:
        proc.terminate()
        proc.wait(TIMEOUT)


# ---- `stile run`, `check`, `explain` ----


def test_in_a_sandbox(tmp_path, parent, canary):
    """Neither the file of the credential nor the proxy itself is within reach of the command."""
    o = runlib.Origin(tmp_path)
    try:
        (tmp_path / "login").write_text(f"user:{canary}\n")
        (tmp_path / "stile.yaml").write_text(f"""version: 1
upstream:
  trust: [{o.ca}]
  hosts: {{allowed.test: 127.0.0.1}}
  proxy: {{url: "http://127.0.0.1:{parent.port}", credential: proxy}}
credentials: {{proxy: {{from: {{file: login}}, as: basic}}}}
policies:
  default:
    rules: [{{allow: "https://allowed.test:{o.port}", addresses: [127.0.0.0/8]}}]
""")
        got = runlib.run(tmp_path, "sh", "-c", f"curl -sS https://allowed.test:{o.port}/x; cat login; env; "
                         f"curl -sS --noproxy '*' --max-time 5 http://127.0.0.1:{parent.port}/")
        assert got.stdout.startswith("hello from the origin\n")
        assert canary not in got.stdout + got.stderr and "Permission denied" in got.stderr
        assert parent.targets == [f"127.0.0.1:{o.port}"] and login("user", canary) in parent.heads[0]
    finally:
        o.close()


def test_in_a_sandbox_whose_own_port_is_the_proxy_s(tmp_path):
    """In the sandbox stile listens at 127.0.0.1:3128, and out here that is another program's place."""
    try:
        parent = Parent(port=3128)
    except OSError:
        pytest.skip("port 3128 of this machine is taken")
    o = runlib.Origin(tmp_path)
    try:
        (tmp_path / "stile.yaml").write_text(f"""version: 1
upstream: {{trust: [{o.ca}], hosts: {{allowed.test: 127.0.0.1}}, proxy: "http://127.0.0.1:3128"}}
policies: {{default: {{rules: [{{allow: "https://allowed.test:{o.port}", addresses: [127.0.0.0/8]}}]}}}}
""")
        got = runlib.run(tmp_path, "curl", "-sS", f"https://allowed.test:{o.port}/x")
        assert got.stdout == "hello from the origin\n", (tmp_path / "run.jsonl").read_text()
        assert parent.targets == [f"127.0.0.1:{o.port}"]
    finally:
        parent.close()
        o.close()


def checked(tmp_path, proxy, more=""):
    (tmp_path / "stile.yaml").write_text(f"version: 1\nupstream:\n  proxy: {proxy}\n{more}"
                                         "policies: {default: {rules: [{allow: a.test}]}}\n")
    return subprocess.run([str(BIN), "check", "stile.yaml"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=TIMEOUT, env=clean_env())


@pytest.mark.parametrize("proxy, said", [
    ("proxy.test:3128", "3:10: the proxy needs a scheme (write http://HOST:PORT)"),
    ("socks5://proxy.test:1", "3:10: `socks5` is no scheme of a proxy"),
    ("http://proxy.test", "3:10: `proxy.test` is not the HOST:PORT of a proxy"),
    ("http://proxy.test:0", "3:10: `proxy.test:0` is not"),
    ("http://proxy.test:3128/path", "3:10: `proxy.test:3128/path` is not"),
    ("http://127.1:3128", "3:10: `127.1:3128` is not"),
    ("[http://a:1]", "3:10: `proxy` must be a"),
    ("{send: address}", "3:10: `proxy` needs its `url`"),
    ("{url: 'http://p.test:1', sned: name}", "3:35: unknown key `sned` (did you mean `send`?)"),
    ("{url: 'http://p.test:1', send: host}", "3:41: `send`: unknown `host`"),
    ("{url: 'http://p.test:1', credential: x}", "3:47: no credential is called `x`"),
    ("{url: 'http://p.test:1', no_proxy: []}", "3:45: `no_proxy`"),
    ("{url: 'http://p.test:1', no_proxy: [.a.test]}", "3:46: `.a.test` in `no_proxy`: it begins with a dot"),
    ("{url: 'http://p.test:1', no_proxy: ['*']}", "3:46: `*` in `no_proxy`: then nothing would go through it"),
    ("{url: 'http://p.test:1', no_proxy: [10.0.0.1/8]}", "3:46: `10.0.0.1/8` in `no_proxy`"),
    ("{url: 'http://p.test:1', no_proxy: ['a.test:80']}", "3:46: `a.test:80` in `no_proxy`"),
    ("{url: 'http://p.test:1', no_proxy: ['*.10.0.0.1']}", "3:46: `*.10.0.0.1` in `no_proxy`"),
])
def test_faults(tmp_path, proxy, said):
    got = checked(tmp_path, proxy)
    assert got.returncode == 2
    assert f"stile.yaml:{said}" in got.stderr, got.stderr


@pytest.mark.parametrize("proxy", ["http://user:{}@proxy.test:3128", "http://{}@proxy.test:3128",
                                   "{{url: 'http://user:{}@proxy.test:3128'}}", "http://user:{}@", "user:{}@proxy.test"])
def test_a_password_in_the_url_is_refused_and_not_repeated(tmp_path, canary, proxy):
    got = checked(tmp_path, proxy.format(canary))
    assert got.returncode == 2 and "credentials" in got.stderr
    assert canary not in got.stderr + got.stdout


def test_a_credential_of_the_wrong_kind(tmp_path):
    got = checked(tmp_path, "{url: 'http://p.test:1', credential: c}",
                  "credentials: {c: {from: {env: C}, as: {header: X-A}}}\n")
    assert got.returncode == 2 and "3:47: a proxy takes a credential `as: basic`" in got.stderr


def test_what_is_right(tmp_path):
    got = checked(tmp_path, "{url: 'http://p.test:1/', credential: c, send: address, no_proxy: [a.test, '*.b.test', "
                  "10.0.0.0/8, '2001:db8::/32', 192.0.2.1]}", "credentials: {c: {from: {env: C}, as: basic}}\n")
    assert got.returncode == 0 and got.stderr == "" and "0 warnings" in got.stdout
    got = checked(tmp_path, "{url: 'http://p.test:1', send: name}")
    assert got.returncode == 0 and "3:41: warning: with `send: name`" in got.stderr


@pytest.mark.parametrize("proxy, method, url, said", [
    ("http://p.test:1", "GET", "https://a.test/", "way        through p.test:1, which is told the address\n"),
    ("{url: 'http://p.test:1', send: name}", "GET", "https://a.test/", "way        through p.test:1, which is told the name\n"),
    ("{url: 'http://p.test:1', no_proxy: [10.0.0.0/8]}", "CONNECT", "a.test:443",
     "way        through p.test:1, which is told the address (unless it is in a range of no_proxy)\n"),
    ("{url: 'http://p.test:1', no_proxy: [a.test]}", "GET", "https://a.test/", None),
])
def test_explain_says_the_way(tmp_path, proxy, method, url, said):
    checked(tmp_path, proxy)
    got = subprocess.run([str(BIN), "explain", method, url], cwd=tmp_path, capture_output=True, text=True,
                         timeout=TIMEOUT, env=clean_env())
    assert got.returncode == 0
    assert said in got.stdout if said else "way" not in got.stdout
