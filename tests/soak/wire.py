"""A connection over asyncio whose ends can be rough, and bodies that say whose they are. Both sides of the
soak use it: the clients (traffic.py) and the origin (origin.py). It knows HTTP/1 framing and nothing else."""

import asyncio
import socket
import struct

LIMIT = 1 << 18


class Gone(Exception):
    """The other side closed or reset where more was to come."""


class Mixed(Exception):
    """Bytes that belong to another exchange, or to none: never excused by a fault."""


class Body:
    """The body of an exchange: its id over and over, so that a byte of another one is seen wherever it stands."""

    UNIT = 16
    BLOCK = 65536

    def __init__(self, rid: str):
        unit = rid.encode().ljust(self.UNIT, b".")
        self.unit = unit
        self.block: bytes | None = None

    def part(self, at: int, n: int) -> bytes:
        """n bytes, at most BLOCK, from offset `at` on."""
        off = at % self.UNIT
        if n <= 512:
            return (self.unit * ((n + off) // self.UNIT + 1))[off:off + n]
        if self.block is None:
            self.block = self.unit * (self.BLOCK // self.UNIT + 1)
        return self.block[off:off + n]

    def check(self, data, at: int) -> None:
        for i in range(0, len(data), self.BLOCK):
            piece = data[i:i + self.BLOCK]
            want = self.part(at + i, len(piece))
            if piece != want:
                k = next(j for j in range(len(piece)) if piece[j] != want[j])
                raise Mixed(f"body of {self.unit!r}: byte {at + i + k} begins {bytes(piece[k:k + 48])!r}")


class Conn:
    """Buffered reads, counted; writes; and the ways to end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self.reader, self.writer, self.buf = reader, writer, bytearray()
        self.n_in = self.n_out = 0
        self.dead = False

    @classmethod
    async def open(cls, port: int, rcvbuf: int = 0) -> "Conn":
        sock = socket.socket()
        sock.setblocking(False)
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            return cls(*await asyncio.open_connection(sock=sock, limit=LIMIT))
        except OSError as e:
            sock.close()
            raise Gone(f"connect: {e}") from e
        except BaseException:
            sock.close()
            raise

    async def start_tls(self, context, name: str) -> None:
        assert not self.buf
        try:
            await self.writer.start_tls(context, server_hostname=name)
        except (OSError, ConnectionError) as e:  # ssl.SSLError is an OSError
            raise Gone(f"tls: {e}") from e

    # reading

    async def fill(self) -> bool:
        try:
            data = await self.reader.read(LIMIT)
        except (OSError, ConnectionError):
            self.dead = True
            data = b""
        self.buf += data
        self.n_in += len(data)
        return bool(data)

    async def head(self) -> bytes:
        """Up to the empty line, without it. b"": the end came first, between two messages."""
        while (end := self.buf.find(b"\r\n\r\n")) < 0:
            if not await self.fill():
                if self.buf:
                    raise Gone("end within a head")
                return b""
        out = bytes(self.buf[:end])
        del self.buf[:end + 4]
        return out

    async def line(self) -> bytes:
        while (end := self.buf.find(b"\r\n")) < 0:
            if not await self.fill():
                raise Gone("end within a line")
        out = bytes(self.buf[:end])
        del self.buf[:end + 2]
        return out

    async def take(self, n: int, body: Body | None, at: int, seen) -> None:
        """n bytes of `body` (None: of anything), which begin at its offset `at`; seen(count) for each piece."""
        while n > 0:
            if not self.buf and not await self.fill():
                raise Gone("end within a body")
            piece = self.buf[:n]
            del self.buf[:n]
            if body:
                body.check(piece, at)
            at += len(piece)
            n -= len(piece)
            seen(len(piece))

    async def chunks(self, body: Body | None, seen) -> None:
        at = 0
        while size := int((await self.line()).split(b";")[0], 16):
            await self.take(size, body, at, seen)
            at += size
            if await self.line():
                raise Gone("a chunk longer than it said")
        while await self.line():
            pass

    async def to_the_end(self, body: Body | None, seen) -> None:
        at = 0
        while self.buf or await self.fill():
            piece, self.buf = self.buf, bytearray()
            if body:
                body.check(piece, at)
            at += len(piece)
            seen(len(piece))
        if self.dead:
            raise Gone("reset within a body")

    # writing

    def write(self, data: bytes) -> None:
        self.writer.write(data)
        self.n_out += len(data)

    async def drain(self) -> None:
        try:
            await self.writer.drain()
        except (OSError, ConnectionError) as e:
            raise Gone(f"write: {e}") from e

    async def send(self, data: bytes) -> None:
        self.write(data)
        await self.drain()

    async def send_body(self, body: Body, n: int, chunked: bool, sent, at: int = 0, end: bool = True) -> None:
        """Bytes at..n of the body; sent(count) for each piece."""
        size = 32768
        while at < n:
            piece = body.part(at, min(size, n - at))
            if chunked:
                self.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            else:
                self.write(piece)
            at += len(piece)
            await self.drain()
            sent(len(piece))
        if chunked and end:
            await self.send(b"0\r\n\r\n")

    # ends

    def socket(self):
        return self.writer.get_extra_info("socket")

    def half_close(self) -> None:
        try:
            self.writer.write_eof()
        except (OSError, NotImplementedError, RuntimeError):
            pass

    def reset(self) -> None:
        """The peer sees a reset, whatever is still to be sent."""
        self.dead = True
        try:
            self.socket().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (OSError, AttributeError):
            pass
        self.writer.transport.abort()

    def close(self) -> None:
        if self.writer.transport.get_write_buffer_size() and self.reader.at_eof():
            self.writer.transport.abort()
        else:
            self.writer.close()


def parse_head(head: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    first, *lines = head.split(b"\r\n")
    fields = {}
    for x in lines:
        name, _, value = x.partition(b":")
        fields[name.lower()] = value.strip()
    return first, fields
