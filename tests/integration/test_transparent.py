"""Transparent listeners, and listeners in another network namespace: what a program that knows of no proxy gets.

stile and its origins are in one namespace, the client is in another, where it has loopback and what is routed to
that; the listeners are opened in the second (`netns`)."""

import base64
import ctypes
import hashlib
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess

import pytest

from h2lib import H2
from stilelib import BIN, TIMEOUT, Origin, Raw, Response, Stile, allow, client_context

CLONE_NEWNET, IPV6_FREEBIND = 0x40000000, 78
LITERAL, OTHER = "11.98.0.9", "11.98.0.10"
HTTP = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


def libc_call(name: str, *args) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def ip(*args: str) -> str:
    return " ".join(["ip", *args])


class Net:
    """This thread, and all that it starts, is outside; `inside` is another namespace."""

    def __init__(self):
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            libc_call("unshare", CLONE_NEWNET)
        except OSError as e:
            pytest.skip(f"no network namespace is to be had: {e}")
        self.outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        here = " && ".join([ip("link set lo up"), ip("route add local 11.98.0.0/16 dev lo"),
                            ip("-6 route add local 2600:98::/32 dev lo")])
        up = " && ".join([here, ip("route add local 198.18.0.0/15 dev lo"), ip("-6 route add local fd73:7469:6c65::/64 dev lo")])
        subprocess.run(here, shell=True, check=True)
        self.holder = subprocess.Popen(["unshare", "-n", "sh", "-c", up + " && echo up; exec sleep 3600"], stdout=subprocess.PIPE)
        assert self.holder.stdout.readline() == b"up\n"
        self.path = f"/proc/{self.holder.pid}/ns/net"
        self.inside = os.open(self.path, os.O_RDONLY)

    def leave(self) -> None:
        libc_call("setns", self.before, CLONE_NEWNET)
        self.holder.kill()
        self.holder.wait()
        for fd in (self.before, self.outside, self.inside):
            os.close(fd)

    def socket(self, family=socket.AF_INET, kind=socket.SOCK_STREAM) -> socket.socket:
        """One of the inside: a socket keeps the namespace that it was made in."""
        libc_call("setns", self.inside, CLONE_NEWNET)
        try:
            s = socket.socket(family, kind)
        finally:
            libc_call("setns", self.outside, CLONE_NEWNET)
        s.settimeout(TIMEOUT)
        return s

    def connect(self, address: str, port: int) -> Raw:
        s = self.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        s.connect((address, port))
        return Raw(s)

    def resolve(self, name: str, kind: int = 1, port: int = 53) -> str | None:
        """What the stub DNS inside says; None: there is no such name."""
        labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
        with self.socket(kind=socket.SOCK_DGRAM) as s:
            s.sendto(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + struct.pack("!BHH", 0, kind, 1), ("127.0.0.1", port))
            answer = s.recv(512)
        if answer[3] & 15 == 3:
            return None
        assert answer[3] & 15 == 0 and answer[7] == 1, answer
        return socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, answer[-(4 if kind == 1 else 16):])

    def run(self, *cmd: str, **more) -> subprocess.CompletedProcess:
        return subprocess.run(["nsenter", f"--net={self.path}", *cmd], capture_output=True, text=True, timeout=TIMEOUT * 3, **more)

    def place(self, address: str) -> dict:
        return {"netns": self.path, "address": address}


@pytest.fixture(scope="module")
def net():
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    if not shutil.which("ip"):
        pytest.skip("needs ip (iproute2)")
    n = Net()
    yield n
    n.leave()


@pytest.fixture(scope="module")
def origin(net, tmp_path_factory):
    """One of this namespace."""
    o = Origin(tmp_path_factory.mktemp("origin"))
    yield o
    o.stop()


class Listener:
    """An origin at an address of the documentation's, by hand."""

    def __init__(self, address: str = LITERAL, port: int = 0):
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        if ":" in address:  # of a range that is routed to lo
            self.socket.setsockopt(socket.IPPROTO_IPV6, IPV6_FREEBIND, 1)
        self.socket.bind((address, port))
        self.socket.listen()
        self.socket.settimeout(TIMEOUT)
        self.port = self.socket.getsockname()[1]

    def accept(self) -> Raw:
        s = self.socket.accept()[0]
        s.settimeout(TIMEOUT)
        return Raw(s)

    def nobody_came(self) -> bool:
        self.socket.setblocking(False)
        try:
            self.socket.accept()[0].close()
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT)
        return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


def denied(s: Stile, since: int, reason: str, event: str = "tunnel.deny", **want) -> dict:
    r = s.wait_record(since, event=event, reason=reason, **want)
    assert len(s.records(since)) == 1, s.records(since)
    return r


# ---- the place of a listener ----


def test_a_proxy_in_a_namespace(net, stile):
    """Clients come from there, and requests go out from here."""
    with Listener() as origin:
        s = stile(listen=[{"proxy": net.place("127.0.0.1:0")}], rules=[allow(f"http://{LITERAL}:{origin.port}")])
        assert f"listening on 127.0.0.1:{s.port} in {net.path} (policy default, 1 rule)" in s.stderr
        with net.connect("127.0.0.1", s.port) as c:
            c.send(f"GET http://{LITERAL}:{origin.port}/a HTTP/1.1\r\nHost: {LITERAL}:{origin.port}\r\n\r\n".encode())
            with origin.accept() as o:
                assert o.read_head().startswith(b"GET /a HTTP/1.1\r\n")
                o.send(HTTP.encode())
                assert c.response().body == b"hello"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", s.port), TIMEOUT)
        assert os.stat(f"/proc/{s.pid}/ns/net").st_ino == os.fstat(net.outside).st_ino


def test_the_same_address_in_two_namespaces(net, stile):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    s = stile(listen=[{"proxy": f"127.0.0.1:{port}", "name": "here"}, {"proxy": net.place(f"127.0.0.1:{port}"), "name": "there"}], rules=[allow("a.b.test")])
    assert s.client().ask(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").status == 403
    with net.connect("127.0.0.1", port) as c:
        assert c.ask(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").status == 403
    assert [x["listener"] for x in s.wait_records(2, event="request.deny")] == ["here", "there"]


def test_a_namespace_that_is_none(net, stile, tmp_path):
    for path, why in (("/proc/self/ns/uts", "is no network namespace"), (str(tmp_path / "missing"), "No such file"),
                      ("/dev/null", "is no network namespace")):
        s = stile(listen=[{"proxy": {"netns": path, "address": "127.0.0.1:0"}}], wait=False, exit_code=1, pairs=False)
        s.wait_stderr(rf"stile\.yaml:2:\d+: .*{why}")
        assert s.proc.wait(TIMEOUT) == 1
        # What is not opened is not looked for.
        assert subprocess.run([BIN, "check", s.config], capture_output=True, timeout=TIMEOUT).returncode == 0


def test_who_may_not_enter(net, stile):
    s = stile(listen=[{"proxy": net.place("127.0.0.1:0")}], wait=False, exit_code=1, pairs=False,
              prefix=["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all"])
    s.wait_stderr(r"stile\.yaml:2:\d+: entering /proc/\d+/ns/net needs CAP_SYS_ADMIN")
    assert s.proc.wait(TIMEOUT) == 1


def test_another_user_afterwards(net, stile):
    s = stile(listen=[{"proxy": net.place("127.0.0.1:0")}], rules=[allow("a.b.test")], extra="user: nobody")
    assert s.status()["CapEff"].strip("0") == "" and s.status()["Uid"].split()[1] != "0"
    with net.connect("127.0.0.1", s.port) as c:
        assert c.ask(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").status == 403


def test_a_reload_does_not_move_it(net, stile):
    s = stile(listen=[{"proxy": net.place("127.0.0.1:0")}], rules=[allow("a.test")])
    for place in ({"proxy": "127.0.0.1:0"}, {"proxy": {"netns": "/proc/self/ns/net", "address": "127.0.0.1:0"}},
                  {"transparent": net.place("127.0.0.1:0"), "name": "proxy-0"}):
        assert "`listen:` has changed" in s.reload(good=False, listen=[place])["error_detail"]
    s.reload(listen=[{"proxy": net.place("127.0.0.1:0")}], rules=[allow("b.test")])


# ---- addresses that nobody made up ----


def transparent(net, stile, port: int, rules: list, **more) -> Stile:
    return stile(listen=[{"transparent": net.place(f"0.0.0.0:{port}")}], rules=rules, **more)


def test_an_address_that_a_rule_spells_out(net, stile):
    with Listener() as origin:
        s = transparent(net, stile, origin.port, [allow(f"http://{LITERAL}:{origin.port}/ok/**")])
        host = f"{LITERAL}:{origin.port}"
        with net.connect(LITERAL, origin.port) as c:
            c.send(f"GET /ok/a HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            with origin.accept() as o:
                assert f"\r\nHost: {host}\r\n" in o.read_head().decode()
                o.send(HTTP.encode())
                assert c.response().body == b"hello"
            r = c.ask(f"GET /no HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert (r.status, r.json()["reason"]) == (403, "no_rule")
        r = s.wait_record(event="request.end")
        assert (r["listener"], r["host"], r["port"], r["scheme"]) == ("transparent-0", LITERAL, origin.port, "http")
        since = s.mark()
        with net.connect(OTHER, origin.port) as c:
            assert c.ask(f"GET /ok/a HTTP/1.1\r\nHost: {OTHER}:{origin.port}\r\n\r\n".encode()).status == 403
        denied(s, since, "no_rule", host=OTHER, port=origin.port)


@pytest.mark.parametrize("tool, mine, other, place, own", [("iptables", LITERAL, OTHER, "11.98.0.0/16", "127.0.0.1"),
                                                           ("ip6tables", "2600:98::9", "2600:98::a", "2600:98::/32", "::1")])
def test_a_redirection(net, stile, tool, mine, other, place, own):
    """The address before it counts, and the port; the listener's own is nobody's target."""
    if not shutil.which(tool):
        pytest.skip(f"needs {tool}")
    with Listener(mine) as origin, Listener(own) as free:
        to, port = free.port, origin.port
        free.socket.close()

        def bracketed(a: str) -> str:
            return f"[{a}]" if ":" in a else a
        s = stile(listen=[{"transparent": net.place(f"{bracketed(own)}:{to}")}], rules=[allow(f"tcp://{bracketed(mine)}:{port}")])
        rule = ["OUTPUT", "-t", "nat", "-p", "tcp", "-d", place, "-j", "REDIRECT", "--to-ports", str(to)]
        got = net.run(tool, "-A", *rule)
        if got.returncode:
            pytest.skip(f"no redirection is to be had: {got.stderr}")
        try:
            with net.connect(mine, port) as c, origin.accept() as o:
                o.send(b"first\r\n")
                assert c.read_until(b"\r\n") == b"first\r\n"
            s.wait_record(event="tunnel.end", host=mine, port=port, upstream=f"{bracketed(mine)}:{port}")
            for address, meant in ((mine, port + 1), (other, port), (own, to)):
                since = s.mark()
                with net.connect(address, meant) as c:
                    c.send(b"SSH-2.0-x\r\n")
                    assert c.read_all() == b""
                r = denied(s, since, "no_rule", host=address, port=meant)
                assert f"no rule allows a connection to {bracketed(address)}:{meant}" in r["error_detail"]
        finally:
            assert net.run(tool, "-D", *rule).returncode == 0


def test_a_server_that_speaks_first(net, stile):
    with Listener() as origin:
        transparent(net, stile, origin.port, [allow(f"tcp://{LITERAL}:{origin.port}")])
        with net.connect(LITERAL, origin.port) as c, origin.accept() as o:
            o.send(b"220 hello\r\n")
            assert c.read_until(b"\r\n") == b"220 hello\r\n"
            c.send(b"QUIT\r\n")
            assert o.read_until(b"\r\n") == b"QUIT\r\n"


@pytest.mark.parametrize("explain", ["explain", "refuse"])
def test_a_refused_address(net, stile, explain):
    """An alert, an answer, an end: what the first bytes let be said. One record each."""
    with Listener() as origin:
        s = transparent(net, stile, origin.port, [allow("https://a.test")], extra=f"deny: {explain}", limits={"peek": "300ms"})
        since = s.mark()
        with net.connect(LITERAL, origin.port) as c, pytest.raises(OSError, match="(?i)access.denied"):
            c.start_tls(client_context(s.ca), "a.test")
        denied(s, since, "no_rule", host=LITERAL, port=origin.port, scheme="https")
        for first, scheme in ((b"SSH-2.0-x\r\n", "tcp"), (b"\x16\x03\x01\x00\x05\x01", None), (b"", None)):
            since = s.mark()
            with net.connect(LITERAL, origin.port) as c:
                c.send(first)
                assert c.read_all() == b""
            denied(s, since, "no_rule", host=LITERAL, **({"scheme": scheme} if scheme else {}))
        assert origin.nobody_came()


def test_loopback_and_what_nobody_asked_for(net, stile):
    """No rule opens those, also where it names them."""
    with Listener("127.0.0.1") as origin:
        p = origin.port
        s = transparent(net, stile, p, [{"allow": [f"{k}://{a}:{p}" for k in ("tcp", "http") for a in ("127.0.0.1", "198.18.0.9")],
                                         "addresses": ["127.0.0.0/8", "198.18.0.0/15"]}])
        for address in ("127.0.0.1", "127.9.9.9", "198.18.0.9", "198.19.255.254"):
            since = s.mark()
            with net.connect(address, p) as c:
                assert c.ask(f"GET / HTTP/1.1\r\nHost: {address}:{p}\r\n\r\n".encode()).status == 403
            denied(s, since, "no_rule", host=address, port=p)
        assert origin.nobody_came()


def test_stile_does_not_lead_back_into_itself(net, stile):
    """The listener is here, behind a route; what it lets out would come in again."""
    with Listener("127.0.0.1") as probe:
        port = probe.port
    s = stile(listen=[{"transparent": f"0.0.0.0:{port}"}], rules=[{"allow": f"tcp://{LITERAL}:{port}"}])
    since = s.mark()
    with socket.create_connection((LITERAL, port), TIMEOUT) as c:
        assert c.recv(1) == b""
    r = denied(s, since, "address_denied", host=LITERAL)
    assert "is stile itself" in r["error_detail"]


def test_too_many(net, stile):
    with Listener() as origin:
        s = transparent(net, stile, origin.port, [allow(f"tcp://{LITERAL}:{origin.port}")], limits={"connections_per_address": 1})
        with net.connect(LITERAL, origin.port), origin.accept():
            s.wait_record(event="tunnel.start")
            since = s.mark()
            with net.connect(LITERAL, origin.port) as c:
                assert c.read_all() == b""
            denied(s, since, "rate_limited", host=LITERAL, port=origin.port)


def test_a_rule_that_a_reload_takes_away(net, stile):
    with Listener() as origin:
        s = transparent(net, stile, origin.port, [allow(f"http://{LITERAL}:{origin.port}"), allow(f"tcp://{LITERAL}:{origin.port}")])
        with net.connect(LITERAL, origin.port) as silent:
            since = s.mark()
            s.reload(rules=[allow("a.test")])
            silent.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert silent.response().status == 403
            r = s.wait_record(since, event="tunnel.deny", reason="no_rule")
            assert "a reload took back" in r["error_detail"]
        assert origin.nobody_came()


def test_what_is_said_of_it(net, stile):
    s = stile(listen=[{"transparent": net.place("0.0.0.0:0"), "name": "catch"}], rules=[allow("a.b.test")], extra="admin: unix:admin.sock")
    assert f"listening on 0.0.0.0:{s.port} in {net.path} (transparent, policy default, 1 rule)" in s.stderr
    got = subprocess.run([BIN, "status", "-c", s.config], capture_output=True, text=True, timeout=TIMEOUT)
    assert re.search(rf"^listeners +catch +transparent +0\.0\.0\.0:{s.port} in {net.path} ", got.stdout, re.M), got


# ---- names ----


class Straight(Raw):
    """For who would say CONNECT first."""

    def connect(self, target: str, more: str = "") -> Response:
        return Response(200, "OK", "1.1", [])


class World:
    """A stile whose DNS and transparent listeners are inside; names are the origin's, at its ports."""

    def __init__(self, net: Net, origin: Origin, stile, rules=None, deny="refuse", **more):
        self.net, self.origin = net, origin
        places = [{"transparent": net.place(f"0.0.0.0:{p}"), "name": n} for n, p in (("clear", origin.plain), ("tls", origin.tls))]
        self.s = stile(listen=[*places, {"dns": net.place("127.0.0.1:53")}], extra=f"deny: {deny}", rules=rules or [
            allow(f"http://origin.test:{origin.plain}", f"https://origin.test:{origin.tls}", f"https://other.test:{origin.tls}"),
            {"deny": [f"http://origin.test:{origin.plain}/no/**", f"https://origin.test:{origin.tls}/no/**"]}], **more)
        self.ca = self.s.ca

    def connect(self, port: int, name: str = "origin.test") -> Raw:
        return self.net.connect(self.net.resolve(name), port)

    def client(self) -> Raw:
        return Straight(self.connect(self.origin.tls).sock)

    def context(self, **settings) -> ssl.SSLContext:
        return client_context(self.ca, **settings)

    def clear(self, name: str = "origin.test") -> Raw:
        return self.connect(self.origin.plain, name)

    def tls(self, name: str = "origin.test", sni: str | None = None, **settings) -> Raw:
        context = client_context(self.ca, **settings)
        return self.connect(self.origin.tls, name).start_tls(context, sni or name)

    def get(self, c: Raw, path: str, host: str = "origin.test", port: int | None = None, more: str = "") -> Response:
        return c.ask(f"GET {path} HTTP/1.1\r\nHost: {host}:{port or c.sock.getpeername()[1]}\r\n{more}\r\n".encode())


@pytest.fixture
def world(net, origin, stile):
    return World(net, origin, stile)


def test_a_name_over_tls(world):
    with world.tls() as c:
        assert world.get(c, "/echo/a").status == 200
        r = world.get(c, "/no/a")
        assert (r.status, r.json()["reason"]) == (403, "denied_by_rule")
    end = world.s.wait_record(event="request.end", path="/echo/a")
    assert (end["listener"], end["sandbox"], end["host"], end["port"]) == ("tls", "tls", "origin.test", world.origin.tls)
    assert end["tls"]["sni"] == "origin.test"
    assert world.s.wait_record(event="request.deny", reason="denied_by_rule")["listener"] == "tls"


def test_a_name_in_clear(world):
    with world.clear() as c:
        assert world.get(c, "/echo/a").status == 200
        assert world.get(c, "/no/a").status == 403
        assert world.get(c, "/echo/b").status == 200
    assert world.s.wait_record(event="request.end", path="/echo/b")["scheme"] == "http"


def test_a_name_over_ipv6(net, origin, stile):
    s = stile(listen=[{"transparent": net.place(f"[::]:{origin.plain}")}, {"dns": net.place("[::1]:53")}, {"dns": net.place("127.0.0.1:53")}],
              rules=[allow(f"http://origin.test:{origin.plain}")])
    assert net.resolve("origin.test").startswith("198.18.")
    with net.socket(socket.AF_INET6, socket.SOCK_DGRAM) as d:
        d.sendto(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06origin\x04test\x00\x00\x1c\x00\x01", ("::1", 53))
        address = socket.inet_ntop(socket.AF_INET6, d.recv(512)[-16:])
    assert address.startswith("fd73:7469:6c65:")
    with net.connect(address, origin.plain) as c:
        assert c.ask(f"GET /echo/a HTTP/1.1\r\nHost: origin.test:{origin.plain}\r\n\r\n".encode()).status == 200
    s.wait_record(event="request.end", status=200)


def test_no_text_speaks_of_a_proxy(world):
    """Whoever comes here knows of none: no tunnel was opened, no CONNECT said, and no variable would help."""
    p, since, said = world.origin.plain, world.s.mark(), []
    heads = [f"GET /no/a HTTP/1.1\r\nHost: origin.test:{p}", f"GET /echo/a HTTP/1.1\r\nHost: evil.test:{p}",
             f"GET http://evil.test:{p}/echo/a HTTP/1.1\r\nHost: evil.test:{p}", "GET /echo/a HTTP/1.1",
             f"GET https://origin.test:{p}/a HTTP/1.1\r\nHost: origin.test:{p}", "PRI * HTTP/2.0"]
    for head in heads:
        with world.clear() as c:
            said.append(c.ask(head.encode() + b"\r\n\r\n").json()["detail"])
    port = world.origin.tls
    with world.connect(port) as c:
        said.append(c.ask(f"GET /echo/a HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode()).json()["detail"])
    for sni in ("evil.test", "other.test"):
        with pytest.raises(OSError):
            world.tls(sni=sni)
    for pseudo in ({"authority": "evil.test"}, {"scheme": "http"}):
        with H2(world) as c:
            said.append(c.get("/echo/a", **pseudo).json()["detail"])
    with world.connect(port) as c:
        c.send(b"SSH-2.0-x\r\n")
        assert c.read_all() == b""
    world.s.wait_records(len(heads) + 6, since, decision="deny")
    said += [r["error_detail"] for r in world.s.records(since) if r.get("decision") == "deny"]
    assert len(said) == 2 * len(heads) + 9 and all(said)
    assert not re.search("(?i)proxy|tunnel|connect[^i]", " ".join(said)), said
    # Of CONNECT the client speaks itself.
    with world.clear() as c:
        assert "no proxy" in c.ask(f"CONNECT other.test:{p} HTTP/1.1\r\nHost: other.test:{p}\r\n\r\n".encode()).json()["detail"]


def test_an_ipv6_address_that_no_rule_names(net, stile):
    s = stile(listen=[{"transparent": net.place("[::]:0")}], rules=[allow("https://a.test")])
    since = s.mark()
    with net.connect("::1", s.port) as c:
        r = c.ask(f"GET / HTTP/1.1\r\nHost: [::1]:{s.port}\r\n\r\n".encode())
        assert f"no rule allows a connection to [::1]:{s.port}: that is the client's own machine" == r.json()["detail"]
    denied(s, since, "no_rule", host="::1", port=s.port)


def test_http2(world):
    with H2(world) as c:
        answers = [c.get("/echo/a"), c.get("/no/a")]
        assert [a.status for a in answers] == [200, 403]


def test_a_websocket(net, stile):
    key = "AAAAAAAAAAAAAAAAAAAAAA=="
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    with Listener("127.0.0.1") as server:
        p = server.port
        s = stile(listen=[{"transparent": net.place(f"0.0.0.0:{p}")}, {"dns": net.place("127.0.0.1:53")}], rules=[allow(f"ws://origin.test:{p}/ws")])
        hello = (f"GET {{}} HTTP/1.1\r\nHost: origin.test:{p}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                 f"Sec-WebSocket-Key: {key}\r\n\r\n")
        with net.connect(net.resolve("origin.test"), p) as c:
            assert c.ask(hello.format("/other").encode()).status == 403
            c.send(hello.format("/ws").encode())
            with server.accept() as o:
                o.read_head()
                o.send(f"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode())
                assert c.response_head().status == 101
                o.send(b"\x82\x02hi")
                assert c.read(4) == b"\x82\x02hi"
        s.wait_record(event="request.end", path="/ws", status=101)


@pytest.mark.parametrize("how", ["explain", "refuse"])
def test_a_port_that_the_name_has_no_rule_for(net, origin, stile, how):
    """other.test has one for TLS alone."""
    w = World(net, origin, stile, deny=how, rules=[allow(f"https://other.test:{origin.tls}"), allow(f"https://origin.test:{origin.tls}/ok/**"),
                                                   allow(f"http://x.test:{origin.plain}")])
    mark = origin.mark()
    with w.clear("other.test") as c:
        r = w.get(c, "/echo/a", "other.test")
        assert (r.status, r.json()["reason"]) == (403, "no_rule")
    denied(w.s, w.s.mark() - 1, "no_rule", "request.deny", host="other.test", port=origin.plain, path="/echo/a")
    since = w.s.mark()
    if how == "explain":
        with w.tls("x.test") as c:
            assert w.get(c, "/echo/a", "x.test").status == 403
        denied(w.s, since, "no_rule", "request.deny", host="x.test", scheme="https")
    else:
        with pytest.raises(OSError, match="(?i)access.denied"):
            w.tls("x.test")
        denied(w.s, since, "no_rule", host="x.test", scheme="https")
    assert origin.since(mark) == b""


def test_a_name_without_a_rule_has_no_address(world):
    since = world.s.mark()
    assert world.net.resolve("evil.test") is None
    denied(world.s, since, "no_rule", "dns.deny", host="evil.test")


def test_another_sni(world):
    since, mark = world.s.mark(), world.origin.mark()
    for sni in ("other.test", "evil.test"):
        with pytest.raises(OSError, match="(?i)unrecognized.name"):
            world.tls(sni=sni)
    assert [r["reason"] for r in world.s.wait_records(2, since, event="tunnel.deny")] == ["name_mismatch"] * 2
    assert world.origin.since(mark) == b""


def test_no_sni(world):
    """The address has said the name."""
    with world.tls(check_hostname=False) as c:
        assert world.get(c, "/echo/a").status == 200


def test_passthrough(net, origin, stile):
    w = World(net, origin, stile, rules=[allow(f"https://origin.test:{origin.tls}", tls="passthrough")])
    w.ca = origin.pki / "ca.pem"
    with w.tls() as c:
        assert w.get(c, "/echo/a").status == 200
    assert w.s.wait_record(event="tunnel.end")["tls"]["sni"] == "origin.test"
    since = w.s.mark()
    c = w.connect(origin.tls)
    context = client_context(w.ca, check_hostname=False)
    with c, pytest.raises(OSError, match="(?i)unrecognized.name"):
        c.start_tls(context, None)
    denied(w.s, since, "name_mismatch", host="origin.test")


def test_a_rule_that_goes_between_the_answer_and_the_connection(world):
    address = world.net.resolve("origin.test")
    world.s.reload(rules=[allow("https://else.test")])
    since = world.s.mark()
    with world.net.connect(address, world.origin.plain) as c:
        assert world.get(c, "/echo/a").status == 403
    denied(world.s, since, "no_rule", "request.deny", host="origin.test")


def test_a_tunnel_ends_with_its_rule(net, origin, stile):
    with Listener("127.0.0.1") as server:
        s = stile(listen=[{"transparent": net.place(f"0.0.0.0:{server.port}")}, {"dns": net.place("127.0.0.1:53")}],
                  rules=[allow(f"tcp://origin.test:{server.port}"), allow("https://a.test")])
        with net.connect(net.resolve("origin.test"), server.port) as c, server.accept() as o:
            o.send(b"hello\r\n")
            assert c.read_until(b"\r\n") == b"hello\r\n"
            s.reload(rules=[allow("https://a.test")])
            assert s.wait_record(event="tunnel.end")["error"] == "policy_revoked"


def test_a_connect_to_a_made_up_address(net, origin, stile):
    """Those lead back to stile alone, whatever a rule says."""
    p = origin.plain
    rules = [{"allow": [f"http://198.18.0.1:{p}", f"http://origin.test:{p}"], "addresses": ["198.18.0.0/15", "fd00::/8", "127.0.0.0/8"]}]
    s = stile(listen=[{"proxy": "127.0.0.1:0"}, {"dns": net.place("127.0.0.1:53")}], rules=rules,
              upstream={"hosts": {"origin.test": "fd73:7469:6c65::9"}})
    for host in ("198.18.0.1", "origin.test"):
        r = s.ask(f"GET http://{host}:{p}/echo/a HTTP/1.1\r\nHost: {host}:{p}\r\n\r\n".encode())
        assert (r.status, r.json()["reason"]) == (403, "address_denied")
