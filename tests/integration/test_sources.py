"""Credentials whose sources take time: renewed before they end, by one question at a time; what a source that hangs,
lies or is gone does to requests; that nothing of a helper stays."""

import json
import os
import pathlib
import re
import signal
import secrets
import threading
import time

import pytest

import canary
from stilelib import SLOWER, Stile, allow, check_refusal, wait_for

UNAVAILABLE = "credential_unavailable"


def helper(folder: pathlib.Path, text: str, name: str = "helper") -> list[str]:
    """A program of the test's: Python, with `folder` as its first argument."""
    path = folder / name
    path.write_text("#!/usr/bin/python3\nimport sys, os, time, json, secrets\nhere = sys.argv[1]\n" + text)
    path.chmod(0o755)
    return [str(path), str(folder)]


# Counts its calls, refuses to run beside itself, and hands out a fresh token that holds for `life` seconds. Each token
# is written down with the time at which it ends, for the test to compare. The first starts faster.
QUICK = """#!/bin/sh -e
mkdir "$1/running"
sleep 0.05
token=$(od -An -N8 -tx8 /dev/urandom | tr -d ' ')
end=$(date +%s.%N | awk -v life="$(cat "$1/life")" '{ printf "%.6f", $1 + life }')
echo "$token $end" >>"$1/given"
rmdir "$1/running"
printf '{"token": "%s", "expires_at": %s}' "$token" "$end"
"""
ROTATING = """
life = float(open(here + "/life").read())
os.open(here + "/running", os.O_CREAT | os.O_EXCL)
time.sleep(0.05)
token = secrets.token_hex(8)
end = time.time() + life
with open(here + "/given", "a") as f:
    f.write(f"{token} {end}\\n")
os.unlink(here + "/running")
print(json.dumps({"token": token, "expires_at": end}))
"""


def start(make, folder: pathlib.Path, text: str, **more) -> Stile:
    """A stile with the credential `tok` from that helper, at /echo/a/."""
    source = {"exec": helper(folder, text)}
    source |= {k: more.pop(k) for k in ("timeout",) if k in more}
    credential = {"from": source, "as": "bearer"} | {k: more.pop(k) for k in ("ttl",) if k in more}
    return make(rules=[allow("https://origin.test:*/echo/a/**", credential="tok")],
                credentials={"tok": credential}, **more)


def ask(s: Stile) -> str:
    """The token that the origin gets."""
    r = s.tls_get("/echo/a/x")
    assert r.status == 200, r
    [value] = [v for n, v in r.json()["headers"] if n.lower() == "authorization"]
    assert value.startswith("Bearer ")
    return canary.register(value[7:])


def calls(folder: pathlib.Path) -> list[tuple[str, float]]:
    return [(t, float(e)) for t, e in (line.split() for line in (folder / "given").read_text().splitlines())]


def refused(s: Stile, why: str) -> None:
    r = s.tls_get("/echo/a/x")
    check_refusal(r, 503, UNAVAILABLE)
    assert why in r.json()["detail"], r.json()


# ---- what a helper may say ----


@pytest.mark.parametrize("text, token", [
    ("print('plain-token')", "plain-token"),
    ("print('plain-token', end='\\r\\n')", "plain-token"),
    ("print('plain-token', end='')", "plain-token"),
    ("print(json.dumps({'token': 'from-json'}))", "from-json"),
    ("print('  ' + json.dumps({'token': 'x', 'expires_at': time.time() + 60, 'more': [1]}))", "x"),
    ("print(json.dumps({'token': 'x', 'expires_at': '2099-01-01T00:00:00Z'}))", "x"),
    ("print(json.dumps({'token': 'x', 'expires_at': '2099-01-01T00:00:00.25+02:00'}))", "x"),
    ("print(json.dumps({'token': 'x', 'expires_at': 253402300799}))", "x"),
    ("print(json.dumps({'token': 'x', 'expires_at': None}))", "x"),
    ("sys.stderr.write('noise'); print('quiet')", "quiet"),
    ("print(sys.argv[1:] == [here] and sys.stdin.read() == '' and 'args-and-no-input')", "args-and-no-input"),
])
def test_what_is_understood(stile, tmp_path, text, token):
    s = start(stile, tmp_path, text, ttl="1h")
    assert ask(s) == token
    assert "noise" not in s.stderr


@pytest.mark.parametrize("text, why", [
    ("", "printed nothing"),
    ("print()", "printed nothing"),
    ("sys.exit(3)", "ended with status 3"),
    ("print('token'); sys.exit(1)", "ended with status 1"),
    ("os.kill(os.getpid(), 9)", "ended by signal 9"),
    ("print('a\\nb')", "control character"),
    ("sys.stdout.write('x' * 65537)", "larger than"),
    ("sys.stdout.write('x' * 4000000)", "printed too much"),
    ("print('{')", "not a JSON object"),
    ("print('{}')", "no text for `token`"),
    ("print(json.dumps({'token': ''}))", "it is empty"),
    ("print(json.dumps({'token': 5}))", "no text for `token`"),
    ("print(json.dumps({'token': 'a\\r\\nX: y'}))", "control character"),
    ("print('{\"token\": \"a\", \"token\": \"b\"}')", "not a JSON object"),
    ("print('{\"token\": ' + '[' * 5000 + ']' * 5000 + '}')", "nested"),
    ("print(json.dumps({'token': 'x', 'expires_at': 'soon'}))", "is no time"),
    ("print(json.dumps({'token': 'x', 'expires_at': True}))", "is no time"),
    ("print(json.dumps({'token': 'x', 'expires_at': int(time.time() * 1000) + 60000}))", "in milliseconds?"),
    ("print(json.dumps({'token': 'x', 'expires_at': time.time() - 5}))", "ended already"),
    ("print(json.dumps({'token': 'x', 'expires_at': '1999-01-01T00:00:00Z'}))", "ended already"),
])
def test_what_is_refused(stile, tmp_path, text, why):
    s = start(stile, tmp_path, text, ttl="1h")
    refused(s, why)
    s.wait_stderr(re.escape("credential tok"))
    assert s.records()[-1]["reason"] == UNAVAILABLE


def test_somebody_must_say_when_it_ends(stile, tmp_path):
    s = start(stile, tmp_path, "print('token')")
    refused(s, "add `ttl`")


def test_a_helper_that_is_not_there(stile, tmp_path):
    s = stile(rules=[allow("https://origin.test:*/echo/a/**", credential="tok")], credentials={
        "tok": {"from": {"exec": [str(tmp_path / "absent")]}, "ttl": "1h", "as": "bearer"}})
    refused(s, "cannot be started")


# ---- what is left of one ----


def test_a_helper_that_hangs(stile, tmp_path):
    """Its time is bounded, and what it started is gone with it."""
    s = start(stile, tmp_path, """
open(here + "/pids", "a").write(f"{os.getpid()}\\n")
if os.fork() == 0:
    open(here + "/pids", "a").write(f"{os.getpid()}\\n")
time.sleep(300)
""", ttl="1h", timeout="500ms")
    refused(s, "took too long")
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        wait_for(lambda: not running(pid), why=f"process {pid} stays")


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_helper_that_leaves_one_behind(stile, tmp_path):
    """The value is taken when the helper ends, though another process holds its output open."""
    s = start(stile, tmp_path, """
if os.fork() == 0:
    open(here + "/pid", "w").write(str(os.getpid()))
    time.sleep(300)
while not os.path.exists(here + "/pid") or not open(here + "/pid").read():
    time.sleep(0.01)
print("token")
""", ttl="1h", timeout="20s")
    assert ask(s) == "token"
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not running(pid), why="what the helper started stays")


def test_a_helper_gets_nothing_of_ours(stile, tmp_path):
    """No descriptor, no blocked signal, no variable that holds another credential."""
    s = stile(rules=[allow("https://origin.test:*/echo/a/**", credential="tok")], credentials={
        "tok": {"from": {"exec": helper(tmp_path, """
open(here + "/seen", "w").write(json.dumps({
    "fds": [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{n}")],
    "env": dict(os.environ),
    "status": open("/proc/self/status").read()}))
print("token")
""")}, "ttl": "1h", "as": "bearer"},
        "other": {"from": {"env": "STILE_TEST_TOKEN"}, "as": "bearer"}},
        env={"STILE_TEST_TOKEN": secrets.token_hex(12), "STILE_TEST_PLAIN": "kept"})
    assert ask(s) == "token"
    seen = json.loads((tmp_path / "seen").read_text())
    assert [f for f in seen["fds"] if "socket" in f or ".jsonl" in f or "anon_inode" in f] == []
    assert "STILE_TEST_TOKEN" not in seen["env"] and seen["env"]["STILE_TEST_PLAIN"] == "kept"
    assert re.search(r"^SigBlk:\s+0+$", seen["status"], re.M) and re.search(r"^SigIgn:\s+0+", seen["status"], re.M)


def test_a_helper_ends_with_stile(stile, tmp_path):
    s = start(stile, tmp_path, """
if os.path.exists(here + "/pid"):
    open(here + "/pid", "w").write(str(os.getpid()))
    time.sleep(300)
open(here + "/pid", "w")
print(json.dumps({"token": "x", "expires_at": time.time() + 2}))
""", timeout="60s")
    assert ask(s) == "x"
    wait_for(lambda: (tmp_path / "pid").read_text(), 10 * SLOWER)
    pid = int((tmp_path / "pid").read_text())
    s.stop()
    wait_for(lambda: not running(pid), why="the helper outlives stile")


def test_who_is_told_to_stop_waits_for_no_source(stile, tmp_path):
    """A reload waits for what a new source says. Here it ends before that has taken too long."""
    s = stile(rules=[allow("https://origin.test:*/echo/**")])
    command = helper(tmp_path, 'open(here + "/runs", "w")\ntime.sleep(300)\n')
    s.write(rules=[allow("https://origin.test:*/echo/**", credential="tok")],
            credentials={"tok": {"from": {"exec": command, "timeout": "8s"}, "as": "bearer"}})
    s.signal(signal.SIGHUP)
    wait_for((tmp_path / "runs").exists)
    s.stop()
    assert "took too long" not in s.stderr


# ---- renewal ----


def test_renewal_under_load(stile, tmp_path):
    """10,000 requests over ten lives of a token: none fails, none carries one that has ended, and each life is
    asked for once."""
    life = 3.0 * SLOWER
    (tmp_path / "life").write_text(str(life))
    (tmp_path / "quick").write_text(QUICK)
    (tmp_path / "quick").chmod(0o755)
    s = stile(rules=[allow("https://origin.test:*/echo/a/**", credential="tok")], credentials={
        "tok": {"from": {"exec": [str(tmp_path / "quick"), str(tmp_path)]}, "as": "bearer"}})
    used: list[tuple[str, float]] = []
    failed: list[object] = []
    threads = 4

    def load():
        port = s.origin.tls
        try:
            with s.tunnel() as c:
                n = 0
                while n < 10000 // threads or len(calls(tmp_path)) < 11:
                    r = c.ask(f"GET /echo/a/x HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n".encode())
                    now = time.time()
                    if r.status != 200:
                        failed.append(r)
                        return
                    used.append(([v for h, v in r.json()["headers"] if h == "Authorization"][0][7:], now))
                    n += 1
                    if n > 10000 // threads:
                        time.sleep(0.01)
        except Exception as e:  # a thread's own would be lost
            failed.append(e)

    workers = [threading.Thread(target=load) for _ in range(threads)]
    for t in workers:
        t.start()
    for t in workers:
        t.join(120 * SLOWER)
    assert not failed, failed[0]
    given = dict(calls(tmp_path))
    assert len(used) >= 10000 and len({t for t, _ in used}) >= 10
    # An answer is read after its request was sent: what it carried had not ended a moment before.
    late = [(t, at - given[t]) for t, at in used if at > given[t] + 0.3 * SLOWER]
    assert not late, late[:3]
    lives = len(calls(tmp_path))
    took = used[-1][1] - used[0][1]
    assert lives <= took / (0.5 * life) + 3, f"{lives} questions in {took:.1f} s"


def test_a_source_that_goes_down_and_comes_back(stile, tmp_path):
    """The token at hand is used to its end and not beyond; then requests are refused; then they pass again."""
    (tmp_path / "life").write_text(str(6 * SLOWER))
    s = start(stile, tmp_path, "if os.path.exists(here + '/down'): sys.exit(7)\n" + ROTATING)
    first = ask(s)
    (tmp_path / "down").touch()
    s.wait_stderr(r"credential tok .* cannot be renewed: its helper ended with status 7")
    end = dict(calls(tmp_path))
    assert ask(s) in end
    wait_for(lambda: s.tls_get("/echo/a/x").status == 503, 20 * SLOWER)
    assert time.time() >= max(end.values()) - 0.1
    refused(s, "status 7")
    (tmp_path / "down").unlink()
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 20 * SLOWER)
    assert ask(s) != first
    s.wait_stderr("credential tok: is available again")


def test_a_source_that_is_down_at_the_start(stile, tmp_path):
    (tmp_path / "life").write_text("60")
    (tmp_path / "down").touch()
    s = start(stile, tmp_path, "if os.path.exists(here + '/down'): sys.exit(7)\n" + ROTATING)
    refused(s, "status 7")
    (tmp_path / "down").unlink()
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 20 * SLOWER)


def test_a_slow_source_holds_up_nobody_else(stile, tmp_path):
    """A renewal that takes its time costs other requests nothing, and the old token goes on."""
    (tmp_path / "life").write_text(str(3 * SLOWER))
    s = start(stile, tmp_path, """
if os.path.exists(here + "/given"):
    open(here + "/slow", "w")
    time.sleep(300)
""" + ROTATING, timeout="60s", ttl="1h")
    first = ask(s)
    wait_for((tmp_path / "slow").exists, 10 * SLOWER)
    begun = time.monotonic()
    assert ask(s) == first
    assert time.monotonic() - begun < 1 * SLOWER


def test_a_reload_goes_on_with_what_is_there(stile, tmp_path):
    """The same source is not asked again; a changed one is; one that nothing names any more is left alone."""
    (tmp_path / "life").write_text("600")
    s = start(stile, tmp_path, ROTATING)
    first = ask(s)
    s.reload()
    s.reload(limits={"drain": "1s"})
    assert ask(s) == first and len(calls(tmp_path)) == 1
    s.reload(credentials={"tok": {"from": {"exec": [*helper(tmp_path, ROTATING), "other"]}, "as": "bearer"}})
    assert ask(s) != first and len(calls(tmp_path)) == 2


def test_the_value_is_nowhere_else(stile, tmp_path):
    (tmp_path / "life").write_text("600")
    s = start(stile, tmp_path, ROTATING)
    token = ask(s)
    pid = s.proc.pid
    assert token not in s.stderr + s.log_path.read_text()
    for name in ("environ", "cmdline"):
        assert token.encode() not in pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
