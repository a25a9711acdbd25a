"""The driver's side of fail.h: the control file, and which failures a call can have on Linux."""

import errno
import mmap
import pathlib
import re
import struct

HERE = pathlib.Path(__file__).resolve().parent
HOW_ERROR, HOW_SHORT, HOW_END = range(3)
FAIL_H = (HERE / "fail.h").read_text()
FUNCTIONS, KINDS = (re.findall(r"^\tX\((\w+)\)", x, re.M) for x in FAIL_H.split("#define FAIL_KINDS"))
HEAD = struct.Struct("=IIIiIIIIQ64s16sQIIII")
LEAKS_AT, STACK_AT = HEAD.size - 12, HEAD.size - 24
LEAKS_ASKED, LEAKS_NONE, LEAKS_FOUND = 1, 3, 4
COUNTS = struct.Struct(f"={128 * len(KINDS)}I")
STACK = struct.Struct("=QQII")
STACKS = int(re.search(r"FAIL_STACKS_N (\d+)", FAIL_H).group(1))
SIZE = HEAD.size + COUNTS.size + STACKS * STACK.size


class Fault:
    """The at-th call of a function on a kind of descriptor, and what becomes of it. An allocation is told by its
    call stack, and those behind it are of whatever stack."""

    def __init__(self, function: str, kind: str, what: str, at: int = 1, and_on: bool = False, stack: int = 0):
        self.function, self.kind, self.what, self.at, self.and_on = function, kind, what, at, and_on
        self.stack = stack

    def __str__(self):
        if self.stack:
            return (f"alloc of {self.kind}, stack {self.stack:x}, call {self.at}"
                    f"{' and all behind it' if self.and_on else ''}")
        on = "" if self.kind == "none" else f" on a {self.kind}"
        return f"{self.function}{on}: {self.what}, call {self.at}{' and all behind it' if self.and_on else ''}"

    def packed(self) -> tuple[int, int, int, int, int, int]:
        how = {"short": HOW_SHORT, "end": HOW_END}.get(self.what, HOW_ERROR)
        error = getattr(errno, self.what) if how == HOW_ERROR else 0
        return (FUNCTIONS.index(self.function), KINDS.index(self.kind), how, error, self.at, int(self.and_on))


class Control:
    """The mapped file. One a process under test."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        path.write_bytes(bytes(SIZE))
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 0)

    def arm(self, fault: Fault | None) -> None:
        """Counts begin anew; with None nothing fails from here on."""
        self.map[16:20] = bytes(4)  # `at` first: no call meets a half of the old and a half of the new
        self.map[HEAD.size:] = bytes(SIZE - HEAD.size)
        self.map[24:HEAD.size] = bytes(HEAD.size - 24)
        self.map[28:32] = struct.pack("=I", not fault)
        if fault:
            function, kind, how, error, at, and_on = fault.packed()
            self.map[0:16] = struct.pack("=IIIi", function, kind, how, error)
            self.map[20:24] = struct.pack("=I", and_on)
            self.map[STACK_AT:STACK_AT + 8] = struct.pack("=Q", fault.stack)
            self.map[16:20] = struct.pack("=I", at)

    def disarm(self) -> None:
        """Nothing fails any more; what was seen stays."""
        self.map[16:20] = bytes(4)

    def ask_for_leaks(self, pid: int) -> None:
        self.map[LEAKS_AT + 4:LEAKS_AT + 8] = struct.pack("=I", pid)
        self.map[LEAKS_AT:LEAKS_AT + 4] = struct.pack("=I", LEAKS_ASKED)

    @property
    def leaks(self) -> int:
        return struct.unpack_from("=I", self.map, LEAKS_AT)[0]

    @property
    def fired(self) -> int:
        return HEAD.unpack_from(self.map)[6]

    @property
    def where(self) -> str:
        caller, where, thread = HEAD.unpack_from(self.map)[8:11]
        return f"{where.rstrip(bytes(1)).decode()}+{caller:#x} in {thread.split(bytes(1))[0].decode()}"

    def counts(self) -> dict[tuple[str, str], int]:
        flat = COUNTS.unpack_from(self.map, HEAD.size)
        return {(f, k): flat[i * len(KINDS) + j] for i, f in enumerate(FUNCTIONS) for j, k in enumerate(KINDS)
                if flat[i * len(KINDS) + j]}

    def stacks(self) -> list[tuple[int, str, int, int]]:
        """The allocations since it was armed with None: stack, whose, the part of the stack that is stile's own code,
        how many."""
        return [(h, KINDS[kind], place, n) for h, place, n, kind in STACK.iter_unpack(self.map[HEAD.size + COUNTS.size:]) if h]


SOCKET_READ = ["EINTR", "EAGAIN", "ECONNRESET", "ETIMEDOUT", "ENOMEM"]
SOCKET_WRITE = ["EINTR", "EAGAIN", "EPIPE", "ECONNRESET", "ENOBUFS", "ENOMEM"]
NO_DESCRIPTOR = ["EMFILE", "ENFILE", "ENOMEM"]
FILE_TROUBLE = ["EIO", "EACCES", "ENOMEM"]

# What does not pass by itself: such a call fails on and on, too.
LASTING = {"EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "ENOSPC", "EDQUOT", "EIO", "EACCES", "EPERM", "ECONNREFUSED",
           "ENETUNREACH", "EAFNOSUPPORT", "EINVAL", "ENOSYS", "EADDRNOTAVAIL", "ECONNRESET", "short"}

# What each can come to. A function that is not here fails with EIO and ENOMEM.
FAILURES: dict[str, list[str]] = {
    "alloc": [],  # by call stack: run.py
    "accept4": [*NO_DESCRIPTOR, "ENOBUFS", "ECONNABORTED", "EINTR", "EAGAIN", "EPROTO", "EPERM"],
    "bind": ["EADDRINUSE", "EACCES", "ENOMEM"],
    "close": ["EINTR", "EIO"],
    "connect": ["ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "ETIMEDOUT", "EADDRNOTAVAIL", "EACCES", "EINTR",
                "EAGAIN", "ENOBUFS"],
    "dup": NO_DESCRIPTOR[:1], "epoll_create1": NO_DESCRIPTOR, "eventfd": NO_DESCRIPTOR, "pipe2": NO_DESCRIPTOR,
    "memfd_create": NO_DESCRIPTOR, "signalfd": NO_DESCRIPTOR, "socketpair": NO_DESCRIPTOR,
    "epoll_ctl": ["ENOMEM", "ENOSPC"],
    "epoll_wait": ["EINTR"], "poll": ["EINTR", "ENOMEM"],
    "fcntl": ["EPERM", "EINVAL"],
    "fdatasync": ["EIO", "ENOSPC", "EINTR"], "fsync": ["EIO", "ENOSPC", "EINTR"],
    "fopen": ["EMFILE", "ENOMEM", "EACCES"], "open": ["EMFILE", "ENFILE", "EACCES", "EINTR", "EIO", "ENOSPC"],
    "openat": ["EMFILE", "ENFILE", "EACCES", "EINTR", "EIO", "ENOSPC"], "opendir": ["EMFILE", "EACCES", "ENOMEM"],
    "fork": ["EAGAIN", "ENOMEM"], "pthread_create": ["EAGAIN"],
    "getpeername": ["ENOTCONN", "ENOBUFS"], "getsockname": ["ENOBUFS"],
    "getsockopt": ["ENOBUFS", "ENOMEM"], "setsockopt": ["EINVAL", "ENOMEM", "ENOBUFS"],
    "getrandom": ["EINTR", "ENOSYS"], "ioctl": ["ENOTTY"], "listen": ["EADDRINUSE"],
    "shutdown": ["ENOTCONN", "ENOBUFS"],
    "socket": [*NO_DESCRIPTOR, "ENOBUFS", "EAFNOSUPPORT", "EACCES"],
    "splice": ["EINTR", "EAGAIN", "EINVAL", "ENOMEM", "EPIPE", "ECONNRESET", "short"],
    "recv": SOCKET_READ, "recvfrom": SOCKET_READ, "recvmsg": SOCKET_READ,
    "send": SOCKET_WRITE, "sendto": SOCKET_WRITE, "sendmsg": SOCKET_WRITE,
    "prctl": ["EINVAL", "EPERM"], "mount": ["EPERM", "EACCES"], "syscall": ["ENOSYS", "EPERM"],
    "setresuid": ["EAGAIN", "EPERM"], "setresgid": ["EPERM"], "setrlimit": ["EPERM"],
    "mlock": ["ENOMEM", "EPERM"], "madvise": ["EINVAL", "ENOMEM"], "mmap": ["ENOMEM"],
}


def failures(function: str, kind: str) -> list[str]:
    if function in ("read", "pread"):
        if kind == "other":  # an eventfd, a signalfd: whole or nothing
            return ["EINTR", "EAGAIN"]
        return ["EINTR", "EIO" if kind == "file" else "EAGAIN", "short", "end"]
    if function in ("write", "writev"):
        if kind == "file":
            return ["EINTR", "ENOSPC", "EIO", "EDQUOT", "short"]
        if kind == "pipe":  # stderr, by which the driver is told of the start
            return []
        return ["EINTR", *(["EAGAIN", "EPIPE", "short"] if kind == "stream" else [])]
    found = FAILURES.get(function, ["EIO", "ENOMEM"])
    if function in ("recv", "recvfrom"):
        return found + (["short", "end"] if kind == "stream" else [])
    if function in ("send", "sendto", "sendmsg"):
        return found + (["short"] if kind == "stream" else [])
    return found
