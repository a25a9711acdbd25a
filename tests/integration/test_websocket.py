"""WebSockets (RFC 6455): which rules admit one, what makes a 101 a true answer, what passes after it and what before
it, how one ends. Real clients: Python's websockets and aiohttp, Node's ws."""

import asyncio
import importlib.util
import shutil
import ssl
import subprocess
import threading
import time

import pytest

from mirrorlib import Run
from stilelib import PYTHON, TIMEOUT, Peer, Raw, Stile, allow, check_refusal, clean_env, get, wait_for

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # RFC 6455 section 1.3


def rules():
    return [allow("ws://origin.test:*/ws/**", "wss://origin.test:*/ws/**"),
            allow("http://origin.test:*/ok/**", "https://origin.test:*/ok/**"),
            {"deny": ["wss://origin.test:*/ws/no", "http://origin.test:*/ws/closed/**"]}]


@pytest.fixture(scope="module")
def sockets_of_all(origin, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("websocket"), origin, rules=rules())
    yield s
    s.finish()


@pytest.fixture
def sockets(sockets_of_all):
    return sockets_of_all.settled()


def hello(port: int, path: str = "/ws/a", more: str = "", key: str | None = KEY, version: str | None = "13",
          method: str = "GET", target: str | None = None, upgrade: str = "websocket") -> bytes:
    fields = (f"Sec-WebSocket-Key: {key}\r\n" if key is not None else "") + \
             (f"Sec-WebSocket-Version: {version}\r\n" if version is not None else "")
    return (f"{method} {target or path} HTTP/1.1\r\nHost: origin.test:{port}\r\nConnection: Upgrade\r\n"
            f"Upgrade: {upgrade}\r\n{fields}{more}\r\n").encode("latin-1")


def clear(port: int, path: str = "/ws/a", **more) -> bytes:
    return hello(port, target=f"http://origin.test:{port}{path}", **more)


def yes(more: str = "", accept: str = ACCEPT, upgrade: str = "websocket") -> bytes:
    return (f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {upgrade}\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept}\r\n{more}\r\n").encode()


def opened(s: Stile, p: Peer, **more) -> tuple[Raw, Raw]:
    """A WebSocket in clear to the Peer; both ends."""
    c = s.client()
    c.send(clear(p.port, **more))
    o = p.accept()
    o.read_head()
    o.send(yes())
    assert c.response_head().status == 101
    return c, o


# Which rules


@pytest.mark.parametrize("path, reason", [
    ("/ok/a", "no_rule"),                       # an http rule is none for what is no longer HTTP
    ("/other", "no_rule"), ("/ws/closed/a", "denied_by_rule")])
def test_only_a_ws_rule_admits_one(sockets, path, reason):
    since = sockets.mark()
    with Peer() as p, sockets.client() as c:
        r = c.ask(clear(p.port, path))
        check_refusal(r, 403, reason)
        assert f"GET ws://origin.test:{p.port}{path}" in r.json()["detail"]
        assert p.nobody_came(0.05)
        record = sockets.wait_record(since, port=p.port)
    assert (record["event"], record["reason"], record["scheme"]) == ("request.deny", reason, "ws")


def test_a_ws_rule_admits_nothing_else(sockets):
    with Peer() as p, sockets.client() as c:
        check_refusal(c.ask(f"GET http://origin.test:{p.port}/ws/a HTTP/1.1\r\nHost: origin.test:{p.port}\r\n\r\n".encode()),
                      403, "no_rule")
        assert p.nobody_came(0.05)


def test_over_tls_too(sockets, origin):
    with sockets.tunnel() as c:
        for path, reason in (("/ok/a", "no_rule"), ("/ws/no", "denied_by_rule")):
            r = c.ask(hello(origin.tls, path))
            check_refusal(r, 403, reason)
            assert f"wss://origin.test:{origin.tls}{path}" in r.json()["detail"]


@pytest.mark.parametrize("url, code, said", [
    ("wss://origin.test:444/ws/a", 0, "wss://origin.test:*/ws/**\n"), ("https://origin.test:444/ws/a", 1, "no_rule"),
    ("wss://origin.test:444/ok/a", 1, "no_rule"), ("wss://origin.test:444/ws/no", 1, "denied_by_rule"),
    ("ws://origin.test:81/ws/closed/a", 1, "denied_by_rule")])
def test_explain(sockets, url, code, said):
    from stilelib import BIN
    got = subprocess.run([str(BIN), "explain", "-c", str(sockets.config), "GET", url], capture_output=True, text=True,
                         timeout=30, env=clean_env())
    assert (got.returncode, said in got.stdout) == (code, True), got.stdout


@pytest.mark.parametrize("rule, told", [
    ("{allow: wss://a.test/x, methods: [GET]}", "5:33: `methods` with a ws:// or wss:// target"),
    ("{deny: ws://a.test/x, methods: [POST]}", "5:31: `methods` with a ws:// or wss:// target"),
    ("{allow: wss://a.test, tls: passthrough}", "5:17: `tls` is for https targets"),
    ("{allow: wsx://a.test}", "5:17: unknown scheme `wsx` (write https, http, wss, ws or tcp)")])
def test_faults_of_rules(tmp_path, rule, told):
    from stilelib import BIN
    (tmp_path / "stile.yaml").write_text(f"version: 1\npolicies:\n  default:\n    rules:\n      - {rule}\n      - allow: b.test\n")
    got = subprocess.run([str(BIN), "check"], cwd=tmp_path, capture_output=True, text=True, timeout=30, env=clean_env())
    assert got.returncode == 2 and told in got.stderr, got.stderr


# The handshake


@pytest.mark.parametrize("bad", [
    {"key": None}, {"key": "short"}, {"key": "dGhlIHNhbXBsZSBub25jZTE="}, {"key": "dGhl!HNhbXBsZSBub25jZQ=="},
    {"version": None}, {"version": "8"}, {"version": "13, 8"}, {"more": f"Sec-WebSocket-Key: {KEY}\r\n"},
    {"more": "Sec-WebSocket-Version: 13\r\n"}, {"method": "POST"}, {"more": "Content-Length: 3\r\n"},
    {"more": "Transfer-Encoding: chunked\r\n"}], ids=str)
def test_half_a_handshake(sockets, bad):
    since = sockets.mark()
    with Peer() as p, sockets.client() as c:
        c.send(clear(p.port, **bad))
        check_refusal(c.response(), 403, "upgrade_refused")
        assert p.nobody_came(0.05)
        sockets.wait_record(since, event="request.deny", reason="upgrade_refused", port=p.port)


def test_what_the_origin_gets(sockets):
    with Peer() as p, sockets.client() as c:
        c.send(clear(p.port, more="Connection: x-gone\r\nX-Gone: 1\r\nTE: trailers\r\n"
                                  "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: chat\r\n"))
        with p.accept() as o:
            head = o.read_head().decode().lower()
            o.send(yes("Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n"
                       "Sec-WebSocket-Protocol: chat\r\nAlt-Svc: h3=\":443\"\r\nSet-Cookie: a=b\r\n"))
            r = c.response_head()
    assert head.count("upgrade: websocket\r\n") == 1 and head.count("connection: upgrade\r\n") == 1
    assert f"sec-websocket-key: {KEY.lower()}\r\n" in head and "permessage-deflate" in head and "x-gone" not in head
    assert r.status == 101 and r.get("sec-websocket-accept") == ACCEPT and r.get("set-cookie") == "a=b"
    assert r.all("upgrade") == ["websocket"] and r.all("connection") == ["Upgrade"]
    assert r.get("alt-svc") is None and r.get("sec-websocket-protocol") == "chat"


@pytest.mark.parametrize("answer", [
    yes(accept="x" * 27 + "="), yes(accept=""), yes(f"Sec-WebSocket-Accept: {ACCEPT}\r\n"), yes(upgrade="h2c"), yes(upgrade="websocket, h2c"),
    yes("Sec-WebSocket-Protocol: chat\r\n"), yes("Sec-WebSocket-Extensions: permessage-deflate\r\n"),
    yes().replace(b"Connection: Upgrade\r\n", b""), yes().replace(b"Upgrade: websocket\r\n", b"")],
    ids=["accept", "no accept", "two", "h2c", "list", "protocol", "extension", "no connection", "no upgrade"])
def test_a_101_that_is_no_answer(sockets, answer):
    """What comes behind it reaches nobody."""
    since = sockets.mark()
    with Peer() as p, sockets.client() as c:
        c.send(clear(p.port) + b"LEAK-to-origin")
        with p.accept() as o:
            assert b"LEAK" not in o.read_head()
            o.send(answer + b"LEAK-to-client")
            r = c.response()
            check_refusal(r, 502, "upstream_malformed")
            assert b"LEAK" not in r.body and b"LEAK" not in o.read_all()
    end = sockets.wait_record(since, event="request.end", port=p.port)
    assert end["error"] == "upstream_malformed"


@pytest.mark.parametrize("answer, status", [
    (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403),
    (b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nno", 426),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", 200)])
def test_what_was_not_upgraded_stays_http(sockets, answer, status):
    """The bytes behind the handshake are the next request, and judged as that."""
    with Peer() as p, sockets.client() as c:
        c.send(clear(p.port) + f"GET http://origin.test:{p.port}/LEAK HTTP/1.1\r\nHost: origin.test:{p.port}\r\n\r\n".encode())
        with p.accept() as o:
            o.read_head()
            o.send(answer)
            r = c.response()
            assert (r.status, r.body) == (status, b"no")
            check_refusal(c.response(), 403, "no_rule")
            assert not o.buffer and o.still_open(0.05) and b"LEAK" not in o.buffer


def test_bytes_behind_the_handshake_wait_for_the_101(sockets):
    with Peer() as p, sockets.client() as c:
        c.send(clear(p.port) + b"early")
        with p.accept() as o:
            o.read_head()
            assert o.still_open(0.1) and o.buffer == b""
            o.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
            assert o.still_open(0.1) and o.buffer == b""
            o.send(yes() + b"first")
            assert c.response_head().status == 103 and c.response_head().status == 101
            assert c.read(5) == b"first" and o.read(5) == b"early"


@pytest.mark.parametrize("upgrade", ["websocket, foo", "foo", "TLS/1.2"])
def test_another_upgrade(sockets, upgrade):
    """It is ignored, and what is left is a plain request."""
    with Peer() as p, sockets.client() as c:
        check_refusal(c.ask(clear(p.port, "/ws/a", upgrade=upgrade)), 403, "no_rule")
        assert p.nobody_came(0.05)
        c.send(clear(p.port, "/ok/a", upgrade=upgrade))
        with p.accept() as o:
            assert b"pgrade" not in o.read_head()
            o.send(yes(upgrade=upgrade) + b"unasked")
            check_refusal(c.response(), 502, "upstream_malformed")


def test_http_1_0_and_no_connection_field(sockets):
    """Then it is a plain request, which no http rule admits here."""
    with Peer() as p:
        for bad in (clear(p.port).replace(b"Connection: Upgrade\r\n", b""), clear(p.port).replace(b"HTTP/1.1", b"HTTP/1.0")):
            with sockets.client() as c:
                check_refusal(c.ask(bad), 403, "no_rule")
        assert p.nobody_came(0.05)


# What passes, and how it ends


def test_two_records_with_bytes(sockets):
    since = sockets.mark()
    with Peer() as p:
        c, o = opened(sockets, p)
        c.send(b"12345")
        assert o.read(5) == b"12345"
        o.send(b"1234567")
        assert c.read(7) == b"1234567"
        o.close()
        assert c.at_end()
        c.close()
    start = sockets.wait_record(since, event="request.start", port=p.port)
    end = sockets.wait_record(since, event="request.end", id=start["id"])
    assert (start["scheme"], start["path"], end["status"]) == ("ws", "/ws/a", 101)
    assert (end["bytes_out"], end["bytes_in"]) == (5, 7) and "error" not in end


def test_half_closes_are_relayed(sockets):
    since = sockets.mark()
    with Peer() as p:
        c, o = opened(sockets, p)
        c.send(b"bye")
        c.half_close()
        assert o.read_all() == b"bye"
        o.send(b"later")
        assert c.read(5) == b"later"
        o.half_close()
        assert c.at_end()
        c.close(), o.close()
        c, o = opened(sockets, p)
        o.send(b"bye")
        o.half_close()
        assert c.read_all() == b"bye"
        c.send(b"later")
        assert o.read(5) == b"later"
        c.close()
        assert o.at_end()
        o.close()
    for end in sockets.wait_records(2, since, event="request.end", port=p.port):
        assert "error" not in end, end


@pytest.mark.parametrize("who, error", [("client", "client_closed"), ("origin", "upstream_closed")])
def test_a_reset_is_passed_on(sockets, who, error):
    since = sockets.mark()
    with Peer() as p:
        c, o = opened(sockets, p)
        (c if who == "client" else o).reset()
        other = (o if who == "client" else c).sock
        with pytest.raises(ConnectionResetError):
            while other.recv(100):
                pass
        end = sockets.wait_record(since, event="request.end", port=p.port)
        assert end["error"] == error
        other.close()


def test_neither_side_is_read_ahead(sockets):
    """Who takes nothing holds the other one up."""
    for take in ("client", "origin"):
        with Peer() as p:
            c, o = opened(sockets, p)
            sender = o if take == "client" else c
            sender.sock.settimeout(0.3)
            sent = 0
            with pytest.raises(TimeoutError):
                while sent < 100 << 20:
                    sent += sender.sock.send(bytes(1 << 16))
            receiver = c if take == "client" else o
            sender.half_close()
            got = 0
            while data := receiver.sock.recv(1 << 20):
                got += len(data)
            assert got == sent
            c.close(), o.close()


@pytest.mark.parametrize("limit, error", [({"tunnel_idle": "300ms"}, "tunnel_idle"), ({"tunnel_life": "500ms"}, "tunnel_life")])
def test_idle_and_life(stile, limit, error):
    s = stile(rules=rules(), limits=limit | {"body_idle": "100ms", "first_byte": "100ms", "idle": "100ms"})
    with Peer() as p:
        c, o = opened(s, p)
        begun = time.monotonic()
        try:
            while time.monotonic() < begun + (0.6 if error == "tunnel_idle" else 5):
                c.send(b"ping")  # keeps it open against the first limit, not against the second
                assert o.read(4) == b"ping" or error == "tunnel_life"
                time.sleep(0.05)
        except OSError:
            assert error == "tunnel_life"
        end = s.wait_record(event="request.end", error=error)
        assert end["ms"]["total"] > (500 if error == "tunnel_life" else 800)


TAKES_IT_BACK = [
    [allow("http://origin.test:*")], [allow("ws://origin.test:*/ws/b")],
    [{"allow": "ws://origin.test:*/ws/**"}],  # the address is not admitted any more
    [allow("ws://origin.test:*"), {"deny": "http://origin.test:*/ws/a"}], [allow("ws://origin.test:*"), {"deny": "tcp://origin.test:*"}]]


@pytest.mark.parametrize("after", TAKES_IT_BACK)
def test_a_reload_takes_it_back(stile, after):
    s = stile(rules=rules())
    with Peer() as p:
        c, o = opened(s, p)
        other, far = opened(s, p)
        s.reload(rules=rules())
        c.send(b"still")
        assert o.read(5) == b"still"
        s.reload(rules=after)
        for end in (c, o):
            with pytest.raises(ConnectionResetError):
                while end.sock.recv(100):
                    pass
        for end in s.wait_records(2, event="request.end"):
            assert end["error"] == "policy_revoked"
        for x in (c, o, other, far):
            x.close()


@pytest.mark.parametrize("after", TAKES_IT_BACK)
def test_a_reload_before_the_origin_s_yes(stile, after):
    """It is a request until then, which a reload does not ask after, and would be a WebSocket that no rule admits."""
    s = stile(rules=rules())
    with Peer() as p, s.client() as c, s.client() as kept:
        c.send(clear(p.port) + get(f"http://evil.test:{p.port}/LEAK"))
        o = p.accept()
        o.read_head()
        s.reload(rules=after)
        o.send(yes() + b"LEAK")
        check_refusal(c.response(), 403, "policy_revoked")
        check_refusal(c.response(), 403)  # what came behind it is no WebSocket's
        assert o.read_all() == b""
        end = s.wait_record(event="request.end")
        assert (end["error"], end["status"], end.get("bytes_in", 0)) == ("policy_revoked", 403, 0)
        s.reload(rules=rules())
        kept.send(clear(p.port))
        with p.accept() as far:
            far.read_head()
            s.reload(rules=[*rules(), {"deny": "ws://origin.test:*/else"}])
            far.send(yes() + b"hello")
            assert kept.response_head().status == 101 and kept.read(5) == b"hello"
        o.close()


def test_a_credential_that_is_taken_back(stile, canary, tmp_path):
    """It went out with the handshake: the WebSocket ends with the permission."""
    (tmp_path / "tok").write_text(canary)
    (tmp_path / "tok").chmod(0o600)
    creds = {"tok": {"from": {"file": str(tmp_path / "tok")}, "as": "bearer"}}
    server = Server(None)
    s = stile(rules=[allow("wss://origin.test:*", credential="tok")], credentials=creds)
    with server:
        with s.tunnel(server.tls) as c:
            c.send(hello(server.tls))
            assert c.response_head().status == 101
            wait_for(lambda: any(canary in str(h) for h in server.seen), why="the credential arrives")
            s.reload(rules=[allow("wss://origin.test:*")], credentials=None)
            assert c.read_all() == b""
        end = s.wait_record(event="request.end")
        assert end["error"] == "policy_revoked" and end["credential"] == "tok"


# Real clients


class Server:
    """An echo of Python's websockets, in clear and over TLS."""

    def __init__(self, origin):
        self.websockets = pytest.importorskip("websockets", reason="python3-websockets is not installed")
        self.seen, self.ready = [], threading.Event()
        self.loop = asyncio.new_event_loop()

    async def echo(self, socket_, path=None):
        self.seen.append(dict(socket_.request_headers))
        async for message in socket_:
            if message == "close":
                await socket_.close(4001, "as you wish")
            else:
                await socket_.send(message)

    def context(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(Server.pki / "good.pem", Server.pki / "good.key")
        return context

    async def start(self):
        serve = self.websockets.serve
        options = dict(subprotocols=["chat"], ping_interval=0.2, max_size=1 << 24)
        a = await serve(self.echo, "127.0.0.1", 0, **options)
        b = await serve(self.echo, "127.0.0.1", 0, ssl=self.context(), **options)
        self.clear, self.tls = (x.sockets[0].getsockname()[1] for x in (a, b))
        self.ready.set()

    def __enter__(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        assert self.ready.wait(TIMEOUT)
        return self

    def run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.start())
        self.loop.run_forever()

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(TIMEOUT)


@pytest.fixture(autouse=True)
def pki(origin):
    Server.pki = origin.pki


@pytest.fixture(scope="module")
def echo(origin):
    Server.pki = origin.pki
    with Server(origin) as s:
        yield s


WEBSOCKETS = """
import asyncio, os, socket, ssl, sys, websockets
url, host, port, proxy = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

def tunnel():
    s = socket.create_connection(("127.0.0.1", proxy))
    s.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
    got = b""
    while not got.endswith(b"\\r\\n\\r\\n"):
        got += s.recv(1)
    assert b" 200 " in got, got
    s.setblocking(False)
    return s

async def main():
    tls = dict(ssl=ssl.create_default_context(), server_hostname=host) if url.startswith("wss") else {}
    async with websockets.connect(url, sock=tunnel(), subprotocols=["chat"], max_size=1 << 24, **tls) as w:
        assert w.subprotocol == "chat" and "permessage-deflate" in w.response_headers["Sec-WebSocket-Extensions"]
        for m in ("hello", "x" * 100000, os.urandom(3000000), ""):
            await w.send(m)
            assert await w.recv() == m
        await asyncio.gather(*(w.send(str(i)) for i in range(200)))
        assert [await w.recv() for i in range(200)] == [str(i) for i in range(200)]
        await (await w.ping())
        await asyncio.sleep(0.7)  # the server's pings
        await w.send("close")
        try:
            await w.recv()
        except websockets.ConnectionClosed as e:
            assert (e.code, e.reason) == (4001, "as you wish"), e
    async with websockets.connect(url, sock=tunnel(), **tls) as w:
        await w.send("again")
        assert await w.recv() == "again"
    print("done")

asyncio.run(main())
"""

AIOHTTP = """
import asyncio, ssl, sys, aiohttp
url, proxy = sys.argv[1], "http://127.0.0.1:" + sys.argv[4]

async def main():
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=ssl.create_default_context())) as s:
        async with s.ws_connect(url, proxy=proxy, compress=15) as w:
            for m in ("hello", "x" * 100000):
                await w.send_str(m)
                assert await w.receive_str() == m
            await w.send_str("close")
            m = await w.receive()
            assert w.close_code == 4001, (m, w.close_code)
    print("done")

asyncio.run(main())
"""

NODE = """
const WebSocket = require("ws"), {HttpsProxyAgent} = require("https-proxy-agent"), Agent = HttpsProxyAgent || require("https-proxy-agent");
const [url, host, port, proxy] = process.argv.slice(2);
const w = new WebSocket(url, {agent: new Agent("http://127.0.0.1:" + proxy), perMessageDeflate: true});
const want = ["hello", "x".repeat(100000), "close"];
let i = 0;
w.on("open", () => w.send(want[0]));
w.on("message", (m) => { if (m.toString() !== want[i]) throw new Error("wrong echo " + i); w.send(want[++i]); });
w.on("error", (e) => { console.log("error", e); process.exit(1); });
w.on("close", (code, why) => { console.log(code === 4001 && why.toString() === "as you wish" ? "done" : "closed " + code); });
"""


def command(client: str, folder, url: str, proxy: int) -> list[str]:
    """The program of a client."""
    argv = [url, "origin.test", url.split(":")[2].split("/")[0], str(proxy)]
    if client != "node":
        if not importlib.util.find_spec(client):
            pytest.skip(f"python3-{client} is not installed")
        return [PYTHON, "-c", WEBSOCKETS if client == "websockets" else AIOHTTP, *argv]
    node = ["env", "NODE_PATH=/usr/share/nodejs", "node"]
    if not shutil.which("node") or subprocess.run([*node, "-e", "require('ws'); require('https-proxy-agent')"],
                                                  capture_output=True).returncode:
        pytest.skip("node, node-ws or node-https-proxy-agent is not installed")
    (folder / "client.js").write_text(NODE)
    return [*node, str(folder / "client.js"), *argv]


@pytest.mark.parametrize("scheme", ["ws", "wss"])
@pytest.mark.parametrize("client", ["websockets", "aiohttp", "node"])
def test_clients(sockets, echo, tmp_path, client, scheme):
    since = sockets.mark()
    argv = command(client, tmp_path, f"{scheme}://origin.test:{echo.tls if scheme == 'wss' else echo.clear}/ws/echo", sockets.port)
    env = clean_env(SSL_CERT_FILE=str(sockets.ca), NODE_EXTRA_CA_CERTS=str(sockets.ca))
    got = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
    assert got.stdout == "done\n", got.stdout + got.stderr
    for start in sockets.wait_records(1, since, event="request.start"):
        end = sockets.wait_record(since, event="request.end", id=start["id"])
        assert (end["scheme"], end["status"]) == (scheme, 101) and "error" not in end, end
        assert end["bytes_out"] > 0 and end["bytes_in"] > 0


@pytest.mark.parametrize("client", ["websockets", "aiohttp", "node"])
def test_clients_in_run(echo, origin, tmp_path, client):
    """The same within a sandbox, where nobody tells them of a CA."""
    way = Run(tmp_path, origin, [allow("wss://origin.test:*/ws/**")])
    got = way.go(*command(client, tmp_path, f"wss://origin.test:{echo.tls}/ws/echo", 3128), home=tmp_path)
    assert got.stdout == b"done\n", got.said
    ends = [r for r in way.records() if r["event"] == "request.end"]
    assert {(r["scheme"], r["status"]) for r in ends} == {("wss", 101)} and not [r for r in ends if "error" in r]
    way.close()
