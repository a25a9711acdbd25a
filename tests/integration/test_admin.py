"""The admin socket: who may ask, what is answered, and that nobody can hold it; `stile status` and `credentials`."""

import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

import runlib
from adminlib import ADMIN, ask, ask_json, stile_cli
from stilelib import BIN, SLOWER, TIMEOUT, Peer, Stile, allow, get, wait_for


@pytest.fixture(scope="module")
def world_of_all(origin, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("admin"), origin, extra=ADMIN)
    yield s
    s.finish()


@pytest.fixture
def world(world_of_all):
    return world_of_all.settled()


def path_of(s: Stile):
    return s.folder / "admin.sock"


def dial(s: Stile) -> socket.socket:
    c = socket.socket(socket.AF_UNIX)
    c.settimeout(TIMEOUT)
    c.connect(str(path_of(s)))
    return c


def raw(s: Stile, data: bytes) -> bytes:
    with dial(s) as c:
        c.sendall(data)
        out = b""
        try:
            while got := c.recv(65536):
                out += got
        except ConnectionResetError:
            pass
        return out


# ---- who may ask ----


def test_the_socket_is_its_owners_alone(world):
    st = os.stat(path_of(world))
    assert stat.S_ISSOCK(st.st_mode) and stat.S_IMODE(st.st_mode) == 0o600 and st.st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to ask as somebody else")
def test_another_user_is_turned_away_whatever_the_mode(stile):
    s = stile(extra=ADMIN)
    for folder in [s.folder, *s.folder.parents]:
        if folder.stat().st_mode & 0o5 != 0o5:
            break
    script = ("import os, socket, sys\n"
              "c = socket.socket(socket.AF_UNIX); c.settimeout(20)\n"
              "d = os.open(os.path.dirname(sys.argv[1]), os.O_PATH)\n"  # the way there need not be open to others
              "os.fchdir(d)\n"
              "os.setresuid(12345, 12345, 12345)\n"
              "try:\n c.connect('admin.sock')\nexcept PermissionError:\n print('mode'); sys.exit()\n"
              "try:\n c.sendall(b'{\"do\":\"status\"}\\n'); print('got', c.recv(100))\n"
              "except (BrokenPipeError, ConnectionResetError):\n print('got', b'')\n")

    def other() -> str:
        got = subprocess.run([sys.executable, "-c", script, str(path_of(s))], capture_output=True, text=True,
                             timeout=TIMEOUT * 2, check=True)
        return got.stdout.strip()
    assert other() == "mode"
    os.chmod(path_of(s), 0o666)
    os.chmod(s.folder, 0o755)
    assert other() == "got b''"
    s.wait_stderr("admin: user 12345 was turned away")
    assert ask_json(s, "status")["healthy"] is True


def test_a_user_namespace_is_turned_away(stile):
    """What a sandbox without root is: its command has the user that made it, and so that of stile on a laptop."""
    s = stile(extra=ADMIN)
    unshare = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("needs user namespaces, which this kernel or container does not give")
    inside = subprocess.run([*unshare, str(BIN), "status", "-c", str(s.config)], capture_output=True, text=True, timeout=TIMEOUT)
    assert inside.returncode == 1 and inside.stdout == "", inside.stdout
    s.wait_stderr(f"admin: user {os.geteuid()} was turned away")
    assert ask_json(s, "status")["healthy"] is True


def test_it_goes_with_stile_and_a_stale_one_is_replaced(stile):
    s = stile(extra=ADMIN)
    path = path_of(s)
    assert path.exists()
    s.stop()
    assert not path.exists()
    got = stile_cli("status", "-c", s.config)
    assert got.returncode == 1 and "does `stile serve` run" in got.stderr and got.stdout == ""
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    again = Stile(s.folder, s.origin, extra=ADMIN)
    assert ask_json(again, "status")["healthy"] is True
    again.finish()


def test_without_admin_there_is_none(stile):
    s = stile()
    got = stile_cli("status", "-c", s.config)
    assert got.returncode == 2 and "no admin socket" in got.stderr
    assert not path_of(s).exists()


def test_no_reload_moves_it(stile):
    s = stile(extra=ADMIN)
    assert "admin" in s.reload(good=False, extra="admin: unix:other.sock")["error_detail"]
    assert stile_cli("status", "--socket", path_of(s)).returncode == 0


def test_run_hides_it(stile, tmp_path):
    s = stile(extra=ADMIN)
    script = ("import socket, sys\nc = socket.socket(socket.AF_UNIX)\n"
              "try:\n c.connect(sys.argv[1]); print('REACHED')\nexcept OSError as e:\n print(type(e).__name__)\n")
    got = stile_cli("run", "-c", s.config, "--policy", "default", "--log", tmp_path / "run.jsonl", "--workspace", s.folder,
                    "--", "/usr/bin/python3", "-c", script, path_of(s))
    if got.returncode == 125:
        pytest.skip(f"needs `stile run`: {got.stderr.strip()}")
    assert got.returncode == 0, got.stderr
    assert got.stdout.strip() != "REACHED" and got.stdout.strip().endswith("Error"), got.stdout


# ---- what cannot be asked ----


@pytest.mark.parametrize("data", [b"\n", b"status\n", b"[]\n", b"{\n", b'{"do":"status","do":"status"}\n', b'{"do":"nothing"}\n',
                                  b'{"do":7}\n', b'{"do":"status","more":"x"}\n', b'{"do":"sandbox.revoke","sandbox":7}\n',
                                  b'{"do":"sandbox.new"}\n', b'{"do":"sandbox.new","policy":"default","ttl_ms":"1h"}\n',
                                  b'{"do":"sta\\u0000tus"}\n', b"\xff\xfe\n", b"[" * 8000 + b"\n", b"{" * 4000 + b"\n",
                                  b'{"do":"sandbox.new","policy":"default"}\n',  # no listener takes tokens
                                  b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_what_is_no_request_gets_a_no(world, data):
    got = raw(world, data)
    assert got.endswith(b"\n") and got.count(b"\n") == 1
    answer = json.loads(got)
    assert answer["ok"] is False and answer["error"], answer
    assert ask_json(world, "status")["healthy"] is True


def test_a_request_has_a_bound(world):
    assert raw(world, b'{"do":"' + b"x" * 9000 + b'"}\n') == b""
    assert ask_json(world, "status")["healthy"] is True


def test_one_answer_a_connection(world):
    got = raw(world, b'{"do":"sandbox.list"}\n{"do":"status"}\n')
    assert json.loads(got) == {"ok": True, "sandboxes": []}


@pytest.mark.parametrize("said", [b"", b'{"do":"sta'])
def test_nobody_holds_it(world, said):
    """Many more connections than there are places, that ask nothing: the oldest of them go, who comes next has its answer
    before their time is over, and the proxy serves on meanwhile."""
    silent = []
    for _ in range(300):
        silent.append(dial(world))
        silent[-1].send(said)
    begun = time.monotonic()
    assert world.get("/ok/a").status == 200
    assert ask_json(world, "status")["healthy"] is True
    assert time.monotonic() - begun < 10 * SLOWER, "19 times LIMIT_MS_ONESHOT_SILENT; LIMIT_MS_ADMIN were 95 s"
    for c in silent[:200]:
        try:
            assert c.recv(10) == b""
        except ConnectionResetError:
            pass
    for c in silent:
        c.close()


def test_who_asks_at_once_is_not_sent_away_for_others(world):
    """An answer that nobody takes yet keeps its place, and is whole."""
    slow = dial(world)
    slow.sendall(b'{"do":"status"}\n')
    silent = [dial(world) for _ in range(64)]
    assert ask_json(world, "status")["healthy"] is True
    got = b""
    while data := slow.recv(65536):
        got += data
    assert json.loads(got)["healthy"] is True
    for c in [slow, *silent]:
        c.close()


# ---- status ----


def test_status(world):
    told = ask_json(world, "status")
    loaded = world.wait_record(event="policy.load")
    assert told["ok"] and told["healthy"] and told["version"] == "0.1.0" and told["up_s"] >= 0
    assert told["policies"] == [{"name": "default", "version": loaded["policy_version"], "rules": 2}]
    assert told["listeners"] == [{"name": "proxy-0", "kind": "proxy", "at": f"127.0.0.1:{world.port}", "policy": "default", "tokens": "none"}]
    assert told["log"] == {"to": str(world.log_path), "available": True}
    assert told["credentials_unavailable"] == [] and told["sandboxes"] == 0
    text = ask(world, "status").stdout
    assert "healthy" in text and f"127.0.0.1:{world.port}" in text and loaded["policy_version"] in text


def test_status_counts_what_is_open(stile):
    s = stile(extra=ADMIN, rules=[allow("http://origin.test:*")])
    with Peer() as peer, s.client() as c:
        c.send(get(f"http://origin.test:{peer.port}/a"))
        with peer.accept() as o:
            o.read_head()
            told = ask_json(s, "status")
            assert (told["connections"], told["requests"]) == (1, 1)
            o.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert c.response().status == 200
            wait_for(lambda: ask_json(s, "status")["requests"] == 0)
            assert ask_json(s, "status")["connections"] == 1
    wait_for(lambda: ask_json(s, "status")["connections"] == 0)


def test_a_log_that_cannot_be_written_is_not_healthy(stile):
    s = stile(extra=ADMIN, log={"to": "/dev/full"}, pairs=False, exit_code=None)
    s.get("/ok/a")
    wait_for(lambda: stile_cli("status", "-c", s.config).returncode == 1)
    told = json.loads(stile_cli("status", "-c", s.config, "--json").stdout)
    assert told["healthy"] is False and told["log"]["available"] is False
    assert "NOT HEALTHY" in stile_cli("status", "-c", s.config).stdout
    s.proc.kill()  # its end would wait for the log


def test_the_socket_can_be_named(world):
    got = stile_cli("status", "--socket", path_of(world), "--json")
    assert got.returncode == 0 and json.loads(got.stdout)["healthy"] is True
    assert stile_cli("status", "--socket", world.folder / "none.sock").returncode == 1
    assert stile_cli("status", "--socket", "/" + "x" * 200).returncode == 1


@pytest.mark.parametrize("text", ["{}broken: 1\n", "{}limits: [\n", "{}policies:\n"])
def test_a_file_that_is_broken_since_is_asked_about_all_the_same(stile, text):
    """stile goes on under the old one: its health check has to, and a token has to be taken back just then."""
    s = stile(extra=ADMIN)
    whole = s.config.read_text()
    s.config.write_text(text.format(whole))
    got = stile_cli("status", "-c", s.config)
    assert got.returncode == 0 and got.stdout.startswith("state        healthy"), got
    assert got.stderr == f"stile: {s.config} is broken (`stile check` says where); asked is the socket that it names\n"
    s.config.write_text("version: 1\nbroken: 1\n")
    got = stile_cli("status", "-c", s.config)
    assert got.returncode == 2 and "2:1: unknown key `broken`" in got.stderr and not got.stdout
    s.config.write_text(whole)


def test_an_answer_waits_behind_a_reload(stile):
    s = stile(extra=ADMIN)
    since = s.mark()
    s.write(rules=[allow("http://other.test:*")])
    s.signal(signal.SIGHUP)
    s.wait_record(since, event="policy.load")
    assert ask_json(s, "status")["policies"][0]["rules"] == 1


# ---- credentials ----


def test_credentials(stile, tmp_path, canary):
    (tmp_path / "good").write_text(canary)
    helper = tmp_path / "helper"
    helper.write_text("#!/bin/sh\necho " + canary + "-exec\n")
    helper.chmod(0o700)
    credentials = {"good": {"from": {"file": str(tmp_path / "good")}, "as": "bearer"},
                   "gone": {"from": {"file": str(tmp_path / "gone")}, "as": {"header": "X-Key"}},
                   "made": {"from": {"exec": [str(helper)]}, "as": {"query": "key"}, "ttl": "1h"}}
    rules = [allow(f"https://origin.test:*/echo/{n}/**", credential=n) for n in credentials]
    s = stile(extra=ADMIN, credentials=credentials, rules=rules)

    def told() -> dict:
        return {c.pop("name"): c for c in ask_json(s, "credentials")["credentials"]}
    first = told()
    assert list(first) == ["gone", "good", "made"]
    assert first["good"].pop("age_s") >= 0
    assert first["good"] == {"source": "file", "as": "bearer", "state": "available", "uses": 0}
    gone = first["gone"]
    assert gone["state"] == "unavailable" and gone["error"] and gone["as"] == "header" and "age_s" not in gone
    made = first["made"]
    assert made["state"] == "available" and made["source"] == "exec" and made["as"] == "query"
    assert 3500 < made["ends_in_s"] <= 3600 and 0 < made["renewed_in_s"] < made["ends_in_s"]
    assert ask_json(s, "status")["credentials_unavailable"] == ["gone"]
    for _ in range(3):
        assert s.tls_get("/echo/good/a").status == 200
    assert s.tls_get("/echo/gone/a").status == 503
    used = told()
    assert used["good"]["uses"] == 3 and used["good"]["used_ago_s"] >= 0
    assert used["gone"]["uses"] == 0 and "used_ago_s" not in used["gone"]
    # A reload is no reason to forget them.
    s.reload(rules=[*rules, allow("http://other.test:*")])
    assert s.tls_get("/echo/good/a").status == 200
    assert told()["good"]["uses"] == 4
    text = ask(s, "credentials").stdout
    assert "good" in text and "unavailable" in text
    for out in (text, json.dumps(used), s.stderr):
        assert canary not in out


def test_nothing_reaches_a_terminal_raw(stile, tmp_path):
    s = stile(extra=ADMIN, log={"to": str(tmp_path / "a\x1b[31mb")})
    assert "\x1b" not in ask(s, "status").stdout and ask_json(s, "status")["log"]["to"].endswith("a\x1b[31mb")


@pytest.mark.parametrize("args", [["status", "x"], ["credentials", "--jsn"], ["sandbox"], ["sandbox", "nw"], ["sandbox", "new"],
                                  ["sandbox", "revoke"], ["sandbox", "list", "x"], ["sandbox", "list", "--ttl", "1h"],
                                  ["sandbox", "new", "--policy", "p", "--ttl", "1"],
                                  ["sandbox", "new", "--policy", "p", "--proxy", "https://x:1"]])
def test_wrong_usage(world, args):
    got = ask(world, *args, status=2)
    assert got.stdout == "" and f"see `stile help {args[0]}`" in got.stderr


@pytest.mark.skipif(not runlib.can_become_nobody(), reason="needs root to become nobody")
def test_serving_without_root():
    """Its own user may ask, though the proxy itself can look into no other process; not from a sandbox of that user's."""
    folder = pathlib.Path("/var/tmp") / f"stile-admin-{os.getpid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    binary, config = folder / "stile", folder / "stile.yaml"
    shutil.copy(runlib.BIN, binary)
    config.write_text(json.dumps({
        "version": 1, "listen": [{"proxy": "127.0.0.1:0"}], "admin": f"unix:{folder}/a.sock", "log": {"to": f"{folder}/log"},
        "ca": {"dir": f"{folder}/ca"}, "policies": {"default": {"rules": [{"allow": "docs.example.com"}]}}}))
    serve = subprocess.Popen([*runlib.NOBODY, binary, "serve", "-c", config], cwd=folder, stderr=subprocess.PIPE, text=True,
                             env=runlib.clean_env(HOME="/nonexistent"))
    try:
        assert "listening" in serve.stderr.readline()
        ask = [binary, "status", "-c", config]
        got = subprocess.run([*runlib.NOBODY, *ask], cwd=folder, capture_output=True, text=True, timeout=30)
        assert got.returncode == 0 and got.stdout.startswith("state        healthy"), got.stderr
        got = subprocess.run([*runlib.NOBODY, "unshare", "-U", "--map-user=65534", *ask], cwd=folder, capture_output=True, text=True,
                             timeout=30)
        assert got.returncode == 1 and "healthy" not in got.stdout
        assert "user 65534 was turned away" in serve.stderr.readline()
    finally:
        serve.terminate()
        serve.communicate(timeout=30)
        shutil.rmtree(folder)
