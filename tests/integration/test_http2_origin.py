"""HTTP/2 towards origins, with clients of HTTP/1.1 and HTTP/2: one connection for many streams, and never for two
rules or two sandboxes; what an origin does wrong is an answer of ours."""

import re
import time

import pytest

h2 = pytest.importorskip("h2", reason="python3-h2 is not installed")

import h2lib
from h2_origin import H2Origin
from h2lib import END_HEADERS, END_STREAM, H2, HEADERS, frame
from stilelib import SLOWER, Peer, allow, wait_for


@pytest.fixture
def h2_origin(origin):
    with H2Origin(origin.pki / "good.pem", origin.pki / "good.key") as o:
        yield o


@pytest.fixture
def world(stile, h2_origin):
    s = stile(rules=[allow(f"https://origin.test:{h2_origin.port}")], limits={"workers": 1})
    s.h2_origin = h2_origin
    return s


def ask(s, version: str, path: str, method: str = "GET", body: bytes | None = None, more=()):
    """(status, body, fields, trailers) of one request in that version."""
    port = s.h2_origin.port
    if version == "2":
        with H2(s, port=port) as c:
            a = c.get(path, method, body=body, more=more)
            return a.status, a.body, dict(a.fields), dict(a.trailers)
    head = "".join(f"{n}: {v}\r\n" for n, v in more)
    if body is not None:
        head += f"Content-Length: {len(body)}\r\n"
    with s.tunnel(port) as c:
        r = c.ask(f"{method} {path} HTTP/1.1\r\nHost: origin.test:{port}\r\n{head}\r\n".encode() + (body or b""))
        return r.status, r.body, {n.lower(): v for n, v in r.fields}, dict(x.split(": ") for x in map(str, r.trailers))


both = pytest.mark.parametrize("version", ["1.1", "2"])


@both
@pytest.mark.parametrize("body", [None, b"", b"abc", b"z" * 400_000])
def test_echo(world, version, body):
    import json
    since = world.mark()
    status, got, _, _ = ask(world, version, "/echo?a=1", "POST" if body is not None else "GET", body,
                            more=[("x-one", "1")])
    got = json.loads(got)
    head = dict(map(tuple, got["headers"]))
    assert status == 200 and got["body"] == (body or b"").decode()
    assert head[":path"] == "/echo?a=1" and head[":authority"] == f"origin.test:{world.h2_origin.port}"
    assert head["x-one"] == "1" and "host" not in head and "connection" not in head
    start, end = world.wait_records(2, since)
    assert start["http"] == version and end["bytes_out"] == len(body or b"")
    assert end["tls"]["upstream_alpn"] == "h2" and end["tls"]["upstream_version"] == "TLSv1.3"
    assert "upstream_alpn" not in start["tls"]


@both
def test_large_answer(world, version):
    assert ask(world, version, "/bytes/5000000")[1] == b"b" * 5_000_000


@both
def test_trailers(world, version):
    _, body, _, trailers = ask(world, version, "/trailers")
    assert body == b"hello" and (version == "1.1" or trailers == {"x-sum": "5"})


@both
def test_refused_stream_is_sent_again(world, version):
    assert ask(world, version, "/refuse")[0] == 200
    assert len(world.h2_origin.seen) == 2
    assert [r["event"] for r in world.settled().records() if r.get("path") == "/refuse"] == ["request.start", "request.end"]


@both
def test_goaway_is_sent_again(world, version):
    assert ask(world, version, "/goaway")[0] == 200
    assert world.h2_origin.connections == 2


@both
@pytest.mark.parametrize("path", ["/refuse", "/goaway"])
@pytest.mark.parametrize("size", [0, 1, 40_000, 65_536])
def test_a_body_is_sent_again(world, version, path, size):
    """What the origin did not look at is sent again whatever it is, if its body is still here."""
    import json
    body = bytes(i * 7 % 251 + 1 for i in range(size))
    since = world.mark()
    status, got, _, _ = ask(world, version, path, "POST", body)
    assert status == 200 and json.loads(got)["body"] == body.decode("latin-1")
    end = world.wait_record(since, event="request.end")
    assert end["bytes_out"] == size and "error" not in end


@both
def test_a_body_that_is_gone_is_not_sent_again(world, version):
    since = world.mark()
    status, body, _, _ = ask(world, version, "/refuse", "POST", b"x" * 65_537)
    assert status == 502 and b"upstream_closed" in body and len(world.h2_origin.seen) == 1
    assert world.wait_record(since, event="request.end")["error"] == "upstream_closed"


def test_trailers_are_sent_again(world):
    with H2(world, port=world.h2_origin.port) as c:
        i = c.ask("POST", "/refuse", body=b"abc", end=False)
        c.h2.send_headers(i, [("x-sum", "7")], end_stream=True)
        c.flush()
        got = c.wait(i).json()
    assert got["body"] == "abc" and got["trailers"] == [["x-sum", "7"]]


@both
def test_it_is_sent_again_once(world, version):
    world.h2_origin.raw["x"] = lambda stream: frame(3, 0, stream, b"\0\0\0\7")
    assert ask(world, version, "/raw/x", "POST", b"abc")[0] == 502
    assert len(world.h2_origin.seen) == 2


def test_what_is_sent_again_shares_a_connection(world):
    """Many at once that a GOAWAY has cut off: one dial for them all."""
    with H2(world, port=world.h2_origin.port) as c:
        c.get("/echo")
        hanging = [c.ask(path="/later") for _ in range(20)]
        wait_for(lambda: len(world.h2_origin.seen) >= 21)
        c.wait(c.ask(path="/goaway"), *hanging)
        assert {a.status for a in c.answers.values()} == {200}
    assert world.h2_origin.connections == 2


@both
def test_an_answer_that_is_reset(world, version):
    since = world.mark()
    if version == "2":
        with H2(world, port=world.h2_origin.port) as c:
            a = c.get("/reset")
            assert a.reset is not None or a.status == 502
    else:
        with world.tunnel(world.h2_origin.port) as c:
            c.send(f"GET /reset HTTP/1.1\r\nHost: origin.test:{world.h2_origin.port}\r\n\r\n".encode())
            r = c.response()
            assert not r.whole or r.status == 502
    assert world.wait_record(since, event="request.end")["error"] == "upstream_closed"


def test_streams_share_a_connection(world):
    with H2(world, port=world.h2_origin.port) as c:
        assert c.get("/echo").status == 200
        c.wait(*[c.ask(path="/echo") for _ in range(90)])
        assert {c.answers[i].json()["connection"] for i in c.answers} == {1}
    with world.tunnel(world.h2_origin.port) as c:
        r = c.ask(f"GET /echo HTTP/1.1\r\nHost: origin.test:{world.h2_origin.port}\r\n\r\n".encode())
        assert r.json()["connection"] == 1


# ---- many first requests at once ----


def test_first_requests_share_a_dial(stile, origin):
    """On a busy machine the handshake may take longer than they wait: one of three times has to do."""
    for _ in range(3):
        with H2Origin(origin.pki / "good.pem", origin.pki / "good.key") as o:
            s = stile(rules=[allow(f"https://origin.test:{o.port}")], limits={"workers": 1})
            with H2(s, port=o.port) as c:
                c.wait(*[c.ask(path="/echo") for _ in range(90)])
                assert {a.status for a in c.answers.values()} == {200}
            if o.connections == 1:
                return
    raise AssertionError(f"{o.connections} connections")


def test_of_a_known_origin_too(world):
    """Where the last connection has ended, the next ones wait for one dial."""
    world.h2_origin.raw["x"] = lambda stream: frame(7, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0") + ok(stream)
    with H2(world, port=world.h2_origin.port) as c:
        assert c.get("/raw/x").status == 200
        c.wait(*[c.ask(path="/echo") for _ in range(90)])
    assert world.h2_origin.connections <= (2 if SLOWER == 1 else 20)


def test_more_than_one_connection_takes(stile, h2_origin):
    """Beyond the streams of one there is another."""
    s = stile(rules=[allow(f"https://origin.test:{h2_origin.port}")], limits={"workers": 1})
    clients = [H2(s, port=h2_origin.port) for _ in range(3)]
    for c in clients:
        for _ in range(80):
            c.ask(path="/echo")
    for c in clients:
        c.wait(*c.answers)
        assert {a.status for a in c.answers.values()} == {200}
        c.close()
    assert 1 <= h2_origin.connections <= 40  # of 240, if none were shared


def test_sandboxes_share_no_dial(stile, h2_origin):
    """Two at the same moment, of the same policy: each its own connection."""
    s = stile(rules=[allow(f"https://origin.test:{h2_origin.port}")], limits={"workers": 1},
              listen=[{"proxy": "127.0.0.1:0", "name": "one"}, {"proxy": "127.0.0.1:0", "name": "two"}])
    ports = [int(x) for x in re.findall(r"listening on 127.0.0.1:(\d+)", s.stderr)]
    assert len(ports) == 2
    clients = []
    for port in ports:
        s.port = port
        clients.append(H2(s, port=h2_origin.port))
    for c in clients:
        for _ in range(10):
            c.ask(path="/echo")
    seen = [{a.json()["connection"] for a in (c.wait(*c.answers), *c.answers.values())} for c in clients]
    assert len(seen[0]) == len(seen[1]) == 1 and seen[0] != seen[1]
    assert {r["sandbox"] for r in s.settled().records() if "id" in r} == {"one", "two"}


def first_contact(stile, origin, alpn, n=8, **more):
    """(stile, origin, how long n first requests at once took)"""
    with H2Origin(origin.pki / "good.pem", origin.pki / "good.key", alpn=alpn, **more) as o:
        s = stile(rules=[allow(f"https://origin.test:{o.port}")], limits={"workers": 1})
        with H2(s, port=o.port) as c:
            begun = time.monotonic()
            c.wait(*[c.ask(path="/ok") for _ in range(n)])
            assert {a.status for a in c.answers.values()} == {200}
            first = time.monotonic() - begun
            begun = time.monotonic()
            c.wait(*[c.ask(path="/ok") for _ in range(n)])
            return o.connections, first, time.monotonic() - begun


def test_an_origin_of_http1_is_waited_for_once(stile, origin):
    """And then each dials for itself, at once."""
    connections, first, again = first_contact(stile, origin, ("http/1.1",), once=True)
    assert connections >= 8 and again < 0.25 * SLOWER, (connections, first, again)


def test_a_dial_that_hangs_holds_nobody(stile):
    with Peer() as p:
        s = stile(rules=[allow(f"https://origin.test:{p.port}")], limits={"workers": 1})
        with H2(s, port=p.port) as c:
            begun = time.monotonic()
            for _ in range(3):
                c.ask(path="/ok")
            held = [p.accept() for _ in range(3)]  # nobody speaks TLS with them
            assert time.monotonic() - begun < 5 * SLOWER and len(held) == 3


def test_a_dialler_that_leaves_is_replaced(stile):
    with Peer() as p:
        s = stile(rules=[allow(f"https://origin.test:{p.port}")], limits={"workers": 1})
        with H2(s, port=p.port) as c:
            one, _ = c.ask(path="/one"), c.ask(path="/two")
            first = p.accept()
            c.h2.reset_stream(one, error_code=8)
            c.flush()
            second = p.accept()
            assert first.at_end() or True
            second.close()
        ends = {r["path"]: r["error"] for r in s.wait_records(2, event="request.end")}
    assert ends["/one"] == "client_closed" and ends["/two"] in ("upstream_tls_failed", "client_closed")


def test_rules_share_no_connection(stile, h2_origin, canary):
    s = stile(credentials={"one": {"from": {"env": "ONE"}, "as": "bearer"}}, env={"ONE": canary},
              rules=[allow(f"https://origin.test:{h2_origin.port}/echo/a", credential="one"),
                     allow(f"https://origin.test:{h2_origin.port}/echo/b")])
    with H2(s, port=h2_origin.port) as c:
        a = [c.get(f"/echo/{x}").json() for x in "abab"]
    assert a[0]["connection"] == a[2]["connection"] != a[1]["connection"] == a[3]["connection"]
    got = [dict(map(tuple, x["headers"])).get("authorization") for x in a]
    assert got == [f"Bearer {canary}", None] * 2
    assert canary not in s.log_path.read_text()


def test_a_client_that_leaves_resets_the_stream(world):
    with H2(world, port=world.h2_origin.port) as c:
        c.ask(path="/hang")
        wait_for(lambda: world.h2_origin.seen)
    wait_for(lambda: world.h2_origin.resets, why="RST_STREAM")
    assert world.h2_origin.resets == [8]


def test_a_reload_leaves_the_connection(world):
    with H2(world, port=world.h2_origin.port) as c:
        assert c.get("/echo").json()["connection"] == 1
        world.reload(rules=[allow(f"https://origin.test:{world.h2_origin.port}"), allow("https://other.test")])
        assert c.get("/echo").json()["connection"] == 2


def answer(fields, flags=END_HEADERS | END_STREAM, more=b""):
    def make(stream: int) -> bytes:
        block = b"".join(b"\x00" + H2.text(n) + H2.text(v) for n, v in fields)
        return frame(HEADERS, flags, stream, block) + (frame(0, END_STREAM, stream, more) if more else b"")
    return make


BAD = {
    "no status": answer([("x", "y")]),
    "status 101": answer([(":status", "101")], END_HEADERS),
    "status 99": answer([(":status", "99")]),
    "two lengths": answer([(":status", "200"), ("content-length", "0"), ("content-length", "0")]),
    "a length that lies": answer([(":status", "200"), ("content-length", "5")]),
    "connection": answer([(":status", "200"), ("connection", "close")]),
    "transfer-encoding": answer([(":status", "200"), ("transfer-encoding", "chunked")]),
    "CRLF": answer([(":status", "200"), ("x", "y\r\nz: 1")]),
    "upper case": answer([(":status", "200"), ("X-Y", "z")]),
    "interim at the end": answer([(":status", "100")]),
    "push": lambda stream: frame(5, END_HEADERS, stream, b"\0\0\0\2\x82"),
    "garbage": lambda stream: b"x" * 100,
    "data on stream 0": lambda stream: frame(0, 0, 0, b"x"),
    "continuations": lambda stream: frame(HEADERS, 0, stream, b"\x88") + frame(9, 0, stream, b"\0\1a\1b") * 1000,
    "too large a head": lambda stream: b"".join(
        [frame(HEADERS, 0, stream, b"\x88")] + [frame(9, END_HEADERS if i == 4 else 0, stream,
                                                      b"\0\1a" + H2.text("y" * 16000)) for i in range(5)]),
}


@both
@pytest.mark.parametrize("name", BAD)
def test_bad_answers(world, version, name):
    since = world.mark()
    world.h2_origin.raw["x"] = BAD[name]
    status, body, fields, _ = ask(world, version, "/raw/x")
    assert status == 502 and b"upstream_malformed" in body
    assert world.wait_record(since, event="request.end")["error"] == "upstream_malformed"
    assert ask(world, version, "/echo")[0] == 200


@pytest.mark.parametrize("n", [3, 8])
def test_data_and_length_disagree(world, n):
    """Never more than was said, and what is short does not look whole."""
    world.h2_origin.raw["x"] = answer([(":status", "200"), ("content-length", "5")], END_HEADERS, b"x" * n)
    with H2(world, port=world.h2_origin.port) as c:
        a = c.get("/raw/x")
        assert len(a.body) <= 5 and (a.reset is not None or a.status == 502)


def test_an_origin_that_takes_few_streams(stile, origin):
    with H2Origin(origin.pki / "good.pem", origin.pki / "good.key",
                  settings={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2}) as o:
        s = stile(rules=[allow(f"https://origin.test:{o.port}")])
        with H2(s, port=o.port) as c:
            c.get("/echo")
            c.wait(*[c.ask(path="/echo") for _ in range(20)])
            assert all(a.status == 200 for a in c.answers.values())


def test_many_streams_leave_together(stile, origin):
    """Requests that came in one write go on in few, and their answers too."""
    with H2Origin(origin.pki / "good.pem", origin.pki / "good.key") as o:
        s = stile(rules=[allow(f"https://origin.test:{o.port}")])
        with H2(s, port=o.port) as c:
            c.get("/echo")
            before = o.reads
            flush, c.flush = c.flush, lambda: None
            streams = [c.ask(path="/echo") for _ in range(40)]
            c.flush = flush
            c.flush()
            c.wait(*streams)
            assert all(c.answers[n].status == 200 for n in streams)
            # Some more for acknowledgements, and where the log took its time.
            assert o.connections == 1 and o.reads - before <= 30


# ---- abuse ----


def ok(stream: int, body: bytes = b"") -> bytes:
    return answer([(":status", "200")], END_HEADERS | (0 if body else END_STREAM), body)(stream)


def interims(n: int, size: int = 0):
    more = [("link", "x" * 4000)] * (size // 4000)
    return lambda stream: [answer([(":status", "103"), *more], END_HEADERS)(stream) for _ in range(n)] + [ok(stream)]


FLOODS = {
    "ping": lambda stream: [frame(6, 0, 0, b"12345678") * 100] * 100,
    "settings": lambda stream: [frame(4, 0, 0) * 100] * 100,
    "an unknown type": lambda stream: [frame(0xfa, 0, stream, b"x") * 100] * 100,
    "altsvc": lambda stream: [frame(0xa, 0, 0, b"\0\1ax") * 100] * 100,
    "goaway": lambda stream: [frame(7, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0") * 100] * 100,
    "windows": lambda stream: [frame(8, 0, 0, b"\0\0\0\1") * 100] * 100,
    "resets of a stream that is over": lambda stream: [ok(stream + 2) + frame(3, 0, stream + 2, b"\0\0\0\7")] +
                                                      [frame(3, 0, stream, b"\0\0\0\7") * 100] * 100,
    "empty data": lambda stream: [answer([(":status", "200")], END_HEADERS)(stream)] + [frame(0, 0, stream) * 100] * 100,
    "padding": lambda stream: [answer([(":status", "200")], END_HEADERS)(stream)] +
                              [frame(0, 8, stream, b"\xffx" + b"\0" * 255)] * 400,
    "field sections": lambda stream: [ok(stream, b"x")[:-10], answer([("x", "y")], END_HEADERS)(stream) * 2000],
    "interim answers": interims(100),
    "large interim answers": interims(10, 20000),
    "an unfolding head": lambda stream: frame(1, END_HEADERS | END_STREAM, stream,
                                              b"\x88\x40" + H2.text("x") + H2.text("y" * 3900) + b"\xbe" * 10000),
    "a window that overflows": lambda stream: frame(8, 0, 0, b"\x7f\xff\xff\xff"),
    "a stream's window that overflows": lambda stream: frame(8, 0, stream, b"\x7f\xff\xff\xff"),
    "goaway of an odd stream": lambda stream: frame(7, 0, 0, b"\0\0\0\2\0\0\0\0"),
    "goaway that goes up": lambda stream: frame(7, 0, 0, b"\0\0\0\1\0\0\0\0") + frame(7, 0, 0, b"\0\0\0\7\0\0\0\0"),
    "a head for an idle stream": lambda stream: ok(stream + 20),
    "a push, with a window before it": lambda stream: frame(8, 0, 0, b"\0\0\0\1") + frame(5, 4, stream, b"\0\0\0\4\x82"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_of_an_origin(world, name):
    """Its connection ends, each request on it has its record, and the next one gets another."""
    since, before = world.mark(), world.rss_kib()
    world.h2_origin.raw["x"] = FLOODS[name]
    with H2(world, port=world.h2_origin.port) as c:
        a = c.get("/raw/x")
        assert a.status == 502 or a.reset is not None, a
    end = world.wait_record(since, event="request.end")
    assert end["error"] in ("upstream_malformed", "upstream_closed"), end
    assert world.rss_kib() - before < 30000 * SLOWER
    assert ask(world, "2", "/echo")[0] == 200


def test_no_streams_at_all(stile, origin):
    """An origin that says so is waited for like one that does not answer."""
    with H2Origin(origin.pki / "good.pem", origin.pki / "good.key",
                  settings={h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 0}) as o:
        s = stile(rules=[allow(f"https://origin.test:{o.port}")], limits={"first_byte": "1s"})
        s.h2_origin = o
        with H2(s, port=o.port) as c:
            c.wait(*[c.ask(path="/hang") for _ in range(10)])
            assert {a.status for a in c.answers.values()} <= {502, 504}
        ends = s.wait_records(10, event="request.end")
        assert {r["error"] for r in ends} <= {"upstream_timeout", "upstream_closed"}


def test_no_window_and_then_nothing(stile, origin):
    """A body that the origin never takes: it is the origin that was too slow."""
    with H2Origin(origin.pki / "good.pem", origin.pki / "good.key",
                  settings={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0}) as o:
        s = stile(rules=[allow(f"https://origin.test:{o.port}")], limits={"first_byte": "1s", "body_idle": "1s", "workers": 1})
        s.h2_origin = o
        ask(s, "2", "/echo")  # so that its settings are known
        with H2(s, port=o.port) as c:
            i = c.ask("POST", "/echo", end=False)
            while (n := min(c.h2.local_flow_control_window(i), 16384)) or c.read(0.3):
                if n:
                    c.h2.send_data(i, b"x" * n)
                    c.flush()
                if c.answers[i].done:
                    break
            assert c.wait(i).status == 504
        assert s.wait_record(event="request.end", method="POST")["error"] == "upstream_timeout"


def test_an_answer_that_drips(stile, h2_origin):
    """Never idle, never done: as long as a request may last."""
    s = stile(rules=[allow(f"https://origin.test:{h2_origin.port}")], limits={"request_life": "1s"})

    def drip(stream):
        yield answer([(":status", "200")], END_HEADERS)(stream)
        for _ in range(200):
            yield frame(0, 0, stream, b"x")
            time.sleep(0.05)
    h2_origin.raw["x"] = drip
    with H2(s, port=h2_origin.port) as c:
        a = c.get("/raw/x")
        assert a.reset is not None and 1 <= len(a.body) < 100
    assert s.wait_record(event="request.end")["error"] == "request_life"


def test_goaway_of_none_but_the_newest(world):
    """2^31-1: what is open goes on, and no other is begun (RFC 9113 section 6.8)."""
    world.h2_origin.raw["x"] = lambda stream: frame(7, 0, 0, b"\x7f\xff\xff\xff\0\0\0\0") + ok(stream)
    with H2(world, port=world.h2_origin.port) as c:
        assert c.get("/raw/x").status == 200
        assert c.get("/echo").json()["connection"] == 2
