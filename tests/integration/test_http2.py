"""HTTP/2 towards the client of an inspected connection: each stream a request of its own, judged, recorded and
answered as HTTP/1.1 would be; what a peer may make us do is bounded."""

import os
import subprocess
import threading
import time

import pytest

h2 = pytest.importorskip("h2", reason="python3-h2 is not installed")

import h2lib
from h2lib import (ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, H2, HEADERS, PING, PRIORITY, RST,
                   SETTINGS, WINDOW, frame)
from stilelib import PYTHON, SLOWER, Peer, allow, wait_for


# ---- one request ----


def test_a_request(proxy):
    since = proxy.mark()
    with H2(proxy) as c:
        a = c.get("/ok/a?x=1")
        assert (a.status, a.body) == (200, b"ok /ok/a\n")
        assert c.settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] == 100
        assert c.settings[h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE] == 65536
    start, end = proxy.wait_records(2, since)
    assert (start["event"], end["event"]) == ("request.start", "request.end")
    assert start["http"] == "2" and start["tls"]["alpn"] == "h2"
    assert end["tls"]["upstream_version"] == "TLSv1.3" and end["tls"].get("upstream_alpn") != "h2"
    assert (end["status"], end["bytes_in"], end["path"], end["query"]) == (200, len(a.body), "/ok/a", "x=1")


def test_a_refusal_is_an_answer_on_its_stream(proxy):
    since = proxy.mark()
    with H2(proxy) as c:
        no, yes = c.ask(path="/no/x"), c.ask(path="/ok/y")
        a = c.wait(yes, no)
        assert a.status == 403 and a.get("proxy-status") == 'stile; error=http_request_denied; details="denied_by_rule"'
        assert a.get("cache-control") == "no-store" and a.json()["reason"] == "denied_by_rule"
        assert c.answers[yes].status == 200
    deny = proxy.wait_record(since, event="request.deny")
    assert deny["id"] == a.json()["id"] and deny["http"] == "2" and deny["path"] == "/no/x"


@pytest.mark.parametrize("body", [b"", b"x", b"y" * 300_000])
def test_bodies(proxy, body):
    with H2(proxy) as c:
        length = c.get("/echo", "POST", body=body, more=[("content-length", str(len(body)))])
        unknown = c.get("/echo", "POST", body=body)
    for a, name in ((length, "content-length"), (unknown, "transfer-encoding")):
        assert a.status == 200 and a.json()["body"] == body.decode()
        assert name in [n.lower() for n, _ in a.json()["headers"]]


@pytest.mark.parametrize("path", ["/bytes/5000000", "/chunked?n=5000000"])
def test_large_answers(proxy, path):
    with H2(proxy) as c:
        streams = [c.ask(path=path) for _ in range(5)]
        c.wait(*streams)
    assert {len(c.answers[s].body) for s in streams} == {5_000_000}
    assert len({c.answers[s].body for s in streams}) == 1


def test_head_and_empty_answers(proxy):
    with H2(proxy) as c:
        a = c.get("/ok", "HEAD")
        assert a.status == 200 and a.body == b""
        assert c.get("/status/204").status == 204
        assert c.get("/no/x", "HEAD").status == 403


def test_trailers_come_through(proxy):
    with H2(proxy) as c:
        a = c.get("/trailers")
    assert "x-sum" in dict(a.trailers), a


def test_trailers_go_through(proxy):
    with H2(proxy) as c:
        s = c.ask("POST", "/echo", body=b"abc", end=False)
        c.h2.send_headers(s, [("x-sum", "7")], end_stream=True)
        c.flush()
        a = c.wait(s)
    assert a.json()["body"] == "abc" and "x-sum: 7" in str(a.json()["trailers"]).lower()


def test_cookies_are_joined(proxy):
    with H2(proxy) as c:
        a = c.get("/echo", more=[("cookie", "a=1"), ("x-y", "z"), ("cookie", "b=2"), ("cookie", "c=3")])
    assert [v for n, v in a.json()["headers"] if n.lower() == "cookie"] == ["a=1; b=2; c=3"]


def test_expectation(proxy):
    with H2(proxy) as c:
        s = c.ask("POST", "/continue", more=[("expect", "100-continue"), ("content-length", "3")], end=False, body=b"")
        end = time.monotonic() + 10 * SLOWER
        while not c.answers[s].interim and time.monotonic() < end:
            c.read(1)
        assert c.answers[s].interim == [100]
        c.send_body(s, b"abc")
        assert c.wait(s).status == 200


# ---- the same as HTTP/1.1, or refused ----

BAD_HEADS = {
    "another authority": (dict(authority="evil.test"), 421, "name_mismatch"),
    "another port": (dict(authority="origin.test:1"), 421, "name_mismatch"),
    "another host": (dict(more=[("host", "evil.test")]), 421, "name_mismatch"),
    "no authority": (dict(authority=None), 400, "malformed_request"),
    "userinfo": (dict(authority="a@origin.test"), 400, "malformed_request"),
    "scheme http": (dict(scheme="http"), 400, "malformed_request"),
    "no scheme": (dict(scheme=None), 400, "malformed_request"),
    "no path": (dict(path=None), 400, "malformed_request"),
    "empty path": (dict(path=""), 400, "malformed_request"),
    "star": (dict(path="*", method="OPTIONS"), 400, "malformed_request"),
    "absolute path": (dict(path="https://origin.test/x"), 400, "malformed_request"),
    "dots": (dict(path="/a/../no/x"), 400, "ambiguous_url"),
    "encoded dots": (dict(path="/a/%2e%2e/no/x"), 400, "ambiguous_url"),
    "a space in the path": (dict(path="/a b"), 400, "malformed_request"),
    "CRLF in the path": (dict(path="/a\r\nX: y"), 400, "malformed_request"),
    "a fragment": (dict(path="/a#b"), 400, "ambiguous_url"),
    "no method": (dict(method=None), 400, "malformed_request"),
    "a method with a space": (dict(method="GET /no/x HTTP/1.1"), 400, "malformed_request"),
    "TRACE": (dict(method="TRACE"), 405, "method_refused"),
    "CONNECT": (dict(method="CONNECT", scheme=None, path=None), 400, "malformed_request"),
    "extended CONNECT": (dict(method="CONNECT", protocol="connect-udp"), 403, "upgrade_refused"),
    "a WebSocket": (dict(method="CONNECT", protocol="websocket"), 403, "no_rule"),
    "protocol": (dict(protocol="websocket"), 400, "malformed_request"),
    "an unknown pseudo-field": (dict(x="y"), 400, "malformed_request"),
    "status": (dict(status="200"), 400, "malformed_request"),
    "a pseudo-field twice": (dict(more=[(":path", "/no/x")]), 400, "malformed_request"),
    "a late pseudo-field": (dict(more=[("a", "b"), (":x", "y")]), 400, "malformed_request"),
    "upper case": (dict(more=[("X-Y", "z")]), 400, "malformed_request"),
    "a space in a name": (dict(more=[("x y", "z")]), 400, "malformed_request"),
    "a colon in a name": (dict(more=[("x:y", "z")]), 400, "malformed_request"),
    "CRLF in a name": (dict(more=[("x\r\nhost", "z")]), 400, "malformed_request"),
    "an empty name": (dict(more=[("", "z")]), 400, "malformed_request"),
    "CRLF in a value": (dict(more=[("x", "y\r\nz: 1")]), 400, "malformed_request"),
    "LF in a value": (dict(more=[("x", "y\nz")]), 400, "malformed_request"),
    "NUL in a value": (dict(more=[("x", "y\0z")]), 400, "malformed_request"),
    "white space around a value": (dict(more=[("x", " y")]), 400, "malformed_request"),
    "connection": (dict(more=[("connection", "close")]), 400, "malformed_request"),
    "keep-alive": (dict(more=[("keep-alive", "5")]), 400, "malformed_request"),
    "proxy-connection": (dict(more=[("proxy-connection", "close")]), 400, "malformed_request"),
    "transfer-encoding": (dict(more=[("transfer-encoding", "chunked")]), 400, "malformed_request"),
    "upgrade": (dict(more=[("upgrade", "websocket")]), 400, "malformed_request"),
    "te": (dict(more=[("te", "gzip")]), 400, "malformed_request"),
    "two lengths": (dict(more=[("content-length", "0"), ("content-length", "0")]), 400, "malformed_request"),
    "a length and no body": (dict(more=[("content-length", "3")]), 400, "malformed_request"),
    "an odd length": (dict(more=[("content-length", "+0")]), 400, "malformed_request"),
    "a length with an underscore": (dict(more=[("content_length", "0")]), 400, "malformed_request"),
    "an expectation": (dict(more=[("expect", "x")]), 417, "expectation_failed"),
    "a long path": (dict(path="/" + "a" * 17000), 414, "target_too_long"),
    "a long name": (dict(more=[("x" * 300, "y")]), 431, "head_too_large"),
    "many fields": (dict(more=[(f"x{i}", "y") for i in range(300)]), 431, "head_too_large"),
}


@pytest.mark.parametrize("name", BAD_HEADS)
def test_bad_heads_are_refused(proxy, name):
    """One record, an answer on the stream, nothing upstream; and the connection serves the next."""
    pseudo, status, reason = BAD_HEADS[name]
    since, mark = proxy.mark(), proxy.origin.mark()
    with H2(proxy) as c:
        c.ask(**{"path": "/leak", **pseudo})
        a = c.wait(1)
        assert a.status == status, a
        assert a.json()["reason"] == reason
        assert c.get("/ok/after").status == 200
    records = [r for r in proxy.wait_records(3, since)]
    assert [r["event"] for r in records] == ["request.deny", "request.start", "request.end"]
    assert records[0]["reason"] == reason and records[0]["status"] == status and records[0]["http"] == "2"
    assert b"leak" not in proxy.origin.since(mark)


def test_same_request_by_both(proxy):
    """What arrives at the origin is the same, but for the case of names."""
    seen = []
    for path in ("/echo?a=%7eb", "/echo?q=%C3%a4"):
        with H2(proxy) as c:
            b = c.get(path, more=[("accept", "*/*"), ("x-one", "1"), ("te", "trailers")]).json()
        a = proxy.tls_get(path, more="accept: */*\r\nx-one: 1\r\nTE: trailers\r\nConnection: TE\r\n").json()
        for one in (a, b):
            one["headers"] = sorted((n.lower(), v) for n, v in one["headers"])
            for k in ("connection", "request", "tls"):
                one.pop(k)
        assert a == b
        seen.append(a["target"])
    assert seen == ["/echo?a=~b", "/echo?q=%C3%A4"] or seen[0].startswith("/echo?a=")


@pytest.mark.parametrize("said, sent", [(5, 3), (3, 5), (0, 1)])
def test_data_and_length_disagree(proxy, said, sent):
    since = proxy.mark()
    with H2(proxy) as c:
        s = c.ask("POST", "/upload", more=[("content-length", str(said))], body=b"x" * sent)
        a = c.wait(s)
        # A body of none is whole with its head: its answer may be there before the byte that should not.
        early = said == 0 and a.status == 200
        assert early or a.status == 400 or a.reset is not None
        assert c.get("/ok").status == 200
    if early:
        return
    end = next(r for r in proxy.wait_records(1, since) if r["event"] != "request.start")
    assert "malformed_request" in (end.get("error"), end.get("reason"))


def test_credentials_and_rules_of_one_connection(stile, canary):
    """Two streams, two rules: each gets its own credential, and no other."""
    s = stile(credentials={"one": {"from": {"env": "ONE"}, "as": "bearer"}}, env={"ONE": canary},
              rules=[allow("https://origin.test:*/echo/one", credential="one"), allow("https://origin.test:*/echo/two")])
    with H2(s) as c:
        streams = [c.ask(path=p, more=[("authorization", "mine")]) for p in ("/echo/one", "/echo/two") * 3]
        c.wait(*streams)
        got = [dict((n.lower(), v) for n, v in c.answers[i].json()["headers"])["authorization"] for i in streams]
    assert got == [f"Bearer {canary}", "mine"] * 3
    assert canary not in s.log_path.read_text()


def test_a_client_that_resets(proxy):
    """Its record says so; the other streams go on."""
    since = proxy.mark()
    with Peer() as hole:
        with H2(proxy) as c:
            s = c.ask(path="/bytes/100000000")
            while len(c.answers[s].body) < 100_000:
                c.read()
            c.h2.reset_stream(s, error_code=8)
            c.flush()
            assert c.get("/ok").status == 200
    end = [r for r in proxy.wait_records(4, since) if r["event"] == "request.end" and "/bytes" in r["path"]][0]
    assert end["error"] == "client_closed" and "reset the stream" in end["error_detail"]


def test_a_cut_answer_is_reset(proxy):
    with H2(proxy) as c:
        a = c.get("/reset")
        assert a.reset is not None or a.status == 502
        assert c.get("/ok").status == 200


def test_grpc_denial(proxy):
    with H2(proxy) as c:
        a = c.get("/no/p.S/M", "POST", body=b"\0\0\0\0\0", more=[("content-type", "application/grpc"), ("te", "trailers")])
    assert (a.status, a.get("grpc-status"), a.body) == (200, "7", b"")
    assert "denied_by_rule" in a.get("grpc-message") and a.get("proxy-status").startswith("stile;")


def test_goaway_when_stile_ends(stile):
    s = stile()
    with H2(s) as c:
        slow = c.ask(path="/slow?ms=500")
        s.wait_record(event="request.start")
        s.signal(15)
        kinds = [(kind, stream) for kind, _, stream, _ in c.frames()]
    assert kinds.index((GOAWAY, 0)) < kinds.index((HEADERS, slow)) and (DATA, slow) in kinds


def test_a_reload_between_streams(stile):
    s = stile()
    with H2(s) as c:
        assert c.get("/ok").status == 200
        s.reload(rules=[allow("https://origin.test:*/other")])
        assert c.get("/ok").json()["reason"] == "no_rule"
        assert c.get("/other").status != 403


def test_many_streams(proxy):
    with H2(proxy) as c:
        for _ in range(5):
            c.wait(*[c.ask(path=f"/ok/{i}") for i in range(90)])
    assert all(a.status == 200 and a.body == f"ok /ok/{i % 90}\n".encode()
               for i, a in enumerate(c.answers.values()))


# ---- back-pressure ----


def test_a_client_that_opens_no_window_costs_no_memory(stile):
    s = stile()
    with H2(s, consume=False) as c:
        streams = [c.ask(path="/bytes/50000000") for _ in range(60)]
        before = s.rss_kib()
        end = time.monotonic() + 3
        while time.monotonic() < end:
            c.read(0.2)
        grown = s.rss_kib() - before
        assert grown < (12000 if SLOWER == 1 else 80000), grown
        assert sum(len(c.answers[i].body) for i in streams) <= 65535
    s.pairs = True


def test_an_origin_that_reads_nothing_holds_the_client_back(stile):
    with Peer(rcvbuf=4096) as p:
        s = stile(rules=[allow(f"https://origin.test:{p.port}")])
        # the origin is never connected in TLS: the body may come up to its window and no further
        with H2(s, port=p.port) as c:
            i = c.ask("POST", "/x", more=[("content-length", "10000000")], end=False, body=b"")
            sent = 0
            while True:
                n = min(c.h2.local_flow_control_window(i), 16384)
                if n == 0 and not c.read(0.5):
                    break
                if n:
                    c.h2.send_data(i, b"x" * n)
                    c.flush()
                    sent += n
            assert sent == 131072


# ---- abuse ----


def fault(s, since, reason: str, text: str):
    def look():
        return [r for r in s.records(since) if reason in (r.get("reason"), r.get("error"))
                and text in r.get("error_detail", "")]
    return wait_for(look, why=f"{reason} {text}: {s.records(since)[-3:]}")


def flood(c: H2, data: bytes, times: int) -> None:
    for _ in range(times):
        if not c.send(data):
            return


FLOODS = {
    "ping": (frame(PING, 0, 0, b"12345678"), "PING"),
    "ping, answered": (frame(PING, ACK, 0, b"12345678"), "PING"),
    "settings": (frame(SETTINGS, 0, 0), "SETTINGS"),
    "settings of a table": (frame(SETTINGS, 0, 0, b"\0\1\0\0\0\0\0\1\0\0\x10\0"), "SETTINGS"),
    "an unknown type": (frame(0xfa, 0, 0, b"x"), "other types"),
    "an unknown type on a stream": (frame(0xfa, 0xff, 1, b""), "other types"),
    "priority update": (frame(0x10, 0, 0, b"\0\0\0\1u=1"), "other types"),
    "altsvc": (frame(0xa, 0, 0, b"\0\1ax"), "other types"),
    "origin": (frame(0xc, 0, 0, b"\0\1a"), "other types"),
    "resets of a stream that is over": (frame(RST, 0, 1, b"\0\0\0\x08"), "reset"),
    "windows of a stream that is over": (frame(WINDOW, 0, 1, b"\0\0\0\1"), "WINDOW_UPDATE"),
    "priority": (frame(PRIORITY, 0, 1, b"\0\0\0\0\1"), "PRIORITY"),
    "window": (frame(WINDOW, 0, 0, b"\0\0\0\1"), "WINDOW_UPDATE"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods_end_the_connection(proxy, name):
    since = proxy.mark()
    data, text = FLOODS[name]
    with H2(proxy) as c:
        assert c.get("/ok").status == 200
        flood(c, data * 100, 100)
        assert c.wait_closed()
    fault(proxy, since, "rate_limited", text)
    assert proxy.tls_get("/ok").status == 200


def test_rapid_reset(proxy):
    since = proxy.mark()
    with H2(proxy) as c:
        for i in range(1, 4001, 2):
            if not c.send(c.raw_head(c.head(path="/slow?ms=5000"), i) + frame(RST, 0, i, b"\0\0\0\x08")):
                break
        assert c.wait_closed()
    fault(proxy, since, "rate_limited", "reset")
    n = len([r for r in proxy.settled().records(since) if r["event"] in ("request.end", "request.deny")])
    assert n < 400


MAKE_US_RESET = {
    "a window of nothing": lambda i: frame(WINDOW, 0, i, b"\0\0\0\0"),
    "a window that overflows": lambda i: frame(WINDOW, 0, i, b"\x7f\xff\xff\xff"),
    "data behind the end": lambda i: frame(DATA, 0, i, b"x"),
    "priority of another length": lambda i: frame(PRIORITY, 0, i, b"\0\0\0\1"),
}


@pytest.mark.parametrize("name", MAKE_US_RESET)
def test_streams_that_make_us_reset(proxy, name):
    """The other way to the same: frames at which we have to reset the stream, or end the connection at once."""
    since = proxy.mark()
    with H2(proxy) as c:
        for i in range(1, 4001, 2):
            if not c.send(c.raw_head(c.head(path="/slow?ms=5000"), i) + MAKE_US_RESET[name](i)):
                break
        assert c.wait_closed()
    wait_for(lambda: [r for r in proxy.records(since) if {r.get("reason"), r.get("error")} & {
        "rate_limited", "malformed_request"}], why="a record of it")
    assert proxy.tls_get("/ok").status == 200
    n = len([r for r in proxy.settled().records(since) if r["event"] in ("request.end", "request.deny")])
    assert n < 400


def test_empty_data(proxy):
    since = proxy.mark()
    with H2(proxy) as c:
        i = c.ask("POST", "/upload", end=False, body=b"")
        flood(c, frame(DATA, 0, i) * 100, 100)
        assert c.wait_closed()
    fault(proxy, since, "rate_limited", "DATA")


def test_padding(proxy):
    """Padding that data does not pay for."""
    since = proxy.mark()
    with H2(proxy) as c:
        i = c.ask("POST", "/upload", end=False, body=b"")
        flood(c, frame(DATA, 8, i, b"\xff" + b"x" + b"\0" * 255), 450)
        assert c.wait_closed()
    fault(proxy, since, "rate_limited", "padding")


@pytest.mark.parametrize("path, status", [("/no/x", 403), ("/early?status=401", 401)])
def test_what_sends_all_before_it_reads_is_answered(proxy, path, status):
    """There are clients that hear of no reset behind the end of an answer, and wait for ever for a window."""
    with H2(proxy) as c:
        i = c.ask("POST", path, body=b"", end=False)
        while not c.answers[i].done:
            assert c.read()
        left = 3 << 20
        while left > 0:
            while (n := min(left, c.h2.local_flow_control_window(i), 16384)) <= 0:
                assert c.read()
            c.h2.send_data(i, bytes(n), end_stream=n == left)
            c.flush()
            left -= n
        assert (c.answers[i].status, c.answers[i].reset) == (status, None)
        assert c.get("/ok").status == 200


def test_data_for_a_stream_that_was_reset(proxy):
    """Behind a refusal some is taken and dropped, by bytes and by frames; then a window of it may be on its way, not
    more."""
    since = proxy.mark()
    with H2(proxy) as c:
        i = c.ask("POST", "/no/x", end=False, body=b"x")
        while not c.answers[i].done:
            assert c.read()
        assert c.answers[i].reset is None
        flood(c, frame(DATA, 0, i, b"x") * 100, 50)
        while c.answers[i].reset is None:
            assert c.read()
        assert c.answers[i].reset == 0
        flood(c, frame(DATA, 0, i) * 100, 10)
        assert c.get("/ok").status == 200
        flood(c, frame(DATA, 0, i) * 100, 200)
        assert c.wait_closed()
    fault(proxy, since, "rate_limited", "streams that are over")


@pytest.mark.parametrize("name", ["data", "a head", "an older stream"])
def test_a_stream_that_is_over_begins_nothing(proxy, name):
    since = proxy.mark()
    with H2(proxy) as c:
        assert c.get("/ok").status == 200
        c.send({"data": frame(DATA, END_STREAM, 1, b"x"), "a head": c.raw_head(c.head(path="/ok/again"), 1),
                "an older stream": c.raw_head(c.head(path="/ok/5"), 5) + c.raw_head(c.head(path="/ok/3"), 3)}[name])
        assert c.wait_closed()
    fault(proxy, since, "malformed_request", "a stream that is over")
    assert not [r for r in proxy.settled().records(since) if r.get("path") in ("/ok/again", "/ok/3")]


def test_field_sections_without_end(proxy):
    """Behind the one that was one too many."""
    since = proxy.mark()
    with H2(proxy) as c:
        i = c.ask("POST", "/upload", end=False, body=b"")
        flood(c, c.raw_head([("x", "y")], i, end=False) * 100, 100)
        assert c.wait_closed()
    fault(proxy, since, "rate_limited", "field sections")


def test_table_size_updates(proxy):
    """A head of nothing else has no method, and costs what its bytes cost."""
    since = proxy.mark()
    block = b"\x20\x3f\xe1\x1f" * 4000
    with H2(proxy) as c:
        for i in range(1, 41, 2):
            c.answers[i] = h2lib.Answer()
            c.send(frame(HEADERS, END_STREAM, i, block) + frame(CONTINUATION, END_HEADERS, i, block))
        c.wait_closed(0.5) or True
    fault(proxy, since, "malformed_request", "")
    assert proxy.tls_get("/ok").status == 200


def test_a_window_that_drips(proxy):
    """An answer that is taken byte by byte costs as much as it is long, and ends."""
    since = proxy.mark()
    with H2(proxy, window=0) as c:
        i = c.ask(path="/bytes/100000")
        flood(c, frame(WINDOW, 0, i, b"\0\0\0\1") * 10, 400)
        assert c.wait_closed()
    fault(proxy, since, "rate_limited", "WINDOW_UPDATE")


def test_an_answer_that_is_taken_slowly(stile):
    """Whole long ago, and taken byte by byte: for as long as a request may last."""
    s = stile(limits={"request_life": "3s"})
    with H2(s, window=0, consume=False) as c:
        i = c.ask(path="/bytes/100000")
        s.wait_record(event="request.end")
        end = time.monotonic() + 20 * SLOWER
        while not c.answers[i].done and time.monotonic() < end:
            c.h2.increment_flow_control_window(1, i)
            c.flush()
            c.read(0.2)
            time.sleep(0.05)  # slower than is abuse
        assert c.answers[i].reset is not None and len(c.answers[i].body) < 1000
        assert not c.closed


def test_continuation_flood(proxy):
    since = proxy.mark()
    with H2(proxy) as c:
        assert c.get("/ok").status == 200
        c.send(frame(HEADERS, END_STREAM, 3, b"\x82"))
        flood(c, frame(CONTINUATION, 0, 3, b"\0\1a\1b"), 1000)
        assert c.wait_closed()
    fault(proxy, since, "head_too_large", "CONTINUATION")


def test_a_head_that_unfolds(proxy):
    """A few bytes that stand for much: the stream or the connection ends, memory stays."""
    since, before = proxy.mark(), proxy.rss_kib()
    with H2(proxy) as c:
        block = b"\x40" + c.text("x") + c.text("y" * 3900) + b"\xbe" * 15000
        c.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block[:16000] if len(block) > 16384 else block))
        assert c.wait_closed(5 * SLOWER) or True
    fault(proxy, since, "head_too_large", "")
    assert proxy.rss_kib() - before < 20000 * SLOWER


def test_a_large_head_is_431(proxy):
    with H2(proxy) as c:
        a = c.get("/ok", more=[(f"x{i}", "y" * 4000) for i in range(20)])
        assert a.status == 431
        assert c.get("/ok").status == 200


def test_too_many_streams(proxy):
    since = proxy.mark()
    with H2(proxy) as c:
        c.get("/ok")
        for i in range(3, 403, 2):
            if not c.send(c.raw_head(c.head(path="/slow?ms=3000"), i)):
                break
        c.wait_closed(2)
    starts = [r for r in proxy.settled().records(since) if r["event"] == "request.start"]
    assert len(starts) <= 101


def test_a_head_that_does_not_end(stile):
    s = stile(limits={"head": "1s"})
    since = s.mark()
    with H2(s) as c:
        c.get("/ok")
        c.send(frame(HEADERS, END_STREAM, 3, b"\x82"))
        assert c.wait_closed(15 * SLOWER)
    fault(s, since, "client_timeout", "head")


def test_idle_connections_end(stile):
    s = stile(limits={"idle": "1s"})
    with H2(s) as c:
        c.get("/ok")
        assert c.wait_closed(15 * SLOWER)
        assert c.goaway and c.goaway.error_code == 0


GARBAGE = {
    "not h2": b"GET / HTTP/1.1\r\n\r\n",
    "push": frame(h2lib.PUSH, END_HEADERS, 1, b"\0\0\0\2\x82"),
    "data on stream 0": frame(DATA, 0, 0, b"x"),
    "an even stream": frame(HEADERS, END_HEADERS | END_STREAM, 2, b"\x82"),
    "bad hpack": frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\xff\xff\xff\xff\xff\xff"),
    "continuation alone": frame(CONTINUATION, END_HEADERS, 3, b"\x82"),
    "a long ping": frame(PING, 0, 0, b"123456789"),
    "a window that overflows": frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"),
    "a large frame": frame(DATA, 0, 1, b"x" * 20000),
    "priority of stream 0": frame(PRIORITY, 0, 0, b"\0\0\0\1\0"),
    "a window that overflows by settings": frame(SETTINGS, 0, 0, b"\0\4\xff\xff\xff\xff"),
    "many settings": frame(SETTINGS, 0, 0, b"\0\1\0\0\0\0" * 40),
    "goaway of a stream that is not ours": frame(GOAWAY, 0, 0, b"\0\0\0\1\0\0\0\0"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_ends_the_connection(proxy, name):
    since = proxy.mark()
    with H2(proxy) as c:
        assert c.get("/ok").status == 200
        c.send(GARBAGE[name])
        assert c.wait_closed()
    fault(proxy, since, "malformed_request", "HTTP/2")


# ---- real programs ----


def test_curl(proxy):
    r = subprocess.run(["curl", "-sS", "--http2", "-x", f"http://127.0.0.1:{proxy.port}", "--cacert", str(proxy.ca),
                        "-w", "%{http_version} %{http_code}\n", f"https://origin.test:{proxy.origin.tls}/ok/curl"],
                       capture_output=True, text=True, timeout=30)
    assert r.stdout == "ok /ok/curl\n2 200\n", r


def test_httpx(proxy):
    httpx = pytest.importorskip("httpx", reason="python3-httpx is not installed")
    with httpx.Client(http2=True, proxies=f"http://127.0.0.1:{proxy.port}", verify=str(proxy.ca), trust_env=False) as c:
        r = c.get(f"https://origin.test:{proxy.origin.tls}/ok/httpx")
        assert (r.http_version, r.status_code, r.text) == ("HTTP/2", 200, "ok /ok/httpx\n")
        assert c.get(f"https://origin.test:{proxy.origin.tls}/no/httpx").json()["reason"] == "denied_by_rule"
