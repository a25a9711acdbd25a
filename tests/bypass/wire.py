"""Bytes on the wire for the bypass corpus: raw ClientHellos, answers taken apart, a TLS client whose
first flight can be cut into odd records. Knows nothing of cases and of stile."""

import socket
import ssl
import struct
import time

CRLF = b"\r\n"


class Answer:
    """One answer as a client reads it (RFC 9112 section 6.3)."""

    def __init__(self, status: int, fields: list[tuple[str, bytes]], head: bytes):
        self.status, self.fields, self.head = status, fields, head
        self.body, self.whole, self.interims = b"", False, 0

    def get(self, name: str, other: bytes | None = None) -> bytes | None:
        return next((v for n, v in self.fields if n == name), other)

    def reason(self) -> str | None:
        """The word in the details of Proxy-Status: only the proxy itself can have said it."""
        value = (self.get("proxy-status") or b"").decode("latin-1")
        return value.split('details="')[1].split('"')[0] if 'details="' in value else None


def parse_head(raw: bytes) -> tuple[bytes, list[tuple[str, bytes]]]:
    first, *lines = raw.split(CRLF)
    pairs = (line.partition(b":") for line in lines)
    return first, [(n.decode("latin-1").lower(), v.strip(b" \t")) for n, _, v in pairs]


def take_chunks(data: bytes) -> tuple[bytes, int] | None:
    """The body and how many bytes it took, or None while the end is missing. ValueError: malformed."""
    body, at = b"", 0
    while True:
        end = data.find(CRLF, at)
        if end < 0:
            return None
        size = int(data[at:end].split(b";")[0], 16)
        at = end + 2
        if size == 0:
            end = data.find(CRLF, at)
            while end > at:
                at, end = end + 2, data.find(CRLF, end + 2)
            return (body, end + 2) if end >= 0 else None
        if len(data) < at + size + 2:
            return None
        if data[at + size:at + size + 2] != CRLF:
            raise ValueError("no CRLF behind a chunk")
        body, at = body + data[at:at + size], at + size + 2


def take_answer(data: bytes, eof: bool, head_only: bool = False, connect: bool = False) -> tuple[Answer, int] | None:
    """The first final answer of data and its length; None while more is needed."""
    at, interims = 0, 0
    while True:
        end = data.find(b"\r\n\r\n", at)
        if end < 0:
            return None
        first, fields = parse_head(data[at:end])
        status = int(first.split()[1])
        head, at = data[at:end + 4], end + 4
        if status >= 200 or status == 101:
            break
        interims += 1
    a = Answer(status, fields, head)
    a.interims = interims
    length, coding = a.get("content-length"), a.get("transfer-encoding")
    if head_only or status in (101, 204, 304) or connect and status < 300:
        a.whole = True
    elif coding:
        found = take_chunks(data[at:])
        if found is None and not eof:
            return None
        a.whole = found is not None
        a.body, used = found or (data[at:], len(data) - at)
        at += used
    elif length is not None:
        if len(data) - at < int(length) and not eof:
            return None
        a.body = data[at:at + int(length)]
        a.whole = len(a.body) == int(length)
        at += len(a.body)
    else:
        if not eof:
            return None
        a.body, a.whole, at = data[at:], True, len(data)
    return a, at


# ---- TLS ----

def vec(n: int, data: bytes) -> bytes:
    return len(data).to_bytes(n, "big") + data


def sni_extension(names: list[bytes], kind: int = 0) -> bytes:
    return struct.pack("!H", 0) + vec(2, vec(2, b"".join(bytes([kind]) + vec(2, n) for n in names)))


def records(message: bytes, size: int = 16384, version: bytes = b"\x03\x01", kind: int = 22) -> bytes:
    """A handshake message in TLS records of at most `size` bytes."""
    return b"".join(bytes([kind]) + version + vec(2, message[i:i + size]) for i in range(0, len(message), size))


def client_hello(sni: list[bytes] | None, grease: bool = False, padding: int = 0, extra: bytes = b"",
                 sni_again: list[bytes] | None = None, sni_kind: int = 0, tail: bytes = b"") -> bytes:
    """The handshake message of a ClientHello that offers TLS 1.3 and 1.2."""
    exts = b""
    if grease:
        exts += b"\x0a\x0a\x00\x00"
    if sni is not None:
        exts += sni_extension(sni, sni_kind)
    exts += b"\x00\x0a" + vec(2, vec(2, (b"\x2a\x2a" if grease else b"") + b"\x00\x17"))
    exts += b"\x00\x0b" + vec(2, vec(1, b"\x00"))
    exts += b"\x00\x0d" + vec(2, vec(2, b"\x04\x03\x08\x04\x04\x01"))
    exts += b"\x00\x10" + vec(2, vec(2, vec(1, b"http/1.1")))
    exts += b"\x00\x2b" + vec(2, vec(1, (b"\x3a\x3a" if grease else b"") + b"\x03\x04\x03\x03"))
    if sni_again is not None:
        exts += sni_extension(sni_again)
    if padding:
        exts += b"\x00\x15" + vec(2, b"\0" * padding)
    exts += extra
    suites = (b"\x1a\x1a" if grease else b"") + b"\x13\x01\x13\x02\xc0\x2b\xc0\x2f"
    body = b"\x03\x03" + b"R" * 32 + vec(1, b"") + vec(2, suites) + b"\x01\x00" + vec(2, exts)
    return b"\x01" + vec(3, body + tail)


class TlsClient:
    """TLS over a socket through memory, so that what is sent first can be cut as one likes."""

    def __init__(self, sock: socket.socket, ctx: ssl.SSLContext, name: str | None, fragment: int = 0,
                 one_byte: bool = False, timeout: float = 5):
        self.sock, self.incoming, self.outgoing = sock, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ctx.wrap_bio(self.incoming, self.outgoing, server_hostname=name)
        self.eof, first = False, True
        until = time.monotonic() + timeout
        while True:
            try:
                self.tls.do_handshake()
                self.flush()
                return
            except ssl.SSLWantReadError:
                flight = self.outgoing.read()
                if first and fragment and flight:
                    flight = records(flight[5:], fragment)
                first = False
                pieces = [flight[i:i + 1] for i in range(len(flight))] if one_byte else [flight]
                for piece in pieces:
                    self.sock.sendall(piece)
                self.sock.settimeout(max(0.01, until - time.monotonic()))
                self.feed()
                if self.eof:
                    raise ConnectionError("closed within the handshake")

    def feed(self) -> None:
        data = self.sock.recv(65536)
        if data:
            self.incoming.write(data)
        else:
            self.eof = True
            self.incoming.write_eof()

    def flush(self) -> None:
        if data := self.outgoing.read():
            self.sock.sendall(data)

    def sendall(self, data: bytes) -> None:
        self.tls.write(data)
        self.flush()

    def settimeout(self, seconds: float) -> None:
        self.sock.settimeout(seconds)

    def recv(self, n: int) -> bytes:
        while True:
            try:
                return self.tls.read(n)
            except ssl.SSLWantReadError:
                if self.eof:
                    raise ConnectionError("cut without close_notify") from None
                self.feed()
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLEOFError:
                raise ConnectionError("cut without close_notify") from None

    def close(self) -> None:
        self.sock.close()

    def getsockname(self):
        return self.sock.getsockname()
