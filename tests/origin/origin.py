#!/usr/bin/python3
"""The test origin: HTTP/1.1 over plain TCP and TLS, honest or malformed as the path asks.

    origin.py [--pki DIR] [--record DIR] [--control DIR] [--bind ADDRESS] [--name NAME]...

Prints one JSON line with its ports, then a line for each request to /auth. Every byte received goes
at once into a file of --record for its connection (after decryption; of a large body, the first MiB).
The PKI is made when DIR has none (pki.py). It ends at SIGTERM, and with ORIGIN_FOLLOW_STDIN set
when its standard input ends.

Paths (n, ms, gate ... are query keys):
  /ok/...             200, a small body
  /echo               what was received, as JSON: method, target, headers, body, tls, connection; once more in
                      `sealed` (sealed.py), since stile blanks the credential that it added
  /auth               the fields that carry a credential, as JSON; printed on stdout too
  /status/N           that status (100..599)
  /bytes/N            N bytes, by Content-Length; /chunked?n= the same in chunks
  /close?n=           N bytes, ended by close
  /sse?n=&ms=&gate=   events; each waits ms, or for the file GATE.i in --control
  /slow?ms=&gate=     answers after ms, or once the file GATE is there
  /drip?n=&ms=        a byte at a time
  /upload?gate=       reads the body (once GATE is there), answers with its length and SHA-256
  /early?status=      answers before the body is read (401), then closes
  /continue           sends 100, reads the body, answers; /nocontinue never sends 100
  /trailers           a chunked body with trailers
  /redirect?to=       302
  /reset?after=       sends that many bytes of an answer, then resets
  /settle             answers once every byte that came on the plain port is in its file
  /bad/KIND /odd/KIND /nobody/KIND /extra/KIND       see bad.py
  /script/NAME        does what NAME.json in --control says: a list of [verb, value]:
                      send TEXT (latin-1), body (reads the request's), sleep SECONDS, wait FILE, end (half-close),
                      close, reset"""

import argparse
import hashlib
import json
import os
import pathlib
import select
import signal
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import bad  # noqa: E402
import sealed  # noqa: E402

RECORD_MAX = 1 << 20
BLOCK = bytes(range(256)) * 256
TLS_KINDS = ["good", "chained", "missing-intermediate", "expired", "not-yet-valid", "wrong-name", "no-san",
             "self-signed", "unknown-issuer", "wrong-usage"]
CREDENTIAL_FIELDS = ["authorization", "proxy-authorization", "x-api-key", "api-key", "cookie", "x-auth-token",
                     "private-token", "x-goog-api-key"]


class Gone(Exception):
    """The peer closed or reset."""


class Request:
    def __init__(self, method: str, target: str, version: str, fields: list[tuple[str, str]]):
        self.method, self.target, self.version, self.fields = method, target, version, fields
        url = urllib.parse.urlsplit(target)
        self.path, self.query = url.path, dict(urllib.parse.parse_qsl(url.query))
        self.body_read = False
        self.trailers: list[str] = []

    def get(self, name: str) -> str | None:
        return next((v for n, v in self.fields if n.lower() == name), None)

    def number(self, key: str, default: float) -> float:
        return float(self.query.get(key, default))


class Connection:
    """One accepted connection: buffered reads that are recorded, writes, ways to end."""

    count = 0
    live: set["Connection"] = set()
    lock = threading.Lock()

    def __init__(self, sock: socket.socket, origin: "Origin", tls: bool):
        with Connection.lock:
            Connection.count += 1
            self.number = Connection.count
            Connection.live.add(self)
        self.sock, self.origin, self.tls = sock, origin, tls
        self.buffer, self.recorded, self.requests = bytearray(), 0, 0
        self.sni: str | None = None
        self.file = open(origin.record / f"{self.number:06d}.bin", "wb", 0) if origin.record else None

    def fill(self, most: int = 65536) -> bool:
        recording = self.file and self.recorded < RECORD_MAX
        try:
            if recording and not self.tls:
                # Written before it is taken, so that what is no longer readable is in the file (/settle).
                data = self.sock.recv(most, socket.MSG_PEEK)
                self.keep(data)
                self.sock.recv(len(data))
            else:
                data = self.sock.recv(most)
                if recording:
                    self.keep(data)
        except (OSError, ssl.SSLError) as e:
            raise Gone from e
        self.buffer += data
        return bool(data)

    def keep(self, data: bytes) -> None:
        self.file.write(data[:RECORD_MAX - self.recorded])
        self.recorded += len(data)

    def line(self) -> bytes:
        while (end := self.buffer.find(b"\n")) < 0:
            if not self.fill():
                raise Gone
        out = bytes(self.buffer[:end + 1])
        del self.buffer[:end + 1]
        return out

    def request(self) -> Request | None:
        while not (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            if not self.fill():
                return None
        head = bytes(self.buffer[:end]).decode("latin-1")
        del self.buffer[:end + 4]
        first, *lines = head.split("\r\n")
        method, target, version = first.split(" ")
        fields = [(n, v.strip()) for n, _, v in (x.partition(":") for x in lines)]
        self.requests += 1
        return Request(method, target, version, fields)

    def take(self, n: int):
        """n body bytes, in pieces."""
        while n > 0:
            if not self.buffer and not self.fill(1 << 18):
                raise Gone
            part = bytes(self.buffer[:n])
            del self.buffer[:n]
            n -= len(part)
            yield part

    def body(self, q: Request):
        """The request's body, in pieces."""
        if q.body_read:
            return
        q.body_read = True
        if (q.get("transfer-encoding") or "").lower() == "chunked":
            while size := int(self.line().split(b";")[0], 16):
                yield from self.take(size)
                self.line()
            while (field := self.line()) != b"\r\n":
                q.trailers.append(field.decode("latin-1").strip())
        else:
            yield from self.take(int(q.get("content-length") or 0))

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except (OSError, ssl.SSLError) as e:
            raise Gone from e

    def answer(self, status: int, body: bytes = b"", *fields: str, reason: str = "Fine") -> None:
        head = [f"HTTP/1.1 {status} {reason}", *fields]
        if status >= 200 and status not in (204, 304):
            head.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)

    def answer_json(self, value: dict, status: int = 200) -> None:
        self.answer(status, json.dumps(sealed.seal(value)).encode() + b"\n", "Content-Type: application/json")

    def reset(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone

    def half_close(self) -> None:
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        with Connection.lock:
            Connection.live.discard(self)
        if self.file:
            self.file.close()
        try:
            self.sock.close()
        except OSError:
            pass


def pattern(n: int):
    """n bytes, in blocks; every run of tests gets the same ones."""
    while n > 0:
        yield BLOCK[:n] if n < len(BLOCK) else BLOCK
        n -= len(BLOCK)


# What the paths do. True: the connection may carry another request.

def do_settle(c: Connection, q: Request) -> bool:
    """Connections are accepted in order: those made before this one are known."""
    end = time.monotonic() + q.number("ms", 300) / 1000
    while time.monotonic() < end:
        with Connection.lock:
            others = [x.sock for x in Connection.live if x is not c and not x.tls and x.sock.fileno() >= 0]
        poll = select.poll()
        for sock in others:
            poll.register(sock.fileno(), select.POLLIN)
        if not poll.poll(0):
            break
        time.sleep(0.001)
    c.answer(200)
    return False


def do_ok(c: Connection, q: Request) -> bool:
    for _ in c.body(q):
        pass
    body = f"ok {q.path}\n".encode()
    c.answer(200, body if q.method != "HEAD" else b"", "Content-Type: text/plain")
    return True


def do_echo(c: Connection, q: Request) -> bool:
    body = b"".join(c.body(q))
    tls = None
    if c.tls:
        tls = {"version": c.sock.version(), "resumed": c.sock.session_reused, "sni": c.sni,
               "alpn": c.sock.selected_alpn_protocol()}
    c.answer_json({"method": q.method, "target": q.target, "version": q.version, "headers": q.fields,
                   "body": body.decode("latin-1"), "trailers": q.trailers, "tls": tls,
                   "connection": c.number, "request": c.requests})
    return True


def do_auth(c: Connection, q: Request) -> bool:
    for _ in c.body(q):
        pass
    got = {n.lower(): v for n, v in q.fields if n.lower() in CREDENTIAL_FIELDS}
    print(json.dumps({"auth": got, "target": q.target}), flush=True)
    c.answer_json({"auth": got, "target": q.target})
    return True


def do_status(c: Connection, q: Request) -> bool:
    for _ in c.body(q):
        pass
    status = int(q.path.split("/")[2])
    if status < 200:
        c.answer(status)
        status = 200
    c.answer(status, b"" if status in (204, 304) or q.method == "HEAD" else b"status\n")
    return True


def do_bytes(c: Connection, q: Request) -> bool:
    n = int(q.path.split("/")[2])
    c.send(f"HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n".encode())
    for block in pattern(0 if q.method == "HEAD" else n):
        c.send(block)
    return True


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def do_chunked(c: Connection, q: Request) -> bool:
    c.send(bad.CHUNKED)
    for block in pattern(int(q.number("n", 1000))):
        c.send(chunk(block))
    c.send(b"0\r\n\r\n")
    return True


def do_close(c: Connection, q: Request) -> bool:
    c.send(b"HTTP/1.1 200 OK\r\n\r\n")
    for block in pattern(int(q.number("n", 1000))):
        c.send(block)
    return False


def do_sse(c: Connection, q: Request) -> bool:
    until_close = "close" in q.query
    c.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
           + (b"\r\n" if until_close else b"Transfer-Encoding: chunked\r\n\r\n"))
    for i in range(int(q.number("n", 3))):
        c.origin.pause(q, f".{i}")
        event = b"data: %d\n\n" % i
        c.send(event if until_close else chunk(event))
    if not until_close:
        c.send(b"0\r\n\r\n")
    return not until_close


def do_slow(c: Connection, q: Request) -> bool:
    for _ in c.body(q):
        pass
    c.origin.pause(q)
    c.answer(200, b"slow\n")
    return True


def do_drip(c: Connection, q: Request) -> bool:
    n = int(q.number("n", 20))
    for b in b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (n, b"d" * n):
        c.send(bytes([b]))
        time.sleep(q.number("ms", 1) / 1000)
    return True


def do_upload(c: Connection, q: Request) -> bool:
    if (q.get("expect") or "").lower() == "100-continue":
        c.answer(100, reason="Continue")
    c.origin.pause(q)
    n, digest = 0, hashlib.sha256()
    for part in c.body(q):
        n += len(part)
        digest.update(part)
    c.answer_json({"bytes": n, "sha256": digest.hexdigest(), "trailers": q.trailers})
    return True


def do_early(c: Connection, q: Request) -> bool:
    c.answer(int(q.number("status", 401)), b"no\n", "Connection: close")
    c.half_close()
    while c.fill():  # without this the answer could be lost to a reset
        c.buffer.clear()
    return False


def do_continue(c: Connection, q: Request) -> bool:
    if q.path != "/nocontinue":
        c.answer(100, reason="Continue")
    body = b"".join(c.body(q))
    c.answer(200, body)
    return True


def do_trailers(c: Connection, q: Request) -> bool:
    c.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
           b"5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n")
    return True


def do_redirect(c: Connection, q: Request) -> bool:
    c.answer(302, b"", "Location: " + q.query["to"])
    return True


def do_reset(c: Connection, q: Request) -> bool:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + BLOCK
    if after := int(q.number("after", 0)):
        c.send(answer[:after])
        c.origin.pause(q)
    c.reset()
    return False


def send_table(table: dict, c: Connection, q: Request) -> bool:
    entry = table[q.path.split("/", 2)[2]]
    for _ in c.body(q):
        pass
    c.send(entry[0] if isinstance(entry, tuple) else entry)
    return False


def do_script(c: Connection, q: Request) -> bool:
    steps = json.loads((c.origin.control / (q.path.split("/")[2] + ".json")).read_text())
    for verb, *value in steps:
        if verb == "send":
            c.send(value[0].encode("latin-1"))
        elif verb == "body":
            for _ in c.body(q):
                pass
        elif verb == "sleep":
            time.sleep(value[0])
        elif verb == "wait":
            c.origin.wait_file(value[0])
        elif verb == "end":
            c.half_close()
        elif verb == "close":
            return False
        elif verb == "reset":
            c.reset()
        else:
            raise ValueError(verb)
    return True


PATHS = {"ok": do_ok, "settle": do_settle, "echo": do_echo, "auth": do_auth, "status": do_status, "bytes": do_bytes,
         "chunked": do_chunked, "close": do_close, "sse": do_sse, "slow": do_slow, "drip": do_drip,
         "upload": do_upload, "early": do_early, "continue": do_continue, "nocontinue": do_continue,
         "trailers": do_trailers, "redirect": do_redirect, "reset": do_reset, "script": do_script,
         "bad": lambda c, q: send_table(bad.BAD, c, q), "odd": lambda c, q: send_table(bad.ODD, c, q),
         "nobody": lambda c, q: send_table(bad.NO_BODY, c, q) or True,
         "extra": lambda c, q: send_table(bad.EXTRA, c, q) or True}


class Origin:
    def __init__(self, record: pathlib.Path | None, control: pathlib.Path | None):
        self.record, self.control = record, control

    def wait_file(self, name: str) -> None:
        end = time.monotonic() + 60
        while not (self.control / name).exists():
            if time.monotonic() > end:
                raise Gone
            time.sleep(0.005)

    def pause(self, q: Request, suffix: str = "") -> None:
        if "gate" in q.query:
            self.wait_file(q.query["gate"] + suffix)
        else:
            time.sleep(q.number("ms", 0) / 1000)

    def serve(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        c = Connection(sock, self, context is not None)
        try:
            if context:
                c.sock = context.wrap_socket(sock, server_side=True)
                c.sni = getattr(c.sock, "seen_sni", None)
            while q := c.request():
                do = PATHS.get(q.path.split("/")[1] if "/" in q.path else "")
                if not do:
                    for _ in c.body(q):
                        pass
                    c.answer(404, b"no such path\n")
                elif not do(c, q):
                    break
        except (Gone, OSError, ValueError, KeyError, IndexError):
            pass
        finally:
            c.close()

    def listen(self, address: str, context: ssl.SSLContext | None = None) -> int:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family, backlog=4096)
        threading.Thread(target=self.accept, args=(listener, context), daemon=True).start()
        return listener.getsockname()[1]

    def accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                time.sleep(0.05)  # out of descriptors
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(sock, context), daemon=True).start()


def note_sni(sock: ssl.SSLSocket, name: str | None, _context: ssl.SSLContext) -> None:
    sock.seen_sni = name


def tls_context(pki: pathlib.Path, kind: str = "good", **settings: object) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / f"{kind}.pem", pki / f"{kind}.key")
    context.set_alpn_protocols(["http/1.1"])
    context.sni_callback = note_sni
    for key, value in settings.items():
        setattr(context, key, value)
    return context


def tls_contexts(pki: pathlib.Path) -> dict[str, ssl.SSLContext]:
    found = {k: tls_context(pki, k) for k in TLS_KINDS}
    found["tls"] = found.pop("good")
    found["tls1.2"] = tls_context(pki, maximum_version=ssl.TLSVersion.TLSv1_2)
    found["wants-client-cert"] = tls_context(pki, verify_mode=ssl.CERT_REQUIRED)
    found["wants-client-cert"].load_verify_locations(pki / "ca.pem")
    found["wants-client-cert-1.2"] = tls_context(pki, verify_mode=ssl.CERT_REQUIRED,
                                                 maximum_version=ssl.TLSVersion.TLSv1_2)
    found["wants-client-cert-1.2"].load_verify_locations(pki / "ca.pem")
    return found


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--pki", type=pathlib.Path)
    p.add_argument("--record", type=pathlib.Path)
    p.add_argument("--control", type=pathlib.Path)
    p.add_argument("--bind", default="127.0.0.1")
    p.add_argument("--name", action="append", default=[])
    args = p.parse_args()
    for folder in (args.record, args.control):
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
    threading.stack_size(256 * 1024)
    origin = Origin(args.record, args.control)
    ports = {"plain": origin.listen(args.bind)}
    contexts = {}
    if args.pki:
        if not (args.pki / "ca.pem").exists():
            import pki
            pki.make_all(args.pki, args.name)
        contexts = tls_contexts(args.pki)
        for kind, context in contexts.items():
            ports[kind] = origin.listen(args.bind, context)
    try:
        ports["plain6"] = origin.listen("::1")
        if contexts:
            ports["tls6"] = origin.listen("::1", contexts["tls"])
    except OSError:
        pass  # a machine without IPv6
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(json.dumps({**ports, "pid": os.getpid(), "ca": str(args.pki / "ca.pem") if args.pki else None}), flush=True)
    if sys.stdin is not None and not sys.stdin.isatty() and os.environ.get("ORIGIN_FOLLOW_STDIN"):
        sys.stdin.buffer.read()
        os._exit(0)
    threading.Event().wait()


if __name__ == "__main__":
    main()
