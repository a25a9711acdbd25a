#!/usr/bin/python3
"""The race: the same load, in one run and alternating, directly, through a bare relay (the floor),
through stile, and through other proxies (peers.py). README.md here says what the numbers mean.

    make all && tests/bench/run.py [--quick] [-o FILE] [CASE]...

Everything runs on loopback in a temporary folder; every process is ended by its id."""

import argparse
import json
import os
import pathlib
import platform
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import peers

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
HOST = "localhost"  # a name that every peer can look up without a server
IDLE_TUNNELS = 5000
HOST_COUNTS = (10, 1000, 100000)
PLACEHOLDER_COUNTS = (1, 5, 50)

ALL = ["direct", "floor", "stile", "stile x2", "squid", "tinyproxy"]
# Envoy and mitmproxy take part where TLS is ended; Squid too, in HTTP/1.1.
H2 = ["direct", "floor", "stile", "envoy", "mitmproxy"]
H1_ORIGIN = ["stile", "envoy", "mitmproxy"]  # the client's HTTP/2 does not reach it otherwise


class Case(NamedTuple):
    title: str
    load: list[str]  # the program and what it is asked to do
    origin: str
    who: list[str]


# Letters pick the cases that begin with them: j is all of j...
CASES = {
    "a": Case("forward, keep-alive", ["bench", "load", "--conns", "32"], "clear", [*ALL]),
    "b": Case("CONNECT for each request", ["bench", "load", "--conns", "32", "--tunnel", "--fresh"], "clear",
              [*ALL]),
    "c": Case("inspected, keep-alive", ["bench", "load", "--conns", "32", "--tunnel", "--tls"], "tls",
              ["direct", "floor", "TLS floor", "stile", "stile x2", "squid", "envoy", "mitmproxy"]),
    "d": Case("inspected, new connection each",
              ["bench", "load", "--conns", "16", "--tunnel", "--tls", "--fresh"], "tls",
              ["direct", "floor", "stile", "stile x2", "squid"]),
    "e": Case("tunnel, bulk", ["bench", "load", "--conns", "4", "--tunnel", "--path", "/bulk"], "clear",
              ["direct", "floor", "stile", "squid", "tinyproxy"]),
    "f": Case("inspected, bulk", ["bench", "load", "--conns", "4", "--tunnel", "--tls", "--path", "/bulk"],
              "tls", ["direct", "floor", "TLS floor", "stile", "squid", "envoy"]),
    "g": Case(f"{IDLE_TUNNELS} idle tunnels", [], "clear", ["floor", "stile", "squid", "tinyproxy"]),
    "h": Case("decisions and loading", [], "clear", []),
    "i": Case("one connection, forward", ["bench", "load", "--conns", "1"], "clear",
              ["direct", "floor", "stile", "squid", "tinyproxy"]),
    "j1": Case("HTTP/2 inspected, 32 connections of 1 stream, HTTP/2 origin",
               ["h2", "load", "--conns", "32", "--streams", "1"], "h2", [*H2]),
    "j1-h1": Case("HTTP/2 inspected, 32 connections of 1 stream, HTTP/1.1 origin",
                  ["h2", "load", "--conns", "32", "--streams", "1"], "tls", [*H1_ORIGIN]),
    "j100": Case("HTTP/2 inspected, 4 connections of 100 streams, HTTP/2 origin",
                 ["h2", "load", "--conns", "4", "--streams", "100"], "h2", [*H2]),
    "j100-h1": Case("HTTP/2 inspected, 4 connections of 100 streams, HTTP/1.1 origin",
                    ["h2", "load", "--conns", "4", "--streams", "100"], "tls", [*H1_ORIGIN]),
    "k": Case("gRPC unary, inspected, 4 connections of 8 calls",
              ["h2", "load", "--conns", "4", "--streams", "8", "--grpc"], "h2", [*H2]),
    "l1": Case("event stream, inspected, HTTP/1.1", ["h2", "events"], "events",
               ["direct", "floor", "stile", "squid", "envoy", "mitmproxy"]),
    "l2": Case("event stream, inspected, HTTP/2", ["h2", "events", "--h2"], "events-h2", [*H2]),
    "m": Case("placeholders: the search and the swap by themselves", [], "clear", []),
    "n": Case("signatures for AWS", [], "clear", []),
    "o": Case("the search for a credential in answers by itself", [], "clear", []),
    "p": Case("credentials in whole exchanges", [], "tls", []),
    "q": Case("the start of a sandbox for `true`", [], "clear", []),
}
# What `p` compares: a path of the same origin, whose rule has no credential or that one.
CREDENTIALS = {
    "none": "/x", "bearer": "/bearer/x", "basic": "/basic/x", "query": "/query/x", "sigv4": "/sigv4/x",
    "bulk, none": "/bulk/x", "bulk, bearer": "/bulk/bearer/x",
}
EVENTS = ("l1", "l2")
LATENCY = ("i", *EVENTS)  # what is added to direct
BULK = ("e", "f")
# CPU of stile at most so many times that of the other; (g) in KB
GOALS = {"a": ("floor", 1.35), "b": ("floor", 1.35), "c": ("floor", 1.5), "d": ("squid", 0.1),
         "e": ("squid", 0.5), "f": ("squid", 1 / 3)}


# ---- processes ----

def children(pid: int) -> list[int]:
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as f:
                found += [int(c) for c in f.read().split()]
    except FileNotFoundError:
        pass
    return found


def tree(pid: int) -> list[int]:
    return [pid] + [g for c in children(pid) for g in tree(c)]


def cpu_seconds(pid: int) -> float:
    """Of the process and its children, ended threads included: the process clock, which is utime +
    stime to the nanosecond (clock_getcpuclockid(3))."""
    total = 0.0
    for p in tree(pid):
        try:
            total += time.clock_gettime((~p << 3) | 2)
        except OSError:
            pass  # it ended in between
    return total


def memory_kb(pid: int) -> dict[str, int]:
    sums = {"Pss": 0, "Rss": 0}
    for p in tree(pid):
        with open(f"/proc/{p}/smaps_rollup") as f:
            for line in f:
                name, _, rest = line.partition(":")
                if name in sums:
                    sums[name] += int(rest.split()[0])
    return sums


def end(p: subprocess.Popen) -> None:
    if p.poll() is None:
        p.terminate()
        try:
            p.wait(10)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()


# ---- who takes part ----

class Bench:
    """The programs of one run. `origin[KIND]` is an origin's port, `ports[NAME][KIND]` where NAME listens for
    that origin; who is not to be had is in `missing`, with the reason."""

    def __init__(self, folder: pathlib.Path, build: pathlib.Path):
        self.folder, self.build = folder, build
        self.running: list[subprocess.Popen] = []
        self.pids: dict[str, int] = {}
        self.ports: dict[str, dict[str, int]] = {}
        self.ca: dict[str, pathlib.Path] = {}
        self.origin: dict[str, int] = {}
        self.missing: dict[str, str] = {}
        self.host, self.tunnels = HOST, IDLE_TUNNELS
        self.program = build / "bench/bench"
        self.h2 = build / "bench/h2"

    def compile(self) -> None:
        self.program.parent.mkdir(parents=True, exist_ok=True)
        flags = ["cc", "-O2", "-std=c17", "-D_GNU_SOURCE", f"-I{ROOT}"]
        subprocess.run([*flags, "-o", self.program, HERE / "bench.c", "-lssl", "-lcrypto"], check=True)
        subprocess.run([*flags, "-o", self.build / "bench/tlsfloor", HERE / "tlsfloor.c", "-lssl", "-lcrypto"],
                       check=True)
        subprocess.run([*flags, "-o", self.h2, HERE / "h2.c", HERE / "events.c", "-lnghttp2", "-lssl", "-lcrypto",
                        "-pthread"], check=True)
        subprocess.run([*flags, "-o", self.build / "bench/decide", HERE / "decide.c",
                        self.build / "libpolicy.a", self.build / "liblogging.a", "-lyaml", "-lpsl", "-lunistring", "-lcrypto",
                        "-pthread"], check=True)
        libs = subprocess.run(["pkg-config", "--libs", "libevent_core", "libevent_pthreads", "openssl", "yaml-0.1", "libcares",
                               "libnghttp2", "jansson", "libpsl"], check=True, capture_output=True, text=True).stdout.split()
        libs += ["-lunistring", "-lresolv"]
        subprocess.run([*flags, "-o", self.build / "bench/placeholders", HERE / "placeholders.c",
                        *(self.build / f"lib{n}.a" for n in ("credentials", "http", "net", "policy", "certs", "logging")),
                        *libs, "-pthread"], check=True)
        for name, more in (("sign", []), ("redact", ["-lz", "-lbrotlidec"])):
            subprocess.run([*flags, "-o", self.build / f"bench/{name}", HERE / f"{name}.c",
                            *(self.build / f"lib{n}.a" for n in ("credentials", "http", "net", "policy", "certs", "logging")),
                            *libs, *more, "-pthread"], check=True)

    def start(self, args: list, **more) -> subprocess.Popen:
        p = subprocess.Popen([str(a) for a in args], **more)
        self.running.append(p)
        return p

    def start_own(self, *args) -> tuple[int, int]:
        """One of our own servers: its process id and port."""
        p = self.start(list(args), stdout=subprocess.PIPE, text=True)
        return p.pid, int(p.stdout.readline())

    def start_origins(self) -> None:
        pki = self.folder / "pki"
        subprocess.run(["/usr/bin/python3", ROOT / "tests/origin/pki.py", pki], check=True,
                       stderr=subprocess.DEVNULL)
        both = self.folder / "origin.pem"
        both.write_text((pki / "good.pem").read_text() + (pki / "good.key").read_text())
        bulk = ["--bulk", str(8 << 20)]
        for kind, args in {"clear": [self.program, "origin", *bulk],
                           "tls": [self.program, "origin", "--pem", both, *bulk],
                           "h2": [self.h2, "origin", "--pem", both],
                           "events": [self.h2, "events-origin", "--pem", both],
                           "events-h2": [self.h2, "events-origin", "--h2", "--pem", both]}.items():
            _, self.origin[kind] = self.start_own(*args)
        self.ca["direct"] = self.ca["floor"] = pki / "ca.pem"

    def handshake_us(self) -> float:
        """What OpenSSL alone takes for the server's side of a handshake with an ECDSA leaf."""
        leaf = self.folder / "ec.pem"
        cert, key = peers.self_signed(self.folder, HOST)
        leaf.write_text(cert.read_text() + key.read_text())
        out = subprocess.run([self.program, "handshake", "--pem", leaf], check=True, capture_output=True, text=True)
        return json.loads(out.stdout)["cpu_us"]

    def start_floor(self) -> None:
        self.ports["floor"] = {}
        for kind, at in self.origin.items():
            pid, self.ports["floor"][kind] = self.start_own(self.program, "floor", "--port", at)
            self.pids[f"floor {kind}"] = pid
        folder = self.folder / "tls-floor"
        folder.mkdir()
        cert, key = peers.self_signed(folder, HOST)
        both = folder / "both.pem"
        both.write_text(cert.read_text() + key.read_text())
        self.pids["TLS floor"], port = self.start_own(self.build / "bench/tlsfloor", str(self.origin["tls"]), both)
        self.ports["TLS floor"] = {"tls": port}
        self.ca["TLS floor"] = cert

    def start_stile(self, name: str, workers: int) -> None:
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        clear = self.origin["clear"]
        inspected = "".join(f"""\
      - {{allow: "https://{HOST}:{at}/**", addresses: [127.0.0.0/8]}}
""" for kind, at in self.origin.items() if kind != "clear")
        with_credentials = "".join(f"""\
      - {{allow: "https://{HOST}:{self.origin['tls']}{path.removesuffix('x')}**", addresses: [127.0.0.0/8], \
credential: {what.removeprefix('bulk, ')}}}
""" for what, path in CREDENTIALS.items() if not what.endswith("none"))
        # As long as those of an API are; made up here, and known to nobody.
        for kind, value in (("token", "tok_" + secrets.token_hex(18)), ("pair", "user:" + secrets.token_hex(18)),
                            ("keys", f"AKID{secrets.token_hex(8).upper()} {secrets.token_hex(20)}")):
            (folder / kind).write_text(value)
            (folder / kind).chmod(0o600)
        (folder / "stile.yaml").write_text(f"""\
version: 1
credentials:
  bearer: {{from: {{file: token}}, as: bearer}}
  basic: {{from: {{file: pair}}, as: basic}}
  query: {{from: {{file: token}}, as: {{query: key}}}}
  sigv4: {{from: {{file: keys}}, as: {{sigv4: {{service: s3, region: eu-central-1}}}}}}
listen: [{{proxy: "127.0.0.1:0"}}]
ca: {{dir: ca}}
upstream: {{trust: ["{self.folder}/pki/ca.pem"], hosts: {{{HOST}: 127.0.0.1}}}}
log: {{to: out.jsonl, wait: written}}
limits: {{workers: {workers}}}
policies:
  default:
    rules:
      - {{allow: "tcp://{HOST}:{clear}", addresses: [127.0.0.0/8]}}
      - {{allow: "http://{HOST}:{clear}/**", addresses: [127.0.0.0/8]}}
{with_credentials}{inspected}""")
        p = self.start([self.build / "stile", "serve", "-c", "stile.yaml"], cwd=folder,
                       stderr=subprocess.PIPE, text=True)
        for line in p.stderr:
            if m := re.search(r"listening on 127\.0\.0\.1:(\d+)", line):
                self.ports[name] = {kind: int(m[1]) for kind in self.origin}
                break
        else:
            sys.exit("stile did not start")
        self.pids[name] = p.pid
        self.ca[name] = folder / "ca/ca.pem"

    def start_peers(self, wanted: set[str]) -> None:
        for name, start in peers.PEERS.items():
            if name not in wanted:
                continue
            try:
                start(self)
            except (peers.Missing, OSError, KeyError, subprocess.CalledProcessError) as e:
                self.missing[name] = str(e)
                self.ports.pop(name, None)
                print(f"{name} is missing: {e}", flush=True)

    def pid(self, who: str, origin: str) -> int | None:
        return self.pids.get(f"floor {origin}" if who == "floor" else who)

    def load(self, who: str, options: list[str], origin: str, requests: int) -> dict:
        """One run of the load; what it printed, and the CPU seconds of the proxy."""
        if who in self.missing:
            raise RuntimeError(f"missing: {self.missing[who]}")
        program, what, *options = options
        args = [self.build / "bench" / program, what, "--host", HOST, "--requests", str(requests)]
        if who in ("direct", "floor", "TLS floor"):
            args += ["--port", str(self.origin[origin] if who == "direct" else self.ports[who][origin])]
            args += [o for o in options if o != "--tunnel"]
        else:
            args += ["--proxy", str(self.ports[who][origin]), "--port", str(self.origin[origin]), *options]
            if who == "tinyproxy" and "--tunnel" not in options:
                args.append("--fresh")  # it keeps no connection
        if origin != "clear":
            args += ["--ca", str(self.ca[who])]
        pid = self.pid(who, origin)
        return self.measure(args, pid, program == "h2")

    def measure(self, args: list, pid: int | None, waits: bool) -> dict:
        """waits: it sets up, says that it is ready, and is told to go: what came before does not count."""
        p = self.start(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if waits:
            p.stdout.readline()
        before = cpu_seconds(pid) if pid else 0.0
        out, err = p.communicate("go\n" if waits else None)
        self.running.remove(p)
        if p.returncode:
            raise RuntimeError(" | ".join(err.split("\n"))[:300] or "failed")
        time.sleep(0.03)  # what follows the last answer is of the price too
        result = json.loads(out)
        result["cpu_s"] = cpu_seconds(pid) - before if pid else 0.0
        return result

    def stop(self) -> None:
        for p in reversed(self.running):
            end(p)


# ---- the cases ----

def fewest(options: list[str]) -> int:
    """Each stream twice, where there are streams."""
    if "--streams" not in options:
        return 0
    return 2 * int(options[options.index("--conns") + 1]) * int(options[options.index("--streams") + 1])


def race(b: Bench, case: str, rounds: int, seconds: float) -> dict:
    _, options, origin, who = CASES[case]
    counts, samples, failed = {}, {w: [] for w in who}, {}
    for w in who:  # warms up, and finds how many requests fill the time
        try:
            for n in (4, 16) if case in BULK else (20,) if case in EVENTS else (100, 400):
                rps = b.load(w, options, origin, n)["rps"]
            counts[w] = max(fewest(options), 8 if case in BULK else 250 if case in EVENTS else 50, int(rps * seconds))
        except RuntimeError as e:
            failed[w] = str(e)
    for _ in range(rounds):
        for w in who:
            if w in failed:
                continue
            try:
                samples[w].append(b.load(w, options, origin, counts[w]))
            except RuntimeError as e:
                failed[w] = str(e)
    rows = {}
    for w in who:
        if w in failed:
            rows[w] = {"failed": failed[w]}
            continue

        def mid(f):
            return statistics.median(f(s) for s in samples[w])
        row = {"requests": counts[w], "rounds": rounds, "rps": mid(lambda s: s["rps"]),
               "cpu_us": mid(lambda s: s["cpu_s"] / s["requests"] * 1e6),
               "p50_us": mid(lambda s: s["p50_us"]), "p99_us": mid(lambda s: s["p99_us"]),
               "cpu_us_all": [round(s["cpu_s"] / s["requests"] * 1e6, 2) for s in samples[w]]}
        if case in BULK:
            row["gb_per_s"] = mid(lambda s: s["bytes"] / s["seconds"] / 1e9)
            row["cpu_s_per_gb"] = mid(lambda s: s["cpu_s"] / (s["bytes"] / 1e9))
        rows[w] = row
    price = "cpu_s_per_gb" if case in BULK else "cpu_us"
    for w in who:
        for x in who:
            if w != x and rows[x].get(price) and rows["stile"].get(price) and w == "stile":
                rows["stile"].setdefault("ratio", {})[x] = rows["stile"][price] / rows[x][price]
        if case in LATENCY and "p50_us" in rows[w] and "p50_us" in rows["direct"]:
            for k in ("p50_us", "p99_us"):
                rows[w][f"added_{k}"] = rows[w][k] - rows["direct"][k]
    return rows


def idle(b: Bench) -> dict:
    rows = {}
    for w in CASES["g"].who:
        try:
            b.load(w, CASES["b"].load, "clear", 400)  # so that what is made once is there
        except RuntimeError as e:
            rows[w] = {"failed": str(e)}
            continue
        time.sleep(0.5)
        args = [b.program, "idle", "--host", HOST, "--conns", str(IDLE_TUNNELS)]
        args += ["--port", b.ports[w]["clear"]] if w == "floor" else [
            "--proxy", b.ports[w]["clear"], "--port", b.origin["clear"]]
        before = memory_kb(b.pid(w, "clear"))
        p = b.start([str(a) for a in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
        ready = p.stdout.readline().strip() == "ready"
        time.sleep(1)
        after = memory_kb(b.pid(w, "clear"))
        _, err = p.communicate()  # ends its input, and so the tunnels
        if ready:
            rows[w] = {f"{k.lower()}_kb": (after[k] - before[k]) / IDLE_TUNNELS for k in before}
        else:
            rows[w] = {"failed": err.strip()[:200]}
        time.sleep(1)
    return rows


def decisions(b: Bench, quick: bool) -> dict:
    rows = {}
    for n in HOST_COUNTS:
        runs = [json.loads(subprocess.run([b.build / "bench/decide", str(n), b.folder / "hosts.yaml"],
                                          check=True, capture_output=True, text=True).stdout)
                for _ in range(1 if quick else 5)]
        rows[str(n)] = {k: statistics.median(r[k] for r in runs) for k in ("decision_ns", "load_ms", "mb")}
    return rows


def placeholders(b: Bench, quick: bool) -> dict:
    rows = {}
    for n in PLACEHOLDER_COUNTS:
        runs = [json.loads(subprocess.run([b.build / "bench/placeholders", str(n)], check=True, capture_output=True,
                                          text=True).stdout) for _ in range(1 if quick else 5)]
        rows[str(n)] = {k: statistics.median(r[k] for r in runs) for k in runs[0]}
    return rows


def signatures(b: Bench, quick: bool) -> dict:
    runs = [json.loads(subprocess.run([b.build / "bench/sign"], check=True, capture_output=True, text=True).stdout)
            for _ in range(1 if quick else 5)]
    return {k: statistics.median(r[k] for r in runs) for k in runs[0]}


def searches(b: Bench, quick: bool) -> dict:
    runs = [json.loads(subprocess.run([b.build / "bench/redact"], check=True, capture_output=True, text=True).stdout)
            for _ in range(3 if quick else 7)]
    return {k: statistics.median(r[k] for r in runs) for k in runs[0]}


def credentials(b: Bench, quick: bool) -> dict:
    """The same exchange with each of CREDENTIALS, alternating: CPU of stile, and how often that of the one without."""
    def run(what: str, n: int) -> dict:
        bulk = what.startswith("bulk")
        options = CASES["f" if bulk else "c"].load
        if bulk:
            options = options[:options.index("--path")]
        return b.load("stile", [*options, "--path", CREDENTIALS[what]], "tls", n)
    counts = {}
    for what in CREDENTIALS:
        for n in (4, 16) if what.startswith("bulk") else (100, 400):
            rps = run(what, n)["rps"]
        counts[what] = max(8 if what.startswith("bulk") else 50, int(rps * (0.4 if quick else 0.9)))
    rounds = [{what: run(what, counts[what]) for what in CREDENTIALS} for _ in range(5 if quick else 9)]
    rows = {}
    for what in CREDENTIALS:
        bulk = what.startswith("bulk")
        base = "bulk, none" if bulk else "none"

        def price(s: dict) -> float:
            return s["cpu_s"] / (s["bytes"] / 1e6) * 1e6 if bulk else s["cpu_s"] / s["requests"] * 1e6
        rows[what] = {"cpu_us": statistics.median(price(r[what]) for r in rounds),
                      "p50_us": statistics.median(r[what]["p50_us"] for r in rounds),
                      "ratio": statistics.median(price(r[what]) / price(r[base]) for r in rounds),
                      "unit": "MB" if bulk else "request"}
    return rows


def starts(b: Bench, quick: bool) -> dict:
    """From the start of a program that makes a sandbox to its end, with `true` in it; alternating."""
    folder = b.folder / "start"
    folder.mkdir(exist_ok=True)
    (folder / "one.yaml").write_text(f"version: 1\nupstream: {{trust: [{b.folder}/pki/ca.pem]}}\n"
                                     "policies: {default: {rules: [{allow: a.test}]}}\n")
    stile = [b.build / "stile", "run", "--log", folder / "log", "--workspace", "none"]
    what = {
        "true": ["true"],
        "bwrap": ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--unshare-all",
                  "--die-with-parent", "--", "true"],
        "stile": [*stile, "--allow", "a.test", "--", "true"],
        "stile, one root": [*stile, "-c", folder / "one.yaml", "--", "true"],
    }
    runs = {w: [] for w in what}
    for _ in range(20 if quick else 100):
        for w, argv in what.items():
            begun = time.monotonic()
            p = subprocess.Popen(argv, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, used = os.wait4(p.pid, 0)
            took = time.monotonic() - begun
            p.returncode = os.waitstatus_to_exitcode(status)
            if p.returncode != 0:
                raise RuntimeError(f"{w} has failed with {p.returncode}")
            runs[w].append((took * 1e3, (used.ru_utime + used.ru_stime) * 1e3))
    return {w: {"ms": statistics.median(t for t, _ in r), "least_ms": min(t for t, _ in r),
                "cpu_ms": statistics.fmean(c for _, c in r)} for w, r in runs.items()}


# ---- the table ----

def pick(words: list[str]) -> list[str]:
    """The cases that words name, in the order of the table; none: all. A word is a case, or letters that
    cases begin with."""
    found = set()
    for word in words:
        for part in [word] if word in CASES else word:
            some = {c for c in CASES if c == part or c[0] == part}
            if not some:
                raise KeyError(part)
            found |= some
    return [c for c in CASES if c in found or not found]


def cell(v, form: str = "{:,.0f}") -> str:
    return "" if v is None else form.format(v)


def goal_line(case: str, rows: dict) -> str:
    if case in GOALS:
        whom, most = GOALS[case]
        got = rows["stile"].get("ratio", {}).get(whom)
        if got:
            return f"    stile takes {got:.2f} x the CPU of {whom}; aimed at {most:.2f}"
    if case == "g" and "pss_kb" in rows.get("stile", {}):
        return f"    {rows['stile']['pss_kb']:.1f} KB a tunnel; aimed at 4"
    if case == "h":
        r = rows[str(HOST_COUNTS[-1])]
        return (f"    at {HOST_COUNTS[-1]:,} hosts: {r['decision_ns']:.0f} ns, {r['load_ms']:.0f} ms; "
                "aimed at 500 ns, 200 ms")
    return ""


def print_race(case: str, rows: dict) -> None:
    bulk, added = case in BULK, case in LATENCY
    per = "CPU s/GB" if bulk else "CPU us/event" if case in EVENTS else "CPU us/req"
    print(f"    {'':12}{'GB/s' if bulk else '' if case in EVENTS else 'requests/s':>12}{per:>14}"
          f"{'p50 us':>10}{'p99 us':>10}" + (f"{'added p50':>11}{'added p99':>11}" if added else "")
          + "   CPU of stile / its")
    ratio = rows["stile"].get("ratio", {})
    for w, r in rows.items():
        if "failed" in r:
            print(f"    {w:12}{r['failed']}")
            continue
        rate = f"{r['gb_per_s']:.2f}" if bulk else "" if case in EVENTS else f"{r['rps']:,.0f}"
        cpu = f"{r['cpu_s_per_gb']:.3f}" if bulk else f"{r['cpu_us']:.1f}"
        plus = "".join(f"{cell(r.get(f'added_{k}')):>11}" for k in ("p50_us", "p99_us")) if added else ""
        print(f"    {w:12}{rate:>12}{cpu if w != 'direct' else '':>14}{r['p50_us']:10,.0f}{r['p99_us']:10,.0f}"
              f"{plus}   {cell(ratio.get(w), '{:.2f}')}")


def r_us(ns_a_byte: float) -> str:
    return f"{ns_a_byte * 1000:10.0f}"


def print_case(case: str, rows: dict) -> None:
    print(f"\n({case}) {CASES[case].title}")
    if case == "h":
        print(f"    {'hosts':>10}{'decision ns':>14}{'load ms':>12}{'MB':>10}")
        for n, r in rows.items():
            print(f"    {int(n):10,}{r['decision_ns']:14.0f}{r['load_ms']:12.2f}{r['mb']:10.2f}")
    elif case == "m":
        print(f"    {'count':>10}{'head ns':>10}{'header ns':>12}{'query ns':>12}{'Basic ns':>12}{'body GB/s':>12}{'swapped':>10}")
        for n, r in rows.items():
            print(f"    {int(n):10,}{r['search_ns']:10.0f}{r['header_ns']:12.0f}{r['query_ns']:12.0f}{r['basic_ns']:12.0f}"
                  f"{r['body_search_gb_s']:12.2f}{r['body_swap_gb_s']:10.2f}")
    elif case == "n":
        print(f"    {rows['sign_ns']:.0f} ns a signature, {rows['derive_ns']:.0f} ns with a key that is new")
    elif case == "o":
        for k in ("text", "random", "escaped", "base64", "beginnings"):
            print(f"    {k:14}{r_us(rows[k])} us a MB")
        print(f"    {'gzip':14}{r_us(rows['gzip_searched'])} us a MB of text unfolded and searched, "
              f"{rows['gzip_searched'] / rows['gzip']:.2f} x the unfolding alone")
    elif case == "p":
        for what, r in rows.items():
            print(f"    {what:14}{r['cpu_us']:10.1f} CPU us a {r['unit']:8}{r['ratio']:6.2f} x without{r['p50_us']:10,.0f} p50 us")
    elif case == "q":
        print(f"    {'':18}{'ms':>8}{'least':>8}{'CPU ms':>9}{'over bwrap':>13}")
        for w, r in rows.items():
            over = "" if w in ("true", "bwrap") else f"{r['ms'] - rows['bwrap']['ms']:+10.1f} ms"
            print(f"    {w:18}{r['ms']:8.1f}{r['least_ms']:8.1f}{r['cpu_ms']:9.1f}{over:>13}")
    elif case == "g":
        print(f"    {'':12}{'PSS KB':>10}{'RSS KB':>10}   a tunnel")
        for w, r in rows.items():
            print(f"    {w:12}" + (r["failed"] if "failed" in r else
                                   f"{r['pss_kb']:10.2f}{r['rss_kb']:10.2f}"))
    else:
        print_race(case, rows)
    if line := goal_line(case, rows):
        print(line)
    sys.stdout.flush()


def machine() -> dict:
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"cpu": model[1] if model else platform.machine(), "cpus": os.cpu_count(),
            "kernel": platform.release(), "openssl": peers.version_of("openssl", "version"),
            "load_before": os.getloadavg()[0]}


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default="build", help="where stile and its libraries are (build)")
    a.add_argument("--quick", action="store_true", help="about two minutes instead of about ten")
    a.add_argument("cases", nargs="*", help="letters or names of cases: j k l, acj, j100-h1 (all)")
    a.add_argument("--only", default="", help="the same, for example a,c")
    a.add_argument("--no-peers", action="store_true", help="direct, floor and stile alone")
    a.add_argument("-o", dest="out", help="the numbers as JSON")
    o = a.parse_args()
    try:
        cases = pick([*o.cases, *o.only.split(",")])
    except KeyError as e:
        a.error(f"no case {e} (there are {', '.join(CASES)})")
    own = {"direct", "floor", "TLS floor", "stile", "stile x2"}
    wanted = {w for c in cases for w in CASES[c].who if not o.no_peers or w in own}
    for c in CASES.values():
        c.who[:] = [w for w in c.who if w in wanted]
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if wanted & {"squid", "tinyproxy", "envoy", "mitmproxy"} or "q" in cases:  # q: bubblewrap
        # What cannot be installed is missing from the race, and no more.
        subprocess.run(["sh", ROOT / "tests/install-deps.sh", "bench"], check=False)
    m = machine()
    print(f"{m['cpu']}, {m['cpus']} CPUs, Linux {m['kernel']}; load average {m['load_before']:.1f}")
    print(m["openssl"], flush=True)
    if m["load_before"] > 0.5:
        print("this machine is not quiet: compare ratios, and those with care")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything started is ended
    results = {}
    with tempfile.TemporaryDirectory(prefix="stile-bench-") as tmp:
        os.chmod(tmp, 0o755)  # Squid reads its files as another user
        b = Bench(pathlib.Path(tmp), pathlib.Path(o.build).resolve())
        try:
            b.compile()
            b.start_origins()
            b.start_floor()
            b.start_stile("stile", 1)
            b.start_stile("stile x2", 2)
            b.start_peers(wanted)
            m["peers"], m["missing"] = peers.versions(b), b.missing
            print("; ".join(m["peers"].values()), flush=True)
            for case in cases:
                if case == "g":
                    results[case] = idle(b)
                elif case == "h":
                    results[case] = decisions(b, o.quick)
                elif case == "m":
                    results[case] = placeholders(b, o.quick)
                elif case == "n":
                    results[case] = signatures(b, o.quick)
                elif case == "o":
                    results[case] = searches(b, o.quick)
                elif case == "p":
                    results[case] = credentials(b, o.quick)
                elif case == "q":
                    results[case] = starts(b, o.quick)
                else:
                    results[case] = race(b, case, 3 if o.quick else 7, 0.25 if o.quick else 0.9)
                print_case(case, results[case])
                if case == "d":
                    m["handshake_us"] = b.handshake_us()
                    print(f"    of it, the handshake within OpenSSL alone: {m['handshake_us']:.0f} us")
        finally:
            b.stop()
    if o.out:
        pathlib.Path(o.out).write_text(json.dumps({"machine": m, "quick": o.quick, "cases": results},
                                                  indent=1) + "\n")


if __name__ == "__main__":
    main()
