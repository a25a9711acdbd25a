"""HTTP libraries of Python and Node, each beside `stile serve` and within `stile run`: GET, an upload of 5 MiB, events that
are read one by one, and a refusal whose reason the program can read. The programs are in tests/clients."""

import json
import subprocess

import pytest

from mirrorlib import WAYS, tool
from stilelib import LOOPBACK, PYTHON, REPO

PYTHON_LIBRARIES = {"urllib": None, "requests": "requests", "pip": "pip", "httpx": "httpx", "aiohttp": "aiohttp"}
NODE_LIBRARIES = ["fetch", "undici-env", "undici-proxy", "https-proxy-agent", "axios"]
MODULES = REPO / "build" / "clients" / "node" / "node_modules"


@pytest.fixture(scope="module", params=["serve", "run"])
def way(request, origin, tmp_path_factory):
    base = f"https://origin.test:{origin.tls}"
    rules = [{"allow": base, "addresses": LOOPBACK}, {"deny": f"{base}/no/**"}]
    w = WAYS[request.param](tmp_path_factory.mktemp(request.param), origin, rules)
    yield w
    w.close()


def check(way, origin, tmp_path, *program) -> None:
    """Runs it and looks at what it printed: our answer to what a rule denies, and what became of another host."""
    since = len(way.records())
    base = f"https://origin.test:{origin.tls}"
    said = way.go(*program, base, "https://evil.test", origin.control, home=tmp_path).stdout.decode()
    why, other, *_ = [line for line in said.splitlines() if line]
    records = way.records()[since:]
    denied = next(r for r in records if r.get("path") == "/no/a")
    assert json.loads(why)["id"] == denied["id"] and denied["event"] == "request.deny"
    if way.kind == "run":  # which opens what it refuses, to say why
        assert other.startswith("answered 403") and '"reason":"no_rule"' in other
    else:
        # undici's fetch knows and does not tell.
        assert "403" in other or "Request was cancelled" in other, other
    assert {r["reason"] for r in records if r.get("host") == "evil.test"} == {"no_rule"}
    ends = [r for r in records if r["event"] == "request.end"]
    assert {r["status"] for r in ends} == {200} and not [r for r in ends if "error" in r]
    assert [r["bytes_out"] for r in ends if r["path"] == "/upload"] == [5 << 20]


@pytest.mark.parametrize("library", PYTHON_LIBRARIES)
def test_python(way, origin, tmp_path, library):
    module = PYTHON_LIBRARIES[library]
    if module and subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(f"Python's {module} is not installed")
    check(way, origin, tmp_path, PYTHON, REPO / "tests" / "clients" / "python" / "client.py", library)


@pytest.mark.parametrize("library", NODE_LIBRARIES)
def test_node(way, origin, tmp_path, library):
    node = tool("node")
    if library == "fetch":
        knows = subprocess.run([node, "-p", "process.allowedNodeEnvironmentFlags.has('--use-env-proxy')"],
                               capture_output=True, text=True).stdout.strip()
        if knows != "true":
            pytest.skip("this Node does not honour NODE_USE_ENV_PROXY (since 22.21 and 24.0)")
    elif not (MODULES / "fetched.json").exists():
        pytest.skip("Node's packages are not there (tests/install-deps.sh test fetches them)")
    check(way, origin, tmp_path, "env", f"NODE_PATH={MODULES}", node, REPO / "tests" / "clients" / "node" / "client.js", library)
