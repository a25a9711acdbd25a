"""What the tests of sources that sign or are given tokens share: keys, an endpoint in the test's own hands, and a stile
whose credential `a` goes to /echo/a/."""

import http.server
import json
import pathlib
import ssl
import threading
import time

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from stilelib import Stile, allow, check_refusal

UNAVAILABLE = "credential_unavailable"
KEYS: dict[tuple[str, int], object] = {}


def key(kind: str, n: int = 0):
    """A private key, the same for each test of a process: RSA takes its time."""
    make = {"rsa": lambda: rsa.generate_private_key(65537, 2048), "rsa1024": lambda: rsa.generate_private_key(65537, 1024),
            "p256": lambda: ec.generate_private_key(ec.SECP256R1()), "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
            "ed25519": ed25519.Ed25519PrivateKey.generate}
    if (kind, n) not in KEYS:
        KEYS[kind, n] = make[kind]()
    return KEYS[kind, n]


def pem(private, form: str = "PKCS8", password: bytes | None = None) -> str:
    how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return private.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), how).decode()


class Asked:
    def __init__(self, method: str, path: str, headers, body: bytes):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    @property
    def bearer(self) -> str:
        assert self.headers["Authorization"].startswith("Bearer ")
        return self.headers["Authorization"][7:]

    def json(self):
        return json.loads(self.body)


class Endpoint:
    """A server; reply(asked) gives (status, JSON or bytes[, fields]). What was asked is kept."""

    def __init__(self, pki: pathlib.Path | None, reply, kind: str = "good", address=("127.0.0.1", 0), context=None):
        self.reply, self.asked = reply, []
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                asked = Asked(self.command, self.path, self.headers,
                              self.rfile.read(int(self.headers.get("Content-Length", 0))))
                endpoint.asked.append(asked)
                status, body, *fields = endpoint.reply(asked)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in (fields[0] if fields else {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    pass  # who asked has had enough

            do_POST = do_GET

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(address, Handler)
        self.server.daemon_threads = True
        if pki and not context:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pki / f"{kind}.pem", pki / f"{kind}.key")
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def start(make, sources, addresses=("127.0.0.0/8",), more: dict | None = None, **settings) -> Stile:
    """sources: `from`, without `addresses`, of the credential `a`; or a list of these, of `c0`, `c1`, ..."""
    where = {"addresses": list(addresses)} if addresses else {}
    named = {"a": sources} if isinstance(sources, dict) else {f"c{n}": x for n, x in enumerate(sources)}
    return make(rules=[allow(f"https://origin.test:*/echo/{n}/**", credential=n) for n in named],
                credentials={n: {"from": {**x, **where}, "as": "bearer", **(more or {})} for n, x in named.items()},
                **settings)


def request(s: Stile, name: str = "a"):
    return s.tls_get(f"/echo/{name}/x")


def ask(s: Stile, name: str = "a") -> str:
    """The token that the origin gets."""
    r = request(s, name)
    assert r.status == 200, r
    [value] = [v for n, v in r.json()["headers"] if n.lower() == "authorization"]
    assert value.startswith("Bearer ")
    return value[7:]


def refused(s: Stile, *why: str, name: str = "a") -> None:
    r = request(s, name)
    check_refusal(r, 503, UNAVAILABLE)
    for text in why:
        assert text in r.json()["detail"], r.json()


def nowhere(s: Stile, *secrets: str) -> None:
    """Neither in the log nor on stderr."""
    s.stop()
    for text in secrets:
        assert text not in s.stderr + s.log_path.read_text()


def stamp(seconds: float) -> str:
    """RFC 3339, so far from now."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
