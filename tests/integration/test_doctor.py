"""`stile doctor`: the clients that are installed, each proved from inside; and what it says of those that do not do
as they should."""

import os
import re
import subprocess

import pytest

import runlib
import stilelib
from stilelib import BIN, TIMEOUT, allow, clean_env

REAL = ["curl", "wget", "git", "python urllib", "python requests", "python httpx", "pip", "node", "npm", "go", "cargo",
        "java", "deno", "bun", "apt"]
MINUTES = 400  # a cold cache of a compiler, on a busy machine


def doctor(*args, status=0, cwd, env):
    got = subprocess.run([str(BIN), "doctor", *map(str, args)], cwd=cwd, env=env, capture_output=True, text=True,
                         timeout=MINUTES, stdin=subprocess.DEVNULL)
    assert got.returncode == status, got.stdout + got.stderr
    return got


def table(text):
    """name -> (version, allowed, denied, advice)"""
    rows = {}
    for line in text.splitlines():
        m = re.match(r"(\S.{15}) (\S+) +(ok|answered|refused|untrusted|no way|timeout|failed) +"
                     r"(ok|answered|refused|untrusted|no way|timeout|failed) ?(.*)$", line)
        if m:
            rows[m.group(1).strip()] = m.groups()[1:]
    return rows


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("doctor")
    o = runlib.Origin(tmp)
    (tmp / "stile.yaml").write_text(f"""version: 1
upstream: {{trust: [{o.ca}], hosts: {{allowed.test: 127.0.0.1}}}}
policies:
  default:
    rules: [{{allow: "https://allowed.test:{o.port}/some/**", addresses: [127.0.0.0/8]}}]
""")
    yield tmp, o
    o.close()


@pytest.mark.parametrize("name", REAL)
def test_in_a_sandbox(sandbox, name):
    tmp, o = sandbox
    # The compiler's caches are kept: HOME is the caller's own.
    got = subprocess.run(runlib.argv_of(tmp / f"log-{name}", BIN, "doctor", "--client", name), cwd=tmp,
                         env=clean_env(HOME=os.environ.get("HOME", str(tmp))), capture_output=True, text=True,
                         timeout=MINUTES, stdin=subprocess.DEVNULL)
    assert got.stdout.startswith(f"allowed: https://allowed.test:{o.port}/some/\n"), got.stderr
    if "not installed" in got.stdout:
        assert got.returncode == 1 and "0 of 0" in got.stdout
        pytest.skip(f"{name} is not installed")
    version, allowed, denied, _ = table(got.stdout)[name]
    numbers = [int(n) for n in re.findall(r"\d+", version)]
    if name == "cargo" and numbers < [1, 68]:
        pytest.skip(f"cargo {version} reads no registry over HTTP (since 1.68)")
    assert got.returncode == 0 and (allowed, denied) == ("ok", "ok"), got.stdout
    assert "1 of 1 as it should be" in got.stdout


def test_beside_serve(stile, tmp_path):
    """With what `ca bundle` and `ca env` give, and without each half of it."""
    s = stile(rules=[allow("https://origin.test:*")])
    trust = tmp_path / "trust"
    subprocess.run([str(BIN), "ca", "bundle", "-c", str(s.config), "--dir", str(trust)], check=True, timeout=TIMEOUT,
                   env=clean_env())
    text = subprocess.run([str(BIN), "ca", "env", "--dir", str(trust), "--proxy", f"http://127.0.0.1:{s.port}"],
                          check=True, timeout=TIMEOUT, env=clean_env(), capture_output=True, text=True).stdout
    env = {**clean_env(HOME=str(tmp_path)), **dict(x.split("=", 1) for x in text.splitlines())}
    args = ["--allowed", f"https://origin.test:{s.origin.tls}/status/404"]
    for name in ("curl", "git", "python urllib", "python requests"):
        args += ["--client", name]
    rows = table(doctor(*args, cwd=tmp_path, env=env).stdout)
    assert len(rows) == 4 and all(r[1:3] == ("ok", "ok") for r in rows.values())
    untrusting = {k: v for k, v in env.items() if str(trust) not in v}
    rows = table(doctor(*args, cwd=tmp_path, env=untrusting, status=1).stdout)
    assert {k: r[1:3] for k, r in rows.items()} == {k: ("untrusted", "ok") for k in rows}
    assert "GIT_SSL_CAINFO" in rows["git"][3] and "REQUESTS_CA_BUNDLE" in rows["python requests"][3]
    wayless = {k: v for k, v in env.items() if "roxy" not in k.lower()}
    rows = table(doctor(*args, cwd=tmp_path, env=wayless, status=1).stdout)
    assert {k: r[1:3] for k, r in rows.items()} == {k: ("no way", "no way") for k in rows}
    assert all("stile ca env" in r[3] for r in rows.values())


# ---- clients that are none ----


@pytest.fixture
def fake(tmp_path):
    """fake(SCRIPT): the table's row of a curl that is that shell script; $url is what it is asked for."""
    (tmp_path / "bin").mkdir()

    def run(script, status=1, denied="https://no.test/"):
        curl = tmp_path / "bin" / "curl"
        curl.write_text("#!/bin/sh\nfor url; do :; done\ncase $* in *--version*) echo curl 9.8.7 x; exit;; esac\n"
                        + script + "\n")
        curl.chmod(0o755)
        env = clean_env(HOME=str(tmp_path))
        env["PATH"] = f"{tmp_path}/bin:/usr/bin:/bin"
        got = doctor("--client", "curl", "--allowed", "https://yes.test/", "--denied", denied, cwd=tmp_path, env=env,
                     status=status)
        return table(got.stdout)["curl"], got.stdout

    return run


BY_STILE = "echo 'proxy-status: stile; error=http_request_denied; details=\"no_rule\"'; echo; echo status 403"


@pytest.mark.parametrize("script, allowed, denied", [
    (f"case $url in *yes*) echo; echo status 200;; *) {BY_STILE};; esac", "ok", "ok"),
    (f"case $url in *yes*) echo; echo status 404;; *) {BY_STILE};; esac", "ok", "ok"),
    ("case $url in *yes*) echo; echo status 200;; *) echo 'tunnel failed, response 403'; exit 56;; esac", "ok", "ok"),
    ("echo; echo status 200", "ok", "answered"),
    ("echo; echo status 000; echo 'tunnel failed, response 403'; exit 56", "refused", "ok"),
    (BY_STILE, "refused", "ok"),
    ("echo; echo status 000; echo 'SSL certificate problem'; exit 60", "untrusted", "untrusted"),
    ("echo 'Could not resolve host'; exit 6", "no way", "no way"),
    ("echo 'Network is unreachable'; exit 7", "no way", "no way"),
    ("exit 3", "failed", "failed"),
    ("echo 'unknown option'; exit 2", "failed", "failed"),
    ("echo '  File \"resolver.py\", line 73, in resolve'; exit 2", "failed", "failed"),
])
def test_verdicts(fake, script, allowed, denied):
    row, text = fake(script, status=0 if (allowed, denied) == ("ok", "ok") else 1)
    assert row[:3] == ("9.8.7", allowed, denied)
    assert bool(row[3]) == ((allowed, denied) != ("ok", "ok"))
    assert ("IT GOT OUT" in text) == (denied == "answered")


def test_the_reason_of_stile_is_said(fake):
    row, _ = fake(BY_STILE.replace("no_rule", "dns_failed").replace("403", "502"))
    assert row[1] == "refused" and "stile says dns_failed: " in row[3]
    row, _ = fake("echo 'remote: stile could not complete this request.'; echo 'remote: reason: dns_failed'; exit 1")
    assert row[1:3] == ("refused", "ok") and "stile says dns_failed: " in row[3]


def test_of_a_long_story_the_lines_that_show_why(fake):
    _, text = fake("seq 50; echo 'x Could not resolve host: a'; seq 50; exit 6")
    assert [x for x in text.splitlines() if x.startswith("    | ")] == ["    | x Could not resolve host: a"] * 2


def test_words_of_the_url_are_no_evidence(fake):
    row, _ = fake("echo \"cannot fetch $url\"; exit 1", denied="https://by.stile.test/403/by%20stile")
    assert row[1:3] == ("failed", "failed")


def test_what_a_client_says_cannot_write_on_the_terminal(fake):
    _, text = fake("printf 'x\\033[2Jy\\r\\n'; exit 1")
    assert "\x1b" not in text and "\r" not in text and "[2Jy" in text


def test_a_client_without_end_of_talk(fake):
    row, text = fake("yes 'nothing of use' | head -c 3000000; exit 1")
    assert row[1:3] == ("failed", "failed") and len(text) < 20000


def test_what_a_client_leaves_behind_is_ended(fake, tmp_path):
    marker = f"9{os.getpid()}.5"
    fake(f"sleep {marker} >/dev/null 2>&1 & exit 1")
    runlib.wait_for(lambda: not runlib.processes(marker))
    assert not list(tmp_path.glob("stile-doctor-*"))


# ---- the command line ----


def test_nothing_is_installed(tmp_path):
    env = {**clean_env(HOME=str(tmp_path)), "PATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    got = doctor("--allowed", "https://a.test/", cwd=tmp_path, env=env, status=1)
    assert got.stdout.count("not installed") == len(REAL) and "0 of 0" in got.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rules, url", [
    (["a.test"], "https://a.test/"),
    (["http://a.test", "tcp://b.test:443", "*.c.test", "d.test:8443"], "https://d.test:8443/"),
    (["https://a.test/x/**", "b.test"], "https://a.test/x/"),
    (["https://a.test/x/y*/z"], None),
    (["https://a.test/x/*/z", "https://a.test/x/*"], "https://a.test/x/"),
    (["https://a.test/x/y"], "https://a.test/x/y"),
    (["https://a.test/x*", "b.test"], "https://b.test/"),
    (["*.c.test"], None),
])
def test_an_allowed_url_out_of_the_policy(tmp_path, rules, url):
    # What stands in front of a wildcard is not always allowed itself; then the next rule is taken.
    (tmp_path / "stile.yaml").write_text("version: 1\npolicies: {default: {rules: [{allow: ["
                                         + ", ".join(f'"{r}"' for r in rules) + "]}]}}\n")
    env = {**clean_env(HOME=str(tmp_path)), "PATH": str(tmp_path)}
    got = doctor(cwd=tmp_path, env=env, status=1 if url else 2)
    assert (f"allowed: {url}\n" in got.stdout) if url else ("--allowed" in got.stderr)


def test_a_url_that_another_rule_denies_is_not_taken(tmp_path):
    (tmp_path / "stile.yaml").write_text("version: 1\npolicies: {default: {rules: [{allow: [a.test, b.test]}, "
                                         "{deny: a.test}, {allow: c.test, methods: [POST]}]}}\n")
    env = {**clean_env(HOME=str(tmp_path)), "PATH": str(tmp_path)}
    assert "allowed: https://b.test/\n" in doctor(cwd=tmp_path, env=env, status=1).stdout


@pytest.mark.parametrize("args", [[], ["--allowed", "nowhere"], ["--allowed", "https://a.test/", "--denied", "x"],
                                  ["--client", "crul"], ["--client"], ["extra"], ["-c", "/nonexistent"],
                                  ["--allowed", "https://a.test/", "--json"], ["--allowed", "https://a.test/", "--way", "ipv4"],
                                  ["--escape", "--client", "curl"]])
def test_wrong_usage(tmp_path, args):
    got = doctor(*args, cwd=tmp_path, env=clean_env(HOME=str(tmp_path)), status=2)
    assert got.stdout == "" and "stile" in got.stderr
    if "--json" in args or "--way" in args:
        assert "goes with --escape" in got.stderr
    if args == ["--client", "crul"]:
        assert "`curl`" in got.stderr


def test_the_manual_names_every_client():
    text = (stilelib.REPO / "proxy/man/stile.1").read_text().lower()
    section = text.split("\n.ss doctor\n")[1].split("\n.ss ")[0]
    for name in REAL:
        assert name.split()[-1] in section, name
