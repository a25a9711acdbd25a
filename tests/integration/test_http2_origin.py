"""HTTP/2 towards origins, with clients of HTTP/1.1 and HTTP/2: one connection for many streams, and never for two
rules or two sandboxes; what an origin does wrong is an answer of ours."""

import struct

import pytest

h2 = pytest.importorskip("h2", reason="python3-h2 is not installed")

import h2lib
from h2_origin import H2Origin
from h2lib import END_HEADERS, END_STREAM, H2, HEADERS, frame
from stilelib import allow, wait_for


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

