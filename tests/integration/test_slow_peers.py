"""Resets, half-closes and slow peers on both sides: a cut is seen as a cut, a slow side stops the other, a kept
connection that went stale is nobody's error, and each exchange ends in one record that says how."""

import contextlib
import errno
import fcntl
import select
import socket
import ssl
import struct
import termios
import threading
import time

import pytest

from h2lib import H2
from stilelib import SANITIZED, SLOWER, TIMEOUT, Peer, Raw, Stile, allow, check_refusal, chunked, get, wait_for

OK = b"HTTP/1.1 200 OK\r\n"
SMALL = OK + b"Content-Length: 2\r\n\r\nok"
MIB = 1 << 20
GROWTH = 40 if SANITIZED else 1  # a sanitizer keeps what was freed


@pytest.fixture(scope="module")
def slow_of_all(origin, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("slow"), origin,
              rules=[allow("http://origin.test:*", "https://origin.test:*"), allow("tcp://other.test:*")])
    yield s
    s.finish()


@pytest.fixture
def slow(slow_of_all):
    return slow_of_all.settled()


@pytest.fixture(scope="module")
def hasty_of_all(origin, tmp_path_factory):
    """Short limits, for what ends by time."""
    short = f"{300 * SLOWER}ms"
    s = Stile(tmp_path_factory.mktemp("hasty"), origin,
              rules=[allow("http://origin.test:*", "https://origin.test:*"), allow("tcp://other.test:*")],
              limits={k: short for k in ("head", "idle", "first_byte", "body_idle", "tunnel_idle", "dial")})
    yield s
    s.finish()


@pytest.fixture
def hasty(hasty_of_all):
    return hasty_of_all.settled()


def ask(peer, more="", method="GET", path="/x", version="1.1") -> bytes:
    return get(f"http://origin.test:{peer.port}{path}", more=more, method=method, version=version)


def one_end(s, since, error=None, status=None, **want) -> dict:
    """The one exchange begun since the mark: its start, its one end, and how it ended."""
    return end_of("request", s, since, error, **want, **({"status": status} if status else {}))


def end_of(kind, s, since, error, **want) -> dict:
    start = s.wait_record(since, event=f"{kind}.start")
    end = s.wait_record(since, event=f"{kind}.end", id=start["id"])
    # The record of an exchange that a test before this one did not wait for may stand between.
    assert [r["id"] for r in s.records(since) if not r["event"].endswith(".end")] == [start["id"]]
    assert [r["event"] for r in s.records(since) if r["id"] == start["id"]] == [f"{kind}.start", f"{kind}.end"]
    assert end.get("error") == error, end
    for key, value in want.items():
        assert end.get(key) == value, end
    return end


def ended_by_reset(sock) -> bool:
    """Reads to the end; whether that was a reset."""
    try:
        while sock.recv(65536):
            pass
        return False
    except ConnectionResetError:
        return True


class TlsSide:
    """The same plain Peer, behind TLS: stile's way to it, and the client's to stile."""

    def __init__(self, s: Stile, peer: Peer):
        self.s, self.peer = s, peer

    def accept(self) -> Raw:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.s.origin.pki / "good.pem", self.s.origin.pki / "good.key")
        raw = self.peer.accept()
        raw.sock = context.wrap_socket(raw.sock, server_side=True, suppress_ragged_eofs=False)
        return raw


@pytest.fixture(params=["clear", "tls"])
def way(request, slow):
    """(client, request, accept) of one exchange with a Peer, in clear or inspected."""
    with Peer() as p:
        def open_client():
            return slow.client() if request.param == "clear" else slow.tunnel(p.port)

        def head(more="", method="GET", version="1.1"):
            if request.param == "clear":
                return ask(p, more, method, version=version)
            return f"{method} /x HTTP/{version}\r\nHost: origin.test:{p.port}\r\n{more}\r\n".encode()

        accept = p.accept if request.param == "clear" else TlsSide(slow, p).accept
        yield open_client, head, accept, p


def hard_reset(raw: Raw) -> None:
    """A reset of the bare socket, without a word of TLS."""
    if isinstance(raw.sock, ssl.SSLSocket):
        raw.sock = socket.socket(fileno=raw.sock.detach())
    raw.reset()


def bare_close(raw: Raw) -> None:
    """FIN without close_notify."""
    if isinstance(raw.sock, ssl.SSLSocket):
        raw.sock = socket.socket(fileno=raw.sock.detach())
    raw.close()


def say_close_notify(raw: Raw) -> None:
    """Without waiting for the other side's."""
    if isinstance(raw.sock, ssl.SSLSocket):
        raw.sock.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            raw.sock.unwrap()


# ---- the client goes ----


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("how", ["reset", "close"])
def test_the_client_goes_in_its_upload(slow, way, framing, how):
    open_client, head, accept, _ = way
    since, part = slow.mark(), b"u" * 5000
    c = open_client()
    if framing == "length":
        c.send(head("Content-Length: 100000\r\n", "POST") + part)
    else:
        c.send(head("Transfer-Encoding: chunked\r\n", "POST") + b"%x\r\n%s\r\n" % (len(part), part))
    with accept() as o:
        o.read_head()
        assert b"u" * 4000 in o.read(5000)
        (hard_reset if how == "reset" else bare_close)(c)
        rest = o.read_all()
        assert b"\r\n0\r\n" not in rest, "the origin was told that this was all"
    assert one_end(slow, since, "client_closed")["bytes_out"] == len(part)


@pytest.mark.parametrize("how", ["reset", "close", "close_notify"])
def test_the_client_goes_in_its_download(slow, way, how):
    open_client, head, accept, _ = way
    since = slow.mark()
    c = open_client()
    c.send(head())
    with accept() as o:
        o.read_head()
        o.send(OK + b"Content-Length: 1000000000000\r\n\r\n" + b"d" * 5000)
        assert c.response_head().status == 200 and c.read(5000) == b"d" * 5000
        if how == "close_notify":
            say_close_notify(c)
        (hard_reset if how == "reset" else bare_close)(c)
        end = threading.Event()

        def go_on():  # until stile's end of it is gone
            try:
                while True:
                    o.sock.sendall(b"d" * 1000)
            except OSError:
                end.set()

        threading.Thread(target=go_on, daemon=True).start()
        # A FIN alone is a half-close, behind which the answer may still be wanted; the bytes that meet no reader tell.
        assert end.wait(TIMEOUT), "the origin was not let go"
    one_end(slow, since, "client_closed", 200)


def test_the_client_goes_before_the_answer(slow, way):
    open_client, head, accept, _ = way
    since = slow.mark()
    c = open_client()
    c.send(head())
    with accept() as o:
        o.read_head()
        hard_reset(c)
        assert o.at_end(), "the origin was not let go"
    one_end(slow, since, "client_closed")


# ---- the origin goes ----


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"])
def test_the_origin_goes_before_its_head(slow, way, how, said):
    open_client, head, accept, _ = way
    since = slow.mark()
    with open_client() as c:
        c.send(head())
        with accept() as o:
            o.read_head()
            if said:
                o.send(said)
                if said.endswith(b"\r\n\r\n"):  # told on: a reset cannot overtake it
                    assert c.response(interim=True).status == 103
            (hard_reset if how == "reset" else bare_close)(o)
        r = c.response()
        check_refusal(r, 502, "upstream_closed")
        one_end(slow, since, "upstream_closed", 502)
        with pytest.raises(AssertionError):  # and the client's connection is of use still
            slow.wait_record(since, 0.01, event="request.deny")


@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("framing", ["length", "chunk", "between chunks", "last chunk", "until close"])
def test_the_origin_goes_in_its_body(slow, way, how, framing):
    open_client, head, accept, p = way
    if framing == "until close" and how == "close" and accept == p.accept:
        pytest.skip("in clear, that is the end of such an answer")
    since = slow.mark()
    begin = {"length": b"Content-Length: 1000\r\n\r\n" + b"b" * 500,
             "chunk": b"Transfer-Encoding: chunked\r\n\r\n400\r\n" + b"b" * 500,
             "between chunks": b"Transfer-Encoding: chunked\r\n\r\n1f4\r\n" + b"b" * 500 + b"\r\n",
             "last chunk": b"Transfer-Encoding: chunked\r\n\r\n1f4\r\n" + b"b" * 500 + b"\r\n0\r\n",
             "until close": b"\r\n" + b"b" * 500}[framing]
    with open_client() as c:
        c.send(head())
        with accept() as o:
            o.read_head()
            o.send(OK + begin)
            r = c.response_head()
            while c.buffer.count(b"b") < 500 and c.fill():
                pass
            (hard_reset if how == "reset" else bare_close)(o)
        c.response_body(r)
        assert not r.whole and r.body.rstrip(b"\r\n") in (b"b" * 500, b""), r
        assert c.at_end()
    one_end(slow, since, "upstream_closed", 200, bytes_in=500)


def test_a_cut_answer_to_http_1_0_is_a_reset(slow):
    """It has no other way to be told from a whole one."""
    since = slow.mark()
    with Peer() as p, slow.client() as c:
        c.send(ask(p, version="1.0"))
        with p.accept() as o:
            o.read_head()
            o.send(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            assert c.response_head().status == 200
            assert c.read(3) == b"abc"
        assert ended_by_reset(c.sock)
    one_end(slow, since, "upstream_closed", 200)


def test_an_answer_that_ends_by_close_is_whole(slow):
    since = slow.mark()
    with Peer() as p, slow.client() as c:
        c.send(ask(p))
        with p.accept() as o:
            o.read_head()
            o.send(OK + b"\r\nabc")
        r = c.response()
        assert r.whole and r.body == b"abc"
    one_end(slow, since, None, 200, bytes_in=3)


def test_over_tls_only_close_notify_ends_an_answer_by_close(slow):
    since = slow.mark()
    with Peer() as p, slow.tunnel(p.port) as c:
        c.send(f"GET /x HTTP/1.1\r\nHost: origin.test:{p.port}\r\n\r\n".encode())
        o = TlsSide(slow, p).accept()
        o.read_head()
        o.send(OK + b"\r\nabc")
        threading.Thread(target=lambda: o.sock.unwrap().close(), daemon=True).start()
        r = c.response()
        assert r.whole and r.body == b"abc"
    one_end(slow, since, None, 200, bytes_in=3)


@pytest.mark.parametrize("how", ["reset", "close"])
def test_the_origin_answers_and_goes_before_the_upload_is_read(slow, how):
    """The answer is what matters: it arrives, though nobody takes the rest of the body."""
    since = slow.mark()
    with Peer() as p, slow.client() as c:
        c.send(ask(p, "Content-Length: 10000000\r\n", "POST") + b"u" * 1000)
        with p.accept() as o:
            o.read_head()
            o.read(1000)
            o.send(b"HTTP/1.1 413 Too Much\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
            o.half_close() if how == "close" else None
            r = c.response()
            assert (r.status, r.body) == (413, b"no")
        c.send_quietly(b"u" * 100000)
        assert c.at_end()
    assert slow.wait_record(since, event="request.end")["status"] == 413
    assert len(slow.records(since)) == 2


# ---- half-closes ----


@pytest.mark.parametrize("method, body", [("GET", b""), ("POST", b"hello")])
def test_a_client_that_half_closes_gets_its_answer(slow, method, body):
    since = slow.mark()
    more = f"Content-Length: {len(body)}\r\n" if body else ""
    with Peer() as p, slow.client() as c:
        c.send(ask(p, more, method) + body)
        c.half_close()
        with p.accept() as o:
            o.read_head()
            assert o.read(len(body)) == body
            assert o.still_open(0.1), "the half-close was taken for an end"
            o.send(OK + b"Content-Length: 100000\r\n\r\n" + b"a" * 50000)
            o.send(b"a" * 50000)
            r = c.response(method)
        assert r.whole and len(r.body) == 100000
        assert c.at_end()
    one_end(slow, since, None, 200, bytes_out=len(body), bytes_in=100000)


def test_two_requests_and_a_half_close(slow):
    with Peer() as p, slow.client() as c:
        c.send(ask(p, path="/1") + ask(p, path="/2"))
        c.half_close()
        with p.accept() as o:
            for _ in range(2):
                o.read_head()
                o.send(SMALL)
            assert c.response().body == b"ok" and c.response().body == b"ok"
            assert c.at_end()


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_half_close_in_the_body_is_a_cut(slow, framing):
    since = slow.mark()
    with Peer() as p, slow.client() as c:
        if framing == "length":
            c.send(ask(p, "Content-Length: 10\r\n", "POST") + b"hello")
        else:
            c.send(ask(p, "Transfer-Encoding: chunked\r\n", "POST") + b"5\r\nhello\r\n")
        with p.accept() as o:
            o.read_head()
            o.read(5)
            c.half_close()
            assert b"0\r\n" not in o.read_all(), "the origin was told that this was all"
    one_end(slow, since, "client_closed", bytes_out=5)


@pytest.mark.parametrize("sent", [b"", b"GET", b"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n"])
def test_an_end_before_a_whole_head(slow, sent):
    since = slow.mark()
    with slow.client() as c:
        c.send(sent)
        c.half_close()
        if sent:  # who is still listening is told
            r = c.response("GET")
            assert r.status == 400 and r.json()["reason"] == "client_closed" and r.get("connection") == "close"
        assert c.at_end()
    if sent:
        assert slow.wait_record(since)["reason"] == "client_closed"
    assert slow.get("/ok/a").status == 200
    slow.wait_record(since, event="request.end")
    assert len(slow.records(since)) == (3 if sent else 2)


# ---- slow sides ----


def push_until_stuck(sock: socket.socket, most: int, quiet: float = 0.25) -> int:
    """Sends until nobody takes more for a while; how much was taken."""
    sock.setblocking(False)
    sent, block = 0, b"z" * 65536
    while sent < most:
        if not select.select([], [sock], [], quiet)[1]:
            break
        try:
            sent += sock.send(block[:most - sent])
        except BlockingIOError:
            pass
    sock.settimeout(TIMEOUT)
    return sent


def take_exactly(raw: Raw, n: int) -> int:
    """Reads n bytes that must all be the same ones."""
    got = len(raw.buffer)
    assert raw.buffer == b"z" * got
    raw.buffer = b""
    while got < n:
        data = raw.sock.recv(min(MIB, n - got))
        if not data:
            break
        assert data == b"z" * len(data)
        got += len(data)
    return got


def test_a_client_that_does_not_read_stops_the_origin(slow):
    """What is under way is in the kernel's buffers; stile itself holds next to nothing of 8 answers of 64 MiB."""
    total, since, n = 64 * MIB, slow.mark(), 8
    before = slow.rss_kib()
    with Peer() as p:
        clients, origins, sent = [], [], []
        for _ in range(n):
            c = slow.client(rcvbuf=131072)
            c.send(ask(p))
            o = p.accept()
            o.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
            o.read_head()
            o.send(OK + b"Content-Length: %d\r\n\r\n" % total)
            clients.append(c)
            origins.append(o)
        sent = [push_until_stuck(o.sock, total, 0.05) for o in origins]
        assert max(sent) < total // 2, "the origin was not stopped"
        grown = slow.rss_kib() - before
        assert grown < 12 * 1024 * GROWTH, f"{grown} KiB for {n} answers"
        # The first is read now: nothing was lost, and the flow goes on.
        rest = threading.Thread(target=origins[0].sock.sendall, args=(b"z" * 4 * MIB,))
        rest.start()
        assert clients[0].response_head().status == 200
        assert take_exactly(clients[0], sent[0] + 4 * MIB) == sent[0] + 4 * MIB
        rest.join(TIMEOUT)
        for x in clients + origins:
            x.reset()
    ends = slow.wait_records(n, since, event="request.end")
    assert len(ends) == n and {e["error"] for e in ends} <= {"client_closed", "upstream_closed"}


def test_an_origin_that_does_not_read_stops_the_client(slow):
    total, since = 64 * MIB, slow.mark()
    before = slow.rss_kib()
    with Peer(rcvbuf=16384) as p, slow.client() as c:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        c.send(ask(p, f"Content-Length: {total}\r\n", "POST"))
        with p.accept() as o:
            o.read_head()
            sent = push_until_stuck(c.sock, total)
            assert sent < total // 2, "the client was not stopped"
            assert slow.rss_kib() - before < 6 * 1024 * GROWTH
            rest = threading.Thread(target=c.sock.sendall, args=(b"z" * (total - sent),))
            rest.start()
            assert take_exactly(o, total) == total
            rest.join(TIMEOUT)
            o.send(SMALL)
            assert c.response("POST").status == 200
    one_end(slow, since, None, 200, bytes_out=total)


@pytest.mark.parametrize("inside", [False, True])
def test_a_slow_tls_client_stops_the_origin(slow, inside):
    """Inspected, the same; and a reset then ends it."""
    total, since = 64 * MIB, slow.mark()
    with Peer() as p, slow.tunnel(p.port) as c:
        c.send(f"GET /x HTTP/1.1\r\nHost: origin.test:{p.port}\r\n\r\n".encode())
        o = TlsSide(slow, p).accept()
        o.read_head()
        o.send(OK + b"Content-Length: %d\r\n\r\n" % total)
        o.sock.settimeout(0.3)
        sent = 0
        try:
            while sent < total:
                o.sock.sendall(b"z" * 65536)
                sent += 65536
        except (TimeoutError, ssl.SSLWantWriteError):
            pass
        assert sent < total, "the origin was not stopped"
        assert c.response_head().status == 200
        if inside:
            hard_reset(c)
            error = "client_closed"
        else:
            hard_reset(o)
            c.read_all()
            error = "upstream_closed"
        bare_close(o)
    one_end(slow, since, error, 200)

def wait_until_still(sock: socket.socket, quiet: float = 0.3) -> int:
    """Until nothing more comes that is not read; how much that is."""
    waiting, since = -1, time.monotonic()
    end = since + TIMEOUT
    while time.monotonic() - since < quiet and time.monotonic() < end:
        now = struct.unpack("i", fcntl.ioctl(sock, termios.FIONREAD, b"\0" * 4))[0]
        if now != waiting:
            waiting, since = now, time.monotonic()
        time.sleep(0.02)
    return waiting



class HandTls:
    """The origin's TLS, of which each byte is read and sent when the test says so."""

    def __init__(self, s: Stile, sock: socket.socket):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(s.origin.pki / "good.pem", s.origin.pki / "good.key")
        self.sock, self.come, self.go = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.come, self.go, server_side=True)

    def take(self, n: int) -> None:
        """So many more bytes from the network."""
        while n > 0:
            data = self.sock.recv(min(n, 65536))
            assert data
            self.come.write(data)
            n -= len(data)

    def send(self) -> None:
        self.sock.sendall(self.go.read())

    def hello(self) -> None:
        """Our first flight; the handshake is not over with it."""
        while not self.go.pending:
            self.come.write(self.sock.recv(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
        self.send()

    def read(self, n: int) -> bytes:
        """n bytes within TLS."""
        got = bytearray()
        while len(got) < n:
            try:
                got += self.tls.read(n - len(got))
            except ssl.SSLWantReadError:
                data = self.sock.recv(MIB)
                if not data:
                    break
                self.come.write(data)
        return bytes(got)


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_tickets_in_the_middle_of_an_upload(slow, version):
    """An upload waits for an origin that is busy. It ends its handshake at last: its tickets come while what was kept
    fits in between, and are nothing to anybody. The upload goes on."""
    total, since = 16 * MIB, slow.mark()
    body = b"z" * total
    with Peer() as p:
        if version == "1.1":
            client = slow.tunnel(p.port)
            head = f"POST /x HTTP/1.1\r\nHost: origin.test:{p.port}\r\nContent-Length: {total}\r\n\r\n".encode()
            upload = threading.Thread(target=client.send_quietly, args=(head + body,))
        else:
            client = H2(slow, p.port)
            upload = threading.Thread(target=client.ask, args=("POST", "/x", [("content-length", str(total))], body))
        upload.start()
        o = p.accept().sock
        tls = HandTls(slow, o)
        tls.hello()
        stuck = wait_until_still(o)
        assert stuck < total // 2
        tls.take(20000)
        tls.tls.do_handshake()
        tls.send()
        wait_until_still(o)
        head = b""
        while b"\r\n\r\n" not in head:
            head += tls.read(1)
        assert tls.read(total) == body
        upload.join(TIMEOUT)
        tls.tls.write(SMALL)
        tls.send()
        answer = client.response("POST") if version == "1.1" else client.wait(1)
        assert (answer.status, answer.body) == (200, b"ok")
        client.close()
        o.close()
    one_end(slow, since, None, 200, bytes_out=total)


def test_heads_byte_by_byte(slow):
    since = slow.mark()
    with Peer() as p, slow.client() as c:
        for i, byte in enumerate(ask(p, "X-A: b\r\n")):
            c.send(bytes([byte]))
        with p.accept() as o:
            assert o.read_head().startswith(b"GET /x HTTP/1.1\r\n")
            for byte in OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"hello", b" ", b"world", trailers=b"X-T: 1\r\n"):
                o.send(bytes([byte]))
            r = c.response()
    assert (r.status, r.body, r.trailers) == (200, b"hello world", ["X-T: 1"])
    one_end(slow, since, None, 200, bytes_in=11)


def test_an_upload_byte_by_byte(slow):
    with Peer() as p, slow.client() as c:
        c.send(ask(p, "Transfer-Encoding: chunked\r\n", "POST"))
        for byte in chunked(b"hello", b"world", trailers=b"X-T: 1\r\n"):
            c.send(bytes([byte]))
        with p.accept() as o:
            head = o.response_head_like = o.read_head()
            assert b"chunked" in head.lower()
            got = o.read_until(b"\r\n\r\n")
            assert b"hello" in got.replace(b"\r\n", b"") or b"h" in got
            o.send(SMALL)
            assert c.response("POST").status == 200


def test_a_dripping_origin(slow):
    assert slow.get("/drip?n=40&ms=1").body == b"d" * 40


# ---- kept connections that went stale ----


def serve_stale(accept, each, stop: threading.Event) -> None:
    """Accepts until stopped; each(raw, n) serves connection n."""
    n = 0
    while not stop.is_set():
        try:
            o = accept()
        except OSError:
            return
        try:
            each(o, n)
        except (OSError, AssertionError):
            pass
        n += 1


STALE = {
    "fin with the answer": lambda o, n: (o.read_head(), o.send(SMALL), bare_close(o)),
    "reset with the answer": lambda o, n: (o.read_head(), o.send(SMALL), wait_acked(o), hard_reset(o)),
    "fin a moment later": lambda o, n: (o.read_head(), o.send(SMALL), time.sleep((n % 5) * 0.0005), bare_close(o)),
    "reset a moment later": lambda o, n: (o.read_head(), o.send(SMALL), wait_acked(o), time.sleep((n % 5) * 0.0005),
                                          hard_reset(o)),
    "fin at the next request": lambda o, n: (o.read_head(), o.send(SMALL), o.read_head(), bare_close(o)),
    "reset at the next request": lambda o, n: (o.read_head(), o.send(SMALL), o.sock.recv(1), hard_reset(o)),
}


def wait_acked(o: Raw) -> None:
    """Until the answer lies in the other side's socket: a reset must not overtake it."""
    import array
    import fcntl
    import termios
    left = array.array("i", [1])
    while left[0]:
        fcntl.ioctl(o.sock, termios.TIOCOUTQ, left)


@pytest.mark.parametrize("kind", STALE)
def test_a_stale_kept_connection_is_no_error_for_the_next_get(slow, way, kind):
    open_client, head, accept, p = way
    since, stop, rounds = slow.mark(), threading.Event(), 30
    threading.Thread(target=serve_stale, args=(accept, STALE[kind], stop), daemon=True).start()
    with open_client() as c:
        for i in range(rounds):
            r = c.ask(head())
            assert (r.status, r.body) == (200, b"ok"), (i, r)
    stop.set()
    p.listener.shutdown(socket.SHUT_RDWR)
    ends = slow.wait_records(rounds, since, event="request.end")
    assert not [e for e in ends if "error" in e] and len(slow.records(since)) == 2 * rounds


def test_many_at_once_meet_a_pool_that_went_stale(slow):
    """Eight kept connections are cut in the very moment in which eight requests go out."""
    since, n = slow.mark(), 8
    with Peer() as p:
        clients = [slow.client() for _ in range(n)]
        for c in clients:
            c.send(ask(p))
        kept = [p.accept() for _ in range(n)]
        for o in kept:
            o.read_head()
        for o in kept:
            o.send(SMALL)
        for c in clients:
            assert c.response().body == b"ok"

        stop = threading.Event()
        threading.Thread(target=serve_stale, args=(p.accept, STALE["fin with the answer"], stop), daemon=True).start()
        for c, o in zip(clients, kept):
            c.send(ask(p))
            o.reset()
        for c in clients:
            assert c.response().body == b"ok"
            c.close()
        stop.set()
        p.listener.shutdown(socket.SHUT_RDWR)
    ends = slow.wait_records(2 * n, since, event="request.end")
    assert not [e for e in ends if "error" in e] and len(slow.records(since)) == 4 * n


def test_a_post_after_a_seen_close_goes_on_a_new_connection(slow):
    with Peer() as p, slow.client() as c:
        c.send(ask(p))
        with p.accept() as o:
            o.read_head()
            o.send(SMALL)
            assert c.response().body == b"ok"
            o.half_close()
            assert o.at_end(), "a kept connection that the origin closed stays open"
        c.send(ask(p, "Content-Length: 5\r\n", "POST") + b"hello")
        with p.accept() as o:
            o.read_head()
            assert o.read(5) == b"hello"
            o.send(SMALL)
            assert c.response("POST").body == b"ok"


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_post_that_may_have_arrived_is_not_sent_twice(slow, how):
    since = slow.mark()
    with Peer() as p, slow.client() as c:
        c.send(ask(p))
        with p.accept() as o:
            o.read_head()
            o.send(SMALL)
            assert c.response().body == b"ok"
            c.send(ask(p, "Content-Length: 5\r\n", "POST") + b"hello")
            o.read_head()
            (hard_reset if how == "reset" else bare_close)(o)
        check_refusal(c.response("POST"), 502, "upstream_closed")
        assert p.nobody_came()
    assert slow.wait_records(2, since, event="request.end")[1]["error"] == "upstream_closed"


def test_a_get_is_tried_twice_and_not_thrice(slow):
    since = slow.mark()
    with Peer() as p, slow.client() as c:
        c.send(ask(p))
        with p.accept() as o:
            o.read_head()
            o.send(SMALL)
            assert c.response().body == b"ok"
            c.send(ask(p))
            o.read_head()
        with p.accept() as o:
            o.read_head()
        check_refusal(c.response(), 502, "upstream_closed")
        assert p.nobody_came()
    assert [r["event"] for r in slow.records(since)].count("request.start") == 2


def test_an_answer_nobody_asked_for_ends_a_kept_connection(slow):
    """What an origin says on an idle connection is never the next request's answer."""
    with Peer() as p, slow.client() as c:
        c.send(ask(p))
        with p.accept() as o:
            o.read_head()
            o.send(SMALL)
            assert c.response().body == b"ok"
            o.send(OK + b"Content-Length: 6\r\n\r\nforged")
            assert o.at_end()
        c.send(ask(p))
        with p.accept() as o:
            o.read_head()
            o.send(SMALL)
            assert c.response().body == b"ok"


# ---- what ends by time ----


@pytest.mark.parametrize("part", [b"G", b"GET /x HT", b"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n"])
def test_a_head_that_does_not_end(hasty, part):
    since, begun = hasty.mark(), time.monotonic()
    with hasty.client() as c:
        c.send(part)
        r = c.response()
        check_refusal(r, 408, "client_timeout")
        assert c.at_end()
    assert time.monotonic() - begun < 3 * SLOWER
    record = hasty.wait_record(since)
    assert (record["event"], record["reason"], record["status"]) == ("request.deny", "client_timeout", 408)
    assert len(hasty.records(since)) == 1


def test_dripping_a_head_gains_no_time(hasty):
    """The limit counts from the head's first byte, whatever comes in between."""
    since, begun = hasty.mark(), time.monotonic()
    with hasty.client() as c:
        c.send(b"GET http://origin.test/")
        while time.monotonic() - begun < 5 * SLOWER:
            c.send_quietly(b"a")
            if select.select([c.sock], [], [], 0.03)[0]:
                break
        check_refusal(c.response(), 408)
    assert time.monotonic() - begun < 2 * SLOWER
    assert hasty.wait_record(since)["reason"] == "client_timeout"


def test_an_idle_client_is_closed_without_a_word(hasty):
    since = hasty.mark()
    with hasty.client() as c:
        assert c.ask(get(f"http://origin.test:{hasty.origin.plain}/ok/a")).status == 200
        assert c.at_end()
    hasty.wait_record(since, event="request.end")
    assert len(hasty.records(since)) == 2


def test_an_origin_that_never_answers(hasty):
    since = hasty.mark()
    with Peer() as p, hasty.client() as c:
        c.send(ask(p))
        with p.accept() as o:
            o.read_head()
            check_refusal(c.response(), 504, "upstream_timeout")
            assert o.at_end()
    one_end(hasty, since, "upstream_timeout", 504)


def test_an_origin_that_stops_in_its_body(hasty):
    since = hasty.mark()
    with Peer() as p, hasty.client() as c:
        c.send(ask(p))
        with p.accept() as o:
            o.read_head()
            o.send(OK + b"Content-Length: 100\r\n\r\nabc")
            r = c.response()
            assert not r.whole and r.body == b"abc"
            assert o.at_end()
    one_end(hasty, since, "upstream_timeout", 200, bytes_in=3)


def test_a_slow_body_that_moves_is_not_idle(hasty):
    """Each byte begins the limit anew: longer than the limit in all, never that long without a byte."""
    ms, n = 60 * SLOWER, 12
    assert hasty.get(f"/sse?n={n}&ms={ms}").body.count(b"data:") == n


def test_a_client_that_stops_in_its_body(hasty):
    since = hasty.mark()
    with Peer() as p, hasty.client() as c:
        c.send(ask(p, "Content-Length: 100\r\n", "POST") + b"abc")
        with p.accept() as o:
            o.read_head()
            check_refusal(c.response("POST"), 408, "client_timeout")
            assert o.read_all() == b"abc"
    one_end(hasty, since, "client_timeout", 408, bytes_out=3)


def test_a_dial_that_nobody_answers(hasty):
    """A backlog that is full drops every SYN."""
    since = hasty.mark()
    with Peer(backlog=0) as p:
        fill = [socket.socket() for _ in range(4)]
        for s in fill:
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", p.port))
        with hasty.client() as c:
            check_refusal(c.ask(ask(p)), 504, "connect_timeout")
        for s in fill:
            s.close()
    one_end(hasty, since, "connect_timeout", 504)


# ---- tunnels ----


def tunnel(s: Stile, p: Peer) -> tuple[Raw, Raw]:
    c = s.client()
    assert c.connect(f"other.test:{p.port}").status == 200
    return c, p.accept()


def end_of_tunnel(s: Stile, since: int, error=None, **want) -> dict:
    return end_of("tunnel", s, since, error, **want)


@pytest.mark.parametrize("first", ["client", "origin"])
def test_a_tunnel_s_half_close_is_passed_on(slow, first):
    since = slow.mark()
    with Peer() as p:
        c, o = tunnel(slow, p)
        a, b = (c, o) if first == "client" else (o, c)
        a.send(b"one")
        a.half_close()
        assert b.read_all() == b"one"
        b.send(b"two, much later" * 10000)
        b.half_close()
        assert a.read_all() == b"two, much later" * 10000
        c.close()
        o.close()
    sizes = (3, 150000) if first == "client" else (150000, 3)
    end_of_tunnel(slow, since, None, bytes_out=sizes[0], bytes_in=sizes[1])


@pytest.mark.parametrize("first", ["client", "origin"])
@pytest.mark.parametrize("after", [b"", b"some bytes"])
def test_a_tunnel_s_reset_is_a_reset_on_the_other_side(slow, first, after):
    since = slow.mark()
    with Peer() as p:
        c, o = tunnel(slow, p)
        a, b = (c, o) if first == "client" else (o, c)
        if after:
            a.send(after)
            assert b.read(len(after)) == after
        a.reset()
        assert ended_by_reset(b.sock), "a reset became a clean end"
        b.close()
    end_of_tunnel(slow, since, "client_closed" if first == "client" else "upstream_closed")


def test_a_reset_behind_a_half_close(slow):
    since = slow.mark()
    with Peer() as p:
        c, o = tunnel(slow, p)
        c.send(b"x")
        c.half_close()
        assert o.read_all() == b"x"
        o.reset()
        assert ended_by_reset(c.sock)
        c.close()
    end_of_tunnel(slow, since, "upstream_closed", bytes_out=1)


@pytest.mark.parametrize("first", ["client", "origin"])
def test_a_side_that_is_gone_after_its_fin_ends_the_tunnel(slow, first):
    """Its FIN was passed on as a half-close; what then meets nobody ends the other way as well."""
    since = slow.mark()
    with Peer() as p:
        c, o = tunnel(slow, p)
        a, b = (c, o) if first == "client" else (o, c)
        a.close()
        assert b.at_end()
        with pytest.raises(OSError):
            while True:
                b.send(b"x" * 1000)
        b.close()
    end_of_tunnel(slow, since, "client_closed" if first == "client" else "upstream_closed")


def test_a_tunnel_s_slow_side_stops_the_other(slow):
    total, since = 96 * MIB, slow.mark()
    before = slow.rss_kib()
    with Peer() as p:
        c, o = tunnel(slow, p)
        sent = push_until_stuck(o.sock, total)
        assert sent < total, "the origin was not stopped"
        assert slow.rss_kib() - before < 6 * 1024 * GROWTH
        o.half_close()
        assert take_exactly(c, total) == sent
        c.close()
        o.close()
    end_of_tunnel(slow, since, None, bytes_in=sent)


def test_an_idle_tunnel_ends(hasty):
    since = hasty.mark()
    with Peer() as p:
        c, o = tunnel(hasty, p)
        c.send(b"abc")
        assert o.read(3) == b"abc"
        ended_by_reset(c.sock)
        ended_by_reset(o.sock)
        c.close()
        o.close()
    end_of_tunnel(hasty, since, "tunnel_idle", bytes_out=3, bytes_in=0)


@pytest.mark.parametrize("sender", ["client", "origin"])
def test_a_tunnel_in_use_one_way_is_not_idle(hasty, sender):
    since = hasty.mark()
    with Peer() as p:
        c, o = tunnel(hasty, p)
        a, b = (c, o) if sender == "client" else (o, c)
        for _ in range(10):
            a.send(b"x")
            assert b.read(1) == b"x"
            assert not select.select([b.sock], [], [], 0.06 * SLOWER)[0], "ended while it was in use"
        c.close()
        o.close()
    hasty.wait_record(since, event="tunnel.end")


def test_a_tunnel_to_nobody(slow):
    since = slow.mark()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        with slow.client() as c:
            check_refusal(c.connect(f"other.test:{s.getsockname()[1]}"), 502, "connect_refused")
            assert c.at_end()
    end_of_tunnel(slow, since, "connect_refused")


def test_the_client_goes_while_its_tunnel_is_dialled(hasty):
    since = hasty.mark()
    with Peer(backlog=0) as p:
        fill = [socket.socket() for _ in range(4)]
        for s in fill:
            s.setblocking(False)
            assert s.connect_ex(("127.0.0.1", p.port)) in (0, errno.EINPROGRESS)
        c = hasty.client()
        c.send(f"CONNECT other.test:{p.port} HTTP/1.1\r\nHost: other.test:{p.port}\r\n\r\n".encode())
        hasty.wait_record(since, event="tunnel.start")
        c.reset()
        for s in fill:
            s.close()
    end = hasty.wait_record(since, event="tunnel.end")
    assert end["error"] in ("client_closed", "connect_timeout")
    assert len(hasty.records(since)) == 2
