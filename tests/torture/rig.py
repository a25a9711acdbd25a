"""One origin, one DNS server and a `stile serve` with the shim preloaded; the traffic of a run, and what
must hold after each. A Finding says what did not."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import dns
import stilelib
from faults import LEAKS_FOUND, LEAKS_NONE, Control, Fault
from stilelib import PAIRS, SANITIZER_REPORT, Origin, Raw, Stile, allow, get

HERE = pathlib.Path(__file__).resolve().parent
FAIL = pathlib.Path(os.environ.get("FAIL", stilelib.REPO / "build" / "torture" / "fail.so"))
FAIL_ALLOC = FAIL.with_name("fail_alloc.so")
BOUND = 12 * stilelib.SLOWER ** 0.5  # what a run may wait for one thing; PEEK and CLIENT_TLS of limits.h are 10 s
LIMITS = {"workers": 1, "head": "2s", "idle": "3s", "dns": "1s", "dial": "1s", "tls": "2s", "first_byte": "2s",
          "body_idle": "2s", "tunnel_idle": "2s", "drain": "2s"}
TAG = re.compile(rb"t[0-9]+-[a-z][0-9]?\b")
BULK = 300000
HOSTS = ("origin.test", "other.test", "evil.test", "far.test")  # far.test: through a proxy
stilelib.TIMEOUT = BOUND

import peers  # noqa: E402  (takes that bound for its own)
from parentlib import Parent  # noqa: E402


class Finding(Exception):
    """Something that must hold did not."""


class NobodyHears(Exception):
    """Where accept(2) fails on and on, or epoll takes no new descriptor, a client waits, for longer than a
    test does (LIMIT_MS_FIRST_REQUEST)."""


def is_deaf(fault: Fault | None) -> bool:
    return fault is not None and (fault.function == "epoll_ctl" or fault.function == "accept4" and fault.and_on)


def listens_on(pid: int) -> int | None:
    """The TCP port that a process listens on, as the kernel says (proc_pid_net(5)); None while there is none."""
    with open("/proc/net/tcp") as f:
        ports = {x[9]: int(x[1].split(":")[1], 16) for x in map(str.split, list(f)[1:]) if x[3] == "0A"}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            to = os.readlink(f"/proc/{pid}/fd/{fd}")
        except FileNotFoundError:
            continue
        if to[8:-1] in ports and to.startswith("socket:["):
            return ports[to[8:-1]]
    return None


class Log:
    """All files of one log, rotated or not; what each record is of."""

    def __init__(self, folder: pathlib.Path):
        self.folder, self.at, self.ids, self.all = folder, {}, {}, []

    def read(self) -> list[dict]:
        """All records so far. Every line must be whole."""
        for path in sorted(self.folder.glob("log.jsonl*"), key=lambda p: p.name == "log.jsonl"):
            with open(path, "rb") as f:
                node = os.fstat(f.fileno()).st_ino
                f.seek(self.at.get(node, 0))
                data = f.read()
            end = data.rfind(b"\n") + 1
            self.at[node] = self.at.get(node, 0) + end
            for line in data[:end].splitlines():
                if line:
                    self.take(line)
        return self.all

    def take(self, line: bytes) -> None:
        try:
            r = json.loads(line)
        except ValueError:
            raise Finding(f"a broken line in the log: {line[:200]!r}") from None
        self.all.append(r)
        if "id" not in r:
            return
        events = self.ids.setdefault(r["id"], [])
        events.append(r["event"])
        right = events[0].endswith(".deny") and len(events) == 1 or \
            events in ([events[0]], [events[0], PAIRS.get(events[0])]) and events[0] in PAIRS
        if not right:
            raise Finding(f"the records of one request are {events}")

    def open_ones(self) -> list[str]:
        return [i for i, events in self.ids.items() if len(events) == 1 and events[0] in PAIRS]

    def of(self, tag: str) -> list[str]:
        return [r["event"] for r in self.all if tag in r.get("path", "").split("/")]

    def forget(self) -> None:
        """Only what is still open stays in mind; old files go."""
        self.ids = {i: self.ids[i] for i in self.open_ones()}
        self.all = []
        for path in sorted(self.folder.glob("log.jsonl.*"), key=lambda p: p.stat().st_mtime)[:-5]:
            self.at.pop(path.stat().st_ino, None)
            path.unlink()


class Rig:
    def __init__(self, folder: pathlib.Path):
        self.folder, self.n, self.made, self.broken = folder, 0, 0, False
        self.origin = Origin(folder)
        self.dns = dns.start({"dns.test": {"A": [["127.0.0.1"]], "ttl": 0}}, folder / "questions")
        self.h2_origin = peers.H2Origin(self.origin.pki / "good.pem", self.origin.pki / "good.key")
        self.ws_origin, self.parent = peers.WsOrigin(), Parent()
        self.stile: Stile | None = None
        self.control: Control | None = None
        self.counts: dict[tuple[str, str], int] = {}
        self.fired, self.where = 0, ""
        self.seen: dict[str, int] = {}
        self.baseline: dict[str, int] = {}
        (folder / "secret").write_text("s3cret\n")

    # ---- processes ----

    def make(self, folder: pathlib.Path, fault: Fault | None = None, wait: bool = True) -> Stile:
        folder.mkdir(parents=True, exist_ok=True)
        self.control = Control(folder / "control")
        self.control.arm(fault)
        s = Stile(folder, self.origin, rules=self.rules(), limits=LIMITS, wait=wait, upstream={
            "dns": [f"127.0.0.1:{self.dns}"], "hosts": {h: "127.0.0.1" for h in HOSTS},
            "proxy": {"url": f"http://127.0.0.1:{self.parent.port}",
                      "no_proxy": [*(h for h in HOSTS if h != "far.test"), "dns.test"]}}, credentials={
                "token": {"from": {"file": str(self.folder / "secret")}, "as": "bearer"}},
            env=self.env())
        self.log = Log(folder)
        return s

    def env(self) -> dict[str, str]:
        preload = [p for p in (str(FAIL_ALLOC), os.environ.get("LIBASAN"), str(FAIL)) if p]
        return {"LD_PRELOAD": ":".join(preload), "STILE_FAIL_CONTROL": str(self.control.path),
                "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0",
                "LSAN_OPTIONS": f"suppressions={HERE / 'lsan.supp'}:print_suppressions=0"}

    def rules(self) -> list[dict]:
        return [allow("http://origin.test:*", "http://dns.test:*", "http://far.test:*"),
                allow("https://origin.test:*", credential="token"),
                allow("ws://origin.test:*/t/*", "wss://origin.test:*/t/*"),
                allow("https://other.test:*", tls="passthrough"), allow(f"tcp://evil.test:{self.origin.plain}"),
                {"deny": "http://origin.test:*/no/**"}]

    def standing(self) -> Stile:
        if self.stile is None:
            self.made += 1
            self.stile = self.make(self.folder / f"stile{self.made}")
            self.baseline = {}
            for _ in range(2):
                self.exchange(None)
                self.after(None)
            self.baseline = self.settled_descriptors()
        return self.stile

    def settled_descriptors(self) -> dict[str, int]:
        """Once nothing has closed for longer than a client's last bytes are waited for (2 s)."""
        seen, since = self.descriptors(), time.monotonic()
        while time.monotonic() - since < 2.2:
            time.sleep(0.1)
            now = self.descriptors()
            if now != seen:
                seen, since = now, time.monotonic()
        return seen

    def begin_anew(self) -> None:
        """After a finding: what stands now is of no use."""
        if self.stile:
            self.stile.proc.kill()
            self.stile.proc.wait()
        self.stile = None

    def end(self) -> None:
        if self.stile:
            self.stop_well(self.stile)
        self.stile = None

    def close(self) -> None:
        self.begin_anew()
        self.origin.stop()

    # ---- what a stile must be ----

    def alive(self, s: Stile) -> None:
        if s.proc.poll() is not None:
            s.reader.join(2)
            raise Finding(f"stile ended with {s.proc.returncode}:\n{s.stderr[-3000:]}")
        if SANITIZER_REPORT.search(s.stderr):
            raise Finding(f"a report:\n{s.stderr[-4000:]}")

    def wait(self, what, why: str, seconds: float = BOUND):
        end = time.monotonic() + seconds
        while not (got := what()):
            if time.monotonic() > end:
                s = self.current
                state = "" if s is None or s.proc.poll() is None else f" (stile ended with {s.proc.returncode}: {s.stderr[-500:]})"
                raise Finding(f"within {seconds:.0f} s did not happen: {why}{state}")
            time.sleep(0.003)
        return got

    def descriptors(self) -> dict[str, int]:
        """By what they are. Pipes are kept for the next tunnel, so there may be some."""
        out: dict[str, int] = {}
        base = f"/proc/{self.stile.pid}/fd"
        for fd in os.listdir(base):
            try:
                kind = os.readlink(f"{base}/{fd}").split(":[")[0]
            except OSError:
                continue
            if not kind.startswith("pipe"):
                kind = re.sub(r".*/log\.jsonl.*", "log", kind)
                out[kind] = out.get(kind, 0) + 1
        return out

    def stop_well(self, s: Stile, lossy: bool = False) -> None:
        try:
            code = s.stop(BOUND * 2)
        except AssertionError as e:
            raise Finding(str(e)) from None
        if code != 0 or SANITIZER_REPORT.search(s.stderr):
            raise Finding(f"exit {code}:\n{s.stderr[-4000:]}")
        self.log.read()
        if self.log.open_ones() and not (lossy and "are lost" in s.stderr):
            raise Finding(f"no record of the end of {self.log.open_ones()}:\n{s.stderr[-2000:]}")

    # ---- the traffic ----

    def part(self, fault: Fault | None, do) -> None:
        """Under a fault a part may fail, but not hang."""
        try:
            do()
        except TimeoutError:
            if is_deaf(fault):
                raise NobodyHears from None
            raise Finding(f"{do.__name__}: no answer and no close within {BOUND:.0f} s") from None
        except (AssertionError, OSError, ValueError, IndexError) as e:
            if not fault:
                raise Finding(f"{do.__name__}: {e!r}\n{self.current.stderr[-2000:]}") from None

    def ask(self, c: Raw, part: str, request: bytes, status: int = 200) -> None:
        r = c.ask(request.replace(b"TAG", f"t{self.n}-{part}".encode()))
        self.answered[f"t{self.n}-{part}"] = (r.status, self.address)
        if r.status != status:
            raise AssertionError(r)

    def client(self) -> Raw:
        c = self.current.client()
        self.address = "127.0.0.1:%d" % c.sock.getsockname()[1]
        return c

    def forward(self) -> None:
        host = f"origin.test:{self.origin.plain}"
        with self.client() as c:
            self.ask(c, "a1", get(f"http://{host}/ok/TAG"))
            self.ask(c, "a2", get(f"http://{host}/bytes/{BULK}/TAG"))
            self.ask(c, "a3", get(f"http://{host}/upload/TAG", method="POST", more="Content-Length: 100000\r\n")
                     + b"u" * 100000)

    def denial(self) -> None:
        with self.client() as c:
            self.ask(c, "b", get(f"http://origin.test:{self.origin.plain}/no/TAG"), 403)

    def named(self) -> None:
        with self.client() as c:
            self.ask(c, "e", get(f"http://dns.test:{self.origin.plain}/ok/TAG"))

    def tls(self, host: str, ca: pathlib.Path, port: int = 0) -> Raw:
        c = self.client()
        r = c.connect(f"{host}:{port or self.origin.tls}")
        if r.status != 200:
            c.close()
            raise AssertionError(r)
        return c.start_tls(stilelib.client_context(ca), host)

    def inspected(self) -> None:
        host = f"origin.test:{self.origin.tls}"
        with self.tls("origin.test", self.current.ca) as c:
            for part in ("c1", "c2"):
                self.ask(c, part, f"GET /bytes/50000/TAG HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    def passed(self) -> None:
        with self.tls("other.test", self.origin.pki / "ca.pem") as c:
            r = c.ask(b"GET /bytes/%d HTTP/1.1\r\nHost: other.test\r\n\r\n" % BULK)
            if r.status != 200 or not r.whole:
                raise AssertionError(r)

    def relayed(self) -> None:
        """A tcp tunnel: spliced, and the origin sees a tag that only the tunnel's record speaks for."""
        with self.client() as c:
            self.tunnels[f"t{self.n}-d"] = self.address
            r = c.connect(f"evil.test:{self.origin.plain}")
            if r.status != 200:
                raise AssertionError(r)
            c.send(f"POST /echo/t{self.n}-d HTTP/1.1\r\nHost: x\r\nContent-Length: {BULK}\r\n\r\n".encode()
                   + b"e" * BULK)
            r = c.response()
            if r.status != 200 or len(r.body) < BULK:
                raise AssertionError(r)

    def multiplexed(self, port: int, part: str) -> None:
        """HTTP/2 with streams side by side: bulk, an upload, and one that its client gives up."""
        paths = {"1": f"/bytes/50000/t{self.n}-{part}1", "2": f"/echo/t{self.n}-{part}2"}
        try:
            c = peers.H2Client(self.current, port, stilelib.TIMEOUT)
        except AttributeError as e:  # ALPN without HTTP/2
            raise AssertionError(repr(e)) from None
        with c:
            address = "127.0.0.1:%d" % c.sock.getsockname()[1]
            down = c.ask(path=paths["1"])
            given_up = c.ask(path=f"/bytes/{BULK}/t{self.n}-{part}3")
            up = c.ask("POST", paths["2"], body=b"u" * 30000)
            if not c.answers[given_up].done:
                c.h2.reset_stream(given_up, 8)
                c.flush()
            for path, a in zip(paths.values(), c.whole(down, up)):
                if a.status and a.reset is None:
                    self.answered[path.rsplit("/", 1)[1]] = (a.status, address)
                if a.status != 200 or not a.done or a.reset is not None:
                    raise AssertionError((a, c.goaway))

    def h2_to_h1(self) -> None:
        self.multiplexed(self.origin.tls, "g")

    def h2_to_h2(self) -> None:
        self.multiplexed(self.h2_origin.port, "h")

    def h1_to_h2(self) -> None:
        host = f"origin.test:{self.h2_origin.port}"
        with self.tls("origin.test", self.current.ca, self.h2_origin.port) as c:
            self.ask(c, "i", f"GET /bytes/50000/TAG HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    def websocket(self) -> None:
        host = f"origin.test:{self.ws_origin.port}"
        with self.client() as c:
            peers.websocket(c, host, f"http://{host}/t/t{self.n}-j", 20000)

    def through_parent(self) -> None:
        with self.client() as c:
            self.ask(c, "k", get(f"http://far.test:{self.origin.plain}/ok/TAG"))

    def rotation(self) -> None:
        path = self.current.log_path
        if path.exists():
            path.rename(path.with_suffix(f".jsonl.{self.n}"))
        self.current.signal(signal.SIGUSR1)

    def reload(self) -> None:
        before = len(self.log.read())
        self.current.signal(signal.SIGHUP)
        self.wait(lambda: [r for r in self.log.read()[before:] if r["event"] in ("policy.load", "policy.reject")],
                  "a record of the reload")

    def exchange(self, fault: Fault | None) -> None:
        self.n += 1
        self.current = self.stile
        self.answered: dict[str, tuple[int, str]] = {}
        self.tunnels: dict[str, str] = {}
        stilelib.TIMEOUT = 1 if is_deaf(fault) else BOUND
        try:
            for do in (self.forward, self.denial, self.named, self.inspected, self.relayed, self.passed,
                       self.h2_to_h1, self.h2_to_h2, self.h1_to_h2, self.websocket, self.through_parent,
                       self.rotation, self.forward_again):
                self.alive(self.stile)
                self.part(fault, do)
        except NobodyHears:
            pass
        stilelib.TIMEOUT = BOUND
        self.nothing_unlogged()
        self.part(fault, self.signal_reload)

    def forward_again(self) -> None:
        with self.client() as c:
            self.ask(c, "f", get(f"http://origin.test:{self.origin.plain}/ok/TAG"))

    def signal_reload(self) -> None:
        self.current.signal(signal.SIGHUP)

    # ---- what must hold ----

    def origin_tags(self) -> set[str]:
        """The tags in what the origin has received since the last time."""
        out: set[str] = set()
        for e in os.scandir(self.origin.record):
            at, size = self.seen.get(e.name, 0), e.stat().st_size
            if size > at:
                with open(e.path, "rb") as f:
                    f.seek(max(0, at - 32))
                    out.update(t.decode() for t in TAG.findall(f.read()))
                self.seen[e.name] = size
            elif self.n % 20 == 0 and time.time() - e.stat().st_mtime > 60:
                os.unlink(e.path)
        for heads in (self.h2_origin.heads, self.ws_origin.heads):
            while heads:
                out.update(t.decode() for t in TAG.findall(heads.pop()))
        return out

    def nothing_unlogged(self) -> None:
        """First what the origin has, then the log: the record was there before the byte."""
        tags = self.origin_tags()
        records = self.log.read()
        for tag in tags:
            if not tag.startswith(f"t{self.n}-"):
                continue
            if tag in self.tunnels:
                client = self.tunnels[tag]
                ok = any(r["event"] == "tunnel.start" and r["client"] == client for r in records)
            else:
                ok = "request.start" in self.log.of(tag)
            if not ok:
                raise Finding(f"{tag} reached the origin without a record:\n"
                              + "\n".join(map(json.dumps, records[-20:])))

    def whole_records(self, fault: Fault | None) -> None:
        self.wait(lambda: self.log.read() is not None and not self.log.open_ones(),
                  "each start has its end")
        for tag, (status, client) in self.answered.items():
            events = self.log.of(tag)
            if events in (["request.start", "request.end"], ["request.deny"]):
                continue
            turned_away = any(r["event"].endswith(".deny") and r.get("client") == client for r in self.log.all)
            if events or not (fault and status >= 400 and turned_away):
                raise Finding(f"{tag} was answered {status} and has the records {events}:\n"
                              + "\n".join(json.dumps(r) for r in self.log.all if r.get("client") == client))

    def healthy(self) -> None:
        """Nothing fails now: a rotation, a reload and a request must go well, whatever was before."""
        s = self.current
        self.alive(s)
        self.wait(s.log_path.exists, "the log is a file again")
        before = len(self.log.read())
        s.signal(signal.SIGHUP)
        self.wait(lambda: any(r["event"] == "policy.load" for r in self.log.read()[before:]), "a reload")
        self.part(None, self.last)

    def last(self) -> None:
        end = time.monotonic() + BOUND
        while True:
            try:
                with self.client() as c:
                    self.ask(c, "z", get(f"http://origin.test:{self.origin.plain}/ok/TAG"))
                return
            except AssertionError:
                # the log's retry (200 ms), the pause of accepting (100 ms)
                if time.monotonic() > end:
                    raise
                self.n += 1
                time.sleep(0.05)

    def after(self, fault: Fault | None) -> None:
        self.control.disarm()
        self.healthy()
        self.stile.signal(signal.SIGHUP)  # closes what is kept for the next request
        self.whole_records(fault)
        self.alive(self.stile)
        if self.baseline and os.environ.get("LIBASAN"):
            self.nothing_leaked()
        if self.baseline:
            try:
                self.wait(lambda: self.descriptors() == self.baseline, "the descriptors are what they were",
                          35 if is_deaf(fault) else BOUND)
            except Finding as e:
                raise Finding(f"{e}: {self.descriptors()}, not {self.baseline}") from None
        self.log.forget()

    def nothing_leaked(self) -> None:
        self.control.ask_for_leaks(self.stile.pid)

        def looked() -> bool:
            self.stile.signal(signal.SIGHUP)
            return self.control.leaks in (LEAKS_NONE, LEAKS_FOUND)
        while not looked():
            time.sleep(0.02)
            self.alive(self.stile)
        if self.control.leaks == LEAKS_FOUND:
            time.sleep(0.2)
            raise Finding(f"memory was left behind:\n{self.stile.stderr[-6000:]}")

    # ---- one case each ----

    def note(self) -> None:
        self.fired, self.where = self.control.fired, self.control.where
        self.counts, self.stacks = self.control.counts(), self.control.stacks()

    def traffic_once(self, fault: Fault | None) -> None:
        try:
            self.traffic_under(fault)
        except Finding:
            # Without its keeper it has neither certificates nor credentials, and ends.
            if not fault or not self.ended_without_keeper():
                raise
            self.begin_anew()

    def ended_without_keeper(self) -> bool:
        s = self.current
        end = time.monotonic() + 3
        while s.proc.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        s.reader.join(2)
        return s.proc.poll() == 1 and "without its keeper" in s.stderr and not SANITIZER_REPORT.search(s.stderr)

    def traffic_under(self, fault: Fault | None) -> None:
        self.standing()
        self.control.arm(fault)
        try:
            self.exchange(fault)
            if not fault:
                self.reload()
        finally:
            self.note()
        self.after(fault)

    def start_once(self, fault: Fault | None) -> None:
        """The first start in an empty folder; then, without a fault, another one in what that left."""
        self.made += 1
        self.fault = fault
        folder = self.folder / f"start{self.made}"
        for f in (fault, None):
            s = self.make(folder, f, wait=False)
            self.current = s
            try:
                self.one_start(s, f)
            finally:
                if s.proc.poll() is None:
                    s.proc.kill()
                    s.proc.wait()
            if not fault:
                break

    def one_start(self, s: Stile, fault: Fault | None) -> None:
        def began():
            if s.proc.poll() is not None:
                return True
            found = re.search(r"listening on .*:(\d+) ", s.stderr)
            # Where memory is out, the port is lost, or the line.
            if not found and fault and ("listening on" in s.stderr or time.monotonic() > patient):
                return listens_on(s.pid)
            return found and int(found[1])
        patient = time.monotonic() + 15  # an answer of the keeper that is lost is waited for (LIMIT_MS_KEEPER_ANSWER)
        port = self.wait(began, "the start", BOUND * 2)
        self.control.disarm()
        if fault or not self.fault:
            self.note()
        if s.proc.poll() is not None:
            s.reader.join(2)
            if not fault or s.proc.returncode not in (1, 2) or "stile: " not in s.stderr \
                    or SANITIZER_REPORT.search(s.stderr):
                raise Finding(f"ended with {s.proc.returncode}:\n{s.stderr[-3000:]}")
            return
        s.port = port
        self.answered, self.tunnels = {}, {}
        self.n += 1
        try:
            self.part(None, self.last)
            self.part(fault, self.inspected)  # a credential that could not be read is tried again later
            self.stop_well(s)
        except (Finding, AssertionError, OSError):
            if not fault or not self.ended_without_keeper():  # it takes the key for leaves while the proxy goes on
                raise

    def command_once(self, args: list[str], fault: Fault | None) -> None:
        """One run of a command: it says what it says without a fault, or that it could not."""
        folder = self.folder / "command"
        folder.mkdir(exist_ok=True)
        if self.control is None or self.control.path.parent != folder:
            self.control = Control(folder / "control")
        self.control.arm(fault)
        r = subprocess.run([str(stilelib.BIN), *args], cwd=folder, env=stilelib.clean_env(**self.env()), timeout=60,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.note()
        said, told = (r.returncode, r.stdout), r.stderr.decode("utf-8", "replace")
        if not fault:
            self.expected = said
        elif SANITIZER_REPORT.search(told) or said != self.expected and \
                (r.returncode not in (1, 2) or not r.stdout and "stile" not in told):
            raise Finding(f"`{' '.join(args)}` ended with {r.returncode}:\n{told[-4000:]}\n{r.stdout[-500:]!r}")

    def stop_once(self, fault: Fault | None) -> None:
        """SIGTERM with a request, a tunnel and an idle client."""
        self.made += 1
        folder = self.folder / f"stop{self.made % 4}"
        (folder / "log.jsonl").unlink(missing_ok=True)
        s = self.current = self.make(folder)
        self.answered, self.tunnels = {}, {}
        self.n += 1
        host = f"origin.test:{self.origin.plain}"
        try:
            with s.client() as idle, s.client() as busy, s.client() as tunnel:
                idle.ask(get(f"http://{host}/ok/x"))
                assert tunnel.connect(f"evil.test:{self.origin.plain}").status == 200
                tunnel.send(b"GET /ok/y HTTP/1.1\r\nHost: x\r\n\r\n")
                tunnel.response()
                busy.send(get(f"http://{host}/slow?ms=60"))
                self.wait(lambda: any(r.get("path") == "/slow" for r in self.log.read()), "a slow request")
                self.control.arm(fault)
                s.signal(signal.SIGTERM)
                self.stop_well(s, lossy=fault is not None and fault.function == "writev")
        finally:
            self.note()
            if s.proc.poll() is None:
                s.proc.kill()
                s.proc.wait()


