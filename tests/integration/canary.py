"""Secrets that tests make up, and the search for them in all that stile has left behind.

`made_up()` gives one, `register(secret)` takes one that a test made otherwise. At the end of the session each file that
stile could have written below the folders of the tests (logs, what went to stderr, cores, the CA's folder, what a
sandbox wrote) is searched for each of them, plain and as Basic, base64 and percent-encoding would show it. A file that
is itself where stile reads the secret from is not searched: `source(path)`."""

import base64
import mmap
import pathlib
import re
import secrets
import urllib.parse

LEAST = 12  # bytes: what is shorter could be anywhere by chance
# What stile or a sandbox writes. Scripts, helpers and what an origin wrote down hold secrets by their nature.
WRITTEN = re.compile(r"(\.jsonl(\..*)?|\.log(\..*)?|\.stderr|^core(\..*)?|\.core|^ca\.(pem|key)|\.pem\.old|"
                     r"\.stdout|^run\..*)$")

_secrets: set[bytes] = set()
_sources: set[pathlib.Path] = set()


def register(secret: str | bytes) -> str | bytes:
    data = secret.encode() if isinstance(secret, str) else secret
    if len(data) >= LEAST:
        _secrets.add(data)
    return secret


def made_up(prefix: str = "canary") -> str:
    """A secret of this run alone."""
    return register(f"{prefix}-{secrets.token_hex(12)}")


def source(path: pathlib.Path) -> pathlib.Path:
    _sources.add(pathlib.Path(path).resolve())
    return path


def forms(secret: bytes) -> set[bytes]:
    """The spellings that it would have on its way. Base64 at each of the three places where it can begin."""
    out = {secret, urllib.parse.quote_from_bytes(secret, safe="").encode()}
    for shift in range(3):
        text = base64.b64encode(b"x" * shift + secret)
        # The ends depend on what stands beside it.
        out.add(text[4 if shift else 0:len(text) - 4])
    return {f for f in out if len(f) >= LEAST}


def found_in(data, wanted: set[bytes]) -> bytes | None:
    return next((s for s in wanted if any(data.find(f) >= 0 for f in forms(s))), None)


def search(folder: pathlib.Path, wanted: set[bytes] | None = None) -> list[str]:
    """Where a secret stands that must not: file, and which secret (its first bytes)."""
    wanted = _secrets if wanted is None else wanted
    bad = []
    for path in folder.rglob("*"):
        try:
            if path.is_symlink() or not path.is_file() or not WRITTEN.search(path.name):
                continue
            if path.resolve() in _sources or path.stat().st_size == 0:
                continue
            with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                which = found_in(data, wanted)
        except (FileNotFoundError, PermissionError):
            continue
        if which:
            bad.append(f"{path}: {which[:10]!r}...")
    return bad


def memory(pid: int) -> bytes:
    """What lies in the memory of a process, as root may see it."""
    out = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as mem:
        for line in maps:
            m = re.match(r"([0-9a-f]+)-([0-9a-f]+) r", line)
            if m and "[v" not in line:
                start, end = (int(x, 16) for x in m.groups())
                if end - start > 1 << 28:  # a sanitizer's own
                    continue
                try:
                    mem.seek(start)
                    out.append(mem.read(end - start))
                except (OSError, ValueError, OverflowError):
                    pass
    return b"".join(out)


def process_shows(pid: int, wanted: set[bytes] | None = None) -> list[str]:
    """What `ps`, /proc/PID/environ and its like say of a process (as root: all of it)."""
    bad = []
    for name in ("cmdline", "environ", "comm", "maps", "status"):
        try:
            data = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:
            continue
        if found_in(data, _secrets if wanted is None else wanted):
            bad.append(f"/proc/{pid}/{name}")
    return bad
