"""Podman for the container tests: its own storage under build-containers, a base image made of
this machine's packages (once), stile's image built from the Dockerfile (once a session). Nothing is pulled."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
CACHE = REPO / "build-containers"
DOCKER = REPO / "docker"
LAUNCHER = DOCKER / "sandbox"
BASE, IMAGE = "localhost/stile-test-base", "localhost/stile-test"
MAKE_BASE = REPO / "tests" / "containers" / "base.py"
TIMEOUT = 180


def missing():
    """Why the tests with containers cannot run here; None: they can, as far as that is known."""
    if "STILE_CONTAINERS" not in os.environ:
        return "needs a container engine: `make containers` runs it"
    if os.geteuid() != 0:
        return "needs root"
    absent = [t for t in ("podman", "runc") if not shutil.which(t)]
    return f"{' and '.join(absent)} not installed (install-deps.sh containers)" if absent else None


class Engine:
    def __init__(self):
        CACHE.mkdir(parents=True, exist_ok=True)
        # The storage remembers where this was, so it is the same folder each time.
        mark = hashlib.sha256(str(CACHE).encode()).hexdigest()[:12]
        self.runroot = runroot = pathlib.Path("/run") / f"stile-test-{mark}"
        conf, storage, networks = runroot / "containers.conf", runroot / "storage.conf", runroot / "networks"
        networks.mkdir(parents=True, exist_ok=True)
        # An own storage, so that nothing of the machine's is touched; limits that every machine can give.
        conf.write_text('[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
                        f'tmp_dir = "{runroot}/libpod"\n'
                        '[containers]\ndefault_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]\n'
                        f'[network]\nnetwork_config_dir = "{networks}"\n')
        storage.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{CACHE}/storage"\nrunroot = "{runroot}/run"\n')
        self.env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(runroot), "CONTAINERS_CONF": str(conf),
                    "CONTAINERS_STORAGE_CONF": str(storage)}

    def call(self, *argv, check=True, **more):
        got = subprocess.run([str(a) for a in argv], capture_output=True, text=True,
                             timeout=more.pop("timeout", TIMEOUT), env={**self.env, **more.pop("env", {})},
                             **{"stdin": subprocess.DEVNULL, **more})
        assert not check or got.returncode == 0, f"{argv}: {got.returncode}\n{got.stdout[-2000:]}\n{got.stderr[-4000:]}"
        return got

    def podman(self, *argv, **more):
        return self.call("podman", *argv, **more)

    def make_base(self):
        """The base image, made anew when the packages have changed."""
        made_of = (MAKE_BASE, REPO / "tests" / "install-deps.sh", pathlib.Path("/var/lib/dpkg/status"))
        key = hashlib.sha256(b"".join(p.read_bytes() for p in made_of)).hexdigest()
        note = CACHE / "base.key"
        there = self.podman("image", "exists", BASE, check=False).returncode == 0
        if there and note.exists() and note.read_text() == key:
            return
        tar = CACHE / "base.tar"
        # A real installation; where Debian cannot be reached, what this machine has.
        if not shutil.which("mmdebstrap") or self.call(sys.executable, MAKE_BASE, "--debootstrap", tar, check=False,
                                                       env=os.environ).returncode != 0:
            print("containers: no Debian could be installed; the base is of this machine's packages")
            self.call(sys.executable, MAKE_BASE, tar)
        self.podman("rmi", "--force", BASE, check=False)
        self.podman("import", "--quiet", tar, BASE)
        tar.unlink()
        note.write_text(key)

    def why_not(self, runtime):
        """What the engine says where a container of that runtime does not start; None: it does."""
        if not shutil.which(runtime):
            return f"{runtime} is not installed"
        got = self.podman("--runtime", runtime, "run", "--rm", "--network", "none", BASE, "true", check=False)
        return None if got.returncode == 0 else f"{runtime}: {' / '.join(got.stderr.strip().splitlines()[-2:])}"

    def build(self):
        self.podman("build", "--quiet", "--format", "docker", "--network", "none", "--ulimit", "nofile=4096:4096",
                    "--ulimit", "nproc=4096:4096", "--build-arg", f"BASE={BASE}", "--build-arg",
                    "REVISION=of-the-test", "-f", DOCKER / "Dockerfile", "-t", IMAGE, REPO, timeout=900)

    def remove(self):
        """All but the base."""
        self.podman("rm", "--all", "--force", "--volumes", "--time", "0", check=False)
        self.podman("rmi", "--force", IMAGE, check=False)
        self.podman("image", "prune", "--force", check=False)
        self.podman("volume", "prune", "--force", check=False)
        self.podman("network", "prune", "--force", check=False)


@pytest.fixture(scope="session")
def engine():
    if why := missing():
        pytest.skip(why)
    e = Engine()
    try:
        e.make_base()
        if why := e.why_not("runc"):
            pytest.skip(f"no container starts here: {why}")
        yield e
    finally:
        e.remove()
        # What the storage has mounted for itself.
        subprocess.run(["umount", "--quiet", str(CACHE / "storage" / "overlay")], capture_output=True)
        shutil.rmtree(e.runroot, ignore_errors=True)


@pytest.fixture(scope="session")
def image(engine):
    engine.build()
    return IMAGE
