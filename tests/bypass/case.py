"""Reads the case files and runs one variant of one input of one case; see README.md for the format.
Everything that is checked of every case, whatever it says, is in `check_always`."""

import base64
import pathlib
import re
import signal
import socket
import ssl
import time

import yaml

import h2wire
import steps
from stack import GOOD, Stack
from wire import Answer, TlsClient, take_answer

PLACES, POSITIONS, SPLITS = ["proxy", "clear", "tls"], ["first", "second"], ["whole", "bytes", "lines"]
# Over TLS with HTTP/2: from the client alone, on both sides, to the origin alone.
H2_CLIENT, H2_ORIGIN = ["h2", "h2h2"], ["h2h2", "tlsh2"]
# Every case of these classes that is tried over TLS is tried over HTTP/2 as well.
ALSO_H2 = dict.fromkeys(("matching", "credentials", "method", "log"), ("h2", "h2h2", "tlsh2"))
ALSO_H2 |= {"responses": ("h2",), "framing": ("tlsh2",)}
# What is tried of splits and positions together: all of one, each of the other.
PAIRS = [("whole", "first"), ("whole", "second"), ("bytes", "first"), ("lines", "second"), ("bytes", "second")]
H2_PAIRS = {"h2h2": [("bytes", "first"), ("lines", "second")], "tlsh2": [("whole", "first"), ("whole", "second")]}
BYTEWISE_MAX = 3000
VARIANT_MAX_S = 20


class Failed(Exception):
    pass


def expect(ok: bool, what: str, wanted, got) -> None:
    if not ok:
        raise Failed(f"{what}: expected {wanted!r}, got {got!r}"[:1500])


def as_list(x) -> list:
    return x if isinstance(x, list) else [] if x is None else [x]


def load(path: pathlib.Path) -> list[dict]:
    """The inputs of a file: what the file says, overlaid with what `each` says."""
    doc = yaml.safe_load(path.read_text())
    each = doc.pop("each", [{}])
    out = []
    for one in each:
        one = one if isinstance(one, dict) else {"V": one}
        case = doc | one
        case["expect"] = doc.get("expect", {}) | one.get("expect", {})
        case["class"], case["name"], case["file"] = path.parent.name, path.stem, str(path)
        if case["class"] == "http2":
            case["expect"].setdefault("kept", "goaway" not in case["expect"])
        out.append(case)
    return out


def variants(case: dict) -> list[tuple[str, str, str]]:
    if "steps" in case:
        return [("-", split, "-") for split in as_list(case.get("splits", ["whole"]))]
    places = as_list(case.get("places", H2_CLIENT if case["class"] == "http2" else PLACES))
    if case["class"] in ALSO_H2 and "tls" in places:
        places = [*places, *(p for p in ALSO_H2[case["class"]] if case.get("h2") is not False or p == "tlsh2")]
        if "answers" in case:
            places = [p for p in places if p not in H2_ORIGIN]
    splits, positions = as_list(case.get("splits", SPLITS)), as_list(case.get("positions", POSITIONS))
    skip = as_list(case.get("skip"))  # place/position
    return [(pl, s, po) for pl in places for s, po in H2_PAIRS.get(pl, PAIRS)
            if s in splits and po in positions and f"{pl}/{po}" not in skip]


def setup_of(case: dict, variant: tuple[str, str, str]) -> str:
    return case.get("setup", "basic") + ("/h2" if variant[0] in H2_ORIGIN else "")


def lower_names(data: bytes) -> bytes:
    """As HTTP/2 writes names; paths stay."""
    return re.sub(rb"(?m)^[A-Za-z0-9-]+:", lambda m: m[0].lower(), data)


class Run:
    """One variant under way: the texts are filled in for its place, and it keeps what was seen."""

    def __init__(self, stack: Stack, case: dict, variant: tuple[str, str, str]):
        self.place, self.split, self.position = variant
        other = case.get("h2") if self.place in H2_CLIENT else case.get("h2_origin")
        if self.place in H2_CLIENT + H2_ORIGIN and isinstance(other, dict):
            case = case | other | {"expect": case["expect"] | other.get("expect", {})}
        self.stack, self.case, self.expect = stack, case, case["expect"]
        self.over_tls = self.place == "tls" or self.place in H2_CLIENT + H2_ORIGIN
        self.port = stack.tls if self.over_tls else stack.origin.http
        self.link: h2wire.Link | None = None
        self.host = f"allowed.test:{self.port}"
        self.at = f"http://{self.host}" if self.place == "proxy" else ""
        self.sock = self.plain = None
        self.buffer, self.eof, self.broken = b"", False, False
        self.answers: list[Answer] = []
        self.wanted: list[str] = []  # records
        self.sent = b""
        self.clients: set[str] = set()
        self.addresses: dict[str, str] = {}  # that the steps asked for
        self.tokens: dict[str, str] = {}  # of the sandboxes that the steps made, by name

    # ---- texts ----

    def fill(self, text: str, deep: bool = True) -> str:
        values = {"at": self.at, "host": self.host, "port": self.port, "scheme": "https" if self.over_tls
                  else "http"} | self.stack.values()
        for name, token in self.tokens.items():
            values |= {name: token, f"{name}_basic": base64.b64encode(f"sandbox:{token}".encode()).decode()}
        for key in ("V", "W", "N"):
            if deep and f"{{{key}}}" in text:
                text = text.replace(f"{{{key}}}", self.fill(str(self.case.get(key, "")), False))
        for key, value in values.items():
            text = text.replace("{" + key + "}", str(value))
        return text

    def bytes(self, text: str) -> bytes:
        """Each character is a byte; `<a*70000>` stands for as many of them."""
        raw = self.fill(text).encode("latin-1")
        return re.sub(rb"<([^<>]+?)\*(\d+)>", lambda m: m[1] * int(m[2]), raw, flags=re.S)

    # ---- the client's side ----

    def connect(self) -> None:
        s = socket.create_connection(("127.0.0.1", self.stack.ports[0]), 5)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.take(s)
        if self.place == "clear" or self.over_tls:
            self.open_tunnel(f"allowed.test:{self.port}")
        if self.over_tls:
            self.start_tls("allowed.test", self.stack.trust_h2 if self.place in H2_CLIENT else None)
        if self.place in H2_CLIENT:
            self.start_h2()
        if self.position == "second":
            self.good()

    def take(self, s: socket.socket) -> None:
        self.clients.add("%s:%d" % s.getsockname())
        self.sock = self.plain = s
        self.buffer, self.eof, self.broken, self.link = b"", False, False, None

    def dial(self, target: str) -> None:
        """As a client that knows no proxy: a name is asked for, unless it was before, and its address dialled."""
        name, _, port = target.rpartition(":")
        address = name if name[-1].isdigit() else self.addresses.get(name) or self.stack.world.inside.resolve(name)
        s = self.stack.world.inside.socket()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.connect((address, int(port)))
        self.take(s)

    def open_tunnel(self, target: str) -> None:
        self.sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode("latin-1"))
        a = self.read_answer(connect=True)
        expect(a is not None and a.status == 200, "CONNECT " + target, 200, a and a.status)
        expect(not a.get("content-length") and not a.get("transfer-encoding"), "200 to CONNECT", "no framing", a.head)

    def start_tls(self, name: str | None, trust: ssl.SSLContext | None = None, fragment: int = 0) -> None:
        if fragment or self.split == "bytes":
            self.sock = TlsClient(self.plain, trust or self.stack.trust, name, fragment, self.split == "bytes")
        else:
            self.plain.settimeout(5)
            self.sock = (trust or self.stack.trust).wrap_socket(self.plain, server_hostname=name,
                                                                        suppress_ragged_eofs=False)

    def start_h2(self) -> None:
        self.link = h2wire.Link(self.send_raw, self.take_buffer)

    def take_buffer(self) -> bytes:
        data, self.buffer = self.buffer, b""
        return data

    def send_raw(self, data: bytes) -> None:
        size = len(data) or 1 if self.split != "bytes" else 997 if len(data) > BYTEWISE_MAX else 1
        try:
            for i in range(0, len(data), size):
                self.sock.sendall(data[i:i + size])
        except (OSError, ssl.SSLError):
            pass

    def h2_fields(self, lines) -> h2wire.Fields:
        """[name, value], or `name: value` in one text."""
        return [tuple(map(self.bytes, one)) if isinstance(one, list) else
                re.fullmatch(rb"(:?[^:]*): ?(.*)", self.bytes(one), re.S).groups() for one in lines or []]

    def ask_h2(self, one: dict) -> int:
        """A request as a map says: `set`, `without`, `before`, `with` change the usual fields."""
        if "send" in one:
            fields, body, trailers = h2wire.from_http1(self.bytes(one["send"]), b"https")
        else:
            usual = {":method": "GET", ":scheme": "https", ":authority": "{host}", ":path": "/ok/a"} | one.get("set", {})
            fields = self.h2_fields([*one.get("before", []), *([k, v] for k, v in usual.items() if k not in
                                     as_list(one.get("without"))), *one.get("with", [])])
            body = self.bytes(one["body"]) if "body" in one else None
            trailers = self.h2_fields(one.get("trailers"))
        self.sent += b"".join(n + b": " + v + b"\n" for n, v in fields) + (body or b"")
        return self.link.ask(fields, body, trailers, one.get("end", True), self.split, one.get("stream"))

    def good(self) -> None:
        """A request that is admitted and answered: before the case, and after one that keeps the connection."""
        at, host = self.at, self.host
        if self.link:
            stream = self.link.ask([(b":method", b"GET"), (b":scheme", b"https"), (b":path", GOOD),
                                    (b":authority", host.encode())])
            a = self.link.wait(stream, self.more, 5)
        else:
            self.sock.sendall(f"GET {at}{GOOD.decode()} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            a = self.read_answer()
        expect(a is not None and a.status == 200 and a.body == b"ok", "a good request on the same connection",
               "200 ok", (a and a.status, a and a.body, self.eof))
        self.wanted += ["request.start", "request.end"]

    def send(self, data: bytes) -> None:
        self.sent += data
        if self.split == "bytes" and len(data) <= BYTEWISE_MAX:
            pieces = [data[i:i + 1] for i in range(len(data))]
        elif self.split == "bytes":
            pieces = [data[i:i + 997] for i in range(0, len(data), 997)]
        elif self.split == "lines":
            pieces = re.findall(rb"[^\n]*\n|[^\n]+", data)
            pieces = pieces if len(pieces) < 60 else [data]
        else:
            pieces = [data]
        try:
            for i, piece in enumerate(pieces):
                self.sock.sendall(piece)
                if self.split == "lines" and i < 6:
                    time.sleep(0.001)
        except (OSError, ssl.SSLError):
            pass  # refused while we still talk; the answer says so

    def more(self, until: float) -> bool:
        """Reads once. False: nothing came in time, or the end."""
        if self.eof:
            return False
        self.sock.settimeout(max(0.001, until - time.monotonic()))
        try:
            data = self.sock.recv(65536)
        except (TimeoutError, ssl.SSLWantReadError):
            return False
        except (OSError, ssl.SSLError):
            self.eof = self.broken = True
            return False
        self.eof = not data
        self.buffer += data
        return bool(data)

    def read_answer(self, timeout: float = 5, connect: bool = False, head: bool = False) -> Answer | None:
        until = time.monotonic() + timeout
        while True:
            found = take_answer(self.buffer, self.eof, head, connect)
            if found:
                self.buffer = self.buffer[found[1]:]
                return found[0]
            if not self.more(until) and (self.eof or time.monotonic() >= until):
                found = take_answer(self.buffer, self.eof, head, connect)
                if found:
                    self.buffer = self.buffer[found[1]:]
                return found[0] if found else None

    def read_end(self, timeout: float = 5) -> bool:
        until = time.monotonic() + timeout
        while not self.eof and time.monotonic() < until:
            self.more(until)
        return self.eof

    def close(self) -> None:
        if self.plain:
            self.plain.close()
            if self.sock is not self.plain:
                self.sock.close()

    # ---- one request or more, and what is to come of it ----

    def play(self) -> None:
        e, o = self.expect, self.stack.origin
        o.answers = [self.script(a) for a in as_list(self.case.get("answers"))]
        if "steps" in self.case:
            steps.play(self)
            return
        statuses = e.get("statuses") or [e.get("status", 200)]
        self.connect()
        mark, self.mark_done = o.mark(), True
        if self.link:
            self.play_h2(mark)
            return
        data = self.bytes(self.case["send"])
        self.send(data)
        if self.case.get("half_close"):
            self.plain.shutdown(socket.SHUT_WR)
        method = data.lstrip(b"\r\n").split(b" ")[0]
        for wanted in statuses:
            a = self.read_answer(self.case.get("timeout", 5), head=method == b"HEAD")
            if wanted == "cut":
                expect(a is None or not a.whole or self.broken, "the answer", "one that is visibly cut",
                       a and (a.status, a.body[:80]))
                self.answers.append(a)
                break
            expect(a is not None, "the answer", wanted, f"none (end: {self.eof}, read: {self.buffer[:200]!r})")
            self.answers.append(a)
            expect(a.status in as_list(wanted), "status", wanted, (a.status, a.reason(), a.body[:300]))
            self.want_records(a)
        self.check_answers()
        if e.get("kept"):
            seen = o.since(mark)
            self.good()
        else:
            if e.get("kept") is False:
                expect(self.read_end(), "the connection", "closed", "open")
                expect(self.buffer == b"", "bytes behind the answer", b"", self.buffer)
            seen = None
        self.close()
        self.check_records()
        self.check_origin(o.since(mark) if seen is None else seen)

    def play_h2(self, mark: dict) -> None:
        """A stream's fault is no fault of the connection: `kept: false` is HTTP/1's."""
        e, o, link = self.expect, self.stack.origin, self.link
        stream = self.ask_h2(self.case)
        a = link.wait(stream, self.more, self.case.get("timeout", 5))
        cut = e.get("reset") or e.get("statuses") == ["cut"]
        status = "none" if a is None and cut else [e.get("status", 200), 200] if cut else e.get("status", 200)
        if "goaway" in e:
            self.check_goaway(e["goaway"])
        if e.get("may_be_cut") and stream in link.resets:
            pass  # however much of an answer was out by then
        elif status == "none":
            expect(a is None, "the answer", "none", a and (a.status, a.reason(), a.body[:300]))
        else:
            expect(a is not None, "the answer", status, f"none (resets: {link.resets}, goaway: {link.goaway}, end: {self.eof})")
            self.answers.append(a)
            expect(a.status in as_list(status), "status", status, (a.status, a.reason(), a.body[:300]))
            self.want_records(a)
            self.check_answers()
        if cut:
            expect(stream in link.resets and not (a and a.whole), "the stream", "cut by a reset", (a, link.resets))
        elif a is not None and "goaway" not in e and not (e.get("may_be_cut") and stream in link.resets):
            expect(a.whole, "the answer", "a whole one", (a.status, a.body[:300], link.resets))
        seen = o.since(mark) if e.get("kept") is not None else None
        if e.get("kept") is not None and "goaway" not in e:
            self.good()
        self.close()
        self.check_records()
        self.check_origin(o.since(mark) if seen is None else seen)

    def check_goaway(self, wanted) -> None:
        self.link.take()
        until = time.monotonic() + 5
        while self.more(until):
            self.link.take()
        code = self.link.goaway and self.link.goaway[0]
        expect(self.eof and code is not None and (wanted is True or code in as_list(wanted)), "the connection",
               f"ended with GOAWAY {wanted}", (self.eof, self.link.goaway))

    def script(self, entry):
        if isinstance(entry, list):  # frames
            return [{k: self.h2_fields(v) if k == "head" else self.bytes(v) if k == "data" else
                     [*v[:2], self.bytes(v[2])] if k == "frame" else v for k, v in one.items()} for one in entry]
        if isinstance(entry, str):
            return self.bytes(entry)
        return {k: self.bytes(v) if isinstance(v, str) else v for k, v in entry.items()}

    def want_records(self, a: Answer) -> None:
        if "records" in self.expect:
            return
        reason = a.reason()
        if reason is None or a.status in (502, 504) and "answers" in self.case:
            self.wanted += ["request.start", "request.end"]
        else:
            self.wanted.append("request.deny " + reason)

    def check_answers(self) -> None:
        e, last = self.expect, self.answers[-1]
        if e.get("reason"):
            reasons = [a.reason() for a in self.answers if a and a.reason()]
            expect(bool(reasons) and all(r in as_list(e["reason"]) for r in reasons), "reason", e["reason"], reasons)
        for a in self.answers:
            if a and a.reason():
                expect(a.get("cache-control") == b"no-store", "Cache-Control of a refusal", "no-store", a.head)
        if e.get("body") is not None:
            expect(last.body == self.bytes(e["body"]) and last.whole, "body", e["body"], last.body[:300])
        for text in as_list(e.get("client_has")):
            fold = bytes.lower if self.link else bytes
            expect(fold(self.bytes(text)) in fold(last.head + last.body), "the answer has", text, last.head + last.body[:300])
        for text in as_list(e.get("client_lacks")):
            expect(self.bytes(text).lower() not in (last.head + last.body).lower(), "the answer lacks", text,
                   last.head + last.body[:300])

    # ---- records ----

    def check_records(self) -> None:
        wanted = self.wanted + [self.fill(r) for r in as_list(self.expect.get("records"))]
        until, found = time.monotonic() + 4, []
        while True:
            found += self.stack.records()
            if len(found) >= len(wanted) or time.monotonic() > until:
                break
            time.sleep(0.002)
        found += self.stack.records()
        self.check_always(found)
        rest = list(found)
        for w in sorted(wanted, key=len, reverse=True):  # those that ask for most choose first
            event, _, reasons = w.partition(" ")
            hit = next((r for r in rest if r["event"] == event and
                        (not reasons or r.get("reason", r.get("error")) in reasons.split("|"))), None)
            expect(hit is not None, "records", wanted, [(r["event"], r.get("reason", r.get("error"))) for r in found])
            rest.remove(hit)
        expect(not rest, "records", wanted, [(r["event"], r.get("reason", r.get("error"))) for r in found])
        if "log_has" in self.expect:
            for text in as_list(self.expect["log_has"]):
                expect(any(self.bytes(text) in r["_line"] for r in found), "the record has", text,
                       [r["_line"] for r in found])
        for text in as_list(self.expect.get("log_lacks")):
            expect(not any(self.bytes(text) in r["_line"] for r in found), "the record lacks", text,
                   [r["_line"] for r in found])
        self.found = found

    def check_always(self, found: list[dict]) -> None:
        starts = [r["id"] for r in found if r["event"].endswith(".start")]
        ends = [r["id"] for r in found if r["event"].endswith(".end")]
        expect(sorted(starts) == sorted(ends), "each start has one end", starts, ends)
        for r in found:
            expect(r.get("client") in self.clients, "the record's client", self.clients, r)
            line = r["_line"]
            expect(self.stack.secret.encode() not in line, "the log", "no secret", line)
            for token in self.tokens.values():
                expect(token.encode() not in line, "the log", "no token", line)
            expect(all(32 <= b < 127 or b >= 0x80 for b in line), "the log", "no control byte", line)
            if r["event"].endswith(".deny"):
                expect(r.get("decision") == "deny" and "reason" in r, "a deny record", "its reason", r)
        ids = {r["id"] for r in found}
        for a in self.answers:
            json = a and a.get("content-type", b"").startswith(b"application/json")
            if json and a.body and a.reason() not in (None, "log_unavailable"):
                one = re.search(rb'"id":"([^"]+)"', a.body)
                expect(one is not None and one[1].decode() in ids, "the id in the answer", ids, a.body)
        expect(self.stack.proc.poll() is None, "stile", "alive", self.stack.said())

    # ---- the origin ----

    def check_origin(self, seen) -> None:
        e = self.expect
        refused = (all(a is None or a.reason() for a in self.answers) and "answers" not in self.case and
                   not any("start" in r for r in as_list(e.get("records"))))
        wanted = e.get("origin", "nothing" if refused and self.answers else None)
        same = lower_names if self.place in H2_CLIENT + H2_ORIGIN or self.link else bytes
        got = same(b"".join(data for _, data in seen))
        if wanted == "nothing":
            expect(not seen, "the origin received", "nothing, no connection either", got or "a connection")
        elif wanted is not None:
            for text in as_list(wanted):
                expect(same(self.bytes(text)) in got, "the origin received", text, got[:1000])
        if "origin_exact" in e:
            expect(got == same(self.bytes(e["origin_exact"])), "the origin received", self.bytes(e["origin_exact"]), got)
        if "requests" in e:
            n = len(re.findall(rb"(?:^|\r\n)[A-Za-z-]+ [^ \r\n]+ HTTP/1\.1\r\n", got))
            expect(n == e["requests"], "requests at the origin", e["requests"], got[:1000])
        for text in as_list(e.get("origin_lacks")):
            expect(self.bytes(text).lower() not in got.lower(), "the origin received", f"no {text}", got[:1000])
        for conn, data in seen:
            if not e.get("raw"):
                expect(conn.malformed is None, "the origin received", "well-formed requests", conn.malformed)
            expect(b"LEAK" not in data, "the origin received", "nothing marked LEAK", data[:1000])
            for line in data.split(b"\r\n"):
                if line.lower().startswith(b"host:") and not e.get("raw"):
                    expect(b"evil" not in line, "the origin's Host", "not evil.test", line)
            if not conn.tls:
                expect(self.stack.secret.encode() not in data, "in clear", "no secret", data[:1000])


def too_long(*_) -> None:
    raise Failed(f"took more than {VARIANT_MAX_S} s")


def run(stack: Stack, case: dict, variant: tuple[str, str, str]) -> str | None:
    """None, or what was wrong."""
    r = Run(stack, case, variant)
    stack.origin.forget()
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(VARIANT_MAX_S)
    try:
        r.play()
        return None
    except Failed as e:
        problem = str(e)
    except Exception as e:  # noqa: BLE001  a fault of the driver or of the case is a failure as well
        problem = f"{type(e).__name__}: {e}"
    finally:
        signal.alarm(0)
    r.close()
    time.sleep(0.3)
    stack.records()  # what is left of this one is not the next one's
    return f"{problem}\n    sent: {r.sent[:400]!r}"
