"""What the tests of `stile serve` share: starting it, raw clients, scripted origins, the log.

Nothing here sleeps for a fixed time: `wait_for` polls for what must become true."""

import errno
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STILE", REPO / "build" / "stile")).resolve()
ORIGIN = REPO / "tests" / "origin"
PYTHON = sys.executable
sys.path.insert(0, str(ORIGIN))
import sealed  # noqa: E402

# Sanitizers cost a factor; limits on time are stretched by it.
SANITIZED = any(w in str(BIN) for w in ("asan", "tsan"))
SLOWER = 4 if SANITIZED else 1
TIMEOUT = 20 * SLOWER
LOOPBACK = ["127.0.0.0/8", "::1/128"]
SANITIZER_REPORT = re.compile(r"(Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:")
PAIRS = {"request.start": "request.end", "tunnel.start": "tunnel.end"}
KEYS = ["time", "event", "id", "sandbox", "client", "listener", "method", "scheme", "host", "port", "path",
        "query", "http", "decision", "reason", "rule", "rule_at", "policy", "policy_version", "credential",
        "credential_stripped", "upstream", "via", "status", "bytes_out", "bytes_in", "redacted", "ms", "tls", "error",
        "error_detail"]


def wait_for(what, seconds: float = TIMEOUT, why: str = ""):
    """Polls until what() is true and returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.005)
    raise AssertionError(f"did not happen within {seconds} s: {why}")


def clean_env(**more: str) -> dict[str, str]:
    """An environment in which nothing of the machine's own can change a test."""
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
        if name in os.environ:
            env[name] = os.environ[name]
    return {**env, **more}


def allow(*targets: str, **more) -> dict:
    """A rule that admits loopback addresses, where the test origin lives."""
    return {"allow": list(targets), "addresses": LOOPBACK, **more}


def default_rules() -> list[dict]:
    return [allow("http://origin.test:*", "https://origin.test:*"),
            {"deny": ["http://origin.test:*/no/**", "https://origin.test:*/no/**"]}]


def put(path: pathlib.Path | str, data: str | bytes) -> str:
    """A file with a secret: written in place, for its owner alone."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(data.encode() if isinstance(data, str) else data)
    return str(path)


def put_over(path: pathlib.Path | str, data: str | bytes) -> str:
    """The same in one step, as whoever rotates a secret does it: another file, renamed over it."""
    os.rename(put(f"{path}.new", data), path)
    return str(path)


# ---- the origin ----

SETTLE = b"GET /settle HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Origin:
    """tests/origin/origin.py, running."""

    def __init__(self, folder: pathlib.Path):
        self.pki, self.record, self.control = folder / "pki", folder / "record", folder / "control"
        self.proc = subprocess.Popen(
            [PYTHON, str(ORIGIN / "origin.py"), "--pki", str(self.pki), "--record", str(self.record),
             "--control", str(self.control)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(folder / "stderr", "w"), text=True,
            env=clean_env(ORIGIN_FOLLOW_STDIN="1"))
        self.ports = json.loads(self.proc.stdout.readline())
        self.plain, self.tls = self.ports["plain"], self.ports["tls"]
        threading.Thread(target=lambda: list(self.proc.stdout), daemon=True).start()

    def stop(self) -> None:
        self.proc.kill()
        self.proc.wait()

    def settle(self) -> None:
        """Waits until what was sent to the plain port is in the files."""
        with socket.create_connection(("127.0.0.1", self.plain), TIMEOUT) as s:
            s.sendall(SETTLE)
            while s.recv(4096):
                pass

    def mark(self) -> dict[str, int]:
        """What has been received up to now; see since."""
        self.settle()
        return {e.name: e.stat().st_size for e in os.scandir(self.record)}

    def since(self, mark: dict[str, int]) -> bytes:
        """All bytes received after the mark, of all connections."""
        self.settle()
        out = b""
        for e in sorted(os.scandir(self.record), key=lambda e: e.name):
            at = mark.get(e.name, 0)
            if e.stat().st_size > at:
                with open(e.path, "rb") as f:
                    f.seek(at)
                    out += f.read().replace(SETTLE, b"")
        return out

    def open_gate(self, name: str) -> None:
        (self.control / name).touch()

    def script(self, name: str, *steps) -> str:
        """Makes the path /script/NAME do steps (see origin.py)."""
        (self.control / f"{name}.json").write_text(json.dumps(steps))
        return f"/script/{name}"


def pair_of_loopbacks() -> tuple[socket.socket, socket.socket | None]:
    """A socket on 127.0.0.1 and one on ::1, of one port. A name of both addresses is dialled at ::1 first, and there
    another process's listener could have that port: the second socket, which does not listen, keeps it from that."""
    while True:
        four = socket.socket()
        four.bind(("127.0.0.1", 0))
        six = None
        try:
            six = socket.socket(socket.AF_INET6)
            six.bind(("::1", four.getsockname()[1]))
            return four, six
        except OSError as e:
            if six:
                six.close()
            if e.errno != errno.EADDRINUSE:
                return four, None  # no IPv6 here
            four.close()


class Peer:
    """An origin in the test's own hands: a listening socket on loopback."""

    def __init__(self, backlog: int = 16, rcvbuf: int = 0):
        self.listener, self.reserved = pair_of_loopbacks()
        if rcvbuf:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.listener.listen(backlog)
        self.listener.settimeout(TIMEOUT)
        self.port = self.listener.getsockname()[1]

    def accept(self) -> "Raw":
        sock, _ = self.listener.accept()
        return Raw(sock)

    def nobody_came(self, seconds: float = 0.2) -> bool:
        self.listener.settimeout(seconds)
        try:
            self.listener.accept()
            return False
        except TimeoutError:
            return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        if self.reserved:
            self.reserved.close()


def echoed(text: str | bytes) -> dict:
    """What the origin got, out of an /echo that came through stile, which blanks the credential that it added."""
    return sealed.unseal(json.loads(text))


# ---- a raw HTTP/1 peer ----


class Response:
    def __init__(self, status: int, reason: str, version: str, fields: list[tuple[str, str]]):
        self.status, self.reason, self.version, self.fields = status, reason, version, fields
        self.body, self.trailers, self.whole = b"", [], True

    def get(self, name: str) -> str | None:
        return next((v for n, v in self.fields if n.lower() == name.lower()), None)

    def all(self, name: str) -> list[str]:
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def json(self):
        return echoed(self.body)

    def __repr__(self):
        return f"<{self.status} {self.fields} {self.body[:200]!r} whole={self.whole}>"


class Raw:
    """A socket with buffered reads and no opinion about what is sent."""

    def __init__(self, sock: socket.socket):
        self.sock, self.buffer = sock, b""
        sock.settimeout(TIMEOUT)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_quietly(self, data: bytes) -> None:
        """For what may be cut off by a refusal in the middle."""
        try:
            self.sock.sendall(data)
        except OSError:
            pass

    def fill(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError, ssl.SSLZeroReturnError):
            data = b""
        self.buffer += data
        return bool(data)

    def read(self, n: int) -> bytes:
        """n bytes, or fewer at the end."""
        while len(self.buffer) < n and self.fill():
            pass
        out, self.buffer = self.buffer[:n], self.buffer[n:]
        return out

    def read_until(self, end: bytes) -> bytes:
        """Up to and with `end`; what there was at the end of the connection."""
        while end not in self.buffer and self.fill():
            pass
        at = self.buffer.find(end)
        return self.read(len(self.buffer) if at < 0 else at + len(end))

    def read_all(self) -> bytes:
        while self.fill():
            pass
        out, self.buffer = self.buffer, b""
        return out

    def read_head(self) -> bytes:
        return self.read_until(b"\r\n\r\n")

    def response_head(self) -> Response:
        head = self.read_head()
        assert head.endswith(b"\r\n\r\n"), f"no whole head: {head!r}"
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        version, status, reason = (first.split(" ", 2) + [""])[:3]
        fields = [(n, v.strip()) for n, _, v in (x.partition(":") for x in lines)]
        return Response(int(status), reason, version, fields)

    def response_body(self, r: Response) -> None:
        if (r.get("transfer-encoding") or "").lower() == "chunked":
            self.chunked_body(r)
        elif r.get("content-length") is not None:
            n = int(r.get("content-length"))
            r.body = self.read(n)
            r.whole = len(r.body) == n
        else:
            r.body = self.read_all()

    def chunked_body(self, r: Response) -> None:
        while True:
            line = self.read_until(b"\r\n")
            if not line.endswith(b"\r\n"):
                r.whole = False
                return
            size = int(line.split(b";")[0], 16)
            if size == 0:
                break
            data = self.read(size + 2)
            r.body += data[:size]
            if len(data) < size + 2:
                r.whole = False
                return
        while (line := self.read_until(b"\r\n")) not in (b"\r\n", b""):
            r.trailers.append(line[:-2].decode("latin-1"))
        r.whole = line == b"\r\n"

    def response(self, method: str = "GET", interim: bool = False) -> Response:
        """The next answer; interim ones are skipped unless asked for."""
        r = self.response_head()
        while r.status < 200 and not interim and r.status != 101:
            r = self.response_head()
        if r.status >= 200 and r.status not in (204, 304) and method != "HEAD":
            self.response_body(r)
        return r

    def ask(self, request: bytes, method: str | None = None) -> Response:
        self.send_quietly(request)
        return self.response(method or request.split(b" ", 1)[0].decode("latin-1"))

    def at_end(self, seconds: float = TIMEOUT) -> bool:
        """The other side has closed, and nothing more came."""
        if self.buffer:
            return False
        self.sock.settimeout(seconds)
        try:
            return not self.fill()
        except TimeoutError:
            return False
        finally:
            self.sock.settimeout(TIMEOUT)

    def still_open(self, seconds: float = 0.1) -> bool:
        self.sock.settimeout(seconds)
        try:
            return self.fill()
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(TIMEOUT)

    def connect(self, target: str, more: str = "") -> Response:
        """CONNECT; after a 200 the tunnel is this socket."""
        self.send(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n".encode("latin-1"))
        r = self.response_head()
        if r.status != 200:
            self.response_body(r)
        return r

    def start_tls(self, context: ssl.SSLContext, name: str | None, session=None) -> "Raw":
        """From here on everything goes through TLS."""
        assert not self.buffer
        self.sock = context.wrap_socket(self.sock, server_hostname=name, session=session)
        return self

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        self.sock.close()


def get(target: str, host: str | None = None, more: str = "", method: str = "GET", version: str = "1.1") -> bytes:
    """A request head; host defaults to the target's."""
    if host is None:
        host = re.match(r"[a-z]+://([^/?#]*)", target).group(1)
    return f"{method} {target} HTTP/{version}\r\nHost: {host}\r\n{more}\r\n".encode("latin-1")


def chunked(*parts: bytes, trailers: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n" + trailers + b"\r\n"


def client_context(ca: pathlib.Path, **settings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca)
    for key, value in settings.items():
        setattr(context, key, value)
    return context


# ---- stile ----


class Stile:
    """One `stile serve`. Made by the fixture `stile`; see there for the options."""

    def __init__(self, folder: pathlib.Path, origin: Origin | None, *, rules=None, policies=None,
                 credentials=None, limits=None, log=None, upstream=None, listen=None, extra=None,
                 prefix=(), env=None, exit_code=0, pairs=True, wait=True, pass_fds=(), preexec_fn=None):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.origin = folder, origin
        self.config, self.log_path, self.ca = folder / "stile.yaml", folder / "log.jsonl", folder / "ca" / "ca.pem"
        self.exit_code, self.pairs, self.stopped = exit_code, pairs, False
        self.settings = dict(rules=rules, policies=policies, credentials=credentials, limits=limits, log=log,
                             upstream=upstream, listen=listen, extra=extra)
        self.write()
        self.lines: list[str] = []
        self.proc = subprocess.Popen([*prefix, str(BIN), "serve", "-c", str(self.config)], cwd=folder,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, env=clean_env(**(env or {})), pass_fds=pass_fds,
                                     preexec_fn=preexec_fn)
        self.pid = self.proc.pid
        self.reader = threading.Thread(target=self.read_stderr, daemon=True)
        self.reader.start()
        self.port = 0
        if wait:
            line = self.wait_stderr(r"listening on (?!unix:).*:(\d+) |listening on unix:")
            self.port = int(line.group(1) or 0)

    def write(self, **changes) -> None:
        """Writes the configuration, one rule a line."""
        self.settings.update(changes)
        s = self.settings
        upstream = {"hosts": {n: "127.0.0.1" for n in ("origin.test", "other.test", "evil.test")}}
        if self.origin:
            upstream["trust"] = [str(self.origin.pki / "ca.pem")]
        upstream.update(s["upstream"] or {})
        log = {"to": str(self.log_path), "wait": "written", **(s["log"] or {})}
        lines = ["version: 1", "listen: " + json.dumps(s["listen"] or [{"proxy": "127.0.0.1:0"}]),
                 "ca: " + json.dumps({"dir": str(self.folder / "ca")}), "upstream: " + json.dumps(upstream),
                 "log: " + json.dumps(log)]
        for key in ("credentials", "limits"):
            if s[key]:
                lines.append(f"{key}: {json.dumps(s[key])}")
        if s["extra"]:
            lines.append(s["extra"])
        lines.append("policies:")
        policies = s["policies"] or {"default": s["rules"] if s["rules"] is not None else default_rules()}
        for name, rules in policies.items():
            lines += [f"  {name}:", "    rules:"] + ["      - " + json.dumps(r) for r in rules]
        fresh = self.config.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.rename(self.config)

    def read_stderr(self) -> None:
        for line in self.proc.stderr:
            self.lines.append(line.decode("utf-8", "backslashreplace").rstrip("\n"))

    @property
    def stderr(self) -> str:
        return "\n".join(self.lines)

    def wait_stderr(self, pattern: str, seconds: float = TIMEOUT) -> re.Match:
        def look():
            if self.proc.poll() is not None:
                self.reader.join(TIMEOUT)
                found = re.search(pattern, self.stderr, re.M)
                assert found, f"stile ended with {self.proc.returncode}:\n{self.stderr}"
                return found
            return re.search(pattern, self.stderr, re.M)
        return wait_for(look, seconds, f"{pattern!r} on stderr:\n{self.stderr}")

    # the log

    def records(self, since: int = 0, path: pathlib.Path | None = None) -> list[dict]:
        """The records from line `since` on; a line that is still being written is left out."""
        try:
            data = (path or self.log_path).read_bytes()
        except FileNotFoundError:
            return []
        lines = data.split(b"\n")[:-1]
        return [json.loads(x) for x in lines[since:]]

    def mark(self) -> int:
        return len(self.records())

    def wait_records(self, n: int = 1, since: int = 0, seconds: float = TIMEOUT, **want) -> list[dict]:
        """At least n records that have all of `want` (`event` with _ for .)."""
        def look():
            found = [r for r in self.records(since) if all(r.get(k) == v for k, v in want.items())]
            return found if len(found) >= n else None
        try:
            return wait_for(look, seconds)
        except AssertionError:
            raise AssertionError(f"no {n} records with {want} in:\n"
                                 + "\n".join(map(json.dumps, self.records(since)))) from None

    def wait_record(self, since: int = 0, seconds: float = TIMEOUT, **want) -> dict:
        return self.wait_records(1, since, seconds, **want)[0]

    def settled(self) -> "Stile":
        """Waits until each start has its end: what the tests before this one left to be written."""
        def look():
            counts = [0, 0]
            for r in self.records():
                counts[0] += r["event"] in PAIRS
                counts[1] += r["event"] in PAIRS.values()
            return counts[0] == counts[1]
        wait_for(look, why="each start has its end")
        return self

    # clients

    def client(self, rcvbuf: int = 0) -> Raw:
        sock = socket.socket()
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.settimeout(TIMEOUT)
        sock.connect(("127.0.0.1", self.port))
        return Raw(sock)

    def ask(self, request: bytes) -> Response:
        """One request on a connection of its own."""
        with self.client() as c:
            return c.ask(request)

    def get(self, path: str, more: str = "", method: str = "GET", host: str = "origin.test") -> Response:
        """From the plain origin."""
        return self.ask(get(f"http://{host}:{self.origin.plain}{path}", more=more, method=method))

    def context(self, **settings) -> ssl.SSLContext:
        return client_context(self.ca, **settings)

    def tunnel(self, port: int | None = None, host: str = "origin.test", **settings) -> Raw:
        """CONNECT and TLS, both sides trusted."""
        c = self.client()
        target = f"{host}:{port or self.origin.tls}"
        r = c.connect(target)
        assert r.status == 200, r
        return c.start_tls(self.context(**settings), host.strip("[]"))

    def tls_get(self, path: str, port: int | None = None, more: str = "", method: str = "GET",
                host: str = "origin.test") -> Response:
        port = port or self.origin.tls
        with self.tunnel(port, host) as c:
            return c.ask(f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n".encode("latin-1"))

    # life

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def reload(self, good: bool = True, **changes) -> dict:
        """Writes a new configuration, sends SIGHUP, waits for the record of it."""
        since = self.mark()
        self.write(**changes)
        return self.hup(since, good)

    def hup(self, since: int, good: bool = True) -> dict:
        self.signal(signal.SIGHUP)
        record = self.wait_record(since, event="policy.load" if good else "policy.reject")
        self.wait_stderr(r"reloaded|the old policy stays")
        return record

    def status(self) -> dict[str, str]:
        text = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return dict(x.split(":\t", 1) for x in text.splitlines() if ":\t" in x)

    def rss_kib(self, peak: bool = False) -> int:
        return int(self.status()["VmHWM" if peak else "VmRSS"].split()[0])

    def stop(self, seconds: float = TIMEOUT) -> int:
        """SIGTERM, and its exit code."""
        if not self.stopped:
            self.stopped = True
            if self.proc.poll() is None:
                self.signal(signal.SIGTERM)
            try:
                self.proc.wait(seconds)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
                raise AssertionError(f"did not stop within {seconds} s:\n{self.stderr}") from None
            finally:
                self.reader.join(TIMEOUT)
        return self.proc.returncode

    def finish(self) -> None:
        """The end of every test: what must hold whatever it did."""
        code = self.stop()
        (self.folder / "stile.stderr").write_text(self.stderr + "\n")  # for the search of canary.py
        assert not SANITIZER_REPORT.search(self.stderr), self.stderr
        if self.exit_code is not None:
            assert code == self.exit_code, f"exit {code}:\n{self.stderr}"
        if self.pairs:
            check_log(self.records())


def check_log(records: list[dict]) -> None:
    """Each start has its one end, each id its one or two records, the keys their order."""
    seen: dict[str, list[str]] = {}
    for r in records:
        order = [KEYS.index(k) for k in r]
        assert order == sorted(order), f"keys out of order: {r}"
        assert None not in r.values(), r
        if "id" in r:
            seen.setdefault(r["id"], []).append(r["event"])
    for ident, events in seen.items():
        if events[0] in PAIRS:
            assert events == [events[0], PAIRS[events[0]]], f"{ident}: {events}"
        elif events[0].startswith("sandbox."):  # made elsewhere, or still good when stile ended
            assert events in (["sandbox.new"], ["sandbox.new", "sandbox.end"], ["sandbox.end"]), f"{ident}: {events}"
        else:
            assert len(events) == 1 and events[0].endswith(".deny"), f"{ident}: {events}"


def check_refusal(r: Response, status: int | tuple, reason: str | tuple | None = None) -> None:
    """An answer of stile's own, as the contract has it."""
    statuses = status if isinstance(status, tuple) else (status,)
    assert r.status in statuses, r
    assert (r.get("proxy-status") or "").startswith("stile"), r
    assert r.get("cache-control") == "no-store", r
    said = re.search(r'details="?([a-z_]+)', r.get("proxy-status"))
    if reason:
        assert said and said.group(1) in (reason if isinstance(reason, tuple) else (reason,)), r
    if r.body:
        body = r.json()
        assert body["error"] and body["reason"] == said.group(1) and body["id"] and body["detail"], r
