"""The audit log: what stands in it, that nothing leaves without it, and what befalls the file under it."""

import json
import os
import pathlib
import re
import select
import signal
import subprocess
import threading
import time
import unicodedata

import pytest

from loadlib import Load
from stilelib import (KEYS, LOOPBACK, PAIRS, REPO, SLOWER, Peer, allow, check_log, check_refusal, client_context,
                      default_rules, get, wait_for)

ROOT = os.geteuid() == 0
WHO = ["time", "event", "id", "sandbox", "client", "listener"]
TARGET = ["method", "scheme", "host", "port"]
RULE = ["rule_at", "policy", "policy_version"]
REQUEST = [*WHO, *TARGET, "path", "http", "decision"]
ID = re.compile(r"[0-9a-hjkmnp-tv-z]{20}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def url(s, path, host="origin.test"):
    return f"http://{host}:{s.origin.plain}{path}"


def raw_lines(path):
    """Each line of the file as it stands there; all of them are whole."""
    data = path.read_bytes()
    assert data.endswith(b"\n") and b"\0" not in data
    return data.split(b"\n")[:-1]


# ---- the schema ----


def readme_keys():
    text = (REPO / "logging" / "README.md").read_text()
    table = text[text.index("| key | meaning |"):text.index("In `query`")]
    return [k for row in re.findall(r"^\| (`.*?) \|", table, re.M) for k in re.findall(r"`([a-z_]+)`", row)]


def test_the_harness_knows_the_readme_s_order():
    assert readme_keys() == KEYS


def check_keys(record, *want):
    assert list(record) == [k for k in KEYS if k in want], record
    assert TIME.fullmatch(record["time"])
    if "id" in record:
        assert ID.fullmatch(record["id"])


def test_keys_of_a_request(proxy):
    since = proxy.mark()
    with proxy.client() as c:
        me = c.sock.getsockname()[1]
        c.ask(get(url(proxy, "/upload?a=1"), method="POST", more="Content-Length: 3\r\n") + b"abc")
        start, end = proxy.wait_records(2, since)
    check_keys(start, *REQUEST, "query", *RULE)
    check_keys(end, *REQUEST, "query", *RULE, "upstream", "status", "bytes_out", "bytes_in", "ms")
    assert set(end["ms"]) >= {"connect", "first_byte", "total"}
    for r in (start, end):
        assert (r["client"], r["listener"], r["http"], r["decision"]) == (f"127.0.0.1:{me}", "proxy-0", "1.1", "allow")
        assert (r["method"], r["scheme"], r["host"], r["port"]) == ("POST", "http", "origin.test", proxy.origin.plain)
        assert (r["path"], r["query"], r["policy"]) == ("/upload", "a=1", "default")
    assert end["bytes_out"] == 3 and end["status"] == 200 and start["time"] < end["time"]


def test_keys_of_a_request_inside_tls(proxy):
    since = proxy.mark()
    assert proxy.tls_get("/ok/a").status == 200
    start, end = proxy.wait_records(2, since)
    check_keys(start, *REQUEST, *RULE, "tls")
    check_keys(end, *REQUEST, *RULE, "upstream", "status", "bytes_out", "bytes_in", "ms", "tls")
    assert list(end["tls"])[:2] == ["sni", "version"]
    assert end["tls"]["sni"] == "origin.test" and end["tls"]["version"] == "TLSv1.3"
    assert list(end["ms"]) == [k for k in ("dns", "connect", "tls", "first_byte", "total") if k in end["ms"]]
    assert "tls" in end["ms"]


def test_keys_of_a_request_that_failed(proxy):
    since = proxy.mark()
    check_refusal(proxy.get("/bad/nothing-of-the-kind"), 502)
    end = proxy.wait_record(since, event="request.end")
    check_keys(end, *REQUEST, *RULE, "upstream", "status", "bytes_out", "bytes_in", "ms", "error", "error_detail")
    assert end["decision"] == "allow" and end["error"].startswith("upstream_") and end["error_detail"]


def test_keys_of_a_denied_request(proxy):
    since = proxy.mark()
    proxy.get("/no/a")
    record = proxy.wait_record(since)
    check_keys(record, *REQUEST, "reason", *RULE, "status", "ms", "error_detail")
    assert (record["event"], record["decision"], record["reason"]) == ("request.deny", "deny", "denied_by_rule")
    proxy.get("/ok/a", host="evil.test")
    record = proxy.wait_record(since, reason="no_rule")
    check_keys(record, *REQUEST, "reason", "policy", "policy_version", "status", "ms", "error_detail")


def test_keys_of_a_head_that_could_not_be_read(proxy):
    since = proxy.mark()
    proxy.ask(b"GET\x01 nonsense\r\n\r\n")
    record = proxy.wait_record(since)
    assert {"time", "event", "id", "sandbox", "client", "listener", "decision", "reason", "policy", "policy_version",
            "status", "error_detail"} <= set(record)
    assert (record["event"], record["reason"], record["status"]) == ("request.deny", "malformed_request", 400)


def test_keys_of_tunnels(stile):
    s = stile(rules=[{"allow": "origin.test:*", "tls": "passthrough", "addresses": LOOPBACK, "name": "through"}])
    with s.client() as c:
        assert c.connect(f"origin.test:{s.origin.tls}").status == 200
        c.start_tls(client_context(s.origin.pki / "ca.pem"), "origin.test")
        assert c.ask(get("/ok/a", host="origin.test")).status == 200
    end = s.wait_record(event="tunnel.end")
    start = s.wait_record(event="tunnel.start")
    common = [*WHO, *TARGET, "http", "decision", "rule", *RULE, "tls"]
    check_keys(start, *common)
    check_keys(end, *common, "upstream", "bytes_out", "bytes_in", "ms")
    assert (start["method"], start["scheme"], start["rule"]) == ("CONNECT", "https", "through")
    assert start["tls"] == {"sni": "origin.test"}
    since = s.mark()
    with s.client() as c:
        check_refusal(c.connect("evil.test:443"), 403, "no_rule")
    deny = s.wait_record(since)
    assert deny["event"] == "tunnel.deny"
    check_keys(deny, *WHO, "method", "host", "port", "http", "decision", "reason", "policy", "policy_version", "status",
               "error_detail")


def test_keys_of_the_process(stile):
    s = stile()
    since = s.mark()
    s.reload()
    s.config.write_text("version: 7\n")
    s.hup(since, good=False)
    assert s.stop() == 0
    records = s.records()
    assert [r["event"] for r in records] == ["proxy.start", "policy.load", "policy.load", "policy.reject", "proxy.stop"]
    for r in records:
        more = {"policy.load": ["policy", "policy_version", "error_detail"],
                "policy.reject": ["policy", "policy_version", "error_detail"]}.get(r["event"], [])
        check_keys(r, "time", "event", *more)


def test_the_first_records_are_there_before_the_first_connection(stile):
    s = stile()
    assert [r["event"] for r in s.records()] == ["proxy.start", "policy.load"]


def test_a_name_of_the_rule_and_its_place(stile):
    s = stile(rules=[allow("http://origin.test:*", name="the one"), {"deny": "http://origin.test:*/no/**", "name": "not"}])
    s.get("/ok/a")
    s.get("/no/a")
    lines = s.config.read_text().splitlines()
    for record, name in ((s.wait_record(event="request.end"), "the one"), (s.wait_record(event="request.deny"), "not")):
        assert record["rule"] == name
        file, line = record["rule_at"].rsplit(":", 1)
        assert file == str(s.config) and name in lines[int(line) - 1]


def test_a_credential_is_named_and_never_shown(stile, tmp_path, canary):
    (tmp_path / "k").write_text(canary)
    s = stile(rules=[allow("https://origin.test:*", credential="k")],
              credentials={"k": {"from": {"file": str(tmp_path / "k")}, "as": {"query": "api_key"}}})
    r = s.tls_get("/auth?x=1", more="Authorization: Bearer mine-" + canary[::-1] + "\r\n")
    assert canary in r.json()["target"]
    start, end = s.wait_record(event="request.start"), s.wait_record(event="request.end")
    for record in (start, end):
        assert record["credential"] == "k" and record["credential_stripped"] is True
        assert record["query"] == "x=1"
    text = s.log_path.read_text() + s.stderr
    assert canary not in text and canary[::-1] not in text


# ---- every request once ----


def test_the_start_is_in_the_kernel_before_anything_goes_upstream(stile):
    for wait in ("written", "synced"):
        s = stile(log={"wait": wait})
        with Peer() as peer, s.client() as c:
            for i in range(20):
                c.send(get(f"http://origin.test:{peer.port}/{i}"))
                with peer.accept() as o:
                    o.read_until(b"\r\n\r\n")
                    assert s.records()[-1]["path"] == f"/{i}", "no record of what has arrived"
                    o.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                assert c.response().status == 200
                s.wait_records(i + 1, event="request.end")


def test_a_refusal_is_in_the_kernel_before_the_client_hears_of_it(proxy):
    for i in range(50):
        r = proxy.get(f"/no/{i}")
        assert proxy.records()[-1]["id"] == r.json()["id"]


@pytest.mark.parametrize("wait", ["synced", "none"])
def test_other_ways_to_wait(stile, wait):
    s = stile(log={"wait": wait})
    with Load(s, clients=3, tls=1) as load:
        wait_for(lambda: s.mark() > 200)
    assert not load.failures
    s.wait_records(load.done, event="request.start")
    s.wait_records(load.done, event="request.end")
    assert s.stop() == 0
    check_log(s.records())


def mixed(s, number, out):
    """One client's life: all the ways in which a request can go, each so often that none is spared a race."""
    peer = f"origin.test:{s.origin.plain}"
    for i in range(12):
        tag = f"t={number}-{i}"
        with s.client() as c:  # whole
            assert c.ask(get(f"http://{peer}/bytes/20000?{tag}")).status == 200
        with s.client() as c:  # the client resets in the middle of the answer
            c.send(get(f"http://{peer}/bytes/3000000?{tag}"))
            c.read(1000)
            c.reset()
        with s.client() as c:  # in the middle of its own body
            c.send(get(f"http://{peer}/upload?{tag}", method="POST", more="Content-Length: 100000\r\n") + b"x" * 500)
            c.reset()
        with s.client() as c:  # at once
            c.send(get(f"http://{peer}/ok/a?{tag}"))
            c.reset()
        with s.client() as c:  # the origin does
            c.send(get(f"http://{peer}/reset?after={(0, 500)[i % 2]}&{tag}"))
            c.read_all() if i % 2 else c.response()
        with s.client() as c:
            check_refusal(c.ask(get(f"http://{peer}/no/a?{tag}")), 403)
        with s.client() as c:
            check_refusal(c.ask(b"GET / HTTP/1.1\r\nBad Name: 1\r\n\r\n"), 400)
        with s.client() as c:
            check_refusal(c.connect("evil.test:1"), 403)
        with s.tunnel() as c:
            assert c.ask(get(f"/ok/a?{tag}", host=f"origin.test:{s.origin.tls}")).status == 200
            c.reset()
        with s.client() as c:  # half a head
            c.send(b"GET http://evil.test/ HT")
            c.reset() if i % 2 else c.half_close()
    out.append(number)


def test_each_start_has_one_end(stile):
    s = stile(limits={"workers": 2})
    done, threads = [], []
    for n in range(4):
        threads.append(threading.Thread(target=mixed, args=(s, n, done), daemon=True))
        threads[-1].start()
    for t in threads:
        t.join()
    assert len(done) == 4
    n = len(done) * 12
    s.wait_records(n, event="request.deny", reason="denied_by_rule")
    s.wait_records(n, event="request.deny", reason="malformed_request")
    s.wait_records(n, event="tunnel.deny")
    s.wait_records(n, event="request.end", scheme="https")
    s.wait_records(n, event="request.end", path="/reset")
    # Half a head is one record, too, whichever way the client went.
    wait_for(lambda: sum(r["event"] == "request.deny" and r["reason"] == "client_closed" for r in s.records()) >= n)

    def balanced():
        events = [r["event"] for r in s.records()]
        return all(events.count(a) == events.count(b) for a, b in PAIRS.items())
    wait_for(balanced, why="each start has its end")
    assert s.stop() == 0
    check_log(s.records())
    raw_lines(s.log_path)
    errors = {r.get("error") for r in s.records() if r["event"] == "request.end"}
    assert errors <= {None, "client_closed", "upstream_closed"}, errors


def test_refusals_of_every_kind_leave_a_record(stile):
    """As many records as answers of ours."""
    s = stile(rules=[*default_rules(), {"allow": "http://nowhere.test"}], upstream={"dns": ["127.0.0.1:1"]},
              limits={"dns": "200ms"})
    tls_hello = bytes.fromhex("16030100050100000100")
    asks = [b"nonsense\r\n\r\n", b"\x00\x01\x02\r\n\r\n", tls_hello + b"\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nX: " + b"x" * 70000 + b"\r\n\r\n",
            get("http://evil.test/"), get("/relative", host="origin.test"), get("http://nowhere.test/"),
            get("http://origin.test/" + "a" * 17000), get("http://origin.test/", host="evil.test"),
            get("http://origin.test/", method="TRACE"), get("http://origin.test/a/../b"),
            b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", b"GET http://origin.test/ HTTP/9.9\r\n\r\n",
            b"CONNECT \x1b[2K:443 HTTP/1.1\r\nHost: a\r\n\r\n"]
    for i, ask in enumerate(asks):
        since = s.mark()
        with s.client() as c:
            me = "127.0.0.1:%d" % c.sock.getsockname()[1]
            r = c.ask(ask, "GET")
            assert 400 <= r.status < 600, (ask, r)
        record = s.wait_record(since)
        assert record["client"] == me and record["decision"] == "deny" and record["reason"], ask[:80]
        assert record["status"] == r.status and record["id"] == r.json()["id"], ask[:80]
    with s.client() as c:  # a bare connect may be left out, and is
        pass
    check_refusal(s.get("/no/last"), 403)
    s.wait_record(path="/no/last")
    assert len([r for r in s.records() if r.get("decision") == "deny"]) == len(asks) + 1


def test_kill_in_the_middle_leaves_the_start(stile):
    s = stile(exit_code=-signal.SIGKILL, pairs=False)
    with Peer() as peer, s.client() as c:
        c.send(get(f"http://origin.test:{peer.port}/in-flight"))
        with peer.accept() as o:
            o.read_until(b"\r\n\r\n")
            os.kill(s.pid, signal.SIGKILL)
            assert c.at_end()
    s.proc.wait()
    last = s.records()[-1]
    assert (last["event"], last["path"]) == ("request.start", "/in-flight")
    raw_lines(s.log_path)


def test_half_a_line_of_a_dead_process_is_ended(stile, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"time":"2020-01-01T00:00:00.000000Z","event":"request.st')
    s = stile(log={"to": str(path)}, pairs=False)
    s.log_path = path
    lines = wait_for(lambda: len(x := path.read_bytes().split(b"\n")) > 2 and x)
    assert lines[0].endswith(b"request.st") and json.loads(lines[1])["event"] == "proxy.start"


# ---- a full disk ----


@pytest.fixture
def small_disk(tmp_path):
    """A folder, and the command prefix that gives stile a file system of 64 KiB there, which nobody else sees."""
    if not ROOT:
        pytest.skip("a mount namespace of one's own needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    prefix = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs "$0" && exec "$@"', str(folder)]
    probe = subprocess.run([*prefix, "true"], capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no mount namespace: {probe.stderr.strip()}")
    return folder, prefix


def fill(path):
    """Leaves no byte free."""
    with open(path, "wb", 0) as f:
        for size in (4096, 1):
            try:
                while f.write(b"\0" * size):
                    pass
            except OSError:
                pass


@pytest.mark.parametrize("wait", ["written", "synced"])
def test_a_full_disk(stile, small_disk, wait):
    folder, prefix = small_disk
    s = stile(log={"to": str(folder / "log.jsonl"), "wait": wait}, prefix=prefix, limits={"workers": 2})
    inside = pathlib.Path(f"/proc/{s.pid}/root{folder}")
    s.log_path = inside / "log.jsonl"
    keep = open(s.log_path, "rb")  # the file system lives as long as this
    assert s.get("/ok/before").status == 200
    s.wait_record(event="request.end")
    for turn in range(2):
        fill(inside / "filler")
        # The log's last page has room for a few more lines.
        for i in range(40):
            if s.get(f"/ok/turn{turn}-{i}").status == 503:
                break
        s.wait_stderr(r"cannot be written: No space left on device \(requests are refused")
        seen = s.origin.mark()
        begun = time.monotonic()
        with s.client() as c:
            for i in range(10):
                check_refusal(c.ask(get(url(s, f"/ok/full{turn}-{i}"))), 503, "log_unavailable")
        assert time.monotonic() - begun < 2 * SLOWER, "a log that is down is not waited for"
        with s.client() as c:
            check_refusal(c.connect(f"origin.test:{s.origin.tls}"), 503, "log_unavailable")
        check_refusal(s.get("/no/a"), (403, 503))
        assert b"full" not in s.origin.since(seen), "it went out without a record"
        # By itself, when there is room again.
        os.unlink(inside / "filler")
        wait_for(lambda: s.get(f"/ok/after{turn}").status == 200, why="it writes again")
        s.wait_stderr("is written again")
    s.wait_record(event="request.end", path="/ok/after1")
    assert s.stop() == 0
    data = keep.read()
    keep.close()
    records = [json.loads(x) for x in data.split(b"\n")[:-1]]
    assert data.endswith(b"}\n") and records[-1]["event"] == "proxy.stop"
    check_log(records)
    # Those that were refused before a start record was made have one record at most, never a start.
    for r in records:
        if "/ok/full" in r.get("path", ""):
            assert r["event"] == "request.deny" and r["reason"] == "log_unavailable", r


def test_opened_anew_while_a_line_stands_half_on_a_full_disk(stile, small_disk):
    """The same file, by SIGHUP, in the moment in which there is room again: the line goes on where it was."""
    folder, prefix = small_disk
    s = stile(log={"to": str(folder / "log.jsonl")}, prefix=prefix)
    inside = pathlib.Path(f"/proc/{s.pid}/root{folder}")
    s.log_path = inside / "log.jsonl"
    halves = 0
    for turn in range(12):
        fill(inside / "filler")
        for i in range(40):
            if s.get(f"/ok/turn{turn}-{'x' * turn}-{i}").status == 503:
                break
        wait_for(lambda: s.get("/ok/a").status == 503, why="the disk is full")
        halves += not s.log_path.read_bytes().endswith(b"\n")
        os.unlink(inside / "filler")
        s.signal(signal.SIGHUP)
        wait_for(lambda: s.get(f"/ok/after{turn}").status == 200, why="it writes again")
    assert halves > 3, "the disk was never full in the middle of a line"
    s.settled()
    check_log(s.records())  # each line is a record


def test_dev_full(stile):
    s = stile(log={"to": "/dev/full"}, exit_code=-signal.SIGKILL, pairs=False)
    s.wait_stderr("cannot be written: No space left on device")
    with Peer() as peer:
        check_refusal(s.ask(get(f"http://origin.test:{peer.port}/")), 503, "log_unavailable")
        with s.client() as c:
            check_refusal(c.connect(f"origin.test:{peer.port}"), 503, "log_unavailable")
        assert peer.nobody_came(0.05)
    check_refusal(s.get("/ok/a", host="evil.test"), (403, 503))
    os.kill(s.pid, signal.SIGKILL)  # in good order it would give the log its last chance for some seconds
    s.proc.wait()


# ---- rotation ----


def test_rotation_under_load(stile):
    """Renamed and told by SIGHUP, renamed and told by SIGUSR1, each 100 ms: all lines once and whole."""
    s = stile(limits={"workers": 2}, pairs=False)
    first, files = s.log_path, []
    with Load(s, clients=4, tls=1) as load:
        for i in range(20):
            wait_for(lambda: first.exists() and first.stat().st_size > 20000)
            files.append(first.with_name(f"log.{i}"))
            first.rename(files[-1])
            s.signal(signal.SIGUSR1 if i % 2 else signal.SIGHUP)
            time.sleep(0.1)
    assert not load.failures
    wait_for(first.exists)
    assert s.stop() == 0
    records = [json.loads(x) for f in [*files, first] for x in raw_lines(f)]
    seen = [(r["id"], r["event"]) for r in records if "id" in r]
    assert len(seen) == len(set(seen)), "a line is there twice"
    assert len(seen) == 2 * load.done
    # 10 reloads; signals that come together are one.
    loads = sum(r["event"] == "policy.load" for r in records)
    assert 2 <= loads <= 11
    assert len(records) == 2 * load.done + 2 + loads
    check_log(records)


def test_a_renamed_file_without_a_signal(stile):
    s = stile()
    s.log_path.rename(old := s.log_path.with_name("old"))
    wait_for(s.log_path.exists, 5 * SLOWER)
    s.wait_stderr("was moved; a new file is in use")
    assert s.get("/ok/a").status == 200
    s.wait_record(event="request.end")
    assert [r["event"] for r in s.records(path=old)] == ["proxy.start", "policy.load"]


def test_a_deleted_file_is_noticed(stile):
    s = stile()
    assert s.get("/ok/a").status == 200
    s.wait_record(event="request.end")
    s.log_path.unlink()
    wait_for(s.log_path.exists, 5 * SLOWER)
    s.wait_stderr("was deleted; a new file is in use")
    assert s.get("/ok/b").status == 200
    assert s.wait_record(event="request.end")["path"] == "/ok/b"


@pytest.fixture
def sealed(tmp_path):
    """A folder for the log that a test makes read-only (root as such is no matter: stile has no capabilities)."""
    folder = tmp_path / "logs"
    folder.mkdir()
    yield folder
    folder.chmod(0o755)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
def test_a_folder_made_read_only(stile, sealed, number):
    path = sealed / "log.jsonl"
    s = stile(log={"to": str(path)})
    old, s.log_path = sealed / "log.1", path
    assert s.get("/ok/a").status == 200
    s.wait_record(event="request.end")
    path.rename(old)
    sealed.chmod(0o555)
    s.signal(number)
    s.wait_stderr("the old file stays in use")
    assert s.get("/ok/b").status == 200
    wait_for(lambda: any(r.get("path") == "/ok/b" for r in s.records(path=old)))
    if number == signal.SIGHUP:
        wait_for(lambda: sum(r["event"] == "policy.load" for r in s.records(path=old)) == 2,
                 why="the reload itself is fine")
    sealed.chmod(0o755)
    wait_for(path.exists, 5 * SLOWER, "the new one as soon as it can be made")
    assert s.get("/ok/c").status == 200
    s.wait_record(event="request.end", path="/ok/c")


def test_deleted_in_a_read_only_folder(stile, sealed):
    """What a file that nobody can find is given is lost: no request is made until there is another."""
    path = sealed / "log.jsonl"
    s = stile(log={"to": str(path)})
    s.log_path = path
    path.unlink()
    sealed.chmod(0o555)
    s.wait_stderr("cannot be written")
    seen = s.origin.mark()
    check_refusal(s.get("/ok/lost-file"), 503, "log_unavailable")
    assert b"lost-file" not in s.origin.since(seen)
    sealed.chmod(0o755)
    wait_for(lambda: s.get("/ok/again").status == 200)
    s.wait_record(event="request.end", path="/ok/again")


def test_copytruncate_leaves_no_holes(stile):
    s = stile(pairs=False)
    copies = []
    with Load(s, clients=3) as load:
        for _ in range(10):
            wait_for(lambda: s.log_path.stat().st_size > 5000)
            copies.append(s.log_path.read_bytes())
            os.truncate(s.log_path, 0)
    assert not load.failures
    assert s.stop() == 0
    last = s.log_path.read_bytes()
    for data in [*copies, last]:
        assert b"\0" not in data
    json.loads(last.split(b"\n")[-2])


# ---- other targets ----


def test_stdout(stile, tmp_path):
    out = tmp_path / "out"
    s = stile(log={"to": "stdout"}, prefix=["sh", "-c", f'exec "$@" >{out}', "sh"])
    s.log_path = out
    with Load(s) as load:
        wait_for(lambda: s.mark() > 100)
    assert not load.failures and s.stop() == 0
    assert sum(r["event"] == "request.end" for r in s.records()) == load.done
    raw_lines(out)


@pytest.mark.parametrize("to", ["stdout", "fifo"])
def test_a_pipe(stile, tmp_path, to):
    """Nothing goes out while nobody reads and the pipe is full; then all lines, whole."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    prefix = ["sh", "-c", f'exec "$@" >{fifo}', "sh"] if to == "stdout" else []
    s = stile(log={"to": "stdout" if to == "stdout" else str(fifo)}, prefix=prefix, pairs=False)
    got = bytearray()

    def drain():
        try:
            while data := os.read(end, 65536):
                got.extend(data)
        except BlockingIOError:
            pass
    with Load(s, clients=3) as load:
        # 64 KiB of lines, and no more requests.
        probe = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        wait_for(lambda: not select.select([], [probe], [], 0)[1], why="the pipe is full")
        os.close(probe)
        wait_for(lambda: drain() or got.count(b"\n") > 500)
        load.stopping.set()
        wait_for(lambda: drain() or not any(t.is_alive() for t in load.threads))
    assert not load.failures
    s.stopped = True
    s.signal(signal.SIGTERM)
    wait_for(lambda: drain() or s.proc.poll() is not None)
    drain()
    os.close(end)
    assert s.proc.returncode == 0
    records = [json.loads(x) for x in bytes(got).split(b"\n")[:-1]]
    check_log(records)
    assert sum(r["event"] == "request.end" for r in records) == load.done


# ---- forged values, secrets ----

EVIL = ["\x1b[2K\x1b[1A", "\x1b]0;x\x07", '","decision":"allow","x":"', "\\", "\\\\u000a", "\\n", '"}\\n{"event":"proxy.stop"}',
        "\u202e", "\u2066", "\u2028", "\u2029", "\u0085", "\x9b31m", "\u009b", "\x7f", "\xff\xfe", "\xed\xa0\x80", "%0d%0a",
        "%1b", "%00", "\t", "a\tb", "\u200f"]


def as_bytes(text):
    """Latin-1 where it can be (raw and mostly invalid bytes), else UTF-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def check_forgery(s, since, records):
    """One line each, and nothing in it that a terminal or a reader of lines could obey."""
    s.wait_records(records, since)
    lines = raw_lines(s.log_path)[since:]
    assert len(lines) == records, lines
    for line in lines:
        record = json.loads(line)
        assert record["event"] in ("request.start", "request.end", "request.deny", "tunnel.deny")
        if record["event"] in ("request.deny", "tunnel.deny"):
            assert record["decision"] == "deny"
        text = line.decode()  # valid UTF-8
        for ch in text:
            assert unicodedata.category(ch) not in ("Cc", "Cf", "Zl", "Zp", "Cs"), ascii(text)


@pytest.mark.parametrize("number", range(len(EVIL)))
def test_forged_values(proxy, number):
    evil = as_bytes(EVIL[number])
    plain = f"origin.test:{proxy.origin.plain}".encode()
    for message in (
        b"GET http://%s/ok/%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (plain, evil, plain),
        b"GET http://%s/ok/?q=%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (plain, evil, plain),
        b"GET http://%s.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n" % evil,
        b"GET http://%s/ok/a HTTP/1.1\r\nHost: %s\r\n\r\n" % (plain, evil),
        b"GET http://%s/ok/a HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n\r\n" % (plain, plain, evil),
        b"GET http://%s/ok/a HTTP/1.1\r\nHost: %s\r\n%s: x\r\n\r\n" % (plain, plain, evil),
        b"%s http://%s/ok/a HTTP/1.1\r\nHost: %s\r\n\r\n" % (evil, plain, plain),
        b"GET http://%s/ok/a %s\r\nHost: %s\r\n\r\n" % (plain, evil, plain),
        b"CONNECT %s:443 HTTP/1.1\r\nHost: %s:443\r\n\r\n" % (evil, evil),
        b"CONNECT evil.test:443 HTTP/1.1\r\nHost: %s\r\n\r\n" % evil,
    ):
        since, said = proxy.mark(), len(proxy.lines)
        with proxy.client() as c:
            r = c.ask(message, "GET")
        check_forgery(proxy, since, 2 if r.status in (200, 404) else 1)
        if r.status not in (200, 404):
            check_refusal(r, r.status)  # a body that is JSON
            assert not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", r.body), r.body
        for line in proxy.lines[said:]:
            assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", line), ascii(line)


def test_forged_names_inside_a_tunnel(proxy):
    host = f"origin.test:{proxy.origin.tls}"
    for evil in EVIL:
        since = proxy.mark()
        with proxy.tunnel() as c:
            r = c.ask(b"GET /ok/%s HTTP/1.1\r\nHost: %s\r\n\r\n" % (as_bytes(evil), host.encode()), "GET")
        check_forgery(proxy, since, 2 if r.status in (200, 404) else 1)


def test_a_very_long_value_is_cut_and_says_so(proxy):
    since = proxy.mark()
    assert proxy.get("/ok/" + "a" * 16000).status == 200
    start, end = proxy.wait_records(2, since)
    assert start["path"].endswith("[cut]") and start["path"] == end["path"]
    since = proxy.mark()
    proxy.get("/ok/" + "\x1b" * 12000 + "?" + "\x1b" * 3000)
    record = proxy.wait_record(since)
    assert record["event"] == "request.deny"
    assert all(len(x) <= 16384 for x in raw_lines(proxy.log_path))


SECRET_KEYS = ["key", "securityToken", "exaApiKey", "X-Amz-Signature", "X-Amz-Credential", "sig", "access_token", "code",
               "%6bey", "KEY", "K%45Y", "apiKey", "session[id]", "password", "client_secret", "auth", "jwt", "X-Amz-Key",
               "securitytoken", "api.key", "id_token", "X-Amz-Security-Token", "SAMLResponse", "pwd", "%2561pikey"]
OPEN = "q=ok&page=2&key&sort=name"


def test_secrets_in_the_query(proxy, canary):
    query = "&".join(f"{k}={canary}{i}" for i, k in enumerate(SECRET_KEYS)) + f"&a=1;key={canary}x&key={canary}y&{OPEN}"
    since = proxy.mark()
    r = proxy.get(f"/echo?{query}", more=f"Referer: http://a.test/?key={canary}r\r\nCookie: s={canary}c\r\n"
                  f"Authorization: Bearer {canary}b\r\nProxy-Authorization: Basic {canary}p\r\n")
    assert r.json()["target"] == "/echo?" + query, "upstream it is what it was"
    for record in proxy.wait_records(2, since):
        parts = re.split("[&;]", record["query"])
        assert parts.count("a=1") == 1 and record["query"].endswith("&" + OPEN)
        assert sum(p.endswith("=[redacted]") for p in parts) == len(SECRET_KEYS) + 2
    silent(proxy, canary)


def silent(s, canary):
    text = s.log_path.read_text()
    assert canary not in text and canary not in s.stderr
    assert canary.encode().hex() not in text


@pytest.mark.parametrize("head", [
    "GET {U}/no/a?token={C} HTTP/1.1\r\nHost: {A}\r\n",  # denied
    "GET http://evil.test/?token={C} HTTP/1.1\r\nHost: evil.test\r\n",  # no rule
    "GET {U}/ok/../b?token={C} HTTP/1.1\r\nHost: {A}\r\n",  # ambiguous
    "GET {U}/ok/a?token={C}#f HTTP/1.1\r\nHost: {A}\r\n",
    "GET {U}/ok/a?token={C} HTTP/1.1\r\nHost: other.test\r\n",  # names disagree
    "GET {U}/ok/a?token={C} HTTP/9.9\r\nHost: {A}\r\n",
    "GET {U}/ok/a?token={C} HTTP/1.1\r\n",  # no Host
    "GET /ok/a?token={C} HTTP/1.1\r\nHost: {A}\r\n",  # not absolute
    "GET https://origin.test/?token={C} HTTP/1.1\r\nHost: origin.test\r\n",
    "GET {U}/ok/a?x=\x01&token={C} HTTP/1.1\r\nHost: {A}\r\n",
    "GET {U}/ok/a?token={C} HTTP/1.1\r\nHost: {A}\r\nBad Name: 1\r\n",
    "GET {U}/ok/a?token={C} HTTP/1.1 more\r\nHost: {A}\r\n",
    "TRACE {U}/ok/a?token={C} HTTP/1.1\r\nHost: {A}\r\n",
    "GET {U}/ok/a HTTP/1.1\r\nHost: {A}\r\nAuthorization : {C}\r\n",
    "GET {U}/ok/a HTTP/1.1\r\nHost: {A}\r\nAuthorization: {C}\x01\r\n",
    "GET {U}/ok/a HTTP/1.1\r\nHost: {A}\r\nContent-Length: {C}\r\n",
    "GET {U}/ok/a HTTP/1.1\r\nHost: {A}\r\nExpect: {C}\r\n",
    "GET {U}/reset?token={C} HTTP/1.1\r\nHost: {A}\r\n",  # fails behind the start
    "GET {U}/bad/x?token={C} HTTP/1.1\r\nHost: {A}\r\n",
])
def test_no_secret_of_a_refused_request_is_kept(proxy, canary, head):
    authority = f"origin.test:{proxy.origin.plain}"
    since = proxy.mark()
    head = head.replace("{U}", "http://" + authority).replace("{A}", authority).replace("{C}", canary)
    r = proxy.ask((head + "\r\n").encode("latin-1"))
    assert r.status >= 400
    proxy.wait_record(since)
    assert canary.encode() not in r.body, "the answer says it"
    silent(proxy, canary)


def test_a_head_that_was_cut_short_keeps_no_secret(proxy, canary):
    since = proxy.mark()
    with proxy.client() as c:
        c.send(f"GET http://origin.test/a?token={canary} HTTP/1.1\r\nAuthorization: Bearer {canary}".encode())
        c.half_close()
        c.read_all()
    assert proxy.wait_record(since, event="request.deny")["reason"] == "client_closed"
    silent(proxy, canary)
