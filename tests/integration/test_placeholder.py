"""Placeholders: the sandbox holds a made-up value, stile swaps it where the credential's own rule admits that, and a
request that carries it anywhere else is refused."""

import base64
import concurrent.futures
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import urllib.parse

import pytest

import runlib
import wslib
from gitlib import GitServer, git
from origin import tls_context
from stilelib import (BIN, PYTHON, TIMEOUT, Peer, Stile, allow, check_refusal, chunked, clean_env, echoed, get, put,
                      put_over, wait_for)
from test_websocket import hello, yes

MISUSED = "placeholder_misused"
CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def made_up(n: int = 36) -> str:
    return "".join(secrets.choice(CHARS) for _ in range(n))


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


def rule(name: str, path: str | None = None, **more) -> dict:
    return allow(f"https://origin.test:*{path or f'/echo/{name}/**'}", credential=name, **more)


class Desk:
    """A stile with placeholders of several kinds. `real` and `fake` by name; each has /echo/NAME/."""

    def __init__(self, origin, folder: pathlib.Path):
        self.folder = folder
        self.real = {"git": "ghp_" + made_up(), "model": "sk-ant-api03-" + made_up(60), "body": "xoxb-1234567890-" + made_up(20),
                     "bot": f"12345678:{made_up(35)}", "pinned": made_up(40), "odd": "a/b+c;" + made_up(30)}
        places = {"git": {}, "model": {"in": ["header", "query"]}, "pinned": {"in": ["header", "query", "basic"], "header": "X-Custom",
                                                                                "query": "q", "user": "robot"},
                  "body": {"in": ["header", "body"], "body_bytes": "64KiB"}, "bot": {"in": ["path"]},
                  "odd": {"in": ["path", "query", "header"]}}
        self.credentials = {
            n: {"from": {"file": put(folder / n, v + "\n")},
                "as": {"placeholder": {"file": str(folder / f"{n}.made-up"), **places[n]}}} for n, v in self.real.items()}
        self.rules = [
            allow(f"https://origin.test:{origin.tls}/echo/git/**", credential="git"), allow("https://origin.test:*/echo/git/**"),
            *(rule(n) for n in ("model", "body", "pinned")), rule("bot", "/echo/bot*/**"), rule("odd", "/echo/odd/**"),
            rule("git", "/echo/denies/**", client_credentials="deny"), rule("git", "/echo/passes/**", client_credentials="pass"),
            allow("https://origin.test:*/echo/plain/**"), allow("http://origin.test:*/echo/**"),
            allow("https://evil.test:*/echo/**"), {"deny": "https://origin.test:*/echo/bot*/deny/**"}]
        self.stile = Stile(folder / "stile", origin, credentials=self.credentials, rules=self.rules)
        self.fake = {n: (folder / f"{n}.made-up").read_text() for n in self.real}

    def ask(self, path: str, *fields: str, method: str = "GET", host: str = "origin.test", body: bytes = b""):
        more = "".join(f"{f}\r\n" for f in fields)
        if body:
            more += f"Content-Length: {len(body)}\r\n"
        port = self.stile.origin.tls
        with self.stile.tunnel(port, host) as c:
            return c.ask(f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n".encode("latin-1") + body)

    def echo(self, path: str, *fields: str, **more) -> dict:
        r = self.ask(path, *fields, **more)
        assert r.status == 200, r
        return r.json()

    def refused(self, path: str, *fields: str, **more):
        """Nothing of it reaches the origin."""
        since, seen = self.stile.mark(), self.stile.origin.mark()
        check_refusal(self.ask(path, *fields, **more), 403, MISUSED)
        deny = self.stile.wait_record(since, event="request.deny")
        assert deny["reason"] == MISUSED
        assert not self.stile.origin.since(seen)
        return deny

    def no_secret_in(self, *texts: str | bytes) -> None:
        for text in texts:
            data = text.encode() if isinstance(text, str) else text
            for value in self.real.values():
                for form in (value.encode(), base64.b64encode(value.encode())[4:-4], urllib.parse.quote(value, "").encode()):
                    assert form not in data


@pytest.fixture(scope="module")
def desk(origin, tmp_path_factory):
    d = Desk(origin, tmp_path_factory.mktemp("placeholders"))
    yield d
    d.stile.finish()
    d.no_secret_in(d.stile.stderr, d.stile.log_path.read_bytes(), *d.fake.values())


def own(path: str) -> str:
    return f"{path}/{secrets.token_hex(4)}"


def field(got: dict, name: str) -> list[str]:
    return [v for n, v in got["headers"] if n.lower() == name.lower()]


# ---- what they look like ----


def test_shapes(desk):
    fake, real = desk.fake, desk.real
    assert re.fullmatch("ghp_[A-Za-z0-9]{36}", fake["git"]) and re.fullmatch("sk-ant-api03-[A-Za-z0-9]{60}", fake["model"])
    assert re.fullmatch("xoxb-[0-9]{10}-[A-Za-z0-9]{20}", fake["body"])
    assert re.fullmatch("[0-9]{8}:[A-Za-z0-9]{35}", fake["bot"])
    assert all(len(fake[n]) == len(real[n]) and fake[n] != real[n] for n in real)
    for n in real:  # no run of the secret's own characters beyond the public prefix
        secret = re.sub("^(ghp_|sk-ant-api03-|xoxb-)", "", real[n])
        assert not any(secret[i:i + 6] in fake[n] for i in range(len(secret) - 5))


def test_the_file(desk):
    path = desk.folder / "git.made-up"
    assert path.stat().st_mode & 0o7777 == 0o644 and path.read_text() == desk.fake["git"]


# ---- swapped ----


@pytest.mark.parametrize("name, before, after", [
    ("Authorization", "Bearer ", ""), ("authorization", "token ", ""), ("AUTHORIZATION", "Token token=", ""),
    ("Authorization", 'Token token="', '"'), ("X-Api-Key", "", ""), ("PRIVATE-TOKEN", "", ""), ("Cookie", "session=", "")])
def test_in_a_header(desk, name, before, after):
    path = own("/echo/git")
    got = desk.echo(path, f"{name}: {before}{desk.fake['git']}{after}")
    assert field(got, name) == [before + desk.real["git"] + after]
    end = desk.stile.wait_record(event="request.end", path=path)
    assert end["credential"] == "git" and "credential_stripped" not in end


@pytest.mark.parametrize("pair", ["x-access-token:{}", "{}:x-oauth-basic", "{}:", ":{}"])
def test_in_a_basic_pair(desk, pair):
    got = desk.echo("/echo/git/b", "Authorization: " + basic(pair.format(desk.fake["git"])))
    assert field(got, "authorization") == [basic(pair.format(desk.real["git"]))]


def test_in_the_query(desk):
    path, fake = own("/echo/model"), desk.fake["model"]
    for spelt in (fake, "".join(f"%{ord(c):02x}" for c in fake)):
        got = desk.echo(f"{path}?a=1&api_key={spelt}&b=2")
        assert got["target"] == f"{path}?a=1&b=2&api_key={desk.real['model']}"
    assert desk.stile.wait_record(event="request.end", path=path)["credential"] == "model"


def test_in_the_path(desk):
    for spelt in (desk.fake["bot"], desk.fake["bot"].replace(":", "%3a")):
        assert desk.echo(f"/echo/bot{spelt}/getMe?x=1")["target"] == f"/echo/bot{desk.real['bot']}/getMe?x=1"
    record = desk.stile.wait_record(event="request.end", credential="bot")
    assert desk.real["bot"] not in str(record) and desk.fake["bot"] in record["path"]


@pytest.mark.parametrize("where", ["/echo/odd/{}/a", "/echo/odd/a{}"])
def test_a_value_that_would_change_the_path(desk, where):
    since, seen = desk.stile.mark(), desk.stile.origin.mark()
    check_refusal(desk.ask(where.format(desk.fake["odd"])), 503, "credential_unavailable")
    assert desk.stile.wait_record(since, event="request.deny")["credential"] == "odd"
    assert not desk.stile.origin.since(seen)
    got = desk.echo("/echo/odd/q?token=" + desk.fake["odd"])
    assert urllib.parse.unquote(got["target"].partition("token=")[2]) == desk.real["odd"]


@pytest.mark.parametrize("value", ["..", ".", "../x", "%2e%2e", "a?b", "a#b", "a%00b", "a\\b"])
def test_a_value_that_leads_elsewhere(desk, stile, tmp_path, value):
    s = stile(rules=[rule("p", "/echo/**")], credentials={"p": {
        "from": {"file": put(tmp_path / "p", value)}, "as": {"placeholder": {"file": str(tmp_path / "f"), "in": ["path"]}}}})
    seen = s.origin.mark()
    check_refusal(s.tls_get(f"/echo/{(tmp_path / 'f').read_text()}/x"), 503, "credential_unavailable")
    assert not s.origin.since(seen)


def test_a_value_that_a_deny_names(desk, stile, tmp_path):
    value = made_up(30)
    s = stile(rules=[rule("p", "/echo/**"), {"deny": f"https://origin.test:*/echo/{value}/**"}], credentials={"p": {
        "from": {"file": put(tmp_path / "p", value)}, "as": {"placeholder": {"file": str(tmp_path / "f"), "in": ["path"]}}}})
    check_refusal(s.tls_get(f"/echo/{(tmp_path / 'f').read_text()}/x"), 503, "credential_unavailable")


def test_pinned_names(desk):
    fake, real = desk.fake["pinned"], desk.real["pinned"]
    assert field(desk.echo("/echo/pinned/a", f"x_custom: {fake}"), "x_custom") == [real]
    assert desk.echo(f"/echo/pinned/a?q={fake}")["target"].endswith(f"?q={real}")
    assert field(desk.echo("/echo/pinned/a", "Authorization: " + basic(f"robot:{fake}")), "authorization") == [basic(f"robot:{real}")]
    desk.refused("/echo/pinned/a", f"Authorization: Bearer {fake}")
    desk.refused("/echo/pinned/a", "Authorization: " + basic(f"other:{fake}"))
    desk.refused(f"/echo/pinned/a?token={fake}")
    got = desk.echo("/echo/pinned/a?q=attacker", "X-Custom: attacker")
    assert "attacker" not in str(got)


def test_without_a_placeholder_there_is_no_credential(desk):
    path = own("/echo/git")
    assert field(desk.echo(path), "authorization") == []
    assert "credential" not in desk.stile.wait_record(event="request.end", path=path)


def test_the_clients_own_is_taken_out(desk):
    path = own("/echo/git")
    got = desk.echo(path + "?token=attacker&a=1", f"Authorization: Bearer {desk.fake['git']}", "X-Api-Key: attacker",
                    "Authorization: Bearer attacker")
    assert field(got, "authorization") == ["Bearer " + desk.real["git"]] and "attacker" not in str(got)
    assert desk.stile.wait_record(event="request.end", path=path)["credential_stripped"] is True
    got = desk.echo("/echo/git/c", f"Cookie: a=attacker; s={desk.fake['git']}; b=attacker")
    assert field(got, "cookie") == ["s=" + desk.real["git"]]


def test_the_clients_own_is_refused(desk):
    fake = desk.fake["git"]
    assert field(desk.echo("/echo/denies/a", f"Authorization: Bearer {fake}"), "authorization") == ["Bearer " + desk.real["git"]]
    for more in ("X-Api-Key: attacker", "Cookie: a=attacker", f"Cookie: a=attacker; s={fake}"):
        check_refusal(desk.ask("/echo/denies/a", f"Authorization: Bearer {fake}", more), 403, "client_credential")


def test_the_clients_own_passes(desk):
    got = desk.echo("/echo/passes/a", f"Cookie: a=mine; s={desk.fake['git']}", "X-Api-Key: mine")
    assert field(got, "cookie") == ["a=mine; s=" + desk.real["git"]] and field(got, "x-api-key") == ["mine"]


# ---- refused ----


@pytest.mark.parametrize("value", ["{}", "Bearer {}", "Bearer attacker, Bearer {}", "Bearer {} attacker", "x{}", "{}x", "{} {}",
                                   "Basic {attacker}", "Basic {both}", "Basic {pair}", '"{}', '{}"', "%s"])
def test_what_stands_beside_it(desk, value):
    fake = desk.fake["git"]
    if value in ("{}", "Bearer {}"):
        desk.refused("/echo/git/a", "User-Agent: " + value.format(fake))  # no identity goes there
        return
    filled = (value.replace("{attacker}", basic(f"{fake}:attacker")[6:]).replace("{both}", basic(f"{fake}:{fake}x")[6:])
              .replace("{pair}", basic("a:b:" + fake)[6:]).replace("%s", "".join(f"%{ord(c):02X}" for c in fake)))
    desk.refused("/echo/git/a", "Authorization: " + filled.replace("{}", fake))


@pytest.mark.parametrize("path", ["/echo/plain/a", "/echo/model/a", "/nowhere"])
def test_another_rules_path(desk, path):
    deny = desk.refused(path, f"Authorization: Bearer {desk.fake['git']}")
    assert "git" in deny["error_detail"] and ("no rule allows" in deny["error_detail"]) == (path == "/nowhere")


def test_a_pair_behind_a_tab(desk):
    pair = basic("a:" + desk.fake["git"])
    desk.refused("/echo/plain/a", pair.replace("Basic ", "Authorization: Basic\t"))
    got = desk.echo("/echo/git/a", pair.replace("Basic ", "Authorization: basic\t "))
    assert field(got, "authorization") == [basic("a:" + desk.real["git"])]


def test_another_host(desk):
    desk.refused("/echo/git/a", f"Authorization: Bearer {desk.fake['git']}", host="evil.test")


def test_another_port(desk):
    """Nothing is dialled there."""
    with Peer() as p, desk.stile.tunnel(p.port) as c:
        r = c.ask(f"GET /echo/git/a HTTP/1.1\r\nHost: origin.test:{p.port}\r\nAuthorization: Bearer {desk.fake['git']}\r\n\r\n".encode())
        check_refusal(r, 403, MISUSED)
        assert p.nobody_came()


def test_in_clear(desk):
    for fields in (f"Authorization: Bearer {desk.fake['git']}", f"Proxy-Authorization: Basic {basic('a:' + desk.fake['git'])[6:]}"):
        check_refusal(desk.stile.get("/echo/git/a", more=fields + "\r\n"), 403, MISUSED)


@pytest.mark.parametrize("at", ["http://a:{}@origin.test:{port}/echo/a", "http://origin.test:{port}/echo/{}/a", "http://origin.test:{port}/x#{}",
                                "http://origin.test:{port}/echo/a?x={}", "http://origin.test:{port}/echo/../{}"])
def test_in_a_target(desk, at):
    target = at.replace("{port}", str(desk.stile.origin.plain)).replace("{}", desk.fake["git"])
    since = desk.stile.mark()
    check_refusal(desk.stile.ask(get(target, host=f"origin.test:{desk.stile.origin.plain}")), 403, MISUSED)
    assert desk.stile.wait_record(since, event="request.deny")["reason"] == MISUSED


@pytest.mark.parametrize("more", ["X-Key: {}", "Proxy-Authorization: Bearer {}"])
def test_in_a_connect(desk, more):
    since = desk.stile.mark()
    with desk.stile.client() as c:
        r = c.connect(f"origin.test:{desk.stile.origin.tls}", more.replace("{}", desk.fake["git"]) + "\r\n")
        check_refusal(r, 403, MISUSED)
    assert desk.stile.wait_record(since, event="tunnel.deny")["reason"] == MISUSED


@pytest.mark.parametrize("query", ["q={}", "{}=1", "api_key=x{}", "api_key=%25{hex}", "a=1;b={}"])
def test_in_a_query_that_is_no_place(desk, query):
    fake = desk.fake["model"]
    twice = "".join(f"%25{ord(c):02x}" for c in fake)
    desk.refused("/echo/model/a?" + query.replace("%25{hex}", twice).replace("{}", fake))


def test_a_place_that_is_not_opted_in(desk):
    desk.refused("/echo/git/a?token=" + desk.fake["git"])
    desk.refused(f"/echo/git/{desk.fake['git']}")
    desk.refused("/echo/model/a", "Authorization: " + basic("u:" + desk.fake["model"]))


# ---- bodies ----


def body_of(text: str, fill: int = 0) -> bytes:
    return b"x" * fill + text.encode() + b"y" * fill


@pytest.mark.parametrize("fill", [0, 1, 1000, 30000])
def test_in_a_body(desk, fill):
    got = desk.echo("/echo/body/a", "Content-Type: application/json", method="POST", body=body_of('{"k":"%s"}' % desk.fake["body"], fill))
    assert got["body"].encode() == body_of('{"k":"%s"}' % desk.real["body"], fill)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_in_chunks(desk, size):
    body = body_of(f"{desk.fake['body']} {desk.fake['body'][:-1]} {desk.fake['body'] * 2}", 3)
    parts = [body[i:i + size] for i in range(0, len(body), size)]
    port = desk.stile.origin.tls
    with desk.stile.tunnel() as c:
        got = c.ask(f"POST /echo/body/c HTTP/1.1\r\nHost: origin.test:{port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                    + chunked(*parts)).json()
    assert got["body"].encode() == body.replace(desk.fake["body"].encode(), desk.real["body"].encode())


def test_in_a_body_over_http2(desk):
    h2lib = pytest.importorskip("h2lib", reason="python3-h2 is not installed")
    body = body_of(desk.fake["body"], 20000)
    with h2lib.H2(desk.stile) as c:
        got = c.get("/echo/body/h", "POST", body=body, more=[("x-api-key", desk.fake["body"])]).json()
        assert got["body"].encode() == body_of(desk.real["body"], 20000) and field(got, "x-api-key") == [desk.real["body"]]
        a = c.get("/echo/plain/h", "POST", body=body)
        assert a.status == 403 and a.json()["reason"] == MISUSED
        a = c.get("/echo/git/h", more=[("user-agent", desk.fake["git"])])
        assert a.status == 403 and a.json()["reason"] == MISUSED


@pytest.mark.parametrize("path, fill, name", [("/echo/plain/b", 0, "body"), ("/echo/plain/b", 50000, "git"), ("/echo/body/b", 10, "git"),
                                              ("/echo/git/b", 10, "git"), ("/echo/body/b", 65536, "body")])
def test_a_body_is_cut(desk, path, fill, name):
    since, seen = desk.stile.mark(), desk.stile.origin.mark()
    check_refusal(desk.ask(path, method="POST", body=body_of(desk.fake[name], fill)), 403, MISUSED)
    end = desk.stile.wait_record(since, event="request.end")
    assert end["error"] == MISUSED
    assert desk.fake[name].encode() not in desk.stile.origin.since(seen)
    desk.no_secret_in(desk.stile.origin.since(seen))


def test_a_body_of_another_length(stile, tmp_path):
    """The source gives a longer value than at the start: nothing of it goes into a body."""
    s = stile(rules=[rule("k")], credentials={"k": {"from": {"file": put(tmp_path / "k", made_up(40))}, "as": {
        "placeholder": {"file": str(tmp_path / "f"), "in": ["body", "header"], "body_bytes": "1KiB"}}}})
    fake, longer = (tmp_path / "f").read_text(), made_up(41)
    put_over(tmp_path / "k", longer)
    wait_for(lambda: s.tls_get("/echo/k/a", more=f"X-Api-Key: {fake}\r\n").json()["headers"][-1][1] == longer)
    seen = s.origin.mark()
    port = s.origin.tls
    with s.tunnel() as c:
        r = c.ask(f"POST /echo/k/a HTTP/1.1\r\nHost: origin.test:{port}\r\nContent-Length: {len(fake)}\r\n\r\n{fake}".encode())
    check_refusal(r, 503, "credential_unavailable")
    assert longer.encode() not in s.origin.since(seen)


def test_trailers(desk):
    port = desk.stile.origin.tls
    with desk.stile.tunnel() as c:
        r = c.ask(f"POST /echo/plain/t HTTP/1.1\r\nHost: origin.test:{port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                  + chunked(b"x", trailers=f"X-Sum: {desk.fake['git']}\r\n".encode()))
    check_refusal(r, 403, MISUSED)


# ---- WebSockets ----


@pytest.fixture(scope="module")
def chat(origin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    s = Stile(folder / "stile", origin, rules=[allow("wss://origin.test:*/ws/k/**", credential="k"), allow("wss://origin.test:*/ws/plain")],
              credentials={"k": {"from": {"file": put(folder / "k", "xoxb-" + made_up(40))}, "as": {
                  "placeholder": {"file": str(folder / "f"), "in": ["websocket", "header"], "body_bytes": "1KiB"}}}})
    s.fake, s.real = (folder / "f").read_text().encode(), (folder / "k").read_bytes()
    yield s
    s.finish()
    assert s.real not in s.log_path.read_bytes()


def talk(s: Stile, peer: Peer, sent: bytes, size: int, want: int, path: str = "/ws/k/a", more: str = "") -> tuple[bytes, bytes]:
    """What the origin gets of the head, and then of `want` bytes."""
    c = s.client()
    assert c.connect(f"origin.test:{peer.port}").status == 200
    c.start_tls(s.context(), "origin.test")
    c.send(hello(peer.port, path, more=more))
    o = peer.accept()
    o.sock = tls_context(s.origin.pki).wrap_socket(o.sock, server_side=True)
    with c, o:
        head = o.read_head()
        o.send(yes())
        assert c.response_head().status == 101
        for part in wslib.cut(sent, size):
            c.send_quietly(part)
        return head, o.read(want)


@pytest.mark.parametrize("size", [1, 13, 100000])
def test_in_text_messages(chat, size):
    def messages(k: bytes) -> bytes:
        f = wslib.frame
        return (f(1, b'{"token":"%s"}' % k) + f(9, k) + f(2, chat.fake) + f(1, k, fin=False) + f(9, b"ping") + f(0, b"-" + k)
                + f(1, b"x" * 500 + k * 3) + f(1, k[:-1]) + f(1, chat.fake, rsv=4) + f(1, b"the end"))

    sent = messages(chat.fake)
    want = messages(chat.real).replace(wslib.frame(9, chat.real), wslib.frame(9, chat.fake))
    with Peer() as p:
        head, got = talk(chat, p, sent, size, len(sent), more=f"X-Api-Key: {chat.fake.decode()}\r\n"
                         "Sec-WebSocket-Extensions: permessage-deflate\r\n")
    assert got == want.replace(wslib.frame(1, chat.real[:-1]), wslib.frame(1, chat.fake[:-1]))
    assert b"X-Api-Key: " + chat.real in head and b"deflate" not in head


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_in_a_websocket_of_http2(chat, size):
    h2lib = pytest.importorskip("h2lib")
    answer_to = pytest.importorskip("test_websocket_h2").answer_to

    def messages(k: bytes) -> bytes:
        return wslib.frame(1, b'{"t":"%s"}' % k) + wslib.frame(1, k * 2)

    def origin(p: Peer, n: int) -> bytes:
        o = p.accept()
        o.sock = tls_context(chat.origin.pki).wrap_socket(o.sock, server_side=True)
        with o:
            o.send(yes(accept=answer_to(o.read_head().decode())))
            return o.read(n)

    sent, since = messages(chat.fake), chat.mark()
    with Peer() as p, concurrent.futures.ThreadPoolExecutor(1) as pool, h2lib.H2(chat, p.port) as c:
        got = pool.submit(origin, p, len(sent))
        s = c.open("/ws/k/a", more=[("x-api-key", chat.fake.decode())])
        for i in range(0, len(sent), size):
            c.h2.send_data(s, sent[i:i + size])
            c.flush()
        assert got.result(TIMEOUT) == messages(chat.real)
    assert chat.wait_record(since, event="request.end")["credential"] == "k"


def test_text_beyond_the_bound(chat):
    since = chat.mark()
    with Peer() as p:
        sent = wslib.frame(1, b"x" * 1020 + chat.fake)
        _, got = talk(chat, p, sent, 100000, len(sent))
    assert len(got) < len(sent) and chat.real not in got
    assert chat.wait_record(since, event="request.end", error=MISUSED)


def test_a_websocket_of_another_rule(chat):
    with Peer() as p, chat.tunnel(p.port) as c:
        r = c.ask(hello(p.port, "/ws/plain", more=f"X-Api-Key: {chat.fake.decode()}\r\n"))
        check_refusal(r, 403, MISUSED)
        assert p.nobody_came()
        sent = wslib.frame(1, chat.fake)
        assert talk(chat, p, sent, 100000, len(sent), path="/ws/plain")[1] == sent  # not looked into: as it was made up


# ---- reloads and sources ----


def test_across_reloads(stile, tmp_path):
    def credentials(*names):
        return {n: {"from": {"file": str(tmp_path / n)}, "as": {"placeholder": {"file": str(tmp_path / f"{n}.f")}}} for n in names}

    for n in ("a", "b"):
        put(tmp_path / n, f"real-{n}-" + made_up(20))
    s = stile(rules=[rule("a")], credentials=credentials("a"))
    first = (tmp_path / "a.f").read_text()
    s.reload(rules=[rule("a"), rule("b")], credentials=credentials("a", "b"))
    assert (tmp_path / "a.f").read_text() == first and (tmp_path / "b.f").exists()
    for n in ("a", "b"):
        got = s.tls_get(f"/echo/{n}/x", more=f"X-Api-Key: {(tmp_path / f'{n}.f').read_text()}\r\n").json()
        assert field(got, "x-api-key") == [(tmp_path / n).read_text()]
    s.reload(rules=[rule("b"), allow("https://origin.test:*/echo/a/**")], credentials=credentials("b"))
    check_refusal(s.tls_get("/echo/a/x", more=f"X-Api-Key: {first}\r\n"), 403, MISUSED)  # its credential is gone


def test_a_source_that_is_down(stile, tmp_path):
    s = stile(rules=[rule("k")], credentials={"k": {"from": {"file": str(tmp_path / "k")}, "as": {
        "placeholder": {"file": str(tmp_path / "f"), "prefix": "glpat-", "length": 30}}}})
    fake = (tmp_path / "f").read_text()
    assert re.fullmatch("glpat-[A-Za-z0-9]{24}", fake)
    check_refusal(s.tls_get("/echo/k/x", more=f"X-Api-Key: {fake}\r\n"), 503, "credential_unavailable")
    assert s.tls_get("/echo/k/x").status == 200  # which needs none
    put_over(tmp_path / "k", "glpat-" + made_up(20))
    wait_for(lambda: s.tls_get("/echo/k/x", more=f"X-Api-Key: {fake}\r\n").status == 200)


def test_a_file_that_is_a_link_or_a_folder(origin, tmp_path):
    put(tmp_path / "k", made_up(40))
    target = put(tmp_path / "precious", "keep me")
    (tmp_path / "link").symlink_to(target)
    os.link(target, tmp_path / "hard")
    for name in ("link", "hard", "."):
        s = Stile(tmp_path / "stile", origin, wait=False, exit_code=None, rules=[rule("k")], credentials={
            "k": {"from": {"file": str(tmp_path / "k")}, "as": {"placeholder": {"file": str(tmp_path / name)}}}})
        assert s.proc.wait(TIMEOUT) == 1
        s.finish()
        assert "placeholder" in s.stderr and pathlib.Path(target).read_text() == "keep me"


# ---- real clients ----


def client_env(desk, **more) -> dict[str, str]:
    proxy = f"http://127.0.0.1:{desk.stile.port}"
    bundle = str(desk.stile.ca)
    return clean_env(HTTPS_PROXY=proxy, https_proxy=proxy, CURL_CA_BUNDLE=bundle, REQUESTS_CA_BUNDLE=bundle, NODE_EXTRA_CA_CERTS=bundle,
                     NODE_USE_ENV_PROXY="1", TOKEN=desk.fake["git"], MODEL=desk.fake["model"], HOME=str(desk.folder), **more)


def client(desk, *argv: str) -> str:
    if not shutil.which(argv[0]):
        pytest.skip(f"{argv[0]} is not installed")
    got = subprocess.run(argv, env=client_env(desk), text=True, capture_output=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL)
    assert got.returncode == 0, got.stderr
    return got.stdout


def test_curl(desk):
    url = f"https://origin.test:{desk.stile.origin.tls}/echo/git/curl"
    got = echoed(client(desk, "sh", "-c", f'curl -sS -u "robot:$TOKEN" {url}'))
    assert field(got, "authorization") == [basic("robot:" + desk.real["git"])]


def test_requests(desk):
    pytest.importorskip("requests", reason="python3-requests is not installed")
    url = f"https://origin.test:{desk.stile.origin.tls}/echo/model/requests"
    got = echoed(client(desk, PYTHON, "-c", "import os, requests\n"
                            f"print(requests.get({url!r}, params={{'a': 'b c', 'api_key': os.environ['MODEL']}}).text)"))
    assert got["target"] == f"/echo/model/requests?a=b+c&api_key={desk.real['model']}"


NODE = """
const http = require('http'), https = require('https'), tls = require('tls');
const [target, proxy] = process.argv.slice(1), key = process.env.TOKEN;
http.request({host: '127.0.0.1', port: proxy, method: 'CONNECT', path: target, headers: {host: target}}).on('connect', (_, socket) => {
    const agent = new https.Agent();
    agent.createConnection = () => tls.connect({socket, servername: 'origin.test'});
    https.get({host: 'origin.test', port: target.split(':')[1], path: '/echo/git/node', agent,
               headers: {authorization: `Bearer ${key}`}}, r => r.pipe(process.stdout));
}).end();
"""


def test_node(desk):
    """Its own TLS over a CONNECT of its own, which every Node can."""
    got = echoed(client(desk, "node", "-e", NODE, f"origin.test:{desk.stile.origin.tls}", str(desk.stile.port)))
    assert field(got, "authorization") == ["Bearer " + desk.real["git"]]


def test_git(origin, stile, tmp_path):
    """What git takes out of a URL or a helper is a Basic pair."""
    server = GitServer(origin, tmp_path / "served")
    try:
        url = server.make("repo.git")
        real = "ghp_" + made_up()
        s = stile(rules=[allow(f"{server.base}/**", credential="git")], credentials={"git": {
            "from": {"file": put(tmp_path / "git", real)}, "as": {"placeholder": {"file": str(tmp_path / "f")}}}})
        fake = (tmp_path / "f").read_text()
        header = "http.extraHeader=Authorization: " + basic("x-access-token:" + fake)
        git(tmp_path, "-c", header, "ls-remote", url, https_proxy=f"http://127.0.0.1:{s.port}", GIT_SSL_CAINFO=str(s.ca))
        assert server.asked and all(h.get("Authorization") == basic("x-access-token:" + real) for _, _, h in server.asked)
    finally:
        server.close()


# ---- `stile run` ----


def run_config(tmp, origin, real: str, **more) -> pathlib.Path:
    config = tmp / "stile.yaml"
    config.write_text(json.dumps({
        "version": 1, "upstream": {"hosts": {"origin.test": "127.0.0.1"}, "trust": [str(origin.pki / "ca.pem")]},
        "credentials": {"git": {"from": {"env": "TOKEN"}, "as": {"placeholder": {"env": "TOKEN", "file": "unused", **more}}}},
        "policies": {"default": {"rules": [rule("git")]}}}))
    return config


def test_run(origin, tmp_path):
    real = "ghp_" + made_up()
    url = f"https://origin.test:{origin.tls}/echo/git/run"
    script = (f'curl -sS -H "Authorization: Bearer $TOKEN" {url}; echo; curl -sS -H "X-Api-Key: $(cat /run/stile/placeholders/git)" {url}'
              '; echo; echo "$TOKEN"; env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"')
    config = run_config(tmp_path, origin, real)
    fakes = set()
    for _ in range(2):
        got = runlib.run(tmp_path, "sh", "-c", script, config=config, env=runlib.clean_env(HOME=str(tmp_path), TOKEN=real))
        if got.returncode == 125:
            pytest.skip(f"needs `stile run`: {got.stderr.strip()}")
        first, second, fake, *rest = [x for x in got.stdout.split("\n") if x]
        assert field(echoed(first), "authorization") == ["Bearer " + real] and field(echoed(second), "x-api-key") == [real]
        assert re.fullmatch("ghp_[A-Za-z0-9]{36}", fake) and real not in fake and real not in "\n".join(rest)
        assert real not in (tmp_path / "run.jsonl").read_text() and not (tmp_path / "unused").exists()
        fakes.add(fake)
    assert len(fakes) == 2


@pytest.mark.parametrize("args, variable, says", [(["--env", "TOKEN=x"], "TOKEN", "placeholder"), ([], "https_proxy", "sandbox itself needs")])
def test_run_keeps_its_variables(origin, tmp_path, args, variable, says):
    got = runlib.run(tmp_path, "true", args=args, config=run_config(tmp_path, origin, "x", env=variable),
                     env=runlib.clean_env(HOME=str(tmp_path), TOKEN="ghp_" + made_up()))
    assert got.returncode != 0 and says in got.stderr


# ---- the configuration ----


@pytest.mark.parametrize("how, says", [
    ({}, "needs `env`"), ({"env": "A-B"}, "is not the name of an environment variable"), ({"env": "A", "in": []}, "empty list"),
    ({"env": "A", "in": ["header", "headers"]}, "did you mean `header`"), ({"env": "A", "in": ["header", "header"]}, "twice"),
    ({"env": "A", "in": ["body"]}, "needs a bound"), ({"env": "A", "in": ["websocket"]}, "needs a bound"),
    ({"env": "A", "body_bytes": "1KiB"}, "says nothing unless"), ({"env": "A", "query": "k"}, "says nothing unless `in` lists `query`"),
    ({"env": "A", "in": ["query"], "header": "X-Key"}, "says nothing unless `in` lists `header`"),
    ({"env": "A", "in": ["query"], "user": "u"}, "says nothing unless `in` lists `basic`"),
    ({"env": "A", "header": "Host"}, "governed by stile"), ({"env": "A", "prefix": "a b"}, "`prefix` has letters"),
    ({"env": "A", "prefix": "ghp_", "length": 23}, "not within 24 and 256"), ({"env": "A", "length": 257}, "not within"),
    ({"env": "A", "place": "x"}, "unknown key `place`"), ({"file": "token"}, "would be written over"),
])
def test_faults(tmp_path, how, says):
    config = tmp_path / "stile.yaml"
    config.write_text(json.dumps({"version": 1, "credentials": {"k": {"from": {"file": "token"}, "as": {"placeholder": how}}},
                                  "policies": {"default": {"rules": [{"allow": "a.test", "credential": "k"}]}}}))
    got = subprocess.run([BIN, "check", config], text=True, capture_output=True, timeout=TIMEOUT)
    assert got.returncode == 2 and says in got.stderr, got.stderr


@pytest.mark.parametrize("key, where", [("env", "variable"), ("file", "file")])
def test_two_of_one_name(tmp_path, key, where):
    config = tmp_path / "stile.yaml"
    one = {"from": {"env": "X"}, "as": {"placeholder": {key: "A"}}}
    config.write_text(json.dumps({"version": 1, "credentials": {"a": one, "b": one}, "policies": {"default": {"rules": [
        {"allow": "a.test", "credential": "a"}, {"allow": "b.test", "credential": "b"}]}}}))
    got = subprocess.run([BIN, "check", config], text=True, capture_output=True, timeout=TIMEOUT)
    assert got.returncode == 2 and f"cannot both stand in the {where} `" in got.stderr, got.stderr


@pytest.mark.parametrize("target, places, warned", [
    ("a.test", ["body"], True), ("a.test", ["path"], True), ("a.test/v1/token", ["body"], False), ("a.test", ["header", "query"], False)])
def test_a_warning_of_what_is_shown_to_others(tmp_path, target, places, warned):
    config = tmp_path / "stile.yaml"
    how = {"env": "A", "in": places, **({"body_bytes": "1KiB"} if "body" in places else {})}
    config.write_text(json.dumps({"version": 1, "credentials": {"k": {"from": {"env": "X"}, "as": {"placeholder": how}}},
                                  "policies": {"default": {"rules": [{"allow": target, "credential": "k"}]}}}))
    got = subprocess.run([BIN, "check", config], text=True, capture_output=True, timeout=TIMEOUT)
    assert got.returncode == 0 and ("name the path" in got.stderr) == warned, got.stderr


def test_explain(tmp_path):
    config = tmp_path / "stile.yaml"
    config.write_text(json.dumps({"version": 1, "credentials": {"k": {"from": {"env": "X"}, "as": {"placeholder": {"env": "A"}}}},
                                  "policies": {"default": {"rules": [{"allow": "a.test", "credential": "k"}]}}}))
    got = subprocess.run([BIN, "explain", "-c", config, "GET", "https://a.test/"], text=True, capture_output=True, timeout=TIMEOUT)
    assert "credential k, from the variable X, in place of $A in a header, Basic\n" in got.stdout, got.stdout
