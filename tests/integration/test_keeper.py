"""Two processes: the keeper has the CA's key and the sources, the proxy has neither. Looked at from outside, as root
may: descriptors, maps, memory, environment. What the keeper does with a hostile proxy's messages is core_test.c; what
the proxy can still do, confine_test.c."""

import os
import pathlib
import re
import resource
import signal
import subprocess

import pytest

import canary
import runlib
from canary import made_up, memory
from stilelib import BIN, allow, check_refusal, chunked, wait_for

SANITIZED = b"__asan_init" in BIN.read_bytes() or b"__tsan_init" in BIN.read_bytes()
UNAVAILABLE = "credential_unavailable"
AUTH = [allow("https://origin.test:*/echo/a/**", credential="tok"), allow("https://*.test:*/ok/**")]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the processes let nobody else look in")


def children(pid: int) -> list[int]:
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(x) for x in text.split()]


def child_of(pid: int, name: str) -> int:
    def look():
        return next((c for c in children(pid) if
                     pathlib.Path(f"/proc/{c}/comm").read_text() == name + "\n"), None)
    return wait_for(look)


def keeper_of(pid: int) -> int:
    return child_of(pid, "stile-keeper")


def helpers_of(pid: int) -> int:
    """The process that starts programs, of the stile or its keeper."""
    return child_of(keeper_of(pid), "stile-helpers")


def gone(pid: int) -> bool:
    """Not there, not even as a zombie."""
    return not pathlib.Path(f"/proc/{pid}").exists()


def private_number(pem: pathlib.Path) -> bytes:
    """The secret number of an EC key, as it lies in memory; big-endian in PEM's DER."""
    text = subprocess.run(["openssl", "ec", "-in", pem, "-noout", "-text"], capture_output=True, text=True, check=True)
    number = re.search(r"priv:\n((?:\s+[0-9a-f:]+\n)+)", text.stdout).group(1)
    return bytes.fromhex(re.sub(r"[\s:]", "", number)).lstrip(b"\0")


def start(stile, tmp_path, secret, rules=AUTH, **more):
    (tmp_path / "tok").write_text(secret)
    canary.source(tmp_path / "tok")
    return stile(rules=rules, credentials={"tok": {"from": {"file": str(tmp_path / "tok")}, "as": "bearer"}}, **more)


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
@pytest.mark.skipif(SANITIZED, reason="needs a build without a sanitizer, which keeps a copy of the environment")
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
@pytest.mark.skipif(SANITIZED, reason="needs a build without a sanitizer, which needs what is taken away")
def test_both_are_confined(stile, tmp_path, canary):
    s = start(stile, tmp_path, canary)
    keeper = keeper_of(s.pid)
    tasks = [t for pid in (s.pid, keeper) for t in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    assert len([t for t in tasks if t.is_relative_to(f"/proc/{keeper}")]) == 2
    for task in tasks:
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


@needs_root
@pytest.mark.skipif(SANITIZED, reason="needs a build without a sanitizer, which keeps what was freed")
def test_nothing_of_a_value_that_was_replaced_stays(stile, tmp_path, canary):
    """Heads of many lengths, alone and gathered with what follows them: no buffer on the way keeps a copy."""
    s = start(stile, tmp_path, canary, limits={"workers": 1},
              rules=[allow("https://origin.test:*/**", credential="tok")])
    new = made_up()
    host = f"origin.test:{s.origin.tls}"
    bodies = {"": b"", "Content-Length: 20\r\n": b"x" * 20, "Transfer-Encoding: chunked\r\n": chunked(b"abc", b"def")}

    def ask(c, framing="", fields=0):
        more = framing + "".join(f"X-{i}: {'a' * 50}\r\n" for i in range(fields))
        body = bodies[framing]
        r = c.ask(f"{'POST' if body else 'GET'} /ok/x HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode() + body)
        assert r.status == 200, r

    with s.tunnel() as c:
        for fields in range(0, 80, 8):
            for framing in bodies:
                ask(c, framing, fields)
        assert canary.encode() in memory(s.pid)
        (tmp_path / "tok").write_text(new)

        def is_new():
            ask(c)
            return new.encode() in memory(s.pid)
        wait_for(is_new)
        ask(c)
        wait_for(lambda: canary.encode() not in memory(s.pid), why="the old value is gone")


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


def test_an_answer_that_comes_too_late(stile):
    """It was taken for the answer to the next question, and each reload failed from then on."""
    s = stile(rules=[allow("http://origin.test:*/ok/**")])
    keeper = keeper_of(s.pid)
    os.kill(keeper, signal.SIGSTOP)
    try:
        s.signal(signal.SIGHUP)
        s.wait_stderr("the keeper does not answer", 60)
    finally:
        os.kill(keeper, signal.SIGCONT)
    s.reload(rules=[allow("http://origin.test:*/no/**")])
    check_refusal(s.get("/ok/a"), 403, "no_rule")
    s.reload(rules=[allow("http://origin.test:*/ok/**")])
    assert s.get("/ok/a").status == 200


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


# ---- the process that starts programs ----


@needs_root
@pytest.mark.skipif(SANITIZED, reason="needs a build without a sanitizer, which keeps a copy of the environment")
def test_who_starts_programs_knows_no_secret(stile, tmp_path):
    """It was split off before there was one, has no descriptor of anybody's, and does not see what a helper prints."""
    in_file, in_variable, printed = canary.made_up(), canary.made_up(), canary.made_up()
    (tmp_path / "tok").write_text(in_file)
    (tmp_path / "printed").write_text(printed)
    for name in ("tok", "printed"):
        canary.source(tmp_path / name)
    rules = [allow(f"https://origin.test:*/echo/{n}/**", credential=n) for n in ("file", "env", "exec")]
    credentials = {"file": {"from": {"file": str(tmp_path / "tok")}, "as": "bearer"},
                   "env": {"from": {"env": "TOK"}, "as": "bearer"},
                   "exec": {"from": {"exec": ["cat", str(tmp_path / "printed")]}, "ttl": "1h", "as": "bearer"}}
    s = stile(rules=rules, credentials=credentials, env={"TOK": in_variable})
    for name, value in (("file", in_file), ("env", in_variable), ("exec", printed)):
        assert fields(s, f"/echo/{name}/x")["authorization"] == f"Bearer {value}"
    s.reload(rules=rules[::-1])
    assert fields(s, "/echo/exec/x")["authorization"] == f"Bearer {printed}"
    helpers = helpers_of(s.pid)
    wanted = {x.encode() for x in (in_file, in_variable, printed)}
    assert canary.process_shows(helpers, wanted) == []
    held = memory(helpers)
    number = private_number(s.folder / "ca" / "ca.key")
    pem = (s.folder / "ca" / "ca.key").read_bytes().split(b"\n")[1]
    assert [x for x in [*wanted, number, number[::-1], pem] if x in held] == []
    # The search finds what is there.
    assert str(tmp_path / "printed").encode() in held and {x for x in wanted if x in memory(keeper_of(s.pid))}
    fds = sorted(os.readlink(f) for f in pathlib.Path(f"/proc/{helpers}/fd").iterdir())
    assert fds.count("/dev/null") == 2 and len([f for f in fds if f.startswith("socket:")]) == 1 and len(fds) == 4, fds
    assert os.stat(f"/proc/{helpers}/mem").st_uid == 0


def with_helper(tmp_path, name="helper", text="#!/bin/sh\necho token-$1\n"):
    path = tmp_path / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def of_exec(argv, **more):
    return {"from": {"exec": argv} | more, "ttl": "1h", "as": "bearer"}


def test_who_starts_programs_is_killed(stile, tmp_path, canary):
    """What was printed before counts until it ends; nothing new comes, and requests that need it say why. All else
    goes on, a reload too."""
    (tmp_path / "tok").write_text(canary)
    tok = {"from": {"file": str(tmp_path / "tok")}, "as": "bearer"}
    helper = with_helper(tmp_path)
    rules = [*AUTH, allow("https://origin.test:*/echo/b/**", credential="exec")]
    s = stile(rules=rules, credentials={"tok": tok, "exec": of_exec([helper, "1"])})
    assert fields(s, "/echo/b/x")["authorization"] == "Bearer token-1"
    helpers = helpers_of(s.pid)
    os.kill(helpers, signal.SIGKILL)
    s.wait_stderr("the process that starts helpers has ended: credentials of `exec` are not renewed any more")
    assert fields(s, "/echo/b/x")["authorization"] == "Bearer token-1" and sent(s) == f"Bearer {canary}"
    s.reload(credentials={"tok": tok, "exec": of_exec([helper, "2"])})
    r = s.tls_get("/echo/b/x")
    check_refusal(r, 503, UNAVAILABLE)
    assert "restart stile" in r.json()["detail"], r.json()
    assert sent(s) == f"Bearer {canary}"


def test_a_helper_of_a_reload(stile, tmp_path):
    """Another program, other arguments, one more, none: by what is in force, and never by what is not."""
    one, two = with_helper(tmp_path, "one"), with_helper(tmp_path, "two", "#!/bin/sh\necho other-$1\n")
    rules = [allow("https://origin.test:*/echo/a/**", credential="a"), allow("https://origin.test:*/echo/b/**", credential="b")]
    s = stile(rules=[rules[0]], credentials={"a": of_exec([one, "1"])})
    helpers = helpers_of(s.pid)
    assert fields(s, "/echo/a/x")["authorization"] == "Bearer token-1"
    s.reload(rules=rules, credentials={"a": of_exec([one, "2"]), "b": of_exec([two, "3"])})
    assert fields(s, "/echo/a/x")["authorization"] == "Bearer token-2"
    assert fields(s, "/echo/b/x")["authorization"] == "Bearer other-3"
    s.reload(rules=rules, credentials={"a": of_exec([two, "4"]), "b": of_exec([two, "3"])})
    assert fields(s, "/echo/a/x")["authorization"] == "Bearer other-4"
    assert fields(s, "/echo/b/x")["authorization"] == "Bearer other-3"
    s.reload(rules=[allow("https://origin.test:*/echo/**")], credentials={})
    assert "authorization" not in fields(s, "/echo/a/x")
    assert helpers_of(s.pid) == helpers


def test_helpers_end_with_the_keeper(stile, tmp_path):
    slow = with_helper(tmp_path, "slow", f"#!/bin/sh\n[ $1 = 1 ] && echo x && exit\necho $$ >{tmp_path}/pid\nexec sleep 300\n")
    s = stile(rules=[allow("https://origin.test:*/echo/a/**", credential="a")], credentials={"a": of_exec([slow, "1"])},
              exit_code=None, pairs=False)
    keeper, helpers = keeper_of(s.pid), helpers_of(s.pid)
    s.write(credentials={"a": of_exec([slow, "2"], timeout="200s")})
    s.signal(signal.SIGHUP)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    pid = int((tmp_path / "pid").read_text())
    os.kill(keeper, signal.SIGKILL)
    assert s.proc.wait(30) == 1
    wait_for(lambda: all(not pathlib.Path(f"/proc/{p}").exists() or
                         pathlib.Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
                         for p in (helpers, pid)))


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
    got = subprocess.run([str(BIN), "run", "--log", str(tmp_path / "probe.jsonl"), "--", "true"], cwd=tmp_path,
                         capture_output=True, text=True)
    if got.returncode == 125:
        pytest.skip(f"needs `stile run`: {got.stderr.strip()}")
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


def test_a_run_with_a_helper(runs, tmp_path_factory):
    """The keeper of a run opens no file but its own and starts nothing; its helper, which does, still works."""
    origin = runlib.Origin(tmp_path_factory.mktemp("origin"))
    token = canary.made_up()
    (runs / "outer").mkdir()
    (runs / "outer" / "token").write_text(token)
    canary.source(runs / "outer" / "token")
    work = runs / "work"
    work.mkdir()
    config = runs / "stile.yaml"
    config.write_text(f"""version: 1
upstream:
  trust: [{origin.ca}]
  hosts: {{allowed.test: 127.0.0.1}}
credentials:
  tok: {{from: {{exec: [cat, {runs}/outer/token]}}, ttl: 1h, as: bearer}}
policies:
  default:
    rules:
      - {{allow: "https://allowed.test:{origin.port}/**", addresses: [127.0.0.0/8], credential: tok}}
""")
    try:
        p = subprocess.Popen([str(BIN), "run", "-c", config, "--log", str(runs / "run.jsonl"), "--workspace", work, "--",
                              "sh", "-c", f"curl -sS --fail https://allowed.test:{origin.port}/a && echo done && sleep 600"],
                             cwd=work, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert "done" in (p.stdout.readline() + p.stdout.readline()), p.communicate()
        keeper = keeper_of(p.pid)
        helpers = child_of(keeper, "stile-helpers")
        if not SANITIZED:
            status = pathlib.Path(f"/proc/{keeper}/status").read_text()
            assert re.search(r"^Seccomp:\s*2$", status, re.M), status
        p.terminate()
        out, err = p.communicate(timeout=60)
        assert [h["Authorization"] for _, h in origin.requests] == [f"Bearer {token}"], err
        assert token not in out + err
        wait_for(lambda: gone(keeper) and gone(helpers))
    finally:
        origin.close()


def test_a_run_without_a_helper_has_no_such_process(runs):
    p = subprocess.Popen([str(BIN), "run", "--allow", "a.test", "--log", str(runs / "run.jsonl"), "--", "sleep", "600"],
                         cwd=runs, stderr=subprocess.PIPE, text=True)
    keeper = keeper_of(p.pid)
    wait_for(lambda: (runs / "run.jsonl").exists() and "policy.load" in (runs / "run.jsonl").read_text())
    assert children(keeper) == []
    p.terminate()
    p.communicate(timeout=60)


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


@needs_root
def test_a_reload_without_room_for_the_file_is_a_reload_that_failed(stile, tmp_path, canary):
    """The keeper reads the file and hands it over. A proxy whose descriptors are used up cannot take it: it keeps the
    old policy and its keeper, and takes the next one."""
    s = start(stile, tmp_path, canary)
    was = resource.prlimit(s.pid, resource.RLIMIT_NOFILE)
    for how, word in ((signal.SIGHUP, "the old policy stays"), (signal.SIGUSR1, "the old file stays in use")):
        resource.prlimit(s.pid, resource.RLIMIT_NOFILE, (4, was[1]))
        s.signal(how)
        wait_for(lambda: word in s.stderr)
        resource.prlimit(s.pid, resource.RLIMIT_NOFILE, was)
        assert "Too many open files" in s.stderr or "too many open files" in s.stderr
    s.signal(signal.SIGHUP)
    wait_for(lambda: "reloaded " in s.stderr)
    assert sent(s) == f"Bearer {canary}"
