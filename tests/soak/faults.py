"""What befalls the proxy as a whole while the clients go on: in two lanes, so that a reload can meet a full disk.
Each fault opens a window (ledger.py) that says whom it may harm, and how; what has no window must not be felt."""

import asyncio
import collections
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import time

HOUR_NS = 3600 * 10**9
# A tunnel whose CONNECT was answered can only be closed.
DNS_FAILS = {"dns_timeout", "dns_failed", "closed"}
NO_LOG = {"log_unavailable", "closed"}
ORIGIN_FAILS = {"upstream_closed", "closed", "cut", "upstream_tls_failed", "upstream_tls_timeout", "client_closed", "upstream_timeout"}


class Logs:
    """The log and what became of it: every file is kept until the end of the round, in order."""

    def __init__(self, path: pathlib.Path):
        self.path, self.number = path, 0
        self.files: list[tuple[str, object, bool]] = []  # name, open file, deleted

    def aside(self) -> None:
        """Renames the log (stile is not told)."""
        if not self.path.exists():
            return
        self.number += 1
        to = self.path.with_name(f"log.{self.number}")
        self.path.rename(to)
        self.files.append((to.name, open(to, "rb"), False))

    def delete(self) -> None:
        """Deletes it; we alone can still read it."""
        if not self.path.exists():
            return
        self.number += 1
        self.files.append((f"deleted.{self.number}", open(self.path, "rb"), True))
        self.path.unlink()

    def read(self):
        """All files that were put aside, and forgets them."""
        files, self.files = self.files, []
        for name, f, deleted in files:
            yield name, f.read(), deleted
            f.close()
            if not deleted:
                self.path.with_name(name).unlink()


class Faults:
    def __init__(self, s):
        """s: the Soak of run.py."""
        self.s, self.r = s, random.Random(s.rng.random())
        self.count = collections.Counter()
        self.revoked = 0  # exchanges in tunnels that ended with their rule
        self.told: list[str] = []  # what began and ended when
        self.lanes = [self.lane(self.CONFIG), self.lane(self.RESOURCES), self.rushes]
        self.rushed, self.rush_failed = 0, False  # in this round

    def lane(self, names: list[str]):
        order: list[str] = []

        async def go() -> None:
            """In an order drawn anew each time all have had their turn."""
            while not self.s.world.stop():
                await asyncio.sleep(self.r.uniform(0.1, 0.9))
                if self.s.world.stop():
                    break
                if not order:
                    order.extend(self.r.sample(names, len(names)))
                name = order.pop()
                self.count[name] += 1
                self.told.append(f"{time.time():.3f} {name}")
                try:
                    await getattr(self, "do_" + name)()
                    self.told.append(f"{time.time():.3f} {name} is over")
                except AssertionError as e:
                    self.s.ledger.complain(f"fault {name}: {e}")
        return go

    def window(self, effects: set | None) -> "Window":
        return Window(self.s.ledger.windows, effects)

    async def until(self, what, why: str, seconds: float = 10) -> None:
        end = time.monotonic() + seconds * self.s.slower
        while not what():
            assert time.monotonic() < end, f"{why}: not within {seconds * self.s.slower} s"
            await asyncio.sleep(0.02)

    # the configuration and the log

    async def reload(self, good: bool) -> None:
        """Without descriptors even a good file cannot be read: then it is tried again."""
        words = ["reloaded ", "the old policy stays"]
        for _ in range(20):
            before = [self.s.said(w) for w in words]
            self.s.stile.signal(signal.SIGHUP)
            await self.until(lambda: [self.s.said(w) for w in words] != before, "a word on the reload")
            if (self.s.said(words[0]) > before[0]) == good:
                return
            assert any(w[2] is None for w in self.s.ledger.windows.all), f"a {'good' if good else 'broken'} file is not"
            await asyncio.sleep(0.2)
        assert False, "no reload"

    async def do_reload(self):
        """Something changes that concerns nobody."""
        self.s.write(filler=self.r.randrange(50))
        await self.reload(True)

    async def do_reload_broken(self):
        good = self.s.config.read_text()
        self.s.config.write_text(good + self.r.choice(["nonsense: 1\n", "\t- {", "version: 2\n"]))
        await self.reload(False)
        self.s.config.write_text(good)

    async def do_reload_revokes(self):
        """A rule goes under live tunnels and comes back; what it admitted ends with it."""
        self.s.write(revocable=False)
        await self.reload(True)
        await asyncio.sleep(0.2 * self.s.slower)  # each worker takes it up in its own time
        gone = time.monotonic()
        await asyncio.sleep(self.r.uniform(0.3, 0.8) * self.s.slower)
        back = time.monotonic()
        self.s.write(revocable=True)
        await self.reload(True)
        entries = self.s.ledger.entries
        for e in list(entries.values()):
            what = entries[e.parent].tunnel if e.parent in entries else e.kind
            if what in ("rev", "flip") and e.outcome == "ok" and gone < e.begun and e.ended < back:
                self.s.ledger.complain(f"{e.kind} {e.rid} went through while its rule was away: {e.parent}")
            self.revoked += what == "rev" and e.outcome in ("closed", "cut") and gone - 1 < e.ended < back

    async def do_reloads(self):
        """One behind the other."""
        for _ in range(5):
            self.s.stile.signal(signal.SIGHUP)
            await asyncio.sleep(0.02)
        await self.reload(True)

    async def do_rotate(self):
        self.s.logs.aside()
        self.s.stile.signal(self.r.choice([signal.SIGHUP, signal.SIGUSR1]))
        await self.until(self.s.logs.path.exists, "a new log")

    async def do_rotate_untold(self):
        self.s.logs.aside()
        await self.until(self.s.logs.path.exists, "a new log")

    async def do_delete_log(self):
        self.s.logs.delete()
        with self.window(NO_LOG):
            await self.until(self.s.logs.path.exists, "a new log")

    CONFIG = ["reload", "reload_broken", "reload_revokes", "reloads", "rotate", "rotate", "rotate_untold", "delete_log"]

    # as many requests as go through

    async def rushes(self) -> None:
        """The load generator of tests/bench, and its origin, now and then: what clients in Python cannot do."""
        while not self.s.world.stop():
            await asyncio.sleep(self.r.uniform(0.5, 3))
            if self.s.world.stop():
                break
            self.count["rush"] += 1
            begun = time.monotonic()
            said = await self.rush(4000 // self.s.slower, self.r.choice([["--fresh"], []]))
            if said and not self.s.ledger.windows.open_since(begun):
                self.s.ledger.complain(f"rush: {said}")

    async def rush(self, n: int, more: list[str]) -> str:
        """What went wrong."""
        origin = await asyncio.create_subprocess_exec(self.s.bench, "origin", stdout=asyncio.subprocess.PIPE)
        port = (await origin.stdout.readline()).decode().strip()
        load = await asyncio.create_subprocess_exec(
            self.s.bench, "load", "--host", "rush.test", "--path", "/rush", "--proxy", str(self.s.stile.port), "--port", port,
            "--requests", str(n), "--conns", "24", *more, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(20 * self.s.slower):
                said = (await load.stderr.read()).decode("latin-1")
                if await load.wait() == 0:
                    self.rushed += n
                    return ""
                self.rush_failed = True
                return said or "it failed"
        except TimeoutError:
            self.rush_failed = True
            load.kill()
            await load.wait()
            return "hang"
        finally:
            origin.kill()
            await origin.wait()

    # what it lives on

    async def do_disk_full(self):
        folder = self.s.logs.path.parent
        with self.window(NO_LOG):
            with open(folder / "filler", "wb") as f:
                free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
                while free > 0:  # what is free at the time; the log is growing meanwhile
                    try:
                        os.posix_fallocate(f.fileno(), f.tell(), free)
                        f.seek(free, os.SEEK_CUR)
                    except OSError:
                        free //= 2
            await asyncio.sleep(self.r.uniform(0.3, 1.5))
            (folder / "filler").unlink()
            await asyncio.sleep(0.5)  # its retry

    async def crowd(self, n: int) -> list[socket.socket]:
        out = []
        for i in range(n):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", self.s.stile.port))
            out.append(sock)
            if i % 50 == 49:
                await asyncio.sleep(0.01)
        return out

    async def do_descriptors_used_up(self):
        """By a crowd that says nothing."""
        with self.window(None):
            made = await self.crowd(self.s.nofile + 50)
            await asyncio.sleep(self.r.uniform(0.5, 1.5))
            for sock in made:
                sock.close()
            await asyncio.sleep(0.3)

    async def do_descriptors_taken(self):
        """The limit itself falls below what is open."""
        pid = self.s.stile.pid
        with self.window(None):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (10, self.s.nofile))
            await asyncio.sleep(self.r.uniform(0.2, 1))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (self.s.nofile, self.s.nofile))
            await asyncio.sleep(0.3)

    async def do_stopped(self):
        """SIGSTOP: its time goes on."""
        with self.window(None):
            self.s.stile.signal(signal.SIGSTOP)
            await asyncio.sleep(self.r.uniform(0.2, 1.5))
            self.s.stile.signal(signal.SIGCONT)
            await asyncio.sleep(0.1)

    async def do_dns_dead(self):
        with self.window(DNS_FAILS):
            os.kill(self.s.names.pid, signal.SIGSTOP)
            await asyncio.sleep(self.r.uniform(0.5, 2.5))
            os.kill(self.s.names.pid, signal.SIGCONT)
            await asyncio.sleep(1 * self.s.slower)  # who had asked has to ask again

    async def do_clock_jumps(self):
        """Nobody may feel it: time limits are not of the clock on the wall."""
        for _ in range(self.r.randrange(1, 4)):
            hours = self.r.choice([-26, -1, -0.001, 0.001, 1, 26, 24 * 8, -24 * 8])
            self.s.clock[:] = struct.pack("q", int(hours * HOUR_NS))
            await asyncio.sleep(self.r.uniform(0.1, 0.5))
        self.s.clock[:] = struct.pack("q", 0)

    async def do_origin_resets(self):
        with self.window(ORIGIN_FAILS):
            await self.s.tell_origin("reset")

    async def do_origin_stopped(self):
        with self.window(ORIGIN_FAILS | {"connect_timeout"}):
            os.kill(self.s.origin.pid, signal.SIGSTOP)
            await asyncio.sleep(self.r.uniform(0.2, 1))
            os.kill(self.s.origin.pid, signal.SIGCONT)

    async def do_credential_gone(self):
        aside = self.s.secret.with_name("aside")
        with self.window({"credential_unavailable", "closed"}):
            self.s.secret.rename(aside)
            await asyncio.sleep(self.r.uniform(0.6, 1.2))
            aside.rename(self.s.secret)
            await asyncio.sleep(0.6)

    RESOURCES = ["disk_full", "descriptors_used_up", "descriptors_taken", "stopped", "dns_dead", "clock_jumps",
                 "origin_resets", "origin_stopped", "credential_gone"]


class Window:
    def __init__(self, windows, effects):
        self.windows, self.effects = windows, effects

    def __enter__(self):
        self.w = self.windows.open(self.effects)

    def __exit__(self, *_):
        self.windows.close(self.w)
