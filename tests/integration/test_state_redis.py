"""Two stiles that share the tokens of sandboxes through a real Redis: what one makes the other serves, what one ends the
other closes; and without Redis none is served for longer than `grace`, until it is back."""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import time

import pytest

from adminlib import ADMIN, Sandbox, ask, ask_json, stile_cli
from redislib import SERVER, Redis
from stilelib import LOOPBACK, SLOWER, TIMEOUT, Peer, Raw, Stile, allow, check_refusal, get, wait_for

pytestmark = pytest.mark.skipif(not SERVER, reason="redis-server is not installed")

RULES = [allow("http://origin.test:*/ok/**"), {"allow": "tcp://origin.test:*", "addresses": LOOPBACK}]
POLICIES = {"agent": RULES, "tests": [allow("http://origin.test:*/ok/tests/**")]}
LISTEN = [{"name": "strict", "proxy": "127.0.0.1:0", "tokens": "required"},
          {"name": "plain", "proxy": "127.0.0.1:0", "policy": "agent"}]
GRACE = 2 * SLOWER


class Replica(Stile):
    def __init__(self, folder, origin, redis: Redis, grace=GRACE, prefix=None, wait=True, url=None, **more):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "redis-password").write_text(redis.password)
        (folder / "redis-password").chmod(0o600)
        state = {"url": url or redis.url, "credential": "redis", "grace": f"{grace}s", **({"prefix": prefix} if prefix else {})}
        self.redis = redis
        super().__init__(folder, origin, **{
            "extra": f"{ADMIN}\nstate: {json.dumps(state)}", "listen": LISTEN, "policies": POLICIES,
            "credentials": {"redis": {"from": {"file": str(folder / "redis-password")}, "as": "bearer"}}, **more})
        self.ports = {x["name"]: int(x["at"].rpartition(":")[2]) for x in self.status()["listeners"]}
        if wait:
            self.wait_up()

    def status(self) -> dict:
        got = stile_cli("status", "--json", "-c", self.config)
        return json.loads(got.stdout)

    def wait_up(self) -> None:
        wait_for(lambda: self.status()["state"]["available"], why=lambda: self.status()["state"])

    def new(self, *args, policy="agent") -> Sandbox:
        return Sandbox(self, policy, "--listener", "strict", *args)

    def at(self, listener: str = "strict") -> Raw:
        return Raw(socket.create_connection(("127.0.0.1", self.ports[listener]), TIMEOUT))

    def get(self, box, path: str = "/ok/a", listener: str = "strict"):
        with self.at(listener) as c:
            return c.ask(get(f"http://origin.test:{self.origin.plain}{path}", more=getattr(box, "basic", box or "")))

    def finish(self) -> None:
        super().finish()
        assert self.redis.password not in self.stderr + self.log_path.read_text()


@pytest.fixture
def redis(tmp_path):
    made = Redis(tmp_path / "redis")
    yield made
    made.finish()


@pytest.fixture
def make(origin, tmp_path):
    made = []

    def new(redis, **more) -> Replica:
        made.append(Replica(tmp_path / f"replica{len(made)}", origin, redis, **more))
        return made[-1]
    yield new
    for s in made:
        s.finish()


@pytest.fixture
def pair(make, redis):
    return make(redis), make(redis)


def becomes(s: Replica, box, status: int) -> None:
    """What is cut while it asks is asked again."""
    def look():
        try:
            return s.get(box).status == status
        except (AssertionError, OSError):
            return False
    wait_for(look, why=f"{status}")


def new_soon(s: Replica) -> Sandbox:
    """The same of a new one."""
    made = []

    def look():
        try:
            made.append(s.new())
        except AssertionError:
            return False
        return True
    wait_for(look, why="a sandbox")
    return made[0]


def is_closed(c: Raw, seconds: float = TIMEOUT) -> bool:
    c.sock.settimeout(seconds)
    try:
        while c.fill():
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@contextlib.contextmanager
def tunnel(s: Replica, box: Sandbox):
    """An opaque one, which runs; the client's end of it."""
    with Peer() as peer, s.at() as c:
        assert c.connect(f"origin.test:{peer.port}", box.basic).status == 200
        c.send(b"\x00hello")
        with peer.accept() as far:
            runs(c, far)
            c.far = far
            yield c


def runs(c: Raw, far: Raw) -> bool:
    far.send(b"\x01there")
    c.sock.settimeout(TIMEOUT)
    return c.sock.recv(6) == b"\x01there"


def test_what_one_makes_the_other_serves_at_once_and_ends(pair):
    a, b = pair
    since = a.mark(), b.mark()
    # Many, one after the other, each used at the other within the same millisecond or so.
    for i in range(20):
        here, there = (a, b) if i % 2 else (b, a)
        box = here.new("--name", f"box-{i}", policy="tests")
        assert there.get(box, "/ok/tests/a").status == 200, i
        check_refusal(there.get(box, "/ok/other"), 403, "no_rule")
    assert {x["name"] for x in ask_json(b, "sandbox", "list")["sandboxes"]} == {f"box-{i}" for i in range(20)} \
        == {x["name"] for x in ask_json(a, "sandbox", "list")["sandboxes"]}
    # A name is one sandbox's, wherever it was made.
    got = ask(b, "sandbox", "new", "--policy", "agent", "--listener", "strict", "--name", "box-1", status=1)
    assert "a sandbox of the name box-1 lives" in got.stderr and not got.stdout
    ask(b, "sandbox", "revoke", "box-1")
    again = b.new("--name", "box-1")
    assert a.get(again).status == 200
    # The token decides the policy and the listener, as ever; and a wrong one is none, at once.
    begun = time.monotonic()
    check_refusal(a.get("Proxy-Authorization: Bearer stile_" + "A" * 43 + "\r\n"), 407, "token_invalid")
    assert time.monotonic() - begun < 2 * SLOWER
    for s, mark in zip(pair, since):
        made = [r for r in s.records(mark) if r["event"] == "sandbox.new"]
        assert len(made) in (10, 11) and all(r["client"] == f"admin:uid={os.getuid()}" for r in made)


def test_what_one_ends_the_other_closes(pair):
    a, b = pair
    box, other = a.new("--name", "ends"), a.new("--name", "stays")
    since = b.mark()
    with tunnel(b, box) as carried, tunnel(b, other) as still, tunnel(a, box) as here:
        begun = time.monotonic()
        ask(a, "sandbox", "revoke", "ends")
        assert is_closed(here) and is_closed(carried)
        assert time.monotonic() - begun < 2 * SLOWER
        end = b.wait_record(since, event="tunnel.end", error="token_revoked")
        assert end["sandbox"] == "ends"
        check_refusal(b.get(box), 407, "token_revoked")
        told = b.wait_record(since, event="sandbox.end", id=box.id)
        assert told["reason"] == "token_revoked" and "client" not in told
        assert a.wait_record(event="sandbox.end", id=box.id)["client"] == f"admin:uid={os.getuid()}"
        assert runs(still, still.far)
    assert b.get(other).status == 200
    # One that started later knows the end, too; from the other side, by id.
    ask(b, "sandbox", "revoke", other.id)
    becomes(a, other, 407)
    check_refusal(a.get(other), 407, "token_revoked")


def test_a_late_replica_knows_all(make, redis):
    a = make(redis)
    lives, ended, short = a.new(), a.new(), a.new("--ttl", "1s")
    ended.revoke()
    b = make(redis)
    assert b.get(lives).status == 200
    check_refusal(b.get(ended), 407, "token_revoked")
    a.wait_record(event="sandbox.end", id=short.id, reason="token_expired")
    check_refusal(b.get(short), 407, "token_expired")
    # A stile that ends does not end them.
    a.stop()
    assert b.get(lives).status == 200
    # Nothing of a token lies there, and nothing for ever.
    keys = redis("KEYS", "*")
    everything = b"".join(redis("GET", k) or b"" for k in keys if b":token:" in k or b":name:" in k) + b" ".join(keys)
    assert keys and all(k.startswith(b"{stile}:") for k in keys)
    for box in lives, ended, short:
        assert box.token.encode() not in everything
        digest = hashlib.sha256(box.token.encode()).hexdigest().encode()
        assert 0 < redis("PTTL", b"{stile}:token:" + digest) <= 2 * 3600 * 1000


def test_fleets_with_other_prefixes_share_nothing(make, redis):
    a, b = make(redis), make(redis, prefix="elsewhere")
    check_refusal(b.get(a.new("--name", "same")), 407, "token_invalid")
    assert b.get(b.new("--name", "same")).status == 200


@pytest.mark.parametrize("how", ["killed", "stands still"])
def test_without_redis_nothing_is_served_for_long_and_it_recovers_alone(make, redis, how):
    a, b = make(redis), make(redis)
    box = a.new("--name", "known")
    since = b.mark()
    assert b.get(box).status == 200
    with tunnel(b, box) as carried:
        redis.kill() if how == "killed" else redis.stop()
        lost = time.monotonic()
        # A known one still works, for now; a new one cannot be made, nor an unknown one be told from a wrong one.
        assert b.get(box).status == 200
        got = ask(a, "sandbox", "new", "--policy", "agent", "--listener", "strict", status=1)
        assert "out of reach" in got.stderr and not got.stdout
        wait_for(lambda: not b.status()["state"]["tokens_served"] and not b.status()["state"]["available"])
        assert time.monotonic() - lost < GRACE + 5 * SLOWER
        assert is_closed(carried)
        assert b.wait_record(since, event="tunnel.end", error="state_unavailable")["sandbox"] == "known"
        check_refusal(b.get(box), 503, "state_unavailable")
        check_refusal(b.get("Proxy-Authorization: Bearer stile_" + "A" * 43 + "\r\n"), 503, "state_unavailable")
        # Who has no token is served as ever.
        assert b.get(None, listener="plain").status == 200
        status = b.status()
        assert not status["healthy"] and not status["state"]["available"] and status["state"]["error"]
        assert "no token is served" in ask(b, "status", status=1).stdout
    if how == "stands still":
        redis.go_on()
        # It held its data, so what was known is good again.
        wait_for(lambda: b.status()["state"]["available"])
        assert b.get(box).status == 200
    else:
        # It comes back empty: its tokens are gone, and stay so.
        redis.start()
        wait_for(lambda: b.status()["state"]["available"])
        check_refusal(b.get(box), 407, "token_revoked")
        assert b.wait_record(since, event="sandbox.end", id=box.id)["reason"] == "token_revoked"
    a.wait_up()
    fresh = a.new()
    assert b.get(fresh).status == 200
    assert b.status()["healthy"]
    b.stop()
    assert len(re.findall(r"out of reach: ", b.stderr)) == 1 and b.stderr.count("is in reach") == 1, b.stderr


def test_emptied_while_it_runs(pair, redis):
    a, b = pair
    box = a.new()
    with tunnel(b, box) as carried:
        redis("FLUSHALL")
        assert is_closed(carried)
    for s in pair:
        becomes(s, box, 407)
    fresh = a.new()
    assert b.get(fresh).status == 200


def test_an_end_that_could_not_be_told_of_is_told_later(pair, redis):
    a, b = pair
    box = a.new("--name", "owed")
    assert b.get(box).status == 200
    redis.stop()
    got = ask(a, "sandbox", "revoke", "owed", status=1)
    assert "it has ended here" in got.stderr
    check_refusal(a.get(box), (407, 503), ("token_revoked", "state_unavailable"))
    assert a.wait_record(event="sandbox.end", id=box.id)["reason"] == "token_revoked"
    redis.go_on()
    becomes(b, box, 407)
    check_refusal(b.get(box), 407, "token_revoked")
    wait_for(lambda: a.status()["state"]["tokens_served"])
    check_refusal(a.get(box), 407, "token_revoked")


def test_an_end_that_was_never_told_of(make, redis):
    a = make(redis)
    a.new("--name", "owed")
    redis.stop()
    ask(a, "sandbox", "revoke", "owed", status=1)
    a.stop()
    redis.go_on()
    assert "the end of sandbox owed could not be told of before this stile ended (revoke it again)" in a.stderr
    # And so it is.
    b = make(redis)
    ask(b, "sandbox", "revoke", "owed")


def test_a_replica_is_none_that_hears_of_ends(pair, redis):
    """It has lost its master, and answers every question with what it knew then."""
    a, b = pair
    box, ended = a.new(), a.new("--name", "ended")
    with tunnel(b, box) as carried:
        redis("REPLICAOF", "127.0.0.1", "1")
        assert is_closed(carried)
    check_refusal(b.get(box), 503, "state_unavailable")
    assert "replica" in b.status()["state"]["error"]
    got = ask(a, "sandbox", "revoke", "ended", status=1)
    assert "it has ended here" in got.stderr
    assert "out of reach" in ask(a, "sandbox", "new", "--policy", "agent", "--listener", "strict", status=1).stderr
    # Nor does one that begins there take it for current.
    redis("CLIENT", "KILL", "TYPE", "normal")
    with pytest.raises(AssertionError):
        wait_for(lambda: b.status()["state"]["available"], seconds=2)
    redis("REPLICAOF", "NO", "ONE")
    becomes(b, box, 200)
    becomes(b, ended, 407)


def test_a_full_redis(pair, redis):
    """It gives no more memory: what there is can be read, and ended, which needs none."""
    a, b = pair
    box, ended = a.new(), a.new()
    assert b.get(box).status == b.get(ended).status == 200
    redis("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis("CONFIG", "SET", "maxmemory", "1mb")
    assert "no memory" in ask(a, "sandbox", "new", "--policy", "agent", "--listener", "strict", status=1).stderr
    ended.revoke()
    becomes(b, ended, 407)
    check_refusal(b.get(ended), 407, "token_revoked")
    # One that connects now reads all of it.
    redis("CLIENT", "KILL", "TYPE", "normal")
    becomes(b, box, 200)
    redis("CONFIG", "SET", "maxmemory", "0")
    becomes(b, new_soon(a), 200)


def test_what_others_write_there(make, redis):
    """Nonsense, records of policies that are not ours, lives that nobody gives out: none opens anything."""
    a = make(redis)
    now = int(time.time() * 1e6)
    good = {"form": 1, "name": "planted", "policy": "agent", "listener": "strict", "created_us": now, "ends_us": now + 10 ** 9}
    cases = {"as it should be": json.dumps(good), "policy": json.dumps({**good, "policy": "unknown"}),
             "listener": json.dumps({**good, "listener": "plain"}), "no json": "{", "empty": "", "list": "[]",
             "too long": json.dumps({**good, "more": "x" * 2000}), "member": json.dumps({**good, "admin": True}),
             "name": json.dumps({**good, "name": "a\nb"}), "life": json.dumps({**good, "ends_us": now + 10 ** 14}),
             "past": json.dumps({**good, "ends_us": now - 1}), "form": json.dumps({**good, "form": 2}),
             "time": json.dumps({**good, "ends_us": "soon"}), "twice": json.dumps(good)[:-1] + ',"name":"x"}',
             "bytes": b"\xff\xfe\x00", "deep": "[" * 900, "number": "17", "false": json.dumps({**good, "revoked": False}),
             "long name": json.dumps({**good, "name": "n" * 65})}
    tokens = {}
    for n, (what, record) in enumerate(cases.items(), 1):
        token = tokens[what] = "stile_" + os.urandom(22).hex()[:43]
        digest = hashlib.sha256(token.encode()).hexdigest()
        redis("SET", f"{{stile}}:token:{digest}", record)
        redis("ZADD", "{stile}:changes", 1000 + n, digest)
    # A list where a text should be.
    token = tokens["kind"] = "stile_" + os.urandom(22).hex()[:43]
    redis("RPUSH", "{stile}:token:" + hashlib.sha256(token.encode()).hexdigest(), "x")
    redis("ZADD", "{stile}:changes", 2000, hashlib.sha256(token.encode()).hexdigest())
    redis("SET", "{stile}:version", 3000)
    wait_for(lambda: a.get(f"Proxy-Authorization: Bearer {tokens['as it should be']}\r\n").status == 200)
    for what, token in tokens.items():
        if what != "as it should be":
            got = a.get(f"Proxy-Authorization: Bearer {token}\r\n")
            assert got.status in (403, 407, 429), (what, got)
    assert a.new() and a.status()["healthy"]
    # What is not even a list of tokens: it is out of reach until somebody has mended it.
    for key, value in ("{stile}:epoch", "xyz"), ("{stile}:version", "-1"):
        was = redis("GET", key)
        redis("SET", key, value)
        wait_for(lambda: not a.status()["state"]["available"])
        redis("SET", key, was)
        a.wait_up()
    redis("ZADD", "{stile}:changes", 4000, "nonsense")
    redis("SET", "{stile}:version", 4000)
    wait_for(lambda: not a.status()["state"]["available"])
    redis("ZREM", "{stile}:changes", "nonsense")
    a.wait_up()


class Liar:
    """Something that is no Redis, at a Unix socket."""

    def __init__(self, path, says):
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(path))
        self.server.listen(8)
        self.says, self.pool, self.n = says, concurrent.futures.ThreadPoolExecutor(4), 0
        self.done = False
        self.pool.submit(self.run)

    def run(self):
        while not self.done:
            try:
                c, _ = self.server.accept()
            except OSError:
                return
            self.n += 1
            self.pool.submit(self.talk, c)

    def talk(self, c):
        with c:
            c.settimeout(TIMEOUT)
            try:
                c.recv(4096)
                for part in self.says():
                    c.sendall(part)
                while c.recv(4096):
                    pass
            except OSError:
                pass

    def close(self):
        self.done = True
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.pool.shutdown(wait=False, cancel_futures=True)


def endless():
    yield b"$1000000000\r\n"
    while True:
        yield b"x" * 65536


@pytest.mark.parametrize("says", [
    lambda: [b"*2147483647\r\n"], lambda: [b"*4294967297\r\n"], lambda: [b"*-7\r\n"], endless, lambda: [b"hello\r\n"],
    lambda: [b"*1\r\n" * 100], lambda: [b"-ERR " + b"A" * 3000000],
    lambda: [b"+OK\r\n+OK\r\n*2\r\n$1\r\nx\r\n$1\r\nx\r\n"], lambda: []],
    ids=["long list", "longer list", "negative", "endless", "no protocol", "deep", "long error", "unasked", "silent"])
def test_what_is_no_redis(make, redis, says):
    path = redis.short / "liar"
    liar = Liar(path, says)
    s = make(redis, url=f"unix:{path}", wait=False)
    try:
        wait_for(lambda: liar.n >= 2)
        check_refusal(s.get("Proxy-Authorization: Bearer stile_" + "A" * 43 + "\r\n"), 503, "state_unavailable")
        assert s.get(None, listener="plain").status == 200
        with open(f"/proc/{s.proc.pid}/status") as f:
            rss = int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1))
        assert rss < 200_000
    finally:
        liar.close()


@pytest.mark.parametrize("says, told", [
    (b"-ERR unknown command 'AUTH', with args beginning with: \r\n", "is it a sentinel?"),
    (b"-CLUSTERDOWN Hash slot not served\r\n", "a cluster that is down"), (b"-MOVED 1 127.0.0.1:1\r\n", "the keys are elsewhere"),
    (b"-LOADING Redis is loading the dataset in memory\r\n", "still loading"), (b"-SECRET words\r\n", "it answers with an error")])
def test_what_is_said_of_its_complaint(make, redis, says, told):
    """In our words: its own might repeat the password."""
    liar = Liar(redis.short / "liar", lambda: [says])
    s = make(redis, url=f"unix:{redis.short}/liar", wait=False)
    try:
        wait_for(lambda: told in (s.status()["state"].get("error") or ""), why=lambda: s.status()["state"])
        wait_for(lambda: "is out of reach: " in s.stderr)
        assert "SECRET" not in s.stderr
    finally:
        liar.close()


def test_a_wrong_password_is_not_repeated(make, redis):
    a = make(redis)
    wrong = os.urandom(16).hex()
    (a.folder / "redis-password").write_text(wrong)
    a.reload()
    redis.kill()
    redis.start()
    wait_for(lambda: "password" in (a.status()["state"].get("error") or ""))
    # It was lost for another reason, of which alone the first line speaks.
    wait_for(lambda: "until it is back (at last: it does not take the password)" in a.stderr)
    (a.folder / "redis-password").write_text(redis.password)
    a.reload()
    a.wait_up()
    a.stop()
    assert wrong not in a.stderr


def test_an_acl_user_over_tcp(make, tmp_path):
    redis = Redis(tmp_path / "tcp", tcp=True)
    try:
        word = os.urandom(16).hex()
        redis("ACL", "SETUSER", "stile", "on", f">{word}", "~{stile}:*", "-@all", "+select", "+mget", "+set", "+zrangebyscore",
              "+eval", "+get", "+zscore", "+exists", "+zrem", "+zcard", "+pexpireat", "+del", "+zrevrange", "+zadd")
        (tmp_path / "acl").write_text(word)
        (tmp_path / "acl").chmod(0o600)
        a = make(redis, credentials={"redis": {"from": {"file": str(tmp_path / "acl")}, "as": {"basic": "stile"}}})
        box = a.new()
        assert a.get(box).status == 200
        box.revoke()
        check_refusal(a.get(box), 407, "token_revoked")
    finally:
        redis.finish()


def test_over_tls(make, tmp_path, origin):
    pki = origin.pki
    redis = Redis(tmp_path / "tls", tls=(pki / "good.pem", pki / "good.key", pki / "ca.pem"))
    try:
        url = f"rediss://origin.test:{redis.port}"
        a, b = make(redis, url=url), make(redis, url=url)
        assert b.get(a.new()).status == 200
        # It must be the one that is meant.
        c = make(redis, url=f"rediss://name.test:{redis.port}", wait=False, upstream={"hosts": {"name.test": "127.0.0.1"}})
        wait_for(lambda: "certificate" in (c.status()["state"].get("error") or ""), why=c.status()["state"])
    finally:
        redis.finish()


def test_no_rule_opens_it(make, tmp_path):
    """A sandbox that could speak to Redis could make itself a token."""
    redis = Redis(tmp_path / "tcp", tcp=True)
    try:
        rules = [{"allow": [f"tcp://{h}:*", f"http://{h}:*"], "addresses": ["127.0.0.0/8", "::1/128", "::/8"]}
                 for h in ("origin.test", "127.0.0.1", "127.0.0.2", "localhost")]
        a = make(redis, policies={"agent": rules, "tests": rules})
        for host in "origin.test", "127.0.0.1", "127.0.0.2", "localhost":
            with a.at("plain") as c:
                c.send(f"CONNECT {host}:{redis.port} HTTP/1.1\r\nHost: {host}:{redis.port}\r\n\r\n".encode())
                check_refusal(c.response(), 403, "address_denied")
            with a.at("plain") as c:
                check_refusal(c.ask(get(f"http://{host}:{redis.port}/")), 403, "address_denied")
        # And what the rule is for is open.
        assert a.get(None, listener="plain").status == 200
    finally:
        redis.finish()


def test_a_flood_of_unknown_tokens_is_none_for_redis(make, redis):
    a = make(redis)
    box = a.new()
    before = int(re.search(rb"total_commands_processed:(\d+)", redis("INFO", "stats")).group(1))
    begun = time.monotonic()

    def guess(_):
        return a.get("Proxy-Authorization: Bearer stile_" + os.urandom(22).hex()[:43] + "\r\n").status
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = set(pool.map(guess, range(60)))
    took = time.monotonic() - begun
    assert answers <= {407, 429}
    asked = int(re.search(rb"total_commands_processed:(\d+)", redis("INFO", "stats")).group(1)) - before
    assert asked < 100 * took + 50, (asked, took)
    assert a.get(box).status == 200


def test_ten_thousand(make, redis):
    """As many as there may be are mirrored; one more is not made."""
    a = make(redis)
    now = int(time.time() * 1e6)
    tokens = ["stile_" + os.urandom(22).hex()[:43] for _ in range(9999)]
    commands = []
    for n, token in enumerate(tokens, 1):
        digest = hashlib.sha256(token.encode()).hexdigest()
        record = json.dumps({"form": 1, "name": f"n{n}", "policy": "agent", "listener": "strict", "created_us": now,
                             "ends_us": now + 3600 * 10 ** 6})
        for words in ("SET", f"{{stile}}:token:{digest}", record), ("ZADD", "{stile}:changes", str(n), digest), \
                ("ZADD", "{stile}:ends", str(now // 1000 + 7200_000), digest):
            commands.append("*%d\r\n" % len(words) + "".join(f"${len(w)}\r\n{w}\r\n" for w in words))
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(redis.socket))
        s.settimeout(TIMEOUT * 3)
        f = s.makefile("rwb")
        f.write(f"AUTH {redis.password}\r\n".encode() + "".join(commands).encode() + b"SET {stile}:version 9999\r\n")
        f.flush()
        for _ in range(len(commands) + 2):
            assert not f.readline().startswith(b"-")
    begun = time.monotonic()
    b = make(redis)
    took = time.monotonic() - begun
    wait_for(lambda: b.status()["sandboxes"] == 9999)
    with open(f"/proc/{b.proc.pid}/status") as f:
        rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
    print(f"\n9,999 tokens: up in {took:.2f} s, {rss} KB resident")
    for token in (tokens[0], tokens[5000], tokens[-1]):
        assert b.get(f"Proxy-Authorization: Bearer {token}\r\n").status == 200
    wait_for(lambda: a.status()["sandboxes"] == 9999)
    assert b.get(a.new("--name", "the-last")).status == 200
    got = ask(b, "sandbox", "new", "--policy", "agent", "--listener", "strict", status=1)
    assert "the limit" in got.stderr
    # One that has ended makes room, and nobody misses its end: what was forgotten is read anew.
    b.proc.send_signal(signal.SIGSTOP)
    ask(a, "sandbox", "revoke", "n5002")
    more = a.new("--name", "one-more")
    assert redis("GET", "{stile}:floor")
    b.proc.send_signal(signal.SIGCONT)
    becomes(b, f"Proxy-Authorization: Bearer {tokens[5001]}\r\n", 407)
    assert b.get(more).status == 200
    ask(b, "sandbox", "revoke", "n5001")
    becomes(a, f"Proxy-Authorization: Bearer {tokens[5000]}\r\n", 407)
    check_refusal(a.get(f"Proxy-Authorization: Bearer {tokens[5000]}\r\n"), 407, "token_revoked")
