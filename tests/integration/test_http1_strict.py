"""Strict HTTP/1.1 (RFC 9110, 9112), over raw sockets and in both directions. A refusal is four things: a status
with a reason, nothing of the message at the origin, a closed connection, and exactly one record of a denial."""

import bad  # tests/origin/bad.py
import pytest

from stilelib import check_refusal, chunked, get

MARK = b"MARK"
MALFORMED = "malformed_request"


def fill(proxy, text: bytes) -> bytes:
    """U is the origin's URL, A its authority."""
    authority = f"origin.test:{proxy.origin.plain}".encode()
    return text.replace(b"{U}", b"http://" + authority).replace(b"{A}", authority)


def refused(proxy, message: bytes, status=400, reason=None, records=1, end=False):
    since, seen = proxy.mark(), proxy.origin.mark()
    with proxy.client() as c:
        c.send_quietly(fill(proxy, message))
        if end:
            c.half_close()
        r = c.response()
        check_refusal(r, status, reason)
        assert c.at_end(), "the connection is open, or more was said"
    proxy.wait_record(since)
    assert proxy.origin.since(seen) == b"", "the origin got something"
    got = proxy.records(since)
    assert len(got) == records, got
    assert got[0]["event"] in ("request.deny", "tunnel.deny") and got[0]["decision"] == "deny"
    assert got[0]["status"] == r.status and got[0]["client"].startswith("127.0.0.1")
    assert got[0]["reason"] == r.json()["reason"] and got[0]["id"] == r.json()["id"]
    return got[0]


def head(*lines: bytes, first: bytes = b"POST {U}/ok/a HTTP/1.1") -> bytes:
    return b"\r\n".join((first, b"Host: {A}", *lines)) + b"\r\n\r\n"


# ---- framing ----


@pytest.mark.parametrize("coding", [
    b"chunked", b"chunked,", b",chunked", b"chunked, gzip", b"gzip, chunked", b"xchunked", b"chunked;q=1", b'"chunked"',
    b"chunked\x0b", b"identity", b"", b"chunked\r\nTransfer-Encoding: identity", b"CHUNKED",
])
@pytest.mark.parametrize("first", [True, False])
def test_transfer_encoding_beside_content_length(proxy, coding, first):
    fields = [b"Content-Length: 6", b"Transfer-Encoding: " + coding]
    refused(proxy, head(*(fields if first else fields[::-1])) + b"0\r\n\r\nG", 400, MALFORMED)


@pytest.mark.parametrize("coding", [
    b"chunked,", b",chunked", b"chunked, chunked", b"chunked, gzip", b"gzip, chunked", b"gzip", b"xchunked", b"chunked;q=1",
    b'"chunked"', b"chunked\x0b", b"identity", b"", b"\x0cchunked", b"chunke", b"chunkedd", b"chun ked", b"chunked x",
    b"chunked\r\nTransfer-Encoding: chunked", b"chunked\r\nTransfer-Encoding: identity",
    b"identity\r\nTransfer-Encoding: chunked", b"chunked\r\ntransfer-encoding: ", b"\xef\xbb\xbfchunked", b"chunked\x00",
    b"\xe4\xbd\xa0",
])
def test_codings_but_exactly_chunked(proxy, coding):
    refused(proxy, head(b"Transfer-Encoding: " + coding) + b"0\r\n\r\n", 400, MALFORMED)


def test_coding_in_http_1_0(proxy):
    refused(proxy, head(b"Transfer-Encoding: chunked", first=b"POST {U}/ok/a HTTP/1.0") + b"0\r\n\r\n", 400, MALFORMED)


@pytest.mark.parametrize("coding", [b"chunked", b"CHUNKED \t", b"Chunked"])
def test_chunked_is_read(proxy, coding):
    with proxy.client() as c:
        c.send(fill(proxy, head(b"Transfer-Encoding: " + coding, first=b"POST {U}/echo HTTP/1.1")) + chunked(b"he", b"llo"))
        r = c.response()
    assert r.json()["body"] == "hello"
    assert [v.lower() for n, v in r.json()["headers"] if n.lower() == "transfer-encoding"] == ["chunked"]


@pytest.mark.parametrize("length", [
    b"5\r\nContent-Length: 6", b"5\r\nContent-Length: 5", b"5, 6", b"5, 5", b"5,5", b"", b"\r\nContent-Length: 5", b"+5",
    b"-5", b"0x5", b"5 5", b"5;", b"5\x0b", "٥".encode(), b"5.0", b"5e0", b"five", b",5", b"5,", b"0005,",
    b"99999999999999999999", b"18446744073709551621", b"9223372036854775808", b"-0", b"+0", b"'5'", b'"5"', b"5\x00",
    b"5\r\ncontent-length: 5", b"5\r\nCONTENT-LENGTH: 0", b"\x0c5",
])
def test_content_length_in_disguise(proxy, length):
    refused(proxy, head(b"Content-Length: " + length) + b"hello", 400, MALFORMED)


def test_leading_zeros_are_sent_as_one_number(proxy):
    with proxy.client() as c:
        c.send(fill(proxy, head(b"Content-Length: 0000000000000000000000005", first=b"POST {U}/echo HTTP/1.1")) + b"hello")
        got = c.response().json()
    assert got["body"] == "hello"
    assert [v for n, v in got["headers"] if n.lower() == "content-length"] == ["5"]


BODIES = {
    "extension-lf": b"2;\nxx\r\n47\r\n0\r\n\r\nGET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n0\r\n\r\n",
    "size-lf": b"5\nhello\r\n0\r\n\r\n",
    "data-lf": b"5\r\nhello\n0\r\n\r\n",
    "data-unended": b"5\r\nhello0\r\n\r\n",
    "size-cr": b"5\rhello\r\n0\r\n\r\n",
    "size-plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "size-minus": b"-5\r\nhello\r\n0\r\n\r\n",
    "size-0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "size-0X": b"0X5\r\nhello\r\n0\r\n\r\n",
    "size-blank-before": b" 5\r\nhello\r\n0\r\n\r\n",
    "size-blank-after": b"5 \r\nhello\r\n0\r\n\r\n",
    "size-tab": b"5\t\r\nhello\r\n0\r\n\r\n",
    "size-empty": b"\r\nhello\r\n0\r\n\r\n",
    "size-semicolon": b";a=b\r\nhello\r\n0\r\n\r\n",
    "size-overflow": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "size-overflow-32": b"100000005;a" + b"\r\nhello\r\n0\r\n\r\n",
    "size-long": b"f" * 40 + b"\r\nhello\r\n0\r\n\r\n",
    "size-underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "size-letter": b"5g\r\nhello\r\n0\r\n\r\n",
    "size-nul": b"5\x00\r\nhello\r\n0\r\n\r\n",
    "extension-16k": b"5" + b";a" * 8192 + b"\r\nhello\r\n0\r\n\r\n",
    "extension-cr": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "extension-nul": b"5;a=\x00\r\nhello\r\n0\r\n\r\n",
    "extensions-many": b"1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n" * 1000 + b"0\r\n\r\n",
    "trailer-lf": b"5\r\nhello\r\n0\r\nX: 1\n\r\n",
    "trailer-fold": b"5\r\nhello\r\n0\r\nX: 1\r\n 2\r\n\r\n",
    "trailer-no-colon": b"5\r\nhello\r\n0\r\nX\r\n\r\n",
    "trailer-space": b"5\r\nhello\r\n0\r\nX : 1\r\n\r\n",
    "trailer-length": b"5\r\nhello\r\n0\r\nContent-Length: 1\r\n\r\n",
    "trailer-coding": b"5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "trailer-host": b"5\r\nhello\r\n0\r\nHost: evil.test\r\n\r\n",
    "trailer-huge": b"5\r\nhello\r\n0\r\nX: " + b"a" * 70000 + b"\r\n\r\n",
    "last-chunk-lf": b"5\r\nhello\r\n0\n\n",
}


@pytest.mark.parametrize("body", BODIES)
def test_bad_chunks(proxy, body):
    """Found after the head went on: the request must not look whole at the origin, nor go on as another."""
    since, seen = proxy.mark(), proxy.origin.mark()
    with proxy.client() as c:
        c.send_quietly(fill(proxy, head(b"Transfer-Encoding: chunked")) + BODIES[body])
        if body == "size-overflow-32":  # a size that is merely large: the end of the body never comes
            c.half_close()
        r = c.response()
        assert r.status == 400, r
        assert c.at_end()
    record = proxy.wait_records(1, since, id=r.json()["id"])[0]
    if record["event"] == "request.start":
        assert proxy.wait_record(since, event="request.end")["error"] == r.json()["reason"]
    else:
        assert record["event"] == "request.deny" and record["reason"] == MALFORMED
    got = proxy.origin.since(seen)
    assert b"evil" not in got
    assert not got.endswith(b"\r\n0\r\n\r\n"), "the origin saw a whole body"
    assert got.count(b"HTTP/1.1") <= 1


# ---- fields ----


@pytest.mark.parametrize("line", [
    b"Transfer-Encoding : chunked", b"Transfer-Encoding\t: chunked", b"X: 1\r\n Transfer-Encoding: chunked",
    b"X: 1\r\n\tfolded", b"X: 1\r\n \r\nY: 2", b"Content-Length:\r\n 5", b": x\r\nContent-Length: 5", b":", b"X\x00Y: 1",
    b"X: a\x00b", b"X: a\rb", b"X: a\r", b"X\r: a", b"Foo Bar: 1", b"no-colon-here", b"X: 1\nY: 2", b"X: 1\n", b"\nX: 1",
    b"X: 1\n\nGET / HTTP/1.1", b"X(a): 1", b"X,Y: 1", b"X/Y: 1", b"X@Y: 1", b"X[1]: 1", b'X"Y: 1', b"X{Y}: 1", b"X\\Y: 1",
    b"X=Y: 1", b"X;Y: 1", b"X?Y: 1", b"X<Y: 1", b"X\x7fY: 1", b"X\xc3\xa9: 1", b"\xef\xbb\xbfX: 1", b"X: a\x01b", b"X: a\x08b",
    b"X: a\x0bb", b"X: a\x0cb", b"X: a\x1bb", b"X: a\x7fb", b" X: 1", b"\tX: 1", b"\x0bX: 1", b"X: 1\r\n\x00", b"Host : {A}",
    b"Connection: Host", b"Connection: Content-Length", b"Connection: transfer-encoding", b"Connection: close, Authorization",
])
def test_malformed_fields(proxy, line):
    refused(proxy, head(line, b"Content-Length: 0"), 400, MALFORMED)


def test_first_field_line_starts_with_a_space(proxy):
    refused(proxy, b"GET {U}/ok/a HTTP/1.1\r\n Host: {A}\r\n\r\n", 400, MALFORMED)


@pytest.mark.parametrize("hosts", [
    b"", b"Host: {A}\r\nHost: {A}\r\n", b"Host: {A}\r\nhost: evil.test\r\n", b"HOST: evil.test\r\nHost: {A}\r\n",
    b"Host: \r\n", b"Host: {A}, evil.test\r\n", b"Host: {A} evil.test\r\n", b"Host: {A}/x\r\n", b"Host: u@{A}\r\n",
    b"Host: http://{A}\r\n", b"Host: {A}#\r\n", b"Host: {A}?\r\n", b"Host: {A}:80\r\n", b"Host: origin.test:\r\n",
    b"Host: origin.test:x\r\n", b"Host: origin.test:99999\r\n", b"Host: [::1\r\n", b"Host: 0x7f.1\r\n", b"Host: a..b\r\n",
    b"Host: \xc3\xa9.test\r\n", b"Host: {A}\\@evil.test\r\n", b"Host: ,{A}\r\n", b"Host: *\r\n",
])
def test_hosts_that_are_refused(proxy, hosts):
    refused(proxy, b"GET {U}/ok/a HTTP/1.1\r\n" + hosts + b"\r\n", (400, 421), ("malformed_request", "ambiguous_url", "name_mismatch"))


@pytest.mark.parametrize("host", [b"evil.test", b"origin.test", b"origin.test:81", b"other.test", b"127.0.0.1", b"www.origin.test"])
def test_a_host_that_disagrees(proxy, host):
    since, seen = proxy.mark(), proxy.origin.mark()
    r = proxy.ask(fill(proxy, b"GET {U}/ok/a HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"))
    check_refusal(r, 421, "name_mismatch")
    assert proxy.origin.since(seen) == b""
    proxy.wait_record(since)
    assert [x["event"] for x in proxy.records(since)] == ["request.deny"]


# ---- request lines ----


@pytest.mark.parametrize("line", [
    b"GET {U}/ok/a", b"GET {U}/ok/a ", b"GET  {U}/ok/a HTTP/1.1", b"GET {U}/ok/a  HTTP/1.1", b"GET\t{U}/ok/a HTTP/1.1",
    b"GET {U}/ok/a\tHTTP/1.1", b" GET {U}/ok/a HTTP/1.1", b"GET {U}/ok/a HTTP/1.1 ", b"GET {U}/ok/a HTTP/1.1 x",
    b"GET {U}/ok/a b HTTP/1.1", b"{U}/ok/a HTTP/1.1", b"GET {U}/ok/a http/1.1", b"GET {U}/ok/a HTTP/1.01",
    b"GET {U}/ok/a HTTP/01.1", b"GET {U}/ok/a HTTP/1,1", b"GET {U}/ok/a HTTP/11", b"GET {U}/ok/a HTTP/1.", b"GET {U}/ok/a HTTP/1.1x",
    b"GET {U}/ok/a HTTP/0.9", b"GET {U}/ok/a HTP/1.1", b"GET {U}/ok/a HTTP /1.1", b"G\x00T {U}/ok/a HTTP/1.1",
    b"G@T {U}/ok/a HTTP/1.1", b"GET {U}/ok/\x00 HTTP/1.1", b"GET {U}/ok/a\x0bb HTTP/1.1", b"GET {U}/ok/a\rb HTTP/1.1",
    b"(GET) {U}/ok/a HTTP/1.1", b"\"GET\" {U}/ok/a HTTP/1.1", b"GET {U}/ok/a HTTP/1.1\nX: 1", b"\x16\x03\x01\x02", b"SSH-2.0-x",
    b"GET", b"", b"EHLO x", b"M" * 40 + b" {U}/ok/a HTTP/1.1",
])
def test_malformed_request_lines(proxy, line):
    if line == b"":
        refused(proxy, b"\r\n" * 10 + get("http://origin.test/"), 400, MALFORMED)
    else:
        refused(proxy, line + b"\r\nHost: {A}\r\n\r\n", 400, (MALFORMED, "ambiguous_url"))


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/3.0", b"HTTP/9.9", b"HTTP/2.1"])
def test_versions(proxy, version):
    refused(proxy, b"GET {U}/ok/a " + version + b"\r\nHost: {A}\r\n\r\n", (400, 505))


@pytest.mark.parametrize("version", [b"HTTP/1.2", b"HTTP/1.9"])
def test_higher_minor_versions(proxy, version):
    """May be read as 1.1 (RFC 9110 section 2.5) or refused; not passed on."""
    seen = proxy.origin.mark()
    r = proxy.ask(fill(proxy, b"GET {U}/ok/a " + version + b"\r\nHost: {A}\r\n\r\n"))
    assert r.status in (200, 400, 505)
    assert version not in proxy.origin.since(seen)


@pytest.mark.parametrize("line", [b"GET {U}/ok/a\r\n", b"GET {U}/ok/a\r\n\r\n", b"GET /\n"])
def test_http_0_9(proxy, line):
    refused(proxy, line, 400, (MALFORMED, "client_closed"), end=True)


def test_http_2_preface(proxy):
    refused(proxy, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", (400, 505))


def test_client_hello_on_the_plain_port(proxy):
    refused(proxy, bytes.fromhex("1603010200010001fc0303") + b"a" * 500 + b"\r\n\r\n", 400, MALFORMED)


def test_bare_lf_ends_nothing(proxy):
    refused(proxy, b"GET {U}/ok/a HTTP/1.1\nHost: {A}\n\n", 400, MALFORMED)


def test_a_few_blank_lines_before_a_request(proxy):
    assert proxy.ask(fill(proxy, b"\r\n\r\nGET {U}/ok/a HTTP/1.1\r\nHost: {A}\r\n\r\n")).status == 200


# ---- sizes ----


@pytest.mark.parametrize("message, status", [
    (b"a" * 70000 + b": 1", 431), (b"a" * 300 + b": 1", 431), (b"X: " + b"a" * (1 << 20), 431),
    (b"\r\n".join([b"a: b"] * 2000), 431), (b"\r\n".join([b"a: b"] * 257), 431), (b"X: " + b"a" * 66000, 431),
])
def test_large_heads(proxy, message, status):
    record = refused(proxy, head(message), status, "head_too_large")
    assert len(str(record)) < 20000


def test_large_target(proxy):
    record = refused(proxy, b"GET {U}/ok/" + b"a" * 20480 + b" HTTP/1.1\r\nHost: {A}\r\n\r\n", 414, "target_too_long")
    assert len(str(record)) < 20000 and record["path"].endswith("[cut]")


def test_a_target_that_never_ends(proxy):
    refused(proxy, b"GET {U}/ok/" + b"a" * 200000, (414, 431))


def test_large_but_fine(proxy):
    with proxy.client() as c:
        c.send(fill(proxy, head(b"X: " + b"a" * 60000, first=b"GET {U}/echo HTTP/1.1")))
        r = c.response()
    assert r.status == 200 and ["X", "a" * 60000] in r.json()["headers"]
    r = proxy.ask(fill(proxy, head(*[b"f%d: v" % i for i in range(200)], first=b"GET {U}/echo HTTP/1.1")))
    assert len(r.json()["headers"]) == 201


# ---- CONNECT ----


@pytest.mark.parametrize("target", [
    b"origin.test", b"origin.test:", b"http://origin.test:443/", b"{A}/x", b":443", b"origin.test:0", b"origin.test:65536",
    b"origin.test:+443", b"origin.test:4 43", b"origin.test:443:443", b"u@origin.test:443", b"/", b"*", b"origin.test:443?x",
    b"origin.test:443#x", b"[::1]443", b"::1:443", b"origin.test:0x1bb", b"evil.test\x00.origin.test:443",
    b"evil.test%00.origin.test:443", b"evil.test\t.origin.test:443", b"evil.test\x7f.origin.test:443",
    b"evil.test%0d%0a.origin.test:443", b"evil%2eorigin.test:443", b"a..origin.test:443", b"a" * 64 + b".origin.test:443",
    b"a." * 130 + b"test:443", b"\x1b[2Korigin.test:443",
])
def test_connect_targets_that_are_refused(proxy, target):
    refused(proxy, b"CONNECT " + target + b" HTTP/1.1\r\nHost: origin.test:443\r\n\r\n", 400, (MALFORMED, "ambiguous_url"))


@pytest.mark.parametrize("field, body", [
    (b"Content-Length: 40", b"a" * 40), (b"Transfer-Encoding: chunked", b"0\r\n\r\n"), (b"Content-Length: 5\r\nTransfer-Encoding: chunked", b""),
    (b"Content-Length: 0\r\nContent-Length: 0", b""), (b"Content-Length: x", b""),
])
def test_connect_with_a_body(proxy, field, body):
    refused(proxy, b"CONNECT {A} HTTP/1.1\r\nHost: {A}\r\n" + field + b"\r\n\r\n" + body, 400, MALFORMED)


def test_bytes_behind_a_refused_connect(proxy):
    since, seen = proxy.mark(), proxy.origin.mark()
    with proxy.client() as c:
        c.send(b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n" + fill(proxy, b"GET {U}/ok/a HTTP/1.1\r\nHost: {A}\r\n\r\n"))
        check_refusal(c.response(), 403, "no_rule")
        assert c.at_end()
    assert proxy.origin.since(seen) == b""
    proxy.wait_record(since)
    assert [r["event"] for r in proxy.records(since)] == ["tunnel.deny"]


def test_connect_with_another_host_field(proxy):
    refused(proxy, b"CONNECT {A} HTTP/1.1\r\nHost: evil.test\r\n\r\n", (400, 421))


@pytest.mark.parametrize("message, statuses", [
    (b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", (421,)),
    (b"GET http://evil.test/ HTTP/1.1\r\nHost: {A}\r\n\r\n", (421, 400)),
    (b"GET /ok/a HTTP/1.1\r\nHost: evil.test\r\n\r\n", (421,)),
    (b"GET https://{A}/ok/a HTTP/1.1\r\nHost: {A}\r\n\r\n", (421, 400)),
    (b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", (400, 421, 403)),
    (b"GET * HTTP/1.1\r\nHost: {A}\r\n\r\n", (400,)),
    (b"OPTIONS * HTTP/1.1\r\nHost: {A}\r\n\r\n", (400,)),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505)),
    (b"GET /ok/a HTTP/1.1\r\n\r\n", (400,)),
    (b"GET //evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n", (421,)),
])
def test_inside_a_tunnel(proxy, message, statuses):
    """Cleartext in CONNECT: the same strictness, and the tunnel's name is the only one."""
    since, seen = proxy.mark(), proxy.origin.mark()
    with proxy.client() as c:
        assert c.connect(f"origin.test:{proxy.origin.plain}").status == 200
        r = c.ask(fill(proxy, message))
        check_refusal(r, statuses)
    assert proxy.origin.since(seen) == b""
    proxy.wait_record(since)
    assert len(proxy.records(since)) == 1


# ---- answers ----


@pytest.mark.parametrize("kind", bad.BAD_HEADS)
def test_bad_answers(proxy, kind):
    since = proxy.mark()
    with proxy.client() as c:
        r = c.ask(get(f"http://origin.test:{proxy.origin.plain}/bad/{kind}"))
    check_refusal(r, 502, "upstream_closed" if kind in ("nothing", "half-a-head") else "upstream_malformed")
    end = proxy.wait_record(since, event="request.end")
    assert end["error"] == r.json()["reason"] and end["status"] == 502 and end["error_detail"]


@pytest.mark.parametrize("kind", bad.BAD_BODIES)
@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_bad_bodies_never_look_whole(proxy, kind, version):
    since = proxy.mark()
    with proxy.client() as c:
        c.send(get(f"http://origin.test:{proxy.origin.plain}/bad/{kind}", version=version))
        try:
            r = c.response_head()
        except AssertionError:
            r = None  # reset before the head arrived: that is no whole answer either
        if r and r.status == 502:
            c.response_body(r)
        elif r:
            assert r.status == 200
            if version == "1.1" or r.get("content-length"):
                c.response_body(r)
                assert not r.whole
            else:  # RFC 9112 section 8: ended by close, so that only a reset tells
                with pytest.raises(ConnectionResetError):
                    while c.sock.recv(65536):
                        pass
    end = proxy.wait_record(since, event="request.end")
    assert end["error"] in ("upstream_malformed", "upstream_closed"), end


@pytest.mark.parametrize("kind", bad.ODD)
def test_odd_answers_that_are_right(proxy, kind):
    r = proxy.get(f"/odd/{kind}")
    assert (r.status, r.body, r.whole) == (200, bad.ODD[kind][1], True)


@pytest.mark.parametrize("kind", bad.NO_BODY)
def test_answers_without_a_body(proxy, kind):
    method = "HEAD" if kind.startswith("head") else "GET"
    url = f"http://origin.test:{proxy.origin.plain}"
    with proxy.client() as c:
        c.send(get(f"{url}/nobody/{kind}", method=method))
        r = c.response(method)
        assert r.status in (200, 204, 304)
        if r.status == 204:
            assert r.get("content-length") is None and r.get("transfer-encoding") is None
        if kind in ("304-length", "head-length"):
            assert r.get("content-length") == ("500" if r.status == 304 else "1234")
        r = c.ask(get(f"{url}/ok/next"))
        assert (r.status, r.body) == (200, b"ok /ok/next\n")


@pytest.mark.parametrize("kind", bad.EXTRA)
def test_bytes_behind_an_answer_are_no_answer(proxy, kind):
    url = f"http://origin.test:{proxy.origin.plain}"
    with proxy.client() as c:
        assert c.ask(get(f"{url}/extra/{kind}")).body == b"ok"
        for _ in range(3):
            assert c.ask(get(f"{url}/ok/next")).body == b"ok /ok/next\n"


@pytest.mark.parametrize("status", [200, 201, 206, 301, 401, 404, 429, 451, 500, 503, 599, 299])
def test_statuses_are_passed_on(proxy, status):
    r = proxy.get(f"/status/{status}")
    assert (r.status, r.reason) == (status, "Fine")
