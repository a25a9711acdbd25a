#!/usr/bin/python3
"""The origin of the soak: does what the path asks, and keeps account of every exchange.

    origin.py --pki DIR --book FILE --secret FILE

Prints one JSON line with its ports (plain, tls, dead: nothing listens there). Paths are
/s/ID/OP/N[/...]: ID is the exchange's, N the bytes of the answer. After each exchange, however it
ended, the book has a line: ID, OP, body bytes received, body bytes sent, whole or cut; and after each
connection one with a C: the first ID on it, all bytes received, all bytes sent.

Commands on standard input, each answered by its own line: `reset` (all connections), `close` (those that
are idle, in good order), `end` (all, and the book is on disk then)."""

import argparse
import asyncio
import base64
import hashlib
import json
import pathlib
import socket
import ssl
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from wire import LIMIT, Body, Conn, Gone, Mixed, parse_head  # noqa: E402


class Exchange:
    """One request as it came, and the account of it."""

    def __init__(self, c: Conn, head: bytes):
        first, self.fields = parse_head(head)
        self.method, target, _ = first.split(b" ")
        parts = target.decode("latin-1").split("?")[0].split("/")
        self.rid, self.op, self.n = parts[2], parts[3], int(parts[4])
        self.c, self.body = c, Body(self.rid)
        self.got = self.sent = 0
        self.whole = False

    def count_in(self, n: int) -> None:
        self.got += n

    def count_out(self, n: int) -> None:
        self.sent += n

    async def read_body(self) -> None:
        if b"chunked" in self.fields.get(b"transfer-encoding", b""):
            await self.c.chunks(self.body, self.count_in)
        else:
            await self.c.take(int(self.fields.get(b"content-length", 0)), self.body, 0, self.count_in)

    def head(self, framing: str, status: int = 200, more: str = "") -> bytes:
        return (f"HTTP/1.1 {status} Fine\r\nX-Rid: {self.rid}\r\nX-Got: {self.got}\r\n{more}{framing}\r\n"
                ).encode("latin-1")

    async def answer(self, chunked: bool = False, until: int | None = None, end: bool = True, more: str = "") -> None:
        """The answer; with `until` only so many bytes of its body."""
        until = self.n if until is None else until
        framing = "Transfer-Encoding: chunked\r\n" if chunked else f"Content-Length: {self.n}\r\n"
        if until == self.n <= 16384 and not chunked:
            await self.c.send(self.head(framing, more=more) + self.body.part(0, self.n))
            self.sent = self.n
            return
        await self.c.send(self.head(framing, more=more))
        await self.c.send_body(self.body, until, chunked, self.count_out, end=end)


class Origin:
    def __init__(self, book: pathlib.Path, secret: str):
        self.book, self.secret = open(book, "a"), secret
        self.conns: dict[Conn, bool] = {}  # whether it is in the middle of an exchange

    # What the paths do. False: the connection ends.

    def credential(self, x: Exchange) -> str:
        value = x.fields.get(b"authorization")
        if value is None:
            return "X-Cred: none\r\n"
        return f"X-Cred: {'right' if value == b'Bearer ' + self.secret.encode() else 'wrong'}\r\n"

    async def do_cl(self, x: Exchange) -> bool:
        await x.read_body()
        await x.answer(more=self.credential(x))
        return True

    async def do_ch(self, x: Exchange) -> bool:
        await x.read_body()
        await x.answer(chunked=True, more=self.credential(x))
        return True

    async def do_eof(self, x: Exchange) -> bool:
        await x.read_body()
        await x.c.send(x.head("Connection: close\r\n"))
        await x.c.send_body(x.body, x.n, False, x.count_out)
        return False

    async def do_late(self, x: Exchange) -> bool:
        await x.read_body()
        await asyncio.sleep(0.3)
        return await self.do_cl(x)

    async def do_hint(self, x: Exchange) -> bool:
        await x.read_body()
        await x.c.send(b"HTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n")
        await x.answer()
        return True

    async def do_drip(self, x: Exchange) -> bool:
        await x.read_body()
        await x.c.send(x.head(f"Content-Length: {x.n}\r\n"))
        for i in range(0, x.n, max(1, x.n // 16)):
            await asyncio.sleep(0.02)
            n = min(max(1, x.n // 16), x.n - i)
            await x.c.send(x.body.part(i, n))
            x.sent += n
        return True

    async def do_deaf(self, x: Exchange) -> bool:
        """Takes nothing of the body for a while: the client is held back, not the proxy filled."""
        await asyncio.sleep(0.7)
        return await self.do_cl(x)

    async def do_ws(self, x: Exchange) -> bool:
        """A WebSocket as far as its head goes; then every byte comes back."""
        key = x.fields[b"sec-websocket-key"]
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        await x.c.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                       b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while x.c.buf or await x.c.fill():
            data, x.c.buf = bytes(x.c.buf), bytearray()
            x.body.check(data, x.got)
            x.got += len(data)
            await x.c.send(data)
            x.sent += len(data)
        return False

    async def do_race(self, x: Exchange) -> bool:
        """Closes behind an answer that said nothing of it."""
        await x.read_body()
        await x.answer()
        return False

    async def do_rst0(self, x: Exchange) -> bool:
        x.c.reset()
        return False

    async def do_rsth(self, x: Exchange) -> bool:
        await x.read_body()
        await x.c.send(b"HTTP/1.1 200 Fine\r\nX-Ri")
        await asyncio.sleep(0.01)
        x.c.reset()
        return False

    async def do_rstu(self, x: Exchange) -> bool:
        """Resets in the middle of the request's body."""
        if not x.c.buf:
            await x.c.fill()
        x.c.reset()
        return False

    async def do_rstb(self, x: Exchange) -> bool:
        await x.read_body()
        await x.answer(until=x.n // 2)
        await asyncio.sleep(0.01)
        x.c.reset()
        return False

    async def do_cut(self, x: Exchange) -> bool:
        await x.read_body()
        await x.answer(until=x.n // 2)
        return False

    async def do_cutch(self, x: Exchange) -> bool:
        await x.read_body()
        await x.answer(chunked=True, until=x.n // 2, end=False)
        return False

    async def do_half(self, x: Exchange) -> bool:
        """Ends its sending side before the answer, and waits for the other's end."""
        await x.read_body()
        x.c.half_close()
        while await x.c.fill():
            x.c.buf.clear()
        return False

    async def do_mute(self, x: Exchange) -> bool:
        await x.read_body()
        while await x.c.fill():
            x.c.buf.clear()
        return False

    async def do_stall(self, x: Exchange) -> bool:
        """Half an answer, then silence until the other side ends."""
        await x.read_body()
        await x.answer(until=x.n // 2)
        while await x.c.fill():
            x.c.buf.clear()
        return False

    async def do_junk(self, x: Exchange) -> bool:
        await x.read_body()
        await x.c.send(b"HTTP/1.1 2oo what\x01\r\nno colon here\r\n\r\n")
        return False

    async def do_early(self, x: Exchange) -> bool:
        """Answers before it has read the body, and closes."""
        await x.c.send(x.head(f"Connection: close\r\nContent-Length: {x.n}\r\n", 413) + x.body.part(0, x.n))
        x.sent = x.n
        x.c.half_close()
        for _ in range(64):
            if not await x.c.fill():
                break
            x.got += len(x.c.buf)
            x.c.buf.clear()
        return False

    # connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        c = Conn(reader, writer)
        writer.transport.set_write_buffer_limits(1 << 17)
        self.conns[c] = False
        first = ""
        try:
            while head := await c.head():
                x = Exchange(c, head)
                first = first or x.rid
                self.conns[c] = True
                keep = False
                try:
                    keep = await getattr(self, "do_" + x.op)(x)
                    x.whole = x.sent == x.n and not c.dead
                except Mixed as e:
                    print(f"MIXED {e}", file=sys.stderr, flush=True)
                finally:
                    self.book.write(f"{x.rid}\t{x.op}\t{x.got}\t{x.sent}\t{'whole' if x.whole else 'cut'}\n")
                self.conns[c] = False
                if not keep:
                    break
        except (Gone, OSError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.conns.pop(c, None)
            self.book.write(f"C\t{first}\t{c.n_in}\t{c.n_out}\n")
            c.close()

    async def command(self, word: str) -> None:
        for c, busy in list(self.conns.items()):
            if word == "reset":
                c.reset()
            elif word == "end":
                c.dead = True
                c.writer.transport.abort()
            elif not busy:
                c.close()
        if word == "end":
            for _ in range(200):
                if not self.conns:
                    break
                await asyncio.sleep(0.01)
            self.book.flush()
        print(word, flush=True)


async def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--pki", type=pathlib.Path, required=True)
    p.add_argument("--book", type=pathlib.Path, required=True)
    p.add_argument("--secret", type=pathlib.Path, required=True)
    args = p.parse_args()
    o = Origin(args.book, args.secret.read_text().strip())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.pki / "good.pem", args.pki / "good.key")
    servers = [await asyncio.start_server(o.serve, "127.0.0.1", 0, ssl=x, limit=LIMIT, backlog=4096)
               for x in (None, context)]
    dead = socket.socket()
    dead.bind(("127.0.0.1", 0))  # never listens
    plain, tls = (s.sockets[0].getsockname()[1] for s in servers)
    print(json.dumps({"plain": plain, "tls": tls, "dead": dead.getsockname()[1]}), flush=True)
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    while line := await stdin.readline():
        await o.command(line.decode().strip())


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
