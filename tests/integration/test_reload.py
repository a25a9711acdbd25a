"""SIGHUP: a reload is atomic, judges everything anew that was not admitted yet, and changes nothing when it fails."""

import os
import re
import shutil
import signal
import socket
import ssl
import threading
import time

import pytest

from loadlib import Load
from stilelib import LOOPBACK, Peer, Raw, allow, check_refusal, client_context, default_rules, get, wait_for

DENY_ALL = [{"deny": ["http://origin.test:*", "https://origin.test:*"]}]


def inside(s, path="/ok/a", more=""):
    """A request for the inside of a tunnel to the TLS origin."""
    return get(path, host=f"origin.test:{s.origin.tls}", more=more)


def test_a_reload_takes_effect(stile):
    s = stile()
    old = s.wait_record(event="policy.load")
    assert old["error_detail"] == "2 rules"
    assert s.get("/ok/a").status == 200
    check_refusal(s.get("/ok/a", host="other.test"), 403, "no_rule")
    new = s.reload(rules=[allow("http://other.test:*")])
    assert new["error_detail"] == "1 rule" and new["policy"] == "default"
    assert new["policy_version"] != old["policy_version"]
    since = s.mark()
    check_refusal(s.get("/ok/a"), 403, "no_rule")
    assert s.get("/ok/a", host="other.test").status == 200
    s.wait_records(3, since)
    assert {r["policy_version"] for r in s.records(since)} == {new["policy_version"]}


def test_nothing_changes_without_a_signal(stile):
    s = stile()
    s.write(rules=DENY_ALL)
    assert s.get("/ok/a").status == 200


def mount(folder, generation, mode=0o644, group=-1, **files):
    """A volume as the kubelet lays it: the files are links through ..data, which is a link that is swapped."""
    real = folder / f"..{generation}"
    real.mkdir(parents=True)
    for name, text in files.items():
        (real / name).write_text(text)
        os.chown(real / name, -1, group)
        (real / name).chmod(mode)
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}")
    swap = folder / "..data_tmp"
    swap.symlink_to(real.name)
    old = (folder / "..data").readlink() if (folder / "..data").is_symlink() else None
    swap.rename(folder / "..data")
    if old:
        shutil.rmtree(folder / old)


def events(s, since):
    return [r["event"] for r in s.records(since)]


def watching(s):
    """A running stile, told by one last signal that it is to look by itself from now on."""
    s.reload(extra="reload: watch")
    return s


def test_a_swapped_link_is_a_change(stile, tmp_path):
    """What a ConfigMap does when it is edited, at a stile that opens no file itself."""
    folder = tmp_path / "config-map"
    s = stile(extra="reload: watch")
    text = {"good": s.config.read_text()}
    s.write(extra="reload: watch", rules=DENY_ALL)
    text["deny"] = s.config.read_text()
    mount(folder, 1, **{"stile.yaml": text["good"]})
    s.config.unlink()
    s.config.symlink_to(folder / "stile.yaml")
    since = s.mark()
    for generation, (name, status) in enumerate([("deny", 403), ("good", 200), ("deny", 403)], 2):
        mount(folder, generation, **{"stile.yaml": text[name]})
        s.wait_record(since, event="policy.load")
        wait_for(lambda status=status: s.get("/ok/a").status == status)
        since = s.mark()


def test_a_broken_change_is_said_once(stile):
    s = watching(stile())
    good, since = s.config.read_text(), s.mark()
    s.config.write_text(good + "polices: {}\n")
    s.wait_record(since, event="policy.reject")
    assert s.get("/ok/a").status == 200
    # The next one is found, and the broken one was tried once.
    s.config.write_text(good + "# mended\n")
    s.wait_record(since, event="policy.load")
    assert events(s, since).count("policy.reject") == 1
    assert s.get("/ok/a").status == 200


def test_a_file_that_goes_and_comes_back(stile):
    s = watching(stile())
    good, since = s.config.read_text(), s.mark()
    s.config.unlink()
    assert "cannot be read" in s.wait_record(since, event="policy.reject")["error_detail"]
    assert s.get("/ok/a").status == 200
    s.config.write_text(good)
    s.wait_record(since, event="policy.load")


def test_what_is_still_written_is_not_read(stile):
    """Each state of it would be a policy; it changes more often than it is looked at."""
    s = watching(stile())
    since = s.mark()
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        with s.config.open("a") as f:
            f.write("#\n")
        time.sleep(0.01)
    s.wait_record(since, event="policy.load")
    # On a machine that stood still for half a second one state in the middle may be read.
    assert events(s, since).count("policy.load") <= 3
    assert s.get("/ok/a").status == 200


def test_a_file_of_roots_that_changes(stile, origin, tmp_path):
    """What an origin is believed by is read again too, though the configuration is the same."""
    roots = tmp_path / "roots.pem"
    roots.write_bytes((origin.pki / "self-signed.pem").read_bytes())
    s = stile(extra="reload: watch", upstream={"trust": [str(roots)]})
    assert s.tls_get("/ok/a").status == 502
    since = s.mark()
    fresh = roots.with_suffix(".new")
    fresh.write_bytes((origin.pki / "ca.pem").read_bytes())
    fresh.rename(roots)
    s.wait_record(since, event="policy.load")
    wait_for(lambda: s.tls_get("/ok/a").status == 200)


def test_a_word_less_and_it_looks_no_more(stile):
    s = watching(stile())
    s.reload(extra="reload: signal")
    since = s.mark()
    s.write(rules=DENY_ALL, extra="reload: signal")
    time.sleep(1.5)
    assert s.get("/ok/a").status == 200 and "policy.load" not in events(s, since)


def test_one_record_for_each_policy(stile):
    rules = default_rules()
    s = stile(policies={"a": rules, "b": rules}, listen=[{"proxy": "127.0.0.1:0", "policy": "a"}])
    since = s.mark()
    s.reload(policies={"a": rules, "b": rules[:1]})
    loads = s.wait_records(2, since, event="policy.load")
    assert [(r["policy"], r["error_detail"]) for r in loads] == [("a", "2 rules"), ("b", "1 rule")]


BROKEN = {
    "syntax": (lambda text: text + "  x: [\n", r":\d+:\d+: "),
    "unknown-key": (lambda text: text + "polices: {}\n", r":\d+:1: .*polices"),
    "two-faults": (lambda text: text.replace("version: 1", "version: 2") + "zzz: 1\n", r":1:10: "),
    "empty": (lambda text: "", r":\d+:\d+: "),
    "not-utf8": (lambda text: text + "# \udcff\n", r":\d+:\d+: "),
    "no-such-credential": (lambda text: text.replace('"allow"', '"credential": "none", "allow"', 1),
                           r":\d+:\d+: .*none"),
    "gone": (None, "stile.yaml: cannot be read"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_changes_nothing(stile, name):
    change, place = BROKEN[name]
    s = stile()
    old = s.wait_record(event="policy.load")
    good, since = s.config.read_text(), s.mark()
    with s.client() as c:
        assert c.ask(get(f"http://origin.test:{s.origin.plain}/ok/a")).status == 200
        if change:
            s.config.write_bytes(change(good).encode("utf-8", "surrogateescape"))
        else:
            s.config.unlink()
        record = s.hup(since, good=False)
        assert re.search(place, record["error_detail"]), record
        assert record["error_detail"].startswith(str(s.config)), record
        assert record["policy_version"] == old["policy_version"]
        s.wait_stderr(re.escape(record["error_detail"]))
        # The connection, its policy and the version in the records are the old ones.
        assert c.ask(get(f"http://origin.test:{s.origin.plain}/ok/b")).status == 200
    check_refusal(s.get("/no/a"), 403, "denied_by_rule")
    ends = s.wait_records(2, since, event="request.end")
    assert {r["policy_version"] for r in ends} == {old["policy_version"]}
    assert len(s.wait_records(1, since, event="policy.reject")) == 1
    # And the next good one is taken.
    s.reload(rules=DENY_ALL)
    check_refusal(s.get("/ok/a"), 403, "denied_by_rule")


def test_requests_do_not_wait_for_a_configuration_that_is_being_read(stile):
    """A large one takes a while, and SIGHUP opens the log anew as well: records must not wait behind it."""
    s = stile()
    assert s.get("/ok/a").status == 200
    kept, since = s.config.read_bytes(), s.mark()
    s.config.unlink()
    os.mkfifo(s.config)
    stop = threading.Event()
    s.signal(signal.SIGHUP)
    with open(s.config, "wb", buffering=0) as f:  # as soon as it is being read

        def dribble():
            while not stop.wait(0.05):
                f.write(b"# not all of it yet\n")

        thread = threading.Thread(target=dribble)
        thread.start()
        try:
            for _ in range(40):  # of both workers
                assert s.get("/ok/a").status == 200
                check_refusal(s.get("/no/a"), 403, "denied_by_rule")
            assert not [r for r in s.records(since) if r["event"].startswith("policy.")], "it was read to its end"
        finally:
            stop.set()
            thread.join()
    s.wait_record(since, event="policy.reject")
    s.config.unlink()
    s.config.write_bytes(kept)
    s.hup(s.mark())


def test_all_faults_are_said_at_once(stile):
    s = stile()
    since = s.mark()
    s.config.write_text(s.config.read_text().replace("version: 1", "version: 2") + "zzz: 1\n")
    s.hup(since, good=False)
    s.wait_stderr(r"stile\.yaml:1:10: ")
    s.wait_stderr(r"stile\.yaml:\d+:1: .*zzz")


def test_a_request_in_flight_ends_under_the_policy_that_admitted_it(stile):
    s = stile()
    old = s.wait_record(event="policy.load")["policy_version"]
    since = s.mark()
    gate = f"flight-{s.pid}"
    with s.client() as c, s.client() as up:
        c.send(get(f"http://origin.test:{s.origin.plain}/slow?gate={gate}"))
        up.send(get(f"http://origin.test:{s.origin.plain}/upload", method="POST", more="Content-Length: 10\r\n"))
        up.send(b"01234")
        s.wait_records(2, since, event="request.start")
        s.reload(rules=DENY_ALL)
        check_refusal(s.get("/ok/a"), 403, "denied_by_rule")
        s.origin.open_gate(gate)
        up.send(b"56789")
        r = c.response()
        assert (r.status, r.body) == (200, b"slow\n")
        r = up.response()
        assert r.status == 200 and r.json()["bytes"] == 10
        # The next one on the same connection is judged anew.
        if r.get("connection") != "close":
            check_refusal(up.ask(get(f"http://origin.test:{s.origin.plain}/ok/b")), 403, "denied_by_rule")
    for end in s.wait_records(2, since, event="request.end"):
        assert end["policy_version"] == old and "error" not in end


def test_requests_inside_an_intercepted_connection_are_judged_anew(stile):
    s = stile()
    with s.tunnel() as c:
        assert c.ask(inside(s)).status == 200
        s.reload(rules=[allow("https://origin.test:*"), {"deny": "https://origin.test:*/ok/**"}])
        check_refusal(c.ask(inside(s)), 403, "denied_by_rule")
        assert json_target(c.ask(inside(s, "/echo"))) == "/echo"
        s.reload(rules=[allow("https://other.test:*")])
        check_refusal(c.ask(inside(s, "/echo")), 403, "no_rule")
        s.reload(rules=default_rules())
        assert c.ask(inside(s)).status == 200


def json_target(r):
    return r.json()["target"]


def test_a_keep_alive_connection_is_judged_anew(stile):
    s = stile()
    with s.client() as c:
        ask = get(f"http://origin.test:{s.origin.plain}/ok/a")
        assert c.ask(ask).status == 200
        s.reload(rules=DENY_ALL)
        check_refusal(c.ask(ask), 403, "denied_by_rule")


# ---- tunnels ----

PASS = {"allow": "origin.test:*", "tls": "passthrough", "addresses": LOOPBACK}


def passthrough(s):
    c = s.client()
    assert c.connect(f"origin.test:{s.origin.tls}").status == 200
    c.start_tls(client_context(s.origin.pki / "ca.pem"), "origin.test")
    assert c.ask(inside(s)).status == 200
    return c


def tcp(s, peer, host):
    c = s.client()
    assert c.connect(f"{host}:{peer.port}").status == 200
    other = peer.accept()
    relays(c, other, b"first")
    return c, other


def relays(a, b, data):
    a.send(data)
    assert b.read(len(data)) == data
    b.send(data[::-1])
    assert a.read(len(data)) == data[::-1]


@pytest.mark.parametrize("workers", [1, 2])
def test_revoked_tunnels_are_closed_and_the_others_go_on(stile, workers):
    kept = {"allow": "tcp://other.test:*", "addresses": LOOPBACK}
    gone = {"allow": "tcp://evil.test:*", "addresses": LOOPBACK}
    s = stile(rules=[PASS, kept, gone], limits={"workers": workers})
    with Peer() as peer:
        p = passthrough(s)
        a, a_end = tcp(s, peer, "other.test")
        b, b_end = tcp(s, peer, "evil.test")
        since = s.mark()
        # A change that takes nothing away closes nothing.
        s.reload(rules=[PASS, kept, gone, allow("http://origin.test:*")])
        relays(b, b_end, b"second")
        assert p.ask(inside(s)).status == 200
        assert not [r for r in s.records(since) if r["event"] == "tunnel.end"]
        s.reload(rules=[kept])
        ends = s.wait_records(2, since, event="tunnel.end")
        assert {r["host"] for r in ends} == {"origin.test", "evil.test"}
        for end in ends:
            assert end["error"] == "policy_revoked" and end["decision"] == "allow", end
            assert end["ms"]["total"] > 0 and end["bytes_out"] > 0 and end["bytes_in"] > 0
        assert b.at_end() and b_end.at_end()
        assert p.at_end()
        relays(a, a_end, b"third")
        for x in (p, a, a_end, b, b_end):
            x.close()
    assert "error" not in s.wait_record(since, event="tunnel.end", host="other.test")


@pytest.mark.parametrize("rules", [
    [{"allow": "tcp://other.test:*"}],  # the range is gone
    [{"allow": "tcp://other.test:*", "addresses": LOOPBACK}, {"deny": "tcp://other.test:*"}],
    [allow("http://other.test:*", "https://other.test:*")],  # another scheme
    [allow("tcp://evil.test:*")],
], ids=["address", "deny", "scheme", "no-rule"])
def test_what_revokes_a_tunnel(stile, rules):
    s = stile(rules=[{"allow": "tcp://other.test:*", "addresses": LOOPBACK}])
    with Peer() as peer:
        c, end = tcp(s, peer, "other.test")
        with c, end:
            s.reload(rules=rules)
            assert c.at_end() and end.at_end()
            assert s.wait_record(event="tunnel.end")["error"] == "policy_revoked"


def test_a_moved_name_does_not_close_a_tunnel(stile):
    """The address that was dialled is still one that the rule admits."""
    s = stile(rules=[{"allow": "tcp://other.test:*", "addresses": LOOPBACK}])
    with Peer() as peer:
        c, end = tcp(s, peer, "other.test")
        with c, end:
            s.reload(upstream={"hosts": {"other.test": "127.0.0.9"}})
            relays(c, end, b"second")


# ---- between CONNECT and what is inside ----


def test_a_rule_that_goes_between_connect_and_the_request_inside(stile):
    s = stile()
    since = s.mark()
    with s.client() as c:
        assert c.connect(f"origin.test:{s.origin.tls}").status == 200
        s.reload(rules=[allow("https://origin.test:*"), {"deny": "https://origin.test:*/ok/**"}])
        c.start_tls(s.context(), "origin.test")
        check_refusal(c.ask(inside(s)), 403, "denied_by_rule")
        assert c.ask(inside(s, "/echo")).status == 200
    s.wait_record(since, event="request.end")


def test_a_rule_that_goes_within_the_handshake(stile):
    s = stile()
    with s.tunnel() as c:
        s.reload(rules=[allow("http://other.test:*")])
        check_refusal(c.ask(inside(s)), 403, "no_rule")


def test_plaintext_inside_connect_after_a_reload(stile):
    s = stile()
    with s.client() as c:
        assert c.connect(f"origin.test:{s.origin.plain}").status == 200
        s.reload(rules=DENY_ALL)
        check_refusal(c.ask(get("/ok/a", host=f"origin.test:{s.origin.plain}")), 403, "denied_by_rule")
    assert s.wait_record(decision="deny")["rule_at"] == f"{s.config}:9"


@pytest.mark.parametrize("rule", [
    PASS, {"allow": ["tcp://origin.test:*"], "addresses": LOOPBACK},
], ids=["passthrough", "tcp"])
def test_no_tunnel_opens_under_a_policy_that_is_gone(stile, rule):
    """CONNECT was answered, and nothing has been sent inside: no tunnel exists yet that could go on."""
    # The rule on http makes stile look at the first bytes before it decides.
    s = stile(rules=[allow("http://origin.test:*"), rule])
    with Peer() as peer:
        since = s.mark()
        with s.client() as c:
            assert c.connect(f"origin.test:{peer.port}").status == 200
            s.reload(rules=[allow("http://other.test:*")])
            hello(c)
            assert b"\x16\x03" not in c.read_all()
        assert s.wait_record(since, event="tunnel.deny")["reason"] == "no_rule"
        assert not [r for r in s.records(since) if r["event"] == "tunnel.start"]
        assert peer.nobody_came()


@pytest.mark.parametrize("kind", ["passthrough", "tcp"])
@pytest.mark.parametrize("taken", [True, False])
def test_no_tunnel_opens_to_an_address_that_was_taken_back(stile, kind, taken):
    """The rule stays and its addresses go, while the way there is made: what is not open yet has no address to ask
    after, so it is asked after when it has one."""
    rule = PASS if kind == "passthrough" else {"allow": ["tcp://origin.test:*"], "addresses": LOOPBACK}
    with Peer() as parent:
        s = stile(rules=[rule], upstream={"proxy": f"http://127.0.0.1:{parent.port}"})
        with s.client() as c:
            c.send(b"CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\n")
            if kind == "passthrough":
                assert c.response_head().status == 200
                hello(c)
            with parent.accept() as there:
                assert there.read_head().startswith(b"CONNECT ")
                s.reload(rules=[rule | {"addresses": ["127.9.0.0/16"] if taken else ["127.0.0.0/16"]}])
                there.send(b"HTTP/1.1 200 OK\r\n\r\nearly")
                if not taken:
                    if kind == "tcp":
                        assert c.response_head().status == 200
                    assert c.read(5) == b"early"
                    return
                if kind == "tcp":
                    check_refusal(c.response(), 403, "policy_revoked")
                assert b"early" not in c.read_all()
                assert there.read_all() == b""
        assert s.wait_record(event="tunnel.end")["error"] == "policy_revoked"


def hello(c):
    """The first flight of a TLS client, and no more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(into, out, server_hostname="origin.test").do_handshake()
    c.send_quietly(out.read())


# ---- what can change, and what cannot ----


@pytest.mark.parametrize("change", [
    {"listen": [{"proxy": "127.0.0.1:1"}]},
    {"listen": [{"proxy": "127.0.0.2:0"}]},
    {"listen": [{"proxy": "127.0.0.1:0"}, {"proxy": "127.0.0.1:0"}]},
    {"listen": [{"proxy": "127.0.0.1:0", "name": "renamed"}]},
    {"listen": [{"proxy": "unix:x.sock"}]},
    {"limits": {"workers": 7}},
], ids=["port", "address", "one-more", "name", "unix", "workers"])
def test_what_needs_a_restart_is_refused(stile, change):
    s = stile()
    before = s.mark()
    old = s.records()[-1]["policy_version"]
    record = s.reload(good=False, rules=DENY_ALL, **change)
    assert "restart" in record["error_detail"] and str(s.config) in record["error_detail"], record
    assert record["policy_version"] == old
    s.wait_stderr("restart.*the old policy stays")
    assert s.get("/ok/a").status == 200
    assert len(s.records(before)) >= 1
    s.reload(listen=None, limits=None, rules=DENY_ALL)
    check_refusal(s.get("/ok/a"), 403)


def test_fixed_names_change(stile):
    s = stile()
    with socket.socket() as elsewhere:
        elsewhere.bind(("127.0.0.9", s.origin.plain))
        elsewhere.listen()
        with s.client() as c:
            ask = get(f"http://origin.test:{s.origin.plain}/ok/a")
            assert c.ask(ask).body == b"ok /ok/a\n"
            s.reload(upstream={"hosts": {"origin.test": "127.0.0.9"}})
            # Not over the connection that was kept to the old address.
            c.send(ask)
            with Raw(elsewhere.accept()[0]) as o:
                assert b"/ok/a" in o.read_head()
                o.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmoved")
                assert c.response().body == b"moved"
        assert s.wait_records(2, event="request.end")[-1]["upstream"] == f"127.0.0.9:{s.origin.plain}"


def test_trust_changes(stile):
    s = stile()
    stranger = [str(s.origin.pki / "self-signed.pem")]
    with s.tunnel() as c:
        assert c.ask(inside(s)).status == 200
        s.reload(upstream={"trust": stranger})
        check_refusal(c.ask(inside(s)), 502, "upstream_untrusted")
        # No kept connection and no TLS session of before speaks for it.
        check_refusal(c.ask(inside(s)), 502, "upstream_untrusted")
        s.reload(upstream=None)
        assert c.ask(inside(s)).status == 200


def test_a_trusted_file_changes_in_place(stile, origin, tmp_path):
    """The YAML is the same to the byte. A request that was in flight leaves no connection that was verified
    under the old roots to those that come after it."""
    trust = tmp_path / "trust.pem"
    trust.write_bytes((origin.pki / "ca.pem").read_bytes())
    s = stile(upstream={"trust": [str(trust)]})
    gate = f"trust-{s.pid}"
    with s.tunnel() as c:
        c.send(inside(s, f"/slow?gate={gate}"))
        s.wait_record(event="request.start")
        trust.write_bytes((origin.pki / "self-signed.pem").read_bytes())
        s.hup(s.mark())
        origin.open_gate(gate)
        assert c.response().status == 200
        check_refusal(c.ask(inside(s)), 502, "upstream_untrusted")


def test_credentials_change(stile, tmp_path, canary):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(canary + "-1\n")
    two.write_text(canary + "-2\n")
    rules = [allow("https://origin.test:*", credential="k")]
    s = stile(rules=rules, credentials={"k": {"from": {"file": str(one)}, "as": "bearer"}})
    with s.tunnel() as c:
        def got():
            return c.ask(inside(s, "/auth")).json()["auth"]
        assert got() == {"authorization": f"Bearer {canary}-1"}
        s.reload(credentials={"k": {"from": {"file": str(two)}, "as": "bearer"}})
        assert got() == {"authorization": f"Bearer {canary}-2"}
        s.reload(credentials={"k": {"from": {"file": str(two)}, "as": {"header": "X-Api-Key"}}})
        assert got() == {"x-api-key": f"{canary}-2"}
        s.reload(credentials={"k": {"from": {"file": str(tmp_path / "none")}, "as": "bearer"}})
        check_refusal(c.ask(inside(s, "/auth")), 503, "credential_unavailable")
        s.reload(credentials=None, rules=[allow("https://origin.test:*")])
        assert got() == {}
    assert canary not in s.stderr + s.log_path.read_text()


def test_limits_change(stile):
    s = stile()
    s.reload(limits={"head": "200ms"})
    with s.client() as c:
        c.send(b"GET http://origin.test/ HT")
        check_refusal(c.response(), 408, "client_timeout")


def test_the_log_s_target_changes(stile, tmp_path):
    s = stile()
    assert s.get("/ok/a").status == 200
    s.wait_record(event="request.end")
    first = s.log_path
    s.write(log={"to": str(tmp_path / "second.jsonl")})
    s.log_path = tmp_path / "second.jsonl"
    s.hup(0)
    assert s.get("/ok/b").status == 200
    assert s.wait_record(event="request.end")["path"] == "/ok/b"
    assert [r["path"] for r in s.records(path=first) if r["event"] == "request.end"] == ["/ok/a"]


def test_a_log_that_cannot_be_opened_refuses_the_reload(stile, tmp_path):
    s = stile()
    record = s.reload(good=False, log={"to": str(tmp_path / "nowhere" / "x.jsonl")}, rules=DENY_ALL)
    assert "nowhere" in record["error_detail"]
    assert s.get("/ok/a").status == 200
    s.write(log=None)


@pytest.mark.parametrize("workers", [1, 2])
def test_twenty_reloads_under_load(stile, workers):
    s = stile(limits={"workers": workers})
    other = [allow("http://origin.test:*", "https://origin.test:*", name="other"), *default_rules()[1:]]
    with Load(s, clients=3, tls=2) as load:
        wait_for(lambda: s.mark() > 20)
        for i in range(20):
            since = s.mark()
            s.reload(rules=default_rules() if i % 2 else other)
            wait_for(lambda: s.mark() > since + 10, why="requests go on")
    assert not load.failures
    loads = s.wait_records(21, event="policy.load")
    s.wait_records(load.done, event="request.end")
    names = {loads[0]["policy_version"]: None, loads[1]["policy_version"]: "other"}
    for r in s.records():
        if r["event"].startswith("request."):
            assert r.get("rule") == names[r["policy_version"]], "a request of two policies"
    assert sum(r["event"] == "request.end" for r in s.records()) == load.done


def test_signals_in_a_burst(stile):
    s = stile()
    s.write(rules=DENY_ALL)
    for _ in range(50):
        s.signal(signal.SIGHUP)
    wait_for(lambda: s.get("/ok/a").status == 403)
    s.write(rules=default_rules())
    for _ in range(50):
        s.signal(signal.SIGHUP)
    wait_for(lambda: s.get("/ok/a").status == 200)
