"""WebSockets within HTTP/2 (RFC 8441): judged and recorded as those of HTTP/1.1 are, to origins of HTTP/1.1 and of
HTTP/2 that take them there or do not; what either side may do wrong, and how one ends."""

import socket
import ssl
import struct
import threading
import time

import pytest

h2 = pytest.importorskip("h2", reason="python3-h2 is not installed")

import test_websocket
from h2.settings import SettingCodes
from h2_origin import H2Origin
from h2lib import DATA, END_HEADERS, END_STREAM, H2, HEADERS, RST, frame
from stilelib import TIMEOUT, Peer, Raw, allow, wait_for

CANCEL = 8
TAKES = {SettingCodes.ENABLE_CONNECT_PROTOCOL: 1}
ORIGINS = {"h1": dict(alpn=["http/1.1"]), "h2": dict(alpn=["h2"], settings=TAKES),
           "h2 without": dict(alpn=["h2", "http/1.1"])}
ALPNS = {"h1": ["http/1.1"], "h2": ["h2"], "h2 without": ["h2", "http/1.1"]}


def make_origin(origin, kind: str) -> H2Origin:
    o = H2Origin(origin.pki / "good.pem", origin.pki / "good.key", **ORIGINS[kind])
    o.kind = kind
    return o


@pytest.fixture(params=ORIGINS)
def far(request, origin):
    with make_origin(origin, request.param) as o:
        yield o


@pytest.fixture
def takes(origin):
    with make_origin(origin, "h2") as o:
        yield o


def rules(port):
    return [allow(f"wss://origin.test:{port}/ws/**", f"wss://origin.test:{port}/raw/**", f"https://origin.test:{port}/ok/**"),
            {"deny": f"https://origin.test:{port}/ws/no/**"}]


def to(stile, far, **more):
    s = stile(**{"rules": rules(far.port), "limits": {"workers": 1}, **more})
    s.far = far
    return s


class TlsPeer(Peer):
    """A Peer over TLS, of HTTP/1.1."""

    def __init__(self, pki):
        super().__init__()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(pki / "good.pem", pki / "good.key")
        self.context.set_alpn_protocols(["http/1.1"])

    def accept(self) -> Raw:
        raw = super().accept()
        raw.sock = self.context.wrap_socket(raw.sock, server_side=True)
        raw.head = raw.read_head().decode("latin-1")
        return raw

    def opened(self, more: str = "") -> Raw:
        raw = self.accept()
        raw.send(test_websocket.yes(more, accept=answer_to(raw.head)))
        return raw


def answer_to(head: str) -> str:
    import base64
    import hashlib
    keys = [x.split(":", 1)[1].strip() for x in head.split("\r\n") if x.lower().startswith("sec-websocket-key:")]
    assert len(keys) == 1 and len(base64.b64decode(keys[0])) == 16, head
    return base64.b64encode(hashlib.sha1(keys[0].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


@pytest.fixture
def peer(origin):
    with TlsPeer(origin.pki) as p:
        yield p


def ended(c: H2, s: int) -> bool:
    c.until(lambda: c.answers[s].done)
    return c.answers[s].reset is None


def reset(c: H2, s: int, code: int = CANCEL) -> None:
    c.until(lambda: c.answers[s].reset is not None)
    assert c.answers[s].reset == code


def finish(c: H2, s: int) -> None:
    c.h2.end_stream(s)
    c.flush()


# Every pair


def test_announced(takes, stile):
    with H2(to(stile, takes), port=takes.port) as c:
        c.until(lambda: c.settings)
        assert c.settings[SettingCodes.ENABLE_CONNECT_PROTOCOL] == 1


def test_echo(far, stile):
    s = to(stile, far)
    since, big = s.mark(), bytes(range(256)) * 8000
    with H2(s, port=far.port) as c:
        w = c.open()
        assert c.answers[w].get("sec-websocket-accept") is None and c.answers[w].get("upgrade") is None
        for data in (b"hello", big, b"again"):
            c.send_body(w, data, end=False)
            assert c.take(w, len(data)) == data
        finish(c, w)
        assert ended(c, w)
    start, end = s.wait_records(2, since)
    assert (start["event"], start["method"], start["scheme"], start["path"], start["http"]) == \
           ("request.start", "GET", "wss", "/ws/echo", "2")
    assert (end["event"], end["status"]) == ("request.end", 101) and "error" not in end
    assert end["bytes_in"] == end["bytes_out"] == len(big) + 10
    assert far.alpns == ALPNS[far.kind]


def test_what_an_origin_is_known_to_take(far, stile):
    """Each WebSocket over HTTP/1.1 is a connection; over HTTP/2 they share one, and it is asked once whether it takes
    them."""
    s = to(stile, far)
    with H2(s, port=far.port) as c:
        for _ in range(3):
            w = c.open()
            c.send_body(w, b"a", end=False)
            assert c.take(w, 1) == b"a"
        for w in c.answers:
            finish(c, w)
            assert ended(c, w)
    assert far.alpns == {"h1": ["http/1.1"] * 3, "h2": ["h2"], "h2 without": ["h2"] + ["http/1.1"] * 3}[far.kind]


def test_a_client_of_http_1_is_carried_in_http_1(far, stile):
    s = to(stile, far)
    with s.tunnel(far.port) as c:
        c.send(test_websocket.hello(far.port, "/ws/echo"))
        assert c.response_head().status == 101
        c.send(b"hello")
        assert c.read(5) == b"hello"
    assert "h2" not in far.alpns


def test_what_the_origin_gets(far, stile):
    s = to(stile, far)
    more = [("origin", "https://app.test"), ("cookie", "a=1"), ("cookie", "b=2"), ("sec-websocket-protocol", "chat"),
            ("sec-websocket-extensions", "permessage-deflate; client_max_window_bits"), ("te", "trailers"),
            ("sec-websocket-key", "Y2xpZW50cycgb3duIGtleQ==")]
    with H2(s, port=far.port) as c:
        c.open("/ws/%65cho?q=a%7e", more)
    wait_for(lambda: far.heads or far.seen)
    if far.kind == "h2":
        head = far.seen[0]["headers"]
        got = dict(head)
        assert len(got) == len(head)
        assert (got[":method"], got[":protocol"], got[":scheme"], got[":path"], got[":authority"]) == \
               ("CONNECT", "websocket", "https", "/ws/echo?q=a%7e", f"origin.test:{far.port}")
        assert "sec-websocket-key" not in got and "content-length" not in got
    else:
        first, *lines = far.heads[0].decode().split("\r\n")
        assert first == "GET /ws/echo?q=a%7e HTTP/1.1"
        got = {n.lower(): v for n, v in (x.split(": ", 1) for x in lines)}
        assert len(got) == len(lines) and got["connection"] == "Upgrade" and got["upgrade"] == "websocket"
        assert len(got["sec-websocket-key"]) == 24 and got["sec-websocket-key"] != dict(more)["sec-websocket-key"]
    assert got["origin"] == "https://app.test" and got["cookie"] == "a=1; b=2" and "te" not in got
    assert got["sec-websocket-version"] == "13" and got["sec-websocket-protocol"] == "chat"
    assert got["sec-websocket-extensions"] == "permessage-deflate; client_max_window_bits"


def test_each_has_a_key_of_its_own(stile, peer):
    with H2(to(stile, peer), port=peer.port) as c:
        keys = set()
        for _ in range(4):
            c.socket()
            with peer.accept() as o:
                keys.add(answer_to(o.head))
        assert len(keys) == 4


def test_what_the_client_gets(stile, peer):
    with H2(to(stile, peer), port=peer.port) as c:
        w = c.socket(more=[("sec-websocket-protocol", "chat"), ("sec-websocket-extensions", "permessage-deflate")])
        with peer.opened("Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSet-Cookie: a=b\r\n"):
            c.until(lambda: c.answers[w].status)
            assert sorted(c.answers[w].fields) == [("sec-websocket-extensions", "permessage-deflate"),
                                                   ("sec-websocket-protocol", "chat"), ("set-cookie", "a=b")]


# Which are admitted


@pytest.mark.parametrize("path, reason", [("/ok/a", "no_rule"), ("/other", "no_rule"), ("/ws/no/a", "denied_by_rule"),
                                          ("/ws//no/a", "denied_by_rule")])
def test_only_a_wss_rule_admits_one(takes, stile, path, reason):
    s = to(stile, takes)
    with H2(s, port=takes.port) as c:
        a = c.wait(c.socket(path))
        assert (a.status, a.json()["reason"]) == (403, reason)
        assert f"GET wss://origin.test:{takes.port}{path}" in a.json()["detail"]
        assert c.get("/ws/a").json()["reason"] == "no_rule"  # and it admits nothing else
    first = s.wait_record(event="request.deny", path=path)
    assert (first["scheme"], first["method"], first["reason"], first["http"]) == ("wss", "GET", reason, "2")
    assert takes.alpns == []


BAD = {
    "another protocol": (dict(protocol="connect-udp"), 403, "upgrade_refused"),
    "upper case": (dict(protocol="WebSocket"), 403, "upgrade_refused"),
    "an empty protocol": (dict(protocol=""), 403, "upgrade_refused"),
    "no protocol": (dict(protocol=None), 400, "malformed_request"),
    "two protocols": (dict(more=[(":protocol", "websocket")]), 400, "malformed_request"),
    "GET": (dict(method="GET"), 400, "malformed_request"),
    "no scheme": (dict(scheme=None), 400, "malformed_request"),
    "scheme wss": (dict(scheme="wss"), 400, "malformed_request"),
    "scheme http": (dict(scheme="http"), 400, "malformed_request"),
    "no path": (dict(path=None), 400, "malformed_request"),
    "dots": (dict(path="/ws/../ok"), 400, "ambiguous_url"),
    "no authority": (dict(authority=None), 400, "malformed_request"),
    "another host": (dict(authority="other.test"), 421, "name_mismatch"),
    "a length": (dict(more=[("content-length", "3")]), 400, "malformed_request"),
    "a length of none": (dict(more=[("content-length", "0")]), 400, "malformed_request"),
    "transfer-encoding": (dict(more=[("transfer-encoding", "chunked")]), 400, "malformed_request"),
    "upgrade": (dict(more=[("upgrade", "websocket")]), 400, "malformed_request"),
    "connection": (dict(more=[("connection", "upgrade")]), 400, "malformed_request"),
    "no version": (dict(version=None), 403, "upgrade_refused"),
    "another version": (dict(version="8"), 403, "upgrade_refused"),
    "two versions": (dict(more=[("sec-websocket-version", "13")]), 403, "upgrade_refused"),
    "another path": (dict(more=[("x-original-url", "/ok/a")]), 403, "no_rule"),
}


@pytest.mark.parametrize("name", BAD)
def test_half_a_handshake(takes, stile, name):
    asked, status, reason = BAD[name]
    s = to(stile, takes)
    with H2(s, port=takes.port) as c:
        asked = dict(asked)
        method = asked.pop("method", "CONNECT")
        asked.setdefault("protocol", "websocket")
        version = asked.pop("version", "13")
        fields = ([("sec-websocket-version", version)] if version else []) + asked.pop("more", [])
        a = c.wait(c.ask(method, **{"path": "/ws/a", **asked}, more=fields, end=False))
        assert (a.status, a.json()["reason"]) == (status, reason), a
        w = c.open()
        c.send_body(w, b"next", end=False)
        assert c.take(w, 4) == b"next"
    assert s.wait_record(event="request.deny")["reason"] == reason
    assert [q["path"] for q in takes.seen] == ["/ws/echo"]


# Before it is open


def test_data_before_the_200_waits(stile, peer):
    with H2(to(stile, peer), port=peer.port) as c:
        w = c.socket()
        c.send_body(w, b"early", end=False)
        with peer.accept() as o:
            assert o.still_open(0.1) and o.buffer == b""
            o.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            assert o.still_open(0.1) and o.buffer == b""
            o.send(test_websocket.yes(accept=answer_to(o.head)) + b"first")
            assert c.take(w, 5) == b"first" and o.read(5) == b"early"
            assert c.answers[w].interim == [103]


def test_a_client_that_leaves_before_the_200(stile, peer):
    s = to(stile, peer)
    with H2(s, port=peer.port) as c:
        w = c.socket()
        o = peer.accept()
        c.h2.reset_stream(w, CANCEL)
        c.flush()
        assert o.at_end()
        o.close()
        assert s.wait_record(event="request.end")["error"] == "client_closed"


@pytest.mark.parametrize("answer", ["accept", "two", "none", "h2c", "protocol", "extension", "200", "201", "204"])
def test_an_origin_that_does_not_answer_it(stile, peer, answer):
    """A 2xx that is no 101 would open the WebSocket for its client, and for nobody else."""
    s = to(stile, peer)
    with H2(s, port=peer.port) as c:
        w = c.socket()
        c.send_body(w, b"LEAK-to-origin", end=False)
        with peer.accept() as o:
            accept = answer_to(o.head)
            o.send({
                "accept": lambda: test_websocket.yes(accept="x" * 27 + "="),
                "two": lambda: test_websocket.yes(f"Sec-WebSocket-Accept: {accept}\r\n", accept=accept),
                "none": lambda: b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
                "h2c": lambda: test_websocket.yes(accept=accept, upgrade="h2c"),
                "protocol": lambda: test_websocket.yes("Sec-WebSocket-Protocol: chat\r\n", accept=accept),
                "extension": lambda: test_websocket.yes("Sec-WebSocket-Extensions: permessage-deflate\r\n", accept=accept),
                "200": lambda: b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n",
                "201": lambda: b"HTTP/1.1 201 Created\r\nContent-Length: 14\r\n\r\n",
                "204": lambda: b"HTTP/1.1 204 No Content\r\n\r\n",
            }[answer]() + b"LEAK-to-client")
            a = c.wait(w)
            assert (a.status, a.json()["reason"]) == (502, "upstream_malformed")
            assert b"LEAK" not in a.body and b"LEAK" not in o.read_all()
    assert s.wait_record(event="request.end")["error"] == "upstream_malformed"


@pytest.mark.parametrize("status", [302, 401, 403, 426, 501])
@pytest.mark.parametrize("kind", ["h1", "h2"])
def test_a_refusal_is_passed_on(stile, peer, takes, kind, status):
    far = peer if kind == "h1" else takes
    s = to(stile, far)
    with H2(s, port=far.port) as c:
        w = c.socket(f"/ws/{status}")
        c.send_body(w, b"LEAK", end=False)
        if kind == "h1":
            with peer.accept() as o:
                o.send(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nno".encode())
                a = c.wait(w)
                assert o.still_open(0.05) and not o.buffer
        else:
            a = c.wait(w)
            assert takes.seen[0]["body"] == b""
        assert (a.status, a.body, a.reset) == (status, b"no", None)
    assert s.wait_record(event="request.end")["status"] == status


def head(stream: int, *fields: tuple[str, str], end: bool = False) -> bytes:
    block = b"".join(b"\x00" + H2.text(n) + H2.text(v) for n, v in fields)
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)


YES = (":status", "200")
RAW = {
    "data first": lambda s: frame(DATA, 0, s, b"LEAK") + head(s, YES),
    "201": lambda s: head(s, (":status", "201")) + frame(DATA, 0, s, b"LEAK"),
    "204": lambda s: head(s, (":status", "204")) + frame(DATA, 0, s, b"LEAK"),
    "101": lambda s: head(s, (":status", "101")) + frame(DATA, 0, s, b"LEAK"),
    "unoffered protocol": lambda s: head(s, YES, ("sec-websocket-protocol", "chat")) + frame(DATA, 0, s, b"LEAK"),
    "unoffered extension": lambda s: head(s, YES, ("sec-websocket-extensions", "x")) + frame(DATA, 0, s, b"LEAK"),
    "connection": lambda s: head(s, YES, ("connection", "upgrade")) + frame(DATA, 0, s, b"LEAK"),
    "two lengths": lambda s: head(s, YES, ("content-length", "1"), ("content-length", "1")) + frame(DATA, 0, s, b"LEAK"),
}


@pytest.mark.parametrize("name", RAW)
def test_an_origin_of_http_2_that_does_not_answer_it(takes, stile, name):
    s = to(stile, takes)
    takes.raw["x"] = RAW[name]
    with H2(s, port=takes.port) as c:
        a = c.wait(c.socket("/raw/x"))
        assert (a.status, a.json()["reason"]) == (502, "upstream_malformed") and b"LEAK" not in a.body
        w = c.open()  # the next is none the worse
        c.send_body(w, b"next", end=False)
        assert c.take(w, 4) == b"next"


def test_a_length_of_a_200_means_nothing(takes, stile):
    """RFC 9110 section 9.3.6; and it is not passed on."""
    takes.raw["x"] = lambda s: head(s, YES, ("content-length", "2")) + frame(DATA, 0, s, b"more than two")
    with H2(to(stile, takes), port=takes.port) as c:
        w = c.socket("/raw/x")
        assert c.take(w, 13) == b"more than two" and c.answers[w].get("content-length") is None


def test_a_200_that_ends_at_once(takes, stile):
    """The origin has nothing to say, and may still listen."""
    s = to(stile, takes)
    takes.raw["x"] = lambda s: head(s, YES, end=True)
    with H2(s, port=takes.port) as c:
        w = c.socket("/raw/x")
        c.until(lambda: c.answers[w].done)
        assert (c.answers[w].status, c.answers[w].reset) == (200, None)
        c.answers[w].done = False
        c.send_body(w, b"bye")
        wait_for(lambda: takes.seen[0]["body"] == b"bye")
    assert "error" not in s.wait_record(event="request.end")


def test_an_origin_that_refuses_the_stream_is_asked_in_http_1(origin, stile):
    with H2Origin(origin.pki / "good.pem", origin.pki / "good.key", alpn=["h2", "http/1.1"], settings=TAKES) as far:
        s = to(stile, far)
        with H2(s, port=far.port) as c:
            w = c.open("/ws/refuse")
            c.send_body(w, b"hello", end=False)
            assert c.take(w, 5) == b"hello"
        assert far.alpns == ["h2", "http/1.1"]
        assert [r["event"] for r in s.settled().records() if "path" in r] == ["request.start", "request.end"]


def silent(origin, then):
    """An origin that takes HTTP/2 by ALPN and then does what `then` says with the connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(origin.pki / "good.pem", origin.pki / "good.key")
    context.set_alpn_protocols(["h2"])
    p = Peer()

    def serve():
        try:
            while True:
                raw = p.accept()
                raw.sock = context.wrap_socket(raw.sock, server_side=True)
                then(raw)
        except (OSError, ValueError):
            pass

    threading.Thread(target=serve, daemon=True).start()
    return p


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(4, 0, 0, b"".join(struct.pack(">HI", *x) for x in pairs))


@pytest.mark.parametrize("then, status, reason", [
    (lambda o: None, 504, "upstream_timeout"),
    (lambda o: o.send(settings((8, 1)) + settings((8, 0))), 502, "upstream_malformed"),
    (lambda o: o.send(settings((8, 2))), 502, "upstream_malformed"),
    (lambda o: o.send(b"HTTP/1.1 200 OK\r\n\r\n" * 4), 502, "upstream_malformed"),
    (lambda o: o.close(), 502, "upstream_closed")], ids=["silent", "taken back", "two", "another protocol", "closed"])
def test_an_origin_that_does_not_say(origin, stile, then, status, reason):
    """Nothing of the request is sent before it has said that it takes one."""
    kept = []

    def serve(o):
        kept.append(o)
        then(o)

    with silent(origin, serve) as p:
        s = to(stile, p, limits={"workers": 1, "first_byte": "500ms"})
        with H2(s, port=p.port) as c:
            a = c.wait(c.socket("/ws/secret-path"))
            assert (a.status, a.json()["reason"]) == (status, reason), a
    for o in kept:
        try:
            assert b"secret-path" not in o.read_all()
        except (OSError, ValueError):
            pass


# How one ends


def test_half_closes_are_relayed(stile, peer):
    s = to(stile, peer)
    with H2(s, port=peer.port) as c:
        w = c.socket()
        with peer.opened() as o:
            c.until(lambda: c.answers[w].status)
            c.send_body(w, b"bye")
            assert o.read_all() == b"bye"
            o.send(b"later")
            assert c.take(w, 5) == b"later"
            o.sock.unwrap().close()
            assert ended(c, w)
        w = c.socket()
        with peer.opened() as o:
            c.until(lambda: c.answers[w].status)
            o.sock.sendall(b"bye")
            o.sock.suppress_ragged_eofs = True
            o.sock.shutdown(socket.SHUT_WR)
            assert c.take(w, 3) == b"bye" and ended(c, w)
    for end in s.wait_records(1, event="request.end"):
        assert "error" not in end, end


def test_the_origin_s_last_word_is_waited_for(stile, peer):
    """A browser ends its stream with the Close frame, and an origin of HTTP/1.1 may answer none once TLS has ended."""
    s = to(stile, peer)
    with H2(s, port=peer.port) as c:
        w = c.socket()
        with peer.opened() as o:
            c.until(lambda: c.answers[w].status)
            c.send_body(w, b"bye")
            assert o.read(3) == b"bye" and o.still_open(0.5)
            o.send(b"so long")
            assert c.take(w, 7) == b"so long"
            begun = time.monotonic()
            assert o.sock.unwrap() and time.monotonic() - begun < 1.5  # by its own end, not by the time
            assert ended(c, w)
    end = s.wait_record(event="request.end")
    assert (end["bytes_out"], end["bytes_in"]) == (3, 7) and "error" not in end


def test_the_origin_ends_first(takes, stile):
    """What the client says after that still arrives, however much it is."""
    s = to(stile, takes)
    with H2(s, port=takes.port) as c:
        w = c.socket("/ws/first")
        c.until(lambda: c.answers[w].status == 200)
        assert c.take(w, 3) == b"bye" and ended(c, w)
        c.answers[w].done = False
        last = b"z" * 2_000_000
        c.send_body(w, last)
        wait_for(lambda: takes.seen[0].get("ended"))
        assert takes.seen[0]["body"] == last
    end = s.wait_record(event="request.end")
    assert (end["bytes_out"], end["bytes_in"]) == (len(last), 3) and "error" not in end
    assert takes.resets == []


@pytest.mark.parametrize("kind", ["h1", "h2"])
def test_a_client_that_resets(stile, peer, takes, kind):
    far = peer if kind == "h1" else takes
    s = to(stile, far)
    with H2(s, port=far.port) as c:
        w = c.socket()
        o = peer.opened() if kind == "h1" else None
        c.until(lambda: c.answers[w].status)
        c.h2.reset_stream(w, CANCEL)
        c.flush()
        if o:
            with socket.socket(fileno=o.sock.detach()) as beneath, pytest.raises(ConnectionResetError):
                beneath.settimeout(TIMEOUT)
                while beneath.recv(100):
                    pass
        else:
            wait_for(lambda: takes.resets == [CANCEL])
        assert s.wait_record(event="request.end")["error"] == "client_closed"


def test_an_origin_that_resets(stile, takes):
    s = to(stile, takes)
    with H2(s, port=takes.port) as c:
        w = c.socket("/ws/reset")
        reset(c, w)
        assert c.answers[w].body == b"part"
        assert s.wait_record(event="request.end")["error"] == "upstream_closed"


def test_an_origin_whose_connection_ends(stile, takes):
    s = to(stile, takes)
    with H2(s, port=takes.port) as c:
        one, other = c.open(), c.open()
        takes.sockets[0].shutdown(socket.SHUT_RDWR)
        reset(c, one), reset(c, other)
        again = c.open()
        c.send_body(again, b"next", end=False)
        assert c.take(again, 4) == b"next"
        for end in s.wait_records(2, event="request.end"):
            assert end["error"] == "upstream_closed"


@pytest.mark.parametrize("end", [True, False])
def test_only_data_may_follow(takes, stile, end):
    """RFC 9113 section 8.5: a second field section ends the stream, and the connection goes on."""
    s = to(stile, takes)
    with H2(s, port=takes.port) as c:
        w = c.open()
        c.send(c.raw_head([("x-trailer", "1")], w, end=end))
        reset(c, w)
        other = c.open()
        c.send_body(other, b"next", end=False)
        assert c.take(other, 4) == b"next"
        assert s.wait_record(event="request.end")["error"] == "malformed_request"
        wait_for(lambda: takes.resets == [CANCEL])


def test_only_data_may_come(takes, stile):
    s = to(stile, takes)
    takes.raw["x"] = lambda w: head(w, YES) + frame(DATA, 0, w, b"one") + head(w, ("x-trailer", "1"), end=True)
    with H2(s, port=takes.port) as c:
        w = c.socket("/raw/x")
        reset(c, w)
    assert s.wait_record(event="request.end")["error"] == "upstream_malformed"


@pytest.mark.parametrize("limit, error", [({"tunnel_idle": "300ms"}, "tunnel_idle"), ({"tunnel_life": "400ms"}, "tunnel_life")])
def test_idle_and_life(takes, stile, limit, error):
    s = to(stile, takes, limits={"workers": 1, "body_idle": "100ms", "first_byte": "100ms", "idle": "100ms", **limit})
    with H2(s, port=takes.port) as c:
        w, begun = c.open(), time.monotonic()
        while time.monotonic() < begun + (0.6 if error == "tunnel_idle" else 5) and not c.answers[w].done:
            c.send_body(w, b"ping", end=False)
            if c.take(w, 4) != b"ping":
                break
            time.sleep(0.05)
        reset(c, w)
        end = s.wait_record(event="request.end", error=error)
        assert end["ms"]["total"] > (400 if error == "tunnel_life" else 800)


def test_draining(takes, stile):
    """One that is open may go on until the drain ends."""
    s = to(stile, takes, limits={"workers": 1, "drain": "600ms"})
    with H2(s, port=takes.port) as c:
        w = c.open()
        s.signal(15)
        c.until(lambda: c.goaway)
        c.send(frame(DATA, 0, w, b"still"))
        got = list(c.frames())
    assert (DATA, 0, w, b"still") in got
    assert s.wait_record(event="request.end")["error"] == "shutting_down"


# Beside others


def test_many_on_one_connection(takes, stile):
    s = to(stile, takes)
    with H2(s, port=takes.port) as c:
        open_ = [c.open() for _ in range(20)]
        asked = [c.ask(path=f"/ok/{i}") for i in range(20)]
        for i, w in enumerate(open_):
            c.send_body(w, b"%d " % i * 5000, end=False)
        for i, w in enumerate(open_):
            want = b"%d " % i * 5000
            assert c.take(w, len(want)) == want
        assert all(c.wait(q).status == 200 for q in asked)
        for w in open_[::2]:
            finish(c, w)
            assert ended(c, w)
        for w in open_[1::2]:
            c.send_body(w, b"on", end=False)
            assert c.take(w, 2) == b"on"
    for end in s.wait_records(40, event="request.end"):
        assert end.get("error") in (None, "client_closed"), end


def test_one_that_is_not_read_stops_its_client(stile, peer, takes):
    """And nobody else: the others of the same connection go on."""
    s = stile(rules=rules(peer.port) + rules(takes.port), limits={"workers": 1})
    with H2(s, port=peer.port) as c:
        w = c.socket()
        with peer.opened() as o:
            c.until(lambda: c.answers[w].status)
            sent = 0
            while (n := min(c.h2.local_flow_control_window(w), c.h2.max_outbound_frame_size)) > 0 or c.read(0.3):
                if n > 0:
                    c.h2.send_data(w, b"z" * n)
                    c.flush()
                    sent += n
                assert sent < 64 << 20
            other = c.ask(path="/ok/a")
            with peer.accept() as o2:
                o2.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                assert c.wait(other).status == 200
            finish(c, w)
            got = 0
            while data := o.sock.recv(1 << 20):
                got += len(data)
            assert got == sent


def test_a_client_that_does_not_read_stops_the_origin(stile, peer):
    s = to(stile, peer)
    with H2(s, port=peer.port, consume=False) as c:
        w = c.socket()
        with peer.opened() as o:
            c.until(lambda: c.answers[w].status)
            o.sock.settimeout(0.3)
            sent = 0
            with pytest.raises(TimeoutError):
                while sent < 64 << 20:
                    sent += o.sock.send(bytes(1 << 14))
            assert len(c.answers[w].body) <= 65535


# Credentials and reloads


@pytest.mark.parametrize("kind", ["h1", "h2"])
def test_credentials(origin, stile, canary, tmp_path, kind):
    (tmp_path / "tok").write_text(canary)
    (tmp_path / "tok").chmod(0o600)
    with make_origin(origin, kind) as far:
        rule = f"wss://origin.test:{far.port}"
        s = stile(rules=[allow(rule, credential="tok")], limits={"workers": 1},
                  credentials={"tok": {"from": {"file": str(tmp_path / "tok")}, "as": "bearer"}})
        with H2(s, port=far.port) as c:
            w = c.open(more=[("authorization", "Bearer client-own"), ("cookie", "sid=client-own")])
            wait_for(lambda: far.heads or far.seen)
            got = far.heads[0].decode() if kind == "h1" else str(far.seen[0]["headers"])
            assert got.count(canary) == 1 and "client-own" not in got
            s.reload(rules=[allow(rule)])
            reset(c, w)
        end = s.wait_record(event="request.end")
        assert end["error"] == "policy_revoked" and end["credential"] == "tok"
        assert canary not in s.log_path.read_text()


def test_a_reload_before_the_origin_s_yes(peer, stile):
    s = to(stile, peer)
    with H2(s, port=peer.port) as c:
        w = c.socket()
        far = peer.accept()
        s.reload(rules=[allow(f"https://origin.test:{peer.port}/**")])
        far.send(test_websocket.yes(accept=answer_to(far.head)) + b"LEAK")
        a = c.wait(w)
        assert (a.status, a.json()["reason"]) == (403, "policy_revoked") and b"LEAK" not in a.body
        assert far.read_all() == b""
    assert s.wait_record(event="request.end")["error"] == "policy_revoked"


def test_a_reload_takes_one_back_and_leaves_the_other(takes, stile):
    s = to(stile, takes)
    with H2(s, port=takes.port) as c:
        one, other = c.open("/ws/echo"), c.open("/ws/echo?kept")
        s.reload(rules=rules(takes.port))
        for w in (one, other):
            c.send_body(w, b"still", end=False)
            assert c.take(w, 5) == b"still"
        third = c.open("/raw/x") if takes.raw else None
        assert third is None
        s.reload(rules=[allow(f"https://origin.test:{takes.port}/ok/**")])
        reset(c, one), reset(c, other)
        assert c.get("/ok/after").status == 200
        a = c.wait(c.socket())
        assert (a.status, a.json()["reason"]) == (403, "no_rule")
    for end in s.wait_records(2, event="request.end", path="/ws/echo"):
        assert end["error"] == "policy_revoked"
    wait_for(lambda: takes.resets == [CANCEL] * 2)
