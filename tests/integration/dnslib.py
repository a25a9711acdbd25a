"""DNS by hand, for the tests of the stub: questions as odd as they come, over UDP and TCP, and a plain reader of answers."""

import dataclasses
import socket
import struct

TIMEOUT = 20
A, NS, SOA, PTR, TXT, AAAA, SRV, HTTPS, ANY = 1, 2, 6, 12, 16, 28, 33, 65, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16
OPT = b"\0\0\x29\x04\xd0\0\0\0\0\0\0"


def wire(name) -> bytes:
    """A name as text, or as a list of labels of any bytes."""
    labels = [x.encode() for x in name.rstrip(".").split(".") if x] if isinstance(name, str) else name
    return b"".join(bytes([len(x)]) + x for x in labels) + b"\0"


def query(name, kind=A, ident=0x1234, flags=0x0100, klass=1, more=b"", counts=None) -> bytes:
    counts = counts or (1, 0, 0, more.startswith(b"\0\0\x29"))
    return struct.pack("!HHHHHH", ident, flags, *counts) + wire(name) + struct.pack("!HH", kind, klass) + more


@dataclasses.dataclass
class Answer:
    raw: bytes
    ident: int
    flags: int
    rcode: int
    question: bytes
    addresses: list
    ttls: list
    opt: bool


def parse(raw: bytes) -> Answer:
    ident, flags, qd, an, ns, ar = struct.unpack("!HHHHHH", raw[:12])
    assert qd <= 1 and ns == 0 and flags & 0x8000, raw
    at = 12
    if qd:
        while raw[at]:
            at += 1 + raw[at]
        at += 5
    question, addresses, ttls, opt, rcode = raw[12:at], [], [], False, flags & 15
    for _ in range(an):
        assert raw[at:at + 2] == b"\xc0\x0c", raw
        kind, klass, ttl, n = struct.unpack("!HHIH", raw[at + 2:at + 12])
        data = raw[at + 12:at + 12 + n]
        assert klass == 1 and (kind, n) in ((A, 4), (AAAA, 16)), raw
        addresses.append(socket.inet_ntop(socket.AF_INET if kind == A else socket.AF_INET6, data))
        ttls.append(ttl)
        at += 12 + n
    for _ in range(ar):
        assert raw[at] == 0, raw
        kind, _, ttl, n = struct.unpack("!HHIH", raw[at + 1:at + 11])
        assert kind == 41 and not opt, raw
        opt, rcode, at = True, rcode | ttl >> 24 << 4, at + 11 + n
    assert at == len(raw) <= 512, raw
    return Answer(raw, ident, flags, rcode, question, addresses, ttls, opt)


class Client:
    def __init__(self, port: int, host: str = "127.0.0.1"):
        self.at = (host, port)
        self.udp = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.settimeout(TIMEOUT)
        self.udp.connect(self.at)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.udp.close()

    def over_udp(self, packet: bytes) -> Answer:
        self.udp.send(packet)
        return parse(self.udp.recv(4096))

    def over_tcp(self, packet: bytes) -> Answer:
        with self.tcp() as s:
            s.sendall(framed(packet))
            return parse(read_one(s))

    def tcp(self) -> socket.socket:
        return socket.create_connection(self.at, timeout=TIMEOUT)

    def ask(self, name, kind=A, **more) -> Answer:
        """Over both, which must agree; the question echoed byte by byte."""
        packet = query(name, kind, **more)
        one, two = self.over_udp(packet), self.over_tcp(packet)
        assert one.raw == two.raw, (one, two)
        assert one.ident == more.get("ident", 0x1234)
        assert one.question in (b"", wire(name) + struct.pack("!HH", kind, more.get("klass", 1)))
        return one


def framed(packet: bytes) -> bytes:
    return struct.pack("!H", len(packet)) + packet


def read_one(s: socket.socket) -> bytes:
    """One message of a connection; b"" at its end."""
    def exactly(n):
        data = b""
        while len(data) < n:
            got = s.recv(n - len(data))
            if not got:
                return None
            data += got
        return data
    head = exactly(2)
    return exactly(struct.unpack("!H", head)[0]) or b"" if head else b""
