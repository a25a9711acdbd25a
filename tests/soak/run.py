#!/usr/bin/python3
"""The soak: a real `stile serve` under mixed traffic and faults for some minutes; see README.md.

    run.py [--minutes N] [--seed N] [--prove memory|descriptor|term|log]

Works in network and mount namespaces of its own, which it makes itself. Prints a table and a verdict;
exit 1 when anything is off."""

import argparse
import asyncio
import collections
import json
import mmap
import os
import pathlib
import random
import re
import resource
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration"), str(HERE.parent / "origin")]
import pki  # noqa: E402
import stilelib  # noqa: E402
from faults import Faults, Logs  # noqa: E402
from join import Joined  # noqa: E402
from ledger import Ledger  # noqa: E402
from streams import crowd  # noqa: E402
from traffic import World  # noqa: E402
from watch import Process, grows  # noqa: E402

INSIDE = "SOAK_INSIDE"
ROUND_S = 12        # of traffic; then everything must come to rest
NOFILE = 600        # of stile, so that a crowd can use them up
DISK = "192m"       # of the log
DRAIN_S = 2
MEMORY_KIB = 4096   # that may be gained after the warm-up, or a tenth if that is more
PIPES = 2 * 64 * 2  # ends of pipes kept: two workers, FREE_MAX pairs each
# What must be said when something is broken on purpose.
PROOF = {"memory": r"^memory .* grows", "descriptor": r"^descriptors did not come back", "term": r"^SIGTERM: it has not",
         "log": r"^no end of|without its start"}
HOSTS = ("fwd.test", "insp.test", "cred.test", "race.test", "flip.test", "other.test", "rush.test")


def enter_namespaces() -> None:
    """Starts this program again where its network is loopback alone and its mounts are its own."""
    user = [] if os.geteuid() == 0 else ["-r"]
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", *user, "-n", "-m", "--", sys.executable, *sys.argv])


def prepare_network() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for name, value in (("ip_local_port_range", "2000 65000"), ("tcp_tw_reuse", "1")):
        try:
            pathlib.Path(f"/proc/sys/net/ipv4/{name}").write_text(value)
        except OSError:
            pass


class Soak:
    def __init__(self, folder: pathlib.Path, args):
        self.folder, self.rng, self.prove = folder, random.Random(args.seed), args.prove
        self.keep = args.keep
        self.slower = stilelib.SLOWER
        self.sanitized = stilelib.SANITIZED
        self.nofile = NOFILE
        self.ledger = Ledger(1.0 * self.slower)
        self.ids: set[int] = set()
        self.totals = collections.Counter()
        self.errors = collections.Counter()
        self.rss: list[int] = []  # of each round: at rest, and the most under load
        self.peaks: list[int] = []
        self.fds: list[collections.Counter] = []
        self.settings = {"revocable": True, "filler": 0}

    # the parts

    def start(self) -> None:
        (self.folder / "pki").mkdir()
        names = list(HOSTS) + ["*.pass.soak.test"]
        root = pki.make("soak root", ca=True, begins=-60, days=120)
        pki.write(self.folder / "pki", "good", pki.make("soak origin", root, names=names, begins=-60, days=120))
        (self.folder / "pki" / "ca.pem").write_bytes(pki.pem(root))
        self.secret = self.folder / "secret"
        self.secret_text = "soak-" + secrets.token_hex(12)
        self.secret.write_text(self.secret_text)
        self.secret.chmod(0o600)
        (self.folder / "clock").write_bytes(bytes(8))
        with open(self.folder / "clock", "r+b") as f:
            self.clock = mmap.mmap(f.fileno(), 8)
        self.names = self.child("names.py", "--log", "/dev/null")
        dns = json.loads(self.names.stdout.readline())["port"]
        # An own copy of the secret: the file is taken away at times.
        (self.folder / "secret.origin").write_text(self.secret_text)
        self.origin = self.child("origin.py", "--pki", str(self.folder / "pki"), "--book", str(self.folder / "book"),
                                 "--secret", str(self.folder / "secret.origin"))
        self.ports = json.loads(self.origin.stdout.readline())
        self.book = open(self.folder / "book")
        disk = self.folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)], check=True)
        self.logs = Logs(disk / "log.jsonl")
        self.compile_bench()
        self.start_stile(dns)

    def child(self, name: str, *args: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, str(HERE / name), *args], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=open(self.folder / f"{name}.stderr", "w"), text=True)

    def compile_bench(self) -> None:
        self.bench = str(self.folder / "bench")
        subprocess.run(["cc", "-O2", "-std=c17", "-D_GNU_SOURCE", f"-I{HERE.parents[1]}", "-o", self.bench,
                        str(HERE.parent / "bench" / "bench.c"), "-lssl", "-lcrypto"], check=True)

    def start_stile(self, dns: int) -> None:
        shim = self.folder / "shim.so"
        subprocess.run(["cc", "-std=c17", "-O2", "-shared", "-fPIC", "-o", str(shim), str(HERE / "shim.c")], check=True)
        preload = [str(shim)]
        for word in ("asan", "tsan"):
            if word in str(stilelib.BIN):  # the sanitizer wants to be the first
                found = subprocess.run(["cc", f"-print-file-name=lib{word}.so"], capture_output=True, text=True)
                preload.insert(0, found.stdout.strip())
        env = {"LD_PRELOAD": ":".join(preload), "SOAK_CLOCK": str(self.folder / "clock")}
        if self.prove:
            env["SOAK_PROVE"] = self.prove
        k = self.slower
        self.stile = stilelib.Stile(
            self.folder / "stile", None, rules=self.rules(), env=env,
            credentials={"token": {"from": {"file": str(self.secret)}, "as": "bearer"}},
            upstream={"hosts": {n: "127.0.0.1" for n in HOSTS}, "dns": [f"127.0.0.1:{dns}"],
                      "trust": [str(self.folder / "pki" / "ca.pem")]},
            log={"to": str(self.logs.path)},
            limits={"workers": 2, "head": f"{2 * k}s", "idle": f"{4 * k}s", "dns": f"{k}s", "dial": f"{2 * k}s",
                    "tls": f"{3 * k}s", "first_byte": f"{3 * k}s", "body_idle": f"{3 * k}s",
                    "tunnel_idle": f"{4 * k}s", "drain": f"{DRAIN_S * k}s"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (NOFILE, NOFILE)))
        self.config = self.stile.config
        self.process = Process(self.stile.pid)

    def rules(self) -> list[dict]:
        allow = stilelib.allow
        rules = [allow("http://fwd.test:*", name="forward"), allow("ws://fwd.test:*"), allow("https://insp.test:*"),
                 allow("https://cred.test:*", credential="token"), allow("http://race.test:*"),
                 allow("http://rush.test:*")]
        if self.settings["revocable"]:
            rules += [allow("tcp://*.rev.soak.test:*"), allow("http://flip.test:*")]
        rules += [allow("tcp://*.tcp.soak.test:*"), allow("*.pass.soak.test:*", tls="passthrough")]
        rules += [allow(f"http://*.{m}.soak.test:*") for m in stilelib_modes()]
        rules += [{"deny": ["http://fwd.test:*/no/**", "https://insp.test:*/no/**"]}]
        rules += [allow(f"filler{i}.test") for i in range(self.settings["filler"])]
        return rules

    def write(self, **changes) -> None:
        self.settings.update(changes)
        self.stile.write(rules=self.rules())

    def said(self, text: str) -> int:
        return sum(text in x for x in self.stile.lines)

    async def tell_origin(self, word: str) -> None:
        self.origin.stdin.write(word + "\n")
        self.origin.stdin.flush()
        got = await asyncio.to_thread(self.origin.stdout.readline)
        assert got.strip() == word, f"the origin said {got!r} to {word}"

    # a round

    async def traffic(self, seconds: float) -> None:
        """Clients and faults, until the time is over and all of them have ended."""
        self.world.stopping = asyncio.Event()
        faults = [asyncio.create_task(lane()) for lane in self.faults.lanes]
        clients = [asyncio.create_task(c.run()) for c in crowd(self.world)]
        await asyncio.sleep(seconds)
        self.world.stopping.set()
        self.check_tasks(await self.ended(faults, 30 * self.slower, "faults"))
        self.check_tasks(await self.ended(clients, 40 * self.slower, "clients"))

    async def ended(self, tasks: list, seconds: float, who: str) -> list:
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for t in late:
            self.ledger.complain(f"{who}: hang: {t.get_stack(limit=1)}")
            t.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    def check_tasks(self, results: list) -> None:
        for r in results:
            if isinstance(r, BaseException) and not isinstance(r, asyncio.CancelledError):
                self.ledger.complain(f"the soak itself: {r!r}")
                raise r

    async def rest(self) -> None:
        """No load: the sockets go, the records balance, the processor is idle."""
        await self.tell_origin("end")
        end = time.monotonic() + 15 * self.slower
        while True:
            fds = self.process.descriptors()
            if fds["socket"] <= self.base["socket"]:
                break
            if time.monotonic() > end:
                self.ledger.complain(f"descriptors did not come back: {dict(fds)}, at the start {dict(self.base)}")
                break
            await asyncio.sleep(0.1)
        joined = Joined(self.ledger, self.ids)
        for _ in range(3):
            self.logs.aside()
            self.stile.signal(signal.SIGUSR1)
            await self.faults.until(self.logs.path.exists, "a new log")
            await asyncio.sleep(0.1 * self.slower)
            self.take_logs(joined)
            if joined.balance():
                break
            await asyncio.sleep(1 * self.slower)
        self.join(joined)
        # What a rush was answered has its end in the log, once; of one that broke off there may be more.
        rushed, failed, self.faults.rushed, self.faults.rush_failed = self.faults.rushed, self.faults.rush_failed, 0, False
        # (The generator may have a request more than asked for on each of its connections.)
        if joined.rushed < rushed or (joined.rushed > rushed * 1.02 and not failed):
            self.ledger.complain(f"rush: {rushed} answers, {joined.rushed} in the log")
        self.totals["rushed"] += joined.rushed
        self.peaks.append(self.process.peak_kib())
        cpu = self.process.cpu_s()
        await asyncio.sleep(0.5)
        cpu = self.process.cpu_s() - cpu
        if cpu > 0.15:
            self.ledger.complain(f"idle, it used {cpu:.2f} s of processor time in half a second")
        self.rss.append(self.process.rss_kib())
        self.fds.append(self.process.descriptors())

    def take_logs(self, joined: Joined) -> None:
        for name, data, deleted in self.logs.read():
            if self.keep:
                (self.folder / f"kept.{name}").write_bytes(data)
            if self.secret_text.encode() in data:
                self.ledger.complain(f"the secret is in {name}")
            if deleted:
                data = data[:data.rfind(b"\n") + 1]  # a line cut there is whole in the next file
            if self.prove == "log" and len(data) > 100000:
                half = data.index(b"\n", len(data) // 2) + 1
                data = data[:half] + data[data.index(b"\n", half) + 1:]
            joined.read_log(name, data)

    def join(self, joined: Joined) -> None:
        joined.read_book(self.book.read())
        joined.check()
        joined.check_tunnels()
        self.totals["records"] += joined.records
        self.totals["joined"] += joined.joined
        self.totals["loads"] += joined.events["policy.load"]
        self.errors.update(joined.errors)
        self.ledger.entries.clear()
        self.ledger.windows.forget()

    async def run(self, minutes: float) -> None:
        begun, end = time.monotonic(), time.monotonic() + minutes * 60
        self.world = World(self.ledger, self.ports, self.stile.port, self.slower, self.rng, self.secret_text)
        self.world.inspected = ssl.create_default_context(cafile=str(self.stile.ca))
        no_check_time = 0x200000  # X509_V_FLAG_NO_CHECK_TIME: stile's clock jumps, ours does not
        self.world.inspected.verify_flags = int(self.world.inspected.verify_flags) | no_check_time
        assert int(self.world.inspected.verify_flags) & no_check_time
        self.world.inspected_h2 = ssl.create_default_context(cafile=str(self.stile.ca))
        self.world.inspected_h2.verify_flags = self.world.inspected.verify_flags
        self.world.inspected_h2.set_alpn_protocols(["h2"])
        self.world.direct = ssl.create_default_context(cafile=str(self.folder / "pki" / "ca.pem"))
        self.faults = Faults(self)
        self.base = self.process.descriptors()
        number = 0
        while time.monotonic() < end - 4:
            number += 1
            # Shorter at first, and in a short soak: memory is judged by the round.
            seconds = min(ROUND_S, max(3.0, minutes * 5), max(1.0, end - time.monotonic() - 3))
            await self.traffic(seconds)
            await self.rest()
            print(f"soak: {time.monotonic() - begun:5.0f} s, round {number}: {self.ledger.number} exchanges, "
                  f"{self.totals['records']} records, {self.rss[-1] // 1024} MiB, {sum(self.fds[-1].values())} "
                  f"descriptors, {self.ledger.complained} wrong", flush=True)
        await self.last_round()

    async def last_round(self) -> None:
        """The end comes while everybody is at work."""
        self.world.stopping = asyncio.Event()
        clients = [asyncio.create_task(c.run()) for c in crowd(self.world)]
        await asyncio.sleep(2)
        self.ledger.windows.open(None)
        self.stile.signal(signal.SIGTERM)
        begun = time.monotonic()
        # The drain, what a record may wait for, and what threads need to end.
        bound = (DRAIN_S + 6) * self.slower
        while self.stile.proc.poll() is None and time.monotonic() - begun < bound:
            await asyncio.sleep(0.02)
        self.world.stopping.set()
        if self.stile.proc.poll() is None:
            self.ledger.complain(f"SIGTERM: it has not ended after {bound} s")
            self.stile.proc.kill()
        self.totals["end_ms"] = int(1000 * (time.monotonic() - begun))
        self.check_tasks(await self.ended(clients, 40 * self.slower, "clients"))
        if code := self.stile.proc.wait():
            self.ledger.complain(f"exit code {code}")
        await self.tell_origin("end")
        joined = Joined(self.ledger, self.ids)
        self.logs.aside()
        self.take_logs(joined)
        if joined.events["proxy.stop"] != 1:
            self.ledger.complain("no proxy.stop at the end of the log")
        self.join(joined)

    # the verdict

    def judge(self) -> None:
        self.stile.reader.join(10)
        if stilelib.SANITIZER_REPORT.search(self.stile.stderr):
            self.ledger.complain("a sanitizer reports:\n" + self.stile.stderr[-20000:])
        if self.secret_text in self.stile.stderr:
            self.ledger.complain("the secret is on stderr")
        said = [x for x in (self.folder / "origin.py.stderr").read_text().splitlines()
                if x != "socket.send() raised exception."]  # asyncio, of a connection that is gone
        if said:
            self.ledger.complain("the origin: " + "\n".join(said[:40]))
        if not self.faults.revoked and self.faults.count["reload_revokes"] > 3:
            self.ledger.complain("no tunnel was there when its rule went")
        if self.rss:
            allowed = max(MEMORY_KIB, self.rss[len(self.rss) // 3] // 10) * (4 if self.sanitized else 1)
            # What is lost is missing under load, too. What only rests higher is the allocator's, which cannot give back
            # what lies below a block in use.
            if (said := grows(self.rss, allowed)) and grows(self.peaks, allowed):
                self.ledger.complain(f"memory (KiB) {said}: {self.rss}; under load {self.peaks}")
            # Free pipes are kept for the next tunnel (proxy/net/pipes.c), as many as were in use at once.
            if said := grows([sum(f.values()) - f["pipe"] for f in self.fds], 6):
                self.ledger.complain(f"descriptors: {said}")
            if (most := max(f["pipe"] for f in self.fds) - self.base["pipe"]) > PIPES:
                self.ledger.complain(f"{most} ends of pipes are kept, at most {PIPES} may be")

    def table(self) -> None:
        def kinds(c: collections.Counter) -> str:
            return "".join(f"    {name:32} {n:9}\n" for name, n in sorted(c.items()))
        print(f"\nexchanges by kind\n{kinds(self.ledger.kinds)}outcomes\n{kinds(self.ledger.outcomes)}"
              f"faults of the whole\n{kinds(self.faults.count)}errors in the log\n{kinds(self.errors)}", end="")
        if self.rss:
            print(f"rss KiB          first {self.rss[0]}, last {self.rss[-1]}, most {max(self.rss)}")
            print(f"descriptors      start {sum(self.base.values())}, first {sum(self.fds[0].values())}, "
                  f"last {sum(self.fds[-1].values())}")
            print(f"under load       at most {max(self.peaks)} KiB")
            print(f"rushed           {self.totals['rushed']} requests")
        print(f"revoked          {self.faults.revoked} exchanges in tunnels whose rule went")
        print(f"records joined   {self.totals['joined']} exchanges, {self.totals['records']} records, "
              f"{self.totals['loads']} policies")
        print(f"ended            {self.totals['end_ms']} ms after SIGTERM")
        for text in self.ledger.complaints[:20]:
            print(f"WRONG: {text[:2000]}")
        print(f"verdict          {'right' if not self.ledger.complained else f'WRONG ({self.ledger.complained})'}",
              flush=True)

    def stop(self) -> None:
        for p in (getattr(self, "stile", None) and self.stile.proc, getattr(self, "origin", None),
                  getattr(self, "names", None)):
            if p and p.poll() is None:
                p.kill()
                p.wait()


def stilelib_modes() -> list[str]:
    from names import MODES
    return [m for m in MODES if m not in ("tcp", "pass", "rev")]


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--prove", choices=list(PROOF), default="")
    p.add_argument("--keep", action="store_true", help="leave the folder behind")
    args = p.parse_args()
    if os.environ.get(INSIDE) != "1":
        if args.seed is None:
            sys.argv += ["--seed", str(secrets.randbelow(1 << 32))]
        enter_namespaces()
    prepare_network()
    print(f"soak: seed {args.seed}, {args.minutes} min, {stilelib.BIN}", flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(20000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    threading.stack_size(256 * 1024)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stile-soak-"))
    soak = Soak(folder, args)
    try:
        soak.start()
        asyncio.run(soak.run(args.minutes))
        soak.judge()
        soak.table()
        if args.prove:
            found = any(re.search(PROOF[args.prove], x) for x in soak.ledger.complaints)
            print(f"soak: {args.prove} was {'found' if found else 'NOT FOUND'}", flush=True)
            return 0 if found else 1
        return 1 if soak.ledger.complained else 0
    finally:
        soak.stop()
        if args.keep:
            print(f"soak: {folder}", flush=True)
            (folder / "faults").write_text("\n".join(soak.faults.told) + "\n")
            (folder / "stile.stderr").write_text(soak.stile.stderr)
        else:
            subprocess.run(["umount", str(folder / "disk")], check=False)
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
