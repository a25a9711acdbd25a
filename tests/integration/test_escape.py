"""`stile doctor --escape`: that it finds each way that is open, and finds none in `stile run`. What is open here
was opened by the test itself: a listener, a socket, a variable, in a namespace without a route."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import textwrap

import pytest

import runlib
from runlib import run

BIN = str(runlib.BIN)


def lines(text):
    return {r["way"]: r for r in map(json.loads, text.splitlines())}


def escape(*args, ways=(), prefix=(), check=None, **popen):
    got = subprocess.run([*prefix, BIN, "doctor", "--escape", "--json", *(a for w in ways for a in ("--way", w)),
                          *map(str, args)], capture_output=True, text=True, timeout=120, **popen)
    assert got.returncode in (0, 1), got.stderr
    found = lines(got.stdout)
    assert got.returncode == any(r["state"] in ("open", "unsure") and not r["excepted"] for r in found.values())
    return found


def alone(code):
    """Runs Python in a network namespace of its own; BIN and ask() are there."""
    start = f"""
        import json, os, socket, subprocess, sys, threading
        def ask(*args):
            got = subprocess.run([{BIN!r}, "doctor", "--escape", "--json", *args], capture_output=True, text=True)
            return {{r["way"]: r for r in map(json.loads, got.stdout.splitlines())}}
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        """
    got = subprocess.run(["unshare", "-rn", sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(code)],
                         capture_output=True, text=True, timeout=120)
    if "unshare" in got.stderr and "ermitted" in got.stderr:
        pytest.skip("needs user namespaces, which this kernel or container does not give")
    assert got.returncode == 0, got.stderr
    return lines(got.stdout)


def test_run_is_shut(tmp_path):
    got = run(tmp_path, BIN, "doctor", "--escape", "--json")
    found = lines(got.stdout)
    assert {w: r for w, r in found.items() if r["state"] not in ("shut", "none")} == {}
    assert len(found) >= 33 and got.returncode == 0


def test_made_up_addresses_are_no_way_out(tmp_path):
    """With a rule for every host each name has an address, of both families, and something listens there."""
    got = run(tmp_path, BIN, "doctor", "--escape", "--json", "--way", "alias", "--way", "dns-udp", "--way", "dns-tcp", "--way",
              "dns-hidden", "--way", "host", args=["--allow", "*"])
    assert {w: r["state"] for w, r in lines(got.stdout).items()} == {
        "alias": "shut", "dns-udp": "shut", "dns-tcp": "shut", "dns-hidden": "shut", "host": "none"}
    assert got.returncode == 0


def test_run_is_shut_for_an_unprivileged_user():
    if not runlib.can_become_nobody():
        pytest.skip("needs root to become nobody")
    work = pathlib.Path("/var/tmp") / f"stile-escape-{os.getpid()}"
    work.mkdir(mode=0o777)
    work.chmod(0o777)
    try:
        shutil.copy(BIN, work / "stile")
        got = subprocess.run([*runlib.NOBODY, work / "stile", "run", "--log", work / "log", "--", work / "stile",
                              "doctor", "--escape", "--json"], cwd=work, capture_output=True, text=True, timeout=120,
                             env=runlib.clean_env(HOME="/nonexistent"))
        assert {w: r for w, r in lines(got.stdout).items() if r["state"] not in ("shut", "none")} == {}
        assert got.returncode == 0, got.stderr
    finally:
        shutil.rmtree(work)


def test_somebody_listens_outside():
    found = alone("""
        s = socket.create_server(("127.0.0.1", 0))
        print(json.dumps(ask("--way", "ipv4", "--reach", "127.0.0.1:%d" % s.getsockname()[1])["ipv4"]))
        s = socket.create_server(("::1", 0), family=socket.AF_INET6)
        print(json.dumps(ask("--way", "ipv6", "--reach", "[::1]:%d" % s.getsockname()[1])["ipv6"]))
        """)
    assert found["ipv4"]["state"] == found["ipv6"]["state"] == "open"
    assert "connected to [::1]:" in found["ipv6"]["detail"]


def test_a_route_alone_is_no_proof():
    found = alone("""
        subprocess.run(["ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo"], check=True)
        print(json.dumps(ask("--way", "ipv4")["ipv4"]))
        """)
    assert found["ipv4"]["state"] == "unsure" and "--reach" in found["ipv4"]["detail"]
    found = alone("""
        subprocess.run(["ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo"], check=True)
        print(json.dumps(ask("--way", "ipv4", "--reach", "192.0.2.7:9")["ipv4"]))
        """)
    assert found["ipv4"]["state"] == "shut"  # nobody listens there


def test_metadata_and_host():
    found = alone("""
        for a in ("169.254.169.254/32", "198.51.100.77/24"):
            subprocess.run(["ip", "addr", "add", a, "dev", "lo"], check=True)
        s = socket.create_server(("169.254.169.254", 80))
        for one in ask("--way", "metadata", "--way", "host").values():
            print(json.dumps(one))
        """)
    assert found["metadata"]["state"] == "open" and "169.254.169.254 answers" in found["metadata"]["detail"]
    assert "198.51.100.1" in found["host"]["detail"] or found["host"]["state"] == "open"


@pytest.mark.parametrize("address, state", [("203.0.113.9", "open"), ("198.18.0.9", "shut"), ("198.19.255.254", "shut"),
                                            ("198.20.0.1", "open"), (None, "shut")])
def test_names(address, state):
    rdata = repr(socket.inet_aton(address)) if address else "None"
    found = alone(f"""
        rdata = {rdata}
        def answer(q):
            name = q[12:q.index(b"\\0", 12) + 5]
            if rdata is None:
                return q[:2] + b"\\x81\\x83\\0\\1\\0\\0\\0\\0\\0\\0" + name
            return q[:2] + b"\\x81\\x80\\0\\1\\0\\1\\0\\0\\0\\0" + name + b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + rdata
        def udp(s):
            while True:
                q, a = s.recvfrom(512)
                s.sendto(answer(q), a)
        def tcp(s):
            while True:
                c, _ = s.accept()
                q = c.recv(512)
                a = answer(q[2:])
                c.sendall(len(a).to_bytes(2, "big") + a)
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        u.bind(("127.0.0.53", 53))
        threading.Thread(target=udp, args=(u,), daemon=True).start()
        threading.Thread(target=tcp, args=(socket.create_server(("127.0.0.53", 53)),), daemon=True).start()
        for one in ask("--way", "dns-udp", "--way", "dns-tcp", "--resolve", "name.example.com").values():
            print(json.dumps(one))
        """)
    assert {w: r["state"] for w, r in found.items()} == {"dns-udp": state, "dns-tcp": state}
    if state == "open":
        assert f"says that name.example.com is {address}" in found["dns-udp"]["detail"]


def test_abstract_socket():
    found = alone("""
        s = socket.socket(socket.AF_UNIX); s.bind("\\0way-out"); s.listen()
        print(json.dumps(ask("--way", "abstract")["abstract"]))
        """)
    assert found["abstract"]["state"] == "open" and "@way-out" in found["abstract"]["detail"]


@pytest.mark.parametrize("name, form", [("SSH_AUTH_SOCK", "{}"), ("DOCKER_HOST", "unix://{}"),
                                        ("DBUS_SESSION_BUS_ADDRESS", "unix:path={},guid=1")])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
def test_socket_of_a_daemon(tmp_path, monkeypatch, name, form, kind):
    monkeypatch.chdir(tmp_path)
    path = pathlib.Path("/tmp") / f"way-{os.getpid()}-{os.urandom(4).hex()}"
    s = socket.socket(socket.AF_UNIX, kind)
    try:
        s.bind(str(path))
        if kind != socket.SOCK_DGRAM:
            s.listen()
        found = escape(ways=["unix"], env={"PATH": os.environ["PATH"], name: form.format(path)})
    finally:
        s.close()
        path.unlink()
    assert found["unix"]["state"] == "open" and str(path) in found["unix"]["detail"]


def test_descriptor(tmp_path):
    (tmp_path / "f").write_text("x")
    with open(tmp_path / "f") as f:
        found = escape(ways=["descriptor"], pass_fds=[f.fileno()])
    assert found["descriptor"]["state"] == "open" and str(tmp_path / "f") in found["descriptor"]["detail"]
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        found = escape(ways=["descriptor"], stdin=fd)
    finally:
        os.close(fd)
    assert found["descriptor"]["state"] == "open" and "the folder" in found["descriptor"]["detail"]
    assert escape(ways=["descriptor"], stdin=subprocess.DEVNULL)["descriptor"]["state"] == "shut"


def test_environment():
    name = "WAY_OUT_API_KEY"
    found = escape(ways=["environ"], env={"PATH": os.environ["PATH"], name: os.urandom(8).hex()})
    assert found["environ"]["state"] == "open" and os.environ.get(name) is None
    assert " has " in found["environ"]["detail"]


def test_a_process_of_another_namespace():
    with subprocess.Popen(["unshare", "-rn", "sleep", "60"]) as p:
        try:
            found = escape(ways=["memory", "ptrace"])
            assert found["memory"]["state"] == "open" or os.getuid() != 0
            assert found["ptrace"]["state"] != "none"
        finally:
            p.terminate()


def test_without_a_sandbox():
    """Here, as this test runs, nothing is shut that a sandbox would shut."""
    found = escape(ways=["setuid", "filter", "userns", "io_uring", "keyring", "calls", "write"])
    status = pathlib.Path("/proc/self/status").read_text()
    for way, line in (("setuid", "NoNewPrivs:\t0"), ("filter", "Seccomp:\t0")):
        assert (found[way]["state"] == "open") == (line in status)
    if "Seccomp:\t0" in status:
        assert found["calls"]["state"] == found["io_uring"]["state"] == "open"


def test_mounts_are_not_left(tmp_path):
    before = pathlib.Path("/proc/self/mountinfo").read_text()
    found = alone("""
        before = open("/proc/self/mountinfo").read()
        for one in ask("--way", "mount", "--way", "namespace", "--way", "raw").values():
            print(json.dumps(one))
        assert open("/proc/self/mountinfo").read() == before
        """)
    assert found["mount"]["state"] == found["namespace"]["state"] == found["raw"]["state"] == "open"
    assert pathlib.Path("/proc/self/mountinfo").read_text() == before


def test_exceptions_are_named():
    with_it = dict(ways=["environ"], env={"PATH": "/usr/bin:/bin", "A_TOKEN": "x"})
    assert escape(**with_it)["environ"]["excepted"] is False
    assert escape("--but", "environ", **with_it)["environ"]["excepted"] is True


@pytest.mark.parametrize("args", [["--but", "nowhere"], ["--way", "nowhere"], ["--reach", "somewhere"], ["--reach", "192.0.2.1"],
                                  ["--reach", "192.0.2.1:0"], ["--reach", "192.0.2.300:1"]])
def test_usage(args):
    got = subprocess.run([BIN, "doctor", "--escape", *args], capture_output=True, text=True, timeout=20)
    assert got.returncode == 2 and args[0] in got.stderr


def test_the_table_is_for_people(tmp_path):
    got = run(tmp_path, BIN, "doctor", "--escape", "--way", "ipv4", "--way", "icmp")
    assert got.returncode == 0 and got.stdout.endswith("2 ways tried: 0 open, 0 unsure\n")
    assert got.stdout.startswith("ipv4        an IPv4 address, not by the proxy                shut ")
