"""The clients of the soak whose connections are more than one exchange after the other: HTTP/2 with many at a time, and
WebSockets, which are one exchange and then a tunnel."""

import asyncio
import base64
import hashlib
import json
import os

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from ledger import Entry
from traffic import CLOSED, DETAILS, BadOrigins, Client, Forward, Inspected, Liars, Revoked, Rude, Tunnels, World
from wire import Body, Conn, Gone, Mixed, parse_head

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3


class Stream:
    """One request on a connection."""

    def __init__(self, e: Entry, n: int, up: int, give_up: bool):
        self.e, self.n, self.up, self.give_up = e, n, up, give_up
        self.body, self.fields, self.refusal = Body(e.rid), {}, b""


class Multiplexed(Client):
    """HTTP/2 within TLS that stile opens: streams side by side, of which some are given up."""

    async def turn(self) -> None:
        c, e = await self.open(), self.w.ledger.new("inspected h2")
        where = f"insp.test:{self.w.ports['tls']}"
        self.streams: dict[int, Stream] = {}
        try:
            if not await self.connect(c, e, where) or not await self.tls(c, e, self.w.inspected_h2, "insp.test"):
                return
            h = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
            h.initiate_connection()
            self.goaway = False
            for i in range(self.r.randrange(1, 15)):
                if i and (self.w.stop() or self.goaway):
                    break
                for k in range(self.r.randrange(1, 8)):
                    self.begin(h, where, e if i == k == 0 else self.w.ledger.new("inspected h2"))
                async with asyncio.timeout(2 * self.w.bound):
                    await self.until_done(c, h)
            if not self.goaway:
                h.close_connection()
                await c.send(h.data_to_send())
        except Gone:
            self.end_all("closed")
            raise
        except h2.exceptions.ProtocolError as x:
            if self.goaway or "ConnectionState.CLOSED" in str(x):
                self.left_alone()
                return
            self.w.ledger.complain(f"inspected h2 {e.rid}: what came is no HTTP/2: {x!r}")
            self.end_all("cut")
        except TimeoutError:
            self.end_all("hang")
        finally:
            self.w.ledger.end(e, "aborted") if not e.outcome else None
            self.end_all("closed")
            c.close()

    def left_alone(self) -> None:
        """The library reads nothing behind a GOAWAY, though the streams before it go on."""
        for s in self.streams.values():
            s.e.expect, s.give_up = frozenset(("ok", *CLOSED)), True
        self.end_all("aborted")

    def begin(self, h, where: str, e: Entry) -> None:
        give_up = self.r.random() < .1
        if give_up:
            e.expect = frozenset(("ok", *CLOSED))
        s = Stream(e, self.size(), self.size() + 1 if self.r.random() < .3 else 0, give_up)
        e.posted = s.up > 0
        head = [(":method", "POST" if s.up else "GET"), (":scheme", "https"), (":authority", where),
                (":path", f"/s/{e.rid}/{'ch' if self.r.random() < .3 else 'cl'}/{s.n}")]
        if s.up and self.r.random() < .5:
            head.append(("content-length", str(s.up)))
        stream = h.get_next_available_stream_id()
        self.streams[stream] = s
        h.send_headers(stream, head, end_stream=not s.up)

    async def until_done(self, c: Conn, h) -> None:
        while self.streams:
            for stream in list(self.streams):
                self.upload(h, stream)
            await c.send(h.data_to_send())
            if not self.streams:
                break
            if not await c.fill():
                raise Gone("the connection ended")
            data, c.buf = bytes(c.buf), bytearray()
            for event in h.receive_data(data):
                self.event(h, event)
        await c.send(h.data_to_send())

    def upload(self, h, stream: int) -> None:
        """As much as the windows take."""
        s = self.streams[stream]
        while s.e.sent < s.up and (n := min(h.local_flow_control_window(stream), h.max_outbound_frame_size,
                                            s.up - s.e.sent)) > 0:
            h.send_data(stream, s.body.part(s.e.sent, n), end_stream=s.e.sent + n == s.up)
            s.e.sent += n

    def event(self, h, event) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = True
        s = self.streams.get(getattr(event, "stream_id", None) or 0)
        if isinstance(event, h2.events.DataReceived):
            h.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if s:
                self.data(s, event.data)
                if s.give_up:
                    self.give_up(h, event.stream_id)
        elif s and isinstance(event, h2.events.ResponseReceived):
            s.fields = dict(event.headers)
            s.e.status = int(s.fields[b":status"])
        elif s and isinstance(event, h2.events.StreamEnded):
            self.finish(event.stream_id, self.outcome(s))
        elif s and isinstance(event, h2.events.StreamReset):
            self.finish(event.stream_id, "cut" if s.e.status else "closed")

    def give_up(self, h, stream: int) -> None:
        try:
            h.reset_stream(stream, 8)
        except h2.exceptions.StreamClosedError:
            return  # its end came with the same bytes
        self.finish(stream, "aborted")

    def data(self, s: Stream, data: bytes) -> None:
        if b"proxy-status" in s.fields:
            s.refusal += data
            return
        try:
            s.body.check(data, s.e.got)
        except Mixed as x:
            self.w.ledger.complain(f"{s.e.kind} {s.e.rid}: an answer that is not its own: {x}")
        s.e.got += len(data)

    def outcome(self, s: Stream) -> str:
        """Of an answer that has ended as whole."""
        e = s.e
        if b"proxy-status" in s.fields:
            reason = DETAILS.search(s.fields[b"proxy-status"]).group(1).decode()
            if json.loads(s.refusal)["reason"] != reason:
                self.w.ledger.complain(f"{e.kind} {e.rid}: a refusal that contradicts itself: {s.fields} {s.refusal}")
            return reason
        if s.fields.get(b"x-rid") != e.rid.encode() or e.got != s.n or int(s.fields[b"x-got"]) != e.sent:
            self.w.ledger.complain(f"{e.kind} {e.rid}: sent {e.sent}, got {e.got} of {s.n}: {s.fields}")
        return "ok" if e.status == 200 else "status"

    def finish(self, stream: int, outcome: str) -> None:
        self.w.ledger.end(self.streams.pop(stream).e, outcome)

    def end_all(self, outcome: str) -> None:
        for stream in list(self.streams):
            self.finish(stream, "aborted" if self.streams[stream].give_up else
                        "cut" if outcome == "closed" and self.streams[stream].e.status else outcome)


class WebSockets(Client):
    """An upgrade, then bytes there and back in pieces, ended in good order or not."""

    async def turn(self) -> None:
        rude = self.r.random() < .2
        e = self.w.ledger.new("websocket", ("ok", *CLOSED) if rude else ("ok",))
        e.posted, e.success = True, 101
        n = self.size() + 1
        try:
            c = await self.open(e)
        except Gone:
            self.w.ledger.end(e, "closed")
            raise
        try:
            async with asyncio.timeout(2 * self.w.bound):
                if await self.upgrade(c, e, n):
                    await self.talk(c, e, n, rude)
        except Gone:
            self.w.ledger.end(e, "cut" if e.status else "closed")
        except TimeoutError:
            self.w.ledger.end(e, "hang")
        finally:
            self.w.ledger.end(e, "aborted") if not e.outcome else None
            c.close()
        await asyncio.sleep(self.r.random() * 0.05)

    async def upgrade(self, c: Conn, e: Entry, n: int) -> bool:
        key = base64.b64encode(os.urandom(16))
        host = f"fwd.test:{self.w.ports['plain']}"
        await c.send(f"GET http://{host}/s/{e.rid}/ws/{n} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\n"
                     f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n"
                     .encode())
        head = await c.head()
        if not head:
            raise Gone("no answer")
        first, fields = parse_head(head)
        e.status = int(first.split(b" ", 2)[1])
        if b"proxy-status" in fields:
            await self.refused(c, e, fields)
            return False
        if e.status != 101 or fields[b"sec-websocket-accept"] != \
                base64.b64encode(hashlib.sha1(key + GUID).digest()):
            self.w.ledger.complain(f"websocket {e.rid}: {head!r}")
            self.w.ledger.end(e, "status")
            return False
        return True

    async def talk(self, c: Conn, e: Entry, n: int, rude: bool) -> None:
        body = Body(e.rid)

        def seen(k: int) -> None:
            e.got += k
        while e.sent < n:
            piece = min(n - e.sent, self.r.choice([1, 125, 4000, 30000]))
            await c.send(body.part(e.sent, piece))
            e.sent += piece
            if self.r.random() < .5:
                await c.take(e.sent - e.got, body, e.got, seen)
            if rude and self.r.random() < .3:
                c.reset()
                self.w.ledger.end(e, "aborted")
                return
        await c.take(n - e.got, body, e.got, seen)
        c.half_close()
        if await c.fill():
            self.w.ledger.complain(f"websocket {e.rid}: bytes behind the last")
        self.w.ledger.end(e, "ok")


def crowd(world: World) -> list[Client]:
    """Who is there in a round. Most of the slow ones sleep most of the time."""
    return [make(world) for make, n in ((Forward, 8), (Inspected, 6), (Multiplexed, 4), (WebSockets, 3), (Tunnels, 4),
                                        (Revoked, 2), (Liars, 3), (BadOrigins, 5), (Rude, 12)) for _ in range(n)]
