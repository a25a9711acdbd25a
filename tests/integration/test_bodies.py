"""Bodies and what goes with them: framing, streaming, trailers, Expect, interim answers, pipelining, kept connections,
and that size costs no memory. (Slow and broken peers: test_slow_peers.py.)"""

import hashlib
import json
import os
import socket
import threading
import time

import pytest

from stilelib import SLOWER, TIMEOUT, Peer, check_refusal, chunked, get

BLOCK = bytes(range(256)) * 4096  # 1 MiB
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
WAYS = ["clear", "tls", "connect"]


class Way:
    """Requests to the origin, or to a Peer, in absolute-form, inspected, or in clear within CONNECT."""

    def __init__(self, s, kind: str):
        self.s, self.kind = s, kind
        self.port = s.origin.tls if kind == "tls" else s.origin.plain

    def client(self):
        if self.kind == "tls":
            return self.s.tunnel(self.port)
        c = self.s.client()
        if self.kind == "connect":
            assert c.connect(f"origin.test:{self.port}").status == 200
        return c

    def head(self, path: str, more: str = "", method: str = "GET", version: str = "1.1", host="origin.test") -> bytes:
        target = f"http://{host}:{self.port}{path}" if self.kind == "clear" else path
        return get(target, f"{host}:{self.port}", more, method, version)


@pytest.fixture(params=WAYS)
def way(request, proxy):
    return Way(proxy, request.param)


@pytest.fixture(params=["clear", "tls"])
def two_ways(request, proxy):
    return Way(proxy, request.param)


@pytest.fixture
def clear(proxy):
    return Way(proxy, "clear")


def peer_head(peer, path="/x", more="", method="GET", version="1.1") -> bytes:
    return get(f"http://origin.test:{peer.port}{path}", more=more, method=method, version=version)


# ---- streaming ----


@pytest.mark.parametrize("framing", ["", "&close"])
def test_events_arrive_one_by_one(way, framing, tmp_path):
    """The origin sends an event only after the one before it has arrived."""
    gate = f"sse-{way.kind}-{bool(framing)}"
    origin = way.s.origin
    with way.client() as c:
        c.send(way.head(f"/sse?n=5&gate={gate}{framing}"))
        r = c.response_head()
        assert r.status == 200 and r.get("content-type") == "text/event-stream"
        for i in range(5):
            origin.open_gate(f"{gate}.{i}")
            event = b"data: %d\n\n" % i
            assert c.read_until(b"\n\n\r\n").endswith(event + b"\r\n")
        assert c.read(5) == b"0\r\n\r\n"


def test_an_upload_arrives_part_by_part(way):
    """And each part is answered before the next one is sent."""
    with Peer() as p:
        if way.kind == "tls":
            pytest.skip("the peer speaks no TLS")
        way.port = p.port
        with way.client() as c:
            c.send(way.head("/up", "Transfer-Encoding: chunked\r\n", "POST"))
            with p.accept() as o:
                o.read_head()
                o.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                assert c.response_head().status == 200
                for i in range(5):
                    part = b"part %d;" % i
                    c.send(b"%x\r\n%s\r\n" % (len(part), part))
                    assert o.read_until(b"\r\n") == b"%x\r\n" % len(part) and o.read(len(part) + 2) == part + b"\r\n"
                    o.send(b"4\r\nack%d\r\n" % i)
                    assert c.read_until(b"\r\n") == b"4\r\n" and c.read(6) == b"ack%d\r\n" % i
                c.send(b"0\r\n\r\n")
                assert o.read(5) == b"0\r\n\r\n"
                o.send(b"0\r\n\r\n")
                assert c.read(5) == b"0\r\n\r\n"


@pytest.mark.parametrize("path", ["/bytes/{}", "/chunked?n={}", "/close?n={}"])
@pytest.mark.parametrize("n", [0, 1, 65535, 65536, 1000003])
def test_downloads_are_byte_for_byte(two_ways, path, n):
    if "close" in path and two_ways.kind == "tls":
        pytest.skip("the origin's TLS ends without close_notify, which is a cut: test_slow_peers.py")
    since = two_ways.s.mark()
    with two_ways.client() as c:
        r = c.ask(two_ways.head(path.format(n)))
    assert r.status == 200 and r.whole and len(r.body) == n
    assert r.body == (BLOCK * 2)[:n]
    assert (r.get("content-length") is None) == ("bytes" not in path)
    end = two_ways.s.wait_record(since, event="request.end", path=path.format(n).partition("?")[0])
    assert (end["bytes_in"], end["bytes_out"], end["status"]) == (n, 0, 200) and "error" not in end


@pytest.mark.parametrize("n", [0, 1, 65536, 1000003])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_uploads_are_byte_for_byte(two_ways, framing, n):
    since, body = two_ways.s.mark(), (BLOCK * 2)[:n]
    with two_ways.client() as c:
        query = f"?of={framing}{n}"
        if framing == "length":
            c.send(two_ways.head("/upload" + query, f"Content-Length: {n}\r\n", "POST") + body)
        else:
            c.send(two_ways.head("/upload" + query, "Transfer-Encoding: chunked\r\n", "POST"))
            c.send(chunked(*(body[i:i + 7777] for i in range(0, n, 7777))))
        got = c.response().json()
    assert (got["bytes"], got["sha256"]) == (n, hashlib.sha256(body).hexdigest())
    end = two_ways.s.wait_record(since, event="request.end", query=query[1:])
    assert (end["bytes_out"], end["status"]) == (n, 200)


def test_chunk_extensions_are_not_sent_on(clear):
    with Peer() as p, clear.s.client() as c:
        c.send(peer_head(p, more="Transfer-Encoding: chunked\r\n", method="POST") + b'3;a=b;c="d\\"e"\r\nabc\r\n0;x\r\n\r\n')
        with p.accept() as o:
            o.read_head()
            assert o.read_until(b"0\r\n\r\n") == b"3\r\nabc\r\n0\r\n\r\n"
            o.send(OK)
            assert c.response().status == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "REPORT"])
def test_a_body_with_any_method(two_ways, method):
    with two_ways.client() as c:
        r = c.ask(two_ways.head("/echo", "Content-Length: 5\r\n", method) + b"hello")
        assert (r.json()["method"], r.json()["body"]) == (method, "hello")


def test_a_post_without_a_body_says_so(clear):
    with clear.client() as c:
        got = c.ask(clear.head("/echo", "Content-Length: 0\r\n", "POST")).json()
    assert ["Content-Length", "0"] in got["headers"]


# ---- trailers ----


def test_trailers_of_an_answer(two_ways):
    with two_ways.client() as c:
        r = c.ask(two_ways.head("/trailers", "TE: trailers\r\n"))
    assert (r.body, r.whole, r.trailers) == (b"hello", True, ["X-Sum: 5"])


def test_trailers_of_a_request(two_ways):
    with two_ways.client() as c:
        c.send(two_ways.head("/echo", "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n", "POST"))
        c.send(chunked(b"he", b"llo", trailers=b"X-Sum: 5\r\nX-Other: a b\r\n"))
        got = c.response().json()
    assert got["body"] == "hello" and got["trailers"] == ["X-Sum: 5", "X-Other: a b"]


@pytest.mark.parametrize("name", ["Content-Length", "Transfer-Encoding", "Host", "Connection", "Proxy-Authorization"])
def test_trailers_that_would_be_something_else(clear, name):
    """Dropped or refused, never passed on (RFC 9110 section 6.5.1)."""
    with clear.client() as c:
        c.send(clear.head("/echo", "Transfer-Encoding: chunked\r\n", "POST"))
        c.send_quietly(chunked(b"x", trailers=f"{name}: 7\r\n".encode()))
        r = c.response()
    assert r.status == 400 or r.json()["trailers"] == []


# ---- Expect: 100-continue ----


def test_the_origin_refuses_before_the_body(clear):
    with Peer() as p, clear.s.client() as c:
        c.send(peer_head(p, more="Expect: 100-Continue\r\nContent-Length: 2097152\r\n", method="POST"))
        with p.accept() as o:
            assert b"Expect: 100-continue\r\n" in o.read_head()
            o.send(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
            r = c.response_head()
            assert r.status == 401, "the client was told to go on"
            assert o.read_all() == b""


def test_the_origin_s_100_is_passed_on(two_ways):
    with two_ways.client() as c:
        c.send(two_ways.head("/continue", "Expect: 100-continue\r\nContent-Length: 5\r\n", "POST"))
        assert c.response_head().status == 100
        c.send(b"hello")
        r = c.response_head()
        assert r.status == 200, "a second interim answer"
        c.response_body(r)
        assert r.body == b"hello"


def test_an_origin_that_never_sends_100(clear):
    """After a bounded wait the client may go on."""
    at = time.monotonic()
    with clear.client() as c:
        c.send(clear.head("/nocontinue", "Expect: 100-continue\r\nContent-Length: 5\r\n", "POST"))
        assert c.response_head().status == 100
        assert 1 < time.monotonic() - at < 6 * SLOWER
        c.send(b"hello")
        r = c.response()
        assert (r.status, r.body) == (200, b"hello")


@pytest.mark.parametrize("path", ["/continue", "/nocontinue"])
def test_the_body_comes_with_the_head(clear, path):
    with clear.client() as c:
        at = time.monotonic()
        r = c.ask(clear.head(path, "Expect: 100-continue\r\nContent-Length: 5\r\n", "POST") + b"hello")
        assert (r.status, r.body) == (200, b"hello")
        assert time.monotonic() - at < 2 * SLOWER
        assert c.ask(clear.head("/ok/after")).body == b"ok /ok/after\n"


def test_no_100_for_what_is_denied(way):
    with way.client() as c:
        c.send(way.head("/no/up", "Expect: 100-continue\r\nContent-Length: 20\r\n", "POST"))
        r = c.response_head()
        assert r.status == 403, "told to go on before the refusal"
        c.response_body(r)
        c.send_quietly(b"GET /ok/b HTTP/1.1\r\n")
        assert c.at_end()


def test_expect_in_http_1_0_is_ignored(clear):
    with clear.client() as c:
        r = c.ask(clear.head("/echo", "Expect: 100-continue\r\nContent-Length: 5\r\n", "POST", "1.0") + b"hello")
    assert r.status == 200 and r.json()["body"] == "hello"
    assert not [v for n, v in r.json()["headers"] if n.lower() == "expect"]


@pytest.mark.parametrize("value", ["x", "100-continue, x", "200-ok", "100-continue=1"])
def test_another_expectation(clear, value):
    with clear.client() as c:
        c.send_quietly(clear.head("/ok/expect", f"Expect: {value}\r\nContent-Length: 5\r\n", "POST") + b"hello")
        check_refusal(c.response(), 417)
        assert c.at_end()


def test_expect_without_a_body_is_nothing(clear):
    with clear.client() as c:
        r = c.ask(clear.head("/echo", "Expect: 100-continue\r\n"))
    assert r.status == 200


# ---- interim answers ----


def test_interim_answers_are_passed_on(clear):
    path = clear.s.origin.script("interim", ["send", "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n"],
                                 ["wait", "interim-seen"], ["send", "HTTP/1.1 102 Processing\r\n\r\n" + OK.decode()])
    with clear.client() as c:
        c.send(clear.head(path))
        r = c.response_head()
        assert (r.status, r.get("link")) == (103, "</a.css>; rel=preload")
        clear.s.origin.open_gate("interim-seen")
        assert c.response_head().status == 102
        r = c.response()
        assert (r.status, r.body) == (200, b"ok")


def test_no_interim_answer_for_http_1_0(clear):
    path = clear.s.origin.script("interim10", ["send", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + OK.decode()])
    with clear.client() as c:
        c.send(clear.head(path, version="1.0"))
        assert c.response_head().status == 200


def test_a_100_that_nobody_waits_for(clear):
    path = clear.s.origin.script("unasked100", ["send", "HTTP/1.1 100 Continue\r\n\r\n" + OK.decode()])
    with clear.client() as c:
        c.send(clear.head(path))
        assert c.response_head().status == 200


@pytest.mark.parametrize("head", ["HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
                                  "HTTP/1.1 103 H\r\n\r\n" * 65])
def test_interim_answers_that_are_wrong(clear, head):
    path = clear.s.origin.script(f"wrong{len(head)}", ["send", head + OK.decode()])
    with clear.client() as c:
        c.send(clear.head(path))
        r = c.response()
    check_refusal(r, 502, "upstream_malformed")


# ---- memory ----

# AddressSanitizer keeps 256 MiB of what was freed unless told otherwise.
LEAN = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"}


@pytest.mark.parametrize("kind, framing, mib", [("clear", "length", 300), ("clear", "chunked", 100), ("tls", "length", 100)])
def test_a_large_upload_costs_no_memory(stile, kind, framing, mib):
    s = stile(env=LEAN)
    w, n = Way(s, kind), mib << 20
    with w.client() as c:
        assert c.ask(w.head("/ok/warm")).status == 200
        before = s.rss_kib(peak=True)
        if framing == "length":
            c.send(w.head("/upload", f"Content-Length: {n}\r\n", "PUT"))
            for _ in range(mib):
                c.send(BLOCK)
        else:
            c.send(w.head("/upload", "Transfer-Encoding: chunked\r\n", "PUT"))
            piece = b"%x\r\n%s\r\n" % (len(BLOCK), BLOCK)
            for _ in range(mib):
                c.send(piece)
            c.send(b"0\r\n\r\n")
        assert c.response().json()["bytes"] == n
    assert s.wait_record(event="request.end", method="PUT")["bytes_out"] == n
    assert s.rss_kib(peak=True) - before < 40 * 1024 * SLOWER


@pytest.mark.parametrize("kind, path, mib", [("clear", "/bytes/{}", 300), ("clear", "/chunked?n={}", 100),
                                             ("tls", "/bytes/{}", 100)])
def test_a_large_download_costs_no_memory(stile, kind, path, mib):
    s = stile(env=LEAN)
    w, n = Way(s, kind), mib << 20
    with w.client() as c:
        assert c.ask(w.head("/ok/warm")).status == 200
        before, since = s.rss_kib(peak=True), s.mark()
        c.send(w.head(path.format(n)))
        r = c.response_head()
        if r.get("content-length"):
            assert int(r.get("content-length")) == n
            got, room = len(c.read(len(c.buffer))), bytearray(1 << 20)
            while got < n and (more := c.sock.recv_into(room)):
                got += more
        else:
            got = 0
            while size := int(c.read_until(b"\r\n"), 16):
                got += len(c.read(size + 2)) - 2
            assert c.read(2) == b"\r\n"
    assert got == n
    assert s.wait_record(since, event="request.end", path=path.format(n).partition("?")[0])["bytes_in"] == n
    assert s.rss_kib(peak=True) - before < 40 * 1024 * SLOWER


def test_many_requests_cost_no_memory(stile):
    s = stile(env=LEAN)
    w = Way(s, "clear")
    with w.client() as c:
        for i in range(200):
            assert c.ask(w.head("/ok/warm")).status == 200
        before = s.rss_kib()
        for i in range(2000):
            assert c.ask(w.head(f"/ok/{i}?" + "x" * 1000)).status == 200
    assert s.rss_kib() - before < 4 * 1024 * SLOWER


# ---- one connection, many requests ----


def test_pipelined_requests_are_answered_in_order(proxy):
    """The first takes long, the middle one is denied."""
    since = proxy.mark()
    gate = "pipeline"
    url = f"http://origin.test:{proxy.origin.plain}"
    with proxy.client() as c:
        c.send(get(f"{url}/slow?gate={gate}") + get("http://evil.test:1/2") + get(f"{url}/ok/3"))
        proxy.wait_record(since, event="request.start", path="/slow")
        assert c.still_open()
        proxy.origin.open_gate(gate)
        answers = [c.response() for _ in range(3)]
    assert [(r.status, r.body) for r in answers[::2]] == [(200, b"slow\n"), (200, b"ok /ok/3\n")]
    check_refusal(answers[1], 403, "no_rule")
    proxy.wait_record(since, event="request.end", path="/ok/3")
    own = [r["event"] for r in proxy.records(since) if r["path"] in ("/slow", "/2", "/ok/3")]
    assert own == ["request.start", "request.end", "request.deny", "request.start", "request.end"]


def test_many_pipelined_requests(two_ways):
    with two_ways.client() as c:
        c.send(b"".join(two_ways.head(f"/ok/p{i}", f"Range: bytes={i}-\r\n") for i in range(50)))
        for i in range(50):
            assert c.response().body == b"ok /ok/p%d\n" % i


def test_pipelined_bodies(two_ways):
    """Each body ends where it ends, and the next head begins there."""
    with two_ways.client() as c:
        c.send(two_ways.head("/echo/1", "Content-Length: 5\r\n", "POST") + b"hello"
               + two_ways.head("/echo/2", "Transfer-Encoding: chunked\r\n", "POST") + chunked(b"GET / HTTP/1.1\r\n\r\n")
               + two_ways.head("/echo/3"))
        got = [c.response().json() for _ in range(3)]
    assert [g["target"] for g in got] == ["/echo/1", "/echo/2", "/echo/3"]
    assert [g["body"] for g in got] == ["hello", "GET / HTTP/1.1\r\n\r\n", ""]


def test_one_upstream_connection_for_many_requests(way):
    with way.client() as c:
        got = []
        for i in range(10):
            path = f"/echo/keep{i}"
            more = "" if i % 2 else "Content-Length: 3\r\n"
            got.append(c.ask(way.head(path, more, "POST" if more else "GET") + (b"abc" if more else b"")).json())
    assert len({g["connection"] for g in got}) == 1
    assert [g["request"] for g in got] == list(range(got[0]["request"], got[0]["request"] + 10))


def test_no_connection_is_kept_behind_a_close(clear):
    with clear.client() as c:
        assert c.ask(clear.head("/close?n=10")).body == BLOCK[:10]
        assert c.ask(clear.head("/ok/next")).body == b"ok /ok/next\n"


def test_clients_that_share_no_connection_at_once(clear):
    """Two requests at once need two connections; after it they may share one."""
    with Peer() as p, clear.s.client() as a, clear.s.client() as b:
        a.send(peer_head(p, "/a"))
        b.send(peer_head(p, "/b"))
        with p.accept() as one, p.accept() as two:
            for o in (one, two):
                path = o.read_head().split()[1]
                o.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
            assert (a.response().body, b.response().body) == (b"/a", b"/b")


# ---- answers without a body, ranges, heads ----


def test_head(two_ways):
    with two_ways.client() as c:
        for path, length in (("/bytes/12345", "12345"), ("/ok/h", None)):
            c.send(two_ways.head(path, method="HEAD"))
            r = c.response("HEAD")
            assert r.status == 200 and (length is None or r.get("content-length") == length)
        assert c.ask(two_ways.head("/ok/next")).body == b"ok /ok/next\n"


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body(two_ways, status):
    with two_ways.client() as c:
        r = c.ask(two_ways.head(f"/status/{status}"))
        assert (r.status, r.get("transfer-encoding")) == (status, None)
        assert status == 304 or r.get("content-length") is None
        assert c.ask(two_ways.head("/ok/next")).body == b"ok /ok/next\n"


def test_ranges_are_passed_on(clear):
    path = clear.s.origin.script("range", ["send", "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-4/10\r\n"
                                           "Content-Length: 3\r\nETag: \"x\"\r\nAccept-Ranges: bytes\r\n\r\n234"])
    with clear.client() as c:
        r = c.ask(clear.head(path, "Range: bytes=2-4\r\nIf-Range: \"x\"\r\n"))
        assert (r.status, r.body, r.get("content-range"), r.get("etag")) == (206, b"234", "bytes 2-4/10", '"x"')
        got = c.ask(clear.head("/echo/range", "Range: bytes=2-4\r\nIf-Range: \"x\"\r\n")).json()
        assert ["Range", "bytes=2-4"] in got["headers"] and ["If-Range", '"x"'] in got["headers"]


def test_encodings_are_not_touched(clear):
    path = clear.s.origin.script("gzip", ["send", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
                                          "Content-Length: 4\r\n\r\n\x1f\x8b\x08\xff"])
    with clear.client() as c:
        r = c.ask(clear.head(path, "Accept-Encoding: gzip, br\r\n"))
    assert (r.body, r.get("content-encoding"), r.get("vary")) == (b"\x1f\x8b\x08\xff", "gzip", "Accept-Encoding")


def test_large_heads_within_the_limits(two_ways):
    value = "v" * 60000
    with two_ways.client() as c:
        got = c.ask(two_ways.head("/echo/large", f"X-Large: {value}\r\n")).json()
        assert ["X-Large", value] in got["headers"]
        many = "".join(f"X-{i}: {i}\r\n" for i in range(250))
        got = c.ask(two_ways.head("/echo/many", many)).json()
        assert [[f"X-{i}", str(i)] for i in range(250)] == [h for h in got["headers"] if h[0].startswith("X-")]


@pytest.mark.parametrize("n, status", [(60000, 200), (70000, 502)])
def test_a_large_head_of_an_answer(clear, n, status):
    path = clear.s.origin.script(f"large{n}", ["send", "HTTP/1.1 200 OK\r\nX-Large: " + "v" * n
                                               + "\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok"])
    with clear.client() as c:
        r = c.ask(clear.head(path))
    assert r.status == status
    if status == 200:
        assert r.get("x-large") == "v" * n and r.body == b"ok" and r.all("set-cookie") == ["a=1", "b=2"]
    else:
        check_refusal(r, 502)


# ---- the ends of a connection ----


def test_half_close_behind_the_request(way):
    if way.kind == "tls":
        pytest.skip("TLS has its close_notify instead: test_slow_peers.py")
    with way.client() as c:
        c.send(way.head("/upload?ms=50", "Content-Length: 5\r\n", "POST") + b"hello")
        c.half_close()
        assert c.response().json()["bytes"] == 5
        assert c.at_end()


def test_an_early_answer_to_an_upload(clear):
    """The origin answers and reads no more; the client gets the answer whole."""
    with clear.client() as c:
        c.send(clear.head("/early?status=413", f"Content-Length: {len(BLOCK) * 8}\r\n", "POST"))

        def upload():
            for _ in range(8):
                c.send_quietly(BLOCK)

        t = threading.Thread(target=upload)
        t.start()
        r = c.response_head()
        c.response_body(r)
        assert (r.status, r.body, r.whole) == (413, b"no\n", True)
        try:
            c.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # stile was first
        t.join(TIMEOUT)
        assert not t.is_alive()


def test_the_log_tells_the_bytes_of_bodies_alone(proxy):
    since = proxy.mark()
    with proxy.client() as c:
        c.send(get(f"http://origin.test:{proxy.origin.plain}/echo/count", more="Transfer-Encoding: chunked\r\n",
                   method="POST"))
        c.send(chunked(b"a" * 100, b"b" * 23, trailers=b"X-T: 1\r\n"))
        r = c.response()
        assert json.loads(r.body)["body"] == "a" * 100 + "b" * 23
    end = proxy.wait_record(since, event="request.end", path="/echo/count")
    assert (end["bytes_out"], end["bytes_in"]) == (123, len(r.body))
