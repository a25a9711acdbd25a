"""What the round of traffic speaks with beside origin.py: an HTTP/2 origin, an origin of WebSockets and a proxy to go
through, each in a thread of the driver; and the clients' halves of HTTP/2 and WebSocket."""

import base64
import hashlib
import os
import socket
import struct
import time

import h2.events
import h2.exceptions
import h2_origin
import h2lib
from accepting import serve_each
from stilelib import Raw, Stile

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3


class H2Connection(h2_origin.Connection):
    def event(self, e) -> None:
        if isinstance(e, h2.events.RequestReceived):
            self.origin.heads.append(repr(e.headers).encode())
        super().event(e)


class H2Origin(h2_origin.H2Origin):
    """Notes each head when it comes, whether or not the rest of the request does."""

    def __init__(self, cert, key):
        self.heads: list[bytes] = []
        super().__init__(cert, key)

    def serve(self, sock) -> None:
        try:
            sock.settimeout(60)
            with self.context.wrap_socket(sock, server_side=True) as tls:
                H2Connection(self, tls, 0).run()
        except (OSError, h2.exceptions.ProtocolError, KeyError):
            pass


class WsOrigin:
    """Answers an upgrade, then sends each byte back until the other side ends."""

    def __init__(self):
        self.heads: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        serve_each(self.listener, self.serve)

    def serve(self, sock: socket.socket) -> None:
        try:
            with sock:
                head = b""
                sock.settimeout(60)
                while not head.endswith(b"\r\n\r\n"):
                    byte = sock.recv(1)
                    if not byte:
                        return
                    head += byte
                self.heads.append(head)
                key = next(x.split(b":")[1].strip() for x in head.split(b"\r\n")
                           if x.lower().startswith(b"sec-websocket-key:"))
                sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             b"Sec-WebSocket-Accept: " + accept_of(key) + b"\r\n\r\n")
                while data := sock.recv(65536):
                    sock.sendall(data)
        except OSError:
            pass


def accept_of(key: bytes) -> bytes:
    return base64.b64encode(hashlib.sha1(key + GUID).digest())


def websocket(c: Raw, host: str, path: str, size: int) -> None:
    """An upgrade on a connection that is ready for it, and a message there and back. AssertionError when it is
    refused or what comes back is another."""
    key = base64.b64encode(os.urandom(16))
    c.send(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
           f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n".encode())
    r = c.response()
    if r.status != 101 or r.get("sec-websocket-accept") != accept_of(key).decode():
        raise AssertionError(r)
    mask = os.urandom(4)
    payload = os.urandom(size)
    masked = bytes(x ^ mask[i % 4] for i, x in enumerate(payload))
    frame = struct.pack(">BBQ", 0x82, 0xff, size) + mask + masked
    c.send(frame)
    if c.read(len(frame)) != frame:
        raise AssertionError("another message came back")


class H2Client(h2lib.H2):
    """One that tells silence from an end: silence is a TimeoutError."""

    def __init__(self, stile: Stile, port: int, bound: float):
        super().__init__(stile, port)
        self.bound = bound

    def whole(self, *streams: int) -> list[h2lib.Answer]:
        end = time.monotonic() + self.bound
        try:
            while not all(self.answers[s].done for s in streams) and not self.closed:
                self.read(max(0.01, end - time.monotonic()))
                if time.monotonic() > end:
                    raise TimeoutError(f"streams {streams}")
        except (h2.exceptions.ProtocolError, OSError) as e:
            if isinstance(e, TimeoutError):
                raise
            raise AssertionError(repr(e)) from None
        return [self.answers[s] for s in streams]
