"""CONNECT: what it may carry, told by its first bytes. (Inspected TLS in full, and a ClientHello in pieces:
test_tls.py. Tunnels that break: test_slow_peers.py.)"""

import socket
import ssl
import struct

import pytest

from stilelib import Peer, Raw, Stile, allow, check_refusal, client_context, get

PASSED, STRICT = "passed.test", "strict.test"  # tls: passthrough; the second with `ech: refuse`
OPAQUE = "opaque.test"                         # tcp://
MIXED = "mixed.test"                           # https and, behind it, tcp
NAMES = [PASSED, STRICT, OPAQUE, MIXED, "origin.test", "other.test", "evil.test", "tls.test", "plain.test"]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
ALERT = 21


@pytest.fixture(scope="module")
def tunnels(origin, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("connect"), origin, limits={"head": "2s"},
              upstream={"hosts": {n: ["127.0.0.1", "::1"] for n in NAMES}}, rules=[
        allow("https://origin.test:*", "http://origin.test:*", "https://127.0.0.1:*", "https://[::1]:*", "http://[::1]:*"),
        allow("https://tls.test:*"), allow("http://plain.test:*/ok/**"),
        allow(f"https://{PASSED}:*", tls="passthrough"), allow(f"https://{STRICT}:*", tls="passthrough", ech="refuse"),
        allow(f"tcp://{OPAQUE}:*"), allow(f"https://{MIXED}:*"), allow(f"tcp://{MIXED}:*"),
        {"deny": ["http://origin.test:*/no/**", "https://origin.test:*/no/**"]}])
    yield s
    s.finish()


def hello(name: str | None) -> bytes:
    """The ClientHello of a real client, in one TLS record."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    out = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    return out.read()


def with_ech(record: bytes) -> bytes:
    """The same with an encrypted_client_hello extension (RFC 9849: outer, its bytes mean nothing)."""
    body = bytearray(record[9:])
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + struct.unpack_from("!H", body, at)[0]
    at += 1 + body[at]
    ech = b"\x00" + b"\x00\x01\x00\x01" + b"\x07" + struct.pack("!H", 32) + bytes(32) + struct.pack("!H", 96) + bytes(96)
    body += struct.pack("!HH", 0xfe0d, len(ech)) + ech
    struct.pack_into("!H", body, at, len(body) - at - 2)
    message = b"\x01" + struct.pack("!I", len(body))[1:] + bytes(body)
    return record[:3] + struct.pack("!H", len(message)) + message


def connected(s: Stile, host: str, port: int) -> Raw:
    c = s.client()
    r = c.connect(f"{host}:{port}")
    assert r.status == 200, r
    assert r.get("content-length") is None and r.get("transfer-encoding") is None
    return c


def refused_by_alert(s: Stile, since: int, c: Raw, port: int, reason: str, **want) -> dict:
    """TLS gets an alert and a close, and there is one record."""
    answer = c.read_all()
    assert answer[0] == ALERT and len(answer) == 7, answer
    record = s.wait_record(since, event="tunnel.deny", port=port)
    assert (record["decision"], record["reason"]) == ("deny", reason)
    for key, value in want.items():
        assert record.get(key) == value, record
    return record


def pair(s: Stile, p: Peer, host: str, first: bytes) -> tuple[Raw, Raw]:
    """A tunnel to the Peer, opened by these first bytes; both ends."""
    c = connected(s, host, p.port)
    c.send(first)
    o = p.accept()
    assert o.read(len(first)) == first
    return c, o


# ---- inspected ----


def test_inspected(tunnels):
    since = tunnels.mark()
    r = tunnels.tls_get("/echo/inspected")
    assert r.json()["tls"]["sni"] == "origin.test"
    end = tunnels.wait_record(since, event="request.end", path="/echo/inspected")
    assert (end["scheme"], end["host"], end["tls"]["sni"]) == ("https", "origin.test", "origin.test")
    assert not [x for x in tunnels.records(since) if x["event"].startswith("tunnel")], "its requests speak for it"


def test_each_request_inside_is_judged(tunnels):
    port = tunnels.origin.tls
    with tunnels.tunnel() as c:
        for path, status in (("/ok/1", 200), ("/no/2", 403), ("/ok/3", 200)):
            assert c.ask(f"GET {path} HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode()).status == status
        check_refusal(c.ask(f"GET /ok/4 HTTP/1.1\r\nHost: evil.test:{port}\r\n\r\n".encode()), 421, "name_mismatch")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_targets_that_are_addresses(tunnels, host):
    port = tunnels.origin.ports["tls6" if ":" in host else "tls"]
    r = tunnels.tls_get("/echo/address", port, host=host)
    assert r.status == 200 and r.json()["tls"]["sni"] is None
    assert ["Host", f"{host}:{port}"] in r.json()["headers"]


def test_an_ipv6_literal_in_clear(tunnels):
    port = tunnels.origin.ports["plain6"]
    for spelt in ("[::1]", "[0:0::1]"):
        with connected(tunnels, spelt, port) as c:
            assert c.ask(get(f"http://[::1]:{port}/ok/v6")).status == 200


def test_how_an_ipv6_address_is_written(tunnels):
    """With its port, so in brackets, wherever a text says where something leads."""
    port = tunnels.origin.ports["tls6"]
    with tunnels.client() as c:
        assert f"no rule allows CONNECT [2001:db8::1]:{port}" == c.connect(f"[2001:db8::1]:{port}").json()["detail"]
    with tunnels.tunnel(port, "[::1]") as c:
        r = c.ask(f"GET /echo/a HTTP/1.1\r\nHost: [::2]:{port}\r\n\r\n".encode())
        check_refusal(r, 421, "name_mismatch")
        assert r.json()["detail"] == f"Host is [::2]:{port}, the target [::1]:{port}"
    with tunnels.tunnel(port, "[::1]") as c:
        r = c.ask(get(f"https://[::2]:{port}/echo/a", host=f"[::2]:{port}"))
        check_refusal(r, 421, "name_mismatch")
        assert r.json()["detail"] == f"the target names https://[::2]:{port}, this connection leads to https://[::1]:{port}"
    h2lib = pytest.importorskip("h2lib", reason="python3-h2 is not installed")
    with h2lib.H2(tunnels, port, "[::1]") as c:
        a = c.get("/echo/a", authority=f"[::2]:{port}")
        assert a.status == 421 and a.json()["detail"] == f":authority is [::2]:{port}, this connection leads to [::1]:{port}"


@pytest.mark.parametrize("target", ["127.0.0.2:{}", "[::2]:{}", "127.0.0.1.evil.test:{}", "[::ffff:127.0.0.1]:{}"])
def test_addresses_that_no_rule_spells(tunnels, target):
    """The address of an allowed name is not the name."""
    with tunnels.client() as c:
        check_refusal(c.connect(target.format(tunnels.origin.tls)), 403, "no_rule")


def test_a_hello_in_the_same_segment_as_connect(tunnels):
    for host, context in (("origin.test", tunnels.context()), (PASSED, client_context(tunnels.origin.pki / "ca.pem"))):
        context.check_hostname = False  # the origin's certificate has not this name
        port, into, out = tunnels.origin.tls, ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(into, out, server_hostname=host)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        with tunnels.client() as c:
            c.send(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() + out.read())
            assert c.response_head().status == 200

            def step(do):
                while True:
                    try:
                        got = do()
                        c.send(out.read())
                        return got
                    except ssl.SSLWantReadError:
                        c.send(out.read())
                        assert c.buffer or c.fill()
                        into.write(c.read(len(c.buffer)))

            step(tls.do_handshake)
            step(lambda: tls.write(f"GET /ok/same HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()))
            assert step(lambda: tls.read(4096)).startswith(b"HTTP/1.1 200 ")


# ---- passed through ----


def test_passed_through(tunnels):
    """Whoever answers the handshake is the origin itself, and the tunnel has two records."""
    since, port = tunnels.mark(), tunnels.origin.tls
    context = client_context(tunnels.origin.pki / "ca.pem", check_hostname=False)
    with connected(tunnels, PASSED, port).start_tls(context, PASSED) as c:
        der = c.sock.getpeercert(binary_form=True)
        assert der == ssl.PEM_cert_to_DER_cert((tunnels.origin.pki / "good.pem").read_text())
        assert c.ask(f"GET /echo/p HTTP/1.1\r\nHost: {PASSED}:{port}\r\n\r\n".encode()).json()["tls"]["sni"] == PASSED
    start = tunnels.wait_record(since, event="tunnel.start", port=port)
    end = tunnels.wait_record(since, event="tunnel.end", id=start["id"])
    assert start["tls"]["sni"] == PASSED and "ech" not in start["tls"]
    assert (start["scheme"], start["host"], start["decision"]) == ("https", PASSED, "allow")
    assert end["bytes_out"] > 300 and end["bytes_in"] > 300 and "error" not in end


@pytest.mark.parametrize("sni", [PASSED.upper(), "Passed.Test"])
def test_the_case_of_an_sni_does_not_matter(tunnels, sni):
    with Peer() as p:
        first = hello(sni)
        assert sni.encode() in first
        c, o = pair(tunnels, p, PASSED, first)
        o.send(b"answer")
        assert c.read(6) == b"answer"
        c.close()
        o.close()


@pytest.mark.parametrize("sni", ["evil.test", None, "x." + PASSED, "passed.tes"])
def test_an_sni_that_does_not_agree(tunnels, sni):
    since = tunnels.mark()
    with Peer() as p:
        with connected(tunnels, PASSED, p.port) as c:
            c.send(hello(sni))
            record = refused_by_alert(tunnels, since, c, p.port, "name_mismatch", host=PASSED)
        assert p.nobody_came(0.05)
    assert record.get("tls", {}).get("sni") == sni


def test_an_sni_that_does_not_agree_inspected(tunnels):
    since = tunnels.mark()
    with Peer() as p:
        with connected(tunnels, "origin.test", p.port) as c:
            c.send(hello("evil.test"))
            refused_by_alert(tunnels, since, c, p.port, "name_mismatch", host="origin.test")
        assert p.nobody_came(0.05)


def test_ech_is_recorded(tunnels):
    since = tunnels.mark()
    with Peer() as p:
        c, o = pair(tunnels, p, PASSED, with_ech(hello(PASSED)))
        c.close()
        o.close()
        start = tunnels.wait_record(since, event="tunnel.start", port=p.port)
        assert start["tls"]["sni"] == PASSED and start["tls"]["ech"] is True
        tunnels.wait_record(since, event="tunnel.end", id=start["id"])


def test_ech_is_refused(tunnels):
    since = tunnels.mark()
    with Peer() as p:
        with connected(tunnels, STRICT, p.port) as c:
            c.send(with_ech(hello(STRICT)))
            refused_by_alert(tunnels, since, c, p.port, "ech_refused", host=STRICT)
        assert p.nobody_came(0.05)
        c, o = pair(tunnels, p, STRICT, hello(STRICT))
        c.close()
        o.close()


def test_ech_with_another_outer_name(tunnels):
    since = tunnels.mark()
    with Peer() as p, connected(tunnels, PASSED, p.port) as c:
        c.send(with_ech(hello("evil.test")))
        refused_by_alert(tunnels, since, c, p.port, "name_mismatch")
        assert p.nobody_came(0.05)


def test_cleartext_where_only_passthrough_is_allowed(tunnels):
    with Peer() as p:
        with connected(tunnels, PASSED, p.port) as c:
            check_refusal(c.ask(get(f"http://{PASSED}:{p.port}/ok/a")), 403)
        assert p.nobody_came(0.05)


# ---- opaque ----


def test_tcp_where_the_server_speaks_first(tunnels):
    since = tunnels.mark()
    with Peer() as p, tunnels.client() as c:
        c.send(f"CONNECT {OPAQUE}:{p.port} HTTP/1.1\r\nHost: {OPAQUE}:{p.port}\r\n\r\n".encode())
        with p.accept() as o:
            o.send(b"220 hello\r\n")
            assert c.response_head().status == 200
            assert c.read_until(b"\n") == b"220 hello\r\n"
            c.send(b"EHLO\r\n")
            assert o.read_until(b"\n") == b"EHLO\r\n"
            o.close()
            assert c.at_end()
    start = tunnels.wait_record(since, event="tunnel.start", port=p.port)
    end = tunnels.wait_record(since, event="tunnel.end", id=start["id"])
    assert (start["scheme"], start["host"]) == ("tcp", OPAQUE)
    assert (end["bytes_out"], end["bytes_in"]) == (6, 11)


def test_tcp_with_bytes_in_the_same_segment(tunnels):
    with Peer() as p, tunnels.client() as c:
        c.send(f"CONNECT {OPAQUE}:{p.port} HTTP/1.1\r\nHost: {OPAQUE}:{p.port}\r\n\r\nSSH-2.0-x\r\n".encode())
        with p.accept() as o:
            assert o.read_until(b"\n") == b"SSH-2.0-x\r\n"
        assert c.response_head().status == 200


def test_tcp_behind_https(tunnels):
    """The first bytes decide: TLS is inspected, what is neither TLS nor HTTP is carried."""
    with Peer() as p:
        c, o = pair(tunnels, p, MIXED, b"SSH-2.0-x\r\n")
        o.send(b"SSH-2.0-y\r\n")
        assert c.read_until(b"\n") == b"SSH-2.0-y\r\n"
        c.close()
        o.close()
        with connected(tunnels, MIXED, p.port).start_tls(tunnels.context(), MIXED) as c:
            assert c.sock.version()


def test_a_closed_port(tunnels):
    """tcp: CONNECT waits for the origin, so its answer says what failed."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    since = tunnels.mark()
    with tunnels.client() as c:
        check_refusal(c.connect(f"{OPAQUE}:{port}"), 502, "connect_refused")
    check_pair_that_failed(tunnels, since, port, "tcp", OPAQUE)


def test_passthrough_to_a_closed_port(tunnels):
    """CONNECT was answered before the hello came: what is left to say it with is the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    since = tunnels.mark()
    with connected(tunnels, PASSED, port) as c:
        c.send(hello(PASSED))
        assert c.read_all() == b""
    check_pair_that_failed(tunnels, since, port, "https", PASSED)


def check_pair_that_failed(s: Stile, since: int, port: int, scheme: str, host: str) -> None:
    start = s.wait_record(since, event="tunnel.start", port=port)
    end = s.wait_record(since, event="tunnel.end", id=start["id"])
    assert (start["decision"], start["scheme"], start["host"]) == ("allow", scheme, host)
    assert end["error"] == "connect_refused", end
    assert (end["bytes_out"], end["bytes_in"]) == (0, 0) and "upstream" not in end, end


def test_tls_of_the_client_s_own_within_tcp(tunnels):
    """A tcp rule alone: nobody opens it, so the certificate is the origin's, the SNI anything, and the requests
    inside are nobody's business."""
    since = tunnels.mark()
    context = client_context(tunnels.origin.pki / "ca.pem")
    with connected(tunnels, OPAQUE, tunnels.origin.tls).start_tls(context, "origin.test") as c:
        assert c.ask(b"GET /no/own HTTP/1.1\r\nHost: origin.test\r\n\r\n").status != 403
    start = tunnels.wait_record(since, event="tunnel.start", host=OPAQUE)
    tunnels.wait_record(since, event="tunnel.end", id=start["id"])
    assert start["scheme"] == "tcp" and "tls" not in start, start
    assert len(tunnels.records(since)) == 2


# ---- in clear ----


def test_cleartext_http(tunnels):
    since, port = tunnels.mark(), tunnels.origin.plain
    with connected(tunnels, "plain.test", port) as c:
        assert c.ask(get("/ok/clear", f"plain.test:{port}")).body == b"ok /ok/clear\n"
        assert c.ask(get(f"http://plain.test:{port}/ok/clear2")).status == 200
        check_refusal(c.ask(get("/other", f"plain.test:{port}")), 403, "no_rule")
        assert c.ask(get(f"/ok/clear3", f"PLAIN.test:{port}")).status == 200
    end = tunnels.wait_record(since, event="request.end", path="/ok/clear")
    assert (end["scheme"], end["host"], end["port"]) == ("http", "plain.test", port)


@pytest.mark.parametrize("request_line, host", [("GET /ok/a", "evil.test"), ("GET http://evil.test:{}/ok/a", "evil.test:{}"),
                                                ("GET http://evil.test:{}/ok/a", "plain.test:{}"),
                                                ("GET http://plain.test:1/ok/a", "plain.test:1"), ("GET /ok/a", "plain.test")])
def test_cleartext_for_another_host(tunnels, request_line, host):
    since, port = tunnels.mark(), tunnels.origin.plain
    with connected(tunnels, "plain.test", port) as c:
        r = c.ask(f"{request_line.format(port)} HTTP/1.1\r\nHost: {host.format(port)}\r\n\r\n".encode())
    check_refusal(r, (400, 421))
    assert tunnels.wait_record(since, event="request.deny")["id"] == r.json()["id"]


def test_https_rules_admit_no_cleartext(tunnels):
    with Peer() as p:
        with connected(tunnels, "tls.test", p.port) as c:
            check_refusal(c.ask(get(f"http://tls.test:{p.port}/ok/a")), 403, "not_tls")
        assert p.nobody_came(0.05)


def test_http_rules_admit_no_tls(tunnels):
    since = tunnels.mark()
    with Peer() as p, connected(tunnels, "plain.test", p.port) as c:
        c.send(hello("plain.test"))
        refused_by_alert(tunnels, since, c, p.port, "no_rule")
        assert p.nobody_came(0.05)


@pytest.mark.parametrize("host", ["origin.test", "tls.test", "plain.test", PASSED])
@pytest.mark.parametrize("first", [b"SSH-2.0-x\r\n", b"\x00\x01\x02\x03\x04\x05", b"220 hi\r\n", b"\r\n\r\n", b"\x16\x03"
                                   b"\x01\x00\x05junk!"])
def test_neither_tls_nor_http(tunnels, host, first):
    since = tunnels.mark()
    with Peer() as p:
        with connected(tunnels, host, p.port) as c:
            c.send_quietly(first)
            c.read_all()
        record = tunnels.wait_record(since, port=p.port)
        assert (record["event"], record["decision"]) == ("tunnel.deny", "deny")
        assert record["reason"] == ("client_tls_failed" if first[:1] == b"\x16" else "not_tls")
        assert p.nobody_came(0.05)


# ---- refusals ----


def test_nothing_behind_a_refused_connect_is_read(tunnels):
    since, port = tunnels.mark(), tunnels.origin.plain
    for more in (hello("evil.test"), get(f"http://origin.test:{port}/ok/behind"), b"\0" * 100000):
        with tunnels.client() as c:
            c.send_quietly(f"CONNECT evil.test:{port} HTTP/1.1\r\nHost: evil.test:{port}\r\n\r\n".encode() + more)
            check_refusal(c.response(), 403, "no_rule")
            assert c.at_end()
    assert [r for r in tunnels.records(since) if r.get("path") == "/ok/behind"] == []
    assert len(tunnels.wait_records(3, since, event="tunnel.deny", host="evil.test", reason="no_rule")) == 3


def test_a_refusal_needs_no_origin(tunnels):
    """Nothing is looked up or dialled for it: the name does not exist, and nobody listens."""
    with tunnels.client() as c:
        check_refusal(c.connect("no-such-name.invalid:443"), 403, "no_rule")
    with tunnels.tunnel(1) as c:
        check_refusal(c.ask(b"GET /no/a HTTP/1.1\r\nHost: origin.test:1\r\n\r\n"), 403, "denied_by_rule")


def test_silence_after_connect(tunnels):
    """Each wait has its end; a close, and one record."""
    since = tunnels.mark()
    firsts = {1: b"", 2: hello("origin.test")[:100], 3: b"GE", 4: b"GET /ok/a HT", 5: b"\x16"}
    clients = []
    for port, first in firsts.items():
        c = connected(tunnels, "origin.test", port)
        c.send(first)
        clients.append(c)
    for c in clients:
        c.read_all()
        c.close()
    for port in firsts:
        assert len(tunnels.wait_records(1, since, port=port, decision="deny")) == 1


def test_the_wait_for_the_first_bytes_can_be_set(stile):
    s = stile(limits={"peek": "300ms"})
    for first in (b"", hello("origin.test")[:100]):
        since = s.mark()
        with connected(s, "origin.test", 443) as c:
            c.send(first)
            assert c.at_end(5)
        assert s.wait_record(since, event="tunnel.deny")["reason"] == "client_timeout"
