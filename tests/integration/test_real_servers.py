"""Servers that people run, behind stile: what they take for a denied path is denied, what stile sends they read as the one
request that was judged, and what they answer comes through."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

import pytest

import canary as canarylib
from clientlib import CLIENTS, REPO, tool
from spellings import spellings
from stilelib import TIMEOUT, Raw, allow, chunked, clean_env, get, wait_for

UNPACKED = REPO / "build" / "clients" / "origins"  # by install-deps.sh, where they are not installed
PATHS = ["/open/secret/x", "/secret/x", "/open/secret", "/open/page.html", "/secret/index.html"]
DENIED = ["/open/secret/**", "/secret/**", "/open/page.html"]
pytestmark = pytest.mark.xdist_group("real-servers")


def program(name: str) -> pathlib.Path:
    for root in (pathlib.Path("/"), UNPACKED):
        if (root / "usr/sbin" / name).exists():
            return root / "usr/sbin" / name
    pytest.skip(f"{name} is neither installed nor unpacked (tests/install-deps.sh test)")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def ask_directly(port: int, request: bytes, method: str = "GET"):
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as s:
        return Raw(s).ask(request, method)


class Server:
    """One of them, with a folder that others may read (Apache's children are nobody) and a secret in it."""

    def __init__(self, name: str, folder: pathlib.Path):
        self.folder, self.secret, self.port, self.log = folder, canarylib.made_up(), 0, folder / "log"
        for base in ("open/secret", "secret"):
            (folder / "www" / base).mkdir(parents=True)
            for leaf in ("x", "index.html"):
                (folder / "www" / base / leaf).write_text(self.secret)
        (folder / "www/open/page.html").write_text(self.secret)
        (folder / "www/open/a").write_text("open")
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        for left in (4, 3, 2, 1, 0):
            self.proc = getattr(self, name)()
            try:
                wait_for(self.is_up, why=f"{name} answers")
                break
            except AssertionError:
                again = self.proc.poll() is not None and left  # another has taken the port, which cannot be 0 here
                self.stop()
                if not again:
                    raise

    def start(self, *args, **env) -> subprocess.Popen:
        """In a session of its own: Apache ends its whole process group."""
        with open(self.folder / "stderr", "ab") as err:
            return subprocess.Popen([str(a) for a in args], cwd=self.folder, env=clean_env(**env), stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=err, start_new_session=True)

    def is_up(self) -> bool:
        assert self.proc.poll() is None, (self.folder / "stderr").read_text()
        try:
            return ask_directly(self.port, get(f"http://h:{self.port}/open/a").replace(b"http://h:%d" % self.port, b"")).body == b"open"
        except (OSError, AssertionError):
            return False

    def nginx(self) -> subprocess.Popen:
        self.port = free_port()
        scratch = "".join(f"{k}_temp_path {self.folder}/{k};" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "conf").write_text(f"""
daemon off; master_process off; pid {self.folder}/pid; error_log stderr;
events {{}}
http {{ {scratch} log_format id '$request|$http_host|$http_x_id'; access_log {self.log} id;
 server {{ listen 127.0.0.1:{self.port}; root {self.folder}/www; location /static {{ alias {self.folder}/www/open/; }}
  location = /echo {{ add_header X-Id $http_x_id always; return 200 '["$request_method","$request_uri","$http_host",""]'; }} }} }}
""")
        return self.start(program("nginx"), "-p", self.folder, "-c", self.folder / "conf", "-e", "stderr")

    def apache2(self) -> subprocess.Popen:
        binary = program("apache2")
        modules = binary.parents[1] / "lib/apache2/modules"
        self.port = free_port()
        (self.folder / "conf").write_text(f"""
ServerName localhost
Listen 127.0.0.1:{self.port}
PidFile {self.folder}/pid
DefaultRuntimeDir {self.folder}
Mutex fcntl
ErrorLog {self.folder}/errors
""" + "".join(f"LoadModule {m}_module {modules}/mod_{m}.so\n" for m in ("mpm_prefork", "authz_core", "dir", "mime", "negotiation")) + f"""
TypesConfig /dev/null
AddType text/html .html
User nobody
Group nogroup
StartServers 2
MaxKeepAliveRequests 0
LogFormat "%r|%{{Host}}i|%{{X-Id}}i" id
CustomLog {self.log} id
DocumentRoot {self.folder}/www
AllowEncodedSlashes On
AcceptPathInfo On
<Directory {self.folder}/www>
Options MultiViews
</Directory>
""")
        return self.start(binary, "-f", self.folder / "conf", "-DFOREGROUND",
                          LD_LIBRARY_PATH=str(UNPACKED / "usr/lib/x86_64-linux-gnu") if UNPACKED in binary.parents else "")

    def gunicorn(self) -> subprocess.Popen:
        try:
            subprocess.run(["/usr/bin/python3", "-c", "import gunicorn"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("python3-gunicorn is not installed")
        self.port = free_port()
        return self.start("/usr/bin/python3", "-m", "gunicorn", "-k", "gthread", "--threads", 4, "--keep-alive", 60, "-b", f"127.0.0.1:{self.port}",
                          "--chdir", CLIENTS / "servers", "paths:app", SECRET=self.secret, PYTHONDONTWRITEBYTECODE="1")

    def node(self) -> subprocess.Popen:
        proc = self.start(tool("node"), CLIENTS / "servers/paths.js", self.secret)
        self.port = int(proc.stdout.readline() or 0)
        return proc

    def stop(self) -> None:
        self.proc.terminate()
        try:
            self.proc.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()


@pytest.fixture(scope="module", params=["nginx", "apache2", "gunicorn", "node"])
def server(request):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stile-server-"))
    folder.chmod(0o755)
    s = None
    try:
        s = Server(request.param, folder)
        s.name = request.param
        yield s
    finally:
        if s:
            s.stop()
        shutil.rmtree(folder)


@pytest.fixture
def behind(server, stile):
    base = f"http://origin.test:{server.port}"
    s = stile(rules=[allow(base), {"deny": [base + p for p in DENIED]}], limits={"workers": 1})
    s.base, s.server = base, server
    return s


class Asker:
    """Requests one after the other, on one connection while it lasts."""

    def __init__(self, connect):
        self.connect, self.c = connect, None

    def __call__(self, request: bytes, method: str = "GET"):
        self.c = self.c or self.connect()
        r = self.c.ask(request, method)
        if "close" in (r.get("connection") or "").lower() or r.version == "HTTP/1.0" or (
                r.get("content-length") is None and r.get("transfer-encoding") is None and r.status not in (204, 304)):
            self.c.close()
            self.c = None
        return r


def test_what_is_denied_is_not_served(behind, server):
    """Whatever way it is written. Directly, the server takes many of these for it."""
    direct = Asker(lambda: Raw(socket.create_connection(("127.0.0.1", server.port), TIMEOUT)))
    through = Asker(behind.client)
    taken, admitted = [], 0
    for path in spellings(PATHS, 1500, seed=len(server.name)):
        if not re.search(r"[^!-~]", path) and server.secret in direct(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()).body.decode("latin-1"):
            taken.append(path)
        r = through(get(behind.base + path))
        assert server.secret not in r.body.decode("latin-1"), path
        admitted += r.get("proxy-status") is None
    known = {"nginx": "/static../secret/x", "apache2": "/open/page", "gunicorn": "/sec%80ret/x", "node": "//x/secret/x"}
    assert len(taken) > 100 and admitted > 100, (len(taken), admitted)
    assert known[server.name] in taken or server.secret in direct(
        f"GET {known[server.name]} HTTP/1.1\r\nHost: h\r\n\r\n".encode()).body.decode("latin-1")


def test_a_prefix_that_the_server_takes_off(behind, server):
    """gunicorn takes the field for where the application is mounted."""
    field = "SCRIPT_NAME: /open/a\r\n"
    raw = f"GET /open/a/secret/x HTTP/1.1\r\nHost: h\r\n{field}\r\n".encode()
    assert (server.secret in ask_directly(server.port, raw).body.decode("latin-1")) == (server.name == "gunicorn")
    r = behind.ask(get(behind.base + "/open/a/secret/x", more=field))
    assert r.status == 403 and r.json()["reason"] == "denied_by_rule"


REQUESTS = [
    ("GET", "/echo", "", b"", ""), ("GET", "/echo?a=%2F..%2f&b=\xff", "", b"", ""), ("OPTIONS", "/echo", "", b"", ""),
    ("GET", "/%65cho", "", b"", ""), ("GET", "/echo?", "", b"", ""), ("PROPFIND", "/echo", "", b"", ""),
    ("POST", "/echo", "Content-Length: 0\r\n", b"", ""), ("POST", "/echo", "", b"", ""), ("PUT", "/echo", "Content-Length: 0005\r\n", b"hello", "hello"),
    ("POST", "/echo", "Content-Length: 5\r\nExpect: 100-continue\r\n", b"hello", "hello"),
    ("POST", "/echo", "Transfer-Encoding: chunked\r\n", b"5;a=b\r\nhello\r\n0\r\nX-T: v\r\n\r\n", "hello"),
    ("POST", "/echo", "Transfer-Encoding: chunked\r\n", chunked(*[b"x"] * 300), "x" * 300), ("PATCH", "/echo", "Content-Length: 3\r\nX-Y:\r\nX-Y: \xe9\r\n", b"abc", "abc"),
    ("GET", "/echo", "Content-Length: 5\r\n", b"hello", "hello"), ("DELETE", "/echo", "Transfer-Encoding: chunked\r\n", chunked(b"hello"), "hello"),
    ("POST", "/echo", "Content-Length: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n", b"hello", "hello"),
    ("POST", "/echo", "Content-Length: 5\r\nX-Transfer-Encoding: chunked\r\nContent-Length-X: 50\r\n", b"hello", "hello"),
    ("POST", "/echo", "Content-Length: 200000\r\n", b"y" * 200000, "y" * 200000), ("POST", "/echo", "Content-Length: 33\r\n", b"GET /secret/x HTTP/1.1\r\nHost: h\r\n", "GET /secret/x HTTP/1.1\r\nHost: h\r\n"),
]


def test_each_is_read_as_one_request(behind, server):
    """Its method, target, Host and body as they were judged, and the next one is not within it."""
    host, number = f"origin.test:{server.port}", 0
    through = Asker(behind.client)
    for method, path, more, body, wanted in REQUESTS:
        number += 1
        r = through(get(behind.base + path, more=more + f"X-Id: {number}\r\n", method=method) + body, method)
        if r.status == 200 and r.body.startswith(b"["):
            said = json.loads(r.body)
            assert said[:3] == [method, path.replace("%65", "e").replace("\xff", "%FF"), host]
            assert said[3] == wanted or server.name == "nginx"
        else:
            assert server.name in ("apache2", "nginx") and r.get("proxy-status") is None, r
        number += 1
        after = through(get(behind.base + "/open/a", more=f"X-Id: {number}\r\n"))
        assert after.status == 200 and after.body == b"open" and after.get("x-id") in (str(number), None)
    if server.name in ("nginx", "apache2"):
        def logged():  # by several processes, so in no order
            found = [x.split("|") for x in server.log.read_text("latin-1").splitlines()]
            found = sorted((int(x[2]), x[0].split(" ")[0]) for x in found if x[1] == host and x[2] != "-")
            return found if len(found) >= number else None
        found = wait_for(logged, why="the server's log is written")
        assert [n for n, _ in found] == list(range(1, number + 1))
        assert [method for _, method in found][::2] == [x[0] for x in REQUESTS]


@pytest.fixture(scope="module")
def node():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stile-server-"))
    try:
        s = Server("node", folder)
        yield s
        s.stop()
    finally:
        shutil.rmtree(folder)


ANSWERS = [
    ("POST", "/early", "Content-Length: 300000\r\n", b"x" * 300000, 413, b"too much", None), ("GET", "/304", "", b"", 304, b"", None),
    ("HEAD", "/304", "", b"", 304, b"", None), ("GET", "/hints", "", b"", 200, b"hinted", None), ("GET", "/trailers", "TE: trailers\r\n", b"", 200, b"abc", None),
    ("HEAD", "/open/a", "", b"", 200, b"", None), ("GET", "/close", "", b"", 200, b"bye", None),
    ("GET", "/cut", "", b"", 200, b"abc", "upstream_closed"), ("GET", "/cut-chunks", "", b"", 200, b"abc", "upstream_closed"),
    ("GET", "/nothing", "", b"", 502, None, "upstream_closed"), ("POST", "/nothing", "Content-Length: 3\r\n", b"abc", 502, None, "upstream_closed"),
    ("POST", "/refused", "Content-Length: 5\r\nExpect: 100-continue\r\n", b"hello", 417, b"no", None)]


@pytest.mark.parametrize("method, path, more, body, status, text, error", ANSWERS, ids=[a[0] + a[1] for a in ANSWERS])
def test_answers(node, stile, method, path, more, body, status, text, error):
    """Early ones, those that have no body whatever they say, interim ones, trailers, and those that break off. The next
    request on the connection, where it is kept, gets its own."""
    base = f"http://origin.test:{node.port}"
    s = stile(rules=[allow(base)])
    with s.client() as c:
        c.send_quietly(get(base + path, more=more, method=method) + body)
        r = c.response(method)
        assert r.status == status and (text is None or r.body == text), r
        assert r.whole == (path not in ("/cut", "/cut-chunks")) and (path != "/trailers" or r.trailers == ["X-T: v"])
        if r.whole and "close" not in (r.get("connection") or ""):
            assert c.ask(get(base + "/open/a")).body == b"open"
    end = s.wait_record(event="request.end", path=path)
    assert (end["status"], end.get("error")) == (status, error) and end["bytes_in"] == len(text or b"")
