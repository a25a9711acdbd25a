#!/usr/bin/python3
"""The race: the same load, in one run and alternating, directly, through a bare relay (the floor),
through stile, and through Squid and tinyproxy. README.md here says what the numbers mean.

    make all && tests/bench/run.py [--quick] [--only a,c] [-o FILE]

Everything runs on loopback in a temporary folder; every process is ended by its id."""

import argparse
import json
import os
import pathlib
import platform
import pwd
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
HOST = "localhost"  # a name that every peer can look up without a server
IDLE_TUNNELS = 5000
HOST_COUNTS = (10, 1000, 100000)

# key: what it is, options of the load, whether the origin speaks TLS, who takes part
CASES = {
    "a": ("forward, keep-alive", ["--conns", "32"], False,
          ["direct", "floor", "stile", "stile x2", "squid", "tinyproxy"]),
    "b": ("CONNECT for each request", ["--conns", "32", "--tunnel", "--fresh"], False,
          ["direct", "floor", "stile", "stile x2", "squid", "tinyproxy"]),
    "c": ("inspected, keep-alive", ["--conns", "32", "--tunnel", "--tls"], True,
          ["direct", "floor", "stile", "stile x2", "squid"]),
    "d": ("inspected, new connection each", ["--conns", "16", "--tunnel", "--tls", "--fresh"], True,
          ["direct", "floor", "stile", "stile x2", "squid"]),
    "e": ("tunnel, bulk", ["--conns", "4", "--tunnel", "--path", "/bulk"], False,
          ["direct", "floor", "stile", "squid", "tinyproxy"]),
    "f": ("inspected, bulk", ["--conns", "4", "--tunnel", "--tls", "--path", "/bulk"], True,
          ["direct", "floor", "stile", "squid"]),
    "g": (f"{IDLE_TUNNELS} idle tunnels", [], False, ["floor", "stile", "squid", "tinyproxy"]),
    "h": ("decisions and loading", [], False, []),
    "i": ("one connection, forward", ["--conns", "1"], False,
          ["direct", "floor", "stile", "squid", "tinyproxy"]),
}
BULK = ("e", "f")
# CPU of stile at most so many times that of the other; (g) in KB
GOALS = {"a": ("floor", 1.35), "b": ("floor", 1.35), "c": ("floor", 1.5), "d": ("squid", 0.1),
         "e": ("squid", 0.5), "f": ("squid", 1 / 3)}


# ---- processes ----

def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


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


def wait_port(port: int, p: subprocess.Popen, what: str, log: pathlib.Path) -> None:
    for _ in range(300):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        if p.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit(f"{what} did not start: {log.read_text(errors='replace')[-2000:]}")


# ---- who takes part ----

class Bench:
    """The programs of one run. `ports[NAME]` is where NAME listens, for clear and for TLS origins."""

    def __init__(self, folder: pathlib.Path, build: pathlib.Path):
        self.folder, self.build = folder, build
        self.running: list[subprocess.Popen] = []
        self.pids: dict[str, int] = {}
        self.ports: dict[str, dict[bool, int]] = {}
        self.ca: dict[str, pathlib.Path] = {}
        self.origin: dict[bool, int] = {}
        self.program = build / "bench/bench"

    def compile(self) -> None:
        self.program.parent.mkdir(parents=True, exist_ok=True)
        flags = ["cc", "-O2", "-std=c17", "-D_GNU_SOURCE", f"-I{ROOT}"]
        subprocess.run([*flags, "-o", self.program, HERE / "bench.c", "-lssl", "-lcrypto"], check=True)
        subprocess.run([*flags, "-o", self.build / "bench/decide", HERE / "decide.c",
                        self.build / "libpolicy.a", self.build / "liblogging.a", "-lyaml", "-lpsl", "-lcrypto",
                        "-pthread"], check=True)

    def start(self, args: list, **more) -> subprocess.Popen:
        p = subprocess.Popen([str(a) for a in args], **more)
        self.running.append(p)
        return p

    def start_own(self, *args) -> tuple[int, int]:
        """One of bench.c's servers: its process id and port."""
        p = self.start([self.program, *args], stdout=subprocess.PIPE, text=True)
        return p.pid, int(p.stdout.readline())

    def start_origins(self) -> None:
        pki = self.folder / "pki"
        subprocess.run(["/usr/bin/python3", ROOT / "tests/origin/pki.py", pki], check=True,
                       stderr=subprocess.DEVNULL)
        both = self.folder / "origin.pem"
        both.write_text((pki / "good.pem").read_text() + (pki / "good.key").read_text())
        bulk = ["--bulk", str(8 << 20)]
        _, self.origin[False] = self.start_own("origin", *bulk)
        _, self.origin[True] = self.start_own("origin", "--pem", both, *bulk)
        self.ca["direct"] = self.ca["floor"] = pki / "ca.pem"

    def handshake_us(self) -> float:
        """What OpenSSL alone takes for the server's side of a handshake with an ECDSA leaf."""
        leaf = self.folder / "ec.pem"
        key, cert = self.folder / "ec.key", self.folder / "ec.crt"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "3", "-subj", f"/CN={HOST}", "-keyout", key, "-out", cert],
                       check=True, stderr=subprocess.DEVNULL)
        leaf.write_text(cert.read_text() + key.read_text())
        out = subprocess.run([self.program, "handshake", "--pem", leaf], check=True, capture_output=True, text=True)
        return json.loads(out.stdout)["cpu_us"]

    def start_floor(self) -> None:
        self.ports["floor"] = {}
        for tls in (False, True):
            pid, port = self.start_own("floor", "--port", self.origin[tls])
            self.ports["floor"][tls] = port
            self.pids[f"floor{tls}"] = pid

    def start_stile(self, name: str, workers: int) -> None:
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        clear, tls = self.origin[False], self.origin[True]
        (folder / "stile.yaml").write_text(f"""\
version: 1
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
      - {{allow: "https://{HOST}:{tls}/**", addresses: [127.0.0.0/8]}}
""")
        p = self.start([self.build / "stile", "serve", "-c", "stile.yaml"], cwd=folder,
                       stderr=subprocess.PIPE, text=True)
        for line in p.stderr:
            if m := re.search(r"listening on 127\.0\.0\.1:(\d+)", line):
                self.ports[name] = {False: int(m[1]), True: int(m[1])}
                break
        else:
            sys.exit("stile did not start")
        self.pids[name] = p.pid
        self.ca[name] = folder / "ca/ca.pem"

    def start_squid(self) -> None:
        folder = self.folder / "squid"
        folder.mkdir()
        self.ports["squid"] = {False: free_port(), True: free_port()}
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-subj", "/CN=squid bench",
                        "-keyout", folder / "ca.key", "-out", folder / "ca.pem"], check=True,
                       stderr=subprocess.DEVNULL)
        (folder / "hosts").write_text(f"127.0.0.1 {HOST}\n")
        certgen = "/usr/lib/squid/security_file_certgen"
        subprocess.run([certgen, "-c", "-s", folder / "db", "-M", "16MB"], check=True,
                       stdout=subprocess.DEVNULL)
        (folder / "squid.conf").write_text(f"""\
http_port 127.0.0.1:{self.ports["squid"][False]}
http_port 127.0.0.1:{self.ports["squid"][True]} ssl-bump generate-host-certificates=on \
dynamic_cert_mem_cache_size=16MB tls-cert={folder}/ca.pem tls-key={folder}/ca.key
sslcrtd_program {certgen} -s {folder}/db -M 16MB
tls_outgoing_options cafile={self.folder}/pki/ca.pem
acl bumped localport {self.ports["squid"][True]}
acl step1 at_step SslBump1
ssl_bump peek step1
ssl_bump bump bumped
hosts_file {folder}/hosts
http_access allow localhost
http_access deny all
cache deny all
cache_mem 8 MB
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
netdb_filename none
pinger_enable off
max_filedescriptors 32768
shutdown_lifetime 0 seconds
visible_hostname bench
workers 1
""")
        if os.geteuid() == 0:  # then Squid changes to its own user
            user = pwd.getpwnam("proxy")
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, user.pw_uid, user.pw_gid)
        out = folder / "out"
        p = self.start(["squid", "-N", "-f", folder / "squid.conf"], stdout=open(out, "w"),
                       stderr=subprocess.STDOUT, cwd=folder)
        for port in self.ports["squid"].values():
            wait_port(port, p, "squid", out)
        self.pids["squid"] = p.pid
        self.ca["squid"] = folder / "ca.pem"

    def start_tinyproxy(self) -> None:
        folder = self.folder / "tinyproxy"
        folder.mkdir()
        port = free_port()
        user = "User nobody\nGroup nogroup\n" if os.geteuid() == 0 else ""
        if user:
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        (folder / "conf").write_text(f"""\
{user}Port {port}
Listen 127.0.0.1
Timeout 600
MaxClients {IDLE_TUNNELS + 500}
LogFile "{folder}/log"
LogLevel Connect
Allow 127.0.0.1
""")
        out = folder / "out"
        p = self.start(["tinyproxy", "-d", "-c", folder / "conf"], stdout=open(out, "w"),
                       stderr=subprocess.STDOUT, cwd=folder)
        wait_port(port, p, "tinyproxy", out)
        self.pids["tinyproxy"] = p.pid
        self.ports["tinyproxy"] = {False: port}

    def pid(self, who: str, tls: bool) -> int | None:
        return self.pids.get(f"floor{tls}" if who == "floor" else who)

    def load(self, who: str, options: list[str], tls: bool, requests: int) -> dict:
        """One run of the load; what it printed, and the CPU seconds of the proxy."""
        args = [self.program, "load", "--host", HOST, "--requests", str(requests)]
        if who in ("direct", "floor"):
            args += ["--port", str(self.origin[tls] if who == "direct" else self.ports[who][tls])]
            args += [o for o in options if o != "--tunnel"]
        else:
            args += ["--proxy", str(self.ports[who][tls]), "--port", str(self.origin[tls]), *options]
            if who == "tinyproxy" and "--tunnel" not in options:
                args.append("--fresh")  # it keeps no connection
        if tls:
            args += ["--ca", str(self.ca[who])]
        pid = self.pid(who, tls)
        before = cpu_seconds(pid) if pid else 0.0
        done = subprocess.run(args, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(" | ".join(done.stderr.split("\n"))[:300] or "failed")
        time.sleep(0.03)  # what follows the last answer is of the price too
        result = json.loads(done.stdout)
        result["cpu_s"] = cpu_seconds(pid) - before if pid else 0.0
        return result

    def stop(self) -> None:
        for p in reversed(self.running):
            end(p)


# ---- the cases ----

def race(b: Bench, case: str, rounds: int, seconds: float) -> dict:
    _, options, tls, who = CASES[case]
    counts, samples, failed = {}, {w: [] for w in who}, {}
    for w in who:  # warms up, and finds how many requests fill the time
        try:
            for n in (4, 16) if case in BULK else (100, 400):
                rps = b.load(w, options, tls, n)["rps"]
            counts[w] = max(8 if case in BULK else 50, int(rps * seconds))
        except RuntimeError as e:
            failed[w] = str(e)
    for _ in range(rounds):
        for w in who:
            if w in failed:
                continue
            try:
                samples[w].append(b.load(w, options, tls, counts[w]))
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
        if case == "i" and "p50_us" in rows[w] and "p50_us" in rows["direct"]:
            rows[w]["added_p50_us"] = rows[w]["p50_us"] - rows["direct"]["p50_us"]
    return rows


def idle(b: Bench) -> dict:
    rows = {}
    for w in CASES["g"][3]:
        args = [b.program, "idle", "--host", HOST, "--conns", str(IDLE_TUNNELS)]
        args += ["--port", b.ports[w][False]] if w == "floor" else [
            "--proxy", b.ports[w][False], "--port", b.origin[False]]
        try:
            b.load(w, CASES["b"][1], False, 400)  # so that what is made once is there
        except RuntimeError as e:
            rows[w] = {"failed": str(e)}
            continue
        time.sleep(0.5)
        before = memory_kb(b.pid(w, False))
        p = b.start([str(a) for a in args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True)
        ready = p.stdout.readline().strip() == "ready"
        time.sleep(1)
        after = memory_kb(b.pid(w, False))
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


# ---- the table ----

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


def print_case(case: str, rows: dict) -> None:
    print(f"\n({case}) {CASES[case][0]}")
    if case == "h":
        print(f"    {'hosts':>10}{'decision ns':>14}{'load ms':>12}{'MB':>10}")
        for n, r in rows.items():
            print(f"    {int(n):10,}{r['decision_ns']:14.0f}{r['load_ms']:12.2f}{r['mb']:10.2f}")
    elif case == "g":
        print(f"    {'':12}{'PSS KB':>10}{'RSS KB':>10}   a tunnel")
        for w, r in rows.items():
            print(f"    {w:12}" + (f"failed: {r['failed']}" if "failed" in r else
                                   f"{r['pss_kb']:10.2f}{r['rss_kb']:10.2f}"))
    else:
        bulk = case in BULK
        print(f"    {'':12}{'GB/s' if bulk else 'requests/s':>12}"
              f"{'CPU s/GB' if bulk else 'CPU us/req':>12}{'p50 us':>10}{'p99 us':>10}   "
              + ("added p50 us" if case == "i" else "CPU of stile / its"))
        ratio = rows["stile"].get("ratio", {})
        for w, r in rows.items():
            if "failed" in r:
                print(f"    {w:12}failed: {r['failed']}")
                continue
            rate = f"{r['gb_per_s']:12.2f}" if bulk else f"{r['rps']:12,.0f}"
            cpu = f"{r['cpu_s_per_gb']:12.3f}" if bulk else f"{r['cpu_us']:12.1f}"
            last = cell(r.get("added_p50_us")) if case == "i" else cell(ratio.get(w), "{:.2f}")
            print(f"    {w:12}{rate}{cpu if w != 'direct' else '':>12}{r['p50_us']:10,.0f}{r['p99_us']:10,.0f}"
                  f"   {last}")
    if line := goal_line(case, rows):
        print(line)
    sys.stdout.flush()


def version_of(*args: str) -> str:
    try:
        out = subprocess.run(args, capture_output=True, text=True)
        return (out.stdout + out.stderr).splitlines()[0].strip()
    except (OSError, IndexError):
        return "not there"


def machine() -> dict:
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"cpu": model[1] if model else platform.machine(), "cpus": os.cpu_count(),
            "kernel": platform.release(), "openssl": version_of("openssl", "version"),
            "squid": version_of("squid", "-v"), "tinyproxy": version_of("tinyproxy", "-v"),
            "load_before": os.getloadavg()[0]}


def main() -> None:
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--build", default="build", help="where stile and its libraries are (build)")
    a.add_argument("--quick", action="store_true", help="about a minute instead of about five")
    a.add_argument("--only", default="".join(CASES), help="cases, for example a,c")
    a.add_argument("--no-peers", action="store_true", help="direct, floor and stile alone")
    a.add_argument("-o", dest="out", help="the numbers as JSON")
    o = a.parse_args()
    cases = [c for c in o.only.replace(",", "")]
    if bad := [c for c in cases if c not in CASES]:
        a.error(f"no case {bad[0]} (there are {', '.join(CASES)})")
    if not o.no_peers:
        subprocess.run(["sh", ROOT / "tests/install-deps.sh", "bench"], check=True)
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        if not shutil.which("squid") or not shutil.which("tinyproxy"):
            sys.exit("squid or tinyproxy is not there")
    for case, (_, _, _, who) in CASES.items():
        if o.no_peers:
            who[:] = [w for w in who if w not in ("squid", "tinyproxy")]
    m = machine()
    print(f"{m['cpu']}, {m['cpus']} CPUs, Linux {m['kernel']}; load average {m['load_before']:.1f}")
    print(f"{m['openssl']}; {m['squid']}; {m['tinyproxy']}", flush=True)
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
            if not o.no_peers:
                b.start_squid()
                b.start_tinyproxy()
            for case in cases:
                if case == "g":
                    results[case] = idle(b)
                elif case == "h":
                    results[case] = decisions(b, o.quick)
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
