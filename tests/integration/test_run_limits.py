"""What `stile run` lets its command use, and that many of them leave nothing behind. Limits that need a control
group are tested on a kernel that has them (tests/kernel); here that they are kept to, or refused."""

import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

import runlib
from runlib import clean_env, processes, run, start, wait_for

PYTHON = "/usr/bin/python3"
KERNEL = tuple(int(x) for x in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())
# Before, root's processes are counted by a control group alone.
COUNTS = KERNEL >= (6, 14) if os.geteuid() == 0 else KERNEL >= (5, 14)

# Forks until it is refused; what it has made forks as well, and stays.
BOMB = """
import os, signal, sys, time
n, most = 0, int(sys.argv[1])
while n < most:
    try:
        pid = os.fork()
    except OSError as e:
        print(n, e.strerror, flush=True)
        break
    if pid == 0:
        for _ in range(20):
            try:
                os.fork()
            except OSError:
                pass
        time.sleep(60)
        os._exit(0)
    n += 1
"""


@pytest.fixture
def tmp(tmp_path):
    return tmp_path


@pytest.mark.parametrize("flag, text", [
    ("--memory", "0"), ("--memory", "2g"), ("--memory", "1.5G"), ("--memory", "4K"), ("--memory", "-1"), ("--memory", ""),
    ("--cpus", "0"), ("--cpus", "-1"), ("--cpus", "1."), ("--cpus", "50%"), ("--cpus", "1,5"),
    ("--pids", "0"), ("--pids", "x"), ("--pids", "1K"), ("--pids", "99999999999999999999"),
    ("--file-size", "1 M"), ("--file-size", "none"), ("--file-size", "99999999T")])
def test_limit_that_is_none(tmp, flag, text):
    got = run(tmp, "echo", "RAN", args=[flag, text])
    assert got.returncode == 2 and f"{flag} takes" in got.stderr
    assert got.stdout == ""


@pytest.mark.skipif(not COUNTS, reason="needs Linux 5.14, for root 6.14, to count processes without a control group")
def test_fork_bomb(tmp):
    begun = time.monotonic()
    got = run(tmp, PYTHON, "-c", BOMB, 1000, args=["--pids", "310"])
    assert got.returncode == 0, got.stderr
    n, why = got.stdout.split(" ", 1)
    assert int(n) < 310 and "temporarily unavailable" in why
    assert time.monotonic() - begun < 25
    # What was left running is gone, and the machine's own bound is what it was.
    assert int(pathlib.Path("/proc/sys/kernel/pid_max").read_text()) > 1000


@pytest.mark.skipif(not COUNTS, reason="needs Linux 5.14, for root 6.14, to count processes without a control group")
def test_fork_bomb_that_does_not_end(tmp):
    got = run(tmp, "sh", "-c", "b() { b | b & b; }; b", args=["--pids", "310", "--timeout", "2"])
    # Its shell is ended by the time, or ends itself when it cannot fork.
    assert got.returncode != 0
    assert run(tmp, "true").returncode == 0


@pytest.mark.skipif(not runlib.can_become_nobody(), reason="needs root to become nobody")
@pytest.mark.skipif(KERNEL < (5, 14), reason="needs Linux 5.14, to count a sandbox's processes alone")
def test_processes_of_an_unprivileged_user():
    work = pathlib.Path("/tmp") / f"stile-pids-{os.getpid()}"
    work.mkdir(mode=0o777)
    work.chmod(0o777)
    shutil.copy(runlib.BIN, work / "stile")

    def as_nobody(*words):
        got = subprocess.run([*runlib.NOBODY, work / "stile", "run", "--log", work / "log", *map(str, words)], cwd=work,
                             env=clean_env(HOME="/nonexistent"), capture_output=True, text=True,
                             timeout=runlib.TIMEOUT)
        assert got.returncode == 0, got.stderr
        return got.stdout

    # Others of the same user, outside, are not counted.
    others = [subprocess.Popen([*runlib.NOBODY, "sleep", "100"]) for _ in range(30)]
    try:
        assert as_nobody("--", "bash", "-c", "ulimit -Su; ulimit -Hu") == "4097\n4097\n"
        assert as_nobody("--pids", 20, "--", PYTHON, "-c", BOMB, 1000).split(" ", 1)[0] in map(str, range(1, 20))
        assert as_nobody("--", "bash", "-c", "ulimit -u 5000 2>&1 || echo stays").endswith("stays\n")
    finally:
        for p in others:
            p.kill()
            p.wait()
        shutil.rmtree(work)


def test_processes_by_default(tmp):
    """Far above what a build has; nobody notices."""
    code = ("import threading\nb = threading.Event()\nt = [threading.Thread(target=b.wait) for _ in range(500)]\n"
            "[x.start() for x in t]\nb.set()\n[x.join() for x in t]\nprint('all')")
    assert run(tmp, PYTHON, "-c", code).stdout == "all\n"


@pytest.mark.parametrize("flag, text", [("--memory", "64M"), ("--cpus", "0.5")])
def test_limit_is_kept_or_there_is_no_sandbox(tmp, flag, text):
    got = run(tmp, PYTHON, "-c", "print('RAN', flush=True); x = bytearray(200 << 20)", args=[flag, text])
    if got.returncode == 125:
        assert got.stdout == "" and f"{flag} needs a control group: " in got.stderr
    elif flag == "--memory":
        assert got.returncode == 137 and "it reached --memory 64M (oom_kill)" in got.stderr
    else:
        assert got.returncode == 0


def test_file_size(tmp):
    got = run(tmp, "sh", "-c", "exec yes > big", args=["--file-size", "1M"])
    assert got.returncode == 153 and "it reached --file-size 1M" in got.stderr
    assert (tmp / "big").stat().st_size == 1 << 20
    # In memory as well; and a program that hears the error instead goes on.
    got = run(tmp, "sh", "-c", "trap '' XFSZ; yes > /tmp/big; stat -c %s /tmp/big", args=["--file-size", "2M"])
    assert got.stdout == f"{2 << 20}\n" and "--file-size" not in got.stderr


def test_endless_file_in_memory(tmp):
    got = run(tmp, "sh", "-c", "dd if=/dev/zero of=/run/stile/x bs=1M count=1 2>/dev/null || echo no; "
              "dd if=/dev/zero of=/dev/x bs=1M count=1 2>/dev/null || echo no; df --output=size -m /tmp | tail -1")
    assert got.stdout.split()[:2] == ["no", "no"]
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    assert int(got.stdout.split()[2]) < machine / 5


def test_busy_loop_is_ended(tmp):
    begun = time.monotonic()
    got = run(tmp, "sh", "-c", "for i in 1 2 3 4; do (while :; do :; done) & done; wait",
              args=["--timeout", "1"])
    assert got.returncode == 124
    assert time.monotonic() - begun < 25


def test_no_core_is_dumped(tmp):
    got = run(tmp, "sh", "-c", "ulimit -Sc; ulimit -Hc; ulimit -c unlimited 2>/dev/null || echo no",
              prefix=["bash", "-c", 'ulimit -c unlimited 2>/dev/null; exec "$@"', "sh"])
    assert got.stdout.split() == ["0", "0", "no"]


def test_within_another(tmp):
    got = run(tmp, runlib.BIN, "run", "--log", "/tmp/l", "--", "echo", "RAN",
              args=["--show", str(runlib.BIN)])
    assert got.returncode == 125 and "no sandbox: " in got.stderr and "seccomp" in got.stderr
    assert "RAN" not in got.stdout


def first_process(p):
    """The pid of pid 1 of a stile's sandbox: the child that has another network."""
    own = os.readlink(f"/proc/{p.pid}/ns/net")
    for pid in pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split():
        try:
            if os.readlink(f"/proc/{pid}/ns/net") != own:
                return pid
        except OSError:
            pass
    raise AssertionError("no sandbox")


def namespaces_in_use():
    found = set()
    for d in pathlib.Path("/proc").iterdir():
        if d.name.isdigit():
            try:
                found |= {os.readlink(d / "ns" / kind) for kind in ("net", "mnt", "user", "pid", "ipc", "uts")}
            except OSError:
                pass
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to read the namespaces of other processes")
def test_two_hundred_at_once(tmp):
    """All of them alive at once; then nothing of them is left: no process, namespace, mount, file or control group."""
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    marker = f"two-hundred-{os.getpid()}"
    groups = set(pathlib.Path("/sys/fs/cgroup").glob("**/stile-*"))
    runs = []
    try:
        for i in range(200):
            (tmp / str(i)).mkdir()
            runs.append(start(tmp / str(i), "sh", "-c", f"echo up; read x; : {marker}; exit {i % 100}",
                              stdin=subprocess.PIPE, stderr=subprocess.DEVNULL))
        assert [p.stdout.readline() for p in runs] == ["up\n"] * 200
        inner = [first_process(p) for p in runs]
        own = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in inner for kind in ("net", "mnt", "user", "pid")}
        assert len(own) == 800
        for p in runs:
            p.stdin.write("\n")
            p.stdin.flush()
        assert [p.wait(timeout=60) for p in runs] == [i % 100 for i in range(200)]
    finally:
        for p in runs:
            p.kill()
            p.wait()
            p.stdin.close()
            p.stdout.close()
    wait_for(lambda: not processes(marker) and not own & namespaces_in_use(), 60)
    assert pathlib.Path("/proc/self/mountinfo").read_text() == mounts
    assert {x.name for d in tmp.iterdir() for x in d.iterdir()} == {"run.jsonl"}
    assert set(pathlib.Path("/sys/fs/cgroup").glob("**/stile-*")) <= groups


def test_no_descriptor_is_left_in_a_stile(tmp):
    """What the start opened for the sandbox is closed once it runs."""
    p = start(tmp, "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
    assert p.stdout.readline() == "up\n"
    try:
        names = [os.readlink(f"/proc/{p.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{p.pid}/fd")]
    except PermissionError:
        pytest.skip("needs root with CAP_SYS_PTRACE, as stile lets nobody else look into it")
    finally:
        p.communicate("\n", timeout=30)
    assert [n for n in names if "memfd" in n or n.startswith(("net:", "mnt:", "/sys", "/etc"))] == []
    assert len(names) < 60
