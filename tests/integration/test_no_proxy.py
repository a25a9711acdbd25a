"""Programs that know no proxy, in `stile run`, without a variable that speaks of one: what a rule admits works as if
there were no stile, the rest is refused with a record, and there is no other way."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import textwrap
import time

import pytest

import runlib
from clientlib import BUILD_TIMEOUT, REPO, tool
from runlib import NOBODY, Origin

# What install-deps.sh unpacks of Debian's servers, where they are not installed: nothing is started by that.
SERVERS = REPO / "build" / "clients" / "servers"
PROXY = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy", "NODE_USE_ENV_PROXY",
         "JAVA_TOOL_OPTIONS"]


def server(name: str, *places: str) -> pathlib.Path:
    for place in places:
        for root in (pathlib.Path("/"), SERVERS):
            if (root / place / name).exists():
                return root / place / name
    pytest.skip(f"{name} is neither installed nor unpacked (tests/install-deps.sh test)")


def records(folder, **want) -> list[dict]:
    lines = (folder / "run.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if all(r.get(k) == v for k, v in want.items())]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class World:
    def __init__(self, folder: pathlib.Path, origin: Origin):
        self.folder, self.origin, self.port = folder, origin, origin.port
        self.write([f"https://allowed.test:{origin.port}/ok/**"])

    def write(self, targets: list[str]) -> None:
        config = {"version": 1, "upstream": {"trust": [str(self.origin.ca)], "hosts": {n: "127.0.0.1" for n in ("allowed.test", "other.test")}},
                  "policies": {"default": {"rules": [{"allow": t, "addresses": ["127.0.0.0/8"]} for t in targets]}}}
        (self.folder / "stile.yaml").write_text(json.dumps(config))

    def run(self, *cmd, keep=(), **more) -> subprocess.CompletedProcess:
        unset = [x for n in PROXY if n not in keep for x in ("-u", n)]
        return runlib.run(self.folder, "env", *unset, *cmd, config=self.folder / "stile.yaml", **more)


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    o = Origin(tmp_path_factory.mktemp("origin"))
    yield o
    o.close()


@pytest.fixture
def world(origin, tmp_path):
    return World(tmp_path, origin)


def check(world, ok: str, refused: str, unknown: str) -> None:
    """What a client printed for a URL that is allowed, one that is not, and a name that is not."""
    assert "hello from the origin" in ok, (ok, refused, unknown)
    assert '"reason":"no_rule"' in refused, (ok, refused, unknown)
    assert "hello" not in unknown and "denied" not in unknown, (ok, refused, unknown)
    end, = records(world.folder, event="request.end")
    assert (end["listener"], end["host"], end["port"], end["status"]) == ("run-transparent", "allowed.test", world.port, 200)
    assert [r["path"] for r in records(world.folder, event="request.deny", reason="no_rule")] == ["/no"]
    assert {r["host"] for r in records(world.folder, event="dns.deny")} == {"evil.test"}


def urls(world) -> list[str]:
    return [f"https://allowed.test:{world.port}/ok/a", f"https://allowed.test:{world.port}/no", f"https://evil.test:{world.port}/ok/a"]


def test_node_fetch(world):
    code = """(async () => { for (const u of process.argv.slice(1)) {
        try { const r = await fetch(u); console.log(JSON.stringify(await r.text())); }
        catch (e) { console.log(JSON.stringify(String(e.cause || e))); } } })()"""
    got = world.run(tool("node"), "-e", code, *urls(world))
    assert got.returncode == 0, got.stderr
    ok, refused, unknown = map(json.loads, got.stdout.splitlines())
    check(world, ok, refused, unknown)
    assert "ENOTFOUND" in unknown


JAVA = """
import java.net.URI;
import java.net.http.*;

public class Fetch {
    public static void main(String[] args) throws Exception {
        var client = HttpClient.newBuilder().proxy(HttpClient.Builder.NO_PROXY).build();
        for (String u : args) {
            try {
                System.out.println(client.send(HttpRequest.newBuilder(URI.create(u)).build(), HttpResponse.BodyHandlers.ofString()).body().strip());
            } catch (java.io.IOException e) {
                System.out.println(e);
            }
        }
    }
}
"""


def test_java(world):
    """The variable is kept for its trust store: the program asks for no proxy."""
    (world.folder / "Fetch.java").write_text(JAVA)
    got = world.run(tool("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "Fetch.java", *urls(world), keep=["JAVA_TOOL_OPTIONS"])
    assert got.returncode == 0, got.stderr
    check(world, *got.stdout.splitlines())


GO = """
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	client := http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true}}
	for _, u := range os.Args[1:] {
		r, err := client.Get(u)
		if err != nil {
			fmt.Println(err)
			continue
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Println(string(body[:len(body)-1]) + string(body[len(body)-1]))
	}
}
"""


def test_a_static_program_of_go(world, tmp_path):
    """With a resolver of its own, and no word of proxies in it."""
    (tmp_path / "main.go").write_text(GO)
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOWORK": "off", "GO111MODULE": "off"}
    got = subprocess.run([tool("go"), "build", "-o", tmp_path / "fetch", tmp_path / "main.go"], capture_output=True, text=True, env=env, timeout=BUILD_TIMEOUT)
    assert got.returncode == 0, got.stderr
    got = world.run(tmp_path / "fetch", *urls(world))
    assert got.returncode == 0, got.stderr
    check(world, *[x for x in got.stdout.splitlines() if x])


def test_python_and_curl_in_clear(world):
    """Port 80, HTTP as an origin gets it."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    folder = world.folder / "www"
    folder.mkdir()
    (folder / "a").write_text("plain hello")
    with subprocess.Popen(["/usr/bin/python3", "-m", "http.server", str(port), "--bind", "127.0.0.1"], cwd=folder, stderr=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL) as p:
        try:
            runlib.wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
            world.write([f"http://allowed.test:{port}/a"])
            got = world.run("sh", "-c", f"curl -sS http://allowed.test:{port}/a; curl -sS http://allowed.test:{port}/b; curl -sS http://allowed.test/a;"
                                        f"curl -sS -H 'Host: other.test:{port}' http://allowed.test:{port}/a")
        finally:
            p.kill()
    answers = [x for x in got.stdout.replace("}", "}\n").replace("hello", "hello\n").splitlines() if x]
    assert answers[0] == "plain hello", got
    assert [json.loads(a)["reason"] for a in answers[1:]] == ["no_rule", "no_rule", "name_mismatch"], got
    assert sorted(r["port"] for r in records(world.folder, event="request.deny", reason="no_rule")) == sorted([80, port])


# ---- tcp:// ----


class Sshd:
    """OpenSSH's own, unprivileged but for the user that it is started by, in a mount namespace of its own."""

    def __init__(self, folder: pathlib.Path):
        if os.geteuid() != 0:
            pytest.skip("a mount namespace needs root")
        binary, self.port, self.key = server("sshd", "usr/sbin"), free_port(), folder / "key"
        tool("ssh")
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        shutil.copy(folder / "key.pub", folder / "authorized")
        users = pathlib.Path("/etc/passwd").read_text()
        (folder / "passwd").write_text(users + ("" if "\nsshd:" in users else "sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n"))
        (folder / "known").write_text(f"[ssh.test]:{self.port} {(folder / 'host.pub').read_text()}")
        (folder / "sshd.conf").write_text(textwrap.dedent(f"""\
            ListenAddress 127.0.0.1:{self.port}
            HostKey {folder}/host
            AuthorizedKeysFile {folder}/authorized
            PidFile none
            StrictModes no
            UsePAM no
            PermitRootLogin prohibit-password
            PasswordAuthentication no
            """))
        own = f"mount -t tmpfs none /run && mkdir -m 755 /run/sshd && mount --bind {folder}/passwd /etc/passwd && exec {binary} -D -e -f {folder}/sshd.conf"
        # The kernel's own end of it: the child dies with us.
        self.log = open(folder / "sshd.log", "w")
        self.proc = subprocess.Popen(["unshare", "-m", "sh", "-c", own], stderr=self.log, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                     env={**os.environ, "LD_LIBRARY_PATH": str(SERVERS / "usr/lib/x86_64-linux-gnu")})
        runlib.wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", self.port)) == 0)

    def options(self, folder: pathlib.Path) -> list[str]:
        return ["-F", "none", "-i", str(folder / "key"), "-o", f"UserKnownHostsFile={folder}/known", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]

    def stop(self) -> None:
        self.proc.kill()
        self.proc.wait()
        self.log.close()


@pytest.fixture
def sshd(tmp_path):
    s = Sshd(tmp_path)
    yield s
    s.stop()


def test_ssh_and_git(world, sshd, tmp_path):
    """The server speaks first. git takes the same way."""
    hosts = {"ssh.test": "127.0.0.1"}
    config = {"version": 1, "upstream": {"hosts": hosts}, "policies": {"default": {"rules": [
        {"allow": f"tcp://ssh.test:{sshd.port}", "addresses": ["127.0.0.0/8"]}, {"allow": "https://other.test"}]}}}
    (tmp_path / "stile.yaml").write_text(json.dumps(config))
    work = tmp_path / "work"
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "repo"], check=True)
    subprocess.run(f"git init -q {work} && cd {work} && git -c user.name=a -c user.email=a@a.test commit -q --allow-empty -m first && "
                   f"git push -q {tmp_path}/repo HEAD:main", shell=True, check=True)
    ssh = " ".join(["ssh", *sshd.options(tmp_path), "-p", str(sshd.port)])
    script = f"""
        {ssh} root@ssh.test echo over ssh
        git -c core.sshCommand='{ssh}' clone -q -b main ssh://root@ssh.test{tmp_path}/repo got && git -C got log --format=%s
        {ssh.replace(str(sshd.port), '443')} root@other.test echo never
        {ssh} root@evil.test echo never
        true"""
    got = world.run("sh", "-c", script)
    assert got.stdout.splitlines() == ["over ssh", "first"], (got, (tmp_path / "sshd.log").read_text())
    ends = records(tmp_path, event="tunnel.end")
    assert len(ends) == 2 and all((r["host"], r["port"], r["scheme"]) == ("ssh.test", sshd.port, "tcp") for r in ends)
    assert [r["host"] for r in records(tmp_path, event="tunnel.deny", reason="not_tls")] == ["other.test"]
    assert {r["host"] for r in records(tmp_path, event="dns.deny")} == {"evil.test"}


class Postgres:
    """Debian's own server, for a user that is not root."""

    def __init__(self, folder: pathlib.Path):
        bin_ = server("postgres", *(f"usr/lib/postgresql/{n}/bin" for n in (15, 16, 17))).parent
        self.psql, self.port = bin_ / "psql", free_port()
        self.libs = str(SERVERS / "usr/lib/x86_64-linux-gnu")
        self.env = {**os.environ, "LD_LIBRARY_PATH": self.libs, "LC_ALL": "C"}
        who = NOBODY if os.geteuid() == 0 else []
        self.folder = pathlib.Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
        if who:
            os.chown(self.folder, 65534, 65534)
        subprocess.run([*who, bin_ / "initdb", "-D", self.folder / "db", "-U", "tester", "-A", "trust", "-N", "-E", "UTF8"], check=True, env=self.env,
                       stdout=subprocess.DEVNULL, cwd="/")
        self.proc = subprocess.Popen([*who, bin_ / "postgres", "-D", self.folder / "db", "-p", str(self.port), "-k", "", "-c", "listen_addresses=127.0.0.1",
                                      "-F"], env=self.env, cwd="/", stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        runlib.wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", self.port)) == 0)

    def stop(self) -> None:
        self.proc.terminate()
        try:
            self.proc.wait(20)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()
        shutil.rmtree(self.folder)


@pytest.fixture
def postgres(tmp_path):
    p = Postgres(tmp_path)
    yield p
    p.stop()


def test_psql(world, postgres, tmp_path):
    config = {"version": 1, "upstream": {"hosts": {"db.test": "127.0.0.1"}}, "policies": {"default": {"rules": [
        {"allow": f"tcp://db.test:{postgres.port}", "addresses": ["127.0.0.0/8"]}, {"allow": "https://other.test"}]}}}
    (tmp_path / "stile.yaml").write_text(json.dumps(config))
    ask = f"{postgres.psql} -X -At -U tester -d postgres -c 'select 6*7'"
    got = world.run("sh", "-c", f"export LD_LIBRARY_PATH={postgres.libs}; {ask} -h db.test -p {postgres.port}; {ask} -h other.test -p 443;"
                                f"{ask} -h evil.test -p {postgres.port}", args=["--show", str(postgres.psql)])
    assert got.stdout == "42\n", got
    assert records(tmp_path, event="tunnel.end")[0]["host"] == "db.test"
    assert [r["host"] for r in records(tmp_path, event="tunnel.deny")] == ["other.test"], got
    assert {r["host"] for r in records(tmp_path, event="dns.deny")} == {"evil.test"}


# ---- no other way ----


def test_no_other_way(world):
    """Datagrams, raw packets, addresses: not even to what a name was given, and not over its port."""
    code = f"""
        import errno, socket
        made_up = socket.getaddrinfo("allowed.test", {world.port}, socket.AF_INET)[0][4][0]
        def say(what, f):
            try:
                f()
                print(what, "went")
            except OSError as e:
                print(what, errno.errorcode[e.errno])
        def datagram(address):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.settimeout(5)
            s.connect((address, {world.port}))
            s.send(b"x")
            s.recv(1)
        say("udp made up", lambda: datagram(made_up))
        say("udp", lambda: datagram("203.0.113.9"))
        say("tcp", lambda: socket.create_connection(("203.0.113.9", 443), 5))
        say("tcp6", lambda: socket.create_connection(("2001:db8::9", 443), 5))
        say("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
        say("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        say("another port", lambda: socket.create_connection((made_up, {world.port} - 1), 5))
    """
    got = world.run("/usr/bin/python3", "-c", textwrap.dedent(code))
    said = dict(line.rsplit(" ", 1) for line in got.stdout.splitlines())
    assert said == {"udp made up": "ECONNREFUSED", "udp": "ENETUNREACH", "tcp": "ENETUNREACH", "tcp6": "ENETUNREACH", "raw": "EPERM", "packet": "EPERM",
                    "another port": "ECONNREFUSED"}, got


def test_an_address_that_nobody_was_given(world):
    """Recorded, as all that is refused; loopback too."""
    world.write([f"https://allowed.test:{world.port}", "https://127.0.0.1", "https://198.18.5.5"])
    got = world.run("sh", "-c", "for a in 198.18.5.5 127.0.0.1; do curl -sS -k https://$a/; done; true")
    assert got.stdout == "" and got.stderr.count("access denied") == 2, got
    assert [r["host"] for r in records(world.folder, event="tunnel.deny", reason="no_rule")] == ["198.18.5.5", "127.0.0.1"]
