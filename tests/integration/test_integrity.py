"""50 MB up and 50 MB down at the same time, by curl, byte for byte: in HTTP/1.1 on two connections and in HTTP/2 on one, beside
`stile serve` and within `stile run`."""

import hashlib
import json
import os

import pytest

from mirrorlib import WAYS, tool
from stilelib import LOOPBACK

SIZE = 50 * 1000 * 1000
BLOCK = bytes(range(256)) * 256  # what the origin's /bytes and /chunked send, again and again


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A file of random bytes, and its hash."""
    path, bits = tmp_path_factory.mktemp("data") / "up", os.urandom(SIZE)
    path.write_bytes(bits)
    yield path, hashlib.sha256(bits).hexdigest()
    path.unlink()


@pytest.fixture(scope="module", params=["serve", "run"])
def way(request, origin, tmp_path_factory):
    w = WAYS[request.param](tmp_path_factory.mktemp(request.param), origin,
                            [{"allow": f"https://origin.test:{origin.tls}", "addresses": LOOPBACK}])
    yield w
    w.close()


def digest(path) -> str:
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while part := f.read(1 << 20):
            h.update(part)
    return h.hexdigest()


@pytest.mark.parametrize("version, kind", [("1.1", "bytes/%d"), ("2", "chunked?n=%d")])
def test_both_ways_at_once(way, origin, data, tmp_path, version, kind):
    path, sha256 = data
    base, since = f"https://origin.test:{origin.tls}", len(way.records())
    common = ["-q", "-sS", "-Z", "--fail-early", f"--http{version}"]
    up = ["-T", path, "-o", tmp_path / "answer", f"{base}/upload"]
    down = ["-o", tmp_path / "down", f"{base}/{kind % SIZE}"]
    way.go(tool("curl"), *common, *down, "--next", "-sS", f"--http{version}", *up, home=tmp_path)

    answer = json.loads((tmp_path / "answer").read_text())
    del answer["sealed"]
    assert answer == {"bytes": SIZE, "sha256": sha256, "trailers": []}
    whole, rest = divmod(SIZE, len(BLOCK))
    want = hashlib.sha256()
    for _ in range(whole):
        want.update(BLOCK)
    want.update(BLOCK[:rest])
    assert digest(tmp_path / "down") == want.hexdigest()
    (tmp_path / "down").unlink()

    ends = [r for r in way.records()[since:] if r["event"] == "request.end"]
    assert not [r for r in ends if "error" in r] and {r["http"] for r in ends} == {version}
    assert {r["path"]: (r["bytes_out"], r["bytes_in"]) for r in ends} == {
        "/upload": (SIZE, (tmp_path / "answer").stat().st_size), "/" + kind.split("?")[0].replace("%d", str(SIZE)): (0, SIZE)}
    assert len({r["client"] for r in ends}) == (1 if version == "2" else 2)
