"""Tokens of sandboxes: who gets in by one and under which policy, that one never gets what is another's, and that the end
of a token is the end of all that it carried. Real clients: curl, requests, git, Node."""

import base64
import contextlib
import http.client
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import pytest

import wslib
from adminlib import ADMIN, Sandbox, ask, ask_json, stile_cli
from gitlib import GitServer, git_env
from h2lib import H2
from stilelib import LOOPBACK, PYTHON, SLOWER, TIMEOUT, Peer, Raw, Stile, allow, check_refusal, clean_env, client_context, get, \
    wait_for
from test_websocket import clear, yes

ONE = [allow("http://origin.test:*/ok/one/**", "https://origin.test:*/ok/one/**"),
       allow("http://origin.test:*/echo/**", "http://origin.test:*/sse"), allow("ws://origin.test:*/ws/**"),
       allow("https://origin.test:*/echo/**", credential="one"),
       allow("https://origin.test:*/slow"), {"allow": "tcp://origin.test:*", "addresses": LOOPBACK}]
TWO = [allow("http://origin.test:*/ok/two/**", "https://origin.test:*/ok/two/**"),
       allow("http://origin.test:*/echo/**"), allow("https://origin.test:*/echo/**", credential="two")]
LISTEN = [{"name": "strict", "proxy": "127.0.0.1:0", "tokens": "required"},
          {"name": "other", "proxy": "127.0.0.1:0", "tokens": "optional", "policy": "open"},
          {"name": "plain", "proxy": "127.0.0.1:0", "policy": "open"}]
POLICIES = {"one": ONE, "two": TWO, "open": [allow("http://origin.test:*/ok/**")]}
WRONG = "stile_" + "A" * 43


class World(Stile):
    """A stile with a listener of each kind, `strict` first, and what its log must not hold."""

    def __init__(self, folder, origin, **more):
        folder.mkdir(parents=True, exist_ok=True)
        self.secrets = {n: f"canary-{n}-{os.urandom(12).hex()}" for n in ("one", "two")}
        credentials = {}
        for n, value in self.secrets.items():
            (folder / n).write_text(value)
            (folder / n).chmod(0o600)
            credentials[n] = {"from": {"file": str(folder / n)}, "as": "bearer"}
        self.tokens: list[str] = []
        self.source = "127.0.0.1"
        super().__init__(folder, origin, **{"extra": ADMIN, "listen": LISTEN, "policies": POLICIES, "credentials": credentials, **more})
        self.ports = {x["name"]: int(x["at"].rpartition(":")[2]) for x in ask_json(self, "status")["listeners"]
                      if x["at"].startswith("127.")}

    def new(self, policy: str = "one", *args, listener: str = "strict") -> Sandbox:
        box = Sandbox(self, policy, "--listener", listener, *args)
        self.tokens.append(box.token)
        return box

    def at(self, listener: str) -> Raw:
        sock = socket.create_connection(("127.0.0.1", self.ports[listener]), TIMEOUT, (self.source, 0))
        return Raw(sock)

    def finish(self) -> None:
        super().finish()
        text = self.stderr + self.log_path.read_text()
        for token in self.tokens:
            for form in (token, base64.b64encode(f"sandbox:{token}".encode()).decode()):
                assert form not in text


@pytest.fixture(scope="module")
def world_of_all(origin, tmp_path_factory):
    s = World(tmp_path_factory.mktemp("tokens"), origin)
    yield s
    s.finish()


@pytest.fixture
def world(world_of_all, sources=itertools.count()):
    """Each test comes from an address of its own: so many wrong tokens of one are answered at once, and no more."""
    world_of_all.source = f"127.0.1.{1 + next(sources) % 250}"
    return world_of_all.settled()


@pytest.fixture
def make(origin, tmp_path):
    made = []

    def new(**more) -> World:
        made.append(World(tmp_path / f"world{len(made)}", origin, **more))
        return made[-1]
    yield new
    for s in made:
        s.finish()


def plain(s: Stile, path: str, more: str = "") -> bytes:
    return get(f"http://origin.test:{s.origin.plain}{path}", more=more)


def once(s: World, path: str, more: str = "", listener: str = "strict"):
    with s.at(listener) as c:
        return c.ask(plain(s, path, more))


# ---- in ----


def test_a_token_selects_the_policy(world):
    one, two = world.new("one"), world.new("two")
    since = world.mark()
    assert once(world, "/ok/one/a", one.basic).status == 200
    assert once(world, "/ok/two/a", two.bearer).status == 200
    check_refusal(once(world, "/ok/two/a", one.basic), 403, "no_rule")
    check_refusal(once(world, "/ok/one/a", two.basic), 403, "no_rule")
    assert {(r["sandbox"], r["policy"], r["event"]) for r in world.wait_records(6, since, listener="strict")} == {
        (box.name, policy, e) for box, policy in ((one, "one"), (two, "two"))
        for e in ("request.start", "request.end", "request.deny")}


def test_what_is_told_of_one(world):
    box = world.new("one", "--name", "agent-7.x", "--ttl", "30m")
    assert re.fullmatch(r"http://sandbox:stile_[A-Za-z0-9_-]{43}@127\.0\.0\.1:\d+", box.url)
    told = box.listed()
    assert told["name"] == "agent-7.x" and told["policy"] == "one" and told["listener"] == "strict"
    assert "seen" not in told and told["connections"] == 0 and "token" not in told
    span = [time.strptime(told[k], "%Y-%m-%dT%H:%M:%SZ") for k in ("created", "ends")]
    assert time.mktime(span[1]) - time.mktime(span[0]) == 1800
    with world.at("strict") as c:
        assert c.ask(plain(world, "/ok/one/a", box.basic)).status == 200
        told = box.listed()
        assert told["connections"] == 1 and told["seen"]
    wait_for(lambda: box.listed()["connections"] == 0)
    table = ask(world, "sandbox", "list").stdout
    assert "agent-7.x" in table and box.token not in table
    printed = ask(world, "sandbox", "new", "--policy", "one", "--listener", "strict", "--proxy", "http://proxy.test:3128/").stdout
    assert re.fullmatch(r"http://sandbox:stile_[\w-]{43}@proxy\.test:3128\n", printed)


@pytest.mark.parametrize("args, why", [
    (["--policy", "none"], "no policy"), (["--policy", "one"], "several listeners"),
    (["--policy", "one", "--listener", "plain"], "takes no tokens"), (["--policy", "one", "--listener", "none"], "no listener"),
    (["--policy", "one", "--listener", "strict", "--ttl", "31d"], "lives between"),
    (["--policy", "one", "--listener", "strict", "--ttl", "0s"], "lives between"),
    (["--policy", "one", "--listener", "strict", "--name", "plain"], "a listener has that name"),
    (["--policy", "one", "--listener", "strict", "--name", "a b"], "a name has"),
    (["--policy", "one", "--listener", "strict", "--name", "x" * 65], "a name has"),
    (["--policy", "one", "--listener", "strict", "--name", "twice"], "of the name twice lives")])
def test_what_is_not_made(world, args, why):
    if "twice" in args and not any(x["name"] == "twice" for x in ask_json(world, "sandbox", "list")["sandboxes"]):
        world.new("one", "--name", "twice")
    got = ask(world, "sandbox", "new", *args, status=1)
    assert why in got.stderr and got.stdout == ""


# ---- out ----


def test_none_is_refused(world):
    r = once(world, "/ok/one/a")
    check_refusal(r, 407, "token_required")
    assert r.get("proxy-authenticate") == 'Basic realm="stile"' and r.get("connection") == "close"
    with world.at("strict") as c:
        check_refusal(c.connect(f"origin.test:{world.origin.tls}"), 407, "token_required")
        assert c.at_end()


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


WRONGS = {
    "unknown": lambda b: Sandbox.field("Bearer " + WRONG),
    "unknown basic": lambda b: Sandbox.field("Basic " + b64("sandbox:" + WRONG)),
    "empty": lambda b: Sandbox.field(""),
    "no scheme": lambda b: Sandbox.field(b.token),
    "another scheme": lambda b: Sandbox.field("Digest " + b.token),
    "as the user": lambda b: Sandbox.field("Basic " + b64(b.token + ":")),
    "with a tail": lambda b: Sandbox.field("Bearer " + b.token + "x"),
    "cut": lambda b: Sandbox.field("Bearer " + b.token[:-1]),
    "another case": lambda b: Sandbox.field("Bearer " + b.token.swapcase()),
    "two in one": lambda b: Sandbox.field(f"Bearer {b.token}, Bearer {b.token}"),
    "twice": lambda b: b.basic + b.basic,
    "twice, other case": lambda b: b.basic + b.bearer.replace("Proxy-Auth", "proxy-auth"),
    "once right once wrong": lambda b: b.basic + Sandbox.field("Bearer " + WRONG),
    "base64 with a blank": lambda b: Sandbox.field("Basic " + b64("sandbox:" + b.token)[:8] + " " + b64("sandbox:" + b.token)[8:]),
    "base64 url alphabet": lambda b: Sandbox.field("Basic " + base64.urlsafe_b64encode(b"\xff\xff\xfe:" + b.token.encode()).decode()),
    "base64 without padding": lambda b: Sandbox.field("Basic " + b64("sb:" + b.token).rstrip("=")),
    "long": lambda b: Sandbox.field("Basic " + b64("s" * 2000 + ":" + b.token)),
    "in Authorization": lambda b: b.basic.replace("Proxy-Authorization", "Authorization"),
    "in a cookie": lambda b: f"Cookie: token={b.token}\r\n",
}


@pytest.mark.parametrize("listener", ["strict", "other"])
@pytest.mark.parametrize("what", WRONGS)
def test_a_wrong_one_is_refused(world, what, listener):
    box = world.new(listener=listener)
    r = None
    since = world.mark()

    def not_held():  # the tests before this one had wrong tokens as well
        nonlocal r
        r = once(world, "/ok/one/a", WRONGS[what](box), listener)
        return r.status != 429
    wait_for(not_held)
    elsewhere = what.startswith("in ")
    if listener == "other" and elsewhere:
        assert r.status == 200  # no token: the listener's own policy
        return
    check_refusal(r, 407, "token_required" if elsewhere else "token_invalid")
    denied = world.wait_record(since, event="request.deny", status=407)
    assert denied["sandbox"] == listener and "upstream" not in denied


def test_a_token_is_of_its_listener(world):
    box, other = world.new(listener="strict"), world.new(listener="other")
    check_refusal(once(world, "/ok/one/a", box.basic, "other"), 407, "token_invalid")
    check_refusal(once(world, "/ok/one/a", other.basic, "strict"), 407, "token_invalid")
    assert once(world, "/ok/one/a", other.basic, "other").status == 200
    # Where no tokens are asked for it means nothing, and goes nowhere.
    seen = world.origin.mark()
    assert once(world, "/ok/a", box.basic, "plain").status == 200
    assert b"roxy-auth" not in world.origin.since(seen).lower()


def test_optional(world):
    box = world.new(listener="other")
    since = world.mark()
    assert once(world, "/ok/three", "", "other").status == 200
    check_refusal(once(world, "/ok/three", box.basic, "other"), 403, "no_rule")
    assert {r["sandbox"] for r in world.wait_records(3, since, listener="other")} == {"other", box.name}


def test_a_connection_is_one_sandboxes(world):
    one, two = world.new(), world.new(listener="strict")
    with world.at("strict") as c:
        assert c.ask(plain(world, "/ok/one/a", one.basic)).status == 200
        assert c.ask(plain(world, "/ok/one/b", one.bearer)).status == 200
        check_refusal(c.ask(plain(world, "/ok/one/c", two.basic)), 407, "token_invalid")
        assert c.at_end()
    with world.at("strict") as c:
        assert c.ask(plain(world, "/ok/one/a", one.basic)).status == 200
        check_refusal(c.ask(plain(world, "/ok/one/b")), 407, "token_required")
    three = world.new(listener="other")
    with world.at("other") as c:  # one that began without does not become another's
        assert c.ask(plain(world, "/ok/a")).status == 200
        check_refusal(c.ask(plain(world, "/ok/one/b", three.basic)), 407, "token_invalid")


def test_in_a_tunnel_the_field_is_not_ours(world):
    one, two = world.new("one"), world.new("two")
    seen, since = world.origin.mark(), world.mark()
    target = f"origin.test:{world.origin.tls}"
    with world.at("strict") as c:
        assert c.connect(target, one.basic).status == 200
        c.start_tls(world.context(), "origin.test")
        for more in ("", two.basic, Sandbox.field("Bearer " + WRONG)):
            assert c.ask(get("/ok/one/a", host=target, more=more)).status == 200
        check_refusal(c.ask(get("/ok/two/a", host=target, more=two.basic)), 403, "no_rule")
    assert {r["sandbox"] for r in world.wait_records(7, since)} == {one.name}
    assert b"roxy-auth" not in world.origin.since(seen).lower()


def test_nothing_of_it_goes_upstream(world):
    box = world.new()
    seen = world.origin.mark()
    assert once(world, "/echo/a", box.basic).status == 200
    got = world.origin.since(seen).lower()
    assert b"get /echo/a" in got and b"roxy-auth" not in got and box.token.lower().encode() not in got


def test_the_token_where_it_is_logged(world):
    """A client that writes the proxy's user information into its request by mistake."""
    box = world.new()
    world.tokens.remove(box.token)
    place, user = f"origin.test:{world.origin.plain}", f"sandbox:{box.token}@"
    for target, host in ((f"http://{user}{place}/ok/one/a", place), (f"http://{place}/ok/one/a", user + place),
                         (f"http:{user}{place}/ok/one/a", user + place), (user + place, place), ("x", user)):
        for method in ("GET", "CONNECT"):
            with world.at("strict") as c:
                r = c.ask(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{box.basic}\r\n".encode(), "GET")
                assert r.status == 400, (method, target, host)
    assert once(world, f"/ok/one/a?token={box.token}", box.basic).status == 200
    world.settled()
    assert box.token not in world.log_path.read_text()


# ---- two of them ----


def test_nothing_is_shared(make):
    """One origin, the same path for both: own credential, own connection, own TLS session."""
    world = make(limits={"workers": 1})
    boxes = [world.new("one"), world.new("two"), world.new("one")]
    target = f"origin.test:{world.origin.tls}"
    got = []
    for _ in range(2):
        for box in boxes:
            with world.at("strict") as c:
                assert c.connect(target, box.basic).status == 200
                c.start_tls(world.context(), "origin.test")
                told = c.ask(get("/echo/shared", host=target)).json()
                got.append((told["connection"], dict(told["headers"])["Authorization"]))
                assert told["tls"]["resumed"] is False or len(got) > 3
    one, two = ("Bearer " + world.secrets[n] for n in ("one", "two"))
    assert [a for _, a in got] == [one, two, one] * 2
    assert len({c for c, _ in got[:3]}) == 3, got
    assert [c for c, _ in got[3:]] == [c for c, _ in got[:3]], "each finds its own again"
    clear_ones = [once(world, "/echo/clear", box.basic).json()["connection"] for box in boxes]
    assert len(set(clear_ones)) == 3


def test_a_name_that_is_used_again_inherits_nothing(make):
    world = make(limits={"workers": 1})
    first = world.new("one", "--name", "again")
    was = once(world, "/echo/again", first.basic).json()["connection"]
    first.revoke()
    second = world.new("one", "--name", "again")
    assert second.token != first.token and second.id != first.id
    assert once(world, "/echo/again", second.basic).json()["connection"] != was
    check_refusal(once(world, "/echo/again", first.basic), 407, "token_revoked")


# ---- the end ----


@contextlib.contextmanager
def everything_open(s: World, box: Sandbox):
    """A tunnel, a download in the middle, a WebSocket, HTTP/2 with a request under way, a kept connection in clear, one
    within TLS, a CONNECT with nothing inside, a request that waits. [what, both ends' sockets, its record's key]"""
    target = f"origin.test:{s.origin.tls}"
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(Peer())

        def client() -> Raw:
            return stack.enter_context(s.at("strict"))
        tunnel = client()
        assert tunnel.connect(f"origin.test:{peer.port}", box.basic).status == 200
        tunnel.send(b"\x00first")
        tunnel_end = stack.enter_context(peer.accept())
        assert tunnel_end.read(6) == b"\x00first"

        download = client()
        download.send(get(f"http://origin.test:{peer.port}/echo/download", more=box.basic))
        download_end = stack.enter_context(peer.accept())
        download_end.read_head()
        download_end.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000)
        download.response_head()
        assert download.read(1000) == b"x" * 1000

        closing = client()  # an answer that only the connection's end ends
        closing.send(get(f"http://origin.test:{peer.port}/echo/closing", more=box.basic, version="1.0"))
        closing_end = stack.enter_context(peer.accept())
        closing_end.read_head()
        closing_end.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
        closing.response_head()
        assert closing.read(4) == b"some"

        ws = client()
        ws.send(clear(peer.port, more=box.basic))
        ws_end = stack.enter_context(peer.accept())
        ws_end.read_head()
        ws_end.send(yes())
        assert ws.response_head().status == 101
        ws.send(wslib.frame(wslib.TEXT, b"hi"))
        assert ws_end.read(8)

        waiting = client()
        waiting.send(get(f"http://origin.test:{peer.port}/echo/waiting", more=box.basic))
        waiting_end = stack.enter_context(peer.accept())
        waiting_end.read_head()

        kept = client()
        assert kept.ask(plain(s, "/ok/one/kept", box.basic)).status == 200
        inside = client()
        assert inside.connect(target, box.basic).status == 200
        inside.start_tls(s.context(), "origin.test")
        assert inside.ask(get("/ok/one/inside", host=target)).status == 200
        empty = client()
        assert empty.connect(target, box.basic).status == 200

        was, s.port = s.port, s.ports["strict"]
        h2 = stack.enter_context(H2(s, more=box.basic))
        s.port = was
        assert h2.get("/ok/one/h2").status == 200
        gate = "token-" + os.urandom(6).hex()
        h2.ask(path=f"/slow?gate={gate}")
        s.wait_record(event="request.start", path="/slow")
        yield {"tunnel": tunnel, "download": download, "closing": closing, "ws": ws, "waiting": waiting, "kept": kept, "inside": inside,
               "empty": empty}, h2, [tunnel_end, download_end, closing_end, ws_end, waiting_end]
        s.origin.open_gate(gate)


def is_over(c: Raw) -> bool:
    c.sock.settimeout(TIMEOUT)
    try:
        while c.fill():
            pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("how, workers", [("revoked", 1), ("revoked", 3), ("expired", 2)])
def test_the_end_of_a_token_is_the_end_of_all_that_it_carried(make, how, workers):
    begun = time.monotonic()
    s = make(limits={"workers": workers, "peek": "5m", "idle": "5m"})
    other = s.new("one")
    # Long enough to open everything, however busy the machine is.
    life = int(max(4 * SLOWER, 5 * (time.monotonic() - begun)))
    box = s.new("one", *(["--ttl", f"{life}s"] if how == "expired" else []))
    made = time.monotonic()
    with s.at("strict") as still, everything_open(s, box) as (clients, h2, ends):
        assert still.ask(plain(s, "/ok/one/a", other.basic)).status == 200
        assert time.monotonic() - made < life or how == "revoked", "the machine is too slow for this test"
        open_now = box.listed()["connections"]
        assert open_now == 9
        since = s.mark()
        if how == "revoked":
            # Told only when it is so.
            assert ask_json(s, "sandbox", "revoke", box.id)["connections"] == 0
        for what, c in clients.items():
            assert is_over(c), what
        h2.until(lambda: h2.closed)
        for end in ends:
            assert is_over(end)
        word = f"token_{how}"
        ended = s.wait_record(since, event="tunnel.end", error=word)
        if how == "expired":
            assert -life / 2 < ended["ms"]["total"] / 1000 - life < 3 * SLOWER
        s.wait_records(5, since, event="request.end", error=word)
        assert s.wait_record(since, event="tunnel.deny", reason=word)["sandbox"] == box.name
        assert {r["sandbox"] for r in s.records(since) if word in (r.get("error"), r.get("reason"))} == {box.name}
        check_refusal(once(s, "/ok/one/a", box.basic), 407, word)
        assert s.wait_record(since, event="request.deny", reason=word)["sandbox"] == box.name
        assert box.listed() is None
        # The neighbour goes on.
        assert still.ask(plain(s, "/ok/one/b", other.basic)).status == 200
    assert ask(s, "sandbox", "revoke", box.name, status=1).stderr.startswith("stile: no living sandbox")


def test_an_answer_that_is_cut_does_not_look_whole(make):
    """To an HTTP/1.0 client the end of the connection is the end of the answer, so it must be no clean one."""
    s = make()
    box = s.new()
    with Peer() as peer, s.at("strict") as c:
        c.send(get(f"http://origin.test:{peer.port}/echo/a", more=box.basic, version="1.0"))
        with peer.accept() as o:
            o.read_head()
            o.send(b"HTTP/1.1 200 OK\r\n\r\nsome")
            assert c.read_until(b"some").endswith(b"some")
            box.revoke()
            with pytest.raises(ConnectionResetError):
                c.sock.recv(1)


def test_revoked_while_a_record_is_on_its_way(make):
    """At every moment of a request's life: none is left without its end, and none goes on."""
    s = make(limits={"workers": 2})
    for round_ in range(8):
        box = s.new()
        stop = threading.Event()

        def ask_on():
            while not stop.is_set():
                with contextlib.suppress(OSError, AssertionError, http.client.HTTPException):
                    with s.at("strict") as c:
                        for _ in range(20):
                            if c.ask(plain(s, "/ok/one/a", box.basic)).status != 200:
                                return
        threads = [threading.Thread(target=ask_on) for _ in range(4)]
        for t in threads:
            t.start()
        wait_for(lambda: box.listed()["connections"] >= 2)
        box.revoke()
        since = s.mark()
        stop.set()
        for t in threads:
            t.join(TIMEOUT)
        assert not [r for r in s.records(since) if r["event"] == "request.start" and r["sandbox"] == box.name], round_


# ---- guessing ----


def test_guesses_are_slowed_and_a_right_token_is_not(make):
    s = make(limits={"workers": 1})
    box = s.new()

    def wrong() -> int:
        return once(s, "/ok/one/a", Sandbox.field("Bearer stile_" + os.urandom(32).hex()[:43])).status
    begun = time.monotonic()
    got = [wrong() for _ in range(30)]
    # Ten in a second are answered at once; each other one takes a second of its own.
    assert got.count(407) <= 10 * (time.monotonic() - begun + 1) and got.count(429) >= 1
    held = [s.at("strict") for _ in range(40)]
    for c in held:
        c.send(plain(s, "/ok/one/a", Sandbox.field("Bearer " + WRONG)))
    begun = time.monotonic()
    assert once(s, "/ok/one/a", box.basic).status == 200
    answers = [c.response() for c in held]
    late = [r for r in answers if r.status == 429]
    assert len(late) >= 29 and all(r.get("retry-after") for r in late)
    assert time.monotonic() - begun > 0.5
    for c in held:
        c.close()
    assert s.wait_record(event="request.deny", reason="rate_limited")["status"] == 429


# ---- reload ----


def test_tokens_survive_a_reload(make):
    s = make()
    one, two = s.new("one"), s.new("two")
    target = f"origin.test:{s.origin.tls}"
    with s.at("strict") as c:
        assert c.connect(target, two.basic).status == 200
        c.start_tls(s.context(), "origin.test")
        assert c.ask(get("/ok/two/a", host=target)).status == 200
        # The policy of `two` is gone, and with it all that it admitted.
        s.reload(policies={k: v for k, v in POLICIES.items() if k != "two"},
                 credentials={"one": s.settings["credentials"]["one"]})
        check_refusal(c.ask(get("/ok/two/a", host=target)), 403, "no_rule")
    assert once(s, "/ok/one/a", one.basic).status == 200
    check_refusal(once(s, "/ok/two/a", two.basic), 403, "no_rule")
    assert "no policy" in ask(s, "sandbox", "new", "--policy", "two", "--listener", "strict", status=1).stderr
    s.reload(policies={**POLICIES, "two": [allow("http://origin.test:*/ok/new/**")]}, credentials={
        "one": s.settings["credentials"]["one"]})
    assert once(s, "/ok/new/a", two.basic).status == 200
    since = s.mark()
    assert "listen" in s.reload(good=False, listen=[{**LISTEN[0], "tokens": "optional", "policy": "open"}, *LISTEN[1:]])["error_detail"]
    check_refusal(once(s, "/ok/a"), 407, "token_required")
    assert s.records(since)


def test_a_tunnel_of_a_policy_that_is_gone_is_closed(make):
    s = make()
    box = s.new("one")
    with Peer() as peer, s.at("strict") as c:
        assert c.connect(f"origin.test:{peer.port}", box.basic).status == 200
        c.send(b"\x00x")
        with peer.accept() as o:
            assert o.read(2) == b"\x00x"
            s.reload(policies={k: v for k, v in POLICIES.items() if k != "one"},
                     credentials={"two": s.settings["credentials"]["two"]})
            assert is_over(c) and is_over(o)
    assert s.wait_record(event="tunnel.end")["error"] == "policy_revoked"


def test_tokens_die_with_the_process(make, origin):
    s = make()
    box = s.new()
    s.stop()
    again = Stile(s.folder, origin, **{k: v for k, v in s.settings.items() if v is not None})
    with again.client() as c:
        check_refusal(c.ask(plain(again, "/ok/one/a", box.basic)), 407, "token_invalid")
    again.finish()


def test_on_a_unix_socket(make):
    s = make(listen=[*LISTEN, {"name": "path", "proxy": "unix:proxy.sock", "tokens": "required"}])
    told = ask_json(s, "sandbox", "new", "--policy", "one", "--listener", "path")
    assert told["at"] == f"unix:{s.folder}/proxy.sock" and "url" not in told
    printed = ask(s, "sandbox", "new", "--policy", "one", "--listener", "path").stdout
    assert re.fullmatch(r"stile_[\w-]{43}\n", printed)
    for token in (told["token"], printed.strip()):
        s.tokens.append(token)
        with Raw(socket.socket(socket.AF_UNIX)) as c:
            c.sock.connect(str(s.folder / "proxy.sock"))
            assert c.ask(plain(s, "/ok/one/a", Sandbox.field("Bearer " + token))).status == 200


# ---- real clients ----


def run(*args, status=0, **env) -> subprocess.CompletedProcess:
    got = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=TIMEOUT * 2, env=clean_env(**env))
    assert got.returncode == status, got.stdout + got.stderr
    return got


def proxy_env(s: Stile, url: str) -> dict[str, str]:
    return {"HTTPS_PROXY": url, "https_proxy": url, "http_proxy": url, "HTTP_PROXY": url, "NO_PROXY": "", "no_proxy": "",
            "SSL_CERT_FILE": str(s.ca), "REQUESTS_CA_BUNDLE": str(s.ca), "CURL_CA_BUNDLE": str(s.ca), "NODE_EXTRA_CA_CERTS": str(s.ca),
            "GIT_SSL_CAINFO": str(s.ca)}


def bases(s: Stile) -> list[str]:
    return [f"http://origin.test:{s.origin.plain}", f"https://origin.test:{s.origin.tls}"]


def wrong_url(box: Sandbox) -> str:
    return box.url.replace(box.token, WRONG)


def test_curl(world):
    box = world.new()
    for base in bases(world):
        got = run("curl", "-sS", f"{base}/ok/one/a", f"{base}/ok/one/b", **proxy_env(world, box.url))
        assert got.stdout == "ok /ok/one/a\nok /ok/one/b\n"
        got = run("curl", "-sS", "--proxy-anyauth", f"{base}/ok/one/a", **proxy_env(world, box.url))
        assert got.stdout == "ok /ok/one/a\n"
    got = run("curl", "-sS", bases(world)[1] + "/ok/one/a", status=56, **proxy_env(world, wrong_url(box)))
    assert "407" in got.stderr or "429" in got.stderr


REQUESTS = """
import sys, requests
with requests.Session() as s:
    for base in sys.argv[1:]:
        for _ in range(3):
            r = s.get(base + '/ok/one/a')
            assert (r.status_code, r.text) == (200, 'ok /ok/one/a\\n'), r
        assert s.get(base + '/ok/two/a').json()['reason'] == 'no_rule'
"""


def test_requests(world):
    box = world.new()
    if subprocess.run([PYTHON, "-c", "import requests"], capture_output=True).returncode:
        pytest.skip("python3-requests is not installed")
    run(PYTHON, "-c", REQUESTS, *bases(world), **proxy_env(world, box.url))
    got = run(PYTHON, "-c", REQUESTS, bases(world)[1], status=1, **proxy_env(world, wrong_url(box)))
    assert "407" in got.stderr or "429" in got.stderr


def test_git(make, origin, tmp_path):
    server = GitServer(origin, tmp_path / "served") if (tmp_path / "served").mkdir() is None else None
    try:
        url = server.make("a.git")
        s = make(policies={**POLICIES, "one": [*ONE, {"allow": f"{server.base}/**", "addresses": LOOPBACK}]})
        box = s.new()
        env = {**git_env(HOME=str(tmp_path)), **proxy_env(s, box.url)}
        got = subprocess.run(["git", "ls-remote", url], env=env, capture_output=True, text=True, timeout=TIMEOUT * 2)
        assert got.returncode == 0, got.stderr
        assert s.wait_records(1, event="request.end", status=200)[0]["sandbox"] == box.name
        got = subprocess.run(["git", "ls-remote", url], env={**env, **proxy_env(s, wrong_url(box))}, capture_output=True,
                             text=True, timeout=TIMEOUT * 2)
        assert got.returncode != 0 and "407" in got.stderr
    finally:
        server.close()


NODE = """
const https = require('https'), lib = require('https-proxy-agent'), [base] = process.argv.slice(2);
const Agent = lib.HttpsProxyAgent || lib, agent = new Agent(process.env.HTTPS_PROXY);
https.get(base + '/ok/one/a', {agent}, r => {
  let text = '';
  r.on('data', d => text += d).on('end', () => console.log(r.statusCode, text.trim()));
}).on('error', e => { console.log('error', e.message); });
"""


def test_node(world, tmp_path):
    env = {"NODE_PATH": "/usr/share/nodejs"}
    if not shutil.which("node") or subprocess.run(["node", "-e", "require('https-proxy-agent')"], capture_output=True,
                                                  env=clean_env(**env)).returncode:
        pytest.skip("node or node-https-proxy-agent is not installed")
    box = world.new()
    (tmp_path / "client.js").write_text(NODE)
    got = run("node", tmp_path / "client.js", bases(world)[1], **{**proxy_env(world, box.url), **env})
    assert got.stdout == "200 ok /ok/one/a\n"
    got = run("node", tmp_path / "client.js", bases(world)[1], **{**proxy_env(world, wrong_url(box)), **env})
    assert "200" not in got.stdout


# ---- many ----


def test_a_thousand(make):
    """What they cost: memory of the process, and the time of a request that brings one."""
    s = make(limits={"workers": 1})
    first = s.new()
    assert once(s, "/ok/one/a", first.basic).status == 200
    before = s.rss_kib()
    for i in range(1000):
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(str(s.folder / "admin.sock"))
            c.sendall(json.dumps({"do": "sandbox.new", "policy": "one", "listener": "strict", "ttl_ms": 3600000}).encode() + b"\n")
            data = b""
            while got := c.recv(65536):
                data += got
            last = json.loads(data)
            assert last["ok"], last
    s.tokens.append(last["token"])
    grown = s.rss_kib() - before
    assert grown < (1500 if SLOWER == 1 else 20000), grown
    told = ask_json(s, "sandbox", "list")["sandboxes"]
    assert len(told) == 1001 and [x["id"] for x in told][-1] == last["id"]
    assert once(s, "/ok/one/a", Sandbox.field("Bearer " + last["token"])).status == 200
    print(f"1,000 tokens: {grown} KiB")


# ---- records of the tokens themselves ----


def test_its_making_and_its_end_are_records(world):
    since = world.mark()
    box = world.new("one", "--name", "audited")
    # It is there when the command has its answer, and has no token in it (World.finish looks for those).
    made, = [r for r in world.records(since) if r["event"] == "sandbox.new"]
    assert {**made, "time": 0, "error_detail": ""} == {
        "time": 0, "event": "sandbox.new", "id": box.id, "sandbox": "audited", "client": f"admin:uid={os.getuid()}",
        "listener": "strict", "policy": "one", "error_detail": ""}
    assert made["error_detail"] == f"good until {box.listed()['ends']}"
    box.revoke()
    end, = [r for r in world.records(since) if r["event"] == "sandbox.end" and r["id"] == box.id]
    assert (end["reason"], end["client"], end["sandbox"], end["policy"]) == \
        ("token_revoked", f"admin:uid={os.getuid()}", "audited", "one")


def test_an_end_by_itself_is_a_record_of_nobody(world):
    since = world.mark()
    box = world.new("one", "--ttl", "1s")
    end = world.wait_record(since, event="sandbox.end", id=box.id)
    assert end["reason"] == "token_expired" and "client" not in end
    time.sleep(1)  # two more looks
    assert len([r for r in world.records(since) if r["event"] == "sandbox.end" and r["id"] == box.id]) == 1


def test_a_token_whose_record_cannot_be_written_is_not_given_out(origin, tmp_path):
    s = Stile(tmp_path, origin, extra=ADMIN, listen=LISTEN[:1], policies={"one": [allow("http://origin.test:*/ok/**")]},
              log={"to": "/dev/full"})
    got = ask(s, "sandbox", "new", "--policy", "one", status=1)
    assert "log" in got.stderr and "stile_" not in got.stdout
    assert ask_json(s, "sandbox", "list")["sandboxes"] == []
    s.finish()
