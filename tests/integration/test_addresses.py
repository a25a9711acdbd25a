"""The address that is checked is the address that is dialled (invariant 3).

All of it happens in a network namespace of its own that leads nowhere, and in which every address is local: whatever
stile dials ends at one listener, which notes the address that was meant. So "nothing was dialled" can be seen."""

import ctypes
import ipaddress
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
import time

import pytest

import dns  # tests/origin/dns.py
from stilelib import BIN, SLOWER, TIMEOUT, Raw, Stile, check_refusal, clean_env, get, wait_for

CLONE_NEWNET, IP_FREEBIND = 0x40000000, 15
GOOD, GOOD6 = "11.22.33.44", "2600::44"        # public ones
OWN, OWN6, LATE = "11.22.33.99", "2600::99", "11.22.33.98"  # public ones that are this host's
AWAY = "11.99.0.1"                             # public, and no way there
HOLE6 = "2600:dead::1"                         # public, and nobody answers
SAID = "address_denied"

METADATA = ["169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.253", "169.254.0.23", "169.254.42.42",
            "100.100.100.200", "192.0.0.192", "168.63.129.16", "192.80.8.124",
            "fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe"]
SPECIAL4 = ["0.0.0.0", "0.0.0.1", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1",
            "127.0.0.2", "127.255.255.254", "169.254.0.1", "169.254.255.254", "172.16.0.1", "172.31.255.254", "192.0.0.1",
            "192.0.0.8", "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.254", "198.18.0.1",
            "198.19.255.254", "198.51.100.7", "203.0.113.7", "224.0.0.1", "239.255.255.250", "240.0.0.1",
            "255.255.255.254", "255.255.255.255"]
SPECIAL6 = ["::", "::1", "::2", "100::1", "2001::1", "2001:1::1", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1",
            "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1", "fdff:ffff::1", "fe80::1", "febf::1", "fec0::1", "ff02::1",
            "ff05::2", "ff0e::1", "4000::1", "8000::1", "e000::1"]
# IPv4 that must not be had, within IPv6: mapped, compatible, translated, NAT64, local-use NAT64, 6to4, Teredo, ISATAP.
CARRIED = ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:7f00:1", "::127.0.0.1", "::10.0.0.1",
           "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::10.0.0.1",
           "64:ff9b:1::10.0.0.1", "2002:7f00:1::1", "2002:a00:1::1", "2002:a9fe:a9fe::1", "2001:0:a00:1::1",
           "2001:0:1:2:3:4:80ff:fffe", "2600::5efe:10.0.0.1", "2600::200:5efe:127.0.0.1"]
ODD4 = ["2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "127.0.1", "0", "2852039166", "0251.0376.0251.0376",
        "127.0.0.256", "127.0.0.01", "0x7f.0x0.0x0.0x1", "00000177.1", "127.0.0.0x1", "1.2.3.4.5", "127.0.0.1.1", "0x", "00.0.0.0",
        "4294967295", "4294967296", "%31%32%37.0.0.1", "%3127.0.0.1", "\u0661\u0662\u0667.0.0.1", "\uff11\uff12\uff17.0.0.1",
        "evil.0x7f000001", "a.127", "10.1"]
ODD6 = ["[::1%251]", "[::1%25lo]", "[0:0:0:0:0:0:0:0:1]", "[::1::]", "[:::1]", "[::127.1]", "[v1.x]", "[127.0.0.1]", "::1",
        "[fe80::1%25eth0]", "[::ffff:0177.0.0.1]", "[00001::1]"]


def libc_call(name: str, *args: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), name)


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


class Listener:
    """Takes whatever is dialled, on all addresses at one port, and answers 200 with the address that was meant."""

    def __init__(self):
        self.socket = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128,
                                           reuse_port=True)
        self.port = self.socket.getsockname()[1]
        self.meant: list[str] = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.socket.accept()
            except OSError:
                return
            meant = str(sock.getsockname()[0]).removeprefix("::ffff:")
            self.meant.append(meant)
            threading.Thread(target=self.answer, args=(sock, meant), daemon=True).start()

    def answer(self, sock: socket.socket, meant: str) -> None:
        with sock:
            data = b""
            while b"\r\n\r\n" not in data:
                if not (more := sock.recv(65536)):
                    return
                data += more
            sock.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(meant)}\r\nConnection: close\r\n\r\n{meant}".encode())


def addresses(*v4, **more) -> dict:
    return {"A": list(v4), **more}


def zone() -> dict:
    z = {
        "good.test": {"A": [[GOOD]], "AAAA": [[GOOD6]]},
        "metadata.google.internal": {"A": [["169.254.169.254"]]}, "instance-data": {"A": [["169.254.169.254"]]},
        "rebind.test": {"A": [[GOOD], ["127.0.0.1"]], "ttl": 0},
        "rebound.test": {"A": [["127.0.0.1"], [GOOD]], "ttl": 0},
        "many.test": {"A": [["127.0.0.1"] * 9 + [GOOD] + ["10.0.0.1"] * 9]},
        "cname.test": {"A": [{"cname": "db.internal.test", "addresses": ["10.0.0.5"]}],
                       "AAAA": [{"cname": "db.internal.test", "addresses": ["fd00::5"]}]},
        "cname-local.test": {"A": [{"cname": "localhost", "addresses": ["127.0.0.1"]}]},
        "cname-good.test": {"A": [{"cname": "cdn.good.test", "addresses": [GOOD]}]},
        "servfail6.test": {"A": [[GOOD]], "AAAA": [{"rcode": "servfail"}]},
        "refused6.test": {"A": [{"addresses": [GOOD], "delay": 300}], "AAAA": [{"rcode": "refused"}]},
        "drop6.test": {"A": [[GOOD]], "AAAA": [{"drop": True}]},
        "drop4.test": {"A": [{"drop": True}], "AAAA": [[GOOD6]]},
        "hole6.test": {"A": [[GOOD]], "AAAA": [[HOLE6]]},
        "late4.test": {"A": [{"addresses": [GOOD], "delay": 400}]},
        "drop.test": {"A": [{"drop": True}], "AAAA": [{"drop": True}]},
        "servfail.test": {"A": [{"rcode": "servfail"}], "AAAA": [{"rcode": "servfail"}]},
        "nothing.test": {"A": [[]]},
        "truncated.test": {"A": [{"truncated": True, "addresses": [GOOD]}], "AAAA": [[]]},
        "wrong-id.test": {"A": [{"wrong_id": True, "addresses": [GOOD]}], "AAAA": [{"wrong_id": True, "addresses": [GOOD6]}]},
        "single.search.test": {"A": [[GOOD]]}, "dotted.name.search.test": {"A": [[GOOD]]},
        "own.test": {"A": [[OWN]], "AAAA": [[OWN6]]},
    }
    for i, bad in enumerate(METADATA + SPECIAL4 + SPECIAL6 + CARRIED):
        z[f"a{i}.bad.test"] = {"AAAA" if ":" in bad else "A": [[bad]]}
    for i, order in enumerate(itertools.permutations([GOOD, "127.0.0.1", "169.254.169.254"])):
        z[f"mixed{i}.test"] = {"A": [list(order)], "AAAA": [["::1", "fd00::1"]]}
        z[f"away{i}.test"] = {"A": [[AWAY if a == GOOD else a for a in order]], "AAAA": [["::ffff:127.0.0.1", "::1"]]}
    return z


class Net:
    """The namespace; this thread, and all that it starts, is in it."""

    def __init__(self, folder):
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            libc_call("unshare", CLONE_NEWNET)
        except OSError as e:
            pytest.skip(f"no network namespace is to be had: {e}")
        try:
            ip("link", "set", "lo", "up")
            for args in (["route", "add", "local", "default", "dev", "lo", "table", "local"],
                         ["-6", "route", "add", "local", "default", "dev", "lo", "table", "local"],
                         ["route", "add", "unreachable", "11.99.0.0/16", "table", "local"],
                         ["addr", "add", OWN + "/32", "dev", "lo"], ["-6", "addr", "add", OWN6 + "/128", "dev", "lo", "nodad"]):
                ip(*args)
            self.listener = Listener()
            self.port = self.listener.port
            self.questions = folder / "questions.jsonl"
            self.dns = dns.start(zone(), self.questions)
            # A listener with a full queue: a handshake with it is never answered.
            self.hole = socket.socket(socket.AF_INET6)
            self.hole.setsockopt(socket.SOL_IP, IP_FREEBIND, 1)
            self.hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self.hole.bind((HOLE6, self.port))
            self.hole.listen(0)
            self.fillers = []
            for _ in range(4):
                s = socket.socket(socket.AF_INET6)
                s.setblocking(False)
                s.connect_ex((HOLE6, self.port))
                self.fillers.append(s)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        libc_call("setns", self.before, CLONE_NEWNET)
        os.close(self.before)

    def asked(self) -> list[dict]:
        return [json.loads(x) for x in self.questions.read_text().splitlines()]

    def names(self, since: int = 0) -> set[str]:
        return {q["name"].lower() for q in self.asked()[since:]}


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    if not shutil.which("ip"):
        pytest.skip("needs ip (iproute2)")
    n = Net(tmp_path_factory.mktemp("net"))
    yield n
    n.leave()
    n.listener.socket.close()


@pytest.fixture(scope="module")
def origin(net):
    """None is needed; the fixture `stile` must not start the shared one within the namespace."""
    return None


def upstream(net) -> dict:
    return {"hosts": {"fixed-own.test": OWN, "fixed-meta.test": "169.254.169.254"}, "dns": [f"127.0.0.1:{net.dns}"],
            "trust": ["system"]}


@pytest.fixture(scope="module")
def open_(net, tmp_path_factory):
    """A stile that allows every host, and no address in particular."""
    s = Stile(tmp_path_factory.mktemp("open"), None, rules=[{"allow": "tcp://*:7"},
                                                            {"allow": ["http://*:*", "https://*:*"]}],
              upstream=upstream(net), limits={"dns": "1s", "dial": "3s"},
              env={"LOCALDOMAIN": "search.test", "RES_OPTIONS": "ndots:5"})
    yield s
    s.finish()


PATHS = (f"/a{i}" for i in itertools.count())


def ask(s, net, host: str, port: int | None = None, path: str = "/a"):
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return s.ask(get(f"http://{host}:{port or net.port}{path}", more="Connection: close\r\n"))


def reached(s, net, host: str, address: str) -> float:
    """The request gets to that address and to no other; the seconds it took."""
    before, since, path, at = len(net.listener.meant), s.mark(), next(PATHS), time.monotonic()
    r = ask(s, net, host, path=path)
    took = time.monotonic() - at
    assert (r.status, r.body.decode()) == (200, address), r
    end = s.wait_record(since, event="request.end", path=path)
    v6 = f"[{address}]" if ":" in address else address
    assert end["upstream"] == f"{v6}:{net.port}" and end["status"] == 200
    assert set(net.listener.meant[before:]) == {address}
    return took


def denied(s, net, host: str, status=403, reason=SAID, **more):
    before, since, path = len(net.listener.meant), s.mark(), next(PATHS)
    r = ask(s, net, host, path=path, **more)
    check_refusal(r, status, reason)
    record = s.wait_record(since, path=path)
    assert (record["event"], record["decision"], record["reason"]) == ("request.deny", "deny", r.json()["reason"])
    assert len([x for x in s.records(since) if x["path"] == path]) == 1
    assert net.listener.meant[before:] == [], "something was dialled"
    return r


# ---- addresses as they stand in a URL, and as a name has them ----


def test_a_public_address_is_reached(open_, net):
    """The control: without it every refusal below could have another cause."""
    reached(open_, net, GOOD, GOOD)
    reached(open_, net, GOOD6, GOOD6)
    reached(open_, net, "good.test", GOOD6)


@pytest.mark.parametrize("address", METADATA + SPECIAL4 + SPECIAL6 + CARRIED)
def test_a_special_address(open_, net, address):
    denied(open_, net, address)


@pytest.mark.parametrize("n", range(len(METADATA + SPECIAL4 + SPECIAL6 + CARRIED)))
def test_a_name_with_a_special_address(open_, net, n):
    denied(open_, net, f"a{n}.bad.test")


@pytest.mark.parametrize("host", ["metadata.google.internal", "instance-data", "METADATA.google.internal.", "localhost",
                                  "fixed-meta.test", "fixed-own.test", "own.test", "cname.test", "cname-local.test", OWN, OWN6])
def test_a_name_or_address_of_this_host_or_its_cloud(open_, net, host):
    denied(open_, net, host)


def test_an_address_that_came_later(open_, net):
    reached(open_, net, LATE, LATE)
    ip("addr", "add", LATE + "/32", "dev", "lo")
    try:
        # Each worker reads the addresses anew within two seconds; which one answers is the kernel's choice.
        time.sleep(2.5)
        denied(open_, net, LATE)
    finally:
        ip("addr", "del", LATE + "/32", "dev", "lo")


@pytest.mark.parametrize("port", [80, 443, 22])
def test_every_port(open_, net, port):
    denied(open_, net, "169.254.169.254", port=port)


def test_within_connect(open_, net):
    """In clear and in TLS, and as an opaque tunnel: the same judgement."""
    for host in ("127.0.0.1", "169.254.169.254", "a0.bad.test", "[::ffff:10.0.0.1]"):
        before = len(net.listener.meant)
        with open_.client() as c:
            assert c.connect(f"{host}:{net.port}").status == 200
            check_refusal(c.ask(get(f"http://{host}:{net.port}/a")), 403, SAID)
        r = open_.tls_get("/a", net.port, host=host)
        check_refusal(r, 403, SAID)
        since = open_.mark()
        with open_.client() as c:
            check_refusal(c.connect(f"{host}:7"), 403, SAID)
        assert open_.wait_record(since, port=7)["event"] == "tunnel.deny"
        assert net.listener.meant[before:] == []


@pytest.mark.parametrize("host", ODD4 + ODD6)
def test_an_odd_spelling(open_, net, host):
    asked, before = len(net.asked()), len(net.listener.meant)
    r = open_.ask(f"GET http://{host}:{net.port}/a HTTP/1.1\r\nHost: {host}:{net.port}\r\n\r\n".encode())
    check_refusal(r, 400)
    with open_.client() as c:
        check_refusal(c.connect(f"{host}:{net.port}".encode().decode("latin-1")), 400)
    assert len(net.asked()) == asked and net.listener.meant[before:] == []


@pytest.mark.parametrize("host, name", [("127.0.0.1.evil.test", "127.0.0.1.evil.test"), ("10.evil.test", "10.evil.test"),
                                        ("fcm.evil.test", "fcm.evil.test"), ("0x7f.evil.test", "0x7f.evil.test")])
def test_a_name_that_looks_like_an_address_is_a_name(open_, net, host, name):
    asked = len(net.asked())
    check_refusal(ask(open_, net, host), 502, "dns_failed")
    assert name in net.names(asked)


@pytest.mark.parametrize("spelt, read", [("[0:0:0:0:0:0:0:1]", SAID), ("[::0001]", SAID), ("[::FFFF:127.0.0.1]", SAID),
                                         ("127.0.0.1.", SAID)])
def test_other_spellings_of_the_same_address(open_, net, spelt, read):
    r = open_.ask(get(f"http://{spelt}:{net.port}/a"))
    check_refusal(r, (400, 403))
    assert r.status == 400 or r.json()["reason"] == read


# ---- what `addresses:` opens ----


@pytest.fixture(scope="module")
def ranges(net, tmp_path_factory):
    rules = [{"allow": f"http://{GOOD}:*"},
             {"allow": "http://fixed-own.test:*", "addresses": [OWN]},
             {"allow": "http://fixed-meta.test:*", "addresses": ["0.0.0.0/0", "::/0"]},
             {"allow": "http://*:*", "addresses": ["10.1.2.0/24", "169.254.0.0/16", "169.254.170.2", "fd00::/8", "127.0.0.5"]}]
    s = Stile(tmp_path_factory.mktemp("ranges"), None, rules=rules, upstream=upstream(net))
    yield s
    s.finish()


@pytest.mark.parametrize("address", ["10.1.2.0", "10.1.2.3", "10.1.2.255", "169.254.1.1", "fd12::1", "127.0.0.5", GOOD])
def test_what_is_named_is_open(ranges, net, address):
    reached(ranges, net, address, address)


@pytest.mark.parametrize("address", ["10.1.1.255", "10.1.3.0", "127.0.0.1", "127.0.0.4", "192.168.0.1", "fe80::1", "::1",
                                     OWN, OWN6, "64:ff9b::127.0.0.1", "2002:7f00:1::1"])
def test_and_nothing_else(ranges, net, address):
    denied(ranges, net, address)


@pytest.mark.parametrize("address", ["169.254.169.254", "169.254.170.23", "fd00:ec2::254"])
def test_metadata_is_not_open_by_a_range(ranges, net, address):
    denied(ranges, net, address)
    denied(ranges, net, "fixed-meta.test")


def test_metadata_is_open_by_its_exact_address(ranges, net):
    reached(ranges, net, "169.254.170.2", "169.254.170.2")


def test_an_own_address_is_open_by_name(ranges, net):
    reached(ranges, net, "fixed-own.test", OWN)


def test_check_warns_of_everything(ranges):
    r = subprocess.run([BIN, "check", ranges.config], capture_output=True, text=True, env=clean_env(), timeout=TIMEOUT)
    assert r.returncode == 0
    lines = [x for x in r.stderr.splitlines() if "0.0.0.0/0" in x]
    assert lines and "warning" in lines[0] and str(ranges.config) + ":" in lines[0], r.stderr


# ---- stile itself ----


def test_its_own_listener(net, stile):
    s = stile(rules=[{"allow": ["http://*:*", "tcp://*:*"]}], listen=[{"proxy": f"{OWN}:0"}], upstream=upstream(net))
    port = s.port
    request = get(f"http://{OWN}:{port}/a")
    with socket.create_connection((OWN, port), TIMEOUT) as sock:
        check_refusal(Raw(sock).ask(request), 403, SAID)
    for target in (f"{OWN}:{port}", f"127.0.0.1:{port}", f"own.test:{port}", f"fixed-own.test:{port}"):
        with socket.create_connection((OWN, port), TIMEOUT) as sock:
            check_refusal(Raw(sock).connect(target), 403, SAID)


# ---- answers of DNS ----


@pytest.mark.parametrize("n", range(6))
def test_of_a_mixed_answer_only_the_good_is_dialled(open_, net, n):
    reached(open_, net, f"mixed{n}.test", GOOD)


@pytest.mark.parametrize("n", range(6))
def test_a_bad_one_is_no_fallback(open_, net, n):
    before, since, path = len(net.listener.meant), open_.mark(), next(PATHS)
    check_refusal(ask(open_, net, f"away{n}.test", path=path), 502)
    end = open_.wait_record(since, event="request.end", path=path)
    assert AWAY in end.get("upstream", AWAY) and end["status"] == 502
    assert net.listener.meant[before:] == []


def test_one_good_among_many(open_, net):
    reached(open_, net, "many.test", GOOD)


def test_rebinding(open_, net):
    """One look-up for one dial, and each is judged anew."""
    asked = len(net.asked())
    reached(open_, net, "rebind.test", GOOD)
    assert sorted(q["type"] for q in net.asked()[asked:]) == ["A", "AAAA"]
    denied(open_, net, "rebind.test")
    denied(open_, net, "rebound.test")
    reached(open_, net, "rebound.test", GOOD)


def test_only_this_name_is_asked_for(open_, net):
    asked = len(net.asked())
    reached(open_, net, "cname-good.test", GOOD)
    assert {(q["name"], q["type"]) for q in net.asked()[asked:]} == {("cname-good.test", "A"), ("cname-good.test", "AAAA")}


@pytest.mark.parametrize("name, address", [("servfail6", GOOD), ("drop6", GOOD), ("refused6", GOOD), ("hole6", GOOD),
                                           ("drop4", GOOD6), ("late4", GOOD)])
def test_one_family_alone_is_quick(open_, net, name, address):
    before = len(net.listener.meant)
    at = time.monotonic()
    r = ask(open_, net, name + ".test")
    assert (r.status, r.body.decode()) == (200, address), r
    assert time.monotonic() - at < 1 * SLOWER
    assert net.listener.meant[before:] == [address]


def test_no_answer_of_dns(open_, net):
    at = time.monotonic()
    r = denied(open_, net, "drop.test", 504, "dns_timeout")
    assert 0.8 < time.monotonic() - at < 2 * SLOWER and "DNS" in r.json()["detail"]


def test_forged_answers_are_no_answers(open_, net):
    denied(open_, net, "wrong-id.test", (502, 504), ("dns_timeout", "dns_failed"))


@pytest.mark.parametrize("name", ["no-such.test", "servfail.test", "nothing.test"])
def test_a_name_without_address(open_, net, name):
    r = denied(open_, net, name, 502, "dns_failed")
    assert name in r.json()["detail"]


@pytest.mark.parametrize("name", ["single", "dotted.name"])
def test_no_search_domain(open_, net, name):
    asked = len(net.asked())
    denied(open_, net, name, 502, "dns_failed")
    assert net.names(asked) <= {name}


def test_a_truncated_answer_is_asked_for_over_tcp(open_, net):
    asked = len(net.asked())
    reached(open_, net, "truncated.test", GOOD)
    assert ["truncated.test"] == [q["name"] for q in net.asked()[asked:] if q["tcp"] and q["type"] == "A"]


def test_no_question_for_a_name_that_no_rule_admits(net, stile):
    s = stile(rules=[{"allow": ["http://good.test:*", "https://*.allowed.test"]}, {"deny": "https://no.allowed.test"}],
              upstream=upstream(net))
    asked = len(net.asked())
    secret = "c2VjcmV0"
    check_refusal(ask(s, net, f"{secret}.evil.test"), 403, "no_rule")
    check_refusal(ask(s, net, f"{secret}.good.test"), 403, "no_rule")
    for target in (f"{secret}.evil.test:443", "no.allowed.test:443", f"{secret}.allowed.test:8443"):
        with s.client() as c:
            check_refusal(c.connect(target), 403)
    with s.client() as c:  # a CONNECT that is admitted asks nothing as long as no request in it is
        assert c.connect("a.allowed.test:443").status == 200
        check_refusal(c.ask(get("http://a.allowed.test:443/x")), 403)
    r = subprocess.run([BIN, "explain", "-c", s.config, "GET", f"https://{secret}.allowed.test/x"], capture_output=True,
                       text=True, env=clean_env(), timeout=TIMEOUT)
    assert r.returncode == 0 and r.stdout.startswith("allow"), r
    reached(s, net, "good.test", GOOD6)
    assert net.names(asked) == {"good.test"}
