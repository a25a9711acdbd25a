"""WebSocket frames by hand (RFC 6455 section 5.2), right and wrong ones, and the cases that a conformance suite has:
framing, pings, reserved bits, opcodes, fragments, UTF-8, close, limits, compression (RFC 7692)."""

import struct
import zlib

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x37\xfa\x21\x3d"
DEFLATE = "permessage-deflate"
END = b"that is all"
ENDED = b"\x88\x02\x03\xe8"  # the server's close, with 1000


def masked(data: bytes) -> bytes:
    key = int.from_bytes((MASK * (len(data) // 4 + 1))[:len(data)], "big")
    return (int.from_bytes(data, "big") ^ key).to_bytes(len(data), "big")


def frame(opcode: int, data: bytes = b"", fin: bool = True, rsv: int = 0, mask: bool = True) -> bytes:
    head = bytes([fin << 7 | rsv << 4 | opcode])
    bit = 0x80 if mask else 0
    if len(data) < 126:
        head += bytes([bit | len(data)])
    elif len(data) < 65536:
        head += struct.pack(">BH", bit | 126, len(data))
    else:
        head += struct.pack(">BQ", bit | 127, len(data))
    return head + (MASK + masked(data) if mask else data)


def fragments(opcode: int, parts: list[bytes], between: bytes = b"", rsv: int = 0) -> bytes:
    out = b""
    for i, part in enumerate(parts):
        out += frame(CONT if i else opcode, part, fin=i == len(parts) - 1, rsv=0 if i else rsv)
        if i < len(parts) - 1:
            out += between
    return out


def cut(data: bytes, n: int) -> list[bytes]:
    return [data[i:i + n] for i in range(0, len(data), n)] or [b""]


def close(code: int | None = 1000, reason: bytes = b"") -> bytes:
    return frame(CLOSE, b"" if code is None else struct.pack(">H", code) + reason)


class Case:
    """`pieces` are written one by one; a number waits until that many bytes have come, for a server that may answer in
    one order or another if it does not get one thing before the next. ends: they end the connection (a fault, or a
    close); else END asks the server to, and its close is answered."""

    def __init__(self, name: str, sent: bytes | list, ends: bool = False, offer: str = ""):
        self.name, self.ends, self.offer = name, ends, offer
        pieces = [sent] if isinstance(sent, bytes) else sent
        self.pieces = pieces if ends else pieces + [frame(TEXT, END)]
        self.sent = b"".join(p for p in self.pieces if isinstance(p, bytes)) + (b"" if ends else close())


def framing():
    for op in (TEXT, BINARY):
        for n in (0, 1, 125, 126, 127, 128, 65535, 65536):
            yield Case(f"{op}: {n} bytes", frame(op, b"*" * n))
        yield Case(f"{op}: 65536 in 997s", cut(frame(op, b"*" * 65536), 997))
        yield Case(f"{op}: byte by byte", cut(frame(op, b"*" * 130), 1))
    yield Case("unmasked", frame(TEXT, b"hello", mask=False), ends=True)
    yield Case("a length that is too long a form", b"\x81\xfe\x00\x05" + MASK + masked(b"hello"))
    yield Case("a length of 2^63", b"\x82\xff\x80\0\0\0\0\0\0\0" + MASK, ends=True)
    yield Case("a length of 2^62", b"\x82\xff\x40\0\0\0\0\0\0\0" + MASK, ends=True)


def pings():
    for data in (b"", b"hello", bytes(range(0xf0, 0x100)), b"\xfe" * 125):
        yield Case(f"ping of {len(data)}", frame(PING, data))
    yield Case("ping of 126", frame(PING, b"\xfe" * 126), ends=True)
    yield Case("ping byte by byte", cut(frame(PING, b"\xfe" * 125), 1))
    yield Case("pong unasked", frame(PONG) + frame(PING, b"x"))
    yield Case("pong of 126", frame(PONG, b"p" * 126), ends=True)
    yield Case("ten pings", b"".join(frame(PING, b"payload-%d" % i) for i in range(10)))
    yield Case("ten pings, cut", cut(b"".join(frame(PING, b"payload-%d" % i) for i in range(10)), 3))


def reserved():
    for rsv in range(1, 8):
        yield Case(f"RSV {rsv} in text", frame(TEXT, b"small", rsv=rsv), ends=True)
        yield Case(f"RSV {rsv} behind text", [frame(TEXT, b"small"), 7, frame(TEXT, b"small", rsv=rsv)], ends=True)
        for op in (BINARY, PING, CLOSE):
            yield Case(f"RSV {rsv} in {op}", frame(op, rsv=rsv), ends=True)


def opcodes():
    for op in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15):
        yield Case(f"opcode {op}", frame(op), ends=True)
        yield Case(f"opcode {op} with a payload", frame(op, b"reserved opcode payload"), ends=True)
        yield Case(f"opcode {op} behind text", [frame(TEXT, b"hello"), 7, frame(op, b"x")], ends=True)


def fragmentation():
    yield Case("ping in fragments", fragments(PING, [b"f1", b"f2"]), ends=True)
    yield Case("pong in fragments", fragments(PONG, [b"f1", b"f2"]), ends=True)
    for op in (TEXT, BINARY):
        for n in (2, 3, 50):
            parts = [b"fragment%d" % i for i in range(n)]
            yield Case(f"{op} in {n}", fragments(op, parts))
            yield Case(f"{op} in {n}, a ping between", fragments(op, parts, between=frame(PING, b"between")))
            yield Case(f"{op} in {n}, byte by byte", cut(fragments(op, parts, between=frame(PING)), 1))
    yield Case("empty fragments", fragments(TEXT, [b"", b"", b""]))
    yield Case("only the middle has something", fragments(TEXT, [b"", b"middle", b""]))
    yield Case("nothing to continue", frame(CONT, b"non-continuation"), ends=True)
    yield Case("nothing to continue, unfinished", frame(CONT, b"non-continuation", fin=False), ends=True)
    yield Case("continued twice", [fragments(TEXT, [b"a", b"b"]), 4, frame(CONT, b"c")], ends=True)
    yield Case("text within text", frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), ends=True)
    yield Case("close within text", frame(TEXT, b"a", fin=False) + close(), ends=True)


GOOD = ["", "hello-µ@ßöäüàá-utf-8!", "κόσμε", "a\0b", "\x7f\x80\u07ff\u0800\uffff\ufffe\ufdd0\U00010000\U0010ffff",
        "\ud7ff\ue000\ufffd", "\U0001f40b" * 70]
BAD = [b"\x80", b"\xbf", b"\x80" * 7, b"\xc0", b"\xc3", b"\xe2\x82", b"\xf0\x90\x80", b"\xfe", b"\xff", b"\xfe\xfe\xff\xff",
       b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf", b"\xc1\xbf", b"\xe0\x9f\xbf",
       b"\xf0\x8f\xbf\xbf", b"\xc0\x80", b"\xed\xa0\x80", b"\xed\xaf\xbf", b"\xed\xb0\x80", b"\xed\xbf\xbf",
       b"\xed\xa0\x80\xed\xb0\x80", b"\xf4\x90\x80\x80", b"\xf7\xbf\xbf\xbf", b"\xfc\x80\x80\x80\x80\xaf",
       b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited"]


def utf8():
    for text in GOOD:
        data = text.encode()
        yield Case(f"good {data[:20]!r}", frame(TEXT, data))
        yield Case(f"good {data[:20]!r}, a fragment a byte", fragments(TEXT, cut(data, 1)))
        yield Case(f"good {data[:20]!r}, byte by byte", cut(frame(TEXT, data), 1))
    for data in BAD:
        yield Case(f"bad {data!r}", frame(TEXT, data), ends=True)
        yield Case(f"bad {data!r} in the middle", frame(TEXT, b"hello-" + data + b"-utf-8"), ends=True)
        yield Case(f"bad {data!r} as binary", frame(BINARY, data))


def closing():
    for code in (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 3000, 3999, 4000, 4999,
                 0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535):
        yield Case(f"code {code}", close(code), ends=True)
        yield Case(f"code {code} with a reason", close(code, b"reason"), ends=True)
    yield Case("no code", close(None), ends=True)
    yield Case("half a code", frame(CLOSE, b"\x03"), ends=True)
    yield Case("the longest reason", close(1000, b"*" * 123), ends=True)
    yield Case("a reason too long", close(1000, b"*" * 124), ends=True)
    yield Case("a reason that is no text", close(1000, b"\xce\xba\xed\xa0\x80"), ends=True)
    yield Case("two closes", close() + close(), ends=True)
    yield Case("a ping behind it", close() + frame(PING), ends=True)
    yield Case("text behind it", close() + frame(TEXT, b"late"), ends=True)
    yield Case("in fragments", frame(CLOSE, struct.pack(">H", 1000), fin=False), ends=True)


def limits():
    for n in (1 << 16, 1 << 20, 1 << 22, 1 << 24):
        yield Case(f"binary of {n >> 10} KiB", frame(BINARY, b"\xfe" * n))
    yield Case("text of 4 MiB", frame(TEXT, b"*" * (1 << 22)))
    yield Case("the beginning of one more", frame(BINARY, b"\xfe" * ((1 << 24) + 1))[:1000], ends=True)
    for n in (64, 1 << 10, 1 << 14):
        yield Case(f"128 KiB in fragments of {n}", fragments(BINARY, cut(b"\xfe" * (1 << 17), n)))
    yield Case("4 MiB in fragments of 256 KiB", fragments(TEXT, cut(b"*" * (1 << 22), 1 << 18)))
    for n in (61, 1021, 16381):
        yield Case(f"256 KiB written in {n}s", cut(frame(BINARY, b"\xfe" * (1 << 18)), n))
    for n in (0, 16, 64, 256, 1024):
        yield Case(f"200 messages of {n}", [frame(TEXT, b"*" * n) for _ in range(200)])


class Deflater:
    def __init__(self, bits: int = 15, takeover: bool = True):
        self.bits, self.takeover, self.z = bits, takeover, None

    def __call__(self, data: bytes) -> bytes:
        if not self.z or not self.takeover:
            self.z = zlib.compressobj(wbits=-self.bits)
        return (self.z.compress(data) + self.z.flush(zlib.Z_SYNC_FLUSH))[:-4]


def compression():
    texts = [b"{\"n\": %d, \"text\": \"compression of a WebSocket\"}" % i for i in range(20)]
    for offer, z in ((DEFLATE, Deflater), (DEFLATE + "; client_max_window_bits=9", lambda: Deflater(9)),
                     (DEFLATE + "; client_no_context_takeover", lambda: Deflater(takeover=False)),
                     (DEFLATE + "; server_no_context_takeover; server_max_window_bits=10", Deflater)):
        for n in (0, 16, 1024, 65536, 1 << 20):
            yield Case(f"{offer}: {n} bytes", frame(BINARY, z()(b"ab" * (n // 2)), rsv=4), offer=offer)
        one = z()
        yield Case(f"{offer}: 20 messages", b"".join(frame(TEXT, one(t), rsv=4) for t in texts), offer=offer)
        yield Case(f"{offer}: in fragments", fragments(TEXT, cut(z()(b" ".join(texts)), 10), frame(PING), rsv=4), offer=offer)
        yield Case(f"{offer}: byte by byte", cut(frame(TEXT, z()(texts[0]), rsv=4), 1), offer=offer)
        yield Case(f"{offer}: not compressed", frame(TEXT, b"plain"), offer=offer)
        yield Case(f"{offer}: RSV2", frame(TEXT, b"plain", rsv=2), offer=offer, ends=True)
        yield Case(f"{offer}: in a continuation", frame(TEXT, b"a", fin=False) + frame(CONT, b"b", rsv=4), offer=offer, ends=True)
        yield Case(f"{offer}: of a ping", frame(PING, b"a", rsv=4), offer=offer, ends=True)
        yield Case(f"{offer}: garbage", frame(TEXT, b"\xff" * 20, rsv=4), offer=offer, ends=True)
        yield Case(f"{offer}: no text", frame(TEXT, z()(b"\xff\xfe"), rsv=4), offer=offer, ends=True)
    yield Case("a bomb", frame(BINARY, Deflater()(bytes(1 << 25)), rsv=4), offer=DEFLATE, ends=True)
    for offer in ("permessage-deflate; server_max_window_bits=7", "x-unknown; a=b", "permessage-deflate; x",
                  "permessage-deflate; server_max_window_bits=8, permessage-deflate"):
        yield Case(f"offered: {offer}", frame(TEXT, b"hello"), offer=offer)


CASES = {f.__name__: list(f()) for f in (framing, pings, reserved, opcodes, fragmentation, utf8, closing, limits, compression)}
