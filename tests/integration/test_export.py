"""`stile export`: what comes out of a workspace that somebody hostile has filled."""

import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from runlib import run, wait_for


@pytest.fixture
def work(tmp_path):
    w = tmp_path / "work"
    (w / "out" / "sub").mkdir(parents=True)
    (w / "out" / "a.txt").write_text("one")
    (w / "out" / "sub" / "b.txt").write_text("two")
    (w / "out" / "sub" / "c.bin").write_bytes(bytes(range(256)) * 700)
    (w / "secret.txt").write_text("not asked for")
    return w


def export(binary, work, *patterns, to=None, **more):
    args = [arg for k, v in more.items() for arg in (f"--{k.replace('_', '-')}", str(v))]
    return subprocess.run([binary, "export", "--from", work, "--to", to or work.parent / "to", *args, *patterns],
                          capture_output=True, text=True, timeout=60)


def tree(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(work, got, *texts):
    assert got.returncode == 1, got.stdout
    assert got.stdout == ""
    for text in (*texts, "nothing was exported"):
        assert text in got.stderr, got.stderr
    assert sorted(p.name for p in work.parent.iterdir() if p.name not in ("outside", "outside.txt")) == ["work"]


def test_what_is_named_comes_out(binary, work):
    os.chmod(work / "out" / "a.txt", 0o6755)
    got = export(binary, work, "out/**")
    assert got.returncode == 0, got.stderr
    assert got.stdout == f"exported 3 files, {6 + 256 * 700} bytes, to {work.parent / 'to'}\n"
    out = tree(work.parent / "to")
    listed = out.pop("SHA256SUMS").decode().splitlines()
    assert out == {f"out/{k}": v for k, v in tree(work / "out").items()}
    assert sorted(listed) == sorted(f"{hashlib.sha256(v).hexdigest()}  {k}" for k, v in out.items())
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=work.parent / "to", check=True)
    for p in (work.parent / "to").rglob("*"):
        assert p.stat().st_mode & 0o7777 == (0o755 if p.is_dir() else 0o644), p


@pytest.mark.parametrize("pattern, found", [
    ("out/*", ["a.txt"]), ("out/*.txt", ["a.txt"]), ("out/**/*.txt", ["a.txt", "sub/b.txt"]), ("out/?.txt", ["a.txt"]),
    ("**/b.txt", ["sub/b.txt"]), ("out/[a-c].txt", ["a.txt"]), ("out/sub/**", ["sub/b.txt", "sub/c.bin"]),
    ("**/sub/*.bin", ["sub/c.bin"]), ("out/a.txt", ["a.txt"])])
def test_patterns(binary, work, pattern, found):
    assert export(binary, work, pattern).returncode == 0
    out = tree(work.parent / "to")
    del out["SHA256SUMS"]
    assert sorted(out) == sorted(f"out/{name}" for name in found)


def test_hidden_names_are_spelled(binary, work):
    (work / "out" / ".env").write_text("KEY=1")
    (work / "out" / ".git").mkdir()
    (work / "out" / ".git" / "config").write_text("x")
    assert export(binary, work, "**").returncode == 0
    assert not [name for name in tree(work.parent / "to") if "/." in name]
    assert export(binary, work, "out/.env", "out/.git/*", to=work.parent / "to2").returncode == 0
    assert sorted(tree(work.parent / "to2")) == ["SHA256SUMS", "out/.env", "out/.git/config"]


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../work/out/a.txt", "out//a.txt", "out/", "out/./a.txt", "**b.txt", ""])
def test_patterns_stay_below(binary, work, pattern):
    refused(work, export(binary, work, pattern), "a pattern" if ".." in pattern else "")


def test_a_pattern_without_a_match_is_a_fault(binary, work):
    refused(work, export(binary, work, "out/a.txt", "out/*.pdf"), "out/*.pdf: nothing matches")


def test_a_folder_is_told(binary, work):
    refused(work, export(binary, work, "out"), "out: is a folder (write out/** for all in it)")


def link_to_file(work):
    (work.parent / "outside.txt").write_text("outside")
    (work / "out" / "x").symlink_to(work.parent / "outside.txt")


def link_within(work):
    (work / "out" / "x").symlink_to("a.txt")


def link_dangling(work):
    (work / "out" / "x").symlink_to("nowhere")


def link_to_folder(work):
    (work.parent / "outside").mkdir()
    (work.parent / "outside" / "f").write_text("outside")
    (work / "out" / "x").symlink_to(work.parent / "outside")


def hard_link(work):
    (work.parent / "outside.txt").write_text("outside")
    os.link(work.parent / "outside.txt", work / "out" / "x")


def pipe(work):
    os.mkfifo(work / "out" / "x")


def bound_socket(work):
    here = os.getcwd()
    os.chdir(work / "out")  # a socket's name is short
    try:
        socket.socket(socket.AF_UNIX).bind("x")
    finally:
        os.chdir(here)


def sparse(work):
    with open(work / "out" / "x", "wb") as f:
        f.write(b"a" * 4096)
        f.truncate(1 << 40)


def device(work):
    try:
        os.mknod(work / "out" / "x", 0o20644, os.makedev(1, 5))
    except OSError:
        pytest.skip("needs root with CAP_MKNOD, to make a device file")


@pytest.mark.parametrize("make, said", [
    (link_to_file, "is a symbolic link"), (link_within, "is a symbolic link"), (link_dangling, "is a symbolic link"),
    (link_to_folder, "is a symbolic link"), (hard_link, "has 2 names"), (pipe, "is a pipe"), (bound_socket, "is a socket"),
    (sparse, "what may be exported"), (device, "is a device")])
def test_only_plain_files(binary, work, make, said):
    make(work)
    refused(work, export(binary, work, "out/**"), f"out/x: {said}" if make is not sparse else said)


def test_a_hole_is_refused_within_the_bound(binary, work):
    with open(work / "out" / "x", "wb") as f:
        f.truncate(1 << 20)
    refused(work, export(binary, work, "out/**"), "out/x: is sparse")


def test_a_linked_folder_is_not_entered(binary, work):
    (work.parent / "outside").mkdir()
    (work.parent / "outside" / "a.txt").write_text("outside")
    (work / "via").symlink_to(work.parent / "outside")
    refused(work, export(binary, work, "via/a.txt"), "via: is a symbolic link, and none is followed")
    refused(work, export(binary, work, "via/**"), "via: is a symbolic link")
    assert export(binary, work, "**/a.txt").returncode == 0  # nobody named it, so it is passed by
    assert sorted(tree(work.parent / "to")) == ["SHA256SUMS", "out/a.txt"]


@pytest.mark.parametrize("name, said", [
    ("a\tb", "U+0009"), ("a\nb", "U+000A"), ("a\x1b[31mb", "U+001B"), ("a\x7fb", "U+007F"), ("a\u0085b", "U+0085"),
    ("gnp.\u202etxt", "U+202E"), ("a\u200bb", "U+200B"), ("a\u2028b", "U+2028"), ("a\u00a0b", "looks like a space"),
    ("a\u3000b", "looks like a space"), ("a\ufeffb", "U+FEFF"), ("a\ue000b", "U+E000"),
    ("dot.", "ends in a space or a dot"), ("space ", "ends in a space or a dot"), (" space", "begins with a space"),
    ("-rf", "begins like an option"), ("a\\b", "means something else"), ("a:b", "means something else"),
    ("a*b", "means something else"), ("con", "a device's"), ("NUL.txt", "a device's"), ("com1.log", "a device's"),
    ("lpt9", "a device's"), (b"\xff\xfe", "not UTF-8"), (b"a\xc0\xaf", "not UTF-8")])
@pytest.mark.parametrize("where", ["file", "folder"])
def test_names(binary, work, name, said, where):
    at = os.fsencode(work / "out") + b"/" + (name if isinstance(name, bytes) else name.encode())
    if where == "folder":
        os.mkdir(at)
        at += b"/inner"
    with open(at, "w") as f:
        f.write("x")
    refused(work, export(binary, work, "out/**"), said)


@pytest.mark.parametrize("one, other", [("README", "readme"), ("stra\u00dfe", "STRASSE"), ("\u00e9", "e\u0301"),
                                        ("\u212a", "k"), ("\ufb01x", "fix"), ("D/x", "d/y"), ("File/x", "file")])
def test_names_that_are_one_elsewhere(binary, work, one, other):
    for name in (one, other):
        (work / "out" / name).parent.mkdir(exist_ok=True)
        (work / "out" / name).write_text("x")
    refused(work, export(binary, work, "out/**"), "where case does not count")


def test_the_manifests_own_name(binary, work):
    (work / "sha256sums").write_text("0000  out/a.txt")
    refused(work, export(binary, work, "*"), "kept for the manifest")


def test_all_faults_in_one_run(binary, work):
    for i in range(30):
        (work / "out" / f"l{i}").symlink_to("a.txt")
    got = export(binary, work, "out/**", "missing")
    refused(work, got, "and 11 more")
    assert got.stderr.count("symbolic link") == 20


def test_bounds(binary, work):
    refused(work, export(binary, work, "out/**", max_files=2), "more than 2 files")
    refused(work, export(binary, work, "out/**", max_bytes="100K"), "out/sub/c.bin: is 179200 bytes")
    refused(work, export(binary, work, "out/**", max_bytes=179205), "(--max-bytes)")
    for i, bad in enumerate(("0", "-1", "1T", "", "K")):
        assert export(binary, work, "out/**", max_bytes=bad).returncode == 2
    assert export(binary, work, "out/**", max_bytes=179206).returncode == 0


def test_depth(binary, work):
    at = work
    for _ in range(70):
        at = at / "d"
    at.mkdir(parents=True)
    (at / "f").write_text("x")
    refused(work, export(binary, work, "**"), "folders deep")


def test_the_target(binary, work):
    (work.parent / "to").mkdir()
    got = export(binary, work, "out/**")
    assert got.returncode == 1 and "is there already" in got.stderr
    (work.parent / "to").rmdir()
    (work.parent / "to").symlink_to("elsewhere")
    assert "is there already" in export(binary, work, "out/**").stderr
    (work.parent / "to").unlink()
    for inside in (work / "new", work / "out" / "new", work / "out" / ".." / "new"):
        assert "is within the workspace" in export(binary, work, "out/**", to=inside).stderr
    assert "No such file" in export(binary, work, "out/**", to=work.parent / "none" / "new").stderr
    assert sorted(tree(work)) == ["out/a.txt", "out/sub/b.txt", "out/sub/c.bin", "secret.txt"]


@pytest.mark.parametrize("args", [[], ["--to", "x"], ["x"], ["--to"], ["--what", "x"]])
def test_usage(binary, work, args):
    got = subprocess.run([binary, "export", *args], capture_output=True, text=True, cwd=work, timeout=20)
    assert got.returncode == 2 and "stile help export" in got.stderr


def test_an_interrupt_leaves_nothing(binary, work):
    with open(work / "out" / "big", "wb") as f:
        for _ in range(512):
            f.write(b"x" * (1 << 20))
    for _ in range(10):  # it may have ended before the signal comes
        p = subprocess.Popen([binary, "export", "--from", work, "--to", work.parent / "to", "out/**"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: p.poll() is not None or list(work.parent.glob(".to.*")))
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=30)
        if p.returncode != 0:
            break
        shutil.rmtree(work.parent / "to")
    assert p.returncode == -signal.SIGTERM
    assert sorted(x.name for x in work.parent.iterdir()) == ["work"]


def test_a_tree_that_changes(binary, work):
    """Somebody swaps a file for a link to a secret, and back, all the time: what comes out is never the secret."""
    (work.parent / "outside.txt").write_text("SECRET")
    at, spare = work / "out" / "x", work / "spare"
    at.write_text("plain")
    ended = threading.Event()

    def swap():
        while not ended.is_set():
            spare.symlink_to(work.parent / "outside.txt")
            spare.rename(at)
            os.link(work.parent / "outside.txt", spare)
            spare.rename(at)
            spare.write_text("plain")
            spare.rename(at)
            time.sleep(0.003)  # long enough for an export now and then

    t = threading.Thread(target=swap)
    t.start()
    came, until = 0, time.monotonic() + 4
    try:
        for i in range(200):
            if export(binary, work, "out/**", to=work.parent / f"to{i}").returncode == 0:
                assert tree(work.parent / f"to{i}")["out/x"] == b"plain"
                came += 1
            if time.monotonic() > until and came:
                break
    finally:
        ended.set()
        t.join()
    assert came


def test_run_exports(tmp_path):
    w = tmp_path / "w"
    w.mkdir()
    got = run(tmp_path, "sh", "-c", "mkdir out; echo hi > out/a.txt; echo no > b.txt",
              args=tuple(map(str, ["--workspace", w, "--export", "out/*.txt", "--to", tmp_path / "to"])))
    assert got.returncode == 0, got.stderr
    assert "exported 1 file, 3 bytes" in got.stderr and got.stdout == ""
    assert sorted(tree(tmp_path / "to")) == ["SHA256SUMS", "out/a.txt"]


@pytest.mark.parametrize("script, code", [("echo hi > a.txt; exit 3", 3), ("ln -s /etc/passwd a.txt", 125), ("true", 125)])
def test_run_exports_nothing(tmp_path, script, code):
    w = tmp_path / "w"
    w.mkdir()
    got = run(tmp_path, "sh", "-c", script, args=tuple(map(str, ["--workspace", w, "--export", "a.txt", "--to", tmp_path / "to"])))
    assert got.returncode == code, got.stderr
    assert not (tmp_path / "to").exists()
    assert ("nothing was exported" in got.stderr) == (code == 125)


def test_run_wants_both_flags(tmp_path):
    for options in (["--export", "a"], ["--to", tmp_path / "to"]):
        assert "go together" in run(tmp_path, "true", args=tuple(map(str, options))).stderr
