"""The file system as a command of `stile run` finds it: where it may write, what it may see."""

import os
import pathlib
import pty
import shutil
import subprocess

import pytest

import runlib
from runlib import clean_env, run


@pytest.fixture
def place():
    """A home with a workspace in it, not below /tmp, which is the sandbox's own anyway."""
    top = pathlib.Path("/var/lib") if os.access("/var/lib", os.W_OK) else pathlib.Path.home()
    home = top / f"stile-home-{os.getpid()}-{os.urandom(4).hex()}"
    (home / "work").mkdir(parents=True)
    yield home
    shutil.rmtree(home)


def sh(home, script, *args, work=None, **more):
    return run(home, "sh", "-c", script, args=tuple(map(str, args)), cwd=work or home / "work", log=home / "log",
               env=clean_env(HOME=str(home)), **more)


def test_the_workspace_alone_is_written(place):
    got = sh(place, "for d in . / /etc /usr/bin /var/lib /opt /srv /dev /proc/sys/kernel /sys /run /run/stile; do "
                    "touch $d/x 2>/dev/null && echo $d; done; mkdir sub && echo in > sub/file; chmod 755 sub/file; ln -s x y; true")
    assert got.stdout.split() == ["."] and got.returncode == 0
    assert (place / "work" / "sub" / "file").read_text() == "in\n" and not (place / "x").exists()


def test_folders_in_memory(place):
    marks = [f"{d}/stile-mark-{os.getpid()}" for d in ("/tmp", "/var/tmp", "/dev/shm", str(place))]
    got = sh(place, f"for f in {' '.join(marks)}; do echo x > $f || exit 1; done; stat -f -c %T /tmp /var/tmp /dev/shm {place}")
    assert got.stdout.split() == ["tmpfs"] * 4, got.stderr
    assert not any(pathlib.Path(m).exists() for m in marks)


def test_folders_in_memory_are_empty_and_bounded(place):
    there = pathlib.Path("/var/tmp") / f"stile-there-{os.getpid()}"
    there.write_text("x")
    try:
        got = sh(place, "ls -A /tmp /var/tmp /dev/shm; df -k --output=size /tmp | tail -1; "
                        "awk '/MemTotal/ {print $2}' /proc/meminfo")
    finally:
        there.unlink()
    *listed, size, total = got.stdout.split()
    assert there.name not in listed and int(size) <= int(total) * 16 // 100


def test_the_home_is_empty_but_for_tools(place):
    for name in (".ssh/id", ".aws/credentials", ".env", "notes.txt", ".cargo/bin/tool", ".cargo/credentials.toml",
                 ".local/bin/mine", "work/own", "beside/x"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("#!/bin/sh\necho tool\n")
        (place / name).chmod(0o755)
    got = sh(place, f"cd {place}; find . -type f | sort; .cargo/bin/tool; echo x >> .cargo/bin/tool; echo x > .ssh || exit 3; cat .ssh")
    files = got.stdout.split("\n")
    assert files[:3] == ["./.cargo/bin/tool", "./.local/bin/mine", "./work/own"] and files[3] == "tool"
    assert "Read-only" in got.stderr and files[4] == "x"
    assert (place / ".ssh" / "id").exists()


def test_folders_of_the_path_stay(place):
    (place / "own" / "bin").mkdir(parents=True)
    (place / "own" / "bin" / "mytool").write_text("#!/bin/sh\necho mine\n")
    (place / "own" / "bin" / "mytool").chmod(0o755)
    (place / "own" / "secret").write_text("x")
    env = clean_env(HOME=str(place))
    env["PATH"] = f"{place}/own/bin:{env['PATH']}"
    got = run(place, "sh", "-c", f"mytool; ls {place}/own", cwd=place / "work", log=place / "log", env=env)
    assert got.stdout.split() == ["mine", "bin"], got.stderr


def test_a_command_that_is_a_path_is_shown(place):
    (place / "beside").mkdir()
    (place / "beside" / "prog").write_text("#!/bin/sh\nls $(dirname $0)\n")
    (place / "beside" / "prog").chmod(0o755)
    (place / "beside" / "other").write_text("x")
    got = run(place, place / "beside" / "prog", cwd=place / "work", log=place / "log", env=clean_env(HOME=str(place)))
    assert got.stdout.split() == ["prog"], got.stderr


def test_show(place):
    (place / "data").mkdir()
    (place / "data" / "f").write_text("shown")
    got = sh(place, f"cat {place}/data/f; echo x > {place}/data/f", "--show", place / "data")
    assert got.stdout == "shown" and "Read-only" in got.stderr


def test_hide(place):
    (place / "work" / "keys").mkdir()
    (place / "work" / "keys" / "k").write_text("x")
    (place / "work" / "one").write_text("x")
    got = sh(place, "ls keys; cat one; rm -rf keys one; true", "--hide", place / "work" / "keys", "--hide", place / "work" / "one")
    assert got.stdout == "" and (place / "work" / "keys" / "k").read_text() == (place / "work" / "one").read_text() == "x"


@pytest.mark.parametrize("flag", ["--hide", "--show"])
def test_a_path_that_is_not_there_is_told(place, flag):
    got = sh(place, "true", flag, place / "nothing")
    assert got.returncode == 2 and f"{flag} {place}/nothing: No such file" in got.stderr


@pytest.mark.parametrize("flag", ["--hide", "--show"])
@pytest.mark.parametrize("path", ["/", "//", "/usr/..", "../../../../../../../../.."])
def test_a_path_that_is_everything(place, flag, path):
    """It would have no effect."""
    got = sh(place, "echo ran", flag, path)
    assert got.returncode == 2 and got.stdout == "" and f"{flag} {path}: that is everything" in got.stderr


def test_no_workspace(place):
    got = sh(place, "pwd; touch x && ls; ls /", "--workspace", "none")
    assert got.stdout.split()[:2] == ["/tmp", "x"] and not list((place / "work").iterdir())


@pytest.mark.parametrize("workspace", ["/", "/usr"])
def test_a_workspace_that_is_everything(place, workspace):
    got = sh(place, "true", "--workspace", workspace)
    assert got.returncode == 125 and "cannot be the workspace" in got.stderr


def test_the_home_as_the_workspace(place):
    for name in (".ssh/id", ".aws/credentials", ".config/gh/hosts.yml", ".env", ".npmrc", ".netrc", ".bash_history", "code.c"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("content")
    script = "cat .ssh/id .aws/credentials .config/gh/hosts.yml .env .npmrc .netrc .bash_history code.c; touch new"
    got = sh(place, script, work=place)
    assert got.stdout == "content" and (place / "new").exists()
    got = sh(place, script, "--show", place / ".npmrc", work=place)
    assert got.stdout == "content" * 2


def test_env_files_above_the_workspace(place):
    (place / "work" / "a" / "b").mkdir(parents=True)
    for folder in (place / "work" / "a" / "b", place / "work" / "a", place / "work"):
        (folder / ".env").write_text(folder.name)
    got = run(place, "sh", "-c", "cat .env ../.env ../../.env", cwd=place / "work" / "a" / "b", log=place / "log",
              env=clean_env(HOME="/nonexistent"))
    assert got.stdout == "b"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root: what is root's alone others do not see anyway")
def test_what_is_roots(place):
    got = sh(place, "id -u; cat /etc/shadow /etc/gshadow; ls /etc/ssl/private /var/log; cat /proc/sys/kernel/core_pattern > x; "
                    "cat x > /proc/sys/kernel/core_pattern; echo b > /proc/sysrq-trigger")
    assert got.stdout.split() == ["1000"]
    assert (place / "work" / "x").stat().st_uid == 0 and "Read-only" in got.stderr


def test_devices(place):
    got = sh(place, "ls /dev | sort | xargs; echo x > /dev/null; head -c 4 /dev/urandom | wc -c; head -c 1 /dev/zero | wc -c; "
                    "ls /dev/fd/ >/dev/null && echo fd; exec 9<>/dev/ptmx && echo ptmx; : > /dev/new")
    names, *rest = got.stdout.split("\n")
    assert set(names.split()) <= {"console", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout",
                                  "tty", "urandom", "zero"}
    assert rest[:4] == ["4", "1", "fd", "ptmx"] and "/dev/new" in got.stderr


def test_other_terminals_are_not_there(place):
    outer, inner = pty.openpty()
    try:
        name = os.ttyname(inner)
        got = sh(place, f"echo typed > {name}; ls /dev/pts")
        assert got.stdout.split() == ["ptmx"] and name in got.stderr
    finally:
        os.close(outer)
        os.close(inner)


def test_the_kernels_own(place):
    got = sh(place, "ls /sys/class/net 2>/dev/null | xargs; ls /sys/fs/cgroup | wc -l; cat /proc/kcore /proc/keys 2>/dev/null | wc -c; "
                    "echo 500 > /proc/self/oom_score_adj && echo own")
    assert got.stdout.split("\n")[:4] == ["lo", "0", "0", "own"]


def test_set_uid_programs_are_not(place):
    got = sh(place, "grep -c nosuid /proc/self/mountinfo; grep -vc nosuid /proc/self/mountinfo")
    assert got.stdout.split()[1] == "0"
