"""A real Redis of a test's own: on a Unix socket, with a password made up here, or over TLS; it can be stopped, killed,
emptied and written to."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

from stilelib import TIMEOUT, wait_for

# Debian's redis-server is another name of redis-check-rdb, which comes without a service that would be started.
SERVER = shutil.which("redis-server") or shutil.which("valkey-server") or shutil.which("redis-check-rdb")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    def __init__(self, folder: pathlib.Path, tls: tuple | None = None, tcp: bool = False, password: str | None = None):
        """tls: (certificate, key, CA) files."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.tls, self.process = folder, tls, None
        self.password = password if password is not None else os.urandom(16).hex()
        # Not in the test's own folder: the path of a Unix socket is short.
        self.short = pathlib.Path(tempfile.mkdtemp(prefix="stile-redis."))
        self.socket = self.short / "s"
        self.port = free_port() if tls or tcp else 0
        self.start()

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}" if self.tls else f"redis://127.0.0.1:{self.port}" if self.port \
            else f"unix:{self.socket}"

    def start(self) -> None:
        conf = self.folder / "redis.conf"
        lines = ["save \"\"", "appendonly no", f"unixsocket {self.socket}", f"dir {self.folder}",
                 f"requirepass {self.password}", "bind 127.0.0.1", f"port {0 if self.tls else self.port}"]
        if self.tls:
            cert, key, ca = self.tls
            lines += [f"tls-port {self.port}", f"tls-cert-file {cert}", f"tls-key-file {key}", f"tls-ca-cert-file {ca}",
                      "tls-auth-clients no"]
        conf.write_text("\n".join(lines) + "\n")
        conf.chmod(0o600)
        with (self.folder / "redis.out").open("ab") as out:
            self.process = subprocess.Popen(["redis-server", str(conf)], executable=SERVER, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        wait_for(lambda: self.alive() and self("PING") == b"PONG", why=(self.folder / "redis.out").read_text())

    def alive(self) -> bool:
        assert self.process.poll() is None, (self.folder / "redis.out").read_text()
        return self.socket.exists()

    def __call__(self, *words):
        """One command, and its answer."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(TIMEOUT)
            try:
                s.connect(str(self.socket))
            except OSError:
                return None
            f = s.makefile("rwb")
            for command in ("AUTH", self.password), words:
                parts = [w if isinstance(w, bytes) else str(w).encode() for w in command]
                f.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))
                f.flush()
                got = self.read(f)
            return got

    def read(self, f):
        line = f.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return None if rest == b"-1" else f.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.read(f) for _ in range(int(rest))]
        if kind == b"-":
            raise AssertionError(rest.decode())
        return int(rest) if kind == b":" else rest

    def stop(self) -> None:
        """It stands still: it holds its connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)

    def finish(self) -> None:
        self.kill()
        shutil.rmtree(self.short, ignore_errors=True)
