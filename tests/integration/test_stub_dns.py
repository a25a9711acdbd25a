"""The stub DNS: names that a rule could admit have an address, all others do not exist and are a record. Questions
of every form by hand, in `serve`; what real resolvers make of it, in `run`."""

import json
import os
import random
import re
import socket
import struct
import subprocess
import textwrap
import time

import pytest

import dnslib
import runlib
from clientlib import tool
from dnslib import A, AAAA, ANY, HTTPS, NS, PTR, SOA, SRV, TXT
from stilelib import allow, wait_for

RULES = [allow("docs.example.com", "*.cdn.example.com"), allow("tcp://db.example.com:5432"), allow("http://10.0.0.7"),
         allow("https://closed.example.com"), {"deny": "https://closed.example.com"},
         allow("https://half.example.com", "https://half.example.com:8443"), {"deny": "https://half.example.com:8443"},
         allow("under_score.example.com"), allow("a" * 63 + "." + "b" * 63 + "." + "c" * 63 + "." + "d" * 61)]
FIRST, RANGE6 = "198.18.0.1", "fd73:7469:6c65::"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    from stilelib import Stile
    s = Stile(tmp_path_factory.mktemp("dns"), None, rules=RULES,
              listen=[{"proxy": "127.0.0.1:0"}, {"dns": "127.0.0.1:0", "name": "names"}, {"dns": "[::1]:0", "name": "six"}])
    yield s
    s.finish()


def ports_of(s):
    """Of the DNS listeners, which stand behind the proxy's."""
    s.wait_stderr(r"(?s)(listening on .*){%d}" % len(s.settings["listen"]))
    return [int(p) for p in re.findall(r"listening on \S+:(\d+) ", s.stderr)][1:]


@pytest.fixture
def stub(shared):
    with dnslib.Client(ports_of(shared)[0]) as c:
        c.stile, c.since = shared, shared.mark()
        yield c


def denied(c, n=1, **want):
    """The records since the test began: exactly n, all alike."""
    c.stile.wait_records(n, c.since, event="dns.deny")
    found = [r for r in c.stile.records(c.since) if r["event"] == "dns.deny"]
    assert len(found) == n, found
    for r in found:
        assert r["decision"] == "deny" and r["listener"] == r["sandbox"] == "names" and r["policy"] == "default"
        assert r["client"].startswith("127.0.0.1:")
        assert {k: r.get(k) for k in want} == want, r
    c.since = c.stile.mark()
    return found


# ---- names that a rule could admit ----

def test_a_name_has_an_address_and_keeps_it(stub):
    got = stub.ask("docs.example.com")
    assert got.rcode == dnslib.NOERROR and len(got.addresses) == 1 and 0 < got.ttls[0] <= 60
    assert got.addresses[0].startswith("198.1")
    assert got.flags & 0x80 and got.flags & 0x100 and not got.flags & 0x600  # RA, RD; not AA, not TC
    other = stub.ask("x.cdn.example.com")
    assert other.addresses != got.addresses
    for spelling in ("docs.example.com.", "DOCS.Example.COM", "dOcS.eXaMpLe.CoM"):
        assert stub.ask(spelling).addresses == got.addresses
    assert stub.ask("deep.er.cdn.example.com").addresses not in (got.addresses, other.addresses)
    assert stub.stile.records(stub.since) == []  # nothing was refused


def test_a_name_has_nothing_of_other_types(stub):
    for kind in (NS, SOA, PTR, TXT, SRV, HTTPS, 64, ANY, 41, 252, 65535):
        got = stub.ask("docs.example.com", kind)
        assert (got.rcode, got.addresses) == (dnslib.NOERROR, []), kind
    # A listener of IPv4 gives IPv4 addresses; one of IPv6 both.
    assert stub.ask("docs.example.com", AAAA).addresses == []
    assert stub.stile.records(stub.since) == []


def test_over_ipv6(stub):
    with dnslib.Client(ports_of(stub.stile)[1], "::1") as six:
        got = six.ask("docs.example.com", AAAA)
        assert got.addresses[0].startswith(RANGE6)
        low = socket.inet_pton(socket.AF_INET6, got.addresses[0])[12:]
        assert socket.inet_ntop(socket.AF_INET, low) == stub.ask("docs.example.com").addresses[0] \
            == six.ask("docs.example.com").addresses[0]


def test_a_name_that_is_closed_in_part_is_still_there(stub):
    assert stub.ask("half.example.com").addresses and stub.ask("db.example.com").addresses
    assert stub.ask("under_score.example.com").addresses
    assert stub.ask("a" * 63 + "." + "b" * 63 + "." + "c" * 63 + "." + "d" * 61).addresses
    assert stub.stile.records(stub.since) == []


def test_localhost(stub):
    for name in ("localhost", "LOCALHOST.", "any.localhost"):
        assert stub.ask(name).addresses == ["127.0.0.1"]
        assert stub.ask(name, AAAA).addresses == ["::1"]
        assert stub.ask(name, TXT).addresses == []
    assert stub.stile.records(stub.since) == []


# ---- names that do not exist ----

@pytest.mark.parametrize("name, reason", [
    ("evil.test", "no_rule"), ("cdn.example.com", "no_rule"), ("example.com", "no_rule"), ("com", "no_rule"),
    ("xdocs.example.com", "no_rule"), ("docs.example.com.evil.test", "no_rule"), ("docs.example.comx", "no_rule"),
    ("closed.example.com", "denied_by_rule"), ("1.0.18.198.in-addr.arpa", "no_rule"), ("_dns.resolver.arpa", "no_rule"),
    ("xlocalhost", "no_rule"), ("localhost.evil.test", "no_rule"), ("metadata.google.internal", "no_rule"),
    ("invalid", "no_rule"), ("10.0.0.7", "malformed_request"), ("127.1", "ambiguous_url"), ("0x7f.1", "ambiguous_url")])
def test_a_name_that_no_rule_admits(stub, name, reason):
    got = stub.ask(name)
    assert (got.rcode, got.addresses) == (dnslib.NXDOMAIN, [])
    r = denied(stub, 2, host=name, reason=reason)[0]
    assert ("rule_at" in r) == (reason == "denied_by_rule")


@pytest.mark.parametrize("labels, shown", [
    ([b"docs.example", b"com"], r"docs\.example.com"), ([b"docs\0", b"example", b"com"], r"docs\000.example.com"),
    ([b"docs", b"example", b"com\0"], r"docs.example.com\000"), ([b"a\n\x1b[2J", b"test"], r"a\010\027[2J.test"),
    ([b'"},{"x":"', b"test"], r'\"},{\"x\":\"' + ".test"), ([b"\xc3\xa9", b"test"], r"\195\169.test"),
    ([b"docs example", b"com"], r"docs\032example.com"), ([b"\x7f\xff", b"cdn", b"example", b"com"], r"\127\255.cdn.example.com"),
    ([b"*", b"cdn", b"example", b"com"], "*.cdn.example.com"), ([b"docs/x", b"example", b"com"], "docs/x.example.com")])
def test_odd_bytes_in_labels(stub, labels, shown):
    assert stub.ask(labels).rcode == dnslib.NXDOMAIN
    r = denied(stub, 2)[0]
    assert r["host"] == shown and "backslash" not in r["error_detail"]
    assert r["reason"] == ("ambiguous_url" if r"\." in shown else "malformed_request")
    assert shown.isprintable() and r["host"].isascii()


def test_exfiltration_by_labels_is_one_record_and_no_question(stub):
    secret = "c2VjcmV0LWRhdGE." * 12 + "evil.test"
    stub.over_udp(dnslib.query(secret, TXT))
    denied(stub, 1, host=secret, reason="no_rule")


def test_the_root(stub):
    assert stub.ask("", NS).rcode == dnslib.REFUSED
    denied(stub, 2, host=".", reason="no_rule")


# ---- messages that are no question ----

MALFORMED = {
    "two questions": (dnslib.query("docs.example.com", counts=(2, 0, 0, 0), more=dnslib.wire("evil.test") + b"\0\1\0\1"), dnslib.FORMERR),
    "no question": (b"\x12\x34\1\0" + bytes(8), dnslib.FORMERR),
    "65535 questions": (dnslib.query("docs.example.com", counts=(65535, 0, 0, 0)), dnslib.FORMERR),
    "65535 answers": (dnslib.query("docs.example.com", counts=(1, 65535, 0, 0)), dnslib.FORMERR),
    "an opcode": (dnslib.query("docs.example.com", flags=0x2900), dnslib.NOTIMP),
    "a class": (dnslib.query("version.bind", TXT, klass=3), dnslib.REFUSED),
    "class ANY": (dnslib.query("docs.example.com", klass=255), dnslib.REFUSED),
    "truncated": (dnslib.query("docs.example.com", flags=0x0300), dnslib.FORMERR),
    "cut off": (dnslib.query("docs.example.com")[:-3], dnslib.FORMERR),
    "bytes behind": (dnslib.query("docs.example.com", more=b"x", counts=(1, 0, 0, 0)), dnslib.FORMERR),
    "a pointer to itself": (b"\x12\x34\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1", dnslib.FORMERR),
    "a pointer to the header": (b"\x12\x34\1\0\0\1\0\0\0\0\0\0\4docs\xc0\0\0\1\0\1", dnslib.FORMERR),
    "a name of 256": (dnslib.query([b"a" * 63, b"b" * 63, b"c" * 63, b"d" * 62]), dnslib.FORMERR),
    "a label of 64": (b"\x12\x34\1\0\0\1\0\0\0\0\0\0\x40" + b"a" * 64 + b"\0\0\1\0\1", dnslib.FORMERR),
    "two OPT": (dnslib.query("docs.example.com", more=2 * dnslib.OPT, counts=(1, 0, 0, 2)), dnslib.FORMERR),
    "EDNS 1": (dnslib.query("docs.example.com", more=b"\0\0\x29\x04\xd0\0\1\0\0\0\0"), dnslib.BADVERS),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_no_question(stub, what):
    packet, rcode = MALFORMED[what]
    one, two = stub.over_udp(packet), stub.over_tcp(packet)
    assert one.raw == two.raw and one.rcode == rcode and one.addresses == [] and one.ident == 0x1234
    denied(stub, 2, reason="malformed_request")
    assert stub.ask("docs.example.com").addresses


@pytest.mark.parametrize("packet", [b"", b"\x12", dnslib.query("docs.example.com", flags=0x8180), bytes(3000)],
                         ids=["empty", "one byte", "an answer", "far too long"])
def test_what_is_never_answered(stub, packet):
    stub.udp.send(packet)
    denied(stub, 1, reason="malformed_request")
    # The next answer is that to the next question.
    assert stub.over_udp(dnslib.query("docs.example.com", ident=7)).ident == 7
    with stub.tcp() as s:
        s.sendall(dnslib.framed(packet) + dnslib.framed(dnslib.query("docs.example.com")))
        assert dnslib.read_one(s) == b""
    denied(stub, 1, reason="malformed_request")


def test_edns_is_answered_with_edns(stub):
    for more in (dnslib.OPT, b"\0\0\x29\0\0\0\0\x80\0\0\0", b"\0\0\x29\xff\xff\0\0\0\0\0\x0c" + b"\0\x0a\0\x08cookies!"):
        got = stub.ask("docs.example.com", more=more)
        assert got.opt and got.addresses and not got.flags & 0x200
    assert not stub.ask("docs.example.com").opt


def test_random_bytes(stub):
    rng = random.Random(20)
    good = dnslib.query("docs.example.com", more=dnslib.OPT)
    for _ in range(300):
        packet = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            packet[rng.randrange(2, len(packet))] = rng.randrange(256)
        stub.udp.send(bytes(packet[:rng.randrange(1, len(packet) + 1)]))
    stub.udp.settimeout(0.5)

    def answered():
        """The kernel may have dropped what came too fast."""
        stub.udp.send(dnslib.query("docs.example.com", ident=0xabcd))
        try:
            while dnslib.parse(stub.udp.recv(4096)).ident != 0xabcd:
                pass
        except TimeoutError:
            return None
        return True
    wait_for(answered)
    stub.since = stub.stile.mark()


# ---- TCP ----

def test_tcp_in_single_bytes_and_many_at_once(stub):
    names = [f"n{i}.cdn.example.com" for i in range(40)]
    packets = [dnslib.framed(dnslib.query(n, ident=i)) for i, n in enumerate(names)]
    with stub.tcp() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in packets[0]:
            s.send(bytes([byte]))
        assert dnslib.parse(dnslib.read_one(s)).ident == 0
        s.sendall(b"".join(packets[1:]) + packets[0][:5])
        got = [dnslib.parse(dnslib.read_one(s)) for _ in names[1:]]
        assert [g.ident for g in got] == list(range(1, 40))
        s.sendall(packets[0][5:])
        s.shutdown(socket.SHUT_WR)
        assert dnslib.parse(dnslib.read_one(s)).ident == 0
        assert dnslib.read_one(s) == b""
    assert len({g.addresses[0] for g in got}) == 39


def test_tcp_peer_that_reads_nothing(stub):
    """Back-pressure, not memory: it stops being read, and the others are answered."""
    packets = dnslib.framed(dnslib.query("docs.example.com")) * 1000
    before = stub.stile.rss_kib()
    with stub.tcp() as s:
        s.setblocking(False)
        sent, idle = 0, 0
        while sent < 64 << 20 and idle < 20:
            try:
                sent, idle = sent + s.send(packets), 0
            except BlockingIOError:
                idle += 1
                time.sleep(0.02)
        assert idle == 20
        assert stub.ask("docs.example.com").addresses
        assert stub.stile.rss_kib() - before < 8 << 10


def test_tcp_that_says_nothing_is_closed(stub):
    with stub.tcp() as idle, stub.tcp() as half:
        half.sendall(dnslib.framed(dnslib.query("docs.example.com"))[:9])
        assert half.recv(1) == b"" and idle.recv(1) == b""


def test_tcp_connections_are_bounded(stub):
    socks = [stub.tcp() for _ in range(64)]
    try:
        wait_for(lambda: stub.tcp().recv(1) == b"" or None)
        assert stub.over_udp(dnslib.query("docs.example.com")).addresses
    finally:
        for s in socks:
            s.close()
    assert {r["reason"] for r in stub.stile.wait_records(1, stub.since, event="dns.deny")} == {"rate_limited"}
    wait_for(lambda: try_tcp(stub))
    stub.since = stub.stile.mark()


def try_tcp(stub):
    try:
        return stub.over_tcp(dnslib.query("docs.example.com")).addresses
    except (OSError, ValueError, struct.error):
        return None


# ---- as one of many ----

def test_policies_keep_their_names_apart_and_a_reload_counts(stile):
    two = {"one": [allow("a.test")], "two": [allow("b.test"), allow("a.test")]}
    s = stile(policies=two, listen=[{"proxy": "127.0.0.1:0", "policy": "one"}, {"dns": "127.0.0.1:0", "policy": "one"},
                                    {"dns": "127.0.0.1:0", "policy": "two"}, {"dns": "127.0.0.1:0", "policy": "one", "name": "x"}])
    ones, twos, other = ports_of(s)
    with dnslib.Client(ones) as one, dnslib.Client(twos) as two, dnslib.Client(other) as again:
        assert one.ask("b.test").rcode == dnslib.NXDOMAIN
        assert (two.ask("b.test").addresses, two.ask("a.test").addresses) == ([FIRST], ["198.18.0.2"])
        assert one.ask("a.test").addresses == again.ask("a.test").addresses == [FIRST]
        s.reload(policies={"one": [allow("b.test")], "two": [allow("b.test")]})
        assert one.ask("a.test").rcode == two.ask("a.test").rcode == dnslib.NXDOMAIN
        assert (one.ask("b.test").addresses, two.ask("b.test").addresses) == (["198.18.0.2"], [FIRST])
        s.reload(policies={"one": [allow("*")], "two": [allow("b.test")]})
        assert one.ask("a.test").addresses == [FIRST] and one.ask("any.thing").addresses
        assert one.ask("any.invalid").rcode == dnslib.NXDOMAIN
    assert {r["reason"] for r in s.wait_records(2, event="dns.deny", host="any.invalid")} == {"dns_failed"}


def test_every_refusal_that_was_answered_is_in_the_log(stile):
    """A flood of datagrams: what is over the bound waits or is lost unread, and a good name comes through after it."""
    s = stile(rules=RULES, listen=[{"proxy": "127.0.0.1:0"}, {"dns": "127.0.0.1:0"}], limits={"workers": 1})
    with dnslib.Client(ports_of(s)[0]) as c:
        c.udp.settimeout(0.1)
        answered, at = set(), 0
        try:
            while at < 20000:
                for i in range(at, at + 8):
                    c.udp.send(dnslib.query(f"n{i}.evil.test", ident=i))
                answered |= {dnslib.parse(c.udp.recv(4096)).ident for _ in range(8)}
                at += 8
        except TimeoutError:
            pass
        assert 1900 < len(answered) < 15000
        end = time.monotonic() + dnslib.TIMEOUT
        while time.monotonic() < end:
            c.udp.send(dnslib.query("docs.example.com", ident=0xffff))
            try:
                got = dnslib.parse(c.udp.recv(4096))
            except TimeoutError:
                continue
            if got.ident == 0xffff and got.addresses:
                break
            answered.add(got.ident)
        else:
            raise AssertionError("no answer after the flood")
    names = {f"n{i}.evil.test" for i in answered if i != 0xffff}
    wait_for(lambda: names <= {r.get("host") for r in s.records() if r["event"] == "dns.deny"} or None)


def test_no_way_of_being_refused_is_faster_than_the_bound(stile):
    """A length that lies is refused before there is a question: it waits as a question would."""
    s = stile(rules=RULES, listen=[{"proxy": "127.0.0.1:0"}, {"dns": "127.0.0.1:0"}], limits={"workers": 1})
    with dnslib.Client(ports_of(s)[0]) as c:
        for _ in range(20000):
            with c.tcp() as t:
                t.sendall(b"\xff\xff")
                t.settimeout(0.15)
                try:
                    assert t.recv(1) == b""
                except ConnectionError:
                    pass
                except TimeoutError:
                    break
        else:
            raise AssertionError("each of 20,000 was refused at once")
        wait_for(lambda: try_tcp(c))
        assert 1900 < len([r for r in s.records() if r["event"] == "dns.deny"]) < 15000


def test_names_that_are_made_up_take_none_from_the_rules(stile):
    """A pattern lets a sandbox ask for as many names as it likes. Those that a rule spells out are there all the same."""
    s = stile(rules=RULES, listen=[{"proxy": "127.0.0.1:0"}, {"dns": "127.0.0.1:0"}])
    with dnslib.Client(ports_of(s)[0]) as c:
        full, at = False, 0
        with c.tcp() as t:
            while not full:
                t.sendall(b"".join(dnslib.framed(dnslib.query(f"n{at + i}.cdn.example.com")) for i in range(100)))
                full = [dnslib.parse(dnslib.read_one(t)).rcode for _ in range(100)][-1] == dnslib.SERVFAIL
                at += 100
                assert at < 20000
        assert s.wait_record(event="dns.deny")["reason"] == "overloaded"
        assert c.over_udp(dnslib.query("one.more.cdn.example.com")).rcode == dnslib.SERVFAIL
        assert c.ask("docs.example.com").addresses and c.ask("db.example.com").addresses


def test_a_log_that_takes_nothing_stops_the_answers(stile, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    s = stile(rules=RULES, listen=[{"proxy": "127.0.0.1:0"}, {"dns": "127.0.0.1:0"}], log={"to": str(pipe)}, pairs=False,
              exit_code=None)
    with dnslib.Client(ports_of(s)[0]) as c:
        assert c.over_udp(dnslib.query("evil.test")).rcode == dnslib.NXDOMAIN
        os.close(reader)  # EPIPE from here on
        c.udp.settimeout(0.2)

        def nothing():
            c.udp.send(dnslib.query("evil.test"))
            try:
                c.udp.recv(4096)
            except TimeoutError:
                return True
        wait_for(nothing)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        wait_for(lambda: not nothing() or None)
        os.close(reader)


# ---- what resolvers make of it, in `stile run` ----

LOOK_UP = textwrap.dedent("""
    import json, os, socket, subprocess, sys
    from pathlib import Path

    def said(*argv):
        got = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        return [got.returncode, got.stdout.split()]

    def python(name):
        try:
            return sorted({a[4][0] for a in socket.getaddrinfo(name, 443)})
        except socket.gaierror as e:
            return e.errno
    """)


def in_run(tmp, code, *args, rules=RULES, **more):
    """Runs Python in a sandbox; what it prints as JSON, and the records."""
    (tmp / "stile.yaml").write_text("version: 1\npolicies:\n  default:\n    rules:\n"
                                    + "".join(f"      - {json.dumps(r)}\n" for r in rules))
    (tmp / "look.py").write_text(LOOK_UP + textwrap.dedent(code))
    got = runlib.run(tmp, "/usr/bin/python3", "look.py", *args, config=tmp / "stile.yaml", **more)
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout), [json.loads(x) for x in (tmp / "run.jsonl").read_text().splitlines()]


def refused(records):
    return {r.get("host") for r in records if r["event"] == "dns.deny"}


def test_the_c_library(tmp_path):
    got, records = in_run(tmp_path, """
        out = {n: python(n) for n in ("docs.example.com", "evil.test", "localhost", "x.localhost", "DOCS.example.com.")}
        out["getent"] = said("getent", "ahostsv4", "db.example.com")
        out["files"] = [Path(f).read_text() for f in ("/etc/resolv.conf", "/etc/hosts")]
        print(json.dumps(out))
        """)
    v4, v6 = got["docs.example.com"]
    assert v4.startswith("198.18.0.") and v6.startswith(RANGE6) and got["DOCS.example.com."] == [v4, v6]
    assert got["evil.test"] == socket.EAI_NONAME
    assert got["localhost"] == got["x.localhost"] == ["127.0.0.1", "::1"]
    assert got["getent"][0] == 0 and got["getent"][1][0].startswith("198.18.0.")
    assert "nameserver 127.0.0.1\n" in got["files"][0] and "localhost" in got["files"][1]
    assert refused(records) == {"evil.test"}
    assert {r["listener"] for r in records if r["event"] == "dns.deny"} == {"run-dns"}
    assert {r["error_detail"].split(":")[0] for r in records if r["event"] == "dns.deny"} <= {"A", "AAAA"}


def test_dig(tmp_path):
    tool("dig")
    got, records = in_run(tmp_path, """
        def dig(*args):
            return said("dig", "+short", "+tries=1", *args)[1]
        def status(*args):
            words = said("dig", "+noall", "+comments", "+tries=1", *args)[1]
            return words[words.index("status:") + 1]
        print(json.dumps({
            "udp": dig("docs.example.com"), "tcp": dig("+tcp", "docs.example.com"), "six": dig("@::1", "docs.example.com", "aaaa"),
            "plain": dig("+noedns", "docs.example.com"), "https": dig("docs.example.com", "https"),
            "cookie": dig("+cookie=0123456789abcdef", "+dnssec", "docs.example.com"), "txt": dig("docs.example.com", "txt"),
            "status": [status("docs.example.com", "https"), status("evil.test"), status("evil.test", "txt"), status("+opcode=update", "evil.test"),
                       status("ch", "txt", "version.bind"), status("+edns=1", "+noednsneg", "docs.example.com"), status("-x", "198.18.0.1")]}))
        """)
    assert got["udp"] == got["tcp"] == got["plain"] == got["cookie"] and got["udp"][0].startswith("198.18.0.")
    assert got["six"][0].startswith(RANGE6) and got["https"] == got["txt"] == []
    assert got["status"] == ["NOERROR,", "NXDOMAIN,", "NXDOMAIN,", "NOTIMP,", "REFUSED,", "BADVERS,", "NXDOMAIN,"]
    assert refused(records) == {"evil.test", "version.bind", "1.0.18.198.in-addr.arpa", "docs.example.com", None}
    assert [r["error_detail"] for r in records if r.get("host") == "docs.example.com"] == ["an unknown version of EDNS"]


def test_node(tmp_path):
    """dns.lookup is the C library's, dns.resolve is c-ares."""
    tool("node")
    (tmp_path / "look.js").write_text("""
        const dns = require('dns').promises;
        const all = ps => Promise.all(ps.map(p => p.catch(e => e.code)));
        all([dns.lookup('docs.example.com'), dns.resolve4('docs.example.com'), dns.resolve6('docs.example.com'),
             dns.resolve4('evil.test'), dns.resolveTxt('docs.example.com'), dns.lookup('evil.test')])
            .then(r => console.log(JSON.stringify(r)));
        """)
    got, records = in_run(tmp_path, 'print(subprocess.run(["node", "look.js"], capture_output=True, text=True).stdout)')
    assert got[0]["address"] == got[1][0] and got[1][0].startswith("198.18.0.") and got[2][0].startswith(RANGE6)
    assert got[3:] == ["ENOTFOUND", "ENODATA", "ENOTFOUND"] and refused(records) == {"evil.test"}


def test_java(tmp_path):
    tool("java")
    (tmp_path / "Look.java").write_text(textwrap.dedent("""
        import java.net.*;
        class Look {
            public static void main(String[] args) {
                for (String name : args)
                    try {
                        System.out.println(InetAddress.getByName(name).getHostAddress());
                    } catch (UnknownHostException e) {
                        System.out.println("unknown");
                    }
            }
        }
        """))
    got, records = in_run(tmp_path, 'print(json.dumps(said("java", "-XX:TieredStopAtLevel=1", "Look.java", *sys.argv[1:])))',
                          "docs.example.com", "evil.test", "docs.example.com")
    assert got[0] == 0 and got[1][0].startswith("198.18.0.") and got[1][1:] == ["unknown", got[1][0]]
    assert refused(records) == {"evil.test"}


def test_go(tmp_path):
    """Its own resolver, which reads resolv.conf itself."""
    (tmp_path / "look.go").write_text(textwrap.dedent("""
        package main
        import ("context"; "fmt"; "net"; "os")
        func main() {
            r := net.Resolver{PreferGo: true}
            for _, name := range os.Args[1:] {
                a, err := r.LookupHost(context.Background(), name)
                fmt.Println(len(a), err != nil, a)
            }
        }
        """))
    built = subprocess.run([tool("go"), "build", "-o", "look", "look.go"], cwd=tmp_path, capture_output=True, text=True,
                           env={**os.environ, "GO111MODULE": "off", "CGO_ENABLED": "0"}, timeout=300)
    assert built.returncode == 0, built.stderr
    got, records = in_run(tmp_path, 'print(json.dumps(said("./look", *sys.argv[1:])))', "docs.example.com", "evil.test")
    assert got[1][:2] == ["2", "false"] and got[1][2].startswith("[198.18.0.") and got[1][4:6] == ["0", "true"]
    assert refused(records) == {"evil.test"}


def test_all_hosts_allowed(tmp_path):
    got, records = in_run(tmp_path, 'print(json.dumps([python("any.thing"), python("any.invalid"), python("localhost")]))',
                          rules=[allow("*")])
    assert got[0][0] == FIRST and got[1] == socket.EAI_NONAME and got[2] == ["127.0.0.1", "::1"]
    assert {(r["host"], r["reason"]) for r in records if r["event"] == "dns.deny"} == {("any.invalid", "dns_failed")}


def test_ports_stay_the_commands_own(tmp_path):
    """Where a rule names a name and a port, only that name's addresses are taken; a pattern takes the port."""
    got, records = in_run(tmp_path, """
        def bind(port, *hosts):
            out = []
            for host in hosts:
                s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
                try:
                    s.bind((host, port))
                    s.listen()
                    out.append(True)
                except OSError:
                    out.append(False)
                s.close()
            return out
        def reach(name, port):
            out = []
            for family in (socket.AF_INET, socket.AF_INET6):
                s = socket.socket(family)
                try:
                    s.connect(socket.getaddrinfo(name, port, family)[0][4])
                    out.append(True)
                except OSError as e:
                    out.append(False)
                s.close()
            return out
        print(json.dumps({"exact": bind(5432, "127.0.0.1", "::1"), "other": bind(5433, "0.0.0.0"), "pattern": bind(8443, "127.0.0.1"),
                          "db": reach("db.example.com", 5432), "docs": reach("docs.example.com", 443), "b": reach("b.p.example.com", 8443),
                          "http": reach("docs.example.com", 80), "wide": reach("wide.example.com", 9005), "none": reach("docs.example.com", 444),
                          "dns": reach("dns.example.com", 53), "ssh": reach("ssh.example.com", 22), "proxy": reach("dns.example.com", 3128)}))
        """, rules=[allow("docs.example.com"), allow("tcp://db.example.com:5432"), allow("*.p.example.com:8443"),
                    allow("wide.example.com:9000-9100"), allow("tcp://ssh.example.com:22"),
                    allow("tcp://dns.example.com:53", "tcp://dns.example.com:3128")])
    assert got == {"exact": [True, True], "other": [True], "pattern": [False], "db": [True, True], "docs": [True, True],
                   "b": [True, True], "http": [True, True], "wide": [False, False], "none": [False, False],
                   "dns": [True, True], "ssh": [True, True], "proxy": [True, True]}
    assert refused(records) == set()


def test_more_names_than_there_are_places(tmp_path):
    """A run that names hundreds of ports starts all the same."""
    got, _ = in_run(tmp_path, 'print(json.dumps([python("n0.test"), python("n299.test")]))',
                    rules=[allow(*[f"tcp://n{i}.test:{2000 + i}" for i in range(300)])])
    assert got[0][0].startswith("198.18.") and got[1][0].startswith("198.18.")


def test_a_file_of_hosts_outside_is_not_read_inside(tmp_path):
    got, _ = in_run(tmp_path, 'print(json.dumps([Path("/etc/hosts").read_text(), python(socket.gethostname())]))')
    assert not set(re.findall(r"^\S+", got[0], re.M)) - {"127.0.0.1", "::1", "127.0.1.1"}
    assert got[1] == ["127.0.1.1"]


@pytest.mark.parametrize("link", ["../run/systemd/resolve/stub-resolv.conf", "/var/run/x/resolv.conf", None])
def test_a_resolv_conf_that_leads_into_run(tmp_path, link):
    """As systemd-resolved has it; /run is another one inside. Without the file resolvers ask 127.0.0.1."""
    if os.geteuid() != 0 or not tool("unshare"):
        pytest.skip("needs root for an /etc of its own")
    make = f"ln -s {link} resolv.conf" if link else "true"
    prefix = ["unshare", "-m", "sh", "-c", f"mkdir {tmp_path}/etc && cp -a /etc/. {tmp_path}/etc && cd {tmp_path}/etc && rm resolv.conf"
              f" && {make} && mount --bind {tmp_path}/etc /etc && cd {tmp_path} && exec \"$@\"", "-"]
    got, records = in_run(tmp_path, 'print(json.dumps([python("docs.example.com"), python("evil.test")]))', prefix=prefix)
    assert got[0][0].startswith("198.18.0.") and got[1] == socket.EAI_NONAME and refused(records) == {"evil.test"}
