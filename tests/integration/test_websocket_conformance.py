"""The cases of a WebSocket conformance suite (wslib.py) against an echo server of Python's websockets: directly, and
through stile by each way that there is. What the client gets and what the server gets are the same bytes."""

import logging
import select
import socket
import ssl
import time

import pytest

h2 = pytest.importorskip("h2", reason="python3-h2 is not installed")
websockets = pytest.importorskip("websockets", reason="python3-websockets is not installed")

import test_websocket
import wslib
from h2.settings import SettingCodes
from h2_origin import H2Origin
from h2lib import H2
from stilelib import LOOPBACK, TIMEOUT, Raw, Stile, allow, wait_for
from websockets.extensions import permessage_deflate
from websockets.legacy.server import WebSocketServerProtocol


class Recorded(WebSocketServerProtocol):
    """Keeps what arrived behind the handshake, under the name of its case."""

    arrived: dict = {}

    def data_received(self, data: bytes) -> None:
        self.bytes = getattr(self, "bytes", b"") + data
        super().data_received(data)

    def connection_lost(self, exc) -> None:
        head, _, rest = getattr(self, "bytes", b"").partition(b"\r\n\r\n")
        if b"?" in head:
            self.arrived[head.split(b"?")[1].split(b" ")[0].decode()] = rest
        super().connection_lost(exc)


class Echo(test_websocket.Server):
    async def echo(self, socket_, path=None):
        async for message in socket_:
            if message == wslib.END.decode():
                return  # closes with 1000
            await socket_.send(message)

    async def start(self):
        logging.getLogger("websockets").setLevel(logging.CRITICAL)  # of faults on purpose
        options = dict(create_protocol=Recorded, ping_interval=None, max_size=1 << 24, compression=None, close_timeout=TIMEOUT,
                       extensions=[permessage_deflate.ServerPerMessageDeflateFactory()])
        a = await websockets.serve(self.echo, "127.0.0.1", 0, **options)
        b = await websockets.serve(self.echo, "127.0.0.1", 0, ssl=self.context(), **options)
        self.clear, self.tls = (x.sockets[0].getsockname()[1] for x in (a, b))
        self.ready.set()


@pytest.fixture(scope="module")
def world(origin, tmp_path_factory):
    test_websocket.Server.pki = origin.pki
    with Echo(origin) as echo, H2Origin(origin.pki / "good.pem", origin.pki / "good.key",
                                        settings={SettingCodes.ENABLE_CONNECT_PROTOCOL: 1}) as mirror:
        s = Stile(tmp_path_factory.mktemp("conformance"), origin, rules=[allow("ws://origin.test:*", "wss://origin.test:*")])
        s.echo, s.mirror = echo, mirror
        yield s
        s.finish()


class ByH1:
    """A client's end in HTTP/1.1."""

    def __init__(self, raw: Raw, first: bytes):
        self.raw = raw
        raw.send(first)
        r = raw.response_head()
        self.status = r.status
        self.extensions = r.get("sec-websocket-extensions")
        self.got, self.out, self.ended = bytearray(raw.buffer), b"", False

    def read(self) -> bool:
        try:
            data = self.raw.sock.recv(1 << 18)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            data = b""
        self.ended = not data
        self.got += data
        if data and self.got.endswith(wslib.ENDED):
            self.out += wslib.close()
        return True

    def write(self) -> bool:
        try:
            n = self.raw.sock.send(self.out[:1 << 16]) if self.out else 0
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        except OSError:  # the server has ended it; what it said may still be there
            n = len(self.out)
        self.out = self.out[n:]
        return n > 0

    def until(self, what) -> None:
        """Reads and writes, whichever is possible, in one thread: two may not use a TLS connection at once."""
        end = time.monotonic() + TIMEOUT
        while not what() and not self.ended:
            if self.read() | self.write():
                continue
            select.select([self.raw.sock], [self.raw.sock] if self.out else [], [], 1)
            assert time.monotonic() < end, "nothing moves"

    def talk(self, pieces: list) -> bytes:
        """Writes; then reads to the end."""
        self.raw.sock.setblocking(False)
        for piece in pieces:
            if isinstance(piece, int):
                self.until(lambda: len(self.got) >= piece)
            else:
                self.out += piece
                self.until(lambda: not self.out)
        self.until(lambda: False)
        self.raw.close()
        return bytes(self.got)


class ByH2:
    """The same over HTTP/2; several share a connection."""

    def __init__(self, c: H2, path: str, offer: str):
        self.c, self.got = c, bytearray()
        self.stream = c.socket(path, [("sec-websocket-extensions", offer)] if offer else [])
        self.answer = c.answers[self.stream]
        c.until(lambda: self.answer.status)
        self.status = {200: 101}.get(self.answer.status, self.answer.status)
        self.extensions = self.answer.get("sec-websocket-extensions")

    def until(self, what) -> None:
        def look():
            self.got += self.answer.body
            self.answer.body = b""
            return what() or self.answer.done
        self.c.until(look)

    def talk(self, pieces: list) -> bytes:
        for piece in pieces:
            if isinstance(piece, int):
                self.until(lambda: len(self.got) >= piece)
            else:
                self.c.send_body(self.stream, piece, end=False)
        self.until(lambda: self.got.endswith(wslib.ENDED))
        if not self.answer.done:
            self.c.send_body(self.stream, wslib.close(), end=False)
        self.until(lambda: False)
        if self.answer.reset is None:
            self.c.h2.reset_stream(self.stream, 8)
            self.c.flush()
        return bytes(self.got)


WAYS = ["ws", "wss", "h2"]


class Ways:
    """Opens a connection for a case by a way; "direct" is without stile, in clear."""

    def __init__(self, s: Stile):
        self.s, self.h2 = s, None

    def open(self, way: str, path: str, offer: str):
        echo = self.s.echo
        more = f"Sec-WebSocket-Extensions: {offer}\r\n" if offer else ""
        if way == "h2":
            if not self.h2:
                self.h2 = H2(self.s, port=echo.tls)
            return ByH2(self.h2, path, offer)
        if way == "wss":
            return ByH1(self.s.tunnel(echo.tls), test_websocket.hello(echo.tls, path, more=more))
        if way == "ws":
            return ByH1(self.s.client(), test_websocket.clear(echo.clear, path=path, more=more))
        sock = socket.create_connection(("127.0.0.1", echo.clear))
        return ByH1(Raw(sock), test_websocket.hello(echo.clear, path, more=more))


def run(ways: Ways, way: str, case: wslib.Case, ident: str) -> tuple:
    end = ways.open(way, f"/ws/echo?{ident}", case.offer)
    if end.status != 101:  # of an offer that the server fails over
        return end.status, b"", case.sent
    got = end.talk(case.pieces)
    arrived = wait_for(lambda: ident in Recorded.arrived and [Recorded.arrived.pop(ident)])[0]
    return end.extensions, got, arrived


@pytest.mark.parametrize("group", wslib.CASES)
def test_same_bytes(world, group):
    ways, differences = Ways(world), []
    for i, case in enumerate(wslib.CASES[group]):
        want = run(ways, "direct", case, f"{group}-{i}-direct")
        assert case.ends or want[2] == case.sent, case.name
        for way in WAYS:
            extensions, got, arrived = run(ways, way, case, f"{group}-{i}-{way}")
            # A server that ends the connection need not read what is behind the fault.
            same = arrived == want[2] or (case.ends and case.sent.startswith(arrived))
            if (extensions, got) != want[:2] or not same:
                differences.append((way, case.name, extensions, got[:60], want[0], want[1][:60], len(arrived), len(want[2])))
    assert not differences, differences


@pytest.mark.parametrize("client", ["1.1", "2"])
def test_any_bytes(world, client):
    """All cases at once, good and bad, to an origin of HTTP/2 that gives the bytes back: nothing is looked at."""
    sent = b"".join(case.sent for group in wslib.CASES if group != "limits" for case in wslib.CASES[group])
    port = world.mirror.port
    if client == "2":
        with H2(world, port=port) as c:
            w = c.open("/ws/echo")
            c.send_body(w, sent, end=False)
            assert c.take(w, len(sent)) == sent
            return
    with world.tunnel(port) as c:
        c.send(test_websocket.hello(port, "/ws/echo"))
        assert c.response_head().status == 101
        got = b""
        for at in range(0, len(sent), 8192):  # in turns: of Python's TLS no two threads may read and write at once
            c.send(sent[at:at + 8192])
            got += c.read(len(sent[at:at + 8192]))
        assert got == sent
