"""nghttp and h2load, which know no proxy, by a forwarder: HTTP/2 as another program writes it, with frames that
libraries seldom send, and many streams at once."""

import json
import re

import pytest

from clientlib import Forwarder, run, tool
from stilelib import clean_env


@pytest.fixture
def way(proxy, origin):
    """(the URL's beginning, :authority)"""
    authority = f"origin.test:{origin.tls}"
    with Forwarder(proxy, authority) as f:
        yield f"https://127.0.0.1:{f.port}", authority


def nghttp(way, path: str, *args) -> str:
    url, authority = way
    return run(tool("nghttp"), "-t", 20, "-H", f":authority: {authority}", *args, url + path, env=clean_env()).stdout


@pytest.mark.parametrize("args", [[], ["--continuation"], ["--padding=255"], ["--window-bits=10"],
                                  ["--header-table-size=0"], ["--no-content-length"], ["--expect-continue"]], ids=" ".join)
def test_nghttp(proxy, way, tmp_path, args):
    since = proxy.mark()
    (tmp_path / "body").write_bytes(b"hello" * 20000)
    got = json.loads(nghttp(way, "/upload", "-d", tmp_path / "body", "-H", f"x-long: {'v' * 20000}", *args))
    assert got["bytes"] == 100_000
    if args != ["--expect-continue"]:
        assert nghttp(way, "/ok/a", *args) == "ok /ok/a\n"
        assert json.loads(nghttp(way, "/no/a", "-d", tmp_path / "body", *args))["reason"] == "denied_by_rule"
    records = proxy.settled().records(since)
    assert {r["http"] for r in records if r["event"].startswith("request.")} == {"2"}
    assert not [r for r in records if "error" in r]


def test_nghttp_sends_trailers(proxy, way, tmp_path):
    (tmp_path / "body").write_bytes(b"hello")
    got = json.loads(nghttp(way, "/echo", "-d", tmp_path / "body", "--no-content-length", "--trailer", "x-sum: 5"))
    assert got["body"] == "hello" and [t.lower() for t in got["trailers"]] == ["x-sum: 5"]


@pytest.mark.parametrize("path, more, codes", [
    ("/ok/a", [], "2xx"), ("/ok/a", ["--h1"], "2xx"), ("/bytes/20000", [], "2xx"), ("/upload", ["-d", "BODY"], "2xx"),
    ("/no/a", [], "4xx"), ("/no/a", ["-d", "BODY"], "4xx")])
def test_h2load(proxy, way, tmp_path, path, more, codes):
    (tmp_path / "BODY").write_bytes(bytes(70_000))
    n, since = 200, proxy.mark()
    url, authority = way
    got = run(tool("h2load"), "-n", n, "-c", 4, "-m", 1 if "--h1" in more else 20, *more, "-T", 20,
              f"--connect-to={url.split('//')[1]}", f"https://{authority}{path}", env=clean_env(), cwd=tmp_path).stdout
    assert re.search(rf"{n} done, {n if codes == '2xx' else 0} succeeded, {0 if codes == '2xx' else n} failed, 0 errored, 0 timeout", got), got
    assert re.search(rf"\b{n} {codes}\b", got), got
    records = proxy.settled().records(since)
    kind = "request.end" if codes == "2xx" else "request.deny"
    assert len([r for r in records if r["event"] == kind]) == n and not [r for r in records if "error" in r]
