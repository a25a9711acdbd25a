"""`stile run`: the sandbox from within and from without. Nothing leaves the machine: the only traffic
is to loopback, or inside a namespace that has no route."""

import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

import runlib
from runlib import Terminal, argv_of, clean_env, processes, run, start, wait_for

CANARY = "CANARY-7f3a"


def python(tmp, code, *args, **more):
    """Runs a Python program in the sandbox; real python, as a shim could need more than PATH."""
    return run(tmp, os.path.realpath(sys.executable), "-c", code, *args, **more)


@pytest.fixture
def tmp(tmp_path):
    return tmp_path


# Status, arguments, standard streams


@pytest.mark.parametrize("code", [0, 1, 2, 42, 125, 255])
def test_exit_status(tmp, code):
    assert run(tmp, "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "INT", "PIPE"])
def test_killed_by_a_signal(tmp, name):
    got = run(tmp, "sh", "-c", f"ulimit -c 0; kill -{name} $$")
    assert got.returncode == 128 + getattr(signal, "SIG" + name)


def test_no_such_command(tmp):
    got = run(tmp, "no-such-command-here")
    assert got.returncode == 127
    assert "no-such-command-here" in got.stderr


def test_command_that_cannot_be_run(tmp):
    (tmp / "data").write_text("x")
    got = run(tmp, tmp / "data")
    assert got.returncode == 126
    assert "cannot be run" in got.stderr


def test_command_is_sought_in_its_own_path(tmp):
    tool = tmp / "bin" / "own-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho mine\n")
    tool.chmod(0o755)
    got = run(tmp, "own-tool", args=["--env", f"PATH={tmp}/bin:/bin"])
    assert got.stdout == "mine\n"


def test_arguments_are_not_read_as_options(tmp):
    got = run(tmp, "printf", "%s|", "-c", "--allow", "--", "a b")
    assert got.stdout == "-c|--allow|--|a b|"


@pytest.mark.parametrize("args", [[], ["--bogus", "x"], ["-c"], ["--env", "A B", "true"],
                                  ["--policy", "nope", "true"], ["-c", "/nonexistent/x", "true"],
                                  ["--allow", "ht!tp://", "true"]])
def test_wrong_usage(tmp, args):
    got = subprocess.run([runlib.BIN, "run", *args], cwd=tmp, capture_output=True, text=True,
                         env=clean_env(HOME=str(tmp)), timeout=runlib.TIMEOUT)
    assert got.returncode == 2
    assert got.stderr.startswith("stile")


def test_help(tmp):
    got = subprocess.run([runlib.BIN, "run", "--help"], capture_output=True, text=True)
    assert got.returncode == 0
    assert "--allow" in got.stdout


def test_streams(tmp):
    got = run(tmp, "sh", "-c", "cat; echo err >&2", stdin="in\n")
    assert got.stdout == "in\n"
    assert got.stderr.endswith("err\n")


def test_stdin_may_be_read_in_part(tmp):
    got = subprocess.run(["sh", "-c", '"$@"; cat', "sh", *argv_of(tmp / "l", "head", "-c", "0")],
                         input="rest", capture_output=True, text=True, cwd=tmp,
                         env=clean_env(HOME=str(tmp)), timeout=runlib.TIMEOUT)
    assert got.stdout == "rest"


def test_stdout_closed_early_reaches_the_reader(tmp):
    p = start(tmp, "sh", "-c", "echo one; exec >&- 2>&-; sleep 60")
    try:
        assert p.stdout.readline() == "one\n"
        before = time.monotonic()
        assert p.stdout.read() == ""
        assert time.monotonic() - before < 5
    finally:
        p.terminate()
        p.wait()


def test_closed_pipe_ends_the_command(tmp):
    got = subprocess.run(["bash", "-c", '"$@" | head -1; echo ${PIPESTATUS[0]}', "sh",
                          *argv_of(tmp / "l", "yes")], capture_output=True, text=True, cwd=tmp,
                         env=clean_env(HOME=str(tmp)), timeout=runlib.TIMEOUT)
    assert got.stdout == "y\n141\n"


def test_only_three_descriptors(tmp):
    r, w = os.pipe()
    os.set_inheritable(w, True)
    try:
        code = ("import fcntl\nfor fd in range(1024):\n    try: fcntl.fcntl(fd, fcntl.F_GETFD)\n"
                "    except OSError: continue\n    print(fd)")
        p = start(tmp, os.path.realpath(sys.executable), "-c", code, pass_fds=[w])
        assert p.communicate(timeout=30)[0].split() == ["0", "1", "2"]
    finally:
        os.close(r)
        os.close(w)


def test_closed_standard_descriptors(tmp):
    got = subprocess.run(["sh", "-c", '"$@" <&- >&-', "sh",
                          *argv_of(tmp / "l", "sh", "-c", "readlink /proc/$$/fd/0 >&2")],
                         capture_output=True, text=True, cwd=tmp, env=clean_env(HOME=str(tmp)))
    assert got.returncode == 0
    assert "/dev/null" in got.stderr


def test_limits_and_umask_are_the_callers(tmp):
    got = run(tmp, "sh", "-c", "ulimit -n; ulimit -c; umask",
              prefix=["bash", "-c", 'ulimit -Sn 256; ulimit -Sc 0; umask 027; exec "$@"', "sh"])
    assert got.stdout.split() == ["256", "0", "0027"]


def test_workspace(tmp):
    (tmp / "w").mkdir()
    got = run(tmp, "sh", "-c", "pwd; echo $PWD; touch made", args=["--workspace", "w"])
    assert got.stdout == f"{tmp}/w\n{tmp}/w\n"
    assert (tmp / "w" / "made").exists()
    got = run(tmp, "true", args=["--workspace", "nowhere"])
    assert got.returncode == 125
    assert "nowhere" in got.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a folder in /run")
def test_workspace_below_run(tmp):
    work = pathlib.Path(f"/run/stile-test-{os.getpid()}/w")
    work.mkdir(parents=True)
    try:
        (work / "here").write_text("yes")
        got = run(tmp, "sh", "-c", "cat here; pwd; ls /run", cwd=work)
        assert got.stdout.splitlines()[0] == f"yes{work}"
        assert set(got.stdout.split()[1:]) == {work.parts[2], "stile"}
    finally:
        shutil.rmtree(work.parent)


@pytest.mark.parametrize("script", ["sleep 60", "sleep 60 & sleep 60 & wait", "kill -STOP $$"])
def test_timeout(tmp, script):
    begun = time.monotonic()
    got = run(tmp, "sh", "-c", script, args=["--timeout", "1"])
    assert got.returncode == 124 and "its time is over" in got.stderr
    assert 1 <= time.monotonic() - begun < 25


def test_timeout_of_one_that_does_not_listen(tmp):
    got = run(tmp, "sh", "-c", "trap 'echo heard' TERM; while :; do sleep 0.1; done", args=["--timeout", "1s"])
    assert got.returncode == 124 and "heard" in got.stdout


def test_timeout_that_is_not_reached(tmp):
    assert run(tmp, "sh", "-c", "exit 3", args=["--timeout", "2h"]).returncode == 3


@pytest.mark.parametrize("text", ["0", "", "-1", "1d", "x", "99999999999999h", "1.5"])
def test_timeout_that_is_none(tmp, text):
    got = run(tmp, "true", args=["--timeout", text])
    assert got.returncode == 2 and "--timeout" in got.stderr


# The network


def test_no_way_out(tmp):
    code = """
import socket
def attempt(family, kind, address):
    s = socket.socket(family, kind)
    s.settimeout(2)
    try:
        if kind == socket.SOCK_DGRAM:
            s.sendto(b"x", address)
        else:
            s.connect(address)
    except OSError as e:
        return e.strerror
    return "out"
tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM
print(attempt(socket.AF_INET, tcp, ("203.0.113.9", 443)))
print(attempt(socket.AF_INET, udp, ("203.0.113.53", 53)))
print(attempt(socket.AF_INET, tcp, ("169.254.169.254", 80)))
print(attempt(socket.AF_INET, tcp, ("192.168.0.1", 80)))
print(attempt(socket.AF_INET6, tcp, ("2001:db8::9", 443)))
print(attempt(socket.AF_INET6, udp, ("2001:db8::53", 53)))
"""
    got = python(tmp, code)
    assert got.stdout.splitlines() == ["Network is unreachable"] * 6


def test_only_loopback(tmp):
    got = run(tmp, "sh", "-c", "tail -n +3 /proc/net/dev; tail -n +2 /proc/net/route")
    assert [line.split(":")[0].strip() for line in got.stdout.splitlines()] == ["lo"]


def test_hosts_loopback_is_not_reached(tmp):
    with socket.create_server(("127.0.0.1", 0)) as s:
        got = python(tmp, "import socket, sys\n"
                     "print(socket.socket().connect_ex(('127.0.0.1', int(sys.argv[1]))))",
                     s.getsockname()[1])
    assert got.stdout == "111\n"  # nothing listens there on the sandbox's own


def test_abstract_sockets_of_the_host_are_not_reached(tmp):
    name = f"\0stile-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(name)
        s.listen()
        got = python(tmp, "import socket, sys\n"
                     "print(socket.socket(socket.AF_UNIX).connect_ex('\\0' + sys.argv[1]))",
                     name[1:])
    assert got.stdout == "111\n"


def test_loopback_of_its_own(tmp):
    code = """
import socket, threading, urllib.request, http.server
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://127.0.0.1:%d/" % s.server_port).status)
v6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
print(socket.socket(socket.AF_INET6).connect_ex(("::1", v6.getsockname()[1])))
"""
    got = python(tmp, code)
    assert got.stdout == "200\n0\n"


def test_the_proxy_answers_and_refuses(tmp):
    got = run(tmp, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://evil.test/x")
    assert got.stdout == "403"
    assert "1 request was refused" in got.stderr
    assert str(tmp / "run.jsonl") in got.stderr
    records = [json.loads(line) for line in (tmp / "run.jsonl").read_text().splitlines()]
    denies = [r for r in records if r.get("decision") == "deny"]
    assert len(denies) == 1
    assert denies[0]["sandbox"].startswith("run-")


def test_quiet_when_nothing_was_refused(tmp):
    (tmp / "stile.yaml").write_text("version: 1\npolicies: {default: {rules: [{allow: a.test}]}}\n")
    work = tmp / "work"
    work.mkdir()
    assert run(tmp, "true", args=["-c", tmp / "stile.yaml"], cwd=work).stderr == ""


@pytest.mark.parametrize("where, warned", [(".", True), ("..", True), ("work", False), ("none", False)])
def test_a_home_as_workspace_is_warned_of(tmp, where, warned):
    """Its shell runs what lies there, outside: the command may write it."""
    (tmp / "home/work").mkdir(parents=True)
    got = run(tmp, "true", args=["--workspace", where], cwd=tmp / "home", env=clean_env(HOME=str(tmp / "home")))
    assert got.returncode == 0 and ("is your home, or above it" in got.stderr) == warned, got


@pytest.mark.parametrize("home, said", [("/proc", "/proc/.local/state/stile: "), (None, "HOME is not set")])
def test_no_folder_for_the_log(tmp, home, said):
    env = clean_env(HOME=str(home))
    if home is None:
        env.pop("HOME")
    got = subprocess.run([str(runlib.BIN), "run", "--allow", "a.test", "--", "true"], cwd=tmp, env=env, capture_output=True, text=True)
    assert got.returncode == 125 and f"stile: no folder for the log of this run: {said}" in got.stderr, got


@pytest.mark.parametrize("holds", ["version: 1\n", "secret\n", "x"])
def test_a_log_that_is_another_file(tmp, holds):
    (tmp / "other").write_text(holds)
    got = run(tmp, "echo", "RAN", log=tmp / "other")
    assert got.returncode == 125 and "--log " in got.stderr and "that file is no log" in got.stderr and not got.stdout, got
    assert (tmp / "other").read_text() == holds


@pytest.mark.parametrize("args", [["--policy", "x"], ["--policy", "x", "--allow", "b.test"]])
def test_a_policy_that_is_not_there(tmp, args):
    (tmp / "stile.yaml").write_text("version: 1\npolicies: {one: {rules: [{allow: a.test}]}}\n")
    got = run(tmp, "true", args=args)
    assert got.returncode == 2 and "--policy x: " in got.stderr and " one)" in got.stderr, got


def test_no_configuration_is_said(tmp):
    got = run(tmp, "true")
    assert got.returncode == 0
    assert "everything is refused" in got.stderr


def test_default_log(tmp):
    got = subprocess.run([runlib.BIN, "run", "sh", "-c", "curl -sS http://evil.test/; ls ~/.local/state/stile"],
                         cwd=tmp, env=clean_env(HOME=str(tmp)), capture_output=True, text=True,
                         timeout=runlib.TIMEOUT)
    logs = list((tmp / ".local/state/stile").glob("run-*.jsonl"))
    assert len(logs) == 1
    assert str(logs[0]) in got.stderr
    assert logs[0].name not in got.stdout
    assert "evil.test" in logs[0].read_text()


# The environment


def test_environment_is_reduced(tmp):
    env = clean_env(HOME=str(tmp), AWS_SECRET_ACCESS_KEY=CANARY, SSH_AUTH_SOCK="/x", LC_TIME="C",
                    LD_LIBRARY_PATH="/x", HTTPS_PROXY="http://elsewhere.test:1")
    got = run(tmp, "env", env=env, args=["--env", "MINE=1", "--env", "NOT_SET"])
    assert CANARY not in got.stdout
    inside = dict(line.split("=", 1) for line in got.stdout.splitlines())
    for name in ("AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH", "NOT_SET"):
        assert name not in inside
    assert inside["MINE"] == "1"
    assert inside["LC_TIME"] == "C"
    assert inside["HOME"] == str(tmp)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert inside[name] == inside[name.lower()] == "http://127.0.0.1:3128"
    assert inside["NO_PROXY"] == inside["no_proxy"] == "localhost,127.0.0.1,::1"


def test_trust_variables_name_readable_files(tmp):
    names = ("SSL_CERT_FILE NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_SSL_CAINFO "
             "PIP_CERT CARGO_HTTP_CAINFO DENO_CERT AWS_CA_BUNDLE").split()
    got = run(tmp, "sh", "-c", "for n in " + " ".join(names) + "; do eval f=\\$$n; "
              "grep -c BEGIN.CERTIFICATE $f; done; ls $SSL_CERT_DIR/*.0 | wc -l")
    counts = got.stdout.split()
    assert len(counts) == len(names) + 1
    assert len(set(counts[:-1])) == 1
    assert int(counts[0]) > 1  # the system's roots and ours
    assert counts[-1] == "1"


# What it must not see


def with_credentials(tmp, file="tok.txt"):
    path = tmp / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(CANARY + "\n")
    path.chmod(0o600)
    config = tmp / "stile.yaml"
    config.write_text(f"""version: 1
credentials:
  file: {{from: {{file: {path}}}, as: bearer}}
  env: {{from: {{env: STILE_TEST_TOKEN}}, as: bearer}}
policies:
  default:
    rules:
      - {{allow: "https://a.test/a", credential: file}}
      - {{allow: "https://a.test/b", credential: env}}
""")
    return clean_env(HOME=str(tmp), STILE_TEST_TOKEN=CANARY, OTHER=CANARY)


def test_credential_file_is_hidden(tmp):
    env = with_credentials(tmp)
    got = run(tmp, "sh", "-c", "cat tok.txt; cp tok.txt x; mv tok.txt y; rm -f tok.txt; ln tok.txt z; "
              "cat x y z; ls", env=env)
    assert CANARY not in got.stdout + got.stderr
    assert "Permission denied" in got.stderr
    assert (tmp / "tok.txt").read_text() == CANARY + "\n"


def test_credential_folder_is_hidden(tmp):
    env = with_credentials(tmp, "secrets/tok")
    # Replaced by a rename while the command runs: what is hidden stays hidden.
    p = start(tmp, "sh", "-c", "echo up; read x; cat secrets/tok; ls secrets; ls -A", env=env,
              stdin=subprocess.PIPE)
    assert p.stdout.readline() == "up\n"
    (tmp / "secrets" / "new").write_text(CANARY + "-new\n")
    (tmp / "secrets" / "new").rename(tmp / "secrets" / "tok")
    out, err = p.communicate("\n", timeout=30)
    assert CANARY not in out + err
    assert "Permission denied" in err


def test_credential_is_in_no_environment(tmp):
    env = with_credentials(tmp)
    got = run(tmp, "sh", "-c", "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'",
              env=env)
    assert CANARY not in got.stdout
    assert "Permission denied" in got.stderr  # pid 1 keeps itself to itself


def test_credential_is_not_in_stiles_own_environment(tmp):
    env = with_credentials(tmp)
    p = start(tmp, "sh", "-c", "echo up; read x", env=env, stdin=subprocess.PIPE)
    assert p.stdout.readline() == "up\n"
    try:
        environ = pathlib.Path(f"/proc/{p.pid}/environ").read_bytes()
        assert b"PATH=" in environ
        # Nor another variable that somebody else's program would be given.
        assert CANARY.encode() not in environ
    except PermissionError:
        pass  # not even to the same user
    finally:
        p.communicate("\n", timeout=30)


@pytest.mark.parametrize("flag", ["STILE_TEST_TOKEN", "STILE_TEST_TOKEN=x"])
def test_env_may_not_name_a_source(tmp, flag):
    got = run(tmp, "echo", "RAN", env=with_credentials(tmp), args=["--env", flag])
    assert got.returncode == 2
    assert "STILE_TEST_TOKEN" in got.stderr
    assert "RAN" not in got.stdout


def test_memory_of_pid_1_is_closed(tmp):
    got = run(tmp, "sh", "-c", "cat /proc/1/mem; cat /proc/1/maps; ls -l /proc/1/fd/0 /proc/1/root/; "
              "cat /proc/1/cmdline", env=with_credentials(tmp), args=["--env", "X=argument-of-stile"])
    assert "argument-of-stile" not in got.stdout
    assert got.stderr.count("Permission denied") >= 4


def test_log_and_policy_are_protected(tmp):
    env = with_credentials(tmp)
    got = run(tmp, "sh", "-c", "cat run.jsonl; echo x >> run.jsonl; rm -f run.jsonl; "
              "echo x >> stile.yaml; mv stile.yaml z; grep -c version stile.yaml", env=env)
    assert got.stdout == "1\n"
    assert got.stderr.count("Permission denied") == 2
    for line in (tmp / "run.jsonl").read_text().splitlines():
        json.loads(line)
    assert (tmp / "stile.yaml").exists()


def test_folder_cannot_be_swapped(tmp):
    """stile reads the credential by its path: nothing else may be put there."""
    work = tmp / "outer" / "work"
    work.mkdir(parents=True)
    env = with_credentials(tmp, "outer/work/tok.txt")
    (work / "tool").write_text("")
    got = run(tmp, "sh", "-c", "cd /; mv $W/outer/work $W/outer/x; mv $W/outer $W/y; mv $W $W-z; "
              "mkdir -p $W/outer/work; echo attacker > $W/outer/work/tok.txt; touch $W/outer/work/new; "
              "mv $W/outer/work/new $W/outer/work/newer", env=env, args=["--env", f"W={tmp}"])
    assert got.stderr.count("Device or resource busy") >= 3
    assert (work / "tok.txt").read_text() == CANARY + "\n"
    assert (work / "newer").exists()


def test_proc_shows_no_outside_process(tmp):
    got = run(tmp, "sh", "-c", "ls /proc | grep -c '^[0-9]*$'; cat /proc/1/comm; echo $$")
    count, comm, own = got.stdout.split()
    assert int(count) <= 6
    assert comm == "stile-init"
    assert own == "2"


def test_sockets_of_the_host_are_hidden(tmp):
    agent = tmp / "agent.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(agent))
        s.listen()
        got = python(tmp, "import socket\ntry: socket.socket(socket.AF_UNIX).connect('agent.sock')\n"
                     "except OSError as e: print(e.strerror)\nimport os; print(os.listdir('/run'))",
                     env=clean_env(HOME=str(tmp), SSH_AUTH_SOCK=str(agent)))
    assert got.stdout.splitlines() == ["Permission denied", "['stile']"] or \
        got.stdout.splitlines() == ["Connection refused", "['stile']"]


# Privileges


def caps(text):
    return {line.split(":")[0]: line.split()[1] for line in text.splitlines()
            if line.startswith("Cap")}


def test_no_capabilities(tmp):
    got = run(tmp, "sh", "-c", "cat /proc/self/status /proc/1/status")
    assert set(caps(got.stdout).values()) == {"0" * 16}
    assert "NoNewPrivs:\t1" in got.stdout


@pytest.mark.skipif(not runlib.can_become_nobody(), reason="needs root to become nobody")
def test_works_for_an_unprivileged_user(tmp):
    work = pathlib.Path("/tmp") / f"stile-nobody-{os.getpid()}"
    work.mkdir(mode=0o777)
    work.chmod(0o777)
    binary = work / "stile"
    shutil.copy(runlib.BIN, binary)
    binary.chmod(0o755)
    try:
        got = subprocess.run([*runlib.NOBODY, binary, "run", "--log", work / "log", "--", "sh", "-c",
                              "id -u; grep CapEff /proc/self/status; unshare -Ur id -u || echo none; touch mine; "
                              "curl -sS -o /dev/null -w '%{http_code}\\n' http://evil.test/"],
                             cwd=work, env=clean_env(HOME="/nonexistent"), capture_output=True,
                             text=True, timeout=runlib.TIMEOUT)
        # "none": it gets no user namespace of its own.
        assert got.stdout.split() == ["65534", "CapEff:", "0" * 16, "none", "403"], got.stderr
        assert (work / "mine").stat().st_uid == 65534
    finally:
        shutil.rmtree(work)


def test_nested_namespace_uncovers_nothing(tmp):
    got = run(tmp, "unshare", "-rm", "sh", "-c", "umount -l tok.txt; umount /run; cat tok.txt; true",
              env=with_credentials(tmp))
    assert CANARY not in got.stdout + got.stderr


def test_forbidden_calls(tmp):
    code = """
import errno, fcntl, socket, termios
def attempt(f):
    try:
        f()
    except OSError as e:
        return errno.errorcode[e.errno]
    return "done"
print(attempt(lambda: fcntl.ioctl(0, termios.TIOCSTI, b"x")))
print(attempt(lambda: fcntl.ioctl(0, 0x541C, b"\\2")))
print(attempt(lambda: socket.socket(40, socket.SOCK_STREAM)))
print(attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)))
print(attempt(lambda: socket.socketpair()))
"""
    got = python(tmp, code)
    assert got.stdout.split() == ["EPERM", "EPERM", "EAFNOSUPPORT", "EPERM", "done"]


# Signals, the terminal, the end


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "USR1", "USR2", "QUIT"])
def test_signals_are_passed_on(tmp, name):
    p = start(tmp, "sh", "-c", f"trap 'echo got {name}; exit 5' {name}; echo up; "
              "while :; do sleep 0.1; done")
    assert p.stdout.readline() == "up\n"
    p.send_signal(getattr(signal, "SIG" + name))
    out, _ = p.communicate(timeout=30)
    assert out == f"got {name}\n"
    assert p.returncode == 5


def test_signal_that_kills(tmp):
    p = start(tmp, "sh", "-c", "echo up; exec sleep 60")
    assert p.stdout.readline() == "up\n"
    p.terminate()
    assert p.wait(timeout=30) == 143


def test_ignored_signals_stay_ignored(tmp):
    got = run(tmp, "sh", "-c", "kill -HUP $$; echo alive",
              prefix=["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"])
    assert got.stdout == "alive\n"


def test_killed_stile_takes_everything_with_it(tmp):
    marker = f"86400.{os.getpid()}"
    p = start(tmp, "sh", "-c", f"setsid sleep {marker} & echo up; sleep {marker}")
    assert p.stdout.readline() == "up\n"
    wait_for(lambda: len(processes(marker)) >= 3)
    p.kill()
    p.wait()
    wait_for(lambda: not processes(marker), 5)


def test_what_is_left_running_ends_too(tmp):
    marker = f"86401.{os.getpid()}"
    got = run(tmp, "sh", "-c", f"setsid sleep {marker} >/dev/null 2>&1 & sleep 0.1; echo done")
    assert got.stdout == "done\n"
    assert not processes(marker)


def test_orphans_are_reaped(tmp):
    got = run(tmp, "sh", "-c", "for i in 1 2 3 4 5; do (sh -c 'sleep 0.1' &) ; done; sleep 0.6; "
              "cat /proc/[0-9]*/stat | awk '$3 == \"Z\"' | wc -l")
    assert got.stdout.strip() == "0"


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_stop_and_continue_from_outside(tmp):
    # A job as a shell makes it: in an orphaned group the kernel would drop SIGTSTP, and who runs us may be one.
    p = start(tmp, "sh", "-c", "echo up; while :; do sleep 0.1; echo tick; done", process_group=0)
    assert p.stdout.readline() == "up\n"
    for _ in range(3):
        p.send_signal(signal.SIGTSTP)
        wait_for(lambda: state(p.pid) == "T")
        p.send_signal(signal.SIGCONT)
        wait_for(lambda: state(p.pid) != "T")
        assert p.stdout.readline() == "tick\n"
    p.terminate()
    p.communicate(timeout=30)
    assert p.returncode == 143


def test_terminal_is_its_own(tmp):
    with Terminal(argv_of(tmp / "l", "sh", "-c", "tty; stty size; test -t 0 && test -t 1 && test -t 2 && "
                          "echo all; read x; echo got $x; exit 3"), tmp,
                  clean_env(HOME=str(tmp))) as t:
        t.expect("/dev/console")
        t.expect("all")
        t.send("line\n")
        t.expect("got line")
        assert t.wait() == 3


def test_ctrl_c(tmp):
    with Terminal(argv_of(tmp / "l", "sh", "-c", "trap 'echo interrupted; exit 7' INT; echo up; "
                          "while :; do sleep 0.1; done"), tmp, clean_env(HOME=str(tmp))) as t:
        t.expect("up")
        t.send("\x03")
        t.expect("interrupted")
        assert t.wait() == 7
        assert t.seen.count("interrupted") == 0  # once, not once more by way of stile


def test_ctrl_c_that_the_command_ignores(tmp):
    with Terminal(argv_of(tmp / "l", "sh", "-c", "trap '' INT; echo up; read x; echo still $x"), tmp,
                  clean_env(HOME=str(tmp))) as t:
        t.expect("up")
        t.send("\x03")
        t.send("here\n")
        t.expect("still here")
        assert t.wait() == 0


def outer_shell(tmp):
    t = Terminal(["bash", "--norc", "--noprofile", "-i"], tmp,
                 clean_env(HOME=str(tmp), PS1="outer> ", BIN=str(runlib.BIN)))
    t.expect("outer> ")
    return t


# A shell echoes what is typed, so what is waited for is spelled otherwise in the command: up""side.


def test_ctrl_z_and_fg(tmp):
    with outer_shell(tmp) as t:
        t.send("$BIN run --log l -- sh -c 'echo u\"\"p; read x; echo g\"\"ot $x; exit 4'\n")
        t.expect("up")
        t.send("\x1a")
        t.expect("Stopped")
        t.expect("outer> ")
        t.send("echo out\"\"side; fg\n")
        t.expect("outside")
        t.send("text\n")
        t.expect("got text")
        t.expect("outer> ")
        t.send("echo sta\"\"tus $?\n")
        t.expect("status 4")


def test_ctrl_z_that_the_command_ignores(tmp):
    with outer_shell(tmp) as t:
        t.send("$BIN run --log l -- sh -c 'trap \"\" TSTP; echo u\"\"p; read x; curl -sS -o /dev/null -w "
               "%{http_code} http://evil.test/; echo g\"\"ot $x'\n")
        t.expect("up")
        t.send("\x1a")
        t.send("text\n")
        t.expect("403")  # the proxy runs on, too
        t.expect("got text")
        t.expect("outer> ")
        assert "Stopped" not in t.all


def inner_shell(t):
    t.send("$BIN run --log l --env PS1='in\"\"ner> ' -- bash --norc --noprofile -i\n")
    t.expect("in\"\"ner> ' -- bash")
    t.expect(r"in\"\"ner> $")


def foreground_sleep(t, seconds):
    """Types a sleep that no other test uses, and waits until it runs."""
    t.send(f"sleep {seconds}\n")
    wait_for(lambda: processes(seconds))
    # Its process group gets the terminal just before or just after it starts.
    time.sleep(0.2)


def test_interactive_shell_with_jobs(tmp):
    with outer_shell(tmp) as t:
        inner_shell(t)
        assert "no job control" not in t.all
        foreground_sleep(t, f"5{os.getpid()}.1")
        t.send("\x1a")
        t.expect("Stopped")
        t.expect("ner> $")
        t.send("kill %1; fg; echo af\"\"ter\n")
        t.expect("after")
        t.expect("ner> $")
        foreground_sleep(t, f"5{os.getpid()}.2")
        t.send("\x03")
        t.expect("ner> $")
        t.send("exit 6\n")
        t.expect("outer> $")
        t.send("echo sta\"\"tus $?\n")
        t.expect("status 6")


def test_suspend_of_an_inner_shell(tmp):
    with outer_shell(tmp) as t:
        inner_shell(t)
        t.send("suspend\n")
        t.expect("Stopped")
        t.expect("outer> $")
        t.send("fg\n")
        t.expect("ner> $")
        t.send("echo in ag\"\"ain\n")
        t.expect("in again")
        t.expect("ner> $")
        t.send("exit 8\n")
        t.expect("outer> $")
        t.send("echo sta\"\"tus $?\n")
        t.expect("status 8")


def test_terminal_comes_back_after_a_kill(tmp):
    with outer_shell(tmp) as t:
        inner_shell(t)
        t.send("kill -9 $$\n")
        t.expect("outer> $")
        t.send("echo sta\"\"tus $?\n")
        t.expect("status 137")


def test_in_the_background(tmp):
    with outer_shell(tmp) as t:
        t.send("$BIN run --log l -- sh -c 'echo from be\"\"hind' & wait %1; echo sta\"\"tus $?\n")
        t.expect("from behind")
        t.expect("status 0")


# No sandbox, no command


@pytest.mark.parametrize("setting", ["max_user_namespaces", "max_net_namespaces",
                                     "max_pid_namespaces", "max_mnt_namespaces"])
def test_no_namespaces(tmp, setting):
    got = subprocess.run(["unshare", "-Ur", "sh", "-c",
                          f"echo 0 > /proc/sys/user/{setting} || exit 99; exec \"$@\"", "sh",
                          *argv_of(tmp / "l", "echo", "RAN")], cwd=tmp, capture_output=True,
                         text=True, env=clean_env(HOME=str(tmp)), timeout=runlib.TIMEOUT)
    if got.returncode == 99:
        pytest.skip(f"needs user namespaces in which user.{setting} can be set")
    assert got.returncode == 125
    assert f"user.{setting} is 0" in got.stderr
    assert "RAN" not in got.stdout


# clone and clone3 with CLONE_NEWUSER are EPERM, as in a container; x86-64 and AArch64 alike.
SECCOMP = """
import ctypes, os, struct, sys
clone = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
def op(code, jt, jf, k): return struct.pack("HBBI", code, jt, jf, k)
prog = (op(0x20, 0, 0, 0) + op(0x15, 0, 3, clone) + op(0x20, 0, 0, 16) +
        op(0x45, 0, 1, 0x10000000) + op(0x06, 0, 0, 0x00050001) + op(0x06, 0, 0, 0x7fff0000))
buf = ctypes.create_string_buffer(prog, len(prog))
class Fprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
f = Fprog(len(prog) // 8, ctypes.addressof(buf))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(f), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_seccomp_of_a_container(tmp):
    got = run(tmp, "echo", "RAN", prefix=[sys.executable, "-c", SECCOMP])
    assert got.returncode == 125
    assert "seccomp" in got.stderr
    assert "RAN" not in got.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to cover a part of /proc")
def test_covered_proc_of_a_container(tmp):
    got = run(tmp, "echo", "RAN", prefix=["unshare", "-m", "sh", "-c",
                                          "mount -t tmpfs x /proc/tty; exec \"$@\"", "sh"])
    assert got.returncode == 125
    assert "/proc" in got.stderr
    assert "RAN" not in got.stdout


def test_no_log_no_command(tmp):
    got = run(tmp, "echo", "RAN", log=tmp / "no-such-folder" / "log")
    assert got.returncode == 125
    assert "no-such-folder" in got.stderr
    assert "RAN" not in got.stdout


# Many, and nothing left behind


def test_twenty_at_once(tmp):
    def one(i):
        got = run(tmp, "sh", "-c", f"curl -sS -o /dev/null -w '%{{http_code}} {i}' http://evil.test/; "
                  f"sleep 0.2; exit {i}", log=tmp / f"log{i}")
        return got.returncode, got.stdout

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        got = list(pool.map(one, range(20)))
    assert got == [(i, f"403 {i}") for i in range(20)]


def test_nothing_is_left_behind(tmp):
    def listing():
        return sorted(p.name for d in ("/tmp", "/run", "/dev/shm", "/var/tmp")
                      for p in pathlib.Path(d).iterdir() if "stile" in p.name.lower())

    before = listing()
    run(tmp, "true")
    p = start(tmp, "sh", "-c", "echo up; sleep 60")
    assert p.stdout.readline() == "up\n"
    p.kill()
    p.wait()
    p.stdout.close()
    p.stderr.close()
    assert [x for x in listing() if x not in before] == []
    assert sorted(x.name for x in tmp.iterdir()) == ["run.jsonl"]


def test_the_ca_is_of_this_run(tmp):
    def fingerprint():
        return run(tmp, "openssl", "x509", "-in", "/run/stile/ca.pem", "-noout", "-fingerprint",
                   "-sha256").stdout

    first, second = fingerprint(), fingerprint()
    assert "Fingerprint=" in first
    assert first != second
    assert not pathlib.Path("/run/stile/ca.pem").exists()


def test_start_up_is_quick(tmp):
    run(tmp, "true")
    times = []
    for _ in range(5):
        before = time.monotonic()
        run(tmp, "true")
        times.append(time.monotonic() - before)
    assert min(times) < 1.0  # some 20 ms on a quiet machine


def test_memory_of_stile_is_not_dumped(tmp):
    """A crash writes no core of a process that holds secrets."""
    env = with_credentials(tmp)
    p = start(tmp, "sh", "-c", "echo up; sleep 60", env=env,
              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE,
                                                    (resource.RLIM_INFINITY,) * 2)
              if os.geteuid() == 0 else None)
    assert p.stdout.readline() == "up\n"
    p.send_signal(signal.SIGABRT)
    assert p.wait(timeout=30) == -signal.SIGABRT
    p.stdout.close()
    p.stderr.close()
    assert not list(tmp.glob("core*"))


# The whole way: an allowed request, with the credential


@pytest.fixture
def origin(tmp_path_factory):
    o = runlib.Origin(tmp_path_factory.mktemp("origin"))
    yield o
    o.close()


def config_for(tmp, origin):
    env = with_credentials(tmp, "secrets/tok")
    (tmp / "stile.yaml").write_text(f"""version: 1
upstream:
  trust: [{origin.ca}]
  hosts: {{allowed.test: 127.0.0.1}}
credentials:
  file: {{from: {{file: {tmp}/secrets/tok}}, as: bearer}}
policies:
  default:
    rules:
      - {{allow: "https://allowed.test:{origin.port}/ok/**", addresses: [127.0.0.0/8]}}
      - {{allow: "https://allowed.test:{origin.port}/cred/**", addresses: [127.0.0.0/8], credential: file}}
""")
    return env


CLIENTS = {
    "curl": ["curl", "-sS", "--fail", "URL"],
    "wget": ["wget", "-q", "-O", "-", "URL"],
    "urllib": [sys.executable, "-c", "import sys, urllib.request\n"
               "print(urllib.request.urlopen(sys.argv[1]).read().decode())", "URL"],
    "node": ["node", "-e", "fetch(process.argv[1]).then(r => r.text()).then(console.log)", "URL"],
}


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_need_no_flag(tmp, origin, client):
    if not shutil.which(CLIENTS[client][0]):
        pytest.skip(f"{client} is not installed")
    url = f"https://allowed.test:{origin.port}/ok/{client}"
    cmd = [url if word == "URL" else word for word in CLIENTS[client]]
    got = run(tmp, *cmd, env=config_for(tmp, origin))
    assert "hello from the origin" in got.stdout, got.stderr
    assert [path for path, _ in origin.requests] == [f"/ok/{client}"]


def test_clients_need_no_proxy_either(tmp, origin):
    """What ignores the variables asks the stub for a name, and is judged behind its address as in a CONNECT."""
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    env = config_for(tmp, origin)
    ok, other, away = (f"https://{x}" for x in (f"allowed.test:{origin.port}/ok/bare", f"allowed.test:{origin.port}/no",
                                                f"denied.test:{origin.port}/ok/a"))
    got = run(tmp, "env", "-i", "PATH=/usr/bin:/bin", "sh", "-c",
              f"curl -sS {ok}; curl -sS {ok}; curl -sS4 {other}; curl -sS6 {ok}; curl -sS {away}; curl -sS {ok} --resolve "
              f"allowed.test:{origin.port}:198.18.77.77", env=env)
    assert got.stdout.count("hello from the origin") == 3 and '"reason":"no_rule"' in got.stdout, got
    assert "Could not resolve host: denied.test" in got.stderr
    assert [path for path, _ in origin.requests] == ["/ok/bare"] * 3
    records = [json.loads(x) for x in (tmp / "run.jsonl").read_text().splitlines()]
    ends = [r for r in records if r["event"] == "request.end"]
    assert len(ends) == 3 and {(r["listener"], r["host"], r["path"]) for r in ends} == {("run-transparent", "allowed.test", "/ok/bare")}
    assert {r["host"] for r in records if r["event"] == "dns.deny"} == {"denied.test"}


def test_credential_is_injected_and_nowhere_else(tmp, origin):
    url = f"https://allowed.test:{origin.port}/cred/a?api_key=attacker&q=1"
    got = run(tmp, "curl", "-sSi", "-H", "X-Api-Key: attacker", "-H", "Cookie: session=attacker",
              "-H", "Authorization: Bearer attacker", url, env=config_for(tmp, origin))
    assert "hello from the origin" in got.stdout, got.stdout + got.stderr
    (path, headers), = origin.requests
    assert path == "/cred/a?q=1"
    assert headers["Authorization"] == f"Bearer {CANARY}"
    assert "attacker" not in repr(headers)
    log = (tmp / "run.jsonl").read_text()
    assert CANARY not in got.stdout + got.stderr + log
    assert '"credential":"file"' in log
    assert '"credential_stripped":true' in log


def test_other_paths_are_refused(tmp, origin):
    url = f"https://allowed.test:{origin.port}/no"
    got = run(tmp, "curl", "-sS", "-w", "%{http_code}", url, env=config_for(tmp, origin))
    assert got.stdout.endswith("403")
    assert "no_rule" in got.stdout
    assert origin.requests == []


def test_credential_that_is_not_to_be_had(tmp, origin):
    env = config_for(tmp, origin)
    (tmp / "secrets" / "tok").write_text("two\r\nlines")
    url = f"https://allowed.test:{origin.port}/cred/a"
    got = run(tmp, "curl", "-sS", "-w", "%{http_code}", url, env=env)
    assert got.stdout.endswith("503")
    assert "credential_unavailable" in got.stdout
    assert "secrets" not in got.stdout
    assert origin.requests == []


def test_credential_that_changes(tmp, origin):
    env = config_for(tmp, origin)
    url = f"https://allowed.test:{origin.port}/cred/a"
    p = start(tmp, "sh", "-c", f"curl -sS {url}; read x; curl -sS {url}", env=env,
              stdin=subprocess.PIPE)
    assert p.stdout.readline() == "hello from the origin\n"
    new = tmp / "secrets" / "new"
    new.write_text("CANARY-second")
    new.rename(tmp / "secrets" / "tok")
    time.sleep(1.2)
    p.communicate("\n", timeout=30)
    assert [h["Authorization"] for _, h in origin.requests] == [f"Bearer {CANARY}",
                                                                "Bearer CANARY-second"]
