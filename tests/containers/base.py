"""Makes a base image for the container tests, as a tar, out of the Debian packages that are installed on
this machine: no image registry is asked, and nothing is downloaded a second time. What it holds is what
the packages own, with their rows of dpkg's database, so that the image's SBOM has something to read.
With --debootstrap it is a real installation instead, out of Debian's packages, in half a minute.

    python3 tests/containers/base.py [--debootstrap] OUT.tar
"""

import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile

# What a Debian always has, what stile is built with, and what the tests use inside.
PACKAGES = """base-files base-passwd bash coreutils dash debianutils diffutils dpkg findutils grep gzip
 hostname libc-bin login mawk passwd perl-base sed tar util-linux apt
 curl python3 iproute2""".split()
# Nobody reads there.
LEFT_OUT = re.compile(r"/usr/share/(doc|man|info|locale|lintian|bug|zoneinfo|i18n|perl5|bash-completion)/|"
                      r"/usr/lib/python3/dist-packages/|/usr/lib/python3\.\d+/(test|lib2to3|idlelib|pydoc_data)/|"
                      r"/usr/lib/gcc/.*/(lto1|lto-wrapper|lto-dump|g\+\+.*)$|.*/lib[a-z0-9]*san\.|/lib/udev/|"
                      r"/usr/lib/x86_64-linux-gnu/(perl|gconv)/")
LEFT_OUT_KEEP = re.compile(r"/usr/share/doc/[^/]+(/copyright)?$")
INFO = pathlib.Path("/var/lib/dpkg/info")


def build_packages():
    text = (pathlib.Path(__file__).parent.parent / "install-deps.sh").read_text()
    return re.search(r'^build="(.*?)"', text, re.M | re.S).group(1).split()


def installed():
    """name -> paragraph of dpkg's status, of what is installed; and what provides a name."""
    rows, provides = {}, {}
    for paragraph in pathlib.Path("/var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.M))
        if fields.get("Status") != "install ok installed":
            continue
        rows.setdefault(fields["Package"], (paragraph, fields))
        for name in re.findall(r"(?:^|, )([a-z0-9.+-]+)", fields.get("Provides", "")):
            provides.setdefault(name, fields["Package"])
    return rows, provides


def closure(wanted, rows, provides):
    out, todo = {}, list(wanted)
    while todo:
        name = todo.pop()
        name = name if name in rows else provides.get(name)
        if name is None or name in out:
            continue
        fields = rows[name][1]
        out[name] = fields
        for group in ", ".join(fields.get(k, "") for k in ("Pre-Depends", "Depends")).split(","):
            choices = [re.match(r"\s*([a-z0-9.+-]*)", c).group(1) for c in group.split("|")]
            todo += [c for c in choices if c in rows or c in provides][:1]
    return out


def info_file(fields, kind):
    for name in (fields["Package"], f"{fields['Package']}:{fields['Architecture']}"):
        if (INFO / f"{name}.{kind}").exists():
            return INFO / f"{name}.{kind}"
    return None


def merged(path):
    """/bin/x is /usr/bin/x: a file has one place in the tar."""
    return "/usr" + path if re.match(r"/(bin|sbin|lib|lib32|lib64|libx32)(/|$)", path) else path


def add_text(tar, path, text, mode=0o644):
    member = tarfile.TarInfo(path.lstrip("/"))
    member.size, member.mode = len(text.encode()), mode
    tar.addfile(member, io.BytesIO(text.encode()))


def add_link(tar, path, target):
    member = tarfile.TarInfo(path.lstrip("/"))
    member.type, member.linkname = tarfile.SYMTYPE, target
    tar.addfile(member)


def as_root(member):
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def from_installed(out):
    rows, provides = installed()
    wanted = PACKAGES + build_packages()
    if absent := [p for p in wanted if p not in rows and p not in provides]:
        sys.exit(f"base.py: not installed: {' '.join(absent)}")
    packages = closure(wanted, rows, provides)
    files = {"/etc/alternatives", "/usr/bin/awk", "/usr/bin/cc"}
    for fields in packages.values():
        listed = info_file(fields, "list")
        for path in listed.read_text().split("\n") if listed else []:
            path = merged(path)
            if path in ("", "/.", "/usr/lib64") or (LEFT_OUT.match(path) and not LEFT_OUT_KEEP.match(path)):
                continue
            files.add(path)
    files |= {f"/etc/alternatives/{n}" for n in ("awk", "cc")}
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("bin", "sbin", "lib", "lib64"):
            add_link(tar, name, f"usr/{name}")
        for path in sorted(files | {"/usr/lib64"}):
            if os.path.lexists(path):
                tar.add(path, arcname=path.lstrip("/"), recursive=False, filter=as_root)
        add_text(tar, "/etc/passwd", pathlib.Path("/usr/share/base-passwd/passwd.master").read_text())
        add_text(tar, "/etc/group", pathlib.Path("/usr/share/base-passwd/group.master").read_text())
        add_text(tar, "/etc/ssl/certs/ca-certificates.crt", "".join(
            p.read_text() for p in sorted(pathlib.Path("/usr/share/ca-certificates").rglob("*.crt"))))
        add_text(tar, "/var/lib/dpkg/info/format", "1\n")
        add_text(tar, "/var/lib/dpkg/status", "\n\n".join(rows[n][0] for n in sorted(packages)) + "\n")
        for fields in packages.values():
            for kind in ("list", "md5sums"):
                if (path := info_file(fields, kind)) is not None:
                    tar.add(path, arcname=str(path).lstrip("/"), filter=as_root)


def main():
    args = [a for a in sys.argv[1:] if a != "--debootstrap"]
    out = pathlib.Path(args[0])
    half = out.with_name(out.name + ".new")
    if len(args) < len(sys.argv) - 1:
        more = " ".join(["curl", "python3", "iproute2"] + build_packages())
        subprocess.run(["mmdebstrap", "--format=tar", "--variant=minbase", f"--include={more}", "bookworm", str(half)],
                       check=True, timeout=120)
    else:
        from_installed(half)
    half.rename(out)


if __name__ == "__main__":
    main()
