"""A browser: Chromium, without a screen, behind `stile serve` and inside `stile run`. It believes the CA as its user
would have it do: by the certificate database of NSS in HOME. What it looks up on its own account is refused."""

import json
import shutil
import subprocess

import pytest

pytest.importorskip("aiohttp", reason="python3-aiohttp is not installed")

import runlib
from browserlib import Chromium, PageOrigin
from clientlib import run, tool
from stilelib import BIN, Stile, allow, clean_env, wait_for

pytestmark = pytest.mark.xdist_group("chromium")
OWN_NAMES_ONLY = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"  # every name is the proxy's to look up


@pytest.fixture(scope="module")
def page(origin):
    o = PageOrigin(origin.pki)
    yield o
    o.stop()


def rules(page) -> list[dict]:
    return [allow(page.url, f"wss://origin.test:{page.port}"),
            {"deny": [f"{page.url}/no/**", f"wss://origin.test:{page.port}/no/**"]}]


def believe(folder, ca) -> None:
    """As its manual has it: certutil, into the database of the user."""
    database = folder / ".pki" / "nssdb"
    database.mkdir(parents=True)
    run(tool("certutil"), "-d", f"sql:{database}", "-N", "--empty-password")
    run(tool("certutil"), "-d", f"sql:{database}", "-A", "-t", "C,,", "-n", "stile", "-i", ca)


@pytest.fixture(scope="module")
def world_of_all(origin, page, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("stile"), origin, rules=rules(page))
    yield s
    s.finish()


@pytest.fixture
def world(world_of_all):
    return world_of_all.settled()


@pytest.fixture(scope="module")
def browser(world_of_all, tmp_path_factory):
    s, home = world_of_all, tmp_path_factory.mktemp("home")
    believe(home, s.ca)
    with Chromium(tool("chromium"), home, clean_env(HOME=str(home)), f"--proxy-server=http://127.0.0.1:{s.port}",
                  OWN_NAMES_ONLY) as c:
        yield c


def results(c: Chromium) -> dict[str, str]:
    wait_for(lambda: c.evaluate("document.title") == "done", 60, "the page's script has come to its end")
    return c.evaluate("Object.fromEntries([...document.querySelectorAll('dd')].map(d => [d.id, d.textContent]))")


WELL = {"style": "rgb(0, 100, 0)", "get": "data of the origin", "post": "300000 bytes", "many": "30", "stream": "1000000",
        "events": "0,1,2", "socket": "re text,70000,1000", "deniedGet": "403 denied_by_rule",
        "deniedPost": "403 denied_by_rule", "deniedSocket": "1006", "deniedEvents": "2"}


def nothing_else_went(records: list[dict], port: int) -> None:
    allowed = {(r["host"], r["port"]) for r in records if r.get("decision") == "allow"}
    assert allowed == {("origin.test", port)}


def test_a_page(world, browser, page, tmp_path):
    since, first = world.mark(), len(page.seen)
    assert browser.open(f"{page.url}/?other=https://evil.test/x") is None
    got = results(browser)
    assert got == {**WELL, "deniedHost": "error: TypeError"}
    assert browser.screenshot(tmp_path / "page.png").startswith(b"\x89PNG")
    records = world.settled().records(since)
    nothing_else_went(records, page.port)
    ends = [r for r in records if r["event"] == "request.end" and r["scheme"] == "https"]
    assert {r["http"] for r in ends} == {"2"} and not [r for r in ends if "error" in r and r["path"] != "/events"]
    assert next(r for r in ends if r["path"] == "/upload")["bytes_out"] == 300000
    assert [r["http"] for r in records if r["event"] == "request.end" and r["scheme"] == "wss"] == ["2"]
    denied = [(r["method"], r["scheme"], r["path"]) for r in records if r["event"] == "request.deny" and r["host"] == "origin.test"
              and r["path"].startswith("/no/")]
    assert sorted(denied) == [("GET", "https", "/no/data"), ("GET", "https", "/no/events"), ("GET", "wss", "/no/socket"),
                              ("POST", "https", "/no/data")]
    assert [r["reason"] for r in records if r["event"] == "tunnel.deny" and r["host"] == "evil.test"] == ["no_rule"]
    assert not [path for _, path in page.seen[first:] if path.startswith("/no/")]


def test_a_refused_page_says_why(world, browser, page, tmp_path):
    since = world.mark()
    assert browser.open(f"{page.url}/no/page?q=<b>bold</b>") is None
    text = browser.text()
    browser.screenshot(tmp_path / "refused.png")
    record = world.wait_record(since, event="request.deny", path="/no/page")
    assert "denied_by_rule" in text and record["id"] in text and "stile" in text
    assert not browser.evaluate("document.querySelector('b') !== null")


def test_a_host_of_no_rule(world, browser):
    """Of a refused CONNECT no browser shows more than that there was no way; `deny: explain` is for that."""
    since = world.mark()
    assert browser.open("https://evil.test/page") == "net::ERR_TUNNEL_CONNECTION_FAILED"
    assert world.wait_record(since, event="tunnel.deny", host="evil.test")["reason"] == "no_rule"


@pytest.fixture
def sandboxed(origin, page, tmp_path):
    """Chromium in `stile run`. Its HOME and the database of certificates are in the workspace, to which the run's own
    CA is added from within, as any set-up script would."""
    (tmp_path / "stile.yaml").write_text(json.dumps({
        "version": 1, "upstream": {"hosts": {"origin.test": "127.0.0.1"}, "trust": [str(origin.pki / "ca.pem")]},
        "policies": {"default": {"rules": rules(page)}}}))
    script = ('set -e; mkdir -p "$HOME/.pki/nssdb"; certutil -d "sql:$HOME/.pki/nssdb" -N --empty-password; '
              'certutil -d "sql:$HOME/.pki/nssdb" -A -t C,, -n stile -i "$(dirname "$SSL_CERT_FILE")/ca.pem"; exec "$@"')
    tool("certutil")

    def around(command):
        return runlib.argv_of(tmp_path / "log.jsonl", "sh", "-c", script, "sh", *command)

    with Chromium(tool("chromium"), tmp_path, runlib.clean_env(HOME=str(tmp_path)), around=around) as c:
        yield c


def test_in_a_sandbox(sandboxed, page, tmp_path):
    """By the variables of the proxy, which it reads where there is no desktop to ask. A host that no rule allows is
    opened by a certificate of the run, so that the refusal is seen."""
    assert sandboxed.open(f"{page.url}/?other=https://evil.test/x") is None
    got = results(sandboxed)
    assert got == {**WELL, "deniedHost": "opaque"}
    assert sandboxed.open("https://evil.test/page") is None
    assert "no_rule" in sandboxed.text() and "https://evil.test/page" in sandboxed.text()
    sandboxed.screenshot(tmp_path / "refused.png")
    records = [json.loads(x) for x in (tmp_path / "log.jsonl").read_text().splitlines()]
    nothing_else_went(records, page.port)
