"""Package mirrors that the tests make: a server of files under a name of .test, and a tiny package of each kind. And the
two ways in which a client meets stile: beside `stile serve`, told by `stile ca env`; and within `stile run`, told by
nobody."""

import base64
import gzip
import hashlib
import http.server
import io
import json
import pathlib
import shutil
import ssl
import subprocess
import tarfile
import threading
import zipfile

import pytest

from stilelib import BIN, REPO, TIMEOUT, Origin, Stile, check_log, clean_env

CLIENT_TIMEOUT = 4 * TIMEOUT


def tool(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def call(*args, status=0, timeout=CLIENT_TIMEOUT, **more) -> subprocess.CompletedProcess:
    """Runs a program to its end; its output as text, stdout and stderr together in .said."""
    got = subprocess.run([str(a) for a in args], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, **more)
    got.said = (got.stdout + got.stderr).decode(errors="replace")
    assert status is None or got.returncode == status, f"{args}: {got.returncode}\n{got.said[-6000:]}"
    return got


# ---- a server of files ----


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        out = b""
        while size := int(self.rfile.readline(), 16):
            out += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return out

    def any(self) -> None:
        self.server.asked.append((self.command, self.path, self.body()))
        kind, data = self.server.files.get(self.path.split("?")[0], (None, b"there is none\n"))
        self.send_response(200 if kind else 404)
        self.send_header("Content-Type", kind or "text/plain")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = any


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass  # a client may go at any time


class Mirror:
    """A server of self.files (path -> type, data) on loopback; self.asked is what it was asked for."""

    def __init__(self, pki: pathlib.Path, tls: bool = True, handler=Handler):
        self.server = Server(("127.0.0.1", 0), handler)
        self.files, self.asked = {}, []
        self.server.files, self.server.asked = self.files, self.asked
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pki / "good.pem", pki / "good.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_address[1]
        self.url = f"http{'s' if tls else ''}://origin.test:{self.port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def add(self, path: str, data: bytes | str, kind: str = "application/octet-stream") -> None:
        self.files[path] = (kind, data if isinstance(data, bytes) else data.encode())

    def paths(self, method: str = "GET") -> list[str]:
        return [path for m, path, _ in self.asked if m == method]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


# ---- tiny packages ----


def add_wheel(m: Mirror, base: str) -> None:
    """A simple index (PEP 503) at BASE/simple/ of tiny 1.0, whose wheel lies at BASE/files/."""
    name, info = "tiny-1.0-py3-none-any.whl", "tiny-1.0.dist-info"
    parts = {"tiny.py": b"answer = 42\n", f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
             f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    digest = {p: base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b"=").decode() for p, d in parts.items()}
    parts[f"{info}/RECORD"] = "".join(f"{p},sha256={digest[p]},{len(parts[p])}\n" for p in digest).encode()
    parts[f"{info}/RECORD"] += f"{info}/RECORD,,\n".encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for path, data in parts.items():
            z.writestr(path, data)
    m.add(f"{base}/files/{name}", out.getvalue())
    m.add(f"{base}/simple/tiny/", f"<a href='../../files/{name}#sha256={hashlib.sha256(out.getvalue()).hexdigest()}'>{name}</a>",
          "text/html")


def tgz(folder: str, files: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{folder}/{name}")
            info.size, info.mode = len(text), 0o644
            t.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def add_npm(m: Mirror, base: str) -> None:
    """A registry at BASE of @acme/tiny 1.0.0."""
    about = {"name": "@acme/tiny", "version": "1.0.0", "main": "index.js"}
    data = tgz("package", {"package.json": json.dumps(about), "index.js": "module.exports = 42;\n"})
    at = f"{base}/@acme/tiny/-/tiny-1.0.0.tgz"
    m.add(at, data)
    dist = {"tarball": m.url + at, "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()}
    document = {"name": "@acme/tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**about, "dist": dist}}}
    m.add(f"{base}/@acme%2ftiny", json.dumps(document), "application/json")
    m.add(f"{base}/@acme%2Ftiny", json.dumps(document), "application/json")


def add_apt(m: Mirror, base: str, folder: pathlib.Path, name: str = "tiny_1.0_all.deb") -> None:
    """A flat repository at BASE of one package, tiny 1.0."""
    tree = folder / "deb"
    (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
    (tree / "DEBIAN" / "control").write_text("Package: tiny\nVersion: 1.0\nArchitecture: all\nMaintainer: t <t@origin.test>\n"
                                             "Description: tiny\n")
    call(tool("dpkg-deb"), "--root-owner-group", "-Zgzip", "-b", tree, folder / "tiny.deb")
    deb = (folder / "tiny.deb").read_bytes()
    control = (tree / "DEBIAN" / "control").read_text()
    packages = f"{control}Filename: {name}\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n"
    listed = {"Packages": packages.encode(), "Packages.gz": gzip.compress(packages.encode())}
    sums = "".join(f" {hashlib.sha256(d).hexdigest()} {len(d)} {n}\n" for n, d in listed.items())
    m.add(f"{base}/Release", "Origin: test\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n" + sums)
    m.add(f"{base}/{name}", deb)
    for name, data in listed.items():
        m.add(f"{base}/{name}", data)


def add_crate(m: Mirror, base: str) -> None:
    """A sparse index at BASE/index/ of tiny 1.0.0, whose crate lies at BASE/crates/."""
    about = '[package]\nname = "tiny"\nversion = "1.0.0"\nedition = "2021"\n'
    data = tgz("tiny-1.0.0", {"Cargo.toml": about, "src/lib.rs": "pub fn answer() -> u32 { 42 }\n"})
    m.add(f"{base}/crates/tiny/1.0.0/download", data)
    m.add(f"{base}/index/config.json", json.dumps({"dl": f"{m.url}{base}/crates"}), "application/json")
    line = {"name": "tiny", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(data).hexdigest(), "features": {}, "yanked": False}
    m.add(f"{base}/index/ti/ny/tiny", json.dumps(line) + "\n", "text/plain")


def add_go(m: Mirror, base: str) -> None:
    """A module proxy at BASE of example.test/tiny v1.0.0."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("example.test/tiny@v1.0.0/go.mod", "module example.test/tiny\n")
        z.writestr("example.test/tiny@v1.0.0/tiny.go", "package tiny\n\nconst Answer = 42\n")
    at = f"{base}/example.test/tiny/@v"
    m.add(f"{at}/list", "v1.0.0\n", "text/plain")
    m.add(f"{at}/v1.0.0.info", json.dumps({"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}), "application/json")
    m.add(f"{at}/v1.0.0.mod", "module example.test/tiny\n", "text/plain")
    m.add(f"{at}/v1.0.0.zip", out.getvalue(), "application/zip")


# ---- serve and run ----


class Serve:
    """Clients beside a `stile serve`, told of it by what `stile ca env` prints."""

    kind = "serve"

    def __init__(self, folder: pathlib.Path, origin: Origin, rules: list[dict]):
        self.folder = folder
        self.stile = Stile(folder / "stile", origin, rules=rules)
        self.trust = folder / "trust"
        call(BIN, "ca", "bundle", "-c", self.stile.config, "--dir", self.trust)
        told = call(BIN, "ca", "env", "--dir", self.trust, "--proxy", f"http://127.0.0.1:{self.stile.port}").stdout.decode()
        self.told = dict(line.split("=", 1) for line in told.splitlines())

    def go(self, *args, home: pathlib.Path, **more) -> subprocess.CompletedProcess:
        return call(*args, cwd=home, env={**clean_env(HOME=str(home)), **self.told}, **more)

    def records(self) -> list[dict]:
        return self.stile.settled().records()

    def close(self) -> None:
        self.stile.finish()


class Run:
    """Clients within `stile run`, which are told nothing."""

    kind = "run"

    def __init__(self, folder: pathlib.Path, origin: Origin, rules: list[dict]):
        self.folder, self.log = folder, folder / "run.jsonl"
        self.config = folder / "stile.yaml"
        hosts = {n: "127.0.0.1" for n in ("origin.test", "other.test", "evil.test")}
        policies = {"default": {"rules": rules}}
        self.config.write_text(json.dumps({"version": 1, "upstream": {"trust": [str(origin.pki / "ca.pem")], "hosts": hosts},
                                           "policies": policies}))

    def go(self, *args, home: pathlib.Path, **more) -> subprocess.CompletedProcess:
        """What the tests share lies beside home; all of it is the workspace. An .npmrc would be hidden, and so would we
        be in a home or in /tmp."""
        ours = (REPO / "tests" / "clients", REPO / "build" / "clients")
        shown = [a for p in (*home.glob(".npmrc"), *ours) if p.exists() for a in ("--show", p)]
        return call(BIN, "run", "-c", self.config, "--log", self.log, "--workspace", self.folder.parent, *shown, "--",
                    "sh", "-c", 'cd "$0" && exec "$@"', home, *args, env=clean_env(HOME=str(home)), cwd=home, **more)

    def records(self) -> list[dict]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def close(self) -> None:
        check_log(self.records())


WAYS = {"serve": Serve, "run": Run}


def refused(way, since: int) -> list[dict]:
    return [r for r in way.records()[since:] if r["event"].endswith(".deny")]


def real_cargo() -> str:
    """The program itself: rustup's stand-in needs the caller's home."""
    cargo = tool("cargo")
    rustc = shutil.which("rustc")
    if rustc:
        root = subprocess.run([rustc, "--print", "sysroot"], capture_output=True, text=True, timeout=TIMEOUT)
        inside = pathlib.Path(root.stdout.strip()) / "bin" / "cargo"
        if root.returncode == 0 and inside.exists():
            cargo = str(inside)
    version = subprocess.run([cargo, "--version"], capture_output=True, text=True, timeout=TIMEOUT).stdout.split()
    if len(version) < 2 or tuple(map(int, version[1].split(".")[:2])) < (1, 68):
        pytest.skip(f"cargo {version[1] if len(version) > 1 else '?'} has no sparse indexes (since 1.68)")
    return cargo
