"""git over smart HTTP, beside `stile serve` and within `stile run`: pushes larger than any buffer, shallow and incremental
fetches, and rules that let one repository be read and not written."""

import os
import subprocess

import pytest

from gitlib import MIB, GitServer, git, git_env, work_tree
from mirrorlib import WAYS, call, refused
from stilelib import LOOPBACK, SANITIZED, TIMEOUT, Stile, allow


@pytest.fixture(scope="module")
def server(origin, tmp_path_factory):
    s = GitServer(origin, tmp_path_factory.mktemp("served"))
    yield s
    s.close()


@pytest.fixture(scope="module", params=["serve", "run"])
def way_of_all(request, server, origin, tmp_path_factory):
    yes = {"allow": f"{server.base}/yes/**", "addresses": LOOPBACK}
    read = {"allow": [f"{server.base}/read/*/info/refs", f"{server.base}/read/*/git-upload-pack"], "addresses": LOOPBACK}
    denied = {"allow": f"{server.base}/denied/**", "addresses": LOOPBACK}
    w = WAYS[request.param](tmp_path_factory.mktemp(request.param), origin,
                            [yes, read, denied, {"deny": f"{server.base}/denied/*/git-receive-pack"}])
    yield w
    w.close()


@pytest.fixture
def way(way_of_all, server):
    way_of_all.records()
    server.asked.clear()
    return way_of_all


@pytest.fixture
def repository(server, tmp_path):
    """repository(folder): a new repository there; its URL."""
    return lambda folder: server.make(f"{folder}/{tmp_path.name}.git")


def through(way, tree, *args, status=0):
    """git with the way's network. `run` lets no variable through, so that they are given within."""
    tree.mkdir(parents=True, exist_ok=True)
    own = [f"{k}={v}" for k, v in git_env().items() if k.startswith("GIT_")]
    return way.go("env", *own, "git", *args, home=tree, status=status)


def head(tree) -> str:
    return git(tree, "rev-parse", "HEAD")


def test_a_large_push_and_a_shallow_clone(way, server, repository, tmp_path):
    """25 MB, beyond http.postBuffer: in chunks, of no length that anybody knows before. And not in HTTP/2, in which git
    before 2.44 now and then waits for itself (proxy/session/intercept.c)."""
    url, size, since = repository("yes"), 25 * 1000 * 1000, len(way.records())
    tree = work_tree(tmp_path / "work", size)
    through(way, tree, "push", "-q", url, "main")
    assert [h.get("Transfer-Encoding") for h in server.posts("git-receive-pack")].count("chunked") == 1
    for i in range(3):
        git(tree, "commit", "-q", "--allow-empty", "-m", f"more {i}")
    through(way, tree, "push", "-q", url, "main")

    clone = tmp_path / "clone"
    through(way, tmp_path, "clone", "-q", "--depth", "1", url, clone)
    assert git(clone, "rev-list", "--count", "HEAD") == "1" and head(clone) == head(tree)
    assert (clone / "blob").read_bytes() == (tree / "blob").read_bytes()
    through(way, clone, "fetch", "-q", "--unshallow")
    assert git(clone, "rev-list", "--count", "HEAD") == "4"

    ends = [r for r in way.records()[since:] if r["event"] == "request.end"]
    assert {r["status"] for r in ends} == {200} and not [r for r in ends if "error" in r]
    assert {r["http"] for r in ends} == {"1.1"}
    assert max(r["bytes_out"] for r in ends) > size and max(r["bytes_in"] for r in ends) > size


def test_a_push_that_expects_100(way, server, repository, tmp_path):
    url = repository("yes")
    tree = work_tree(tmp_path / "work", 3 * MIB)
    through(way, tree, "-c", "http.extraHeader=Expect: 100-continue", "push", "-q", url, "main")
    assert "100-continue" in [h.get("Expect") for h in server.posts("git-receive-pack")]
    assert git(server.root / url[len(server.base) + 1:], "rev-parse", "main") == head(tree)


def test_a_repository_of_no_rule(way, server, repository, tmp_path):
    """git shows what a refusal says."""
    since = len(way.records())
    got = through(way, tmp_path, "ls-remote", f"{server.base}/other/repo.git", status=128)
    assert "403" in got.said and server.asked == []
    [record] = refused(way, since)
    assert (record["reason"], record["path"]) == ("no_rule", "/other/repo.git/info/refs")
    assert "remote: " in got.said and "no_rule" in got.said and record["id"] in got.said


@pytest.mark.parametrize("folder, reason", [("read", "no_rule"), ("denied", "denied_by_rule")])
def test_reading_and_not_writing(way, server, repository, tmp_path, folder, reason):
    url = repository(folder)
    tree = work_tree(tmp_path / "work", MIB // 2)
    git(tree, "push", "-q", str(server.root / url[len(server.base) + 1:]), "main")
    clone = tmp_path / "clone"
    through(way, tmp_path, "clone", "-q", url, clone)
    (clone / "more").write_bytes(os.urandom(2 * MIB))
    git(clone, "add", ".")
    git(clone, "commit", "-q", "-m", "mine")
    since = len(way.records())
    got = through(way, clone, "push", "-q", "origin", "main", status=1)
    assert "403" in got.said
    record = refused(way, since)[0]
    assert (record["reason"], record["path"], record["method"]) == (reason, url[len(server.base):] + "/git-receive-pack", "POST")
    assert server.posts("git-receive-pack") == []
    through(way, clone, "fetch", "-q")
    assert git(server.root / url[len(server.base) + 1:], "rev-parse", "main") == head(tree)


# ---- what a `stile serve` of the test's own shows ----


@pytest.fixture(scope="module")
def serve(server, origin, tmp_path_factory):
    w = WAYS["serve"](tmp_path_factory.mktemp("alone"), origin, [allow(f"{server.base}/**")])
    yield w
    w.close()


def test_a_large_push_at_once(serve, server, repository, tmp_path):
    """20 MB by Content-Length, as it is below http.postBuffer: no growth of ours, either way."""
    size, url = 20 * 1000 * 1000, repository("yes")
    server.asked.clear()
    tree = work_tree(tmp_path / "work", size)
    before = serve.stile.rss_kib(peak=True)
    through(serve, tree, "-c", f"http.postBuffer={64 * MIB}", "push", "-q", url, "main")
    assert max(int(h.get("Content-Length", 0)) for h in server.posts("git-receive-pack")) > size
    through(serve, tmp_path, "clone", "-q", url, tmp_path / "clone")
    assert (tmp_path / "clone" / "blob").read_bytes() == (tree / "blob").read_bytes()
    if not SANITIZED:  # which keeps what was freed
        assert serve.stile.rss_kib(peak=True) - before < 10 * 1024


def test_fetches_in_small_requests(serve, server, repository, tmp_path):
    """Negotiation: several POSTs, gzip-encoded ones among them, on one connection."""
    url, clone = repository("yes"), tmp_path / "clone"
    server.asked.clear()
    tree = work_tree(tmp_path / "work", 1000)
    through(serve, tree, "push", "-q", url, "main")
    through(serve, tmp_path, "clone", "-q", url, clone)
    for i in range(40):  # one behind the other, so that all are named
        git(clone, "commit", "-q", "--allow-empty", "-m", f"mine {i}", GIT_COMMITTER_DATE=f"@{2000000000 + i} +0000")
    git(tree, "commit", "-q", "--allow-empty", "-m", "theirs")
    through(serve, tree, "push", "-q", url, "main")
    through(serve, clone, "fetch", "-q")
    assert git(clone, "rev-parse", "origin/main") == head(tree)
    assert any((h.get("Content-Encoding") or h.get("content-encoding")) == "gzip" for _, _, h in server.asked)


def test_many_pushes_at_once(serve, server, tmp_path):
    """Each waits for a server that is busy with all of them."""
    n, size, pushes = 4, 6 * MIB, []
    tree = work_tree(tmp_path / "work", size)
    urls = [server.make(f"yes/many{i}.git") for i in range(n)]
    env = git_env(HOME=str(tmp_path), **serve.told)
    for url in urls:
        pushes.append(subprocess.Popen(["git", "-C", tree, "push", "-q", url, "main"], env=env, stdin=subprocess.DEVNULL))
    try:
        assert [p.wait(TIMEOUT * 3) for p in pushes] == [0] * n
    finally:
        for p in pushes:
            p.kill()
            p.wait()
    assert {git(server.root / u[len(server.base) + 1:], "rev-parse", "main") for u in urls} == {head(tree)}


def test_a_git_that_does_not_trust_the_ca(server, origin, tmp_path):
    s = Stile(tmp_path / "stile", origin, rules=[allow(f"{server.base}/**")])
    server.asked.clear()
    url = f"http://127.0.0.1:{s.port}"
    env = git_env(HOME=str(tmp_path), https_proxy=url, HTTPS_PROXY=url, GIT_SSL_CAINFO=str(origin.pki / "ca.pem"))
    got = call("git", "ls-remote", f"{server.base}/yes/x.git", cwd=tmp_path, env=env, status=128)
    assert "certificate" in got.said
    # With GnuTLS it sends no alert: it goes without a word, and the record says what that often means.
    record = s.wait_record(event="tunnel.deny")
    assert record["reason"] in ("leaf_rejected", "client_tls_failed", "client_closed")
    assert "trust the CA" in record["error_detail"]
    assert [r for r in s.records() if r["event"].startswith("request")] == [] and server.asked == []
    s.finish()
