"""What the tests of `stile run` share: starting it, a terminal to start it in, a TLS origin."""

import datetime
import http.server
import ipaddress
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import ssl
import subprocess
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("STILE", REPO / "build" / "stile")).resolve()
TIMEOUT = 30


def clean_env(**more):
    """An environment with nothing in it that could change a test, HOME of the test's own."""
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm"}
    env.update(more)
    return env


def argv_of(log, *cmd, args=(), config=None):
    argv = [str(BIN), "run", "--log", str(log)]
    if config:
        argv += ["-c", str(config)]
    return [*argv, *args, "--", *map(str, cmd)]


def run(tmp, *cmd, args=(), config=None, env=None, stdin="", prefix=(), log=None, cwd=None):
    """Runs cmd under `stile run` in tmp and returns the CompletedProcess."""
    argv = [*prefix, *argv_of(log or tmp / "run.jsonl", *cmd, args=args, config=config)]
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=TIMEOUT,
                          cwd=cwd or tmp, env=env or clean_env(HOME=str(tmp)))


def start(tmp, *cmd, args=(), config=None, env=None, **popen):
    argv = argv_of(tmp / "run.jsonl", *cmd, args=args, config=config)
    popen.setdefault("stdout", subprocess.PIPE)
    popen.setdefault("stderr", subprocess.PIPE)
    popen.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(argv, text=True, cwd=tmp, env=env or clean_env(HOME=str(tmp)), **popen)


def wait_for(what, seconds=10):
    """Polls until what() is true and returns it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = what()
        if got:
            return got
        time.sleep(0.02)
    raise AssertionError("did not happen in time")


def processes(marker):
    """The pids whose command line holds marker as an argument of its own or within one."""
    found = []
    for p in pathlib.Path("/proc").iterdir():
        if not p.name.isdigit() or int(p.name) == os.getpid():
            continue
        try:
            line = (p / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if marker in line:
            found.append(int(p.name))
    return found


class Terminal:
    """A program in a terminal of its own: session leader, with the pty as controlling terminal."""

    def __init__(self, argv, cwd, env):
        self.seen = self.all = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)

    def send(self, text):
        os.write(self.fd, text.encode())

    def expect(self, pattern, seconds=10):
        """Reads until pattern matches what has not been matched yet; returns the match."""
        end = time.monotonic() + seconds
        while True:
            m = re.search(pattern, self.seen)
            if m:
                self.seen = self.seen[m.end():]
                return m
            left = end - time.monotonic()
            ready = left > 0 and select.select([self.fd], [], [], left)[0]
            if not ready:
                raise AssertionError(f"{pattern!r} not in {self.seen!r}, after all this: {self.all!r}")
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"ended before {pattern!r}: {self.all!r}")
            self.seen += data.decode(errors="replace")
            self.all += data.decode(errors="replace")

    def wait(self, seconds=10):
        def ended():
            # A terminal that nobody reads would keep the program from ending.
            if select.select([self.fd], [], [], 0)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            return (status,) if pid else None

        status = wait_for(ended, seconds)[0]
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Origin:
    """An HTTPS server on loopback that keeps what it was sent. `ca` is what to trust for it."""

    def __init__(self, folder, name="allowed.test"):
        self.ca = folder / "origin-ca.pem"
        self.requests = []
        make_certificates(folder, name)
        origin = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                origin.requests.append((self.path, dict(self.headers.items())))
                body = b"hello from the origin\n"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "origin.pem", folder / "origin.key")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def make_certificates(folder, name):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    now = datetime.datetime.utcnow()

    def write(path, cert, key):
        path.with_suffix(".pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
        path.with_suffix(".key").write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()))

    def build(subject, issuer, key, signer, *extensions):
        b = (x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
             .public_key(key.public_key()).serial_number(x509.random_serial_number())
             .not_valid_before(now - datetime.timedelta(hours=1))
             .not_valid_after(now + datetime.timedelta(days=2)))
        for ext, critical in extensions:
            b = b.add_extension(ext, critical)
        return b.sign(signer, hashes.SHA256())

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "origin test CA")])
    skid = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    usage = x509.KeyUsage(digital_signature=False, content_commitment=False, key_encipherment=False,
                          data_encipherment=False, key_agreement=False, key_cert_sign=True,
                          crl_sign=True, encipher_only=False, decipher_only=False)
    ca = build(ca_name, ca_name, ca_key, ca_key, (x509.BasicConstraints(True, None), True),
               (usage, True), (skid, False))
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([x509.DNSName(name),
                                         x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = build(leaf_name, ca_name, key, ca_key, (names, False),
                 (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(skid), False),
                 (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False))
    write(folder / "origin-ca.pem", ca, ca_key)
    write(folder / "origin.pem", leaf, key)


def can_become_nobody():
    return os.geteuid() == 0 and shutil.which("setpriv") is not None


NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
