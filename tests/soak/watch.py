"""What the process holds: memory, descriptors, processor time; and whether a series of numbers grows."""

import os
import pathlib
import statistics
import collections


class Process:
    def __init__(self, pid: int):
        self.pid, self.proc = pid, pathlib.Path(f"/proc/{pid}")

    def rss_kib(self, key: str = "VmRSS") -> int:
        for line in (self.proc / "status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1])
        return 0

    def peak_kib(self) -> int:
        """The most that was resident since this was asked last (proc_pid_clear_refs(5))."""
        peak = self.rss_kib("VmHWM")
        (self.proc / "clear_refs").write_text("5")
        return peak

    def descriptors(self) -> collections.Counter:
        """By kind: socket, pipe, file, and the anonymous ones by name."""
        out = collections.Counter()
        for fd in os.listdir(self.proc / "fd"):
            try:
                to = os.readlink(self.proc / "fd" / fd)
            except FileNotFoundError:
                continue
            out["file" if to.startswith("/") else to.split(":")[0] if "inode" not in to else to] += 1
        return out

    def cpu_s(self) -> float:
        f = (self.proc / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def slope(values: list[float]) -> float:
    """Theil and Sen: the median of all slopes, which a few outliers do not move."""
    pairs = [(values[j] - values[i]) / (j - i) for i in range(len(values)) for j in range(i + 1, len(values))]
    return statistics.median(pairs) if pairs else 0.0


def grows(values: list[float], allowed: float) -> str | None:
    """What is wrong with a series that should be flat after its first third (the caches fill, the allocator finds
    its size): it goes up steadily, by more than `allowed` over what is left, and its end is above its begin by as
    much. None: it is flat. Too short a series says nothing."""
    late = values[len(values) // 3:]
    if len(late) < 4:
        return None
    steady = slope(late) * (len(late) - 1)
    third = max(1, len(late) // 3)
    risen = statistics.median(late[-third:]) - statistics.median(late[:third])
    if steady > allowed and risen > allowed / 2:
        return f"grows by {steady:.0f} over {len(late)} rounds ({late[0]:.0f} to {late[-1]:.0f}, allowed {allowed:.0f})"
    return None
