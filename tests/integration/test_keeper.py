"""Two processes: the keeper has the CA's key and the sources, the proxy has neither. Looked at from outside, as root
may: descriptors, maps, memory, environment. What the keeper does with a hostile proxy's messages is core_test.c; what
the proxy can still do, confine_test.c."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

import canary
import runlib
from stilelib import BIN, allow, check_refusal, wait_for

SANITIZED = b"__asan_init" in BIN.read_bytes() or b"__tsan_init" in BIN.read_bytes()
UNAVAILABLE = "credential_unavailable"
AUTH = [allow("https://origin.test:*/echo/a/**", credential="tok"), allow("https://*.test:*/ok/**")]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the processes let nobody else look in")


def children(pid: int) -> list[int]:
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(x) for x in text.split()]


def keeper_of(pid: int) -> int:
    def look():
        return next((c for c in children(pid) if
                     pathlib.Path(f"/proc/{c}/comm").read_text() == "stile-keeper\n"), None)
    return wait_for(look)


def gone(pid: int) -> bool:
    """Not there, not even as a zombie."""
    return not pathlib.Path(f"/proc/{pid}").exists()


def memory(pid: int) -> bytes:
    out = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if m and "[v" not in line:
                start, end = (int(x, 16) for x in m.groups())
                if end - start > 1 << 28:  # a sanitizer's own
                    continue
                try:
                    mem.seek(start)
                    out.append(mem.read(end - start))
                except (OSError, ValueError, OverflowError):
                    pass
    return b"".join(out)


def private_number(pem: pathlib.Path) -> bytes:
    """The secret number of an EC key, as it lies in memory; big-endian in PEM's DER."""
    text = subprocess.run(["openssl", "ec", "-in", pem, "-noout", "-text"], capture_output=True, text=True, check=True)
    number = re.search(r"priv:\n((?:\s+[0-9a-f:]+\n)+)", text.stdout).group(1)
    return bytes.fromhex(re.sub(r"[\s:]", "", number)).lstrip(b"\0")


def start(stile, tmp_path, secret, **more):
    (tmp_path / "tok").write_text(secret)
    canary.source(tmp_path / "tok")
    return stile(rules=AUTH, credentials={"tok": {"from": {"file": str(tmp_path / "tok")}, "as": "bearer"}}, **more)


def fields(s, path) -> dict[str, str]:
    """What the origin gets."""
    r = s.tls_get(path)
    assert r.status == 200, r
    return {k.lower(): v for k, v in r.json()["headers"]}


def sent(s) -> str:
    return fields(s, "/echo/a/x")["authorization"]


@needs_root
def test_the_key_is_in_one_process(stile, tmp_path, canary):
    s = start(stile, tmp_path, canary)
    keeper = keeper_of(s.pid)
    assert sent(s) == f"Bearer {canary}"
    key = s.folder / "ca" / "ca.key"
    pem = key.read_bytes().split(b"\n")[1]
    number = private_number(key)
    proxys, keepers = memory(s.pid), memory(keeper)
    for form in (pem, number, number[::-1]):
        assert form not in proxys
    # The search finds what is there: OpenSSL keeps it the other way round.
    assert number in keepers or number[::-1] in keepers
    for pid in (s.pid, keeper):
        fds = [os.readlink(f) for f in pathlib.Path(f"/proc/{pid}/fd").iterdir()]
        assert not [f for f in fds if f.startswith(str(tmp_path)) and not f.endswith(".jsonl")], fds
        assert "VmLck" in pathlib.Path(f"/proc/{pid}/status").read_text()


@needs_root
@pytest.mark.skipif(SANITIZED, reason="a sanitizer keeps a copy of the environment")
def test_a_variable_is_in_one_process(stile, tmp_path):
    secret, other, unused = canary.made_up(), canary.made_up(), canary.made_up()
    s = stile(rules=AUTH, env={"TOK": secret, "UNUSED": unused, "OTHER_SERVICE_TOKEN": other},
              credentials={"tok": {"from": {"env": "TOK"}, "as": "bearer"},
                           "unused": {"from": {"env": "UNUSED"}, "as": "bearer"}})
    keeper = keeper_of(s.pid)
    assert sent(s) == f"Bearer {secret}"
    wanted = {x.encode() for x in (secret, unused, other)}
    assert canary.process_shows(s.pid, wanted) == []
    assert canary.process_shows(keeper, {secret.encode(), unused.encode()}) == []
    # One that no rule names does not cross, nor what is there for helpers.
    proxys = memory(s.pid)
    assert unused.encode() not in proxys and other.encode() not in proxys
    assert unused.encode() in memory(keeper)
    for pid in (s.pid, keeper):
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"^Max core file size\s+0\s+0", limits, re.M)


@needs_root
@pytest.mark.skipif(SANITIZED, reason="a sanitizer needs what is taken away")
def test_the_proxy_is_confined(stile, tmp_path, canary):
    s = start(stile, tmp_path, canary)
    for task in pathlib.Path(f"/proc/{s.pid}/task").iterdir():
        status = (task / "status").read_text()
        assert re.search(r"^NoNewPrivs:\s*1$", status, re.M) and re.search(r"^Seccomp:\s*2$", status, re.M), status
    # It says so where it is not.
    weak = "no Landlock" in s.stderr
    assert ("error_detail" in s.wait_record(event="proxy.start")) == weak


@needs_root
def test_nobody_looks_in(stile, tmp_path, canary):
    """Not the user that they run as, either."""
    s = start(stile, tmp_path, canary)
    for pid in (s.pid, keeper_of(s.pid)):
        assert os.stat(f"/proc/{pid}/mem").st_uid == 0
        code = (f"import ctypes,os\nos.setgid(65534); os.setuid(65534)\n"
                f"c = ctypes.CDLL(None, use_errno=True)\n"
                f"assert c.ptrace(16, {pid}, 0, 0) == -1 and ctypes.get_errno() == 1\n"
                f"try: open('/proc/{pid}/environ'); raise SystemExit(1)\nexcept PermissionError: pass\n")
        assert subprocess.run(["/usr/bin/python3", "-c", code]).returncode == 0


def test_a_new_credential_and_one_that_goes(stile, tmp_path, canary):
    s = start(stile, tmp_path, canary)
    more = tmp_path / "more"
    more.write_text(canary + "-more")
    two = {"tok": {"from": {"file": str(tmp_path / "tok")}, "as": "bearer"},
           "new": {"from": {"file": str(more)}, "as": {"header": "X-New"}}}
    assert sent(s) == f"Bearer {canary}"
    s.reload(rules=[*AUTH, allow("https://origin.test:*/echo/b/**", credential="new")], credentials=two)
    assert fields(s, "/echo/b/x")["x-new"] == canary + "-more" and sent(s) == f"Bearer {canary}"
    more.write_text(canary + "-again")
    wait_for(lambda: fields(s, "/echo/b/x")["x-new"] == canary + "-again")
    s.reload(rules=AUTH, credentials={"tok": two["tok"]})
    check_refusal(s.tls_get("/echo/b/x"), 403, "no_rule")
    more.unlink()
    assert sent(s) == f"Bearer {canary}"


def test_the_trust_and_the_log_are_opened_at_a_reload(stile, origin, tmp_path):
    """Both are files that the proxy itself could not open any more."""
    s = stile(rules=[allow("https://origin.test:*/ok/**")])
    assert s.tls_get("/ok/a").status == 200
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "roots.pem").write_text((origin.pki / "ca.pem").read_text())
    s.reload(upstream={"trust": [str(elsewhere / "roots.pem")]})
    assert s.tls_get("/ok/a").status == 200
    moved = s.log_path.with_suffix(".1.jsonl")
    s.log_path.rename(moved)
    s.signal(signal.SIGUSR1)
    wait_for(lambda: s.tls_get("/ok/a").status == 200 and s.log_path.exists())
    s.pairs = False


def test_the_keeper_is_killed(stile, tmp_path, canary):
    s = start(stile, tmp_path, canary, exit_code=None, pairs=False)
    keeper = keeper_of(s.pid)
    assert sent(s) == f"Bearer {canary}"
    raw = s.tunnel()
    os.kill(keeper, signal.SIGKILL)
    assert s.proc.wait(20) == 1
    raw.close()
    s.wait_stderr("the keeper of keys and credentials has ended")
    assert gone(keeper)


def test_the_proxy_is_killed(stile, tmp_path, canary):
    s = start(stile, tmp_path, canary, exit_code=None, pairs=False)
    keeper = keeper_of(s.pid)
    s.proc.kill()
    s.proc.wait(20)
    wait_for(lambda: gone(keeper))


def test_signals_are_the_proxys(stile, tmp_path, canary):
    s = start(stile, tmp_path, canary)
    keeper = keeper_of(s.pid)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTSTP):
        os.kill(keeper, number)
    (tmp_path / "tok").write_text(canary + "-2")
    wait_for(lambda: sent(s) == f"Bearer {canary}-2")
    assert s.stop() == 0
    assert gone(keeper) and gone(s.pid)


def test_a_start_that_fails_leaves_nobody(stile, tmp_path):
    config = tmp_path / "stile.yaml"
    (tmp_path / "ca").write_text("no folder")
    config.write_text("version: 1\nlisten: [{proxy: '127.0.0.1:0'}]\nca: {dir: ca}\npolicies: {default: {rules: [{allow: a.test}]}}\n")
    done = subprocess.run([str(BIN), "serve", "-c", config], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "stile: ca: " in done.stderr, done
    assert not runlib.processes(str(config))


def test_many_hosts_at_once(stile, origin):
    """More than the keeper is asked for at a time; each name gets its own leaf."""
    names = [f"n{i}.test" for i in range(150)]
    s = stile(rules=[allow("https://*.test:*/ok/**")],
              upstream={"hosts": {n: "127.0.0.1" for n in names}}, limits={"workers": 1})
    raws = []
    for n in names:
        raw = s.client()
        raw.send(f"CONNECT {n}:{origin.tls} HTTP/1.1\r\nHost: {n}:{origin.tls}\r\n\r\n".encode())
        raws.append(raw)
    for n, raw in zip(names, raws):
        assert raw.response_head().status == 200
    for n, raw in zip(names, raws):
        raw.start_tls(s.context(), n)
        raw.close()
    s.pairs = False


@pytest.fixture
def runs(tmp_path):
    if subprocess.run([str(BIN), "run", "--log", str(tmp_path / "probe.jsonl"), "--", "true"], cwd=tmp_path,
                      capture_output=True).returncode == 125:
        pytest.skip("no sandbox can be made here")
    return tmp_path


def test_runs_leave_no_process(runs):
    before = set(runlib.processes("stile-keeper-test"))
    for i in range(20):
        done = runlib.run(runs, "true", args=["--allow", "a.test"], log=runs / "run.jsonl")
        assert done.returncode == 0, done
    assert not [p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and
                (p / "comm").exists() and (p / "comm").read_text() == "stile-keeper\n" and
                str(runs).encode() in (p / "cmdline").read_bytes()]
    assert set(runlib.processes("stile-keeper-test")) == before


def test_a_run_whose_keeper_is_killed(runs):
    p = subprocess.Popen([str(BIN), "run", "--log", str(runs / "run.jsonl"), "--", "sleep", "600"], cwd=runs,
                         stderr=subprocess.PIPE, text=True)
    keeper = keeper_of(p.pid)
    wait_for(lambda: (runs / "run.jsonl").exists() and "policy.load" in (runs / "run.jsonl").read_text())
    os.kill(keeper, signal.SIGKILL)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 125 and "without its keeper" in err, err


def test_the_search_finds_a_secret(tmp_path):
    """A check that could not fail would check nothing."""
    import base64
    for name, text in (("log.jsonl", "x {}"), ("x.stderr", "Basic " + base64.b64encode(b"user:{}").decode()), ("core", "{}")):
        secret = "canary-" + os.urandom(12).hex()
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        if "Basic" in text:
            data = "Basic " + base64.b64encode(f"user:{secret}".encode()).decode()
        else:
            data = text.format(secret)
        (folder / name).write_text(data)
        assert len(canary.search(folder, {secret.encode()})) == 1, name
        assert canary.search(folder, {b"another-secret-of-a-test"}) == []
        (folder / name).unlink()
