"""`stile serve` as a daemon: its listeners, its bounds, its end, and what it may still do as a process."""

import contextlib
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

import pytest

from loadlib import Load
from stilelib import (BIN, LOOPBACK, SANITIZED, Peer, Raw, Stile, allow, check_refusal, clean_env, default_rules, get,
                      wait_for)

ROOT = os.geteuid() == 0
MANY = 300 if SANITIZED else 2000


def plain(s, path="/ok/a"):
    return get(f"http://origin.test:{s.origin.plain}{path}")


def connect_unix(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(path))
    return Raw(sock)


def refuses(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


def serve(config, **more):
    """Runs it to its end."""
    return subprocess.run([str(BIN), "serve", "-c", str(config)], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, env=clean_env(), **more)


# ---- listeners ----


@pytest.fixture
def short():
    """A folder with a short path, for sockets; anybody may enter it."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="stile-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("given, mode", [(None, 0o660), ("0600", 0o600), ("666", 0o666)])
def test_unix_listener(stile, short, given, mode):
    path = short / "s"
    s = stile(listen=[{"proxy": f"unix:{path}", **({"mode": given} if given else {})}])
    st = path.lstat()
    assert stat.S_ISSOCK(st.st_mode) and stat.S_IMODE(st.st_mode) == mode
    with connect_unix(path) as c:
        assert c.ask(plain(s)).status == 200
        check_refusal(c.ask(plain(s, "/no/a")), 403)
    record = s.wait_record(event="request.end")
    assert record["client"] == f"unix:uid={os.getuid()},pid={os.getpid()}" and record["listener"] == "proxy-0"


@pytest.mark.skipif(not ROOT, reason="needs root, to become somebody else")
def test_the_peer_s_uid_is_the_kernel_s_word(stile, short):
    path = short / "s"
    s = stile(listen=[{"proxy": f"unix:{path}", "mode": "0666"}])
    nobody = pwd.getpwnam("nobody").pw_uid
    child = subprocess.run(["setpriv", f"--reuid={nobody}", "--clear-groups", "/usr/bin/curl", "-s", "-o", "/dev/null",
                            "-w", "%{http_code}", "--unix-socket", str(path), f"http://origin.test:{s.origin.plain}/ok/a",
                            "--request-target", f"http://origin.test:{s.origin.plain}/ok/a"],
                           capture_output=True, text=True, timeout=30)
    assert child.stdout == "200", child
    assert s.wait_record(event="request.end")["client"].startswith(f"unix:uid={nobody},pid=")


def test_a_stale_socket_is_replaced(stile, short):
    path = short / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.exists()
    s = stile(listen=[{"proxy": f"unix:{path}"}])
    with connect_unix(path) as c:
        assert c.ask(plain(s)).status == 200


def test_a_living_socket_is_left_alone(stile, short):
    path = short / "s"
    s = stile(listen=[{"proxy": f"unix:{path}"}])
    done = serve(s.config)
    assert done.returncode == 1 and f"{path}: another process listens there" in done.stderr, done
    with connect_unix(path) as c:
        assert c.ask(plain(s)).status == 200


def test_a_file_at_the_socket_s_place_is_left_alone(stile, short):
    path = short / "s"
    path.write_text("mine")
    s = stile(listen=[{"proxy": f"unix:{path}"}], wait=False, exit_code=1, pairs=False)
    s.wait_stderr("there is a file that is no socket")
    assert s.proc.wait(30) == 1 and path.read_text() == "mine"


def test_the_socket_goes_with_a_clean_end(stile, short):
    path = short / "s"
    s = stile(listen=[{"proxy": f"unix:{path}"}], limits={"workers": 2})
    with connect_unix(path) as c:
        assert c.ask(plain(s)).status == 200
    s.reload()
    assert path.exists()
    s.stop()
    assert not path.exists()


def test_a_socket_that_is_another_s_by_now_stays(stile, short):
    path = short / "s"
    s = stile(listen=[{"proxy": f"unix:{path}"}])
    path.unlink()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        s.stop()
        with connect_unix(path):
            pass


def test_each_listener_has_its_policy(stile, short):
    path = short / "s"
    s = stile(policies={"a": [allow("http://origin.test:*/ok/**")], "b": [allow("http://origin.test:*/echo")],
                        "c": [{"deny": "*"}]},
              listen=[{"proxy": "127.0.0.1:0", "policy": "a", "name": "one"},
                      {"proxy": "127.0.0.1:0", "policy": "b", "name": "two"},
                      {"proxy": f"unix:{path}", "policy": "c", "name": "three"}])
    s.wait_stderr(r"listening on unix:.*\(policy c, 1 rule\)")
    ports = [int(p) for p in re.findall(r"listening on 127\.0\.0\.1:(\d+) \(policy [ab], 1 rule\)", s.stderr)]
    assert len(set(ports)) == 2

    def ask(number, path_asked):
        c = connect_unix(path) if number == 2 else Raw(socket.create_connection(("127.0.0.1", ports[number])))
        with c:
            return c.ask(plain(s, path_asked)).status
    assert [[ask(n, p) for p in ("/ok/a", "/echo")] for n in range(3)] == [[200, 403], [403, 200], [403, 403]]
    s.wait_records(4, event="request.deny")
    seen = {(r["listener"], r["policy"]) for r in s.records() if "listener" in r}
    assert seen == {("one", "a"), ("two", "b"), ("three", "c")}


def test_ipv6_listener(stile):
    for _ in range(3):  # another test's server may have that port of IPv4
        s = stile(listen=[{"proxy": "[::1]:0"}])
        port = int(s.wait_stderr(r"listening on \[::1\]:(\d+) ").group(1))
        if refuses(port):
            break
    with Raw(socket.create_connection(("::1", port))) as c:
        me = c.sock.getsockname()[1]
        assert c.ask(plain(s)).status == 200
    assert s.wait_record(event="request.end")["client"] == f"[::1]:{me}"
    assert refuses(port), "IPv4 is not what was asked for"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_port_in_use(stile, workers):
    """Another program's, and a second stile's: SO_REUSEPORT must not let it in."""
    s = stile(limits={"workers": workers})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for port in (taken.getsockname()[1], s.port):
            config = s.folder / "second.yaml"
            config.write_text(s.config.read_text().replace("127.0.0.1:0", f"127.0.0.1:{port}", 1))
            done = serve(config)
            assert done.returncode == 1, done
            assert re.search(rf"^stile: \S*second\.yaml:\d+:\d+: listen on 127\.0\.0\.1 port {port}: "
                             rf"Address already in use \(another program has that port", done.stderr, re.M)
    assert [s.get("/ok/a").status for _ in range(8)] == [200] * 8


def test_both_workers_get_connections(stile):
    s = stile(limits={"workers": 2})

    def work():
        out = {}
        for task in pathlib.Path(f"/proc/{s.pid}/task").iterdir():
            if (task / "comm").read_text() == "stile-worker\n":
                out[task.name] = int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(),
                                               re.M).group(1))
        return out
    before = wait_for(lambda: len(work()) == 2 and work())  # a thread names itself
    for _ in range(60):
        assert s.get("/ok/a").status == 200
    assert all(n - before[t] >= 10 for t, n in work().items()), (before, work())


# ---- bounds ----


@pytest.mark.parametrize("key, status, reason", [("connections", 503, "overloaded"),
                                                ("connections_per_address", 429, "rate_limited")])
def test_a_limit_of_connections(stile, key, status, reason):
    s = stile(limits={key: 3, "workers": 2})
    held = [s.client() for _ in range(3)]
    for c in held:
        assert c.ask(plain(s)).status == 200
    since = s.mark()
    for n in range(1, 4):
        with s.client() as c:  # told before it asks
            check_refusal(c.response("GET"), status, reason)
            assert c.at_end()
        deny = s.wait_records(n, since, event="request.deny")[-1]
        assert (deny["reason"], deny["status"]) == (reason, status) and deny["client"].startswith("127.0.0.1:")
    assert len([r for r in s.records(since) if r["event"] == "request.deny"]) == 3
    # Those within the bound go on, and a place that is given back is taken.
    assert held[0].ask(plain(s)).status == 200
    held.pop().close()
    wait_for(lambda: s.get("/ok/a").status == 200)
    for c in held:
        c.close()


def test_the_limit_is_each_address_s_own(stile):
    s = stile(limits={"connections_per_address": 2})
    held = [s.client() for _ in range(2)]
    for c in held:
        assert c.ask(plain(s)).status == 200
    check_refusal(s.client().response("GET"), 429)
    with Raw(socket.create_connection(("127.0.0.1", s.port), source_address=("127.0.0.5", 0))) as c:
        assert c.ask(plain(s)).status == 200
    for c in held:
        c.close()


def test_idle_connections_cost_little(stile, capsys):
    """Measured and printed; an idle connection holds no buffer."""
    s = stile()
    with contextlib.ExitStack() as stack:
        for c in [s.client() for _ in range(20)]:  # what the first ones cost is not theirs
            c.ask(plain(s, "/bytes/100000"))
            c.close()
        before = s.rss_kib()
        new = [stack.enter_context(s.client()) for _ in range(MANY)]
        wait_for(lambda: descriptors(s) > MANY)
        idle = s.rss_kib()
        for c in new:
            assert c.ask(plain(s, "/bytes/20000")).status == 200
        used = s.rss_kib()
        per_new, per_used = ((x - before) * 1024 / MANY for x in (idle, used))
        with capsys.disabled():
            print(f"\n  {MANY} idle connections: {per_new:.0f} bytes each, {per_used:.0f} after a request")
        if not SANITIZED:
            assert per_new < 4096 and per_used < 8192, (per_new, per_used)
        # All of them are alive.
        assert new[0].ask(plain(s)).status == 200 and new[-1].ask(plain(s)).status == 200


def descriptors(s):
    return len(os.listdir(f"/proc/{s.pid}/fd"))


def test_many_active_connections(stile):
    """So many requests in flight at the same moment, each with its own connection to the origin."""
    s = stile(limits={"workers": 2})
    with contextlib.ExitStack() as stack, Peer(backlog=4096) as peer:
        clients, origins = [], []
        for i in range(MANY):
            c = stack.enter_context(s.client())
            c.send(get(f"http://origin.test:{peer.port}/{i}"))
            clients.append(c)
            if i % 100 == 99:  # no backlog is asked for more than it has
                origins += [stack.enter_context(peer.accept()) for _ in range(100)]
        assert len(origins) == MANY
        for o in origins:
            path = o.read_head().split(b" ")[1]
            o.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(path), path))
        for i, c in enumerate(clients):
            assert c.response("GET").body == b"/%d" % i
    s.wait_records(MANY, event="request.end", status=200)


def test_descriptors_run_out_and_come_back(stile):
    soft = 120
    s = stile(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, soft)), limits={"workers": 1})
    with s.client() as first:
        assert first.ask(plain(s)).status == 200
        crowd = [s.client() for _ in range(2 * soft)]
        s.wait_stderr(r"accepting pauses: Too many open files")
        assert s.wait_record(event="request.deny")["reason"] == "overloaded"
        # Those that are in go on, and the process does not spin.
        assert first.ask(plain(s)).status == 200
        assert descriptors(s) <= soft
        before = cpu(s)
        crowd[0].still_open(0.5)
        assert cpu(s) - before < 0.25, "it spins"
        for c in crowd:
            c.close()
        wait_for(lambda: answered(s), why="recovery")
        assert [s.get("/ok/a").status for _ in range(20)] == [200] * 20
        assert first.ask(plain(s)).status == 200


def answered(s):
    try:
        return s.get("/ok/a").status == 200
    except (AssertionError, OSError):
        return False


def cpu(s):
    """Seconds of processor time."""
    fields = pathlib.Path(f"/proc/{s.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- the end ----


def in_flight(s, c, gate):
    c.send(plain(s, f"/slow?gate={gate}"))
    s.wait_record(event="request.start", query=f"gate={gate}")


def test_a_clean_end_lets_requests_end(stile):
    s = stile(limits={"drain": "60s", "workers": 2})
    gate = f"drain-{s.pid}"
    with s.client() as c, s.client() as idle, s.tunnel() as inside:
        assert idle.ask(plain(s)).status == 200
        inside.send(get(f"/slow?gate={gate}", host=f"origin.test:{s.origin.tls}"))
        in_flight(s, c, gate)
        s.wait_records(2, event="request.start", query=f"gate={gate}")
        s.signal(signal.SIGTERM)
        assert idle.at_end(), "an idle connection has nothing to wait for"
        wait_for(lambda: refuses(s.port), why="no new connections")
        assert s.proc.poll() is None
        s.origin.open_gate(gate)
        for x in (c, inside):
            r = x.response("GET")
            assert (r.status, r.body, r.get("connection")) == (200, b"slow\n", "close")
            assert x.at_end()
    assert s.proc.wait(30) == 0
    assert s.records()[-1]["event"] == "proxy.stop"
    assert not [r for r in s.records() if "error" in r]


def test_the_drain_has_an_end(stile):
    s = stile(limits={"drain": "300ms"}, rules=[*default_rules(), {"allow": "tcp://other.test:*", "addresses": LOOPBACK}])
    with s.client() as c, s.client() as t, Peer() as peer:
        assert t.connect(f"other.test:{peer.port}").status == 200
        with peer.accept() as end:
            in_flight(s, c, f"never-{s.pid}")
            s.signal(signal.SIGTERM)
            assert c.at_end() and t.at_end() and end.at_end()
            assert s.proc.wait(10) == 0
    for event in ("request.end", "tunnel.end"):
        assert s.wait_record(event=event)["error"] == "shutting_down"
    assert s.records()[-1]["event"] == "proxy.stop"


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_at_once(stile, second):
    s = stile(limits={"drain": "1h"})
    with s.client() as c:
        in_flight(s, c, f"never-{s.pid}")
        s.signal(signal.SIGTERM)
        s.wait_stderr("stopping: requests in flight have 3600000 ms")
        assert c.still_open()
        s.signal(second)
        assert s.proc.wait(10) == 0
        assert c.at_end()
    assert s.wait_record(event="request.end")["error"] == "shutting_down"
    assert s.records()[-1]["event"] == "proxy.stop"


def test_silence_after_connect_holds_no_end(stile):
    s = stile(limits={"drain": "1m", "peek": "1m", "workers": 2})
    quiet, begun = s.client(), s.client()
    assert [c.connect(f"origin.test:{s.origin.tls}").status for c in (quiet, begun)] == [200, 200]
    begun.send(b"\x16\x03\x01")
    mark = s.mark()
    s.signal(signal.SIGTERM)
    assert quiet.at_end()
    assert s.proc.poll() is None, "what has begun may end"
    begun.close()
    assert s.proc.wait(30) == 0
    # Of two workers, who have each their own way to the log.
    assert sorted(r["reason"] for r in s.records(mark) if r["event"] == "tunnel.deny") == ["client_closed", "shutting_down"]


def test_an_end_under_load_cuts_nothing(stile):
    s = stile(limits={"workers": 2})
    with Load(s, clients=4, tls=2) as load:
        wait_for(lambda: s.mark() > 200)
        load.stopping.set()
        s.signal(signal.SIGTERM)
    assert s.proc.wait(30) == 0
    assert not [f for f in load.failures if "whole=False" in f]
    assert not [r for r in s.records() if r.get("error") not in (None, "client_closed")]


def test_kill_and_start_again(stile, short):
    path = short / "s"
    listen = [{"proxy": "127.0.0.1:0"}, {"proxy": f"unix:{path}"}]
    s = stile(listen=listen, exit_code=-signal.SIGKILL, pairs=False)
    with s.client() as c, connect_unix(path) as u:
        assert c.ask(plain(s)).status == 200 and u.ask(plain(s)).status == 200
        in_flight(s, c, f"never-{s.pid}")
        os.kill(s.pid, signal.SIGKILL)
        assert s.proc.wait(10) == -signal.SIGKILL
    # The same port with connections in TIME_WAIT, the same path, the same log, the same CA.
    listen[0] = {"proxy": f"127.0.0.1:{s.port}"}
    ca = (s.folder / "ca" / "ca.pem").read_bytes()
    again = stile(listen=listen, log={"to": str(s.log_path)}, pairs=False)
    shutil.copytree(s.folder / "ca", again.folder / "ca-of-before")
    assert ca == (again.folder / "ca-of-before" / "ca.pem").read_bytes()
    assert again.port == s.port and again.get("/ok/again").status == 200
    with connect_unix(path) as u:
        assert u.ask(plain(again)).status == 200
    again.log_path = s.log_path
    again.wait_record(event="request.end", path="/ok/again")


# ---- readiness ----


@pytest.mark.parametrize("abstract", [False, True])
def test_readiness(stile, short, abstract):
    name = f"@stile-test-{os.getpid()}-{secrets_hex()}" if abstract else str(short / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n:
        n.bind("\0" + name[1:] if abstract else name)
        n.settimeout(30)

        def said():
            state, usec = n.recv(4096).decode().split("\n")[:2]
            assert re.fullmatch(r"MONOTONIC_USEC=\d+", usec)
            return state
        s = stile(env={"NOTIFY_SOCKET": name})
        assert said() == "READY=1"
        s.reload()
        assert [said(), said()] == ["RELOADING=1", "READY=1"]
        s.config.write_text("broken: [")
        s.signal(signal.SIGHUP)
        assert [said(), said()] == ["RELOADING=1", "READY=1"], "a broken file is no reason to hang systemd"
        s.signal(signal.SIGTERM)
        assert said() == "STOPPING=1"


def secrets_hex():
    return os.urandom(6).hex()


def test_ready_means_listening(stile, short):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as n:
        n.bind(str(short / "n"))
        n.settimeout(30)
        path = short / "s"
        s = stile(listen=[{"proxy": f"unix:{path}"}], env={"NOTIFY_SOCKET": str(short / "n")}, wait=False)
        assert n.recv(100).startswith(b"READY=1")
        with connect_unix(path) as c:
            assert c.ask(plain(s)).status == 200


# ---- privileges ----


def tasks(s):
    out = []
    for task in pathlib.Path(f"/proc/{s.pid}/task").iterdir():
        out.append(dict(x.split(":\t", 1) for x in (task / "status").read_text().splitlines() if ":\t" in x))
    return out


def check_bare(s):
    all_of_them = tasks(s)
    assert len(all_of_them) >= 4
    for t in all_of_them:
        for key in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
            assert int(t[key], 16) == 0, (t["Name"], key, t[key])
        assert t["NoNewPrivs"] == "1", t["Name"]
        if ROOT:  # others may not drop what they do not have
            assert int(t["CapBnd"], 16) == 0, (t["Name"], t["CapBnd"])


def test_no_privileges_are_kept(stile):
    s = stile(limits={"workers": 2})
    check_bare(s)
    assert s.get("/ok/a").status == 200
    check_bare(s)  # nor with what came up since (threads of the resolver, of TLS)


@pytest.fixture
def nobody(origin, short):
    """What a stile that becomes nobody needs: a folder of its own, and what it reads again at a reload."""
    if not ROOT:
        pytest.skip("needs root, to become nobody")
    pw = pwd.getpwnam("nobody")
    logs = short / "logs"
    logs.mkdir()
    os.chown(logs, pw.pw_uid, pw.pw_gid)
    (short / "trust.pem").write_bytes((origin.pki / "ca.pem").read_bytes())
    return pw, logs


def make_nobody_s(nobody, origin, short, **more):
    _, logs = nobody
    return Stile(short / "stile", origin, log={"to": str(logs / "log.jsonl")},
                 upstream={"trust": [str(short / "trust.pem")]}, **more)


def test_becomes_nobody(nobody, origin, short):
    pw, logs = nobody
    s = make_nobody_s(nobody, origin, short, extra="user: nobody", limits={"workers": 2})
    s.log_path = logs / "log.jsonl"
    s.folder.chmod(0o755)
    for t in tasks(s):
        assert t["Uid"].split() == [str(pw.pw_uid)] * 4, t["Name"]
        assert t["Gid"].split() == [str(pw.pw_gid)] * 4, t["Name"]
        assert str(0) not in t["Groups"].split(), t["Name"]
    check_bare(s)
    assert s.log_path.stat().st_uid == pw.pw_uid
    assert s.get("/ok/a").status == 200 and s.tls_get("/ok/a").status == 200
    s.wait_records(2, event="request.end")
    # The log is opened anew by who it is now.
    old = logs / "log.1"
    s.log_path.rename(old)
    s.signal(signal.SIGHUP)
    s.wait_record(event="policy.load")
    s.wait_stderr("reloaded")
    assert s.log_path.stat().st_uid == pw.pw_uid
    assert s.get("/ok/b").status == 200 and s.tls_get("/ok/b").status == 200
    s.wait_records(2, event="request.end", path="/ok/b")
    s.finish()


def test_nobody_cannot_write_the_folder(nobody, origin, short):
    """Made by root in root's folder: the file can be written and not made anew, and that is said."""
    pw, logs = nobody
    os.chown(logs, 0, 0)
    s = make_nobody_s(nobody, origin, short, extra="user: nobody")
    s.log_path = logs / "log.jsonl"
    s.folder.chmod(0o755)
    assert s.get("/ok/a").status == 200
    s.log_path.rename(logs / "log.1")
    s.log_path = logs / "log.1"
    s.signal(signal.SIGUSR1)
    s.wait_stderr("the old file stays in use")
    assert s.get("/ok/b").status == 200
    s.wait_record(event="request.end", path="/ok/b")
    s.finish()


def test_an_unknown_user(stile):
    s = stile(extra="user: no-such-user-here", wait=False, exit_code=1, pairs=False)
    s.wait_stderr("user: no-such-user-here: no such user")
    assert s.proc.wait(30) == 1


@pytest.mark.skipif(not ROOT, reason="needs root, to become somebody else")
def test_not_dumpable(nobody, origin, short):
    """The files of a process that may be dumped belong to its user; those of another belong to root."""
    pw, logs = nobody

    def become():
        os.setgroups([])
        os.setresgid(pw.pw_gid, pw.pw_gid, pw.pw_gid)
        os.setresuid(pw.pw_uid, pw.pw_uid, pw.pw_uid)
    folder = short / "stile"
    folder.mkdir()
    os.chown(folder, pw.pw_uid, pw.pw_gid)
    if SANITIZED:
        pytest.skip("needs a build without a sanitizer, which reads its own /proc")
    if not os.access(BIN, os.X_OK) or any(not p.stat().st_mode & 1 for p in BIN.parents):
        pytest.skip(f"needs folders that nobody may pass above {BIN}")
    s = make_nobody_s(nobody, origin, short, preexec_fn=become)
    s.log_path = logs / "log.jsonl"
    assert s.status()["Uid"].split()[0] == str(pw.pw_uid)
    for name in ("environ", "mem", "maps"):
        assert os.stat(f"/proc/{s.pid}/{name}").st_uid == 0, name
    read = subprocess.run(["setpriv", f"--reuid={pw.pw_uid}", "--clear-groups", "cat", f"/proc/{s.pid}/environ"],
                          capture_output=True)
    assert read.returncode != 0 and read.stdout == b""
    limits = pathlib.Path(f"/proc/{s.pid}/limits").read_text()
    assert re.search(r"^Max core file size\s+0\s+0\s", limits, re.M)
    check_bare_of_nobody(s)
    assert s.get("/ok/a").status == 200
    s.finish()


def check_bare_of_nobody(s):
    for t in tasks(s):
        assert int(t["CapPrm"], 16) == int(t["CapEff"], 16) == 0 and t["NoNewPrivs"] == "1"


# ---- wrong starts ----


@pytest.mark.parametrize("text, code, said", [
    ("version: 1\npolicies: {default: {rules: [{allow: a.test}]}}\n", 2, "nothing to listen on"),
    ("version: 9\n", 2, ":1:10: "),
    ("version: 1\nlisten: [{proxy: '192.0.2.1:1'}]\npolicies: {default: {rules: [{allow: a.test}]}}\n", 1,
     ".yaml:3:18: listen on 192.0.2.1 port 1: Cannot assign requested address (no interface here has that address"),
    ("version: 1\nlisten: [{proxy: 'unix:/nowhere/x.sock'}]\npolicies: {default: {rules: [{allow: a.test}]}}\n", 1,
     ".yaml:3:18: listen on /nowhere/x.sock: No such file or directory (make its folder first)"),
    ("version: 1\nuser: no-such-user-here\nlisten: [{proxy: '127.0.0.1:0'}]\npolicies: {default: {rules: [{allow: a.test}]}}\n", 1,
     "stile: user: no-such-user-here: no such user (create it, or leave `user:` out)"),
    ("version: 1\nlisten: [{proxy: '127.0.0.1:0'}]\nlog: {to: /nowhere/at/all}\n"
     "policies: {default: {rules: [{allow: a.test}]}}\n", 1, "/nowhere/at/all: cannot open the log: No such file or directory (make its folder first)"),
    ("version: 1\nlisten: [{proxy: '127.0.0.1:0'}]\nupstream: {trust: [/nowhere.pem]}\n"
     "policies: {default: {rules: [{allow: a.test}]}}\n", 1, "/nowhere.pem"),
])
def test_a_start_that_fails(tmp_path, text, code, said):
    config = tmp_path / "stile.yaml"
    config.write_text(text.replace("version: 1\n", f"version: 1\nca: {{dir: {tmp_path / 'ca'}}}\n"))
    done = serve(config, cwd=tmp_path)
    assert done.returncode == code and done.stderr.count(said) == 1, done
    assert all(line.startswith("stile: ") for line in done.stderr.splitlines())
