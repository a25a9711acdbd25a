#!/usr/bin/python3
"""System calls that fail, one at a time, under a running `stile serve` (tests/torture/README.md).

    run.py [--full] [--part I/N] [--only FUNCTION] [--phase command|start|traffic|stop] [--case TEXT]
           [--seed N] [--seconds N]

STILE names the binary, FAIL the shim, LIBASAN the sanitizer's library where the binary has one. Each case
is a Fault (faults.py): the n-th call of a function on a kind of descriptor. A phase begins with a clean run
that counts the calls; without --full a sample of the cases is taken, the first call of each always.
Exit 1 when a case was not as it must be; the case is printed with what it takes to run it again."""

import argparse
import os
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "origin"))

from faults import LASTING, Fault, failures  # noqa: E402
from rig import Finding, Rig  # noqa: E402


def of_allocations(stacks: list[tuple[int, str, int, int]], full: bool, rng: random.Random) -> list[Fault]:
    """Each call stack once alone; and from each place in stile's own code on, all of them."""
    out, places = [], {}
    for stack, kind, place, _ in sorted(stacks):
        out.append(Fault("alloc", kind, "ENOMEM", stack=stack))
        places.setdefault(place, Fault("alloc", kind, "ENOMEM", 1, True, stack))
    if full:
        return out + list(places.values())
    by_kind: dict[str, list[Fault]] = {}
    for f in out:
        by_kind.setdefault(f.kind, []).append(f)
    few = [f for found in by_kind.values() for f in rng.sample(found, min(SAMPLE, len(found)))]
    return few + rng.sample(list(places.values()), min(SAMPLE, len(places)))


def cases(counts: dict[tuple[str, str], int], stacks: list[tuple[int, str, int, int]], full: bool, only: str,
          rng: random.Random) -> list[Fault]:
    whose = [x.removeprefix("alloc:") for x in only.split(",") if x.startswith("alloc:")]
    if whose:
        stacks = [s for s in stacks if s[1] in whose]
    out = of_allocations(stacks, full, rng) if whose or not only or "alloc" in only.split(",") else []
    for (function, kind), n in sorted(counts.items()):
        if only and function not in only.split(","):
            continue
        for what in failures(function, kind):
            every = list(range(1, n + 1))
            if not full and n > 2:
                every = [1, *rng.sample(every[1:], 1)]
            out += [Fault(function, kind, what, at) for at in every]
            if what in LASTING:
                out.append(Fault(function, kind, what, 1, True))
    rng.shuffle(out)
    return out

SHARES = {"command": 1, "start": 1, "traffic": 3, "stop": 1}  # of --seconds
SAMPLE = 15  # allocations of a library, without --full


class Tally:
    def __init__(self):
        self.runs = self.fired = 0
        self.findings: dict[str, list[str]] = {}

    def add(self, phase: str, fault: Fault, where: str, e: Finding) -> None:
        print(f"FAILED {phase}: {fault} ({where}): {e}", flush=True)
        self.findings.setdefault(f"{fault.function} {fault.kind}", []).append(str(fault))


def commands() -> list[list[str]]:
    """Of the phase `command`: those that read a configuration, and the CA's."""
    examples = sorted((pathlib.Path(__file__).resolve().parents[2] / "proxy" / "examples").glob("*.yaml"))
    first = str(examples[0])
    return [*(["check", str(x)] for x in examples), ["test", "-c", first],
            ["explain", "-c", first, "GET", "https://docs.example.com/simple/"], ["ca", "bundle", "-c", first]]


def run_commands(rig: Rig, args, tally: Tally, until: float) -> None:
    """Every allocation of a command by itself, and every call: quick, as nothing else has to be started."""
    left = commands()
    for number, command in enumerate(left):
        end = time.monotonic() + (until - time.monotonic()) / (len(left) - number)
        run_phase(rig, "command " + " ".join(command), args, tally, end, lambda f: rig.command_once(command, f))


def run_phase(rig: Rig, phase: str, args, tally: Tally, until: float, step=None) -> None:
    step = step or {"start": rig.start_once, "traffic": rig.traffic_once, "stop": rig.stop_once}[phase]
    rng = random.Random(args.seed)
    step(None)
    counts = rig.counts
    todo = cases(counts, rig.stacks, args.full, args.only, rng)
    part, parts = map(int, args.part.split("/"))
    todo = [x for x in todo[part - 1::parts] if args.case in str(x)]
    began, done = time.monotonic(), 0
    for fault in todo:
        if time.monotonic() > until:
            break
        tally.runs += 1
        done += 1
        try:
            step(fault)
        except (Finding, AssertionError, OSError) as e:
            tally.add(phase, fault, rig.where, e)
            rig.begin_anew()
        tally.fired += rig.fired > 0
        if args.verbose:
            print(f"{phase}: {fault}: fired {rig.fired} {rig.where}", flush=True)
    print(f"{phase}: {sum(counts.values())} calls, {done} of {len(todo)} cases, "
          f"{time.monotonic() - began:.0f} s", flush=True)


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--full", action="store_true")
    p.add_argument("--case", default="", help="only cases whose text holds this: to run a finding again, with --full")
    p.add_argument("--part", default="1/1", help="3/8: the third eighth of the cases, of one seed")
    p.add_argument("--only", default="", help="functions; alloc:libcrypto: allocations of one library")
    p.add_argument("--phase", action="append")
    p.add_argument("--seed", type=int, default=int(time.time()))
    p.add_argument("--seconds", type=float, default=0, help="stop after that long; cases are in random order")
    p.add_argument("-v", "--verbose", action="store_true")
    args = p.parse_args()
    phases = args.phase or ["command", "start", "traffic", "stop"]
    tally = Tally()
    print(f"seed {args.seed}")
    with tempfile.TemporaryDirectory(prefix="stile-torture-") as tmp:
        rig = Rig(pathlib.Path(tmp))
        try:
            for phase in phases:
                share = SHARES[phase] / sum(SHARES[p] for p in phases)
                left = args.seconds * share if args.seconds else 10 ** 9
                run = run_commands if phase == "command" else lambda *a, p=phase: run_phase(a[0], p, *a[1:])
                run(rig, args, tally, time.monotonic() + left)
                rig.end()
        finally:
            rig.close()
    for name, found in sorted(tally.findings.items()):
        print(f"  {name}: {len(found)}")
    print(f"{tally.runs} runs, in {tally.fired} a call failed, {sum(map(len, tally.findings.values()))} findings")
    return 1 if tally.findings or tally.runs == 0 else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
