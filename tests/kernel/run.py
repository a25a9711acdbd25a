#!/usr/bin/python3
"""`stile run` on a kernel of its own: Debian's, in a virtual machine, with control groups of version 2 alone.

    run.py --build DIR [--kernel FILE] [TEST...]

Makes an initramfs of busybox, stile, its libraries and inside.sh, starts it with qemu (by KVM if there is one that
can be used, else in software), and passes on what inside.sh says. Exits with 1 if a test failed or the machine did
not come to its end."""

import argparse
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 600
MEMORY_MIB = 768


def fail(why):
    sys.exit(f"kernel: {why}")


class Initramfs:
    """The kernel's own format of an archive (newc), so that no file has to be owned by anybody here."""

    def __init__(self):
        self.parts = []
        self.dirs = set()
        self.n = 0

    def entry(self, name, mode, data=b"", rdev=(0, 0)):
        self.n += 1
        name = name.strip("/").encode() + b"\0"
        fields = (self.n, mode, 0, 0, 1, 0, len(data), 0, 0, *rdev, len(name), 0)
        head = b"070701" + b"".join(b"%08x" % f for f in fields) + name
        self.parts += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]

    def folder(self, path, mode=0o755):
        path = pathlib.PurePosixPath("/") / path
        for d in [*reversed(path.parents), path]:
            if str(d) not in self.dirs and str(d) != "/":
                self.dirs.add(str(d))
                self.entry(str(d), 0o040000 | (mode if d == path else 0o755))

    def file(self, name, data, mode=0o644):
        self.folder(pathlib.PurePosixPath(name).parent)
        self.entry(name, 0o100000 | mode, data)

    def write(self, path):
        self.entry("TRAILER!!!", 0)
        with gzip.open(path, "wb", compresslevel=1) as f:
            f.write(b"".join(self.parts))


def libraries(program):
    out = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", out)


def make_initramfs(build, tests, out):
    a = Initramfs()
    busybox = shutil.which("busybox") or fail("no busybox (install busybox-static)")
    programs = {"/usr/bin/stile": build / "stile", "/usr/bin/setpriv": shutil.which("setpriv") or fail("no setpriv")}
    a.file("/bin/busybox", pathlib.Path(busybox).read_bytes(), 0o755)
    for name, path in programs.items():
        a.file(name, pathlib.Path(path).read_bytes(), 0o755)
    for lib in sorted({lib for path in programs.values() for lib in libraries(path)}):
        a.file(lib, pathlib.Path(lib).read_bytes(), 0o755)
    a.file("/init", (HERE / "init.sh").read_bytes(), 0o755)
    a.file("/inside.sh", (HERE / "inside.sh").read_bytes(), 0o755)
    a.file("/tests", " ".join(tests).encode())
    a.file("/etc/passwd", b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n")
    a.file("/etc/group", b"root:x:0:\nuser:x:1000:\n")
    a.file("/etc/ssl/certs/ca-certificates.crt", pathlib.Path("/etc/ssl/certs/ca-certificates.crt").read_bytes())
    for d in ("/proc", "/sys", "/dev", "/run", "/root", "/home/user", "/var/tmp", "/usr/sbin", "/sbin"):
        a.folder(d)
    a.folder("/tmp", 0o1777)
    a.entry("/dev/console", 0o020600, rdev=(5, 1))
    a.write(out)


def kvm():
    """Where the processor does not help with it, /dev/kvm may be there and is no good for a whole kernel."""
    flags = re.findall(r"^flags\s*:(.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[:1]
    if not flags or not {"vmx", "svm"} & set(flags[0].split()):
        return False
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR))
        return True
    except OSError:
        return False


def boot(kernel, initramfs):
    qemu = shutil.which("qemu-system-x86_64") or fail("no qemu-system-x86_64 (install qemu-system-x86)")
    # Software emulation knows no more than this; a machine with KVM shows its own processor.
    how = ["-accel", "kvm", "-cpu", "host"] if kvm() else ["-accel", "tcg,thread=multi", "-cpu", "max"]
    return subprocess.Popen(
        [qemu, "-machine", "q35", *how, "-smp", "2", "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config",
         "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", kernel, "-initrd", initramfs,
         "-append", "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off cgroup_no_v1=all"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")


def follow(p, end):
    """Prints what is said; the names of what passed and of what failed, and whether it came to its end."""
    passed, failed, over = [], [], False
    os.set_blocking(p.stdout.fileno(), True)
    for line in p.stdout:
        line = line.rstrip("\r\n")
        print(line, flush=True)
        if m := re.fullmatch(r"ok (\S+)", line):
            passed.append(m[1])
        elif m := re.match(r"not ok (\S+)", line):
            failed.append(m[1])
        over = over or line == "all is done"
        if time.monotonic() > end:
            break
    return passed, failed, over


def main():
    o = argparse.ArgumentParser()
    o.add_argument("--build", type=pathlib.Path, default=HERE.parents[1] / "build")
    o.add_argument("--kernel", type=pathlib.Path)
    o.add_argument("tests", nargs="*")
    o = o.parse_args()
    kernel = o.kernel or next(iter(sorted((HERE.parents[1] / "build-kernel").glob("vmlinuz*"))), None)
    if not kernel:
        fail("no kernel in build-kernel (tests/install-deps.sh kernel fetches one)")
    with tempfile.TemporaryDirectory() as tmp:
        initramfs = pathlib.Path(tmp) / "initramfs.gz"
        make_initramfs(o.build, o.tests, initramfs)
        begun = time.monotonic()
        p = boot(kernel, initramfs)
        # What hangs in the machine ends with it.
        watch = subprocess.Popen(["sh", "-c", f"sleep {SECONDS}; kill -9 {p.pid}"], start_new_session=True)
        try:
            passed, failed, over = follow(p, begun + SECONDS)
        finally:
            os.killpg(watch.pid, 9)
            watch.wait()
            p.kill()
            p.wait()
    print(f"kernel: {len(passed)} passed, {len(failed)} failed, {time.monotonic() - begun:.0f} s"
          f"{'' if kvm() else ', without KVM'}")
    if failed or not over or not passed:
        fail(f"failed: {' '.join(failed)}" if failed else "the machine did not come to its end")


main()
