"""Credentials: what the origin gets of them, that nobody else gets any, and what becomes of the client's own."""

import base64
import json
import os
import pathlib
import secrets
import subprocess
import urllib.parse

import pytest

import canary as canarylib
from stilelib import (BIN, SLOWER, TIMEOUT, Peer, Stile, allow, check_refusal, chunked, clean_env, get, put, put_over,
                      wait_for)

NOTICED = 2 * SLOWER  # seconds; half a second is what is promised
UNAVAILABLE = "credential_unavailable"


def run(*args, cwd, **env) -> subprocess.CompletedProcess:
    return subprocess.run([BIN, *map(str, args)], cwd=cwd, env=clean_env(**env), text=True, capture_output=True,
                          timeout=TIMEOUT, stdin=subprocess.DEVNULL)


def rule(name: str, credential: str | None = None, path: str = "/echo", **more) -> dict:
    """https://origin.test/PATH/NAME/** with that credential."""
    return allow(f"https://origin.test:*{path}/{name}/**", **({"credential": credential} if credential else {}), **more)


class Safe:
    """A stile with one credential of each kind; each has a path /echo/NAME/."""

    AS = {"bearer": "bearer", "user": {"basic": "deploy"}, "pair": "basic", "header": {"header": "X-Api-Key"},
          "query": {"query": "api_key"}, "fromenv": "bearer"}

    def __init__(self, origin, folder: pathlib.Path):
        self.canary = {n: canarylib.made_up(f"canary-{n}") for n in self.AS}
        self.canary["pair"] = "robot:" + self.canary["pair"]
        self.credentials = {n: {"from": {"file": put(folder / n, self.canary[n] + "\n")}, "as": how}
                            for n, how in self.AS.items()}
        self.credentials["fromenv"]["from"] = {"env": "STILE_TEST_TOKEN"}
        self.env = {"STILE_TEST_TOKEN": self.canary["fromenv"]}
        self.stile = Stile(folder / "stile", origin, credentials=self.credentials, env=self.env, rules=[
            *(rule(n, n) for n in self.AS),
            allow("https://origin.test:*/redirect", credential="bearer"),
            allow("https://origin.test:*/reset", credential="bearer"),
            rule("plain"), allow("https://evil.test:*/echo/**"), allow("http://origin.test:*/echo/**"),
            {"deny": "https://origin.test:*/echo/bearer/no/**"}])

    def echo(self, path: str, more: str = "", method: str = "GET", host: str = "origin.test") -> dict:
        r = self.stile.tls_get(path, more=more, method=method, host=host)
        assert r.status == 200, r
        return r.json()

    def no_secret_in(self, *texts: str | bytes) -> None:
        for text in texts:
            data = text.encode() if isinstance(text, str) else text
            for value in self.canary.values():
                value = value.split(":")[-1].encode()
                for form in (value, base64.b64encode(value)[4:-4]):
                    assert form not in data, data


@pytest.fixture(scope="module")
def safe(origin, tmp_path_factory):
    s = Safe(origin, tmp_path_factory.mktemp("credentials"))
    yield s
    s.stile.finish()
    s.no_secret_in(s.stile.stderr, s.stile.log_path.read_bytes())


def own(path: str) -> str:
    """A path of its own: the end of a request of the test before may be recorded late."""
    return f"{path}/{secrets.token_hex(4)}"


def field(got: dict, name: str) -> list[str]:
    return [v for n, v in got["headers"] if n.lower() == name.lower()]


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


# ---- as the origin sees it ----


def test_bearer(safe):
    path = own("/echo/bearer")
    assert field(safe.echo(path), "authorization") == ["Bearer " + safe.canary["bearer"]]
    end = safe.stile.wait_record(event="request.end", path=path)
    assert end["credential"] == "bearer" and "credential_stripped" not in end


def test_from_the_environment(safe):
    assert field(safe.echo("/echo/fromenv/a"), "authorization") == ["Bearer " + safe.canary["fromenv"]]


def test_basic_with_a_user(safe):
    assert field(safe.echo("/echo/user/a"), "authorization") == [basic("deploy:" + safe.canary["user"])]


def test_basic_pair(safe):
    assert field(safe.echo("/echo/pair/a"), "authorization") == [basic(safe.canary["pair"])]


def test_header(safe):
    got = safe.echo("/echo/header/a")
    assert field(got, "x-api-key") == [safe.canary["header"]] and field(got, "authorization") == []


@pytest.mark.parametrize("query, sent", [("", "?"), ("?", "?"), ("?a=b%20c&d", "?a=b%20c&d&"), ("?x=1&", "?x=1&")])
def test_query(safe, query, sent):
    path = own("/echo/query")
    got = safe.echo(path + query)
    assert got["target"].replace("&&", "&") == f"{path}{sent}api_key={safe.canary['query']}"
    end = safe.stile.wait_record(event="request.end", path=path)
    assert end["credential"] == "query" and safe.canary["query"] not in str(end)


def test_a_value_is_escaped_in_a_query(origin, stile, tmp_path):
    value = "a&b=c d%2F+#\u00e9/" + secrets.token_hex(4)
    s = stile(rules=[rule("q", "q")], credentials={
        "q": {"from": {"file": put(tmp_path / "q", value)}, "as": {"query": "token"}}})
    target = s.tls_get("/echo/q/a?x=1").json()["target"]
    query = target.partition("?")[2]
    assert urllib.parse.unquote(query.partition("&token=")[2]) == value
    assert urllib.parse.parse_qsl(query.replace("+", "%2B"))[0] == ("x", "1") and query.count("&") == 1


@pytest.mark.parametrize("method", ["POST", "HEAD", "OPTIONS", "DELETE"])
def test_with_every_method(safe, method):
    seen = safe.stile.origin.mark()
    path = f"/echo/bearer/m-{method}"
    r = safe.stile.tls_get(path, method=method, more="Content-Length: 0\r\n" if method == "POST" else "")
    assert r.status == 200
    wait_for(lambda: path.encode() in safe.stile.origin.since(seen))
    assert safe.canary["bearer"].encode() in safe.stile.origin.since(seen)


def test_trace_hands_nothing_back(safe):
    seen = safe.stile.origin.mark()
    check_refusal(safe.stile.tls_get("/echo/bearer/trace", method="TRACE"), 405)
    assert b"/echo/bearer/trace" not in safe.stile.origin.since(seen)


def test_each_request_of_a_connection_by_its_own_rule(safe):
    port = safe.stile.origin.tls
    with safe.stile.tunnel() as c:
        for name in ("bearer", "plain", "header", "plain", "bearer"):
            got = c.ask(f"GET /echo/{name}/k HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode()).json()
            expected = {"bearer": ["Bearer " + safe.canary["bearer"]]}.get(name, [])
            assert field(got, "authorization") == expected
            assert field(got, "x-api-key") == ([safe.canary["header"]] if name == "header" else [])


# ---- what the client brought ----

ATTACKER = "attacker-" + secrets.token_hex(8)


@pytest.mark.parametrize("name", [
    "Authorization", "authorization", "AUTHORIZATION", "Proxy-Authorization", "Cookie", "Cookie2", "X-Api-Key", "Api-Key",
    "api_key", "X_Api_Key", "X-Auth-Token", "X-Amz-Security-Token", "X-Goog-Api-Key", "Private-Token", "Job-Token",
    "X-Vault-Token", "X-GitHub-Token", "DPoP", "Signature", "X-Forwarded-User", "Remote-User", "X-Client-Cert",
    "Impersonate-User", "Sudo", "X-Authorization",
])
def test_fields_of_the_client_are_removed(safe, name):
    since, path = safe.stile.mark(), own("/echo/bearer")
    got = safe.echo(path, f"{name}: {ATTACKER}\r\nX-Kept: 1\r\n")
    assert ATTACKER not in str(got) and field(got, "x-kept") == ["1"]
    assert field(got, "authorization") == ["Bearer " + safe.canary["bearer"]]
    end = safe.stile.wait_record(since, event="request.end", path=path)
    assert ATTACKER not in str(safe.stile.records(since))
    if name != "Proxy-Authorization":  # of this hop: never sent on, credential or not
        assert end["credential_stripped"] is True
        assert safe.stile.wait_record(since, event="request.start", path=path)["credential_stripped"] is True


@pytest.mark.parametrize("key", ["api_key", "Api-Key", "apikey", "api%5fkey", "%61pikey[]", "key", "token", "access_token",
                                 "private_token", "sig", "X-Amz-Signature", "password", "client_secret"])
def test_query_keys_of_the_client_are_removed(safe, key):
    since, path = safe.stile.mark(), own("/echo/bearer")
    got = safe.echo(f"{path}?a=1&{key}={ATTACKER}&b=2")
    assert got["target"] == path + "?a=1&b=2"
    end = safe.stile.wait_record(since, event="request.end", path=path)
    assert end["credential_stripped"] is True and ATTACKER not in str(safe.stile.records(since))


def test_all_of_them_at_once(safe):
    """As an upload to another account would look."""
    since = safe.stile.mark()
    body = "file"
    with safe.stile.tunnel() as c:
        got = c.ask(f"POST /echo/header/v1/files?api_key={ATTACKER}&purpose=x HTTP/1.1\r\n"
                    f"Host: origin.test:{safe.stile.origin.tls}\r\nx-api-key: {ATTACKER}\r\nX-Api-Key: {ATTACKER}2\r\n"
                    f"Authorization: Bearer {ATTACKER}\r\nCookie: session={ATTACKER}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}".encode()).json()
    assert ATTACKER not in str(got) and got["body"] == body
    assert field(got, "x-api-key") == [safe.canary["header"]]
    assert got["target"] == "/echo/header/v1/files?purpose=x"
    end = safe.stile.wait_record(since, event="request.end", path="/echo/header/v1/files")
    assert end["credential_stripped"] is True and ATTACKER not in str(end)


def test_a_trailer_cannot_bring_it_back(safe):
    with safe.stile.tunnel() as c:
        got = c.ask(f"POST /echo/bearer/t HTTP/1.1\r\nHost: origin.test:{safe.stile.origin.tls}\r\n"
                    f"Transfer-Encoding: chunked\r\n\r\n".encode()
                    + chunked(b"x", trailers=f"Authorization: {ATTACKER}\r\nX-Sum: 1\r\n".encode())).json()
    assert ATTACKER not in str(got) and got["body"] == "x"
    assert field(got, "authorization") == ["Bearer " + safe.canary["bearer"]]


def test_what_only_looks_like_a_credential_stays(safe):
    since = safe.stile.mark()
    got = safe.echo("/echo/bearer/keep?monkey=1&tokens=2&keyword=3", "Idempotency-Key: i\r\nX-Keyboard: k\r\n")
    assert field(got, "idempotency-key") == ["i"] and field(got, "x-keyboard") == ["k"]
    assert got["target"] == "/echo/bearer/keep?monkey=1&tokens=2&keyword=3"
    assert "credential_stripped" not in safe.stile.wait_record(since, event="request.end", path="/echo/bearer/keep")


def test_untouched_where_nothing_is_injected(safe):
    since = safe.stile.mark()
    got = safe.echo(f"/echo/plain/own?api_key={ATTACKER}", f"Authorization: Bearer {ATTACKER}\r\nCookie: a={ATTACKER}\r\n"
                                                         f"X-Api-Key: {ATTACKER}\r\n")
    assert field(got, "authorization") == [f"Bearer {ATTACKER}"] and field(got, "cookie") == [f"a={ATTACKER}"]
    assert field(got, "x-api-key") == [ATTACKER] and got["target"] == f"/echo/plain/own?api_key={ATTACKER}"
    end = safe.stile.wait_record(since, event="request.end", path="/echo/plain/own")
    assert "credential_stripped" not in end and "credential" not in end
    assert ATTACKER not in str(end) and "api_key=[redacted]" in end["query"]


@pytest.mark.parametrize("connection", ["{}", "close, {}", "{}, keep-alive"])
def test_connection_does_not_remove_the_injected_field(safe, connection):
    for spelt in ("X-Api-Key", "x-api-key"):
        got = safe.echo("/echo/header/c", f"Connection: {connection.format(spelt)}\r\n{spelt}: {ATTACKER}\r\n")
        assert field(got, "x-api-key") == [safe.canary["header"]]
        assert "x-api-key" not in str(field(got, "connection")).lower()
    # What can never be a matter of one hop is not taken for it.
    r = safe.stile.tls_get("/echo/bearer/c", more=f"Connection: {connection.format('Authorization')}\r\n")
    check_refusal(r, 400, "malformed_request")


# ---- where it must not go ----


def test_a_redirect_is_not_followed(safe):
    since = safe.stile.mark()
    port = safe.stile.origin.tls
    to = f"https://evil.test:{port}/echo/second?X-Amz-Signature={ATTACKER}"
    r = safe.stile.tls_get("/redirect?to=" + urllib.parse.quote(to, safe=""))
    assert r.status == 302 and r.get("location") == to
    first = safe.stile.wait_record(since, event="request.end", path="/redirect")
    assert first["credential"] == "bearer" and first["host"] == "origin.test"
    assert len([x for x in safe.stile.records(since) if x["event"] == "request.start"]) == 1
    since = safe.stile.mark()
    got = safe.echo(f"/echo/second?X-Amz-Signature={ATTACKER}", host="evil.test")
    assert field(got, "authorization") == [] and got["target"].endswith("=" + ATTACKER)
    end = safe.stile.wait_record(since, event="request.end", path="/echo/second")
    assert "credential" not in end and ATTACKER not in str(end)


def test_never_in_clear(safe):
    """The same path in clear has a rule too, without a credential: in absolute-form, and within CONNECT."""
    port = safe.stile.origin.plain
    for name in ("bearer", "header", "query"):
        request = get(f"http://origin.test:{port}/echo/{name}/clear")
        answers = [safe.stile.ask(request)]
        with safe.stile.client() as c:
            assert c.connect(f"origin.test:{port}").status == 200
            answers.append(c.ask(request))
        for r in answers:
            assert r.status == 200
            safe.no_secret_in(r.body)


@pytest.mark.parametrize("more, said", [
    ({"allow": "http://origin.test/**"}, "http"), ({"allow": "origin.test", "tls": "passthrough"}, "passthrough"),
    ({"allow": "tcp://origin.test:22"}, "tcp"), ({"allow": ["https://origin.test", "http://origin.test"]}, "http"),
])
def test_a_rule_that_could_not_keep_it_secret_is_a_fault(tmp_path, more, said):
    put(tmp_path / "t", "x")
    config = tmp_path / "stile.yaml"
    config.write_text("version: 1\ncredentials: {t: {from: {file: t}, as: bearer}}\npolicies:\n  default:\n    rules:\n"
                      f"      - {json.dumps({**more, 'credential': 't'})}\n")
    r = run("check", config, cwd=tmp_path)
    assert r.returncode == 2 and "credential" in r.stderr and said in r.stderr, r.stderr
    assert f"{config}:6:" in r.stderr


@pytest.mark.parametrize("kind", ["expired", "self-signed", "wrong-name", "unknown-issuer", "missing-intermediate"])
def test_never_to_an_origin_that_is_not_trusted(safe, kind):
    seen = safe.stile.origin.mark()
    for name in ("bearer", "query"):
        r = safe.stile.tls_get(f"/echo/{name}/untrusted", safe.stile.origin.ports[kind])
        check_refusal(r, 502, "upstream_untrusted")
        safe.no_secret_in(r.body, str(r.fields))
    assert b"/untrusted" not in safe.stile.origin.since(seen)


def test_never_to_an_origin_without_tls(safe):
    with Peer() as p:
        c = safe.stile.tunnel(p.port)
        c.send(f"GET /echo/bearer/a HTTP/1.1\r\nHost: origin.test:{p.port}\r\n\r\n".encode())
        with p.accept() as upstream:
            first = upstream.read(5)
            upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            upstream.half_close()
            everything = first + upstream.read_all()
        r = c.response()
        c.close()
    assert first[0] == 22, "no ClientHello"
    check_refusal(r, 502)
    safe.no_secret_in(everything, r.body)


def test_a_denied_request_gets_none(safe):
    seen, since = safe.stile.origin.mark(), safe.stile.mark()
    check_refusal(safe.stile.tls_get("/echo/bearer/no/1"), 403, "denied_by_rule")
    record = safe.stile.wait_record(since, event="request.deny")
    assert "credential" not in record
    assert b"/echo/bearer/no" not in safe.stile.origin.since(seen)


def test_the_canary_is_nowhere(safe):
    """After each kind was sent, and after failures with one in hand."""
    for name in safe.AS:
        safe.echo(f"/echo/{name}/nowhere?token={ATTACKER}")
    answers = [safe.stile.tls_get("/reset"), safe.stile.tls_get("/echo/nobody/knows"),
               safe.stile.tls_get("/echo/query/a", more="Bad Field: 1\r\n")]
    for r in answers:
        check_refusal(r, (502, 403, 400))
        safe.no_secret_in(str(r.fields), r.body)
    proc = pathlib.Path(f"/proc/{safe.stile.pid}")
    safe.no_secret_in(*((proc / f).read_bytes() for f in ("environ", "cmdline", "status")))
    safe.no_secret_in(*(t.read_bytes() for t in proc.glob("task/*/comm")))
    safe.stile.wait_records(len(safe.AS), event="request.end")
    safe.no_secret_in(safe.stile.log_path.read_bytes(), safe.stile.stderr)
    for name in safe.AS:
        r = run("explain", "-c", safe.stile.config, "GET", f"https://origin.test/echo/{name}/a", cwd=safe.stile.folder,
                **safe.env)
        assert r.returncode == 0 and f"credential {name}, from " in r.stdout, r.stdout
        safe.no_secret_in(r.stdout, r.stderr)
    r = run("check", safe.stile.config, cwd=safe.stile.folder, **safe.env)
    assert r.returncode == 0
    safe.no_secret_in(r.stdout, r.stderr)


# ---- values that are not to be had ----

BROKEN = {
    "missing": None, "empty": b"", "newline": b"\n", "crlf-only": b"\r\n",
    "crlf-inside": b"a\r\nX-Injected: 1", "lf-inside": b"a\nb\n",
    "two-newlines": b"ab\n\n", "cr-inside": b"a\rb", "nul": b"a\0b", "tab": b"a\tb", "delete": b"a\x7fb",
    "too-large": b"x" * 65537,
    "a-mebibyte": b"x" * (1 << 20), "beyond-ascii": "se\u00e9".encode(), "fifo": None, "folder": None, "dangling": None,
    "device": None, "noenv": None, "emptyenv": None,
}


@pytest.fixture(scope="module")
def broken(origin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    credentials = {}
    for name, data in BROKEN.items():
        if data is not None:
            put(folder / name, data)
        credentials[name] = {"from": {"file": str(folder / name)}, "as": "bearer"}
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "dangling").symlink_to(folder / "nothing")
    (folder / "device").symlink_to("/dev/zero")
    credentials["noenv"]["from"] = {"env": "STILE_TEST_NO_SUCH"}
    credentials["emptyenv"]["from"] = {"env": "STILE_TEST_EMPTY"}
    s = Stile(folder / "stile", origin, credentials=credentials, env={"STILE_TEST_EMPTY": ""},
              rules=[*(rule(n, n) for n in credentials), rule("plain")])
    yield s
    s.finish()


@pytest.mark.parametrize("name", BROKEN)
def test_a_value_that_is_not_to_be_had(broken, name):
    since, seen = broken.mark(), broken.origin.mark()
    r = broken.tls_get(f"/echo/{name}/a")
    check_refusal(r, 503, UNAVAILABLE)
    record = broken.wait_record(since, event="request.deny")
    assert (record["reason"], record["status"], record["decision"]) == (UNAVAILABLE, 503, "deny")
    assert record["credential"] == name
    assert f"/echo/{name}/".encode() not in broken.origin.since(seen)
    assert "X-Injected" not in str(record) + broken.stderr
    assert broken.tls_get("/echo/plain/a").status == 200


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_one_trailing_newline_is_cut(stile, tmp_path, canary, end):
    s = stile(rules=[rule("b", "b"), rule("x", "x")], credentials={
        "b": {"from": {"file": put(tmp_path / "b", canary + " " + end)}, "as": "basic"},
        "x": {"from": {"file": put(tmp_path / "x", canary + end)}, "as": {"header": "X-Token"}}})
    got = s.tls_get("/echo/x/a").json()
    assert field(got, "x-token") == [canary]
    check = s.tls_get("/echo/b/a")
    # Without a colon it is no pair of user and password.
    assert check.status == 503 or field(check.json(), "authorization") == [basic(canary + " ")]


def test_a_large_value_that_fits(stile, tmp_path):
    value = secrets.token_hex(10000)
    s = stile(rules=[rule("b", "b")], credentials={"b": {"from": {"file": put(tmp_path / "b", value)}, "as": "bearer"}})
    assert field(s.tls_get("/echo/b/a").json(), "authorization") == ["Bearer " + value]


# ---- values that change ----


def answers_with(s, value: str):
    def look():
        r = s.tls_get("/echo/b/a")
        return r.status == 200 and field(r.json(), "authorization") == ["Bearer " + value]
    wait_for(look, NOTICED, "the new value was not noticed")


def test_a_file_that_changes(stile, tmp_path, canary):
    path = tmp_path / "b"
    put(path, canary + "-0")
    s = stile(rules=[rule("b", "b")], credentials={"b": {"from": {"file": str(path)}, "as": "bearer"}})
    answers_with(s, canary + "-0")
    with open(path, "r+b") as f:  # in place, of the same size
        f.write((canary + "-1").encode())
    answers_with(s, canary + "-1")
    put_over(path, canary + "-2\n")
    answers_with(s, canary + "-2")
    path.unlink()
    wait_for(lambda: s.tls_get("/echo/b/a").status == 503, NOTICED, "the value that is gone is still used")
    put(path, canary + "-3")
    answers_with(s, canary + "-3")
    put(path, canary + "\r\n-4")
    wait_for(lambda: s.tls_get("/echo/b/a").status == 503, NOTICED, "no fall-back to the value before")
    put(path, canary + "-5")
    answers_with(s, canary + "-5")
    assert canary not in s.stderr and canary not in s.log_path.read_text()
    assert "b" in s.stderr


def test_a_symbolic_link_that_is_swapped(stile, tmp_path, canary):
    """As container orchestrators publish secrets: NAME -> ..data/NAME, and ..data is swapped."""
    for i in range(2):
        (tmp_path / f"v{i}").mkdir()
        put(tmp_path / f"v{i}" / "b", f"{canary}-{i}\n")
    (tmp_path / "..data").symlink_to("v0")
    (tmp_path / "b").symlink_to("..data/b")
    s = stile(rules=[rule("b", "b")], credentials={"b": {"from": {"file": str(tmp_path / "b")}, "as": "bearer"}})
    answers_with(s, f"{canary}-0")
    (tmp_path / "..tmp").symlink_to("v1")
    (tmp_path / "..tmp").rename(tmp_path / "..data")
    answers_with(s, f"{canary}-1")


# ---- which rule decides ----


@pytest.mark.parametrize("order, with_x", [(("all", "x-none", "x-b"), "A"), (("x-none", "all", "x-b"), None),
                                           (("x-b", "x-none", "all"), "B")])
def test_the_first_allow_decides(stile, tmp_path, order, with_x):
    value = {n: f"{n}-{secrets.token_hex(8)}" for n in "AB"}
    rules = {"all": rule("cred", "A"), "x-none": rule("cred/x"), "x-b": rule("cred/x", "B")}
    s = stile(rules=[*(rules[n] for n in order), {"deny": "https://origin.test:*/echo/cred/x/no/**"}],
              credentials={n: {"from": {"file": put(tmp_path / n, v)}, "as": "bearer"} for n, v in value.items()})
    for path, name in (("/echo/cred/x/1", with_x), ("/echo/cred/%78/1", with_x), ("/echo/cred/y", "A")):
        since = s.mark()
        got = s.tls_get(path).json()
        assert field(got, "authorization") == ([f"Bearer {value[name]}"] if name else []), path
        end = s.wait_record(since, event="request.end", path=path.replace("%78", "x"))
        assert end.get("credential") == name
    seen = s.origin.mark()
    for path in ("/echo/cred/x/no/1", "/echo/cred/%78/no/1"):
        check_refusal(s.tls_get(path), 403, "denied_by_rule")
    assert b"/no/1" not in s.origin.since(seen)
    r = run("explain", "-c", s.config, "GET", "https://origin.test/echo/cred/x/1", cwd=s.folder)
    at = s.config.read_text().splitlines().index("    rules:") + 2
    assert r.returncode == 0 and f"{s.config}:{at}" in r.stdout, r.stdout
    assert (f"credential {with_x}, from " in r.stdout) if with_x else "credential" not in r.stdout


# ---- client_credentials ----


OWN = [("", "Authorization: Bearer {}"), ("", "authorization: Basic {}"), ("", "X-Api-Key: {}"), ("", "Cookie: sid={}"),
       ("", "X_Auth_Token: {}"), ("?access_token={}", ""), ("?a=1&%61pi_key={}", "")]


@pytest.fixture(scope="module")
def client(origin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    ours = f"ours-{secrets.token_hex(8)}"
    s = Stile(folder / "stile", origin, credentials={
        "tok": {"from": {"file": put(folder / "tok", ours)}, "as": "bearer"},
        "sid": {"from": {"file": put(folder / "sid", ours)}, "as": {"cookie": "sid"}}}, rules=[
            rule("deny", client_credentials="deny"), rule("denyours", "tok", client_credentials="deny"),
            rule("strip", client_credentials="strip"), rule("pass", "tok", client_credentials="pass"),
            rule("cookie", "sid"), rule("silent"),
            allow("http://origin.test:*/echo/deny/**", client_credentials="deny"),
            allow("http://origin.test:*/echo/strip/**", client_credentials="strip")])
    s.ours = ours
    yield s
    s.finish()
    assert ours not in s.stderr + s.log_path.read_text()


def ask(s, name: str, query: str, more: str, plain: bool):
    """The answer to a request that brings a key, and that key."""
    key = "key" + secrets.token_hex(8)
    path = own(f"/echo/{name}") + query.format(key)
    more = more.format(key) + "\r\n" if more else ""
    return (s.get if plain else s.tls_get)(path, more=more), key


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("query, more", OWN)
def test_a_key_of_the_clients_is_refused(client, query, more, plain):
    seen = client.origin.mark()
    r, key = ask(client, "deny", query, more, plain)
    check_refusal(r, 403, "client_credential")
    assert key not in r.body.decode()
    deny = client.wait_record(event="request.deny", id=r.json()["id"])
    assert deny["reason"] == "client_credential" and key not in json.dumps(deny)
    assert client.origin.since(seen) == b""


@pytest.mark.parametrize("query, more", OWN)
def test_a_key_of_the_clients_is_refused_where_one_is_added(client, query, more):
    seen = client.origin.mark()
    r, _ = ask(client, "denyours", query, more, False)
    check_refusal(r, 403, "client_credential")
    assert client.origin.since(seen) == b""


def test_without_a_key_it_passes(client):
    r, _ = ask(client, "denyours", "?a=1", "Accept: */*", False)
    assert field(r.json(), "authorization") == ["Bearer " + client.ours]
    r, _ = ask(client, "deny", "?a=1", "Accept: */*", True)
    assert r.status == 200


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("query, more", OWN)
def test_a_key_of_the_clients_is_taken_out(client, query, more, plain):
    seen = client.origin.mark()
    r, key = ask(client, "strip", query, more, plain)
    assert r.status == 200 and key not in r.body.decode()
    assert client.wait_record(event="request.end", path=r.json()["target"].split("?")[0])["credential_stripped"] is True
    assert key.encode() not in client.origin.since(seen)


@pytest.mark.parametrize("query, more", OWN)
@pytest.mark.parametrize("name", ["pass", "silent"])
def test_a_key_of_the_clients_passes_where_the_rule_says_so(client, name, query, more):
    r, key = ask(client, name, query, more, False)
    got = r.json()
    if name == "pass":
        assert field(got, "authorization") == ["Bearer " + client.ours]
    assert (key in r.body.decode()) == (name == "silent" or "uthorization" not in more)


def test_a_cookie_of_ours_is_the_only_one(client):
    r, key = ask(client, "cookie", "", "Cookie: sid={}; other=1", False)
    assert field(r.json(), "cookie") == ["sid=" + client.ours] and key not in r.body.decode()


@pytest.mark.parametrize("name", ["strip", "denyours"])
def test_a_key_in_a_trailer_does_not_pass(client, name):
    seen = client.origin.mark()
    with client.tunnel() as c:
        r = c.ask(f"POST /echo/{name}/t HTTP/1.1\r\nHost: origin.test:{client.origin.tls}\r\n"
                  f"Transfer-Encoding: chunked\r\n\r\n".encode()
                  + chunked(b"x", trailers=b"Authorization: Bearer mine-77\r\n"))
        assert r.status == 200
    assert b"mine-77" not in client.origin.since(seen)
