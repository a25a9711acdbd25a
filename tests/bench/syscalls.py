#!/usr/bin/env python3
"""The system calls of one forwarded keep-alive request: strace -c over many, divided.

Prints a row a system call for 1 and for 32 connections. Everything runs on loopback and is ended
by process id.
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STILE = os.path.abspath(os.environ.get("STILE", ROOT / "build/stile"))
REQUESTS = 10000
CONFIG = """\
version: 1
listen: [{proxy: "127.0.0.1:0"}]
ca: {dir: ca}
upstream: {hosts: {origin.test: 127.0.0.1}}
log: {to: out.jsonl, wait: written}
limits: {workers: 1}
policies:
  default:
    rules:
      - {allow: "http://origin.test:*/x", addresses: [127.0.0.0/8]}
"""


def build_bench(folder: pathlib.Path) -> str:
    out = folder / "bench"
    subprocess.run(["cc", "-O2", "-std=c17", "-D_GNU_SOURCE", "-o", out,
                    ROOT / "tests/bench/bench.c", "-lssl", "-lcrypto"], check=True)
    return str(out)


def start_stile(folder: pathlib.Path):
    (folder / "stile.yaml").write_text(CONFIG)
    p = subprocess.Popen([STILE, "serve", "-c", "stile.yaml"], cwd=folder,
                         stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        m = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
        if m:
            return p, int(m.group(1))
    sys.exit("stile did not start")


def count(bench: str, pid: int, proxy: int, origin: int, conns: int) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("r") as out:
        tracer = subprocess.Popen(["strace", "-f", "-c", "-o", out.name, "-p", str(pid)],
                                  stderr=subprocess.PIPE, text=True)
        for line in tracer.stderr:
            if "attached" in line:
                break
        time.sleep(0.2)  # the other threads are attached within this
        subprocess.run([bench, "load", "--proxy", str(proxy), "--port", str(origin), "--requests",
                        str(REQUESTS), "--conns", str(conns)], check=True, stdout=subprocess.DEVNULL)
        tracer.send_signal(signal.SIGINT)
        tracer.communicate(timeout=20)
        calls = {}
        for line in out.read().splitlines():
            f = line.split()
            if len(f) >= 5 and f[3].isdigit() and f[-1] != "total":
                calls[f[-1]] = int(f[3]) / REQUESTS
        return calls


def main() -> None:
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp)
        bench = build_bench(folder)
        origin = subprocess.Popen([bench, "origin"], stdout=subprocess.PIPE, text=True)
        stile, proxy = start_stile(folder)
        try:
            port = int(origin.stdout.readline())
            columns = {n: count(bench, stile.pid, proxy, port, n) for n in (1, 32)}
        finally:
            for p in (stile, origin):
                p.terminate()
                p.wait()
    names = sorted(set().union(*columns.values()), key=lambda n: -columns[32].get(n, 0))
    print(f"system calls a forwarded keep-alive request ({REQUESTS} requests)")
    print(f"{'':14}" + "".join(f"{str(n) + ' conn.':>12}" for n in columns))
    for name in names:
        row = [columns[n].get(name, 0) for n in columns]
        if max(row) >= 0.005:
            print(f"{name:14}" + "".join(f"{v:12.3f}" for v in row))


if __name__ == "__main__":
    main()
