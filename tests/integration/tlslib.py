"""A TLS peer that sends what no library would: after a handshake of Python's own, the keys are taken from its key
log, and each record is made here: any type, any content, any padding, in any order (RFC 8446 sections 5 and 7, RFC
5246 section 6). AES-GCM alone. What comes back is read by Python as usual."""

import hmac
import os
import socket
import ssl
import struct
import tempfile

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALERT, HANDSHAKE, DATA = 21, 22, 23
HELLO_REQUEST, CLIENT_HELLO, NEW_SESSION_TICKET, CERTIFICATE_REQUEST, KEY_UPDATE = 0, 1, 4, 13, 24
USER_CANCELED, NO_RENEGOTIATION = 90, 100


def message(kind: int, body: bytes) -> bytes:
    """A handshake message."""
    return bytes([kind]) + len(body).to_bytes(3, "big") + body


def ticket(size: int = 1, nonce: bytes = b"") -> bytes:
    """A NewSessionTicket of TLS 1.3 (section 4.6.1)."""
    return message(NEW_SESSION_TICKET, struct.pack(">IIB", 7200, 0, len(nonce)) + nonce + struct.pack(">H", size)
                   + os.urandom(size) + b"\0\0")


class Keys:
    """What one direction is encrypted with from here on."""

    def __init__(self, version: int, hash_name: str):
        self.version, self.hash, self.number = version, hash_name, 0

    def expand(self, secret: bytes, label: bytes, n: int) -> bytes:
        """HKDF-Expand-Label with no context; at most one block."""
        label = b"tls13 " + label
        info = struct.pack(">HB", n, len(label)) + label + b"\0\x01"
        return hmac.digest(secret, info, self.hash)[:n]

    def take_secret(self, secret: bytes) -> None:
        self.secret, self.number = secret, 0
        self.key = AESGCM(self.expand(secret, b"key", 16 if self.hash == "sha256" else 32))
        self.iv = self.expand(secret, b"iv", 12)

    def update(self) -> None:
        """What a KeyUpdate that was sent begins."""
        self.take_secret(self.expand(self.secret, b"traffic upd", len(self.secret)))

    def take_block(self, master: bytes, randoms: bytes, server: bool) -> None:
        """TLS 1.2: the key block, of which the ends have a half each."""
        seed = a = b"key expansion" + randoms
        out, n = b"", 16 if self.hash == "sha256" else 32
        while len(out) < 2 * (n + 4):
            a = hmac.digest(master, a, self.hash)
            out += hmac.digest(master, a + seed, self.hash)
        self.key = AESGCM(out[n:2 * n] if server else out[:n])
        self.iv, self.number = out[2 * n + 4 * server:][:4], 1  # Finished was the first

    def seal(self, kind: int, content: bytes, padding: int = 0) -> bytes:
        if self.version == 13:
            inner = content + bytes([kind]) + bytes(padding)
            head = struct.pack(">BHH", DATA, 0x303, len(inner) + 16)
            nonce = (int.from_bytes(self.iv, "big") ^ self.number).to_bytes(12, "big")
            sealed = self.key.encrypt(nonce, inner, head)
        else:
            number = struct.pack(">Q", self.number)
            sealed = number + self.key.encrypt(self.iv + number, content,
                                               number + struct.pack(">BHH", kind, 0x303, len(content)))
            head = struct.pack(">BHH", kind, 0x303, len(sealed))
        self.number += 1
        return head + sealed


class Tls:
    """One end of a connection. `sock` is connected, and a proxy may have answered on it already."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, name: str | None = None, server: bool = False):
        self.sock, self.server, self.arrived = sock, server, b""
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with tempfile.NamedTemporaryFile(prefix="keys") as f:
            context.keylog_filename = f.name
            self.ssl = context.wrap_bio(self.incoming, self.outgoing, server_side=server, server_hostname=name)
            context.keylog_filename = None  # closes it
            context.keylog_filename = f.name
            self.sent = b""
            self.handshake()
            context.keylog_filename = None
            self.take_keys(open(f.name, encoding="ascii").read())

    def handshake(self) -> None:
        while True:
            try:
                self.ssl.do_handshake()
                return
            except ssl.SSLWantReadError:
                pass
            finally:
                self.flush()
            self.fill()

    def take_keys(self, log: str) -> None:
        lines = [x.split() for x in log.splitlines() if not x.startswith("#")]
        self.keys = Keys(13 if self.ssl.version() == "TLSv1.3" else 12,
                         "sha384" if "SHA384" in self.ssl.cipher()[0] else "sha256")
        if self.keys.version == 13:
            label = f"{'SERVER' if self.server else 'CLIENT'}_TRAFFIC_SECRET_0"
            self.keys.take_secret(bytes.fromhex([x[2] for x in lines if x[0] == label][-1]))
        else:
            _, client_random, master = [x for x in lines if x[0] == "CLIENT_RANDOM"][-1]
            server_random = (self.sent if self.server else self.arrived)[11:43]
            self.keys.take_block(bytes.fromhex(master), server_random + bytes.fromhex(client_random), self.server)

    def flush(self) -> None:
        data = self.outgoing.read()
        self.sent += data
        self.sock.sendall(data)

    def fill(self) -> bool:
        data = self.sock.recv(65536)
        self.arrived += data if len(self.arrived) < 65536 else b""
        self.incoming.write(data) if data else self.incoming.write_eof()
        return bool(data)

    def read(self) -> bytes:
        """What comes next; nothing: it ended."""
        while True:
            try:
                return self.ssl.read(65536)
            except ssl.SSLWantReadError:
                self.fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def record(self, kind: int, content: bytes, padding: int = 0) -> bytes:
        """The next record: to be sent in the order in which they were made."""
        return self.keys.seal(kind, content, padding)

    def data(self, content: bytes) -> bytes:
        return self.record(DATA, content)

    def key_update(self, answer: bool = False) -> bytes:
        made = self.record(HANDSHAKE, message(KEY_UPDATE, bytes([answer])))
        self.keys.update()
        return made

    def alert(self, what: int, level: int = 1) -> bytes:
        return self.record(ALERT, bytes([level, what]))

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def close(self) -> None:
        self.sock.close()
