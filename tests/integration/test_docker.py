"""docker/: the image, the compose file, the launcher. What needs no engine runs everywhere."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
import yaml

import rootlesslib
from containerlib import BASE, CACHE, DOCKER, IMAGE, LAUNCHER, engine, image  # noqa: F401 (fixtures)
from runlib import processes, wait_for
from stilelib import BIN, SANITIZED, allow, clean_env

pytestmark = pytest.mark.xdist_group("containers")
PIP = CACHE / "pip"
ROOT = os.geteuid() == 0
BECOME = {"user": 65534, "group": 65534, "extra_groups": []} if ROOT else {}
PROXY = "http://10.213.0.2:3128"


def load_launcher():
    loader = importlib.machinery.SourceFileLoader("launcher", str(LAUNCHER))
    spec = importlib.util.spec_from_loader("launcher", loader)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


launcher = load_launcher()


# ---- what the launcher refuses ----


@pytest.fixture
def refused(tmp_path):
    """refused(*args): runs the launcher, which must refuse it before any engine is asked."""
    tools, home = tmp_path / "bin", tmp_path / "home"
    tools.mkdir()
    home.mkdir()
    for name in ("podman", "docker", "stile"):
        (tools / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexit 1\n")
        (tools / name).chmod(0o755)

    def call(*args, status=2, command=("true",), **env):
        around = clean_env(PATH=f"{tools}:{os.environ['PATH']}", HOME=str(home), **env)
        got = subprocess.run([str(LAUNCHER), *map(str, args), "--", *command], capture_output=True, text=True,
                             timeout=60, cwd=tmp_path, env=around)
        assert got.returncode == status, got
        assert (tmp_path / "asked").exists() == (status == 125), got
        return got.stderr
    call.home, call.tmp = home, tmp_path
    return call


@pytest.mark.parametrize("option", sorted(launcher.FORBIDDEN))
def test_a_forbidden_option(option):
    for args in ([option, "x"], [f"{option}=x"] if option.startswith("--") else [f"{option}x"]):
        for around in (["--image", "i", *args, "--", "true"], [*args, "--image", "i", "true"]):
            with pytest.raises(launcher.Refused) as said:
                launcher.parse(around)
            assert str(said.value) == f"{option} is refused: {launcher.FORBIDDEN[option]}"


def test_a_forbidden_option_asks_no_engine(refused):
    assert "sandbox: --privileged is refused: gives every capability" in refused("--image", "i", "--privileged")
    assert "sandbox: -v is refused: nothing of the host" in refused("-v", "/var/run/docker.sock:/s", "--image", "i")


def test_the_options_that_guidance_forbids_are_among_them():
    assert {"--privileged", "--cap-add", "--device", "--security-opt", "--network", "--pid", "--ipc", "--volume", "-v",
            "--mount", "--env-file", "--env-host", "--userns", "--gpus"} <= set(launcher.FORBIDDEN)


def test_no_option_but_its_own(refused):
    assert "unrecognized" in refused("--image", "i", "--tmpfs-mode=1", "--log-drivers=x")
    # Prefixes are none either.
    assert "unrecognized" in refused("--image", "i", "--privilege")


def test_the_command_s_options_are_its_own(refused):
    """--privileged behind the command is a word for it; here the engine is asked, and fails."""
    refused("--image", "i", "--allow", "a.test", status=125, command=("prog", "--privileged", "-v", "/:/host"))


@pytest.mark.parametrize("args, says", [
    (["--image=--privileged"], "that is no image"),
    (["--image", "i", "--user", "0"], "root in a container"),
    (["--image", "i", "--user", "5:0"], "root in a container"),
    (["--image", "i", "--user", "root"], "as numbers"), (["--image", "i", "--memory", "0"], "a size"),
    (["--image", "i", "--memory=-1"], "a size"), (["--image", "i", "--cpus", "0.0"], "a number"),
    (["--image", "i", "--pids", "0"], "a number"), (["--image", "i", "--pids=-1"], "a number"),
    (["--image", "i", "--tmp", "512m,exec"], "a size"), ([], "--image")])
def test_words_that_mean_something_else_to_the_engine(refused, args, says):
    assert says in refused(*args)


def test_workspaces_that_are_refused(refused):
    home, tmp = refused.home, refused.tmp
    (home / ".ssh" / "deep").mkdir(parents=True)
    (tmp / "link").symlink_to(home)
    config = tmp / "with-config"
    config.mkdir()
    (config / "stile.yaml").write_text("version: 1\n")
    for folder in ("/", home, home.parent, tmp / "link", home / ".ssh", home / ".ssh" / "deep", "/etc", "/usr/lib",
                   "/home", "/proc/self", "/var", "/tmp", "/run", tmp / "none", f"{home}/work/../"):
        said = refused("--image", "i", "--workspace", folder)
        assert f"--workspace {folder}" in said and ("refused" in said or "no such folder" in said)
    said = refused("--image", "i", "--workspace", config, "-c", config / "stile.yaml")
    assert "could change what it may do" in said
    with tempfile.TemporaryDirectory(prefix="stile-") as short, socket.socket(socket.AF_UNIX) as daemon:
        path = pathlib.Path(short) / "in" / "engine.sock"
        path.parent.mkdir()
        daemon.bind(str(path))
        daemon.listen()
        assert f"a process of the host listens at {path}" in refused("--image", "i", "--workspace", short)
    # A folder of work is none of these, be it in the home.
    (home / "work").mkdir()
    refused("--image", "i", "--allow", "a.test", "--workspace", home / "work", status=125)


def test_credentials_of_the_environment(refused, canary):
    assert "nothing is inherited" in refused("--image", "i", "--env", "HOME")
    for name in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "X_API_KEY", "PGPASSWORD"):
        said = refused("--image", "i", "--env", f"HARMLESS={canary}", **{name: canary})
        assert f"--env HARMLESS is refused: the value of {name}" in said and canary not in said
        said = refused("--image", "i", command=("agent", f"--key=x{canary}"), **{name: canary})
        assert f"that command is refused: the value of {name}" in said and canary not in said
    refused("--image", "i", "--allow", "a.test", "--env", "MODE=test", status=125, GITHUB_TOKEN=canary)


def test_a_stile_that_is_not_there():
    with pytest.raises(launcher.Failed) as said:
        launcher.Way(launcher.parse(["--image", "i", "--allow", "a.test", "--stile", "/nowhere", "true"]), "/nowhere")
    assert str(said.value) == "--stile /nowhere: no program is there"


def test_an_engine_elsewhere(refused):
    for name in ("DOCKER_HOST", "CONTAINER_HOST"):
        said = subprocess.run([str(LAUNCHER), "--image", "i", "true"], capture_output=True, text=True, timeout=60,
                              env=clean_env(**{name: "tcp://192.0.2.1:2375"}))
        assert said.returncode == 125 and (name in said.stderr or "there is no" in said.stderr)


# The engine's client ends with 0 of a signal, as Podman before 4.4.2 does while it attaches. Its `kill` tells the
# sandbox, where there is one, which ends with 9.
ENGINE = """\
#!/bin/sh
cd {folder}
case $1 in
start) trap 'exit 0' TERM; sleep 0.3; echo up; until test -e told; do sleep 0.05; done; exit 9;;
kill) test "$2 $3 $4" = "--signal {number} box" && {up} && touch told;;
esac
"""
START = """\
import importlib.machinery, sys, types
launcher = importlib.machinery.SourceFileLoader("launcher", sys.argv[1]).load_module()
engine = types.SimpleNamespace(program=[sys.argv[2]], name="box")
sys.exit(launcher.start(engine, types.SimpleNamespace(timeout=60)))
"""


@pytest.mark.parametrize("up,status", [("true", 9), ("false", 128 + signal.SIGTERM)])
def test_a_signal_goes_to_the_sandbox(tmp_path, up, status):
    engine = tmp_path / "engine"
    engine.write_text(ENGINE.format(folder=tmp_path, number=int(signal.SIGTERM), up=up))
    engine.chmod(0o755)
    child = subprocess.Popen([sys.executable, "-B", "-c", START, str(LAUNCHER), str(engine)], stdout=subprocess.PIPE,
                             text=True, env=clean_env())
    try:
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == status
    finally:
        child.kill()
        child.wait()


def test_help():
    got = subprocess.run([str(LAUNCHER), "--help"], capture_output=True, text=True, timeout=30)
    assert got.returncode == 0
    for word in ("--workspace", "--runtime", "runsc", "125"):
        assert word in got.stdout


def test_the_socket_inside_is_made_without_root():
    """As with rootless Podman: the namespace belongs to a user namespace of the same user."""
    holder = subprocess.Popen(["unshare", "--user", "--map-root-user", "--net", "sh", "-c", "echo up; exec sleep 600"],
                              stdout=subprocess.PIPE, text=True, **BECOME)
    try:
        if holder.stdout.readline() != "up\n":
            pytest.skip("needs user namespaces, which this kernel or container does not give")
        code = ("import importlib.machinery, importlib.util, os, socket, sys\n"
                "sys.dont_write_bytecode = True\n"
                "loader = importlib.machinery.SourceFileLoader('launcher', sys.argv[1])\n"
                "m = importlib.util.module_from_spec(importlib.util.spec_from_loader('launcher', loader))\n"
                "loader.exec_module(m)\n"
                "s = m.listen_inside(f'/proc/{sys.argv[2]}/ns/net', '127.0.0.1')\n"
                "cookie = lambda s: s.getsockopt(socket.SOL_SOCKET, 71, 8)  # SO_NETNS_COOKIE\n"
                "print(os.geteuid() != 0, s.getsockname(), cookie(s) != cookie(socket.socket()))\n")
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            shutil.copy(LAUNCHER, folder)
            got = subprocess.run([sys.executable, "-c", code, f"{folder}/sandbox", str(holder.pid)],
                                 capture_output=True, text=True, timeout=60, **BECOME)
        # No socket is made where there is a way out, nor in the host's own namespace.
        with pytest.raises(launcher.Failed, match="the host's own"):
            launcher.listen_inside("/proc/self/ns/net", "127.0.0.1")
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert got.stdout == "True ('127.0.0.1', 3128) True\n", got


# ---- the files ----


def test_client_env_is_what_stile_prints():
    said = subprocess.run([str(BIN), "ca", "env", "--dir", "/run/stile-trust", "--proxy", PROXY], capture_output=True,
                          text=True, timeout=60, env=clean_env(), check=True).stdout
    assert (DOCKER / "client.env").read_text() == said


def test_the_example_configuration():
    got = subprocess.run([str(BIN), "check", str(DOCKER / "stile.yaml")], capture_output=True, text=True, timeout=60,
                         env=clean_env())
    assert got.returncode == 0 and "1 policy" in got.stdout, got
    assert yaml.safe_load((DOCKER / "stile.yaml").read_text())["listen"][0]["proxy"] == PROXY.removeprefix("http://")


def test_compose_hardening():
    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    assert compose["networks"]["inside"]["internal"] is True
    both = [n for n, s in compose["services"].items() if len(s.get("networks", {})) > 1]
    assert both == ["stile"] and list(compose["services"]["sandbox"]["networks"]) == ["inside"]
    for name, service in compose["services"].items():
        assert service["cap_drop"] == ["ALL"] and service["read_only"] is True, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "devices", "pid", "ipc", "userns_mode", "ports"} & set(service), name
        assert "sock" not in json.dumps(service.get("volumes", [])), name
    sandbox = compose["services"]["sandbox"]
    assert sandbox["user"] == "65532:65532" and sandbox["environment"] == {"HOME": "/tmp"}
    assert [v.rsplit(":", 2)[-2:] for v in sandbox["volumes"]][1] == ["/run/stile-trust", "ro"]
    assert len(sandbox["volumes"]) == 2 and {"mem_limit", "memswap_limit", "cpus", "pids_limit"} <= set(sandbox)


# ---- the image ----


@pytest.fixture
def unsanitized():
    if SANITIZED:
        pytest.skip("needs a build without a sanitizer, as the image is one")


@pytest.fixture
def facts(unsanitized, engine, image):  # noqa: F811
    return json.loads(engine.podman("image", "inspect", image).stdout)[0]


def files_of(engine, image):  # noqa: F811
    name = "stile-test-" + secrets.token_hex(6)
    engine.podman("create", "--name", name, image)
    try:
        tar = subprocess.run(["podman", "export", name], capture_output=True, env=engine.env, check=True).stdout
        listed = subprocess.run(["tar", "-tvf", "-"], input=tar, capture_output=True, check=True).stdout.decode()
        sbom = subprocess.run(["tar", "-xOf", "-", "usr/share/stile/sbom.spdx.json"], input=tar, capture_output=True,
                              check=True).stdout.decode()
    finally:
        engine.podman("rm", "--force", name)
    return [(f[0], " ".join(f[5:])) for f in (line.split() for line in listed.splitlines())], sbom


def test_image_facts(engine, image, facts):  # noqa: F811
    config = facts["Config"]
    assert config["User"] == "65532:65532" and config["StopSignal"] in ("SIGTERM", "15")
    assert config["Entrypoint"] == ["/usr/bin/stile"] and config["Cmd"][0] == "serve"
    health = facts.get("HealthCheck") or facts["Healthcheck"]
    assert health["Test"][:3] == ["CMD", "/usr/bin/stile", "status"]
    labels = config["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.revision"] == "of-the-test"
    assert f"stile {labels['org.opencontainers.image.version']}\n" == engine.podman(
        "run", "--rm", "--network", "none", image, "--version").stdout
    assert facts["Size"] < 20_000_000, facts["Size"]


def test_image_holds_no_shell_no_package_manager_and_no_privilege(engine, image, facts):  # noqa: F811
    files, sbom = files_of(engine, image)
    programs = {n for mode, n in files if n.startswith(("usr/bin/", "usr/sbin/")) and not n.endswith("/")}
    assert programs == {"usr/bin/stile"}
    names = {n.rsplit("/", 1)[-1] for _, n in files}
    assert not names & {"sh", "bash", "dash", "busybox", "dpkg", "apt", "apt-get", "perl", "python3", "gcc"}
    assert [n for mode, n in files if "s" in mode[1:] or (mode[8] == "w" and mode[0] == "-")] == []
    check_sbom(engine, files, sbom)


def check_sbom(engine, files, text):  # noqa: F811
    """It is valid, and what it says of each library is what dpkg says."""
    sbom = json.loads(text)
    by_name = {p["name"]: p for p in sbom["packages"]}
    libraries = [n for _, n in files if re.search(r"\.so(\.|$)", n)]
    owners = engine.podman("run", "--rm", "--network", "none", BASE, "sh", "-c",
                           "for f; do dpkg -S \"$(readlink -f /$f)\" || dpkg -S \"$(readlink -f /$f | cut -c5-)\"; done"
                           " 2>/dev/null | cut -d: -f1 | sort -u | xargs dpkg-query -W", "sh", *libraries).stdout
    want = dict(line.split("\t") for line in owners.splitlines())
    want = {n.split(":")[0]: v for n, v in want.items()}
    assert len(want) > 8
    assert {n: by_name[n]["versionInfo"] for n in by_name if n not in ("stile", "ca-certificates")} == want
    for name, package in by_name.items():
        if name != "stile":
            assert f"usr/share/doc/{name}/copyright" in {n for _, n in files}, name
            purl = f"pkg:deb/debian/{name.replace('+', '%2B')}@"
            assert package["externalRefs"][0]["referenceLocator"].startswith(purl)
    if not (PIP / "spdx_tools").exists():
        pytest.skip("spdx-tools is not installed (install-deps.sh containers)")
    code = ("import sys; from spdx_tools.spdx.parser.parse_anything import parse_file\n"
            "from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document\n"
            "print([m.validation_message for m in validate_full_spdx_document(parse_file(sys.argv[1]))])")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "sbom.spdx.json"
        path.write_text(text)
        got = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120,
                             env=clean_env(PYTHONPATH=str(PIP)))
    assert got.stdout == "[]\n", got


SERVE = """
version: 1
listen: [{proxy: "127.0.0.1:3128"}]
admin: unix:/run/stile/admin.sock
ca: {dir: /var/lib/stile/ca}
log: {to: /var/log/stile/stile.jsonl}
policies: {default: {rules: [{allow: docs.example.com}]}}
"""


def test_image_runs_read_only_and_ends_on_its_signal(engine, image, facts, tmp_path):  # noqa: F811
    config = tmp_path / "stile.yaml"
    config.write_text(SERVE)
    name = "stile-test-" + secrets.token_hex(6)
    engine.podman("run", "--detach", "--name", name, "--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL",
                  "--security-opt", "no-new-privileges", "--network", "none",
                  "-v", f"{config}:/etc/stile/stile.yaml:ro", image)
    try:
        wait_for(lambda: "listening on 127.0.0.1:3128" in engine.podman("logs", name).stderr, 60)
        pid = engine.podman("inspect", "--format", "{{.State.Pid}}", name).stdout.strip()
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        assert re.search(r"^Uid:\s+65532\s+65532\s+65532\s+65532$", status, re.M)
        assert re.search(r"^CapBnd:\s+0+$", status, re.M) and re.search(r"^NoNewPrivs:\s+1$", status, re.M)
        # Its admin socket may come a moment behind that line.
        wait_for(lambda: engine.podman("healthcheck", "run", name, check=False).returncode == 0, 60)
        log = pathlib.Path(f"/proc/{pid}/root/var/log/stile")
        assert (log / "stile.jsonl").exists()
        engine.podman("stop", "--time", "60", name)
        assert engine.podman("inspect", "--format", "{{.State.ExitCode}}", name).stdout.strip() == "0"
        assert "stopping" in engine.podman("logs", name).stderr
    finally:
        engine.podman("rm", "--force", "--volumes", "--time", "0", name)


# ---- the launcher ----

# What the sandbox is like from inside, as one JSON object.
PROBE = r"""
import json, os, re, resource, socket, subprocess, sys
def curl(*args):
    got = subprocess.run(["curl", "-sS", "-m", "30", *args, "-w", "\n%{http_code}"], capture_output=True, text=True)
    return [got.returncode, *got.stdout.rsplit("\n", 1)]
def fails(f):
    try:
        f()
    except OSError as e:
        return e.__class__.__name__
    return None
def dial(address):
    with socket.socket() as s:
        s.settimeout(10)
        s.connect(address)
def dns():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("192.0.2.53", 53))
        s.send(b"\0" * 12)
base, gone = sys.argv[1], sys.argv[2]
status = dict(re.findall(r"^(\w+):\s*(.*)$", open("/proc/self/status").read(), re.M))
out = {
    "allowed": curl(base + "/ok/a"), "denied": curl(base + "/no/a"), "elsewhere": curl("https://elsewhere.test/"),
    "direct": [fails(lambda: dial((a, 443))) for a in ("192.0.2.1", "198.51.100.9", "169.254.169.254", "10.88.0.1")],
    "origin": fails(lambda: dial(("127.0.0.1", int(gone)))),
    "name": fails(lambda: socket.getaddrinfo("docs.example.com", 443)), "dns": fails(dns),
    "interfaces": sorted(os.listdir("/sys/class/net")), "caps": [status[k] for k in status if k.startswith("Cap")],
    "no_new_privs": status["NoNewPrivs"], "seccomp": status["Seccomp"], "uid": os.getresuid(), "gid": os.getresgid(),
    "groups": os.getgroups(), "root": fails(lambda: open("/x", "w")), "usr": fails(lambda: open("/usr/bin/x", "w")),
    "trust": fails(lambda: open("/run/stile-trust/ca.pem", "w")), "core": resource.getrlimit(resource.RLIMIT_CORE),
    "env": dict(os.environ), "cwd": os.getcwd(), "mounts": [l.split()[4] for l in open("/proc/self/mountinfo")],
    "family": fails(lambda: socket.socket(40, socket.SOCK_STREAM)),
}
open("/workspace/made", "w").write("by the sandbox")
open("/tmp/made", "w").write("x")
kept = []
try:
    while len(kept) < 200:
        kept.append(subprocess.Popen(["sleep", "60"]))
    out["fork"] = None
except OSError as e:
    out["fork"] = len(kept)
for k in kept:
    k.kill()
    k.wait()
out["memory"] = subprocess.run([sys.executable, "-c", "b = b'x' * (400 << 20); print(len(b))"],
                               capture_output=True).returncode
print(json.dumps(out))
"""


class Sandbox:
    def __init__(self, engine, origin, folder):  # noqa: F811
        self.engine, self.origin, self.folder = engine, origin, folder
        self.config, self.log, self.workspace = folder / "stile.yaml", folder / "log.jsonl", folder / "work"
        self.workspace.mkdir()
        os.chown(self.workspace, 4711, 4712)
        self.base = f"https://origin.test:{origin.tls}"
        rules = [allow(f"{self.base}/**"), {"deny": f"{self.base}/no/**"}]
        self.config.write_text("\n".join([
            "version: 1", "upstream: " + json.dumps({"hosts": {"origin.test": "127.0.0.1"},
                                                     "trust": [str(origin.pki / "ca.pem")]}),
            "policies: {default: {rules: " + json.dumps(rules) + "}}"]) + "\n")

    def argv(self, *command, args=()):
        return [str(LAUNCHER), "--engine", "podman", "--stile", str(BIN), "--image", BASE, "-c", str(self.config),
                "--log", str(self.log), *map(str, args), "--", *map(str, command)]

    def run(self, *command, args=(), env=None, **more):
        return subprocess.run(self.argv(*command, args=args), capture_output=True, text=True, timeout=300,
                              cwd=self.folder, env={**self.engine.env, **(env or {})},
                              **{"stdin": subprocess.DEVNULL, **more})

    def records(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def nothing_is_left(self):
        assert self.engine.podman("ps", "--all", "--quiet").stdout == ""
        assert processes(str(self.config)) == []
        assert [n for n in os.listdir(tempfile.gettempdir()) if n.startswith("stile-sandbox-")] == []
        if os.path.isdir("/run/netns"):
            assert [n for n in os.listdir("/run/netns") if n.startswith("stile-sandbox-")] == []


@pytest.fixture
def sandbox(unsanitized, engine, origin, tmp_path):  # noqa: F811
    tmp_path.chmod(0o755)
    s = Sandbox(engine, origin, tmp_path)
    yield s
    s.nothing_is_left()


def check_way_out(sandbox, out, mark):  # noqa: F811
    assert out["allowed"][0] == 0 and out["allowed"][2] == "200", out["allowed"]
    for which, reason in (("denied", "denied_by_rule"), ("elsewhere", "no_rule")):
        assert out[which][2] == "403" and json.loads(out[which][1])["reason"] == reason, out[which]
    assert None not in (*out["direct"], out["name"], out["dns"], out["origin"]), out
    got = sandbox.origin.since(mark)
    assert b"/ok/a" in got and b"/no/a" not in got
    assert {(r["event"], r.get("path")) for r in sandbox.records()} >= {
        ("request.start", "/ok/a"), ("request.end", "/ok/a"), ("request.deny", "/no/a")}


def test_the_sandbox_from_inside(sandbox, canary):
    mark = sandbox.origin.mark()
    (sandbox.workspace / "probe.py").write_text(PROBE)
    got = sandbox.run("python3", "probe.py", sandbox.base, sandbox.origin.plain,
                      args=["--workspace", sandbox.workspace, "--memory", "256m", "--pids", "40",
                            "--env", "MODE=of the test"],
                      env={"GITHUB_TOKEN": canary, "HARMLESS": canary})
    assert got.returncode == 0, got
    out = json.loads(got.stdout)
    check_way_out(sandbox, out, mark)
    assert out["interfaces"] == ["lo"]
    assert set(out["caps"]) == {"0000000000000000"} and out["no_new_privs"] == "1" and out["seccomp"] == "2"
    assert out["uid"] == [4711] * 3 and out["gid"] == [4712] * 3 and out["groups"] in ([], [4712])
    assert out["root"] and out["usr"] and out["trust"] and out["family"]
    assert out["core"] == [0, 0] and 10 < out["fork"] < 40 and out["memory"] == -signal.SIGKILL
    assert canary not in json.dumps(out) and out["env"]["MODE"] == "of the test" and out["cwd"] == "/workspace"
    assert (sandbox.workspace / "made").read_text() == "by the sandbox"
    shown = [m for m in out["mounts"] if m.startswith(str(sandbox.folder)) or "sock" in m]
    assert shown == [] and {"/workspace", "/run/stile-trust", "/tmp"} <= set(out["mounts"])
    assert not canary.encode() in sandbox.log.read_bytes()


def test_a_cable_instead_of_a_socket(sandbox):
    """What gVisor is given, with runc."""
    mark = sandbox.origin.mark()
    (sandbox.workspace / "probe.py").write_text(PROBE)
    got = sandbox.run("python3", "probe.py", sandbox.base, sandbox.origin.plain,
                      args=["--workspace", sandbox.workspace, "--memory", "256m", "--pids", "40", "--link", "veth"])
    assert got.returncode == 0, got
    out = json.loads(got.stdout)
    check_way_out(sandbox, out, mark)
    assert out["interfaces"] == ["eth0", "lo"] and out["env"]["HTTPS_PROXY"] == "http://198.51.100.1:3128"


def test_no_way_out_is_known(sandbox):
    """stile's own prover, inside."""
    shutil.copy(BIN, sandbox.workspace / "stile")
    got = sandbox.run("./stile", "doctor", "--escape", "--json", args=["--workspace", sandbox.workspace])
    found = {r["way"]: r for r in map(json.loads, got.stdout.splitlines())}
    assert len(found) > 20, got
    left = {w: r for w, r in found.items() if r["state"] in ("open", "unsure")}
    # Process 1 is the command itself, which may say that it is to be killed first.
    own = left.pop("kernel", None)
    assert own is None or "/proc/1/oom_score_adj" in json.dumps(own)
    assert left == {}


def test_rootless(unsanitized, engine, canary):  # noqa: F811
    """The launcher, its stile and the engine without root: what is allowed, and stile's own prover inside."""
    u = rootlesslib.User()
    try:
        if why := u.why_not():
            pytest.skip(why)
        work, mine = u.home / "task", u.home / "mine"
        work.mkdir()
        mine.write_text(canary)
        shutil.copy(BIN, u.home / "stile")
        shutil.copy(BIN, work / "stile")
        shutil.copy(LAUNCHER, u.home / "sandbox")
        u.own(work, mine)
        code = f"id -u; cat {mine}; touch made; curl -sS https://evil.test/; exec ./stile doctor --escape --json"
        argv = ["./sandbox", "--engine", "podman", "--stile", u.home / "stile", "--image", rootlesslib.IMAGE, "--workspace", work,
                "--allow", "a.test", "--log", u.home / "log.jsonl"]
        got = u.run(*argv, "--", "true")
        # Limits are not forgotten in silence.
        if got.returncode != 0:
            assert got.returncode == 125 and "--unlimited" in got.stderr, got
            argv.append("--unlimited")
        got = u.run(*argv, "--", "sh", "-c", code)
        uid, refusal, *found = got.stdout.splitlines()
        assert uid == str(rootlesslib.UID) and json.loads(refusal)["reason"] == "no_rule", got
        assert "No such file" in got.stderr and canary not in got.stdout and (work / "made").exists(), got
        found = {r["way"]: r for r in map(json.loads, found)}
        assert len(found) > 20 and {w for w, r in found.items() if r["state"] in ("open", "unsure")} <= {"kernel"}, found
        refused = [json.loads(line) for line in (u.home / "log.jsonl").read_text().splitlines()]
        assert [r["host"] for r in refused if r["event"] == "request.deny"][:1] == ["evil.test"]
    finally:
        u.remove()


@pytest.mark.parametrize("runtime", ["crun", "runsc"])
def test_other_runtimes(sandbox, runtime):
    if why := sandbox.engine.why_not(runtime):
        pytest.skip(why)
    mark = sandbox.origin.mark()
    (sandbox.workspace / "probe.py").write_text(PROBE)
    got = sandbox.run("python3", "probe.py", sandbox.base, sandbox.origin.plain,
                      args=["--workspace", sandbox.workspace, "--memory", "256m", "--pids", "40", "--runtime", runtime])
    assert got.returncode == 0, got
    check_way_out(sandbox, json.loads(got.stdout), mark)


def test_status_input_and_a_workspace_of_its_own(sandbox):
    got = sandbox.run("sh", "-c", "cat; ls -A /workspace; echo note >/workspace/note; exit 42", input="hello\n",
                      stdin=None)
    assert (got.returncode, got.stdout) == (42, "hello\n"), got
    assert sandbox.run("ls", "-A").stdout == ""


def test_a_time_limit(sandbox):
    got = sandbox.run("sleep", "1000", args=["--timeout", "0.5"])
    assert got.returncode == 124 and "0.5 s are over" in got.stderr, got


def test_what_cannot_be_started(sandbox):
    assert sandbox.run("/no/such/program").returncode in (125, 127)
    got = sandbox.run("true", args=["--image", "localhost/none-" + secrets.token_hex(4)])
    assert got.returncode == 125 and "sandbox: podman create: " in got.stderr, got
    sandbox.config.write_text("version: 1\npolicies: {default: {rulse: []}}\n")
    got = sandbox.run("true")
    assert got.returncode == 2 and "unknown key `rulse`" in got.stderr, got


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_launcher(sandbox, number):
    child = subprocess.Popen(sandbox.argv("sh", "-c", "echo up; trap 'exit 9' TERM; sleep 1000 & wait"),
                             cwd=sandbox.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                             env=sandbox.engine.env)
    try:
        assert child.stdout.readline() == "up\n"
        child.send_signal(number)
        status = child.wait(60)
    finally:
        child.kill()
        child.wait()
    if number == signal.SIGTERM:
        assert status == 9
        return
    # Killed, it cleans nothing up; but stile ends with it, and the container is left without a way out.
    wait_for(lambda: processes(str(sandbox.config)) == [], 60)
    sandbox.engine.podman("rm", "--all", "--force", "--time", "0")
    for name in os.listdir(tempfile.gettempdir()):
        if name.startswith("stile-sandbox-"):
            shutil.rmtree(pathlib.Path(tempfile.gettempdir()) / name)


# ---- compose ----

OVERRIDE = """
networks:
  outside: {internal: true, ipam: {config: [{subnet: 10.213.0.8/29}]}, x-podman.disable_dns: true}
services:
  origin:
    image: %s
    command: [python3, -m, http.server, --directory, /usr/share/doc/libc6, "8080"]
    networks: {outside: {ipv4_address: 10.213.0.11}}
    read_only: true
    ulimits: {nofile: 4096, nproc: 4096}
""" % BASE
COMPOSE_STILE = """
version: 1
listen: [{name: sandbox, proxy: "10.213.0.2:3128"}]
admin: unix:/run/stile/admin.sock
ca: {dir: /var/lib/stile/ca}
upstream: {hosts: {origin.test: 10.213.0.11}}
log: {to: /var/log/stile/stile.jsonl}
deny: explain
policies: {default: {rules: [{allow: "http://origin.test:8080/copyright", addresses: [10.213.0.8/29]}]}}
"""
INSIDE = """
curl -sS -m 30 -o /dev/null -w '%{http_code}\\n' http://origin.test:8080/copyright
curl -sS -m 30 http://origin.test:8080/; echo
curl -sS -m 30 https://elsewhere.test/; echo
for a in 192.0.2.1 10.213.0.1 10.213.0.9 10.213.0.11:8080; do
	curl -sS -m 10 -o /dev/null --noproxy '*' http://$a/ 2>/dev/null; echo direct $?; done
getent hosts docs.example.com; echo name $?
ip -6 addr show dev eth0 | wc -l
ip route | grep -c default
id -u; grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
touch /x 2>/dev/null; echo root $?
echo made >/workspace/made; ls /run/stile-trust | wc -l
"""


def test_compose(unsanitized, engine, image, tmp_path):  # noqa: F811
    if not (PIP / "podman_compose.py").exists():
        pytest.skip("podman-compose is not installed (install-deps.sh containers)")
    (tmp_path / "work").mkdir()
    (tmp_path / "work").chmod(0o777)
    shutil.copy(BIN, tmp_path / "work" / "stile")
    tmp_path.chmod(0o755)
    (tmp_path / "override.yaml").write_text(OVERRIDE)
    (tmp_path / "stile.yaml").write_text(COMPOSE_STILE)
    env = {"PYTHONPATH": str(PIP), "STILE_IMAGE": IMAGE, "SANDBOX_IMAGE": BASE, "WORKSPACE": str(tmp_path / "work"),
           "STILE_CONFIG": str(tmp_path / "stile.yaml"), "SECCOMP_PROFILE": str(tmp_path / "seccomp.json")}
    (tmp_path / "seccomp.json").write_text(engine.call(LAUNCHER, "--print-seccomp").stdout)

    def compose(*args, check=True):
        return engine.call("/usr/bin/python3", "-m", "podman_compose", "-p", "stile-test-" + mark, "-f",
                           DOCKER / "compose.yaml", "-f", DOCKER / "compose.podman.yaml", "-f",
                           tmp_path / "override.yaml", *args, env=env, check=check)
    mark = secrets.token_hex(4)
    said = yaml.safe_load(compose("config").stdout)
    assert said["services"]["sandbox"]["cap_drop"] == ["ALL"] and said["networks"]["inside"]["internal"] is True
    try:
        up = compose("up", "-d", "stile", "origin")
        name = f"stile-test-{mark}_stile_1"
        try:
            wait_for(lambda: "listening on 10.213.0.2:3128" in engine.podman("logs", name).stderr, 60)
        except AssertionError:
            pytest.fail(f"stile did not start: {up} {engine.podman('logs', name, check=False)}")
        wait_for(lambda: engine.podman("healthcheck", "run", name, check=False).returncode == 0, 60)
        got = compose("run", "--rm", "-T", "sandbox", "sh", "-c", INSIDE).stdout.splitlines()
        got = [line for line in got[got.index("200"):] if line]  # before it, what Compose says of other containers
        proved = compose("run", "--rm", "-T", "sandbox", "/workspace/stile", "doctor", "--escape", "--json", check=False)
    finally:
        compose("down", "--volumes", check=False)
    assert [json.loads(line)["reason"] for line in got[1:3]] == ["no_rule"] * 2
    assert all(re.fullmatch(r"direct (7|28)", line) for line in got[3:7]), got
    assert got[7:] == ["name 2", "0", "0", "65532", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
                       "root 1", "3"], got
    assert (tmp_path / "work" / "made").read_text() == "made\n"
    found = {r["way"]: r for r in (json.loads(x) for x in proved.stdout.splitlines() if x.startswith("{"))}
    left = {w: r for w, r in found.items() if r["state"] in ("open", "unsure")}
    assert len(found) > 20 and left == {}, left
    assert engine.podman("ps", "--all", "--quiet").stdout == ""
