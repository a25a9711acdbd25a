"""HTTP/2 on the wire, by hand: what a library would not send has to be sent. A client's side of a connection
(`Link`), an origin's (`serve`), and a request of HTTP/1 turned into fields. Knows nothing of cases and of stile."""

import re
import struct
import time

import hpack
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from wire import CRLF, Answer, parse_head, take_chunks

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
TYPES = {n: i for i, n in enumerate("data headers priority rst settings push ping goaway window continuation".split())}
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 1, 1, 4, 8, 32
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BIG = 1 << 24
HUFFMAN = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)
Fields = list[tuple[bytes, bytes]]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def settings(**more: int) -> bytes:
    """A large window for each stream and for all, so that no test waits for one."""
    return (frame(SETTINGS, 0, 0, struct.pack(">HI", 4, BIG) + b"".join(
        struct.pack(">HI", int(k[1:]), v) for k, v in more.items())) + frame(WINDOW, 0, 0, struct.pack(">I", BIG)))


def literal(text: bytes, huffman: bool) -> bytes:
    raw = HUFFMAN.encode(text) if huffman else text
    length = bytearray(hpack.hpack.encode_integer(len(raw), 7))
    length[0] |= 0x80 if huffman else 0
    return bytes(length) + raw


def block(fields: Fields, style: str = "whole") -> bytes:
    """As literals: plain, or packed and kept in the decoder's table."""
    packed = style == "bytes"
    return b"".join((b"\x40" if packed else b"\x00") + literal(n, packed) + literal(v, packed) for n, v in fields)


def head_frames(fields: Fields, stream: int, end: bool, style: str = "whole") -> list[bytes]:
    """`lines`: in seven pieces that fall where they like, behind padding and a priority."""
    raw, flags = block(fields, style), END_STREAM if end else 0
    size = max(1, -(-len(raw) // 6)) if style == "lines" else 16000
    pieces = [raw[i:i + size] for i in range(0, len(raw), size)] or [b""]
    if style == "lines":
        pieces.insert(0, b"")
        pieces[0] = b"\x03" + struct.pack(">IB", 0, 15) + pieces[0] + b"\0\0\0"
        flags |= PADDED | WITH_PRIORITY
    kinds = [HEADERS] + [CONTINUATION] * (len(pieces) - 1)
    return [frame(k, (flags if k == HEADERS else 0) | (END_HEADERS if i == len(pieces) - 1 else 0), stream, p)
            for i, (k, p) in enumerate(zip(kinds, pieces))]


def data_frames(body: bytes, stream: int, end: bool, style: str = "whole") -> list[bytes]:
    size = 7 if style == "lines" and len(body) < 200 else 16000
    pieces = [body[i:i + size] for i in range(0, len(body), size)] or [b""]
    out = []
    for i, p in enumerate(pieces):
        flags = END_STREAM if end and i == len(pieces) - 1 else 0
        out.append(frame(DATA, flags | PADDED, stream, b"\x05" + p + b"\0" * 5) if style == "lines"
                   else frame(DATA, flags, stream, p))
    return out


def from_http1(data: bytes, scheme: bytes) -> tuple[Fields, bytes | None, Fields]:
    """The fields, the body and the trailers of the request that these bytes are in HTTP/1: names in lower
    case, the first Host as :authority, chunks without their framing, all else as it stands."""
    head, _, body = data.partition(b"\r\n\r\n")
    line, *lines = head.split(CRLF)
    method, _, rest = line.partition(b" ")
    path, _, _ = rest.rpartition(b" ")
    pseudo, fields, trailers, chunked = [(b":method", method), (b":scheme", scheme), (b":path", path)], [], [], False
    for raw in lines:
        name, _, value = raw.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name == b"host" and pseudo[-1][0] != b":authority":
            pseudo.append((b":authority", value))
        elif name == b"transfer-encoding" and value == b"chunked":
            chunked = True
        else:
            fields.append((name, value))
    if chunked:
        end = body.index(b"0\r\n")
        _, tail = parse_head(b"\r\n" + body[end + 3:].rstrip(CRLF))
        trailers = [(n.encode("latin-1"), v) for n, v in tail]
        body = take_chunks(body)[0]
    return pseudo + fields, body if body or chunked else None, trailers


class Reader:
    """Frames out of bytes; decoded sections."""

    def __init__(self):
        self.buffer, self.decoder, self.open = b"", hpack.Decoder(max_header_list_size=1 << 22), None

    def take(self, data: bytes):
        """(type, flags, stream, payload); for a section HEADERS with its fields, once it is whole."""
        self.buffer += data
        while len(self.buffer) >= 9 and len(self.buffer) >= (n := 9 + int.from_bytes(self.buffer[:3], "big")):
            kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
            payload, self.buffer = self.buffer[9:n], self.buffer[n:]
            if kind in (HEADERS, DATA) and flags & PADDED:
                payload = payload[1:len(payload) - payload[0]]
            if kind == HEADERS:
                self.open = flags, payload[5:] if flags & WITH_PRIORITY else payload
            elif kind == CONTINUATION:
                self.open = self.open[0], self.open[1] + payload
            if kind in (HEADERS, CONTINUATION):
                if not flags & END_HEADERS:
                    continue
                payload = [(bytes(k), bytes(v)) for k, v in self.decoder.decode(self.open[1], raw=True)]
                kind, flags = HEADERS, self.open[0]
            yield kind, flags, stream, payload


class Link:
    """The client's side. `send(bytes)` and `recv() -> bytes` (what has come) are given; answers collect by
    stream."""

    def __init__(self, send, recv):
        self.send, self.recv = send, recv
        self.reader, self.answers, self.done, self.resets = Reader(), {}, set(), {}
        self.goaway: tuple[int, bytes] | None = None
        self.next, self.asked = 1, []
        send(PREFACE + settings())

    def ask(self, fields: Fields, body: bytes | None = None, trailers: Fields = (), end: bool = True,
            style: str = "whole", stream: int | None = None) -> int:
        if stream is None:
            stream, self.next = self.next, self.next + 2
        self.asked.append(stream)
        frames = head_frames(fields, stream, end and body is None and not trailers, style)
        if body is not None:
            frames += data_frames(body, stream, end and not trailers, style)
        if trailers:
            frames += head_frames(trailers, stream, end, "whole" if style == "lines" else style)
        if style == "lines":
            for one in frames:
                self.send(one)
        else:
            self.send(b"".join(frames))
        return stream

    def take(self) -> None:
        for kind, flags, stream, payload in self.reader.take(self.recv()):
            self.event(kind, flags, stream, payload)

    def event(self, kind: int, flags: int, stream: int, payload) -> None:
        if kind == HEADERS:
            first = stream not in self.answers or self.answers[stream].status < 200
            if first:
                old = self.answers.get(stream)
                fields = [(n.decode("latin-1"), v) for n, v in payload]
                a = Answer(int(dict(payload)[b":status"]), fields[1:],
                           b"HTTP/2 " + CRLF.join(n + b": " + v for n, v in payload[0:]) + CRLF * 2)
                a.interims = old.interims + 1 if old else 0
                self.answers[stream] = a
        elif kind == DATA:
            self.answers[stream].body += payload
        elif kind == RST:
            self.resets[stream] = int.from_bytes(payload, "big")
            self.done.add(stream)
        elif kind == GOAWAY:
            self.goaway = int.from_bytes(payload[4:8], "big"), payload[8:]
        elif kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            self.answers[stream].whole = True
            self.done.add(stream)

    def wait(self, stream: int, more, timeout: float) -> Answer | None:
        """None: no answer in that time. more(until) reads; it is false when nothing came."""
        until = time.monotonic() + timeout
        self.take()
        while stream not in self.done and more(until):
            self.take()
        a = self.answers.get(stream)
        return a if a and a.status >= 200 else None


# ---- the origin ----

HOP = {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"http2-settings"}


def malformed(fields: Fields, trailers: bool = False) -> str | None:
    """What no recipient should be sent (RFC 9113 section 8.2)."""
    names = [n for n, _ in fields]
    pseudo = [n for n in names if n[:1] == b":"]
    if trailers:
        if pseudo:
            return "pseudo-fields in trailers"
    elif names[:4] != pseudo or sorted(pseudo) != [b":authority", b":method", b":path", b":scheme"]:
        return "pseudo-fields"
    for n, v in fields:
        if not re.fullmatch(rb":?[!#$%&'*+.^_`|~0-9a-z-]+", n) or n in HOP or n == b"te" and v != b"trailers":
            return f"the name {n!r}"
        if re.search(rb"[\0-\x08\x0a-\x1f\x7f]", v) or v != v.strip(b" \t"):
            return f"the value {v!r}"
    if any(names.count(n) > 1 for n in (b"host", b"content-length", b"cookie", b"te", b"authorization")):
        return "a field twice"
    return None


class Served:
    def __init__(self, fields: Fields):
        self.fields, self.body, self.answered = fields, b"", False


def serve(sock, conn, note, answer) -> None:
    """What came is noted as the text that HTTP/1 would have brought: the request line, Host, fields, the body
    and trailers. `answer(method, path)` gives frames: maps of head, data, trailers, reset, raw, end, wait_ms."""
    reader, streams = Reader(), {}
    data = b""
    while len(data) < len(PREFACE):
        got = sock.recv(65536)
        if not got:
            return
        data += got
    if not data.startswith(PREFACE):
        conn.malformed = data
        return
    sock.sendall(settings())
    data = data[len(PREFACE):]
    while True:
        for kind, flags, stream, payload in reader.take(data):
            if not take(sock, conn, note, answer, streams, kind, flags, stream, payload):
                return
        conn.reads = sock
        data = sock.recv(65536)
        conn.reads = None
        if not data:
            return


def take(sock, conn, note, answer, streams, kind, flags, stream, payload) -> bool:
    if kind == SETTINGS and not flags & ACK:
        sock.sendall(frame(SETTINGS, ACK, 0))
    elif kind == PING and not flags & ACK:
        sock.sendall(frame(PING, ACK, 0, payload))
    elif kind == HEADERS and stream not in streams:
        s = streams[stream] = Served(payload)
        if why := malformed(payload):
            conn.malformed = why
        f = dict(payload)
        lines = [f[b":method"] + b" " + f[b":path"] + b" HTTP/1.1", b"host: " + f[b":authority"]]
        note(CRLF.join(lines + [n + b": " + v for n, v in payload if n[:1] != b":"]) + CRLF * 2)
    elif kind == HEADERS:
        if why := malformed(payload, True):
            conn.malformed = why
        note(CRLF + CRLF.join(n + b": " + v for n, v in payload) + CRLF * 2)
    elif kind == DATA:
        streams[stream].body += payload
        note(payload)
    elif kind == RST and stream in streams:
        streams[stream].answered = True
    if kind not in (HEADERS, DATA) or stream not in streams or streams[stream].answered:
        return True
    s, f = streams[stream], dict(streams[stream].fields)
    if flags & END_STREAM and int(f.get(b"content-length", len(s.body))) != len(s.body):
        conn.malformed = "DATA and content-length disagree"
    steps = answer(f[b":method"], f[b":path"], bool(flags & END_STREAM))
    if steps is not None:
        s.answered = True
        return say(sock, stream, steps)
    return True


def say(sock, stream: int, steps: list[dict]) -> bool:
    for one in steps:
        time.sleep(one.get("wait_ms", 0) / 1000)
        at = one.get("stream", stream)
        if "head" in one:
            sock.sendall(b"".join(head_frames(one["head"], at, one.get("end", False), one.get("style", "whole"))) *
                         one.get("repeat", 1))
        if "data" in one:
            sock.sendall(b"".join(data_frames(one["data"], at, one.get("end", False))))
        if "frame" in one:
            kind, flags, payload = one["frame"]
            sock.sendall(frame(TYPES.get(kind, kind), flags, at, payload) * one.get("repeat", 1))
        if "reset" in one:
            sock.sendall(frame(RST, 0, at, struct.pack(">I", one["reset"])))
        if "goaway" in one:
            sock.sendall(frame(GOAWAY, 0, 0, struct.pack(">II", one["goaway"], one.get("code", 0))))
        if one.get("close"):
            return False
    return True
