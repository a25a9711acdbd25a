"""The commands that read a policy and a log: check, explain, test, ca, log; and what the command line says of itself."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import socket
import stat
import subprocess
import termios
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from stilelib import BIN, SANITIZED, TIMEOUT, clean_env, wait_for

RULES = """\
version: 1
ca: {dir: CADIR}
credentials:
  api: {from: {file: secret}, as: bearer}
policies:
  default:
    rules:
      - allow: https://api.test/v1/**
        methods: [GET]
        credential: api
      - allow: pass.test
        tls: passthrough
      - allow: tcp://git.test:22
      - allow: http://plain.test:8000-8999
      - name: docs
        allow: ["docs.test", "*.docs.test"]
      - deny: https://api.test/v1/secret/**
"""
CONFIG = "stile.yaml"


@pytest.fixture
def cli(tmp_path):
    """cli(ARG...) in a folder of its own, in which CONFIG stands; the CompletedProcess."""
    (tmp_path / CONFIG).write_text(RULES.replace("CADIR", str(tmp_path / "ca")))
    with open(os.open(tmp_path / "secret", os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write("canary-of-the-cli")

    def run(*args, stdin=None, code=None, **env):
        r = subprocess.run([BIN, *map(str, args)], cwd=tmp_path, env=clean_env(**env), text=True, capture_output=True,
                           timeout=TIMEOUT, input=stdin)
        assert code is None or r.returncode == code, r
        assert "canary" not in r.stdout + r.stderr
        return r

    run.folder = tmp_path
    return run


def config(cli, text: str, name="other.yaml"):
    (cli.folder / name).write_text(text)
    return name


# ---- check ----


def test_check_of_a_good_file(cli):
    r = cli("check", CONFIG, code=0)
    assert r.stderr == "" and r.stdout == f"{CONFIG}: ok (1 policy, 6 rules, 0 warnings)\n"
    assert cli("check", "-c", CONFIG, code=0).stdout == r.stdout


def test_check_names_every_fault_at_its_place(cli):
    text = """\
version: 2
lisen: [{proxy: 127.0.0.1:3128}]
policies:
  default:
    rules:
      - alow: https://a.test
      - allow: https://b.test
        credential: nope
      - allow: .c.test
      - allow: yes
      - allow: https://0177.0.0.1/
      - allow: http://d.test
        methods: []
"""
    r = cli("check", config(cli, text), code=2)
    got = re.findall(r"^stile: other\.yaml:(\d+):(\d+): (.*)$", r.stderr, re.M)
    assert len(got) == len(r.stderr.splitlines())
    assert [(int(n), int(c)) for n, c, _ in got] == [(1, 10), (2, 1), (6, 9), (8, 21), (9, 16), (10, 16), (11, 16), (13, 18)]
    for (_, _, said), part in zip(got, ["unknown version `2`", "did you mean `listen`?", "did you mean `allow`?",
                                        "no credential is called `nope`", "write *.c.test", 'quote it: "yes"', "0177.0.0.1",
                                        "methods"]):
        assert part in said
    assert r.stdout == ""


def test_check_of_several_files(cli):
    config(cli, "version: 1\nversion: 1\n", "twice.yaml")
    r = cli("check", CONFIG, "twice.yaml", "none.yaml", code=2)
    assert f"{CONFIG}: ok" in r.stdout
    assert "stile: twice.yaml:2:1: " in r.stderr and "stile: none.yaml: cannot be read: No such file" in r.stderr


@pytest.mark.parametrize("rules, warned", [
    (["{allow: 'https://*'}"], [(5, "every host")]),
    (["{allow: a.test, addresses: [0.0.0.0/0]}"], [(5, "every address")]),
    (["{allow: 'https://a.test/v1/**'}", "{allow: 'https://a.test/v1/x'}"], [(6, "line 5 covers it")]),
    (["{allow: a.test}", "{allow: b.test}"], []),
])
def test_warnings(cli, rules, warned):
    text = "version: 1\npolicies:\n  default:\n    rules:\n" + "".join(f"      - {r}\n" for r in rules)
    r = cli("check", config(cli, text), code=0)
    got = re.findall(r"^stile: other\.yaml:(\d+):\d+: warning: (.*)$", r.stderr, re.M)
    assert [int(n) for n, _ in got] == [n for n, _ in warned], r.stderr
    assert all(part in said for (_, said), (_, part) in zip(got, warned))
    assert f", {len(warned)} warning" in r.stdout


def test_a_credential_that_no_rule_uses_is_a_warning(cli):
    text = "version: 1\ncredentials: {t: {from: {env: T}, as: bearer}}\npolicies: {default: {rules: [{allow: a.test}]}}\n"
    r = cli("check", config(cli, text), code=0)
    assert "warning: nothing uses the credential `t`" in r.stderr


def test_check_opens_what_is_trusted(cli):
    (cli.folder / "empty.pem").write_text("no certificate\n")
    text = ("version: 1\npolicies: {default: {rules: [{allow: a.test}]}}\nupstream:\n"
            "  trust: [system, ./gone.pem,\n          empty.pem]\n")
    r = cli("check", config(cli, text), code=2)
    assert re.search(r"^stile: other\.yaml:4:19: .*gone\.pem: .*No such file", r.stderr, re.M), r.stderr
    assert re.search(r"^stile: other\.yaml:5:11: .*empty\.pem: holds no PEM", r.stderr, re.M), r.stderr
    assert r.stdout == ""
    text += "listen: [{proxy: '127.0.0.1:0'}]\nca: {dir: ca}\n"
    r = cli("serve", "-c", config(cli, text), code=1)
    assert re.search(r"^stile: other\.yaml:4:19: upstream\.trust: .*gone\.pem: .*No such file", r.stderr, re.M), r.stderr
    r = cli("check", config(cli, text.replace("system, ./gone.pem,\n          empty.pem", "sytem")), code=2)
    assert "did you mean `system`?" in r.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("to", ["stdout", "log"])
def test_closed_standard_descriptors(cli, closed, to):
    """A socket got the number, and records that were for standard output went to the keeper by it."""
    path = config(cli, "version: 1\npolicies: {default: {rules: [{allow: a.test}]}}\nca: {dir: ca}\n"
                  f"listen: [{{proxy: 'unix:{cli.folder}/sock'}}]\nlog: {{to: {to}}}\n")
    with subprocess.Popen(["sh", "-c", f'exec "$@" {closed}', "sh", BIN, "serve", "-c", path], cwd=cli.folder, env=clean_env(),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        if to == "log" or ">&-" not in closed.split():
            wait_for((cli.folder / "sock").exists)
            s = socket.socket(socket.AF_UNIX)
            s.connect(str(cli.folder / "sock"))
            s.sendall(b"GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n")
            assert b"no_rule" in b"".join(iter(lambda: s.recv(4096), b""))
            s.close()
            p.terminate()
        out, err = p.communicate(timeout=TIMEOUT)
        if to == "stdout" and ">&-" in closed.split():
            assert p.returncode == 1
            assert "2>&-" in closed or "standard output is closed (write `log: {to: FILE}`)" in err
            return
        text = out if to == "stdout" else (cli.folder / "log").read_text()
        assert p.returncode == 0 and [json.loads(x)["event"] for x in text.splitlines()] == [
            "proxy.start", "policy.load", "request.deny", "proxy.stop"]


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("target, what", [("secret", "the file of a credential"), ("other.yaml", "this configuration"),
                                          ("ca/ca.key", "a file of the CA"), ("ca/ca.pem", "a file of the CA"),
                                          ("roots.pem", "a file of `trust`")])
def test_the_log_is_no_other_file_under_another_name(cli, target, what, link):
    text = (RULES.replace("CADIR", "ca").split("\n", 1)[1] + "listen: [{proxy: '127.0.0.1:0'}]\nlog: {to: log}\n"
            "upstream: {trust: [roots.pem]}\n")
    path = config(cli, "version: 1\n" + text)
    cli("ca", "rotate", "-c", path, code=0)
    shutil.copy(cli.folder / "ca/ca.pem", cli.folder / "roots.pem")
    before = (cli.folder / target).read_bytes()
    link(cli.folder / target, cli.folder / "log")
    r = cli("serve", "-c", path, code=1)
    assert f"the log log is {what} under another name" in r.stderr, r.stderr
    assert (cli.folder / target).read_bytes() == before


def test_nobody_is_asked_for_a_passphrase(cli):
    """OpenSSL asks on the terminal for that of a certificate whose header says that it is encrypted, and waits."""
    (cli.folder / "locked.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n"
        "MIIB\n-----END CERTIFICATE-----\n")
    path = config(cli, "version: 1\npolicies: {default: {rules: [{allow: a.test}]}}\nupstream: {trust: [locked.pem]}\n")
    ours, theirs = pty.openpty()
    try:
        r = subprocess.run([BIN, "check", path], stdin=theirs, capture_output=True, cwd=cli.folder, text=True, timeout=TIMEOUT,
                           start_new_session=True, env=clean_env(),
                           preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))  # noqa: PLW1509
        assert select.select([ours], [], [], 0)[0] == []
    finally:
        os.close(ours)
        os.close(theirs)
    assert r.returncode == 2 and "locked.pem: certificate number 1 cannot be read" in r.stderr


def test_a_url_of_an_address_is_no_range(cli):
    text = "version: 1\npolicies: {default: {rules: [{allow: ['https://192.0.2.1/24', '192.0.2.1:443/8', 192.0.2.1/a]}]}}\n"
    cli("check", config(cli, text), code=0)


def test_a_pipe_is_not_waited_for(cli):
    os.mkfifo(cli.folder / "pipe")
    r = cli("check", "pipe", code=2)
    assert r.stderr == "stile: pipe: cannot be read: nothing comes through this pipe\n"
    r = cli("check", "/dev/stdin", stdin=(cli.folder / CONFIG).read_text(), code=0)
    assert "ok (1 policy" in r.stdout


def test_nor_is_one_that_goes_on_and_on(cli):
    """A byte now and then. Who reads a configuration at a reload opens the log and signs leaves, too."""
    os.mkfifo(cli.folder / "pipe")
    over = threading.Event()

    def dribble():
        with open(cli.folder / "pipe", "wb", buffering=0) as p, contextlib.suppress(BrokenPipeError):
            while not over.wait(0.2):
                p.write(b"#")

    writer = threading.Thread(target=dribble)
    writer.start()
    try:
        r = cli("check", "pipe", code=2)
    finally:
        over.set()
        writer.join()
    assert r.stderr == "stile: pipe: cannot be read: this pipe does not come to its end\n"


@pytest.mark.parametrize("text", ["", "- a\n", "version: 1\n  bad: indent\n", "version: [1\n", "\x00", "version: 1\n\tx: 1\n",
                                  "version: 1\npolicies: {default: {rules: [{allow: 'https://a..test'}]}}\n",
                                  "version: 1\npolicies: {default: {rules: [{allow: a.test, deny: b.test}]}}\n",
                                  "version: 1\npolicies: {default: {rules: []}}\nfoo: &x [*x]\n"])
def test_files_that_are_none(cli, text):
    r = cli("check", config(cli, text), code=2)
    assert re.match(r"stile: other\.yaml(:\d+:\d+)?: \S", r.stderr), r.stderr
    assert cli("serve", "-c", "other.yaml", code=2).stderr.splitlines()[0] == r.stderr.splitlines()[0]


def test_messages_cannot_write_on_the_terminal(cli):
    r = cli("check", config(cli, 'version: 1\n"\\e[31mkey\\r": 1\n'), code=2)
    assert "\x1b" not in r.stderr and "\r" not in r.stderr and ":2:1: unknown key" in r.stderr


# ---- explain ----


def explain(cli, *args, code):
    r = cli("explain", *args, code=code)
    assert r.stderr == ""
    return [re.split(r"\s+", x, maxsplit=1) for x in r.stdout.splitlines()]


def test_an_allowed_request(cli):
    assert explain(cli, "-c", CONFIG, "GET", "https://API.test:443/v1/%61?x=1", code=0) == [
        ["allow"], ["request", "GET https://api.test/v1/a?x=1"],
        ["rule", f"{CONFIG}:8: allow https://api.test/v1/** methods GET"],
        ["credential", "api, from the file secret, as Authorization: Bearer"]]


def test_a_rule_with_a_name(cli):
    got = dict(explain(cli, "-c", CONFIG, "PUT", "https://a.b.docs.test/", code=0)[1:])
    assert got["rule"] == f"{CONFIG}:15: docs: allow https://docs.test, https://*.docs.test"


def test_a_request_that_a_rule_denies(cli):
    got = explain(cli, "-c", CONFIG, "GET", "https://api.test/v1/secret/x", code=1)
    assert got[0] == ["deny", "denied_by_rule"]
    assert got[2] == ["rule", f"{CONFIG}:17: deny https://api.test/v1/secret/**"]


@pytest.mark.parametrize("method, url, nearest, differs", [
    ("POST", "https://api.test/v1/a", 8, "its methods are GET, not POST"),
    ("GET", "http://api.test/v1/a", 8, "it admits https://, not http://"),
    ("GET", "https://api.test:8443/v1/a", 8, "it covers port 443, not 8443"),
    ("GET", "https://api.test/v2", 8, "the path /v2 does not match /v1/**"),
    ("GET", "http://plain.test:9000/", 14, "8000"),
    ("GET", "https://pass.test/", 11, "passes TLS through"),
])
def test_the_nearest_rule_and_what_differs(cli, method, url, nearest, differs):
    got = explain(cli, "-c", CONFIG, method, url, code=1)
    assert got[0] == ["deny", "no_rule"]
    rest = dict(got[1:])
    assert rest["nearest"].startswith(f"{CONFIG}:{nearest}: allow ") and differs in rest["differs"]


def test_no_rule_is_near(cli):
    assert ["nearest", "no rule speaks of nowhere.test"] in explain(cli, "-c", CONFIG, "GET", "https://nowhere.test/", code=1)


@pytest.mark.parametrize("method, url, reason", [
    ("TRACE", "https://api.test/v1/a", "method_refused"), ("GET", "https://api.test/a/../b", "ambiguous_url: "),
    ("GET", "https://0x7f.1/", "malformed_request|ambiguous_url"), ("G T", "https://api.test/v1/a", "malformed_request: "),
    ("GET", "https://u:p@api.test/v1/a", "ambiguous_url: "), ("GET", "://api.test", "malformed_request|ambiguous_url"),
])
def test_requests_that_no_rule_could_admit(cli, method, url, reason):
    got = explain(cli, "-c", CONFIG, method, url, code=1)
    assert got[0][0] == "deny" and re.match(reason, got[0][1])


@pytest.mark.parametrize("method, url, rule", [
    ("GET", "https://nowhere.test/a%2Fb?c=d", '{allow: "https://nowhere.test/a%2Fb", methods: [GET]}'),
    ("POST", "https://api.test/v1/a", '{allow: "https://api.test/v1/a", methods: [POST]}'),
    ("GET", "http://[2001:db8::1]:81/", '{allow: "http://[2001:db8::1]:81/", methods: [GET]}'),
    ("ON", "https://a.test/#", None), ("ON", "https://a.test/", '{allow: "https://a.test/", methods: ["ON"]}'),
    ("M-SEARCH", "https://a.test/x:y,{z}", None),
    ("GET", "wss://api.test/v1/a", '{allow: "wss://api.test/v1/a"}'),
    ("GET", "https://a.test/x*y", None), ("GET", "https://pass.test/", None), ("TRACE", "https://a.test/", None),
    ("GET", "https://api.test/v1/secret/x", None),
])
def test_the_rule_that_would_do(cli, method, url, rule):
    """As it is printed it can be added, and then the request is allowed. None where that would not do."""
    r = cli("explain", "-c", CONFIG, method, url, code=1)
    said = re.findall(r"^would do   - (.*)$", r.stdout, re.M)
    assert rule is None or said == [rule], r.stdout
    if said:
        name = config(cli, RULES.replace("CADIR", "ca") + f"      - {said[0]}\n")
        got = cli("explain", "-c", name, method, url).stdout
        assert got.startswith("allow\n") or got.startswith("deny       address_denied\n"), got
    else:
        assert rule is None


@pytest.mark.parametrize("words, said", [
    (["GET", "api.test/v1/a?token=abc"], "the URL has no scheme: write https://"), (["GET", "api.test:443"], "the URL has no scheme"),
    (["https://api.test/v1/a", "GET"], "the METHOD comes first"), (["--policy", "defualt", "GET", "https://a.test/"], "(there is: default)"),
])
def test_slips_in_what_is_explained(cli, words, said):
    r = cli("explain", "-c", CONFIG, *words, code=2)
    assert said in r.stderr and "abc" not in r.stderr and not r.stdout


ADDRESSES = """\
version: 1
upstream: {hosts: {fixed.test: 10.0.0.1, both.test: [10.0.0.1, 192.0.0.192, 8.8.8.8]}}
policies:
  default:
    rules:
      - {allow: ["http://*:*", "https://*:*", "tcp://*:22"]}
      - {allow: "https://in.test", addresses: [10.0.0.0/8]}
"""


def test_an_ipv6_target_is_in_brackets(cli):
    name = config(cli, "version: 1\npolicies: {default: {rules: [{allow: 'tcp://[2600::44]:22'}]}}\n")
    got = explain(cli, "-c", name, "CONNECT", "[2600:0::44]:22", code=0)
    assert got[0] == ["allow", "CONNECT [2600::44]:22"]


@pytest.mark.parametrize("host", ["8.8.8.8", "[2600::44]"])
def test_no_address_is_passed_through(cli, host):
    """It is known by its SNI, which is a name."""
    name = config(cli, f"version: 1\npolicies: {{default: {{rules: [{{allow: '{host}', tls: passthrough}}]}}}}\n")
    assert "warning: this never admits anything: what is passed through is known by its SNI" in cli("check", name, code=0).stderr
    said = cli("explain", "-c", name, "CONNECT", f"{host}:443", code=0).stdout
    assert f"CONNECT {host}:443\ntls        refused: " in said


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "10.9.8.7", "[::1]", "[::ffff:127.0.0.1]", "[fd00:ec2::254]",
                                  "[64:ff9b::7f00:1]", "168.63.129.16", "localhost", "a.LOCALHOST.", "fixed.test", "Fixed.TEST."])
def test_an_address_that_is_known_is_judged(cli, host):
    """What `serve` would refuse without a look-up, neither explain nor test calls allowed."""
    name = config(cli, ADDRESSES + f"    tests: [{{expect: deny, request: 'GET http://{host}/'}}, "
                                   f"{{expect: deny, request: 'CONNECT {host}:443'}}]\n")
    r = cli("explain", "-c", name, "GET", f"http://{host}/x", code=1)
    assert r.stdout.startswith("deny       address_denied\n") and "differs    address " in r.stdout, r
    for port in (443, 80, 22):
        r = cli("explain", "-c", name, "CONNECT", f"{host}:{port}", code=1)
        assert r.stdout.startswith("deny       address_denied: address "), r
    assert cli("test", "-c", name, code=0).stdout == "2 tests, 0 failed\n"


@pytest.mark.parametrize("host", ["8.8.8.8", "[2606:4700::1]", "both.test", "other.test"])
def test_an_address_that_is_public_or_unknown(cli, host):
    name = config(cli, ADDRESSES)
    assert cli("explain", "-c", name, "GET", f"http://{host}/", code=0).stdout.startswith("allow\n")
    assert cli("explain", "-c", name, "CONNECT", f"{host}:22", code=0).stdout.startswith("allow ")


def test_a_file_name_cannot_write_on_the_terminal(cli):
    name = config(cli, RULES.replace("CADIR", "ca") + "    tests: [{request: GET https://docs.test/, expect: deny}]\n", "a\x1b[2J\u009b.yaml")
    said = [cli("check", name, code=0).stdout, cli("test", "-c", name, code=1).stdout, cli("serve", "-c", name, code=2).stderr,
            cli("explain", "-c", name, "GET", "https://docs.test/", code=0).stdout, cli("log", "none" + name, code=1).stderr]
    assert all("a\\x1b[2J\\u009b.yaml" in x and "\x1b" not in x and "\u009b" not in x for x in said), said


@pytest.mark.parametrize("mark", ["\\u009b", "\\u202e", "\\u2028", "\\e", "\\x7f"])
def test_the_name_of_a_rule_cannot_write_on_the_terminal(cli, mark):
    r = cli("check", config(cli, f'version: 1\npolicies: {{default: {{rules: [{{allow: a.test, name: "x{mark}y"}}]}}}}\n'), code=2)
    assert "2:52: `name` holds a control character" in r.stderr


@pytest.mark.parametrize("target, code, said", [
    ("api.test:443", 0, ["allow", "tls        intercepted", ":8: allow", "credential api"]),
    ("pass.test:443", 0, ["tls        passed through; the SNI must be pass.test", ":11: allow"]),
    ("git.test:22", 0, ["tcp        ", ":13: allow tcp://git.test:22"]),
    ("plain.test:8080", 0, ["http       ", ":14: allow http://plain.test:8000-8999"]),
    ("git.test:23", 1, ["deny       no_rule"]),
    ("git.test", 1, ["deny       "]),
])
def test_explain_connect(cli, target, code, said):
    r = cli("explain", "-c", CONFIG, "CONNECT", target, code=code)
    assert all(part in r.stdout for part in said), r.stdout


def test_explain_redacts(cli):
    value = "s3cr3t"
    r = cli("explain", "-c", CONFIG, "GET", f"https://api.test/v1/a?token={value}&x=1&api_key={value}&%74oken={value}", code=0)
    assert value not in r.stdout and "token=[redacted]&x=1&api_key=[redacted]" in r.stdout


def test_explain_reads_no_secret(cli):
    (cli.folder / "secret").unlink()
    assert "credential api, from the file secret" in cli("explain", "-c", CONFIG, "GET", "https://api.test/v1/a", code=0).stdout


def test_explain_in_one_of_several_policies(cli):
    text = "version: 1\npolicies:\n  one: {rules: [{allow: a.test}]}\n  two: {rules: [{allow: b.test}]}\n"
    name = config(cli, text)
    assert explain(cli, "-c", name, "--policy", "two", "GET", "https://b.test/", code=0)[0] == ["allow"]
    assert explain(cli, "-c", name, "--policy", "one", "GET", "https://b.test/", code=1)[0] == ["deny", "no_rule"]
    r = cli("explain", "-c", name, "--policy", "three", "GET", "https://b.test/", code=2)
    assert "three" in r.stderr
    assert cli("explain", "-c", name, "GET", "https://b.test/", code=2).stdout == ""


@pytest.mark.parametrize("args", [[], ["GET"], ["GET", "https://a.test/", "more"]])
def test_explain_wants_two_words(cli, args):
    assert "stile help explain" in cli("explain", *args, code=2).stderr


def test_the_default_file(cli):
    """Without -c: ./stile.yaml."""
    assert cli("explain", "GET", "https://docs.test/", code=0).stdout.startswith("allow")
    (cli.folder / CONFIG).unlink()
    if not os.path.exists("/etc/stile/stile.yaml"):
        assert "no configuration" in cli("explain", "GET", "https://docs.test/", code=2).stderr


# ---- test ----


def with_tests(cli, *tests: str) -> str:
    return config(cli, RULES.replace("CADIR", "ca") + "    tests:\n" + "".join(f"      - {{{t}}}\n" for t in tests))


def test_tests_that_hold(cli):
    name = with_tests(cli, "request: GET https://api.test/v1/a, expect: allow", "request: POST https://api.test/v1/a, expect: deny",
                      "request: GET https://api.test/v1/secret/a, expect: deny", "request: 'CONNECT git.test:22', expect: allow",
                      "request: 'GET https://api.test/a/../v1/a', expect: deny")
    r = cli("test", "-c", name, code=0)
    assert r.stdout == "5 tests, 0 failed\n"


def test_tests_that_fail(cli):
    name = with_tests(cli, "request: GET https://api.test/v1/secret/a, expect: allow", "request: GET https://docs.test/, expect: deny",
                      "request: GET https://docs.test/, expect: allow")
    r = cli("test", "-c", name, code=1)
    assert re.findall(r"^other\.yaml:(\d+):\d+: (.*)$", r.stdout, re.M) == [
        ("19", "GET https://api.test/v1/secret/a is denied (denied_by_rule), not allowed"),
        ("20", "GET https://docs.test/ is allowed, not denied")]
    assert r.stdout.endswith("3 tests, 2 failed\n")


def test_no_tests_at_all_are_no_success_unsaid(cli):
    assert cli("test", "-c", CONFIG, code=0).stdout == "0 tests, 0 failed (no policy has `tests:`)\n"


def test_a_broken_file_is_tested_no_further(cli):
    assert cli("test", "-c", config(cli, "version: 2\n"), code=2).stdout == ""


# ---- ca ----


def ca_of(cli) -> x509.Certificate:
    return x509.load_pem_x509_certificate((cli.folder / "ca" / "ca.pem").read_bytes())


def fingerprint(cert: x509.Certificate) -> str:
    return cert.fingerprint(hashes.SHA256()).hex(":").upper()


def test_ca_rotate_show_and_bundle(cli):
    r = cli("ca", "rotate", "-c", CONFIG, code=0)
    first = ca_of(cli)
    assert stat.S_IMODE((cli.folder / "ca" / "ca.key").stat().st_mode) == 0o600
    assert "PRIVATE" not in r.stdout + r.stderr
    r = cli("ca", "show", "-c", CONFIG, code=0)
    assert fingerprint(first) in r.stdout and f"{cli.folder}/ca/ca.pem" in r.stdout
    assert first.not_valid_after.strftime("%Y-%m-%dT%H:%M:%SZ") in r.stdout
    cli("ca", "rotate", "-c", CONFIG, code=0)
    second = ca_of(cli)
    assert fingerprint(second) != fingerprint(first)
    old = x509.load_pem_x509_certificate((cli.folder / "ca" / "ca.pem.old").read_bytes())
    assert fingerprint(old) == fingerprint(first)
    bundle = cli("ca", "bundle", "-c", CONFIG, code=0).stdout
    assert (cli.folder / "ca" / "ca.pem").read_text().strip() in bundle and "PRIVATE" not in bundle
    cli("ca", "bundle", "-c", CONFIG, "-o", "bundle.pem", code=0)
    assert (cli.folder / "bundle.pem").read_text() == bundle
    certificates = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", bundle, re.S)
    ends = [x509.load_pem_x509_certificate(c.encode()) for c in (certificates[0], certificates[-1])]
    assert fingerprint(second) in map(fingerprint, ends)


def test_ca_show_makes_none(cli):
    r = cli("ca", "show", "-c", CONFIG, code=1)
    assert f"{cli.folder}/ca: cannot open the folder" in r.stderr and "(no CA was made yet: " in r.stderr
    assert not (cli.folder / "ca").exists()


@pytest.mark.parametrize("args", [[], ["frob"], ["show", "bundle"]])
def test_ca_wants_one_of_its_words(cli, args):
    assert "stile help ca" in cli("ca", *args, code=2).stderr


# ---- log ----

RECORDS = [
    {"time": "2026-01-01T00:00:00.000000Z", "event": "proxy.start"},
    {"time": "2026-01-01T00:00:01.000000Z", "event": "request.start", "id": "a", "method": "GET", "scheme": "https",
     "host": "a.test", "port": 443, "path": "/x", "decision": "allow", "rule_at": "s.yaml:3"},
    {"time": "2026-01-01T00:00:02.000000Z", "event": "request.end", "id": "a", "method": "GET", "scheme": "https",
     "host": "a.test", "port": 443, "path": "/x", "decision": "allow", "status": 200, "bytes_in": 5},
    {"time": "2026-01-02T00:00:00.000000Z", "event": "request.deny", "id": "b", "method": "GET", "scheme": "https",
     "host": "b.test", "port": 443, "path": "/\u001b[31m", "decision": "deny", "reason": "no_rule", "status": 403},
    {"time": "2026-01-03T00:00:00.000000Z", "event": "tunnel.deny", "id": "c", "scheme": "tcp", "host": "::1", "port": 22,
     "decision": "deny", "reason": "address_denied"},
]
LOG = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in RECORDS)


@pytest.mark.parametrize("filters, kept", [
    ([], range(5)), (["--event", "request.deny"], [3]), (["--host", "a.test"], [1, 2]), (["--reason", "address_denied"], [4]),
    (["--decision", "deny"], [3, 4]), (["--decision", "allow"], [1, 2]), (["--since", "2026-01-02"], [3, 4]),
    (["--since", "2026-01-01T00:00:02"], [2, 3, 4]), (["--since", "2026-01-01T00:00:02Z"], [2, 3, 4]),
    (["--since", "2026-01-01T00:00:01.5Z"], [2, 3, 4]), (["--host", "A.Test."], [1, 2]), (["--host", "0:0::1"], [4]),
    (["--host", "[::1]"], [4]), (["--decision", "deny", "--host", "b.test"], [3]), (["--host", "z.test"], []),
])
def test_log_filters(cli, filters, kept):
    (cli.folder / "log").write_text(LOG)
    r = cli("log", *filters, "--json", "log", code=0)
    assert r.stdout == "".join(LOG.splitlines(True)[i] for i in kept) and r.stderr == ""
    assert cli("log", *filters, "--json", "-", stdin=LOG, code=0).stdout == r.stdout
    lines = cli("log", *filters, "log", code=0).stdout.splitlines()
    assert [x.split()[:2] for x in lines] == [[RECORDS[i]["time"], RECORDS[i]["event"]] for i in kept]


def test_log_for_reading(cli):
    (cli.folder / "log").write_text(LOG)
    lines = cli("log", "log", code=0).stdout.splitlines()
    assert "GET https://a.test:443/x" in lines[1] and "rule=s.yaml:3" in lines[1] and " 200" in lines[2]
    assert "no_rule" in lines[3] and "[::1]:22" in lines[4]
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("args", [["--event", "request.denied"], ["--reason", "no_rul"], ["--decision", "denied"], ["--frob"],
                                  ["--host"], ["--host", ""], ["--since", ""], ["--since", "yesterday"], ["--since", "2026-1-2"],
                                  ["--since", "2026-01-02T00:00:00+02:00"], ["--since", "2026-01-02 10:00"],
                                  ["--since", "2026-01-02T00:00:00.0000000Z"]])
def test_a_misspelt_filter_is_an_error(cli, args):
    (cli.folder / "log").write_text(LOG)
    r = cli("log", "log", *args, code=2)
    assert r.stdout == "" and args[-1] in r.stderr and "stile help log" in r.stderr


@pytest.mark.parametrize("args, near", [(["--event", "request.denied"], "request.deny"), (["--reason", "norule"], "no_rule")])
def test_the_nearest_word_of_a_filter(cli, args, near):
    assert f"(did you mean `{near}`?)" in cli("log", "log", *args, code=2).stderr


def test_lines_that_are_no_records(cli):
    (cli.folder / "log").write_text(LOG + "not json\n[1]\n{\"event\":\"proxy.stop\"")
    r = cli("log", "--event", "request.deny", "log", code=1)
    assert len(r.stdout.splitlines()) == 1 and "3 lines are not a record" in r.stderr
    assert "No such file" in cli("log", "none", code=1).stderr


def test_log_line_with_a_nul(cli):
    """Half of it must not be printed for the whole."""
    (cli.folder / "log").write_bytes(b'{"event":"request.deny"\x00}\n{"event":"request.end"}\n')
    r = cli("log", "--json", "log", code=1)
    assert r.stdout == '{"event":"request.end"}\n' and "1 line is not a record" in r.stderr


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_a_forged_log_cannot_write_on_the_terminal(cli, args):
    """A file may come from elsewhere: what JSON admits in a text, a terminal may take for a command."""
    marks = "\u009b31m\u202e\u2028\x7f\u2066\u061c"
    record = {"time": "2026-01-01T00:00:00.000000Z", "event": "request.deny", "host": marks, "path": "/" + marks, "error_detail": marks}
    (cli.folder / "log").write_text("\t" + json.dumps(record, ensure_ascii=False) + "\t\r\n")
    out = cli("log", *args, "log", code=0).stdout
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u2028\u202e\u2066]", out), out
    if args:
        assert json.loads(out) == record


def test_a_log_that_cannot_be_read(cli):
    """Nothing printed and a good end would say that nothing happened."""
    (cli.folder / "folder").mkdir()
    assert "folder: Is a directory" in cli("log", "folder", code=1).stderr


def test_a_line_without_end_costs_no_memory(cli):
    (cli.folder / "log").write_text(LOG + "x" * 80_000_000 + "\n" + LOG)
    p = subprocess.run(["sh", "-c", "ulimit -v 60000; exec \"$@\"", "sh", BIN, "log", "log"], cwd=cli.folder, env=clean_env(),
                       text=True, capture_output=True, timeout=TIMEOUT) if not SANITIZED else cli("log", "log", code=1)
    assert p.returncode == 1 and len(p.stdout.splitlines()) == 2 * len(RECORDS) and "1 line is not a record" in p.stderr, p.stderr


def test_log_follows_across_rotation(cli):
    log = cli.folder / "log"
    log.write_text(LOG.splitlines(True)[0])
    p = subprocess.Popen([BIN, "log", "-f", "--json", "log"], cwd=cli.folder, env=clean_env(), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == LOG.splitlines(True)[0]
        with open(log, "a") as f:
            f.write(LOG.splitlines(True)[1])
        assert p.stdout.readline() == LOG.splitlines(True)[1]
        log.rename(cli.folder / "log.1")
        with open(cli.folder / "log.1", "a") as f:
            f.write(LOG.splitlines(True)[2])
        log.write_text(LOG.splitlines(True)[3])
        assert [p.stdout.readline(), p.stdout.readline()] == LOG.splitlines(True)[2:4]
        p.stdout.close()
        wait_for(lambda: p.poll() is not None, why="nobody reads, and it goes on")
    finally:
        p.kill()
        p.wait()
        p.stderr.close()


# ---- the command line itself ----


def test_version_and_help(cli):
    r = cli("--version", code=0)
    assert re.fullmatch(r"stile \d+\.\d+\.\d+\S*\n", r.stdout) and r.stderr == ""
    r = cli("--help", code=0)
    assert r.stderr == "" and r.stdout == cli("help", code=0).stdout
    for command in ("run", "serve", "check", "explain", "test", "log", "ca"):
        assert f"stile {command}" in r.stdout
        helped = cli("help", command, code=0)
        assert helped.stdout.startswith(f"usage: stile {command}") and helped.stderr == ""
        assert cli(command, "--help", code=0).stdout == helped.stdout
    r = cli(code=2)
    assert "stile help CMD" in r.stdout + r.stderr


@pytest.mark.parametrize("given, near", [("serv", "serve"), ("chek", "check"), ("explian", "explain"), ("tset", "test"), ("rnu", "run")])
def test_the_nearest_command(cli, given, near):
    said = f"stile: no such command: {given} (did you mean `stile {near}`?)\n"
    for args in ([given], [given, "-c", CONFIG], ["help", given]):
        r = cli(*args, code=2)
        assert (r.stdout, r.stderr) == ("", said)


def test_a_flag_before_the_command(cli):
    assert "(flags stand behind the command" in cli("-c", CONFIG, "check", code=2).stderr


def test_the_nearest_article(cli):
    assert "(did you mean `stile help yaml`?)" in cli("help", "yml", code=2).stderr


def test_nothing_is_near(cli):
    r = cli("\x1b[31mfrobnicate", code=2)
    assert "\x1b" not in r.stderr and "see `stile --help`" in r.stderr


@pytest.mark.parametrize("command", ["serve", "check", "explain", "test", "log", "ca show"])
@pytest.mark.parametrize("flag", ["--insecure", "--confg", "-k"])
def test_unknown_flags(cli, command, flag):
    """There is no way to weaken a decision from the command line."""
    r = cli(*command.split(), flag, code=2)
    assert r.stdout == "" and f"unknown flag {flag}" in r.stderr and f"stile help {command.split()[0]}" in r.stderr


@pytest.mark.parametrize("command, given, near", [
    ("run", "--alow=x", "--allow"), ("run", "--workspce", "--workspace"), ("run", "--evn", "--env"), ("log", "--jsno", "--json"),
    ("log", "--sicne=2026", "--since"), ("explain", "--polciy", "--policy")])
def test_a_misspelt_flag(cli, command, given, near):
    r = cli(command, given, code=2)
    assert f"unknown flag {given} (did you mean {near}?)" in r.stderr, r.stderr


def test_a_misspelt_flag_of_all(cli):
    assert "did you mean `stile --version`?" in cli("--versoin", code=2).stderr


@pytest.mark.parametrize("command", ["serve", "explain", "test", "ca show"])
def test_a_flag_without_its_value(cli, command):
    r = cli(*command.split(), "-c", code=2)
    assert "-c needs a value" in r.stderr


@pytest.mark.parametrize("args, flag", [
    (["run", "--allow", "--", "true"], "--allow"), (["run", "-c", "--", "true"], "-c"), (["run", "--log", "--allow", "a.test", "true"], "--log"),
    (["explain", "--policy", "--", "GET", "https://a.test/"], "--policy"), (["ca", "bundle", "-o", "--java"], "-o"),
    (["log", "--host", "--json", "log"], "--host"),
])
def test_the_next_flag_is_no_value(cli, args, flag):
    r = cli(*args, code=2)
    assert r.stderr.startswith(f"stile {args[0]}: {flag} needs a value (see ") and not r.stdout


def test_a_value_that_looks_like_a_flag(cli):
    assert "unknown flag" not in cli("log", "--host=--x", "log", code=1).stderr


def test_output_that_cannot_be_written(cli):
    """A full disk behind stdout is a failure, not a success."""
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    (cli.folder / "log").write_text(LOG)
    with open("/dev/full", "w") as full:
        p = subprocess.run([BIN, "log", "log"], cwd=cli.folder, env=clean_env(), stdout=full, stderr=subprocess.DEVNULL,
                           timeout=TIMEOUT)
    assert p.returncode == 1
