"""The forward proxy: absolute-form requests, what is sent on, what is refused."""

import json

import pytest

from stilelib import allow, check_refusal, get


def url(proxy, path, host="origin.test"):
    return f"http://{host}:{proxy.origin.plain}{path}"


def echo(proxy, path="/echo", more="", method="GET", body=b""):
    with proxy.client() as c:
        c.send(get(url(proxy, path), more=more, method=method) + body)
        return c.response(method).json()


def test_allowed(proxy):
    since = proxy.mark()
    r = proxy.get("/ok/a?b=c")
    assert (r.status, r.body) == (200, b"ok /ok/a\n")
    start, end = proxy.wait_records(2, since)
    assert (start["event"], end["event"]) == ("request.start", "request.end")
    assert start["id"] == end["id"]
    assert start["decision"] == "allow" and start["rule_at"].startswith(str(proxy.config) + ":")
    for record in (start, end):
        assert (record["method"], record["scheme"], record["host"]) == ("GET", "http", "origin.test")
        assert (record["port"], record["path"], record["query"]) == (proxy.origin.plain, "/ok/a", "b=c")
    assert (end["status"], end["bytes_in"], end["bytes_out"]) == (200, 9, 0)
    assert end["upstream"] == f"127.0.0.1:{proxy.origin.plain}"
    assert end["ms"]["total"] >= end["ms"]["first_byte"] >= 0


def test_only_the_canonical_form_is_sent(proxy):
    got = echo(proxy, "/echo/%7euser/%2f%3d/a%20b?x=%2F&y=a+b")
    assert got["target"] == "/echo/~user/%2F%3D/a%20b?x=%2F&y=a+b"
    assert ["Host", f"origin.test:{proxy.origin.plain}"] in got["headers"]


@pytest.mark.parametrize("sent, received", [
    ("/echo/@scope%2Fname", "/echo/@scope%2Fname"),
    ("/echo/a%2fb%2Fc", "/echo/a%2Fb%2Fc"),
    ("/echo/100%25", "/echo/100%25"),
    ("/echo/a%252Fb", "/echo/a%252Fb"),
    ("/echo/;v=1;w", "/echo/;v=1;w"),
    ("/echo/x?", "/echo/x?"),
    ("/echo/x??a", "/echo/x??a"),
    ("/echo//a///b", "/echo//a///b"),
    ("/echo/%41%2D%5f", "/echo/A-_"),
    ("/echo/%e2%82%ac", "/echo/%E2%82%AC"),
    ("/echo/\xc3\xa9", "/echo/%C3%A9"),
    ("/echo/:@!$&'()*+,;=", "/echo/:@!$&'()*+,;="),
])
def test_spellings_of_a_path(proxy, sent, received):
    assert echo(proxy, sent)["target"] == received


def test_an_empty_path_is_a_slash(proxy):
    since = proxy.mark()
    proxy.get("")
    assert proxy.wait_record(since, event="request.end", path="/")


def test_host_in_other_spellings(proxy):
    for host in ("ORIGIN.test", "origin.test.", "Origin.Test."):
        with proxy.client() as c:
            r = c.ask(get(url(proxy, "/echo", host)))
            assert ["Host", f"origin.test:{proxy.origin.plain}"] in r.json()["headers"]


def test_fields_of_this_hop_are_removed(proxy):
    got = echo(proxy, more="Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: gzip, trailers\r\n"
                           "Proxy-Authorization: Basic eDp5\r\nProxy-Connection: keep-alive\r\nProxy-Foo: 1\r\n"
                           "X-Kept: 1\r\n")
    names = [n.lower() for n, _ in got["headers"]]
    assert "x-kept" in names
    assert not {"x-hop", "keep-alive", "via", "forwarded", "x-forwarded-for"} & set(names)
    assert not [n for n in names if n.startswith("proxy-")]
    # TE is said anew, and of it only what every recipient of trailers may say (RFC 9110 section 10.1.4).
    assert [v for n, v in got["headers"] if n.lower() == "te"] in ([], ["trailers"])
    assert [v for n, v in got["headers"] if n.lower() == "connection"] in ([], ["TE"])


def test_fields_of_an_answer_s_hop_are_removed(proxy):
    path = proxy.origin.script("hop", ["send", "HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\n"
                                       "Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nProxy-Status: forged\r\n"
                                       "X-Kept: 1\r\nContent-Length: 0\r\n\r\n"])
    r = proxy.get(path)
    assert r.get("x-kept") == "1"
    for name in ("x-hop", "keep-alive", "proxy-authenticate", "proxy-status", "via"):
        assert r.get(name) is None, r


def test_nothing_tells_of_the_sandbox(proxy):
    got = echo(proxy)
    assert sorted(n.lower() for n, _ in got["headers"]) == ["host"]


def test_no_rule(proxy):
    since, seen = proxy.mark(), proxy.origin.mark()
    r = proxy.get("/ok/a", host="evil.test")
    check_refusal(r, 403, "no_rule")
    assert f"GET http://evil.test:{proxy.origin.plain}/ok/a" in r.json()["detail"]
    record = proxy.wait_record(since)
    assert (record["event"], record["reason"], record["host"]) == ("request.deny", "no_rule", "evil.test")
    assert record["id"] == r.json()["id"]
    assert "rule_at" not in record and "upstream" not in record
    assert proxy.origin.since(seen) == b""


def test_denied_by_a_rule(proxy):
    since = proxy.mark()
    check_refusal(proxy.get("/no/a"), 403, "denied_by_rule")
    record = proxy.wait_record(since)
    assert record["event"] == "request.deny" and record["rule_at"].endswith(":10")


def test_a_refusal_says_nothing_of_the_list(proxy):
    r = proxy.get("/ok/a", host="evil.test")
    assert "origin.test" not in str(r.fields) + r.body.decode()


@pytest.mark.parametrize("path", ["//no/x", "/no%2Fx", "/%6eo/x", "/no;a/x", "/%6E%6F//x", "/no%252Fx"])
def test_a_deny_rule_sees_through_spellings(proxy, path):
    seen = proxy.origin.mark()
    check_refusal(proxy.get(path), (403, 400))
    assert proxy.origin.since(seen) == b""


@pytest.mark.parametrize("path", [
    "/ok/../no/x", "/ok/%2e%2e/no", "/ok/.%2E/no", "/ok/./a", "/ok/a/..", "/ok/a/.", "/ok\\no\\x", "/ok/%5cno",
    "/ok/%00", "/ok/%zz", "/ok/%", "/ok/%1", "/ok/a#b", "/ok/%0d%0a", "/ok/%1b", "/ok/%7f", "/ok/\x7f",
    "/ok/..;/no", "/ok/%2e", "/ok/..%2fno", "/ok/%2e%2e%2fno",
])
def test_ambiguous_urls(proxy, path):
    since, seen = proxy.mark(), proxy.origin.mark()
    check_refusal(proxy.get(path), 400, ("ambiguous_url", "malformed_request"))
    assert proxy.wait_record(since)["event"] == "request.deny"
    assert len(proxy.records(since)) == 1
    assert proxy.origin.since(seen) == b""


def test_case_of_a_path_matters(stile):
    s = stile(rules=[allow("http://origin.test:*/ok/**")])
    assert s.get("/ok/a").status == 200
    check_refusal(s.get("/OK/a"), 403, "no_rule")
    check_refusal(s.get("/oK/a"), 403, "no_rule")


@pytest.mark.parametrize("host", ["evilorigin.test", "origin.test.evil.test", "a.origin.test", "xwild.test", "wild.test",
                                  "test", "origin.tes", "origin-test"])
def test_names_are_matched_by_labels(stile_names, host):
    check_refusal(stile_names.ask(get(f"http://{host}/")), 403, "no_rule")


@pytest.mark.parametrize("host", ["origin.test", "a.wild.test", "a.b.wild.test", "_x.wild.test"])
def test_names_that_match(stile_names, host):
    with stile_names.client() as c:
        r = c.ask(get(f"http://{host}:{stile_names.origin.plain}/ok/a"))
        assert r.status == 200, r


@pytest.mark.parametrize("host", [".wild.test", "*.wild.test", "a..wild.test", "a" * 64 + ".wild.test",
                                  "-.wild.test:80:80", "a b.wild.test", "a%2ewild.test", "u@a.wild.test",
                                  "a.wild.test:0", "a.wild.test:65536", "a.wild.test:x", "a.wild.test:",
                                  "[::1", "[::1]x", "[fe80::1%25eth0]", ("a." * 130) + "wild.test"])
def test_hosts_that_are_none(stile_names, host):
    r = stile_names.ask(get(f"http://{host}/", host="x.wild.test"))
    check_refusal(r, (400, 421, 403) if host.endswith(":") else 400)


@pytest.fixture(scope="module")
def stile_names(origin, tmp_path_factory):
    from stilelib import Stile
    s = Stile(tmp_path_factory.mktemp("names"), origin,
              rules=[allow("http://origin.test:*", "http://*.wild.test:*")],
              upstream={"hosts": {n: "127.0.0.1" for n in ("origin.test", "a.wild.test", "a.b.wild.test", "_x.wild.test")}})
    yield s
    s.finish()


def test_methods_of_a_rule(stile):
    s = stile(rules=[allow("http://origin.test:*", methods=["GET", "PUT"])])
    assert s.get("/ok/a").status == 200
    assert s.get("/ok/a", method="HEAD").status == 200
    assert s.get("/ok/a", method="PUT", more="Content-Length: 0\r\n").status == 200
    for method in ("POST", "get", "Get", "DELETE", "PATCH", "FOO", "OPTIONS"):
        check_refusal(s.get("/ok/a", method=method), 403, "no_rule")


@pytest.mark.parametrize("path, tls", [("/ok/a", False), ("/ok/a", True), ("/no/a", False)])
def test_trace_is_refused(proxy, path, tls):
    seen = proxy.origin.mark()
    r = proxy.tls_get(path, method="TRACE") if tls else proxy.get(path, method="TRACE")
    check_refusal(r, 405)
    assert proxy.origin.since(seen) == b""


def test_lower_case_trace_is_another_method(proxy):
    assert proxy.get("/ok/a", method="trace").status == 200


@pytest.mark.parametrize("request_line", [
    "GET https://origin.test/ HTTP/1.1", "GET ftp://origin.test/ HTTP/1.1", "GET tcp://origin.test:22/ HTTP/1.1",
    "GET ws://origin.test/ HTTP/1.1", "GET file:///etc/passwd HTTP/1.1", "GET /ok/a HTTP/1.1", "GET * HTTP/1.1",
    "OPTIONS * HTTP/1.1", "GET origin.test:80 HTTP/1.1", "GET http:/origin.test/ HTTP/1.1", "GET http:origin.test HTTP/1.1",
    "GET //origin.test/ HTTP/1.1", "GET http:// HTTP/1.1", "GET http:///ok HTTP/1.1", "GET http://u@origin.test/ HTTP/1.1",
    "GET http://u:p@origin.test/ HTTP/1.1", "GET http://origin.test\\@evil.test/ HTTP/1.1",
    "GET http://origin.test#@evil.test/ HTTP/1.1",
])
def test_forms_of_a_target(proxy, request_line):
    seen = proxy.origin.mark()
    r = proxy.ask(f"{request_line}\r\nHost: origin.test\r\n\r\n".encode())
    check_refusal(r, 400)
    assert proxy.origin.since(seen) == b""


def test_keep_alive_uses_one_upstream_connection(proxy):
    with proxy.client() as c:
        seen = {c.ask(get(url(proxy, "/echo"))).json()["connection"] for _ in range(5)}
    assert len(seen) == 1


def test_a_refused_request_without_a_body_keeps_the_connection(proxy):
    with proxy.client() as c:
        check_refusal(c.ask(get(url(proxy, "/no/a"))), 403)
        assert c.ask(get(url(proxy, "/ok/a"))).status == 200


def test_a_refused_body_is_never_read_as_a_request(proxy):
    seen, since = proxy.origin.mark(), proxy.mark()
    inner = get(url(proxy, "/ok/smuggled"))
    with proxy.client() as c:
        c.send(get(url(proxy, "/no/a"), method="POST", more=f"Content-Length: {len(inner)}\r\n") + inner)
        check_refusal(c.response(), 403)
        assert c.at_end()
    assert proxy.origin.since(seen) == b""
    assert len(proxy.records(since)) == 1


def test_connection_close(proxy):
    with proxy.client() as c:
        r = c.ask(get(url(proxy, "/ok/a"), more="Connection: close\r\n"))
        assert r.status == 200 and r.get("connection") == "close"
        assert c.at_end()


def test_http_1_0(proxy):
    with proxy.client() as c:
        r = c.ask(get(url(proxy, "/chunked?n=1000"), version="1.0"))
        assert r.status == 200 and r.get("transfer-encoding") is None
        assert len(r.body) == 1000
        assert c.at_end()


def test_json_or_text(proxy):
    assert proxy.get("/no/a").get("content-type").startswith("application/json")
    r = proxy.get("/no/a", more="Accept: text/plain\r\n")
    assert r.get("content-type").startswith("text/plain")
    assert b"denied_by_rule" in r.body


def test_head_refused_has_no_body(proxy):
    with proxy.client() as c:
        c.send(get(url(proxy, "/no/a"), method="HEAD"))
        assert c.response("HEAD").status == 403
        assert c.ask(get(url(proxy, "/ok/a"))).status == 200


def test_redirects_are_not_followed(proxy):
    r = proxy.get(f"/redirect?to=http://evil.test:{proxy.origin.plain}/blob")
    assert (r.status, r.get("location")) == (302, f"http://evil.test:{proxy.origin.plain}/blob")


def test_cleartext_https_is_refused(proxy):
    check_refusal(proxy.ask(get("https://origin.test/")), 400)


def test_nothing_listens_upstream(proxy):
    import socket
    with socket.socket() as s:  # bound, not listening: nobody else can take the port
        s.bind(("127.0.0.1", 0))
        since = proxy.mark()
        r = proxy.ask(get(f"http://origin.test:{s.getsockname()[1]}/"))
    check_refusal(r, 502, "connect_refused")
    end = proxy.wait_record(since, event="request.end")
    assert (end["error"], end["status"]) == ("connect_refused", 502)


def test_a_name_that_does_not_resolve(stile):
    s = stile(rules=[{"allow": "http://nowhere.test"}], upstream={"dns": ["127.0.0.1:1"]}, limits={"dns": "300ms"})
    r = s.ask(get("http://nowhere.test/"))
    check_refusal(r, (502, 504), ("dns_failed", "dns_timeout"))
    assert s.wait_record(event="request.deny")["host"] == "nowhere.test"


@pytest.mark.parametrize("upgrade", ["websocket", "foo"])
def test_upgrades_are_refused_and_nothing_behind_them_passes(proxy, upgrade):
    seen = proxy.origin.mark()
    with proxy.client() as c:
        c.send(get(url(proxy, "/ok/ws"), more=f"Connection: Upgrade\r\nUpgrade: {upgrade}\r\n"
                   "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")
               + get(url(proxy, "/secret", "evil.test")))
        first = c.response()
        assert first.status in (200, 403)
        if first.get("connection") != "close":
            check_refusal(c.response(), 403, "no_rule")
    assert b"evil" not in proxy.origin.since(seen)


def test_any_bytes_give_valid_json_in_the_log(proxy):
    since = proxy.mark()
    for path in ("/a\x01b", "/a\"b", "/a\x1b[2K", "/a\xff\xfe", "/a\x9b", "/a\u2028".encode().decode("latin-1")):
        assert proxy.get(path).status in (200, 400, 404)
    proxy.wait_records(6, since)
    for line in proxy.log_path.read_bytes().split(b"\n")[since:-1]:
        json.loads(line)
        assert all(b >= 0x20 and b != 0x7f for b in line)
