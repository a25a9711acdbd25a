"""The clients that people have: curl, wget, Python's urllib, requests and aiohttp, Node. Each
is told of the proxy and of the CA as its own manual says. One that is not installed is skipped."""

import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import ssl
import subprocess

import pytest

from stilelib import PYTHON, TIMEOUT, Stile, allow, clean_env

MIB = 1 << 20
BLOCK = bytes(range(256)) * 256


@pytest.fixture(scope="module")
def world_of_all(origin, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("clients"), origin,
              rules=[allow("http://origin.test:*", "https://origin.test:*"),
                     {"deny": ["http://origin.test:*/no/**", "https://origin.test:*/no/**"]}])
    yield s
    s.finish()


@pytest.fixture
def world(world_of_all):
    return world_of_all.settled()


@pytest.fixture(params=["http", "https"])
def base(request, world):
    """The origin's URL, in clear and inspected."""
    return f"{request.param}://origin.test:{world.origin.plain if request.param == 'http' else world.origin.tls}"


def tool(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def run(*args, status=0, env=None, **more) -> subprocess.CompletedProcess:
    got = subprocess.run([str(a) for a in args], capture_output=True, timeout=TIMEOUT * 2, env=env or clean_env(), **more)
    assert status is None or got.returncode == status, f"{args}: {got.returncode}\n{got.stdout[-2000:]}\n{got.stderr[-4000:]}"
    return got


def pattern(n: int) -> bytes:
    return (BLOCK * (n // len(BLOCK) + 1))[:n]


def proxy_env(s: Stile, **more) -> dict[str, str]:
    """The variables, as `stile run` sets them."""
    url = f"http://127.0.0.1:{s.port}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy")
    trust = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")
    return clean_env(**{n: url for n in names}, **{n: str(s.ca) for n in trust}, **more)


def ended_well(s: Stile, since: int, n: int = 1, **want) -> list[dict]:
    ends = s.wait_records(n, since, event="request.end", **want)
    assert not [e for e in ends if "error" in e], ends
    return ends


# ---- curl ----


def curl(s: Stile, *args, status=0, **more) -> subprocess.CompletedProcess:
    """In HTTP/1.1 unless args say otherwise (test_http2.py)."""
    return run(tool("curl"), "-q", "-sS", "--http1.1", "--max-time", TIMEOUT, *args, status=status, env=proxy_env(s), **more)


def test_curl(world, base):
    since = world.mark()
    assert curl(world, f"{base}/ok/a").stdout == b"ok /ok/a\n"
    end = ended_well(world, since)[0]
    assert (end["scheme"], end["status"], end["path"]) == (base.split(":")[0], 200, "/ok/a")


def test_curl_with_options_instead_of_variables(world, base):
    got = run(tool("curl"), "-q", "-sS", "-x", f"http://127.0.0.1:{world.port}", "--cacert", world.ca, f"{base}/ok/a")
    assert got.stdout == b"ok /ok/a\n"


def test_curl_that_does_not_trust_the_ca(world):
    since, seen = world.mark(), world.origin.mark()
    got = run(tool("curl"), "-q", "-sS", "-x", f"http://127.0.0.1:{world.port}", "--cacert", world.origin.pki / "ca.pem",
              f"https://origin.test:{world.origin.tls}/ok/a", status=60)
    assert got.stdout == b""
    record = world.wait_record(since)
    assert (record["event"], record["reason"]) == ("tunnel.deny", "leaf_rejected")
    assert len(world.records(since)) == 1 and world.origin.since(seen) == b""


def test_curl_is_told_why(world, base):
    got = curl(world, "-w", "%{http_code}", f"{base}/no/a").stdout
    assert got.endswith(b"403") and json.loads(got[:-3])["reason"] == "denied_by_rule"
    curl(world, "-f", f"{base}/no/a", status=22)


def test_curl_to_a_host_of_no_rule(world):
    since = world.mark()
    got = curl(world, "-w", "%{http_connect}", f"https://evil.test:{world.origin.tls}/ok/a", status=56)
    assert got.stdout == b"403" and b"403" in got.stderr
    assert world.wait_record(since, event="tunnel.deny")["reason"] == "no_rule"


def test_curl_tunnels_clear_http(world):
    since = world.mark()
    assert curl(world, "-p", f"http://origin.test:{world.origin.plain}/ok/a").stdout == b"ok /ok/a\n"
    assert ended_well(world, since)[0]["scheme"] == "http"
    curl(world, "-f", "-p", f"http://origin.test:{world.origin.plain}/no/a", status=22)


@pytest.mark.parametrize("how", ["-T FILE", "-T -", "-d @FILE", "-F"])
def test_curl_uploads(world, base, tmp_path, how):
    since, n = world.mark(), 3 * MIB
    (tmp_path / "data").write_bytes(pattern(n))
    options = {"-T FILE": ["-T", tmp_path / "data"], "-T -": ["-T", "-"], "-F": ["-F", f"file=@{tmp_path / 'data'}"],
               "-d @FILE": ["--data-binary", f"@{tmp_path / 'data'}"]}[how]
    got = json.loads(curl(world, *options, f"{base}/upload", input=pattern(n) if how == "-T -" else None).stdout)
    if how == "-F":
        assert got["bytes"] > n
    else:
        del got["sealed"]
        assert got == {"bytes": n, "sha256": hashlib.sha256(pattern(n)).hexdigest(), "trailers": []}
    assert ended_well(world, since)[0]["bytes_out"] == got["bytes"]


def test_curl_expects_100(world, base):
    """The origin says 100; without it curl would wait for all of --expect100-timeout."""
    got = curl(world, "-v", "-H", "Expect: 100-continue", "--expect100-timeout", TIMEOUT, "-d", "hello", f"{base}/continue")
    assert got.stdout == b"hello"
    assert b"HTTP/1.1 100 Continue" in got.stderr


def test_curl_is_refused_before_its_body(world, base):
    got = curl(world, "-v", "-H", "Expect: 100-continue", "--expect100-timeout", TIMEOUT, "-d", "hello", f"{base}/no/a")
    assert b"denied_by_rule" in got.stdout and b"100 Continue" not in got.stderr


def test_curl_resumes_a_download(world, base, tmp_path):
    path = world.origin.script("resume-" + base.split(":")[0], ["send", "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes "
                               "5-9/10\r\nContent-Length: 5\r\n\r\n56789"])
    (tmp_path / "part").write_bytes(b"01234")
    curl(world, "-C", "-", "-o", tmp_path / "part", base + path)
    assert (tmp_path / "part").read_bytes() == b"0123456789"
    assert curl(world, "-r", "5-9", base + path).stdout == b"56789"
    assert ["Range", "bytes=5-9"] in json.loads(curl(world, "-r", "5-9", f"{base}/echo").stdout)["headers"]


@pytest.mark.parametrize("options", [["--http1.0"], ["--proxy1.0", "PROXY"], ["--http1.0", "-p"]])
def test_curl_in_other_versions(world, base, options):
    options = [f"127.0.0.1:{world.port}" if o == "PROXY" else o for o in options]
    assert curl(world, *options, f"{base}/chunked?n=100000").stdout == pattern(100000)
    assert curl(world, *options, f"{base}/ok/a").stdout == b"ok /ok/a\n"


def test_curl_of_http_2(world):
    """Inspected, it is served HTTP/2. In clear it asks for h2c in passing, and goes on without."""
    assert curl(world, "--http2", f"https://origin.test:{world.origin.tls}/ok/a").stdout == b"ok /ok/a\n"
    assert curl(world, "--http2", f"http://origin.test:{world.origin.plain}/ok/a").stdout == b"ok /ok/a\n"


def test_curl_compressed(world, base):
    """What is encoded end to end is nothing to us."""
    text = b"a line of text\n" * 5000
    path = world.origin.script("gzip-" + base.split(":")[0], [
        "send", f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n{len(gzip.compress(text)):x}\r\n"
        + gzip.compress(text).decode("latin-1") + "\r\n0\r\n\r\n"])
    assert curl(world, "--compressed", base + path).stdout == text
    asked = dict(json.loads(curl(world, "--compressed", f"{base}/echo").stdout)["headers"])
    assert "gzip" in asked["Accept-Encoding"]


def test_curl_head_delete_options_and_redirects(world, base):
    assert curl(world, "-I", f"{base}/bytes/1000").stdout.count(b"Content-Length: 1000") == 1
    assert json.loads(curl(world, "-X", "DELETE", f"{base}/echo").stdout)["method"] == "DELETE"
    assert json.loads(curl(world, "-X", "OPTIONS", f"{base}/echo").stdout)["method"] == "OPTIONS"
    assert curl(world, "-L", f"{base}/redirect?to={base}/ok/there").stdout == b"ok /ok/there\n"
    assert b"no_rule" in curl(world, "-L", f"{base}/redirect?to=http://evil.test:1/", status=None).stdout


def test_curl_keeps_its_connection(world, base):
    got = curl(world, "-w", "%{num_connects} ", *[x for i in range(8) for x in ("-o", os.devnull, f"{base}/ok/{i}")])
    assert got.stdout == b"1 " + b"0 " * 7


def test_curl_in_parallel(world, base):
    since = world.mark()
    got = curl(world, "-Z", "--parallel-max", "10", f"{base}/bytes/[1000-1049]")
    assert len(got.stdout) == sum(range(1000, 1050))
    assert len(ended_well(world, since, 50)) == 50


@pytest.mark.parametrize("path", ["bytes/30000000", "chunked?n=30000000", "close?n=30000000"])
def test_curl_downloads(world, path, base):
    if path.startswith("close") and base.startswith("https"):
        pytest.skip("the origin ends such an answer without close_notify")
    since = world.mark()
    got = curl(world, f"{base}/{path}").stdout
    assert hashlib.sha256(got).digest() == hashlib.sha256(pattern(30000000)).digest()
    assert ended_well(world, since)[0]["bytes_in"] == 30000000


def test_curl_sees_a_cut(world, base):
    path = world.origin.script("cut-" + base.split(":")[0], ["send", "HTTP/1.1 200 OK\r\n\r\nhalf"], ["reset"])
    curl(world, base + path, status=None if base.startswith("http:") else 18)
    path = world.origin.script("short-" + base.split(":")[0], ["send", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"], ["close"])
    assert curl(world, base + path, status=18).stdout == b"half"


# ---- wget ----


def wget(s: Stile, *args, status=0, **more):
    return run(tool("wget"), "--no-config", "-q", "-T", TIMEOUT, "-t", "1", f"--ca-certificate={s.ca}", *args, status=status,
               env=proxy_env(s), **more)


def test_wget(world, base):
    since = world.mark()
    assert wget(world, "-O-", f"{base}/ok/a").stdout == b"ok /ok/a\n"
    assert wget(world, "-O-", f"{base}/chunked?n=1000000").stdout == pattern(1000000)
    got = json.loads(wget(world, "-O-", "--post-data=hello", f"{base}/echo").stdout)
    assert (got["method"], got["body"]) == ("POST", "hello")
    assert len(ended_well(world, since, 3)) == 3


def test_wget_is_refused(world, base):
    wget(world, "-O-", f"{base}/no/a", status=8)
    wget(world, "-O-", base.replace("origin.test", "evil.test") + "/ok/a", status=8 if base.startswith("http:") else 4)


def test_wget_continues(world, base, tmp_path):
    path = world.origin.script("continue-" + base.split(":")[0], ["send", "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes "
                               "5-9/10\r\nContent-Length: 5\r\n\r\n56789"])
    (tmp_path / "part").write_bytes(b"01234")
    wget(world, "-c", "-O", tmp_path / "part", base + path)
    assert (tmp_path / "part").read_bytes() == b"0123456789"


def test_wget_that_does_not_trust_the_ca(world):
    since = world.mark()  # GnuTLS as well
    run(tool("wget"), "--no-config", "-q", "-t", "1", f"--ca-certificate={world.origin.pki / 'ca.pem'}", "-O-",
        f"https://origin.test:{world.origin.tls}/ok/a", status=5, env={**proxy_env(world), "SSL_CERT_FILE": os.devnull})
    record = world.wait_record(since)
    assert record["event"] == "tunnel.deny" and "trust" in record["error_detail"]
    assert len(world.records(since)) == 1


# ---- Python ----


def python(s: Stile, code: str, *args, module=None, status=0):
    if module and not importlib.util.find_spec(module):
        pytest.skip(f"Python's {module} is not installed")
    return run(PYTHON, "-W", "error::ResourceWarning", "-c", code, *args, status=status, env=proxy_env(s))


URLLIB = """
import json, ssl, sys, urllib.error, urllib.request
context = ssl.create_default_context()
context.verify_flags |= ssl.VERIFY_X509_STRICT
opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler())
base = sys.argv[1]
with opener.open(base + '/ok/a') as r:
    assert r.read() == b'ok /ok/a\\n'
with opener.open(base + '/echo', data=b'hello') as r:
    assert json.load(r)['body'] == 'hello'
with opener.open(urllib.request.Request(base + '/upload', data=iter([b'a' * 1000, b'b' * 1000]), method='PUT')) as r:
    assert json.load(r)['bytes'] == 2000
try:
    opener.open(base + '/no/a')
    raise SystemExit('not refused')
except urllib.error.HTTPError as e:
    with e:
        assert e.code == 403 and json.load(e)['reason'] == 'denied_by_rule'
"""


def test_urllib(world, base):
    since = world.mark()
    python(world, URLLIB, base)
    ended_well(world, since, 3)
    assert world.wait_record(since, event="request.deny")["reason"] == "denied_by_rule"


REQUESTS = """
import sys, requests
base = sys.argv[1]
with requests.Session() as s:
    for i in range(5):
        assert s.get(base + f'/ok/{i}').text == f'ok /ok/{i}\\n'
    assert s.post(base + '/upload', data=(b'x' * 1000 for _ in range(100))).json()['bytes'] == 100000
    assert s.put(base + '/upload', data=b'x' * 1000000).json()['bytes'] == 1000000
    with s.get(base + '/sse?n=3', stream=True) as r:
        assert list(filter(None, r.iter_lines())) == [b'data: 0', b'data: 1', b'data: 2']
    assert s.get(base + '/trailers').text == 'hello'
    r = s.get(base + '/no/a')
    assert (r.status_code, r.json()['reason']) == (403, 'denied_by_rule')
    assert s.get(base + '/redirect', params={'to': base + '/ok/b'}).text == 'ok /ok/b\\n'
try:
    requests.get(base.replace('origin.test', 'evil.test').replace('http:', 'https:'))
    raise SystemExit('not refused')
except requests.exceptions.ProxyError as e:
    assert '403' in str(e), e
"""


def test_requests(world, base):
    since = world.mark()
    python(world, REQUESTS, base, module="requests")
    ended_well(world, since, 11)


AIOHTTP = """
import asyncio, ssl, sys, aiohttp
base = sys.argv[1]

async def body():
    for _ in range(100):
        yield b'x' * 1000

async def main():
    async with aiohttp.ClientSession(trust_env=True, connector=aiohttp.TCPConnector(ssl=ssl.create_default_context())) as s:
        async def one(i):
            async with s.get(base + f'/ok/{i}') as r:
                return await r.text()
        got = await asyncio.gather(*(one(i) for i in range(20)))
        assert got == [f'ok /ok/{i}\\n' for i in range(20)], got
        async with s.post(base + '/upload', data=body()) as r:
            assert (await r.json())['bytes'] == 100000
        async with s.get(base + '/no/a') as r:
            assert r.status == 403 and (await r.json())['reason'] == 'denied_by_rule'
        async with s.get(base + '/chunked?n=1000000') as r:
            assert len(await r.read()) == 1000000
        async with s.get(base + '/sse?n=3') as r:
            assert [x async for x in r.content if x.strip()] == [b'data: 0\\n', b'data: 1\\n', b'data: 2\\n']

asyncio.run(main())
"""


def test_aiohttp(world, base):
    since = world.mark()
    python(world, AIOHTTP, base, module="aiohttp")
    ended_well(world, since, 23)


# ---- Node ----


NODE_AGENT = """
const http = require('http'), https = require('https'), tls = require('tls');
const base = new URL(process.argv[2]), proxy = new URL(process.env.HTTPS_PROXY);
const secure = base.protocol === 'https:';

class TunnelAgent extends (secure ? https : http).Agent {
  createConnection(options, done) {
    const target = options.host + ':' + options.port;
    http.request({host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: target, headers: {host: target}})
      .on('connect', (res, socket) => {
        if (res.statusCode !== 200) { socket.destroy(); done(new Error('CONNECT: ' + res.statusCode)); return; }
        if (!secure) { done(null, socket); return; }
        const s = tls.connect({socket, servername: options.host, ALPNProtocols: ['http/1.1']}, () => done(null, s));
        s.on('error', done);
      }).on('error', done).end();
  }
}
const agent = new TunnelAgent({keepAlive: true, maxSockets: 4});
function ask(method, path, body, host) {
  return new Promise((resolve, reject) => {
    const q = (secure ? https : http).request({host: host || base.hostname, port: base.port, method, path, agent}, r => {
      const parts = [];
      r.on('data', d => parts.push(d)).on('end', () => resolve([r.statusCode, Buffer.concat(parts).toString()]))
        .on('aborted', () => reject(new Error('cut')));
    }).on('error', reject);
    if (body) for (const b of body) q.write(b);
    q.end();
  });
}
function must(ok, what) { if (!ok) throw new Error(what); }
(async () => {
  const many = await Promise.all([...Array(12).keys()].map(i => ask('GET', '/ok/' + i)));
  many.forEach(([status, text], i) => must(status === 200 && text === `ok /ok/${i}\\n`, text));
  const [, up] = await ask('POST', '/upload', Array(50).fill('x'.repeat(1000)));
  must(JSON.parse(up).bytes === 50000, up);
  const [, big] = await ask('GET', '/chunked?n=1000000');
  must(big.length > 0, 'big');
  const [status, why] = await ask('GET', '/no/a');
  must(status === 403 && JSON.parse(why).reason === 'denied_by_rule', why);
  await ask('GET', '/ok/a', null, 'evil.test').then(() => must(false, 'not refused'),
    e => must(e.message === 'CONNECT: 403', e.message));
  agent.destroy();
})().catch(e => { console.error(e); process.exit(1); });
"""


def test_node_with_an_agent_of_its_own(world, base, tmp_path):
    since = world.mark()
    (tmp_path / "agent.js").write_text(NODE_AGENT)
    run(tool("node"), tmp_path / "agent.js", base, env=proxy_env(world))
    ended_well(world, since, 14)
    assert world.wait_record(since, event="tunnel.deny", host="evil.test")["reason"] == "no_rule"


NODE_FETCH = """
(async () => {
  const base = process.argv[2];
  const text = await (await fetch(base + '/ok/a')).text();
  if (text !== 'ok /ok/a\\n') throw new Error(text);
  const up = await (await fetch(base + '/upload', {method: 'POST', body: 'x'.repeat(100000)})).json();
  if (up.bytes !== 100000) throw new Error(JSON.stringify(up));
  const no = await fetch(base + '/no/a');
  if (no.status !== 403 || (await no.json()).reason !== 'denied_by_rule') throw new Error('not refused');
})().catch(e => { console.error(e); process.exit(1); });
"""


def test_node_with_its_own_proxy_support(world, base, tmp_path):
    node = tool("node")
    knows = run(node, "-p", "process.allowedNodeEnvironmentFlags.has('--use-env-proxy')").stdout.strip()
    if knows != b"true":
        version = run(node, "--version").stdout.decode().strip()
        pytest.skip(f"Node {version} does not honour NODE_USE_ENV_PROXY (since 22.21 and 24.0)")
    since = world.mark()
    (tmp_path / "fetch.js").write_text(NODE_FETCH)
    run(node, tmp_path / "fetch.js", base, env=proxy_env(world, NODE_USE_ENV_PROXY="1"))
    ended_well(world, since, 2)


def test_node_that_does_not_trust_the_ca(world, tmp_path):
    since = world.mark()
    (tmp_path / "agent.js").write_text(NODE_AGENT)
    env = {**proxy_env(world), "NODE_EXTRA_CA_CERTS": str(world.origin.pki / "ca.pem")}
    got = run(tool("node"), tmp_path / "agent.js", f"https://origin.test:{world.origin.tls}", status=1, env=env)
    assert b"certificate" in got.stderr
    assert world.wait_record(since, event="tunnel.deny")["reason"] in ("leaf_rejected", "client_tls_failed")
    assert not [r for r in world.records(since) if r["event"] != "tunnel.deny"]
