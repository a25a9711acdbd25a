"""Podman without root: a user of the test's own, who has a home, a range of ids and a storage, and whom the machine's
own files do not know."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from containerlib import MAKE_BASE
from runlib import wait_for

UID, IDS = 47110, 2_000_000_000
IMAGE = "localhost/stile-rootless-base"
# The files in which a system looks up users and their ranges are covered for this process and its children alone.
ENTER = """set -e
for f in passwd group subuid subgid; do mount --bind "$1/etc/$f" "/etc/$f"; done
shift
exec setpriv --reuid "$0" --regid "$0" --clear-groups -- "$@"
"""


class User:
    def __init__(self):
        # Below a folder that everybody may pass, which is not in memory.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stile-rootless-", dir="/var/tmp"))
        self.home, self.runtime, etc = self.folder / "home", self.folder / "run", self.folder / "etc"
        for d in (self.home, self.runtime, etc):
            d.mkdir(mode=0o755)
        self.folder.chmod(0o755)
        for name, row in (("passwd", f"stile-rootless:x:{UID}:{UID}::{self.home}:/bin/sh"),
                          ("group", f"stile-rootless:x:{UID}:")):
            (etc / name).write_text(pathlib.Path(f"/etc/{name}").read_text().rstrip("\n") + f"\n{row}\n")
        for name in ("subuid", "subgid"):
            (etc / name).write_text(f"stile-rootless:{IDS}:65536\n")
        conf = self.home / ".config" / "containers" / "containers.conf"
        conf.parent.mkdir(parents=True)
        conf.write_text('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
                        '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n')
        self.own(self.home, self.runtime)
        self.env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(self.home),
                    "XDG_RUNTIME_DIR": str(self.runtime)}

    def own(self, *paths):
        for top in paths:
            for path in (top, *top.rglob("*")):
                os.chown(path, UID, UID, follow_symlinks=False)

    def run(self, *argv, seconds=180):
        return subprocess.run(["unshare", "--mount", "sh", "-c", ENTER, str(UID), str(self.folder), *map(str, argv)],
                              capture_output=True, text=True, timeout=seconds, cwd=self.home, env=self.env,
                              stdin=subprocess.DEVNULL)

    def why_not(self):
        """Imports the base. What keeps a container from starting here; None: nothing."""
        absent = [t for t in ("newuidmap", "setpriv", "unshare") if not shutil.which(t)]
        if absent:
            return f"{absent[0]} is not installed"
        tar = self.folder / "base.tar"
        subprocess.run([sys.executable, str(MAKE_BASE), str(tar)], check=True, timeout=120)
        for argv in (("import", "--quiet", tar, IMAGE), ("run", "--rm", "--network", "none", IMAGE, "true")):
            got = self.run("podman", *argv)
            if got.returncode != 0:
                return "rootless Podman: " + " / ".join(got.stderr.strip().splitlines()[-2:])
        tar.unlink()
        return None

    def processes(self):
        out = []
        for p in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if p.stat().st_uid in (UID, *range(IDS, IDS + 65536)) and "Z (zombie)" not in (p / "status").read_text():
                    out.append(int(p.name))
            except OSError:
                pass
        return out

    def remove(self):
        """With the process in which Podman keeps its namespaces open."""
        self.run("podman", "system", "migrate")
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.processes())
        shutil.rmtree(self.folder, ignore_errors=True)
