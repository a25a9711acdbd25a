"""Answers that come bit by bit go on as they come: server-sent events, chunks, interim answers. Ranges, large heads,
uploads that wait for 100, and no invitation to leave by another way."""

import json
import shutil
import ssl
import subprocess
import threading
import time

import pytest

from stilelib import PYTHON, Peer, clean_env, get

EVENTS = 200


class TlsSide:
    def __init__(self, origin):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(origin.pki / "good.pem", origin.pki / "good.key")

    def __call__(self, raw):
        raw.sock = self.context.wrap_socket(raw.sock, server_side=True)
        return raw


@pytest.fixture(params=["clear", "tls"])
def way(proxy, origin, request):
    """(a client, its Peer's side, the bytes of a request)"""
    with Peer() as p:
        def begin(more: str = "", method: str = "GET"):
            if request.param == "clear":
                c = proxy.client()
                c.send(get(f"http://origin.test:{p.port}/x", more=more, method=method))
                o = p.accept()
            else:
                c = proxy.tunnel(p.port)
                c.send(f"{method} /x HTTP/1.1\r\nHost: origin.test:{p.port}\r\n{more}\r\n".encode())
                o = TlsSide(origin)(p.accept())
            return c, o, o.read_head()
        yield begin


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
def test_each_event_goes_on_at_once(way, framing, request, capsys):
    """Nothing is asserted of the time but that no event waits for the next; the numbers are printed (-s)."""
    c, o, _ = way("Accept: text/event-stream\r\n")
    event = b"data: " + b"x" * 58 + b"\n\n"
    fields = {"chunked": b"Transfer-Encoding: chunked\r\n", "close": b"", "length": b"Content-Length: %d\r\n" % (len(event) * EVENTS)}
    o.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + fields[framing] + b"\r\n")
    begun = time.perf_counter()
    r = c.response_head()
    head_ms = (time.perf_counter() - begun) * 1000
    assert r.get("content-type") == "text/event-stream"
    took = []
    for _ in range(EVENTS):
        begun = time.perf_counter()
        o.send(b"%x\r\n%s\r\n" % (len(event), event) if framing == "chunked" else event)
        assert event in c.read_until(b"\n\n")  # a wait for a second event would never end
        took.append((time.perf_counter() - begun) * 1000)
        c.buffer = b""
    took.sort()
    with capsys.disabled():
        print(f"\n{request.node.callspec.id}: head {head_ms:.3f} ms, event p50 {took[EVENTS // 2]:.3f} ms, "
              f"p99 {took[EVENTS * 99 // 100]:.3f} ms")
    c.close(), o.close()


PYTHON_SSE = """
import os, sys, urllib.request
for line in urllib.request.urlopen(sys.argv[1]):
    if line.strip():
        print(line.decode().strip(), flush=True)
"""
NODE_SSE = """
const http = require("http"), tls = require("tls"), [url, proxy] = process.argv.slice(2), u = new URL(url);
http.request({host: "127.0.0.1", port: proxy, method: "CONNECT", path: u.host, headers: {host: u.host}}).on("connect", (r, socket) => {
  const secured = tls.connect({socket, servername: u.hostname}, () => http.get(
    {createConnection: () => secured, path: u.pathname + u.search, headers: {host: u.host, accept: "text/event-stream"}},
    (answer) => { let rest = ""; answer.setEncoding("utf8").on("data", (d) => {
      const lines = (rest + d).split("\\n"); rest = lines.pop(); for (const l of lines) if (l) console.log(l); }).on("end", () => process.exit(0)); }));
}).end();
"""


@pytest.mark.parametrize("client", ["curl", "python", "node"])
def test_clients_see_each_event_before_the_next(proxy, origin, tmp_path, client):
    if client != "python" and not shutil.which(client):
        pytest.skip(f"{client} is not installed")
    gate = f"sse-{client}"
    url = f"https://origin.test:{origin.tls}/sse?n=4&gate={gate}"
    env = clean_env(HTTPS_PROXY=f"http://127.0.0.1:{proxy.port}", SSL_CERT_FILE=str(proxy.ca), NODE_EXTRA_CA_CERTS=str(proxy.ca))
    (tmp_path / "sse.js").write_text(NODE_SSE)
    argv = {"curl": ["curl", "-sSN", "--cacert", str(proxy.ca), url], "python": [PYTHON, "-c", PYTHON_SSE, url],
            "node": ["node", str(tmp_path / "sse.js"), url, str(proxy.port)]}[client]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as run:
        killer = threading.Timer(30, run.kill)
        killer.start()
        try:
            for i in range(4):
                origin.open_gate(f"{gate}.{i}")
                line = run.stdout.readline()
                while line == "\n":
                    line = run.stdout.readline()
                assert line == f"data: {i}\n", line
            assert run.stdout.read().strip() == "" and run.wait() == 0
        finally:
            killer.cancel()
            run.kill()


def test_interim_answers_go_on(way):
    c, o, _ = way()
    for n in range(3):
        o.send(b"HTTP/1.1 103 Early Hints\r\nLink: </%d>\r\nAlt-Svc: h3=\":443\"\r\n\r\n" % n)
        r = c.response_head()
        assert (r.status, r.get("link"), r.get("alt-svc")) == (103, f"</{n}>", None)
    o.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert c.response().body == b"ok"
    c.close(), o.close()


def test_no_invitation_to_leave(way):
    """Alt-Svc and what else leads to HTTP/3, in heads and in trailers."""
    c, o, _ = way()
    o.send(b"HTTP/1.1 200 OK\r\nALT-SVC: h3=\":443\"; ma=86400\r\nalt-svc: clear\r\nTransfer-Encoding: chunked\r\n"
           b"Trailer: Alt-Svc, X-Sum\r\n\r\n2\r\nok\r\n0\r\nAlt-Svc: h3=\":8443\"\r\nX-Sum: 1\r\n\r\n")
    r = c.response()
    assert r.status == 200 and r.get("alt-svc") is None
    assert r.trailers == ["X-Sum: 1"]
    c.close(), o.close()


@pytest.mark.parametrize("wanted, status, said", [("bytes=2-4", 206, "bytes 2-4/10"), ("bytes=20-", 416, "bytes */10")])
def test_ranges(way, wanted, status, said):
    c, o, head = way(f"Range: {wanted}\r\nIf-Range: \"v1\"\r\n")
    assert f"Range: {wanted}\r\n".encode() in head and b'If-Range: "v1"\r\n' in head
    o.send(b"HTTP/1.1 %d X\r\nContent-Range: %s\r\nETag: \"v1\"\r\nContent-Length: 3\r\n\r\n234" % (status, said.encode()))
    r = c.response()
    assert (r.status, r.get("content-range"), r.body) == (status, said, b"234")
    c.close(), o.close()


def test_large_heads(way):
    more = "".join(f"X-{i}: {'v' * 250}\r\n" for i in range(200))
    c, o, head = way(more)
    assert head.count(b"v" * 250) == 200
    o.send(b"HTTP/1.1 200 OK\r\n" + more.encode() + b"Content-Length: 2\r\n\r\nok")
    r = c.response()
    assert sum(n.startswith("X-") for n, _ in r.fields) == 200 and r.body == b"ok"
    c.close(), o.close()


@pytest.mark.parametrize("answer", ["100", "417", "401"])
def test_an_upload_that_asks_first(way, answer):
    """The origin's word decides, and without a 100 no body leaves."""
    c, o, head = way("Expect: 100-continue\r\nContent-Length: 5\r\n", "PUT")
    assert b"Expect: 100-continue\r\n" in head
    if answer == "100":
        o.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert c.response_head().status == 100
        c.send(b"hello")
        assert o.read(5) == b"hello"
        o.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
        assert c.response().status == 201
    else:
        o.send(f"HTTP/1.1 {answer} No\r\nContent-Length: 2\r\n\r\nno".encode())
        r = c.response()
        assert (r.status, r.body) == (int(answer), b"no")
        c.close()
        assert o.read_all() == b""
    c.close(), o.close()


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_curl_uploads_with_expect(proxy, origin, tmp_path, version):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    (tmp_path / "up").write_bytes(bytes(3 << 20))
    got = subprocess.run(["curl", "-sS", "-v", f"--http{version}", "-T", str(tmp_path / "up"), "-H", "Expect: 100-continue", "--cacert", str(proxy.ca),
                          "-x", f"http://127.0.0.1:{proxy.port}", f"https://origin.test:{origin.tls}/upload"],
                         capture_output=True, text=True, timeout=60, env=clean_env())
    assert json.loads(got.stdout)["bytes"] == 3 << 20, got.stderr
    assert f"< HTTP/{version} 100" in got.stderr, got.stderr
