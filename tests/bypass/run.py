#!/usr/bin/python3
"""Tries every known way around the allowlist against the real stile.

    STILE=build/stile tests/bypass/run.py [-j N] [-v] [CLASS[/NAME]]...

Each case file (CLASS/NAME.yaml) is run in all its variants; the table counts by class. Exit 1 when one
failed. Needs root or unprivileged user namespaces: stile and its origin live in a network namespace
in which every address leads to that origin, so nothing that gets out of stile gets anywhere."""

import argparse
import concurrent.futures as futures
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True
import case as cases  # noqa: E402
from stack import World  # noqa: E402

WORLD: World | None = None


def begin(folder: str) -> None:
    global WORLD
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    WORLD = World(pathlib.Path(folder))


def work(batch: list[tuple[dict, tuple]]) -> list[tuple[str, str, str | None]]:
    """Runs variants that share a set-up; (class/name with input, variant, problem)."""
    out = []
    for case, variant in batch:
        try:
            stack = WORLD.stack(cases.setup_of(case, variant))
            problem = cases.run(stack, case, variant)
            if problem and stack.proc.poll() is not None:
                problem += f"\n    stile has ended ({stack.proc.returncode}): {stack.said()[-1500:]}"
                del WORLD.stacks[cases.setup_of(case, variant)]
        except Exception as e:  # noqa: BLE001
            problem = f"{type(e).__name__}: {e}"
        what = f" [{case['V']!r:.60}]" if "V" in case else f" [{case['input']}]" if "input" in case else ""
        out.append((f"{case['class']}/{case['name']}{what}", "/".join(variant), problem))
    return out


def finish(_: int) -> list[str]:
    time.sleep(0.2)  # so that each process gets one of these
    return WORLD.stop()


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("-j", type=int, default=3, metavar="N")
    p.add_argument("-v", action="store_true")
    p.add_argument("only", nargs="*", metavar="CLASS[/NAME]")
    args = p.parse_args()
    os.environ.setdefault("STILE", str(HERE.parent.parent / "build" / "stile"))
    os.environ["STILE"] = str(pathlib.Path(os.environ["STILE"]).resolve())
    files = sorted(f for f in HERE.glob("*/*.yaml") if f.parent.name != "setups")
    if args.only:
        files = [f for f in files if any(o in (f.parent.name, f"{f.parent.name}/{f.stem}") for o in args.only)]
    batches, counts = {}, {}
    for f in files:
        for n, case in enumerate(cases.load(f)):
            row = counts.setdefault(case["class"], [0, 0, 0, 0])
            row[0] += 1
            for v in cases.variants(case):
                row[1] += 1
                batches.setdefault((cases.setup_of(case, v), row[1] // 60 if "steps" not in case else -n),
                                   []).append((case, v))
    began, failures, stopped = time.monotonic(), {}, []
    with tempfile.TemporaryDirectory(prefix="stile-bypass-") as folder:
        with futures.ProcessPoolExecutor(args.j, initializer=begin, initargs=(folder,)) as pool:
            # One set-up's batches stand together, so that few processes start the rarer ones.
            for future in futures.as_completed([pool.submit(work, b) for _, b in sorted(
                    batches.items(), key=lambda kv: (kv[0][0] == "basic", str(kv[0])))]):
                for name, variant, problem in future.result():
                    counts[name.split("/")[0]][3 if problem else 2] += 1
                    if problem:
                        failures.setdefault(name, []).append((variant, problem))
                    elif args.v:
                        print(f"ok {name} {variant}", flush=True)
            for said in pool.map(finish, range(args.j)):
                stopped += said
        shutil.rmtree(folder, ignore_errors=True)
        os.mkdir(folder)
    for name, found in sorted(failures.items()):
        print(f"FAILED {name} {' '.join(v for v, _ in found)}")
        for problem in list(dict.fromkeys(p for _, p in found))[:4 if args.v else 1]:
            print(f"    {problem}")
    for said in stopped:
        print(f"FAILED at its end: {said}")
    print(f"{'class':<14}{'cases':>8}{'variants':>10}{'passed':>8}{'failed':>8}")
    for klass, row in sorted(counts.items()) + [("all", [sum(c) for c in zip(*counts.values())])]:
        print(f"{klass:<14}{row[0]:>8}{row[1]:>10}{row[2]:>8}{row[3]:>8}")
    print(f"{time.monotonic() - began:.0f} s; inputs that failed: {len(failures)}")
    return 1 if failures or stopped else 0


if __name__ == "__main__":
    sys.exit(main())
