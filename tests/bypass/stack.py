"""What a case runs against: an origin that keeps every byte it was sent, a DNS server that notes every
question, and one `stile serve`. All of it in a network namespace of its own, in which every address of
the world leads back to that origin: whatever stile lets out is seen, and nothing leaves the machine."""

import base64
import ctypes
import fcntl
import functools
import json
import os
import pathlib
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

import yaml

import h2wire

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "origin"))
import dns  # noqa: E402
import pki  # noqa: E402
from wire import parse_head, take_chunks  # noqa: E402

NAMES = ["allowed.test", "*.allowed.test", "second.test", "evil.test", "a.wild.test", "127.0.0.1", "::1",
         "203.0.113.7", "metadata.google.internal"]
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
GOOD = b"/ok/good"


def enter_namespace() -> None:
    """This process alone: no interface but lo, and all addresses on it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        uid, gid = os.getuid(), os.getgid()
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "a network namespace cannot be made")
        pathlib.Path("/proc/self/setgroups").write_text("deny")
        pathlib.Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        pathlib.Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    for args in (["link", "set", "lo", "up"], ["route", "add", "local", "0.0.0.0/0", "dev", "lo"],
                 ["-6", "route", "add", "local", "::/0", "dev", "lo"],
                 ["addr", "add", "198.51.100.9/32", "dev", "lo"]):
        subprocess.run(["ip", *args], check=True)


class Inside:
    """A namespace for clients that know no proxy: loopback, and the addresses that stile makes up."""

    def __init__(self):
        up = ["ip link set lo up", "ip route add local 198.18.0.0/15 dev lo", "echo up", "exec sleep 3600"]
        self.holder = subprocess.Popen(["unshare", "-n", "sh", "-c", " && ".join(up)], stdout=subprocess.PIPE,
                                       stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        if self.holder.stdout.readline() != b"up\n":
            raise RuntimeError("no second namespace")
        self.path = f"/proc/{self.holder.pid}/ns/net"

    def socket(self, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """A socket keeps the namespace that it was made in."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as here, open(self.path) as there:
            if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "the second namespace cannot be entered")
            try:
                s = socket.socket(socket.AF_INET, kind)
            finally:
                libc.setns(here.fileno(), CLONE_NEWNET)
        s.settimeout(5)
        return s

    def resolve(self, name: str) -> str:
        labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
        with self.socket(socket.SOCK_DGRAM) as s:
            s.sendto(b"\x12\x34\1\0\0\1" + b"\0" * 6 + labels + b"\0\0\1\0\1", ("127.0.0.1", 53))
            answer = s.recv(512)
        if answer[3] & 15 or answer[7] != 1:
            raise RuntimeError(f"{name} has no address: {answer}")
        return socket.inet_ntoa(answer[-4:])


def waiting(listener: socket.socket) -> int:
    """Connections that the kernel has and accept has not given us: tcpi_unacked of a listener."""
    return struct.unpack_from("I", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32), 24)[0]


class Conn:
    """One connection to the origin, as it was seen there."""

    def __init__(self, local, peer, tls: bool):
        self.local, self.peer, self.tls = local, peer, tls
        self.sni, self.data, self.closed, self.malformed = None, bytearray(), False, None
        self.h2 = False
        self.reads = None  # the socket, while it is waited on for more

    def is_quiet(self) -> bool:
        """All that was sent to it has been noted."""
        reads = self.reads
        if self.closed or reads is None:
            return self.closed
        try:
            return not struct.unpack("i", fcntl.ioctl(reads.fileno(), termios.FIONREAD, b"\0" * 4))[0]
        except (OSError, ValueError):
            return True  # it was closed meanwhile


class Origin:
    """Answers by script: `answers` holds what is said to the 1st, 2nd, ... request whose path is not
    /ok/good (the last one stays). An entry is bytes, or {send, repeat, then, delay_ms, close, early}."""

    def __init__(self, folder: pathlib.Path):
        self.lock, self.conns, self.answers, self.asked = threading.Lock(), [], [], 0
        self.listeners = []
        self.greeting = b""
        self.contexts = {}
        for kind in ("good", "expired", "wrong-name", "self-signed", "missing-intermediate"):
            ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            ctx.load_cert_chain(folder / f"{kind}.pem", folder / f"{kind}.key")
            ctx.set_alpn_protocols(["http/1.1"])
            self.contexts[kind] = ctx
        self.h2_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.h2_context.load_cert_chain(folder / "good.pem", folder / "good.key")
        self.h2_context.set_alpn_protocols(["h2"])
        self.kind, self.client_cert, self.ca = "good", False, str(folder / "ca.pem")
        self.http, self.tls, self.h2 = self.listen(0, False), self.listen(0, True), self.listen(0, True, True)
        self.listen(80, False)
        self.listen(443, True)

    def listen(self, port: int, tls: bool, h2: bool = False) -> int:
        s = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
        s.setblocking(False)
        self.listeners.append(s)
        threading.Thread(target=self.accept, args=(s, tls, h2), daemon=True).start()
        return s.getsockname()[1]

    def accept(self, listener: socket.socket, tls: bool, h2: bool) -> None:
        while True:
            select.select([listener], [], [])
            with self.lock:  # out of the kernel's queue and into our list in one step, as `mark` looks at both
                try:
                    sock, peer = listener.accept()
                except OSError:
                    continue
                sock.setblocking(True)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                conn = Conn(sock.getsockname(), peer, tls)
                conn.h2 = h2
                self.conns.append(conn)
            threading.Thread(target=self.serve, args=(sock, conn), daemon=True).start()

    def serve(self, sock: socket.socket, conn: Conn) -> None:
        try:
            sock.settimeout(60)
            if conn.tls:
                ctx = self.h2_context if conn.h2 else self.contexts[self.kind]
                ctx.sni_callback = lambda s, name, c: setattr(conn, "sni", name)
                ctx.verify_mode = ssl.CERT_NONE
                if self.client_cert:
                    ctx.load_verify_locations(self.ca)
                    ctx.verify_mode = ssl.CERT_REQUIRED
                sock = ctx.wrap_socket(sock, server_side=True)
            if self.greeting:
                sock.sendall(self.greeting)
            if conn.h2:
                h2wire.serve(sock, conn, lambda data: self.note(conn, data), self.answer_h2)
            else:
                self.converse(sock, conn)
        except (OSError, ValueError):
            pass
        finally:
            conn.closed = True
            sock.close()

    def note(self, conn: Conn, data: bytes) -> None:
        with self.lock:
            conn.data += data

    def answer_h2(self, method: bytes, path: bytes, ended: bool) -> list[dict] | None:
        """Frames; `answers` holds lists of them. None: not before the request's end."""
        ok = [{"head": [(b":status", b"200"), (b"content-length", b"2")], "end": method == b"HEAD"}]
        ok += [] if method == b"HEAD" else [{"data": b"ok", "end": True}]
        if path.startswith(GOOD) or not self.answers:
            return ok if ended else None
        with self.lock:
            entry = self.answers[min(self.asked, len(self.answers) - 1)]
            if not ended and not entry[0].get("early"):
                return None
            self.asked += 1
        return entry

    def converse(self, sock, conn: Conn) -> None:
        buffer = b""
        while True:
            try:
                found = self.take_request(buffer)
            except (ValueError, IndexError):
                conn.malformed, found = bytes(buffer), None
            if found is not None:
                method, path, used = found
                buffer = buffer[used:]
                if not self.answer(sock, method, path):
                    return
                continue
            early = self.early(buffer)
            if early and not self.answer(sock, *early):
                return
            conn.reads = sock
            data = sock.recv(65536)
            with self.lock:
                conn.reads = None
                conn.data += data
            if not data:
                return
            buffer += data

    def early(self, data: bytes):
        """An answer before the body is here, where the script wants that."""
        with self.lock:
            entry = self.answers[min(self.asked, len(self.answers) - 1)] if self.answers else None
        if not isinstance(entry, dict) or not entry.get("early") or b"\r\n\r\n" not in data:
            return None
        return tuple(data.split(b" ")[:2])

    @staticmethod
    def take_request(data: bytes):
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return None
        line, fields = parse_head(data[:end])
        method, path, version = line.split(b" ")
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise ValueError
        field = dict(fields)
        end += 4
        if "transfer-encoding" in field:
            found = take_chunks(data[end:])
            return None if found is None else (method, path, end + found[1])
        length = int(field.get("content-length", b"0"))
        return None if len(data) < end + length else (method, path, end + length)

    def answer(self, sock, method: bytes, path: bytes) -> bool:
        ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + (b"" if method == b"HEAD" else b"ok")
        if path.startswith(GOOD) or not self.answers:
            sock.sendall(ok)
            return True
        with self.lock:
            entry = self.answers[min(self.asked, len(self.answers) - 1)]
            self.asked += 1
        if isinstance(entry, bytes):
            entry = {"send": entry}
        time.sleep(entry.get("delay_ms", 0) / 1000)
        if entry.get("ok"):
            sock.sendall(ok)
        sock.sendall(entry.get("send", b"") * entry.get("repeat", 1))
        if "then" in entry:
            time.sleep(entry.get("wait_ms", 60) / 1000)
            sock.sendall(entry["then"])
        return not entry.get("close")

    def mark(self) -> dict:
        """What came before; also what an earlier case sent and we have not read or accepted yet."""
        until = time.monotonic() + 3
        while True:
            with self.lock:
                quiet = not any(map(waiting, self.listeners)) and all(c.is_quiet() for c in self.conns)
                if quiet or time.monotonic() > until:
                    return {id(c): len(c.data) for c in self.conns}
            time.sleep(0.002)

    def since(self, mark: dict) -> list[tuple[Conn, bytes]]:
        """Connections that are new or were written to."""
        with self.lock:
            return [(c, bytes(c.data[mark.get(id(c), 0):])) for c in self.conns
                    if id(c) not in mark or len(c.data) > mark[id(c)]]

    def forget(self) -> None:
        with self.lock:
            self.conns = [c for c in self.conns if not c.closed]
            for c in self.conns:
                c.malformed = None
            self.asked, self.answers, self.greeting = 0, [], b""
            self.kind, self.client_cert = "good", False


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Stack:
    """One set-up: its configuration (setups/NAME.yaml), a folder, an origin, and stile. NAME/h2: the origin
    behind TLS speaks HTTP/2."""

    def __init__(self, world: "World", name: str):
        self.world, self.origin = world, world.origin
        self.name, _, h2 = name.partition("/")
        self.tls = self.origin.h2 if h2 else self.origin.tls
        name = self.name
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=world.folder))
        self.config, self.log = self.folder / "stile.yaml", self.folder / "log.jsonl"
        self.log_at, self.log_rest = 0, b""
        self.secret = world.secret
        (self.folder / "tok").write_text(self.secret + "\n")
        os.chmod(self.folder / "tok", 0o600)
        self.ports = [free_port() for _ in range(2)]
        self.write(name)
        self.start()

    def fill(self, text: str) -> str:
        if "{netns}" in text:
            text = text.replace("{netns}", self.world.inside.path)
        for key, value in self.values().items():
            text = text.replace("{" + key + "}", str(value))
        return text

    def values(self) -> dict:
        return {"http": self.origin.http, "tls": self.tls, "dir": self.folder, "dns": self.world.dns_port,
                "proxy": self.ports[0], "proxy2": self.ports[1], "secret": self.secret,
                "secret_nested": "".join(f"%25{ord(c):02x}" for c in self.secret),
                "pki": self.world.folder / "pki", "origin_ca": self.world.folder / "pki" / "ca.pem", **self.fakes()}

    def fakes(self) -> dict:
        """The placeholder, if the set-up makes one: as it is, percent-encoded, in a Basic pair, in chunks that cut it."""
        try:
            fake = (self.folder / "fake").read_text()
        except FileNotFoundError:
            return {}
        a, b = fake[:9], fake[9:]
        return {"fake": fake, "fake_escaped": "".join(f"%{ord(c):02x}" for c in fake),
                "fake_twice": "".join(f"%25{ord(c):02X}" for c in fake),
                "fake_pair": base64.b64encode(f"x-access-token:{fake}".encode()).decode(),
                "secret_pair": base64.b64encode(f"x-access-token:{self.secret}".encode()).decode(),
                "fake_chunks": f"{len(a):x}\r\n{a}\r\n1\r\n{b[0]}\r\n{len(b) - 1:x}\r\n{b[1:]}\r\n0\r\n\r\n"}

    def write(self, name: str) -> None:
        new = self.config.with_suffix(".new")
        new.write_text(self.fill((HERE / "setups" / f"{name}.yaml").read_text()))
        new.replace(self.config)

    def start(self) -> None:
        self.stderr = open(self.folder / "stderr", "ab")
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "BYPASS_TOKEN": self.secret}
        env |= {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}
        self.proc = subprocess.Popen([self.world.stile, "serve", "-c", self.config], env=env, cwd=self.folder,
                                     stdin=subprocess.DEVNULL, stdout=self.stderr, stderr=self.stderr,
                                     preexec_fn=die_with_parent)
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.ports[0]), 1).close()
                break
            except OSError:
                if self.proc.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"stile does not start with {self.name}: {self.said()}") from None
                time.sleep(0.02)
        self.trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.trust.load_verify_locations(self.folder / "ca" / "ca.pem")
        self.trust.set_alpn_protocols(["http/1.1"])
        self.trust_h2 = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.trust_h2.load_verify_locations(self.folder / "ca" / "ca.pem")
        self.trust_h2.set_alpn_protocols(["h2"])
        self.origin_trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.origin_trust.load_verify_locations(self.world.folder / "pki" / "ca.pem")
        self.records()

    def said(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")[-3000:]

    def reload(self, name: str) -> None:
        """Another file, the same listeners; returns when stile says that it holds (or does not)."""
        self.write(name)
        before = self.loads()
        self.proc.send_signal(signal.SIGHUP)
        until = time.monotonic() + 5
        while self.loads() == before and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.03)  # the workers take it up in their next turn

    def admin(self, question: dict) -> dict:
        """What is answered on the admin socket of a setup that has one."""
        until = time.monotonic() + 10
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            while s.connect_ex(os.path.relpath(self.folder / "admin.sock")) and time.monotonic() < until:
                time.sleep(0.01)  # the proxy's own port was opened before
            s.sendall(json.dumps(question).encode() + b"\n")
            data = b"".join(iter(lambda: s.recv(65536), b""))
        answer = json.loads(data)
        if not answer["ok"]:
            raise RuntimeError(f"{question}: {answer}")
        return answer

    def loads(self) -> int:
        text = self.log.read_bytes()
        return text.count(b'"event":"policy.load"') + text.count(b'"event":"policy.reject"')

    def records(self) -> list[dict]:
        """Those that are new, without those of the process itself."""
        try:
            with open(self.log, "rb") as f:
                f.seek(self.log_at)
                data = self.log_rest + f.read()
                self.log_at = f.tell()
        except FileNotFoundError:
            return []
        *lines, self.log_rest = data.split(b"\n")
        found = []
        for line in lines:
            r = json.loads(line)
            r["_line"] = line
            if not r["event"].startswith(("proxy.", "policy.", "sandbox.")):
                found.append(r)
        return found

    def stop(self) -> str | None:
        """What was wrong with it, if anything."""
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.proc.wait(15)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        self.stderr.close()
        said = self.said()
        if self.proc.returncode not in (0, -signal.SIGTERM, -signal.SIGKILL) or "anitizer" in said:
            return f"stile ended with {self.proc.returncode}: {said}"
        return None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class World:
    """All of one worker process."""

    def __init__(self, folder: pathlib.Path):
        enter_namespace()
        self.stile = os.environ["STILE"]
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        self.secret = "CANARY-" + os.urandom(8).hex()
        pki.make_all(self.folder / "pki", NAMES)
        self.origin = Origin(self.folder / "pki")
        self.zone = yaml.safe_load((HERE / "setups" / "zone.yaml").read_text())
        self.questions = self.folder / "questions"
        self.dns = dns.Server(self.zone, self.questions)
        udp, tcp = dns.open_both("127.0.0.1", 0)
        threading.Thread(target=self.dns.serve_udp, args=(udp,), daemon=True).start()
        threading.Thread(target=self.dns.serve_tcp, args=(tcp,), daemon=True).start()
        self.dns_port = udp.getsockname()[1]
        self.asked_at = 0
        self.stacks = {}

    @functools.cached_property
    def inside(self) -> Inside:
        return Inside()

    def stack(self, name: str) -> Stack:
        if name not in self.stacks:
            self.stacks[name] = Stack(self, name)
        return self.stacks[name]

    def asked(self) -> list[str]:
        """The names that new DNS questions were about."""
        with open(self.questions) as f:
            f.seek(self.asked_at)
            lines = f.readlines()
            self.asked_at = f.tell()
        return [json.loads(line)["name"].lower() for line in lines]

    def stop(self) -> list[str]:
        return [said for s in self.stacks.values() if (said := s.stop())]
