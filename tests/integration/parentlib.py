"""A proxy for stile to go through, in the test's own hands: it answers CONNECT, honestly or not."""

import select
import socket
import ssl

from accepting import serve_each
from stilelib import TIMEOUT


class Parent:
    """Listens on loopback and keeps the head of every request. `answer(target, head)` decides: None connects to
    the target (names through `names`), bytes are sent as they are and the connection is closed, a function gets the
    socket. `early`: what is sent in one piece with the 200, as if the origin had spoken at once."""

    def __init__(self, answer=None, names=None, context=None, early=b"", greeting=b"HTTP/1.1 200 OK\r\n\r\n",
                 port=0):
        self.answer, self.names, self.context = answer or (lambda target, head: None), names or {}, context
        self.early, self.greeting = early, greeting
        self.heads: list[bytes] = []
        self.open: list[socket.socket] = []
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        serve_each(self.listener, self.one, self.open.append)

    def one(self, sock):
        try:
            sock.settimeout(TIMEOUT)
            if self.context:
                sock = self.context.wrap_socket(sock, server_side=True)
                self.open.append(sock)
            self.talk(sock)
        except (OSError, ValueError):
            pass
        finally:
            sock.close()

    def talk(self, sock):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = sock.recv(1)
            if not byte:
                return
            head += byte
        self.heads.append(head)
        target = head.split(b" ")[1].decode()
        what = self.answer(target, head)
        if callable(what):
            what(sock)
        elif what is not None:
            sock.sendall(what)
            if not isinstance(sock, ssl.SSLSocket):
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):
                    pass
        else:
            host, port = target.rsplit(":", 1)
            with socket.create_connection((self.names.get(host, host).strip("[]"), int(port)), TIMEOUT) as there:
                sock.sendall(self.greeting + self.early)
                relay(sock, there)

    @property
    def targets(self):
        return [h.split(b" ")[1].decode() for h in self.heads]

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass
        self.listener.close()
        for s in self.open:
            try:
                s.close()
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def relay(a, b):
    """Until both have ended. In one thread, as an SSLSocket wants it; neither side may stop reading for long."""
    ends = {a: b, b: a}
    while ends:
        ready = [s for s in ends if isinstance(s, ssl.SSLSocket) and s.pending()]
        for s in ready or select.select(list(ends), [], [], TIMEOUT)[0]:
            try:
                data = s.recv(65536)
                ends[s].sendall(data)
            except OSError:
                data = b""
            if data:
                continue
            try:
                ends[s].shutdown(socket.SHUT_WR) if not isinstance(ends[s], ssl.SSLSocket) else ends[s].unwrap()
            except (OSError, ValueError):
                pass
            if isinstance(a, ssl.SSLSocket):
                return  # TLS ends both ways at once here
            del ends[s]
