"""An origin that speaks HTTP/2 over TLS, with the h2 library; in the test's own process, a thread a connection.

  /echo         what came, as JSON; with trailers if the request had some
  /bytes/N      N bytes
  /trailers     a body and trailers
  /refuse       REFUSED_STREAM the first time, then as /echo
  /goaway       GOAWAY before the stream the first time (last stream id 0), then as /echo
  /reset        a head, some bytes, RST_STREAM
  /hang         nothing
  /later        nothing on the first connection, then as /echo
  /hint         103, then as /echo
  /raw/NAME     the frames that the test put into `raw[NAME]` (a function of the stream id; bytes, or parts)

An extended CONNECT (RFC 8441) is answered at once; whether its SETTINGS promise one is the test's choice:

  /ws/echo      200, then what comes, back; its end is answered with one
  /ws/first     200 and the end of its way after "bye"; it goes on reading
  /ws/reset     200, some bytes, RST_STREAM
  /ws/refuse    REFUSED_STREAM
  /ws/hang      nothing
  /ws/N         status N and a body, ended
  /raw/NAME     as above

Who asks for HTTP/1.1 in ALPN, where the test offers it, gets an echo of a WebSocket in that.
"""

import base64
import hashlib
import json
import socket
import ssl

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

import sealed
from accepting import serve_each


class H2Origin:
    def __init__(self, cert, key, alpn=("h2",), settings=None, once=False):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(cert, key)
        self.context.set_alpn_protocols(list(alpn))
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.settings = settings or {}
        self.raw: dict = {}
        self.seen: list[dict] = []  # requests, in order
        self.resets: list[int] = []
        self.sockets: list[ssl.SSLSocket] = []
        self.alpns: list[str | None] = []
        self.heads: list[bytes] = []  # of HTTP/1.1
        self.connections = 0
        self.reads = 0  # a TLS record each, at most
        self.once: set[str] = set()
        self.http1_once = once  # when HTTP/1.1 is negotiated: one request a connection
        serve_each(self.listener, self.serve)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def serve(self, sock) -> None:
        try:
            sock.settimeout(60)
            with self.context.wrap_socket(sock, server_side=True) as tls:
                self.connections += 1
                self.sockets.append(tls)
                self.alpns.append(tls.selected_alpn_protocol())
                if self.alpns[-1] == "h2":
                    Connection(self, tls, self.connections).run()
                else:
                    self.serve_http1(tls)
        except (OSError, h2.exceptions.ProtocolError):
            pass

    def serve_http1(self, tls: ssl.SSLSocket) -> None:
        """Empty answers to requests without a body; a WebSocket is an echo of bytes."""
        close, head = b"Connection: close\r\n" if self.http1_once else b"", b""
        with tls.makefile("rb") as f:
            while line := f.readline():
                head += line
                if line != b"\r\n":
                    continue
                if b"sec-websocket-key:" in head.lower():
                    self.serve_socket(tls, f, head[:-4])
                    return
                tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + close + b"\r\n")
                if self.http1_once:
                    return
                head = b""

    def serve_socket(self, tls: ssl.SSLSocket, f, head: bytes) -> None:
        self.heads.append(head)
        key = next(x.split(b":")[1].strip() for x in head.split(b"\r\n") if x.lower().startswith(b"sec-websocket-key:"))
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
        tls.sendall(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode())
        while data := f.read1(65536):
            tls.sendall(data)


class Connection:
    def __init__(self, origin: H2Origin, sock: ssl.SSLSocket, number: int):
        self.origin, self.sock, self.number = origin, sock, number
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=False, header_encoding="latin-1", validate_inbound_headers=True))
        self.requests: dict[int, dict] = {}
        self.out: dict[int, tuple[bytes, list]] = {}
        self.pipes: dict[int, list] = {}  # what an open WebSocket still has to say, and whether it ends then

    def run(self) -> None:
        # In the first SETTINGS already: a promise of extended CONNECT must not be taken back.
        if self.origin.settings:
            self.h2.local_settings = h2.settings.Settings(client=False, initial_values=self.origin.settings)
        self.h2.initiate_connection()
        self.flush()
        while data := self.sock.recv(65536):
            self.origin.reads += 1
            for e in self.h2.receive_data(data):
                self.event(e)
            self.pump()

    def flush(self) -> None:
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def event(self, e) -> None:
        if isinstance(e, h2.events.RequestReceived):
            self.requests[e.stream_id] = {"headers": e.headers, "body": b"", "trailers": [], "connection": self.number,
                                          "stream": e.stream_id}
            if (":method", "CONNECT") in e.headers:
                self.connect(e.stream_id)
        elif isinstance(e, h2.events.DataReceived):
            self.requests[e.stream_id]["body"] += e.data
            self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            if e.stream_id in self.pipes and self.requests[e.stream_id]["path"] == "/ws/echo":
                self.pipes[e.stream_id][0] += e.data
        elif isinstance(e, h2.events.TrailersReceived):
            self.requests[e.stream_id]["trailers"] = e.headers
        elif isinstance(e, h2.events.StreamReset):
            self.origin.resets.append(e.error_code)
            self.out.pop(e.stream_id, None)
            self.pipes.pop(e.stream_id, None)
        elif isinstance(e, h2.events.StreamEnded) and e.stream_id in self.pipes:
            self.requests[e.stream_id]["ended"] = True
            self.pipes[e.stream_id][1] = True
        elif isinstance(e, h2.events.StreamEnded):
            self.answer(e.stream_id)

    def answer(self, stream: int) -> None:
        q = self.requests[stream]
        path = dict(q["headers"])[":path"]
        name = path.split("?")[0]
        first = name not in self.origin.once
        self.origin.once.add(name)
        self.origin.seen.append(q)
        if name == "/refuse" and first:
            self.h2.reset_stream(stream, error_code=7)
        elif name == "/goaway" and first:
            self.h2.close_connection(last_stream_id=0)
        elif name == "/hang" or (name == "/later" and self.number == 1):
            pass
        elif name.startswith("/raw/"):
            self.flush()
            made = self.origin.raw[name[5:]](stream)
            try:
                for part in [made] if isinstance(made, bytes) else made:
                    self.sock.sendall(part)
            except OSError:
                pass  # stile may have had enough
        elif name == "/reset":
            self.h2.send_headers(stream, [(":status", "200")])
            self.h2.send_data(stream, b"part")
            self.h2.reset_stream(stream, error_code=2)
        elif name.startswith("/bytes/"):
            n = int(name.split("/")[2])
            self.h2.send_headers(stream, [(":status", "200"), ("content-length", str(n))])
            self.out[stream] = b"b" * n, []
        elif name == "/trailers":
            self.h2.send_headers(stream, [(":status", "200")])
            self.out[stream] = b"hello", [("x-sum", "5")]
        else:
            if name == "/hint":
                self.h2.send_headers(stream, [(":status", "103"), ("link", "</x>")])
            body = json.dumps(sealed.seal({
                "headers": q["headers"], "body": q["body"].decode("latin-1"), "trailers": q["trailers"],
                "connection": self.number})).encode()
            self.h2.send_headers(stream, [(":status", "200"), ("content-type", "application/json")])
            self.out[stream] = body, []

    def connect(self, stream: int) -> None:
        q = self.requests[stream]
        q["path"] = path = dict(q["headers"])[":path"].split("?")[0]
        self.origin.seen.append(q)
        offered = dict(q["headers"]).get("sec-websocket-protocol")
        yes = [(":status", "200")] + ([("sec-websocket-protocol", offered)] if offered else [])
        if path == "/ws/refuse":
            self.h2.reset_stream(stream, error_code=7)
        elif path == "/ws/hang":
            pass
        elif path.startswith("/raw/"):
            self.flush()
            self.sock.sendall(self.origin.raw[path[5:]](stream))
        elif path[4:].isdigit():
            self.h2.send_headers(stream, [(":status", path[4:])])
            self.out[stream] = b"no", []
        else:
            self.h2.send_headers(stream, yes)
            self.pipes[stream] = [b"bye" if path == "/ws/first" else b"", path == "/ws/first"]
            if path == "/ws/reset":
                self.h2.send_data(stream, b"part")
                self.h2.reset_stream(stream, error_code=8)
                del self.pipes[stream]

    def pump_pipes(self) -> None:
        for stream, pipe in list(self.pipes.items()):
            while pipe[0] and (n := min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size,
                                        len(pipe[0]))) > 0:
                self.h2.send_data(stream, pipe[0][:n])
                pipe[0] = pipe[0][n:]
            if pipe[1] and not pipe[0]:
                self.h2.end_stream(stream)
                pipe[1] = False

    def pump(self) -> None:
        self.pump_pipes()
        for stream in list(self.out):
            body, trailers = self.out[stream]
            while body and (n := min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size,
                                     len(body))) > 0:
                self.h2.send_data(stream, body[:n])
                body = body[n:]
                self.flush()
            self.out[stream] = body, trailers
            if not body:
                del self.out[stream]
                if trailers:
                    self.h2.send_headers(stream, trailers, end_stream=True)
                else:
                    self.h2.end_stream(stream)
        self.flush()
