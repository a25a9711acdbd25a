"""A Vault to ask: a state machine of its own that keeps to the published HTTP API (tokens with ends, renewals and uses;
leases up to a most; wrapping; namespaces; sealing; standby), and a real one, where it was built. What each of its
requests was stands in `asked`."""

import http.server
import json
import os
import pathlib
import secrets
import ssl
import subprocess
import threading
import time
import urllib.request

from stilelib import REPO, TIMEOUT

REAL = pathlib.Path(os.environ.get("STILE_VAULT", REPO / "build" / "vault" / "vault"))


class Refuse(Exception):
    def __init__(self, status: int, *errors: str, **fields: str):
        self.status, self.errors, self.fields = status, list(errors), fields


class Ends:
    """Something with an end: a token or a lease."""

    def __init__(self, ttl: float, most: float = 0, renewable: bool = True):
        now = time.monotonic()
        self.id = secrets.token_urlsafe(18)
        self.ttl, self.renewable = ttl, renewable
        self.born, self.most = now, most
        self.ends = now + ttl if ttl else None
        self.revoked = False
        self.parent: Ends | None = None  # a lease's token, with which it ends

    @property
    def alive(self) -> bool:
        return (not self.revoked and (self.ends is None or time.monotonic() < self.ends)
                and (self.parent is None or self.parent.alive))

    @property
    def left(self) -> float:
        return 0 if self.ends is None else max(0, self.ends - time.monotonic())

    def renew(self, increment: float) -> None:
        now = time.monotonic()
        self.ends = now + (increment or self.ttl)
        if self.most:
            self.ends = min(self.ends, self.born + self.most)


class Vault:
    """https://127.0.0.1:PORT. Change its attributes to change what it does."""

    def __init__(self, pki: pathlib.Path):
        self.lock = threading.RLock()
        self.asked: list[tuple[str, str]] = []  # method and path
        self.fields: list[dict[str, str]] = []
        self.tokens: dict[str, Ends] = {}
        self.leases: dict[str, Ends] = {}
        self.kv: dict[str, list[dict | None]] = {}  # version 2: every version; None: deleted
        self.kv1: dict[str, dict] = {}
        self.made: list[dict] = []  # dynamic users
        self.role_id, self.secret_id = secrets.token_urlsafe(9), secrets.token_urlsafe(9)
        self.wrapped: dict[str, dict] = {}
        self.jwt = secrets.token_urlsafe(9)
        self.sealed, self.standby, self.namespace = False, None, ""
        self.denied: set[str] = set()  # paths that no policy allows
        self.token_ttl, self.token_most, self.token_type, self.token_renewable = 3600.0, 0.0, "service", True
        self.lease_ttl, self.lease_most, self.lease_renewable = 3600.0, 0.0, True
        self.gate: threading.Event | None = None  # what answers wait for
        vault = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with vault.lock:
                    vault.asked.append((self.command, self.path))
                    vault.fields.append(dict(self.headers))
                if vault.gate:
                    vault.gate.wait(TIMEOUT)
                more = {}
                try:
                    with vault.lock:
                        answer = vault.answer(self.command, self.path, dict(self.headers),
                                              json.loads(body) if body else {})
                    status = 200 if answer is not None else 204
                except Refuse as e:
                    status, answer, more = e.status, {"errors": e.errors}, e.fields
                text = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # a handshake that the test wants to fail

        self.server = Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "good.pem", pki / "good.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    # what it holds

    def give_token(self, ttl: float | None = None, type: str | None = None) -> str:
        t = Ends(self.token_ttl if ttl is None else ttl, self.token_most, self.token_renewable)
        t.type = type or self.token_type
        t.renewable &= t.type != "batch"
        t.id = ("hvb." if t.type == "batch" else "hvs.") + t.id
        self.tokens[t.id] = t
        return t.id

    def wrap(self, data: dict) -> str:
        token = "hvs." + secrets.token_urlsafe(18)
        self.wrapped[token] = data
        return token

    def revoke_token(self, token: str) -> None:
        self.tokens[token].revoked = True

    def alive(self, things: dict[str, Ends]) -> list[str]:
        with self.lock:
            return [k for k, t in things.items() if t.alive]

    def valid(self, user: str, password: str) -> bool:
        """Would the database take it?"""
        with self.lock:
            return any(m["user"] == user and m["password"] == password and self.leases[m["lease"]].alive
                       for m in self.made)

    # the API

    def answer(self, method: str, path: str, headers: dict, body: dict) -> dict | None:
        path, _, query = path.removeprefix("/v1/").partition("?")
        if self.sealed:
            raise Refuse(503, "Vault is sealed")
        if self.standby:
            raise Refuse(307, Location=self.standby + "/v1/" + path)
        if headers.get("X-Vault-Namespace", "") != self.namespace:
            raise Refuse(403, "namespace not authorized")
        if path.startswith("auth/") and path.endswith("/login"):
            return self.login(path, body)
        token = headers.get("X-Vault-Token", "")
        if path == "sys/wrapping/unwrap":
            if token not in self.wrapped:
                raise Refuse(400, "wrapping token is not valid or does not exist")
            return {"data": self.wrapped.pop(token)}
        t = self.tokens.get(token)
        if not t or not t.alive or path in self.denied:
            raise Refuse(403, "1 error occurred:\n\t* permission denied\n\n")
        if t.type == "batch" and path == "auth/token/revoke-self":
            raise Refuse(400, "batch tokens cannot be revoked")
        return self.do(t, method, path, query, body)

    def login(self, path: str, body: dict) -> dict:
        if path == "auth/approle/login":
            if (body.get("role_id"), body.get("secret_id")) != (self.role_id, self.secret_id):
                raise Refuse(400, "invalid role or secret ID")
        elif path == "auth/kubernetes/login" or path == "auth/k8s/east/login":
            if (body.get("role"), body.get("jwt")) != ("ci", self.jwt):
                raise Refuse(403, "permission denied")
        else:
            raise Refuse(403, "permission denied")
        return self.auth(self.tokens[self.give_token()])

    def auth(self, t: Ends) -> dict:
        return {"lease_id": "", "lease_duration": 0, "renewable": False, "data": None, "auth": {
            "client_token": t.id, "accessor": "a", "policies": ["default"], "lease_duration": round(t.left, 3),
            "renewable": t.renewable, "token_type": t.type}}

    def do(self, t: Ends, method: str, path: str, query: str, body: dict) -> dict | None:
        match method, path.split("/"):
            case "GET", ["auth", "token", "lookup-self"]:
                return {"data": {"ttl": round(t.left, 3), "creation_ttl": t.ttl, "renewable": t.renewable}}
            case "POST" | "PUT", ["auth", "token", "renew-self"]:
                if not t.renewable:
                    raise Refuse(400, "lease is not renewable")
                t.renew(body.get("increment", 0))
                return self.auth(t)
            case "POST" | "PUT", ["auth", "token", "revoke-self"]:
                return self.revoke_token(t.id)
            case "POST" | "PUT", ["sys", "leases", verb]:
                lease = self.leases.get(body.get("lease_id", ""))
                if not lease or not lease.alive:
                    raise Refuse(400, "lease not found")
                if verb == "revoke":
                    lease.revoked = True
                    return None
                if not lease.renewable:
                    raise Refuse(400, "lease is not renewable")
                lease.renew(body.get("increment", 0))
                return {"lease_id": lease.id, "lease_duration": round(lease.left, 3), "renewable": True}
            case "GET", ["database", "creds", role]:
                return self.make(t, f"database/creds/{role}/")
            case "GET", ["secret", "data", *name]:
                return self.read_kv(self.kv.get("/".join(name)), query)
            case "GET", ["kv1", *name] if "/".join(name) in self.kv1:
                return {"lease_id": "", "lease_duration": 2764800, "renewable": False,
                        "data": self.kv1["/".join(name)]}
        raise Refuse(404)

    def make(self, t: Ends, prefix: str) -> dict:
        lease = Ends(self.lease_ttl, self.lease_most, self.lease_renewable)
        lease.id = prefix + lease.id
        self.leases[lease.id] = lease
        lease.parent = t
        made = {"user": "v-" + secrets.token_hex(4), "password": secrets.token_urlsafe(12), "lease": lease.id}
        self.made.append(made)
        return {"lease_id": lease.id, "lease_duration": lease.ttl, "renewable": lease.renewable,
                "data": {"username": made["user"], "password": made["password"], "port": 5432}}

    def read_kv(self, versions: list | None, query: str) -> dict:
        n = int(query.removeprefix("version=")) if query else len(versions or [])
        if not versions or n > len(versions):
            raise Refuse(404)
        meta = {"version": n, "destroyed": False, "deletion_time": "", "created_time": "2026-01-01T00:00:00Z"}
        if versions[n - 1] is None:
            raise Refuse(404)  # with its metadata, which nobody needs
        value = dict(versions[n - 1])
        meta["deletion_time"] = value.pop("deletion_time", "")
        return {"lease_id": "", "lease_duration": 0, "renewable": False, "data": {"data": value, "metadata": meta}}


class RealVault:
    """The real one (tests/vault): a KV engine of version 2 at secret/, one whose secrets have leases at
    leased/, AppRole."""

    def __init__(self, pki: pathlib.Path):
        self.proc = subprocess.Popen([REAL, pki / "good.pem", pki / "good.key"], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said = json.loads(self.proc.stdout.readline())
        self.port, self.root, self.key = said["port"], said["token"], said["key"]
        self.context = ssl.create_default_context(cafile=pki / "ca.pem")

    def stop(self) -> None:
        self.proc.stdin.close()
        self.proc.wait(TIMEOUT)

    def __call__(self, method: str, path: str, body: dict | None = None, token: str | None = None,
                 wrap: str | None = None):
        """The status and the JSON of the answer."""
        headers = {"X-Vault-Token": token or self.root, "X-Vault-Request": "true"}
        if wrap:
            headers["X-Vault-Wrap-TTL"] = wrap
        r = urllib.request.Request(f"https://127.0.0.1:{self.port}/v1/{path}", method=method, headers=headers,
                                   data=json.dumps(body).encode() if body is not None else None)
        try:
            with urllib.request.urlopen(r, context=self.context, timeout=TIMEOUT) as a:
                text = a.read()
                return a.status, json.loads(text) if text else None
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read() or b"null")
