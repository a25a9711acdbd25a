"""The clients of the soak: whole exchanges of every kind, and those who break off, stall and lie.

A client checks that an answer is its own (id and body) whatever else is going on. What may become of an exchange
otherwise stands in its entry (ledger.py) before it begins."""

import asyncio
import json
import random
import re
import ssl

from ledger import Entry, Ledger
from names import EXPECTED, HONEST
from wire import Body, Conn, Gone, Mixed, parse_head

CLOSED = ("aborted", "closed", "cut", "client_closed", "client_timeout")
DETAILS = re.compile(rb'details="?([a-z_]+)')


class World:
    """What all clients need: where everything is, the ledger, and whether it is time to stop."""

    def __init__(self, ledger: Ledger, ports: dict, proxy: int, slower: int, rng: random.Random, secret: str):
        self.ledger, self.ports, self.proxy, self.slower, self.rng = ledger, ports, proxy, slower, rng
        self.secret = secret.encode()
        self.stopping = asyncio.Event()
        self.inspected: ssl.SSLContext | None = None  # trusts stile's CA
        self.inspected_h2: ssl.SSLContext | None = None  # and asks for HTTP/2
        self.direct: ssl.SSLContext | None = None     # trusts the origin's
        self.bound = 12 * slower   # an exchange takes no longer, or hangs
        self.live = 0

    def stop(self) -> bool:
        return self.stopping.is_set()


class Client:
    """One task of requests, with random numbers of its own."""

    def __init__(self, world: World):
        self.w, self.r = world, random.Random(world.rng.random())

    # one exchange on an open connection

    def head(self, e: Entry, method: str, op: str, n: int, where: str, up: int, chunked: bool, more: str = "") -> bytes:
        """where: an absolute http://HOST:PORT, or HOST:PORT when the connection is a tunnel."""
        host = where.removeprefix("http://")
        target = (where if where.startswith("http://") else "") + f"/s/{e.rid}/{op}/{n}"
        if chunked:
            more += "Transfer-Encoding: chunked\r\n"
        elif up or method == "POST":
            more += f"Content-Length: {up}\r\n"
        e.posted = method == "POST"
        return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode("latin-1")

    async def answer(self, c: Conn, e: Entry, n: int | None = None) -> dict | None:
        """Reads it and ends the entry. The fields, when it is whole; None: the connection is of no more use."""
        try:
            async with asyncio.timeout(self.w.bound):
                head = await c.head()
                while re.match(rb"HTTP/1\.1 1", head):
                    head = await c.head()
                if not head:
                    self.w.ledger.end(e, "closed")
                    return None
                return await self.whole(c, e, head, n)
        except Gone:
            self.w.ledger.end(e, "cut" if e.status else "closed")
        except TimeoutError:
            self.w.ledger.end(e, "hang")
        except Mixed as x:
            self.w.ledger.complain(f"{e.kind} {e.rid}: an answer that is not its own: {x}")
            self.w.ledger.end(e, "cut")
        return None

    async def whole(self, c: Conn, e: Entry, head: bytes, n: int | None) -> dict | None:
        first, fields = parse_head(head)
        e.status = int(first.split(b" ", 2)[1])
        if b"proxy-status" in fields:
            return await self.refused(c, e, fields)
        if fields.get(b"x-rid") != e.rid.encode():
            raise Mixed(f"{head!r}")
        if self.w.secret in head:
            self.w.ledger.complain(f"{e.kind} {e.rid}: the secret came back")

        def seen(k: int) -> None:
            e.got += k
        body = Body(e.rid)
        if b"chunked" in fields.get(b"transfer-encoding", b""):
            await c.chunks(body, seen)
        elif b"content-length" in fields:
            await c.take(int(fields[b"content-length"]), body, 0, seen)
        else:
            await c.to_the_end(body, seen)
        if e.status == 200:
            if n is not None and e.got != n:
                self.w.ledger.complain(f"{e.kind} {e.rid}: an answer of {e.got} bytes looks whole, there were {n}")
            if int(fields[b"x-got"]) != e.sent:
                self.w.ledger.complain(f"{e.kind} {e.rid}: sent {e.sent}, the origin got {fields[b'x-got']!r}")
        self.w.ledger.end(e, "ok" if e.status == 200 else "status")
        return fields

    async def refused(self, c: Conn, e: Entry, fields: dict) -> dict | None:
        found = DETAILS.search(fields[b"proxy-status"])
        parts = []
        while (n := int(fields.get(b"content-length", 0)) - sum(map(len, parts))) > 0:
            if not c.buf and not await c.fill():
                raise Gone("end within a refusal")
            parts.append(bytes(c.buf[:n]))
            del c.buf[:n]
        reason = found.group(1).decode() if found else "?"
        said = json.loads(b"".join(parts))
        if said["reason"] != reason or not said["id"]:
            self.w.ledger.complain(f"{e.kind} {e.rid}: a refusal that contradicts itself: {fields} {said}")
        self.w.ledger.end(e, reason)
        return fields

    async def ask(self, c: Conn, e: Entry, where: str, op: str = "cl", n: int = 100, up: int = 0, chunked: bool = False,
                  more: str = "", whole: bool = True) -> dict | None:
        """The whole exchange. None: the connection is of no more use."""
        method = "POST" if up or chunked else "GET"
        await self.send(c, e, method, where, op, n, up, chunked, more)
        return await self.answer(c, e, n if whole else None)

    async def send(self, c: Conn, e: Entry, method: str, where: str, op: str, n: int, up: int, chunked: bool,
                   more: str = "") -> None:
        def sent(k: int) -> None:
            e.sent += k
        try:
            async with asyncio.timeout(self.w.bound):
                c.write(self.head(e, method, op, n, where, up, chunked, more))
                if up or chunked:
                    await c.send_body(Body(e.rid), up, chunked, sent)
        except Gone:
            pass  # an answer may be there all the same
        except TimeoutError:
            self.w.ledger.end(e, "hang")

    # ways in

    async def open(self, e: Entry | None = None, rcvbuf: int = 0) -> Conn:
        try:
            async with asyncio.timeout(self.w.bound):
                return await Conn.open(self.w.proxy, rcvbuf)
        except TimeoutError:
            raise Gone("connect: timeout") from None

    async def connect(self, c: Conn, e: Entry, target: str) -> bool:
        """CONNECT; a refusal ends the entry."""
        try:
            async with asyncio.timeout(self.w.bound):
                await c.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
                head = await c.head()
                if not head:
                    raise Gone("no answer to CONNECT")
                first, fields = parse_head(head)
                e.status = int(first.split(b" ", 2)[1])
                if e.status == 200:
                    e.status = 0
                    c.n_out, c.n_in = 0, len(c.buf)  # from here on: the tunnel's
                    return True
                await self.refused(c, e, fields)
        except Gone:
            self.w.ledger.end(e, "closed")
        except TimeoutError:
            self.w.ledger.end(e, "hang")
        return False

    async def tls(self, c: Conn, e: Entry, context: ssl.SSLContext, name: str) -> bool:
        try:
            async with asyncio.timeout(self.w.bound):
                await c.start_tls(context, name)
                return True
        except Gone as x:
            e.kind += f" ({x})" if "closed" not in e.expect else ""
            self.w.ledger.end(e, "closed")
        except TimeoutError:
            self.w.ledger.end(e, "hang")
        return False

    # their lives

    async def run(self) -> None:
        """Until it is time to stop; whatever happens to one turn, the next one begins anew."""
        self.w.live += 1
        try:
            while not self.w.stop():
                try:
                    await self.turn()
                except Gone:
                    await asyncio.sleep(0.02)
        finally:
            self.w.live -= 1

    async def turn(self) -> None:
        raise NotImplementedError

    def size(self) -> int:
        """Mostly small, at times large."""
        k = self.r.random()
        return self.r.randrange(2000) if k < .8 else self.r.randrange(60000) if k < .97 else self.r.randrange(1500000)

    def whole_request(self) -> dict:
        """A request that an honest origin answers whole."""
        k = self.r.random()
        if k < .6:
            return {"op": "cl", "n": self.size()}
        if k < .7:
            return {"op": "ch", "n": self.size()}
        if k < .73:
            return {"op": "hint", "n": self.r.randrange(500)}
        if k < .75:
            return {"op": self.r.choice(["late", "drip"]), "n": self.r.randrange(500)}
        return {"op": "cl", "n": self.r.randrange(200), "up": self.size() + 1, "chunked": self.r.random() < .5}


class Forward(Client):
    """Keep-alive requests in clear; between them some by name, some denied."""

    async def turn(self) -> None:
        c = await self.open()
        plain = self.w.ports["plain"]
        try:
            for _ in range(self.r.randrange(1, 200)):
                if self.w.stop():
                    break
                k = self.r.random()
                if k < .90:
                    e, where, how = self.w.ledger.new("forward"), f"http://fwd.test:{plain}", self.whole_request()
                elif k < .92:
                    e = self.w.ledger.new("by name")
                    where, how = f"http://{e.rid}.{self.r.choice(HONEST)}.soak.test:{plain}", {"n": 50}
                elif k < .94:
                    e = self.w.ledger.new("flip", ("ok", "no_rule"))
                    where, how = f"http://flip.test:{plain}", {"n": 50}
                elif k < .96:
                    e, where = self.w.ledger.new("race"), f"http://race.test:{plain}"
                    how = {"op": "race", "n": 50}
                elif k < .98:
                    e, where = self.w.ledger.new("denied", ("denied_by_rule",)), f"http://fwd.test:{plain}/no"
                    how = {"n": 50}
                else:
                    e = self.w.ledger.new("denied", ("no_rule",))
                    where, how = f"http://{e.rid}.evil.test:{plain}", {"n": 50}
                fields = await self.exchange(c, e, where, how)
                if fields is None or fields.get(b"connection") == b"close":
                    break
        finally:
            c.close()

    async def exchange(self, c: Conn, e: Entry, where: str, how: dict) -> dict | None:
        if where.endswith("/no"):
            c.write(f"GET {where}/{e.rid} HTTP/1.1\r\nHost: {where[7:-3]}\r\n\r\n".encode())
            return await self.answer(c, e)
        return await self.ask(c, e, where, **how)


class Inspected(Client):
    """Requests within TLS that stile opens, with and without a credential of its own."""

    async def turn(self) -> None:
        c, e = await self.open(), self.w.ledger.new("inspected")
        cred = self.r.random() < .3
        where = f"{'cred' if cred else 'insp'}.test:{self.w.ports['tls']}"
        try:
            if not await self.connect(c, e, where) or not await self.tls(c, e, self.w.inspected, where.split(":")[0]):
                return
            for i in range(self.r.randrange(1, 60)):
                if i:
                    if self.w.stop():
                        return
                    e = self.w.ledger.new("inspected")
                fields = await self.ask(c, e, where, **self.whole_request())
                if fields is None or (e.outcome == "ok" and not self.right(e, fields, cred)) \
                        or fields.get(b"connection") == b"close":
                    return
        finally:
            self.w.ledger.end(e, "aborted") if not e.outcome else None
            c.close()

    def right(self, e: Entry, fields: dict, cred: bool) -> bool:
        got = fields.get(b"x-cred")
        if got is not None and got != (b"right" if cred else b"none"):
            self.w.ledger.complain(f"inspected {e.rid}: the credential is {got!r} ({'' if cred else 'none '}expected)")
        return True


class Tunnels(Client):
    """Opaque tunnels, by a name of their own, with bulk in both directions."""

    async def turn(self) -> None:
        kind = self.r.choice(["tcp", "pass"])
        e = self.w.ledger.new("tunnel " + kind)
        e.tunnel = kind
        host = f"{e.rid}.{kind}.soak.test"
        where = f"{host}:{self.w.ports['plain' if kind == 'tcp' else 'tls']}"
        c = await self.open_or_end(e)
        try:
            if not await self.connect(c, e, where):
                return
            if kind == "pass" and not await self.tls(c, e, self.w.direct, host):
                return
            for _ in range(self.r.randrange(1, 8)):
                if not await self.inner(c, e, where):
                    return
            await self.goodbye(c, e, kind)
        finally:
            self.w.ledger.end(e, "aborted") if not e.outcome else None
            e.sent, e.got = c.n_out, c.n_in
            c.close()

    async def open_or_end(self, e: Entry) -> Conn:
        try:
            return await self.open(e)
        except Gone:
            self.w.ledger.end(e, "closed")
            raise

    async def inner(self, c: Conn, e: Entry, where: str, **how) -> bool:
        """One exchange inside, which stile knows nothing of."""
        inner = self.w.ledger.new("inside", e.expect)
        inner.parent = e.rid
        if not how:
            how = self.whole_request()
            if self.r.random() < .1:
                how = {"n": self.r.randrange(1, 8 << 20)} if self.r.random() < .5 else \
                    {"n": 10, "up": self.r.randrange(1, 4 << 20)}
        fields = await self.ask(c, inner, where, **how)
        if fields is None:
            self.w.ledger.end(e, inner.outcome)
        return fields is not None

    async def goodbye(self, c: Conn, e: Entry, kind: str) -> None:
        """In good order: our end first, then the origin's."""
        if kind == "tcp" and self.r.random() < .7:
            c.half_close()
            try:
                async with asyncio.timeout(self.w.bound):
                    await c.to_the_end(None, self.stray(e))
                self.w.ledger.end(e, "ok")
            except Gone:
                self.w.ledger.end(e, "cut")
            except TimeoutError:
                self.w.ledger.end(e, "hang")
        else:
            self.w.ledger.end(e, "ok")

    def stray(self, e: Entry):
        def seen(n: int) -> None:
            self.w.ledger.complain(f"{e.kind} {e.rid}: {n} bytes behind the last answer")
        return seen


class Revoked(Tunnels):
    """Tunnels whose rule comes and goes: they end with it, and are refused while it is away."""

    async def turn(self) -> None:
        e = self.w.ledger.new("revocable", ("ok", "no_rule", "policy_revoked", "closed", "cut", "aborted"))
        e.tunnel = "rev"
        where = f"{e.rid}.rev.soak.test:{self.w.ports['plain']}"
        c = await self.open_or_end(e)
        try:
            if not await self.connect(c, e, where):
                await asyncio.sleep(0.1)
                return
            for _ in range(20):
                if self.w.stop() or not await self.inner(c, e, where, n=self.r.randrange(20000)):
                    return
                await asyncio.sleep(0.1)
            await self.goodbye(c, e, "tcp")
        finally:
            self.w.ledger.end(e, "aborted") if not e.outcome else None
            e.sent, e.got = c.n_out, c.n_in
            c.close()


class Liars(Client):
    """Names whose answers must not be believed, or never come."""

    async def turn(self) -> None:
        mode = self.r.choice(list(EXPECTED))
        e = self.w.ledger.new("dns " + mode, EXPECTED[mode])
        try:
            c = await self.open(e)
        except Gone:
            self.w.ledger.end(e, "closed")
            raise
        try:
            await self.ask(c, e, f"http://{e.rid}.{mode}.soak.test:{self.w.ports['plain']}")
        finally:
            c.close()
        await asyncio.sleep(self.r.random() * 0.2)


class BadOrigins(Client):
    """Origins that reset, cut, stall and babble. A cut answer must never look whole."""

    GONE = ("upstream_closed", "closed", "cut")
    OPS = {
        "rst0": GONE, "rsth": GONE, "rstb": GONE, "cut": GONE, "cutch": GONE, "half": GONE,
        "junk": ("upstream_malformed",), "mute": ("upstream_timeout",), "stall": ("cut",),
        "early": ("status", "closed", "cut"), "rstu": GONE, "deaf": ("ok",), "eof": ("ok",), "dead": ("connect_refused",),
    }

    async def turn(self) -> None:
        op = self.r.choice(list(self.OPS))
        expect = self.OPS[op]
        e = self.w.ledger.new("origin " + op, expect)
        tls = self.r.random() < .4 and op not in ("dead", "half")
        host = f"{'insp' if tls else 'fwd'}.test:{self.w.ports['dead' if op == 'dead' else 'tls' if tls else 'plain']}"
        n = self.r.choice([300, 5000, 300000])
        up = self.r.choice([1000, 200000]) if op in ("early", "rstu", "deaf") else self.r.choice([0, 0, 1000])
        try:
            c = await self.open(e)
        except Gone:
            self.w.ledger.end(e, "closed")
            raise
        try:
            if tls and (not await self.connect(c, e, host) or not await self.tls(c, e, self.w.inspected, "insp.test")):
                return
            await self.ask(c, e, host if tls else "http://" + host, "cl" if op == "dead" else op,
                           n if op != "early" else 300, up, bool(up) and self.r.random() < .5)
        finally:
            self.w.ledger.end(e, "aborted") if not e.outcome else None
            c.close()


class Rude(Tunnels):
    """Clients that break off, stall or dribble, in every phase."""

    async def turn(self) -> None:
        what = self.r.choice(WAYS)
        expect = ("ok",) if what in PATIENT else ("ok", *CLOSED)
        e = self.w.ledger.new("client " + what, expect)
        try:
            c = await self.open(e, 8192 if "down" in what else 0)
        except Gone:
            self.w.ledger.end(e, "closed")
            raise
        try:
            async with asyncio.timeout(3 * self.w.bound):
                await getattr(self, "do_" + what)(c, e, f"http://fwd.test:{self.w.ports['plain']}")
        except Gone:
            self.w.ledger.end(e, "closed")
        except TimeoutError:
            self.w.ledger.end(e, "hang")
        finally:
            self.w.ledger.end(e, "aborted") if not e.outcome else None
            if e.tunnel:
                e.sent, e.got = c.n_out, c.n_in
            c.close()
        await asyncio.sleep(self.r.random() * 0.05)

    def get(self, e: Entry, where: str, n: int = 100) -> bytes:
        return self.head(e, "GET", "cl", n, where, 0, False)

    async def some(self, c: Conn, n: int) -> None:
        while len(c.buf) < n and await c.fill():
            pass

    async def abort(self, c: Conn, e: Entry) -> None:
        self.w.ledger.end(e, "aborted")
        c.reset()

    async def until_end(self, c: Conn, e: Entry) -> None:
        """The proxy ends it, by itself and within its time."""
        await self.answer(c, e)

    # heads

    async def do_half_head_reset(self, c, e, where):
        head = self.get(e, where)
        await c.send(head[:self.r.randrange(1, len(head))])
        await asyncio.sleep(self.r.random() * 0.02)
        await self.abort(c, e)

    async def do_half_head_closed(self, c, e, where):
        head = self.get(e, where)
        await c.send(head[:self.r.randrange(1, len(head) - 1)])
        c.half_close()
        await self.until_end(c, e)

    async def do_slow_head(self, c, e, where):
        """A byte at a time: refused when the head's time is over."""
        head = self.get(e, where)
        for b in head:
            await c.send(bytes([b]))
            await asyncio.sleep(0.1)
            if c.reader.at_eof() or c.reader._buffer:  # it has spoken
                break
        await self.until_end(c, e)

    async def do_silent(self, c, e, where):
        await asyncio.sleep(self.r.random())
        await self.abort(c, e)

    async def do_reset_at_once(self, c, e, where):
        await c.send(self.get(e, where))
        await self.abort(c, e)

    async def do_half_closed_at_once(self, c, e, where):
        await c.send(self.get(e, where))
        c.half_close()
        await self.until_end(c, e)

    async def do_pipeline(self, c, e, where):
        entries = [e, self.w.ledger.new("client pipeline"), self.w.ledger.new("client pipeline")]
        for x in entries:
            c.write(self.get(x, where, self.r.randrange(3000)))
        for i, x in enumerate(entries):
            if await self.answer(c, x) is None:
                for y in entries[i + 1:]:
                    self.w.ledger.end(y, x.outcome)
                return

    async def do_nonsense(self, c, e, where):
        e.expect = frozenset(("malformed_request", "version_unsupported", "ambiguous_url", "name_mismatch"))
        await c.send(self.r.choice([
            b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", self.get(e, where).replace(b"/s/", b"/../s/"),
            self.get(e, where).replace(b"Host: fwd", b"Host: other"),
            self.get(e, where).replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc")]))
        await self.until_end(c, e)

    async def do_denied_with_body(self, c, e, where):
        e.expect = frozenset(("no_rule", "closed"))
        c.write(self.head(e, "POST", "cl", 9, where.replace("fwd", "evil"), 50000, False))
        try:
            await c.send_body(Body(e.rid), 50000, False, lambda n: None)
        except Gone:
            pass
        await self.until_end(c, e)

    # uploads

    async def half_upload(self, c, e, where, n=200000):
        chunked = self.r.random() < .5
        c.write(self.head(e, "POST", "cl", 100, where, n, chunked))
        await c.send_body(Body(e.rid), self.r.randrange(1, n - 1), chunked, lambda k: None, end=False)

    async def do_upload_reset(self, c, e, where):
        await self.half_upload(c, e, where)
        await asyncio.sleep(self.r.random() * 0.02)
        await self.abort(c, e)

    async def do_upload_half_closed(self, c, e, where):
        await self.half_upload(c, e, where)
        c.half_close()
        await self.until_end(c, e)

    async def do_upload_stalls(self, c, e, where):
        await self.half_upload(c, e, where, 40000)
        await self.until_end(c, e)

    async def do_upload_pauses(self, c, e, where):
        def sent(k: int) -> None:
            e.sent += k
        c.write(self.head(e, "POST", "cl", 100, where, 60000, False))
        await c.send_body(Body(e.rid), 30000, False, sent)
        await asyncio.sleep(0.4)
        await c.send_body(Body(e.rid), 60000, False, sent, at=30000)
        await self.answer(c, e, 100)

    async def do_expect(self, c, e, where):
        def sent(k: int) -> None:
            e.sent += k
        await c.send(self.head(e, "POST", "cl", 100, where, 5000, False, "Expect: 100-continue\r\n"))
        head = await c.head()
        if not head.startswith(b"HTTP/1.1 100"):
            if not head:
                raise Gone("no answer")
            await self.whole(c, e, head, 100)
            return
        await c.send_body(Body(e.rid), 5000, False, sent)
        await self.answer(c, e, 100)

    # downloads

    async def do_down_reset(self, c, e, where):
        await c.send(self.get(e, where, 2000000))
        await self.some(c, self.r.randrange(1, 200000))
        await self.abort(c, e)

    async def do_down_closed(self, c, e, where):
        await c.send(self.get(e, where, 2000000))
        await self.some(c, self.r.randrange(1, 200000))
        self.w.ledger.end(e, "aborted")

    async def do_down_pauses(self, c, e, where):
        await c.send(self.get(e, where, 3000000))
        await asyncio.sleep(0.8)
        await self.answer(c, e, 3000000)

    async def do_down_never_read(self, c, e, where):
        """Nobody reads: the proxy gives up by itself."""
        await c.send(self.get(e, where, 8000000))
        c.writer.transport.pause_reading()
        await asyncio.sleep(self.r.choice([0.5, 4.5 * self.w.slower]))
        await self.abort(c, e)

    # tunnels and TLS

    async def do_storm(self, c, e, where):
        self.w.ledger.end(e, "aborted")
        made = await asyncio.gather(*(Conn.open(self.w.proxy) for _ in range(30)), return_exceptions=True)
        for x in made:
            if isinstance(x, Conn):
                x.reset()
            elif not isinstance(x, Gone):
                raise x

    async def do_connect_and_gone(self, c, e, where):
        if await self.connect(c, e, f"insp.test:{self.w.ports['tls']}"):
            self.w.ledger.end(e, "aborted")

    async def do_half_hello(self, c, e, where):
        if await self.connect(c, e, f"insp.test:{self.w.ports['tls']}"):
            await c.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(self.r.randrange(256) for _ in range(60)))
            await asyncio.sleep(self.r.random() * 0.05)
            await self.abort(c, e)

    async def do_untrusting(self, c, e, where):
        """Does not know stile's CA: an alert in the handshake."""
        if await self.connect(c, e, f"insp.test:{self.w.ports['tls']}"):
            await self.tls(c, e, self.w.direct, "insp.test")

    async def do_wrong_sni(self, c, e, where):
        if await self.connect(c, e, f"insp.test:{self.w.ports['tls']}"):
            await self.tls(c, e, self.w.inspected, "other.test")

    async def do_not_tls(self, c, e, where):
        e.expect = frozenset(("not_tls", *CLOSED))
        if await self.connect(c, e, f"insp.test:{self.w.ports['tls']}"):
            await c.send(b"SSH-2.0-nobody_of_interest_at_all_with_a_long_name\r\n")
            await self.until_end(c, e)

    async def inside_tls(self, c, e) -> str:
        where = f"insp.test:{self.w.ports['tls']}"
        if await self.connect(c, e, where) and await self.tls(c, e, self.w.inspected, "insp.test"):
            return where
        raise Gone("no tunnel")

    async def do_tls_reset(self, c, e, where):
        where = await self.inside_tls(c, e)
        await c.send(self.get(e, where, 1000000))
        await self.some(c, self.r.randrange(1, 100000))
        await self.abort(c, e)

    async def do_tls_upload_reset(self, c, e, where):
        await self.half_upload(c, e, await self.inside_tls(c, e))
        await self.abort(c, e)

    async def do_tls_upload_stalls(self, c, e, where):
        await self.half_upload(c, e, await self.inside_tls(c, e), 40000)
        await self.until_end(c, e)

    async def do_tls_down_pauses(self, c, e, where):
        where = await self.inside_tls(c, e)
        await c.send(self.get(e, where, 3000000))
        await asyncio.sleep(0.8)
        await self.answer(c, e, 3000000)

    async def tunnel(self, c, e) -> str:
        e.tunnel = "tcp"
        where = f"{e.rid}.tcp.soak.test:{self.w.ports['plain']}"
        if await self.connect(c, e, where):
            return where
        raise Gone("no tunnel")

    async def do_tunnel_reset(self, c, e, where):
        where = await self.tunnel(c, e)
        inner = self.w.ledger.new("inside", ("aborted",))
        inner.parent = e.rid
        self.w.ledger.end(inner, "aborted")
        await c.send(self.head(inner, "GET", "cl", 4000000, where, 0, False))
        await self.some(c, self.r.randrange(1, 300000))
        await self.abort(c, e)

    async def do_tunnel_down_pauses(self, c, e, where):
        where = await self.tunnel(c, e)
        inner = self.w.ledger.new("inside", ("ok",))
        inner.parent = e.rid
        await c.send(self.head(inner, "GET", "cl", 4000000, where, 0, False))
        await asyncio.sleep(0.8)
        if await self.answer(c, inner, 4000000) is None:
            self.w.ledger.end(e, inner.outcome)
            return
        await self.goodbye(c, e, "tcp")

    async def do_tunnel_half_closed(self, c, e, where):
        """The end of our side goes through; the answer comes back all the same."""
        where = await self.tunnel(c, e)
        inner = self.w.ledger.new("inside", ("ok",))
        inner.parent = e.rid
        await c.send(self.head(inner, "GET", "cl", 50000, where, 0, False))
        c.half_close()
        if await self.answer(c, inner, 50000) is None:
            self.w.ledger.end(e, inner.outcome)
            return
        await self.goodbye(c, e, "tcp")

    async def do_tunnel_early(self, c, e, where):
        """Bytes behind the CONNECT, before its answer."""
        e.tunnel = "tcp"
        where = f"{e.rid}.tcp.soak.test:{self.w.ports['plain']}"
        inner = self.w.ledger.new("inside", ("ok",))
        inner.parent = e.rid
        c.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        early = self.head(inner, "GET", "cl", 3000, where, 0, False)
        c.write(early)
        head = await c.head()
        c.n_out, c.n_in = len(early), len(c.buf)
        if not head.startswith(b"HTTP/1.1 200"):
            if head:
                await self.whole(c, e, head, None)
            self.w.ledger.end(e, "closed")
            self.w.ledger.end(inner, e.outcome)
        elif await self.answer(c, inner, 3000) is None:
            self.w.ledger.end(e, inner.outcome)
        else:
            await self.goodbye(c, e, "tcp")

    async def do_denied_connect(self, c, e, where):
        e.expect = frozenset(("no_rule",))
        await self.connect(c, e, f"{e.rid}.evil.test:443")


WAYS = [m[3:] for m in dir(Rude) if m.startswith("do_")]
PATIENT = {"upload_pauses", "down_pauses", "tls_down_pauses", "tunnel_down_pauses", "tunnel_half_closed", "tunnel_early",
           "pipeline", "expect"}
