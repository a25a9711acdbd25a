"""What the tests of compiled and large clients share: the programs of tests/clients/, built once a session, and an
environment that tells a program of a stile as `stile run` would."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading

import pytest

from accepting import serve_each
from stilelib import BIN, REPO, TIMEOUT, Stile, clean_env

CLIENTS = REPO / "tests" / "clients"
BUILD_TIMEOUT = 300


def tool(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def run(*args, status=0, timeout=TIMEOUT * 3, **more) -> subprocess.CompletedProcess:
    got = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout, **more)
    assert status is None or got.returncode == status, \
        f"{args}: {got.returncode}\n{got.stdout[-3000:]}\n{got.stderr[-4000:]}"
    return got


def env_of(s: Stile, folder: pathlib.Path) -> dict[str, str]:
    """What `stile ca env` prints for s, HOME in the folder; the trust files are made there."""
    trust = folder / "trust"
    run(BIN, "ca", "bundle", "-c", s.config, "--dir", trust)
    told = run(BIN, "ca", "env", "--dir", trust, "--proxy", f"http://127.0.0.1:{s.port}").stdout
    return {**clean_env(HOME=str(folder)), **dict(line.split("=", 1) for line in told.splitlines())}


def build_go(folder: pathlib.Path) -> pathlib.Path:
    """The program of tests/clients/go. What it imports was fetched by tests/install-deps.sh; nothing is fetched now."""
    env = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    got = subprocess.run([tool("go"), "build", "-o", str(folder / "clients"), "."], cwd=CLIENTS / "go", env=env,
                         capture_output=True, text=True, timeout=BUILD_TIMEOUT)
    if "module lookup disabled by GOPROXY=off" in got.stderr:
        pytest.skip("the modules of tests/clients/go are not fetched (tests/install-deps.sh test)")
    assert got.returncode == 0, got.stderr
    return folder / "clients"


class GoOrigin:
    """`clients serve`: net/http and grpc-go behind TLS, on two ports."""

    def __init__(self, program: pathlib.Path, pki: pathlib.Path):
        self.proc = subprocess.Popen([str(program), "serve", str(pki / "good.pem"), str(pki / "good.key")], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_env())
        ports = json.loads(self.proc.stdout.readline())
        self.http, self.grpc = ports["http"], ports["grpc"]

    def stop(self) -> None:
        self.proc.stdin.close()
        try:
            self.proc.wait(TIMEOUT)
        finally:
            self.proc.kill()
            self.proc.stdout.close()


def build_java(folder: pathlib.Path) -> list[str]:
    """The command of tests/clients/java."""
    run(tool("javac"), "-d", folder, CLIENTS / "java" / "Client.java", timeout=BUILD_TIMEOUT)
    return [tool("java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", str(folder), "Client"]


class Forwarder:
    """For a client that knows no proxy: each connection to 127.0.0.1:port becomes a CONNECT to the target."""

    def __init__(self, s: Stile, target: str, listener: socket.socket | None = None):
        self.stile, self.target = s, target
        self.listener = listener or socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        serve_each(self.listener, self.serve)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def serve(self, sock: socket.socket) -> None:
        with sock, self.stile.client() as c:
            if c.connect(self.target).status != 200:
                return
            c.sock.settimeout(None)
            back = threading.Thread(target=self.pump, args=(c.sock, sock), daemon=True)
            back.start()
            self.pump(sock, c.sock)
            back.join(TIMEOUT)

    @staticmethod
    def pump(a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            for s in (a, b):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
