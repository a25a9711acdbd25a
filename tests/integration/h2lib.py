"""An HTTP/2 client for tests: the state machine of the h2 library where a request is to be whole, frames by hand
where it is not."""

import socket
import struct
import time

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import hpack

from stilelib import TIMEOUT, Raw, Stile, echoed

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class Answer:
    def __init__(self):
        self.status, self.fields, self.body, self.trailers = 0, [], b"", []
        self.interim: list[int] = []
        self.reset: int | None = None
        self.done = False

    def get(self, name: str) -> str | None:
        return next((v for n, v in self.fields if n == name), None)

    def json(self):
        return echoed(self.body)

    def __repr__(self):
        return f"<{self.status} {self.fields} {self.body[:200]!r} reset={self.reset} done={self.done}>"


class H2:
    """One connection to an origin through stile. Answers collect in `answers` by stream."""

    def __init__(self, stile: Stile, port: int | None = None, host: str = "origin.test", consume: bool = True,
                 window: int | None = None, more: str = "", **settings):
        self.port = port or stile.origin.tls
        self.host, self.authority = host, f"{host}:{self.port}"
        context = stile.context(**settings)
        context.set_alpn_protocols(["h2"])
        c = stile.client()
        r = c.connect(self.authority, more)
        assert r.status == 200, r
        self.raw: Raw = c.start_tls(context, host.strip("[]"))
        self.sock = self.raw.sock
        assert self.sock.selected_alpn_protocol() == "h2"
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=True, header_encoding="latin-1", validate_outbound_headers=False,
            normalize_outbound_headers=False, validate_inbound_headers=True))
        self.answers: dict[int, Answer] = {}
        self.consume, self.goaway, self.closed, self.settings = consume, None, False, None
        if window is not None:
            self.h2.local_settings = h2.settings.Settings(
                client=True, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.h2.initiate_connection()
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        self.sock.close()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def head(self, method: str = "GET", path: str = "/ok", more=(), **pseudo) -> list[tuple[str, str]]:
        fields = {":method": method, ":scheme": "https", ":authority": self.authority, ":path": path}
        fields.update({":" + k: v for k, v in pseudo.items()})
        return [(k, v) for k, v in fields.items() if v is not None] + list(more)

    def ask(self, method: str = "GET", path: str = "/ok", more=(), body: bytes | None = None, end: bool = True,
            **pseudo) -> int:
        """Sends a request (with as much of the body as windows allow, reading meanwhile); its stream."""
        stream = self.h2.get_next_available_stream_id()
        self.answers[stream] = Answer()
        self.h2.send_headers(stream, self.head(method, path, more, **pseudo), end_stream=end and body is None)
        self.flush()
        if body is not None:
            self.send_body(stream, body, end)
        return stream

    def socket(self, path: str = "/ws/echo", more=(), version: str | None = "13", protocol: str = "websocket",
               **pseudo) -> int:
        """Asks for a WebSocket (RFC 8441); its stream."""
        fields = ([("sec-websocket-version", version)] if version else []) + list(more)
        return self.ask("CONNECT", path, fields, end=False, protocol=protocol, **pseudo)

    def open(self, path: str = "/ws/echo", more=(), **pseudo) -> int:
        """The same, until it is open."""
        s = self.socket(path, more, **pseudo)
        self.until(lambda: self.answers[s].status)
        assert self.answers[s].status == 200 and not self.answers[s].done, self.answers[s]
        return s

    def until(self, what, seconds: float = TIMEOUT):
        """Reads until what() is true."""
        end = time.monotonic() + seconds
        while not what() and time.monotonic() < end and not self.closed:
            self.read(max(0.01, end - time.monotonic()))
        assert what(), (self.answers, self.goaway, self.closed)

    def take(self, stream: int, n: int) -> bytes:
        """n bytes of what came on a stream."""
        a = self.answers[stream]
        self.until(lambda: len(a.body) >= n or a.done)
        got, a.body = a.body[:n], a.body[n:]
        return got

    def send_body(self, stream: int, body: bytes, end: bool = True) -> None:
        while body and not self.answers[stream].done:
            n = min(len(body), self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if n == 0:
                if not self.read():
                    return
                continue
            self.h2.send_data(stream, body[:n])
            self.flush()
            body = body[n:]
        if end and not self.answers[stream].done:
            self.h2.end_stream(stream)
            self.flush()

    def raw_head(self, head: list[tuple[str, str]], stream: int, end: bool = True) -> bytes:
        """A HEADERS frame that the library would not write."""
        block = b"".join(b"\x00" + self.text(n) + self.text(v) for n, v in head)
        return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)

    @staticmethod
    def text(s: str) -> bytes:
        raw = s.encode("latin-1")
        return bytes(hpack.hpack.encode_integer(len(raw), 7)) + raw

    def send(self, data: bytes) -> bool:
        """Bytes as they are. False: stile has closed the connection."""
        try:
            self.sock.sendall(data)
            return True
        except OSError:
            return False

    def read(self, seconds: float = TIMEOUT) -> bool:
        """One read. False: the connection has ended, or nothing came."""
        self.sock.settimeout(seconds)
        try:
            data = self.sock.recv(65536)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return False
        for e in self.h2.receive_data(data):
            self.event(e)
        self.flush()
        return True

    def frames(self):
        """All frames that still come, without the library's judgement: (type, flags, stream, payload)."""
        buffer = b""
        while True:
            try:
                data = self.sock.recv(65536)
            except OSError:
                data = b""
            if not data:
                return
            buffer += data
            while len(buffer) >= 9 and len(buffer) >= 9 + (n := int.from_bytes(buffer[:3], "big")):
                yield buffer[3], buffer[4], int.from_bytes(buffer[5:9], "big"), buffer[9:9 + n]
                buffer = buffer[9 + n:]

    def event(self, e) -> None:
        a = self.answers.get(getattr(e, "stream_id", None) or 0)
        if isinstance(e, h2.events.ConnectionTerminated):
            self.goaway = e
        elif isinstance(e, h2.events.RemoteSettingsChanged):
            self.settings = {k: v.new_value for k, v in e.changed_settings.items()}
        elif a is None:
            return
        elif isinstance(e, h2.events.InformationalResponseReceived):
            a.interim.append(int(dict(e.headers)[":status"]))
        elif isinstance(e, h2.events.ResponseReceived):
            a.status, a.fields = int(dict(e.headers)[":status"]), e.headers[1:]
        elif isinstance(e, h2.events.DataReceived):
            a.body += e.data
            if self.consume:
                self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
        elif isinstance(e, h2.events.TrailersReceived):
            a.trailers = e.headers
        elif isinstance(e, h2.events.StreamEnded):
            a.done = True
        elif isinstance(e, h2.events.StreamReset):
            a.reset, a.done = e.error_code, True

    def wait(self, *streams: int, seconds: float = TIMEOUT) -> Answer:
        """Until these streams are done; the last one's answer."""
        end = time.monotonic() + seconds
        while not all(self.answers[s].done for s in streams):
            if not self.read(max(0.01, end - time.monotonic())):
                break
        assert all(self.answers[s].done for s in streams), (self.answers, self.goaway, self.closed)
        return self.answers[streams[-1]]

    def get(self, path: str = "/ok", method: str = "GET", **more) -> Answer:
        return self.wait(self.ask(method, path, **more))

    def wait_closed(self, seconds: float = TIMEOUT) -> bool:
        end = time.monotonic() + seconds
        while not self.closed and time.monotonic() < end:
            try:
                self.read(max(0.01, end - time.monotonic()))
            except h2.exceptions.ProtocolError:
                pass
        return self.closed
