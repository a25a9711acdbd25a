"""Every wait has its limit, each with its word; what may be sent again and what not; connections that are kept for
nobody else. (Tunnels and clients that stall: test_slow_peers.py.)"""

import socket
import time

import pytest

from stilelib import Peer, Raw, allow, check_refusal, get, wait_for

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def url(port: int, path: str = "/x") -> str:
    return f"http://origin.test:{port}{path}"


def timed_out(s, since: int, error: str, port: int, least: float, status: int | None = None) -> dict:
    end = s.wait_record(since, event="request.end", port=port)
    assert end["error"] == error and end["ms"]["total"] >= least, end
    assert status is None or end["status"] == status
    return end


# One limit, one word


def test_dial(stile):
    s = stile(limits={"dial": "300ms"})
    with Peer(backlog=0) as p:
        full = []
        for _ in range(8):  # more than the queue takes: the kernel drops what else comes
            c = socket.socket()
            c.setblocking(False)
            c.connect_ex(("127.0.0.1", p.port))
            full.append(c)
        r = s.ask(get(url(p.port)))
        check_refusal(r, 504, "connect_timeout")
        timed_out(s, 0, "connect_timeout", p.port, 290, 504)
        for c in full:
            c.close()


def test_tls(stile):
    s = stile(limits={"tls": "300ms"})
    with Peer() as p, s.tunnel(p.port) as c:
        c.send(f"GET /x HTTP/1.1\r\nHost: origin.test:{p.port}\r\n\r\n".encode())
        with p.accept() as o:
            assert o.read(1) == b"\x16"
            check_refusal(c.response(), 504, "upstream_tls_timeout")
        timed_out(s, 0, "upstream_tls_timeout", p.port, 290, 504)


@pytest.mark.parametrize("part", [b"", b"HTTP/1.1 200 O", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"])
def test_first_byte(stile, part):
    s = stile(limits={"first_byte": "300ms", "body_idle": "20s"})
    with Peer() as p, s.client() as c:
        c.send(get(url(p.port)))
        with p.accept() as o:
            o.read_head()
            o.send(part)
            check_refusal(c.response(), 504, "upstream_timeout")
            timed_out(s, 0, "upstream_timeout", p.port, 290, 504)


def test_body_idle(stile):
    s = stile(limits={"body_idle": "300ms", "first_byte": "20s"})
    with Peer() as p, s.client() as c:
        c.send(get(url(p.port)))
        with p.accept() as o:
            o.read_head()
            o.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
            for _ in range(4):  # each byte begins it anew
                time.sleep(0.15)
                o.send(b"x")
            r = c.response()
            assert (r.status, r.body, r.whole) == (200, b"xxxx", False)
            timed_out(s, 0, "upstream_timeout", p.port, 850, 200)


def test_an_upload_that_stops(stile):
    s = stile(limits={"body_idle": "300ms", "first_byte": "20s"})
    with Peer() as p, s.client() as c:
        c.send(get(url(p.port), method="POST", more="Content-Length: 10\r\n") + b"123")
        with p.accept() as o:
            o.read_head()
            check_refusal(c.response(), 408, "client_timeout")
            assert o.read_all() == b"123"
            timed_out(s, 0, "client_timeout", p.port, 290, 408)


@pytest.mark.parametrize("when", ["before the answer", "in the answer", "in the upload"])
def test_request_life(stile, when):
    """However busy it is."""
    s = stile(limits={"request_life": "700ms"})
    with Peer() as p, s.client() as c:
        c.send(get(url(p.port), method="POST", more="Content-Length: 1000\r\n") if when == "in the upload" else get(url(p.port)))
        with p.accept() as o:
            o.read_head()
            if when == "in the answer":
                o.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            try:
                for _ in range(200):
                    if when == "in the upload":
                        c.send(b"x")
                    elif when == "in the answer":
                        o.send(b"x")
                    else:
                        o.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                        time.sleep(0.1)
                    time.sleep(0.05)
                    if s.records() and s.records()[-1]["event"] == "request.end":
                        break
            except OSError:
                pass
            end = timed_out(s, 0, "request_life", p.port, 690)
            assert end["ms"]["total"] < 5000
            assert end["status"] == (200 if when == "in the answer" else 504)
            if when == "in the answer":
                assert not c.response().whole
            else:
                check_refusal(c.response(), 504, "request_life")


def test_idle_client(stile):
    s = stile(limits={"idle": "300ms"})
    with Peer() as p, s.client() as c:
        c.send(get(url(p.port)))
        with p.accept() as o:
            o.read_head()
            o.send(OK)
            assert c.response().status == 200
            begun = time.monotonic()
            assert c.at_end() and time.monotonic() - begun > 0.25


# Kept connections


def first(s, c: Raw, p: Peer, tls=None) -> Raw:
    """A request that leaves a kept connection to the Peer."""
    c.send(get(url(p.port, "/first")))
    o = p.accept()
    o.read_head()
    o.send(OK)
    assert c.response().status == 200
    return o


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("when", ["before the request", "on the request"])
def test_a_stale_connection_is_no_error_of_an_idempotent_request(stile, when, how):
    s = stile()
    with Peer() as p, s.client() as c:
        o = first(s, c, p)

        def end():
            {"close": o.close, "reset": o.reset, "half-close": o.half_close}[how]()

        if when == "before the request":
            end()  # at the very moment at which the next one is sent
        c.send(get(url(p.port, "/again"), method="PUT" if how == "close" else "GET"))
        if when == "on the request":
            assert b"/again" in o.read_head()
            end()
        with p.accept() as fresh:
            assert b" /again " in fresh.read_head()
            fresh.send(OK)
            assert c.response().status == 200
        o.close()
    ends = s.wait_records(2, event="request.end")
    assert all("error" not in e for e in ends)


def test_many_worst_moments(stile):
    """The origin closes after each answer without having said so."""
    s = stile()
    with Peer() as p, s.client() as c:
        for i in range(60):
            c.send(get(url(p.port, f"/{i}")))
            with p.accept() as o:
                assert f" /{i} ".encode() in o.read_head()
                o.send(OK)
                if i % 3 == 0:
                    time.sleep(0.003)
            assert c.response().status == 200
    assert all("error" not in e for e in s.wait_records(60, event="request.end"))


@pytest.mark.parametrize("what", ["POST", "PATCH", "PUT with a body", "GET after a part"])
def test_what_is_not_sent_twice(stile, what):
    s = stile()
    with Peer() as p, s.client() as c:
        o = first(s, c, p)
        method = what.split()[0]
        body = b"hello" if method != "GET" else b""
        c.send(get(url(p.port, "/once"), method=method, more=f"Content-Length: {len(body)}\r\n" if body else "") + body)
        o.read_head()
        if what == "GET after a part":
            o.send(b"HTTP/1.1 200 O")
        o.close()
        check_refusal(c.response(), 502, "upstream_closed")
        assert p.nobody_came(0.2)
        # The next one gets a new connection.
    ends = s.wait_records(2, event="request.end")
    assert ends[1]["error"] == "upstream_closed"


def test_a_retry_is_made_once(stile):
    s = stile()
    with Peer() as p, s.client() as c:
        o = first(s, c, p)
        c.send(get(url(p.port, "/again")))
        o.read_head()
        o.close()
        fresh = p.accept()
        fresh.read_head()
        fresh.close()
        check_refusal(c.response(), 502, "upstream_closed")
        assert p.nobody_came(0.2)
    assert len(s.wait_records(2, event="request.start")) == 2


def test_no_connection_serves_two_sandboxes_policies_or_credentials(stile, tmp_path, canary):
    """One origin, one host; each pair of listener, policy and rule has a connection of its own."""
    (tmp_path / "tok").write_text(canary)
    (tmp_path / "tok").chmod(0o600)
    rules = [allow("http://origin.test:*/one/**"), allow("http://origin.test:*/two/**"), allow("http://origin.test:*")]
    s = stile(policies={"a": rules, "b": rules}, limits={"workers": 1}, listen=[
        {"proxy": "127.0.0.1:0", "name": "first", "policy": "a"}, {"proxy": "127.0.0.1:0", "name": "second", "policy": "a"},
        {"proxy": "127.0.0.1:0", "name": "third", "policy": "b"}])
    ports = wait_for(lambda: [int(x.split()[0].rsplit(":", 1)[1]) for x in s.stderr.split("listening on ")[1:]]
                     if s.stderr.count("listening on") == 3 else None)
    with Peer() as p:
        kept = []
        for port in ports:
            for path in ("/one/a", "/two/a", "/other"):
                with Raw(socket.create_connection(("127.0.0.1", port), 10)) as c:
                    c.send(get(url(p.port, path)))
                    o = p.accept()
                    o.read_head()
                    o.send(OK)
                    assert c.response().status == 200
                    kept.append(o)
        # And each is found again by its own.
        at = iter(kept)
        for port in ports:
            for path in ("/one/b", "/two/b", "/another"):
                with Raw(socket.create_connection(("127.0.0.1", port), 10)) as c:
                    c.send(get(url(p.port, path)))
                    o = next(at)
                    assert path.encode() in o.read_head()
                    o.send(OK)
                    assert c.response().status == 200
        for o in kept:
            o.close()


def test_an_origin_that_keeps_connections_less_long(stile):
    """What the origin says of it is heeded, a second early: its end and a POST, which cannot be sent twice, would meet on the
    way. One that says nothing has its connection used again."""
    with Peer() as peer:
        base = f"http://origin.test:{peer.port}"
        s = stile(rules=[allow(base)], limits={"workers": 1})
        with s.client() as c:
            def post(origin: Raw | None, said: str) -> Raw:
                c.send(get(base, more="Content-Length: 1\r\n", method="POST") + b"x")
                origin = origin or peer.accept()
                origin.read_head()
                origin.read(1)
                origin.send(f"HTTP/1.1 204 No Content\r\n{said}\r\n".encode())
                assert c.response("POST").status == 204
                return origin

            first = post(None, "")
            assert post(first, "Keep-Alive: timeout=60, max=9\r\n") is first
            post(first, "Keep-Alive: timeout=1\r\n")
            time.sleep(0.6)  # more than half of that, which no condition shows
            second = post(None, "Keep-Alive: timeout=0\r\n")
            third = post(None, "")
            assert first.at_end() and second.at_end()
            post(third, "")
