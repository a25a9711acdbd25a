"""What clients are told of the proxy and of the certificates: `stile ca bundle`, `stile ca env`, and the same in
`stile run`, each believed by the client that it is for."""

import shutil
import ssl
import subprocess

import pytest

import runlib
import stilelib
from stilelib import BIN, Stile, allow, clean_env

JAVA_CLIENT = """
import java.io.*; import java.net.*; import java.net.http.*;

public class Client {
	public static void main(String[] args) throws Exception {
		URI uri = URI.create(args[0]);
		HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
		HttpResponse<String> got = client.send(HttpRequest.newBuilder(uri).build(),
			HttpResponse.BodyHandlers.ofString());
		System.out.print(got.statusCode() + " " + got.body());
		URLConnection old = uri.toURL().openConnection();
		System.out.print(new String(old.getInputStream().readAllBytes()));
	}
}
"""


def cli(*args, cwd=None, status=0, text=True, env=None):
    got = subprocess.run([str(BIN), *map(str, args)], capture_output=True, text=text, timeout=stilelib.TIMEOUT,
                         cwd=cwd, env=env or clean_env())
    assert got.returncode == status, got.stderr
    return got


def tool(name):
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "stile.yaml").write_text("""version: 1
listen: [{proxy: "unix:/tmp/x.sock"}, {proxy: "0.0.0.0:1"}, {proxy: "127.0.0.1:0"}, {proxy: "[::1]:3129"}]
ca: {dir: ca}
policies: {default: {rules: [{allow: docs.example.com}]}}
""")
    return tmp_path


# `stile ca bundle`


def test_a_folder_of_every_form(folder):
    pem = cli("ca", "bundle", cwd=folder).stdout
    cli("ca", "bundle", "--dir", "trust", cwd=folder)
    files = {p.name: p for p in (folder / "trust").iterdir()}
    assert sorted(files) == ["ca-bundle.pem", "ca.pem", "truststore.p12"]
    assert files["ca-bundle.pem"].read_text() == pem
    assert files["ca.pem"].read_bytes() == (folder / "ca/ca.pem").read_bytes()
    assert all(p.stat().st_mode & 0o777 == 0o644 for p in files.values())
    store = cli("ca", "bundle", "--java", cwd=folder, text=False).stdout
    assert files["truststore.p12"].read_bytes() == store
    cli("ca", "bundle", "--java", "-o", "s.p12", cwd=folder)
    assert (folder / "s.p12").read_bytes() == store
    # Again: replaced as a whole, by the same.
    before = files["truststore.p12"].stat().st_ino
    cli("ca", "bundle", "--dir", "trust", cwd=folder)
    assert files["truststore.p12"].read_bytes() == store and files["truststore.p12"].stat().st_ino != before


def test_a_folder_that_cannot_be_written(folder):
    (folder / "file").write_text("")
    for where in ("file", "no/such", "/proc/stile"):
        got = cli("ca", "bundle", "--dir", where, cwd=folder, status=1)
        assert where in got.stderr


def test_the_trust_store_in_openssl(folder):
    cli("ca", "bundle", "--dir", "t", cwd=folder)
    for password in ("", "changeit"):
        got = subprocess.run(["openssl", "pkcs12", "-in", "t/truststore.p12", "-nokeys", "-nomacver", "-passin",
                              f"pass:{password}"], cwd=folder, capture_output=True, text=True, timeout=stilelib.TIMEOUT)
        assert got.returncode == 0, got.stderr
        entries = got.stdout.count("BEGIN CERTIFICATE")
        roots = set((folder / "t/ca-bundle.pem").read_text().split("-----BEGIN CERTIFICATE-----")[1:])
        assert entries == len(roots)
        assert got.stdout.count("friendlyName: stile-") == 1


@pytest.mark.parametrize("password", [[], ["-storepass", "changeit"]])
def test_keytool_lists_every_root_as_trusted(folder, password):
    keytool = tool("keytool")
    cli("ca", "bundle", "--dir", "t", cwd=folder)
    got = subprocess.run([keytool, "-list", "-keystore", "t/truststore.p12", *password], cwd=folder, env=clean_env(),
                         capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert got.returncode == 0, got.stdout
    roots = set((folder / "t/ca-bundle.pem").read_text().split("-----BEGIN CERTIFICATE-----")[1:])
    assert got.stdout.count("trustedCertEntry") == len(roots)
    assert got.stdout.count("\nstile-") == 1
    assert "password" not in got.stderr


@pytest.mark.parametrize("args", [["bundle", "--dir", "t", "-o", "f"], ["bundle", "--dir", "t", "--java"],
                                  ["show", "--java"], ["show", "--dir", "t"], ["rotate", "-o", "f"],
                                  ["bundle", "--proxy", "http://a:1"], ["env"], ["env", "--dir", "relative"],
                                  ["env", "--dir", "/x", "--java"], ["env", "--dir", "/it's"],
                                  ["env", "--dir", "/a\nB=c"], ["env", "--dir", "/x", "--proxy", "a:1"],
                                  ["env", "--dir", "/x", "--proxy", "http://a"],
                                  ["env", "--dir", "/x", "--proxy", "http://a:1/path"],
                                  ["env", "--dir", "/x", "--proxy", "http://a' :1"]])
def test_wrong_usage(folder, args):
    got = cli("ca", *args, cwd=folder, status=2)
    assert got.stderr.splitlines()[-1].startswith("stile ca: ") and got.stdout == ""


# `stile ca env`


def variables(text):
    return dict(line.split("=", 1) for line in text.splitlines())


def test_the_same_table_as_in_a_sandbox(folder):
    """What `run` sets, `ca env` prints, but for SSL_CERT_DIR: a hashed folder is there in a sandbox alone."""
    told = variables(cli("ca", "env", "--dir", "/run/stile", "--proxy", "http://127.0.0.1:3128", cwd=folder).stdout)
    got = runlib.run(folder, "env", args=["--env", "PATH=/usr/bin:/bin"])
    inside = variables(got.stdout)
    ours = {"PATH", "HOME", "LANG", "TERM", "PWD", "SSL_CERT_DIR", "_", "SHLVL"}
    assert {k: v for k, v in inside.items() if k not in ours} == told
    assert len(told) > 30
    listed = (stilelib.REPO / "proxy/man/stile.1").read_text()
    missing = [n for n in told if n.upper() not in listed.upper()]
    assert not missing


def test_where_the_proxy_is(folder):
    """The first listener that can be dialled: not a socket's path, not 0.0.0.0, not any free port."""
    told = variables(cli("ca", "env", "--dir", "/t", cwd=folder).stdout)
    assert told["https_proxy"] == told["HTTPS_PROXY"] == "http://[::1]:3129"
    assert "-Dhttps.proxyHost=::1 -Dhttps.proxyPort=3129" in told["JAVA_TOOL_OPTIONS"]
    (folder / "stile.yaml").write_text((folder / "stile.yaml").read_text().replace("[::1]", "0.0.0.0"))
    assert "--proxy" in cli("ca", "env", "--dir", "/t", cwd=folder, status=2).stderr


def test_no_configuration_is_needed_for_a_proxy_that_is_named(tmp_path):
    told = variables(cli("ca", "env", "--dir", "/t", "--proxy", "http://u:p@gate.example.com:80/", cwd=tmp_path).stdout)
    assert told["http_proxy"] == "http://u:p@gate.example.com:80/"
    assert "-Dhttp.proxyHost=gate.example.com -Dhttp.proxyPort=80" in told["JAVA_TOOL_OPTIONS"]


def test_a_shell_takes_it(folder):
    plain = variables(cli("ca", "env", "--dir", "/a b", cwd=folder).stdout)
    script = f'eval "$({BIN} ca env --export --dir "/a b")"; env'
    got = subprocess.run(["sh", "-c", script], cwd=folder, env=clean_env(), capture_output=True, text=True,
                         timeout=stilelib.TIMEOUT)
    taken = variables(got.stdout)
    assert {k: taken.get(k) for k in plain} == plain


# Clients that believe it


@pytest.fixture
def served(stile, tmp_path):
    """A `stile serve` and the environment that `stile ca env` gives for it."""
    s = stile(rules=[allow("https://origin.test:*")])
    cli("ca", "bundle", "-c", s.config, "--dir", tmp_path / "trust")
    env = variables(cli("ca", "env", "--dir", tmp_path / "trust", "--proxy", f"http://127.0.0.1:{s.port}").stdout)
    return s, {**clean_env(HOME=str(tmp_path)), **env}


def test_curl_with_the_variables_of_ca_env(served):
    s, env = served
    got = subprocess.run([tool("curl"), "-sS", f"https://origin.test:{s.origin.tls}/ok/a"], env=env, capture_output=True,
                         timeout=stilelib.TIMEOUT)
    assert got.stdout == b"ok /ok/a\n", got.stderr


def java(folder):
    tool("javac")
    source = folder / "Client.java"
    source.write_text(JAVA_CLIENT)
    return [tool("java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1", str(source)]


def test_java_with_the_variables_of_ca_env(served, tmp_path):
    s, env = served
    got = subprocess.run([*java(tmp_path), f"https://origin.test:{s.origin.tls}/ok/a"], env=env, capture_output=True,
                         text=True, timeout=120)
    assert got.stdout == "200 ok /ok/a\nok /ok/a\n", got.stderr
    assert [r["http"] for r in s.wait_records(2, event="request.end", status=200)] == ["1.1", "1.1"]


def test_java_without_them_is_refused_by_itself(served, tmp_path):
    s, env = served
    env["JAVA_TOOL_OPTIONS"] = " ".join(o for o in env["JAVA_TOOL_OPTIONS"].split() if "trustStore" not in o)
    got = subprocess.run([*java(tmp_path), f"https://origin.test:{s.origin.tls}/ok/a"], env=env, capture_output=True,
                         text=True, timeout=120)
    assert got.returncode != 0 and "SSLHandshakeException" in got.stderr
    assert not [r for r in s.records() if r["event"] == "request.start"]


def test_java_in_a_sandbox(tmp_path):
    """Nothing is asked of the user: no flag, no keytool."""
    command = java(tmp_path)
    o = runlib.Origin(tmp_path)
    try:
        (tmp_path / "stile.yaml").write_text(f"""version: 1
upstream: {{trust: [{o.ca}], hosts: {{allowed.test: 127.0.0.1}}}}
policies:
  default:
    rules: [{{allow: "https://allowed.test:{o.port}", addresses: [127.0.0.0/8]}}]
""")
        got = subprocess.run(runlib.argv_of(tmp_path / "log", *command, f"https://allowed.test:{o.port}/x"), cwd=tmp_path,
                             env=clean_env(HOME=str(tmp_path)), capture_output=True, text=True, timeout=120)
        assert got.stdout == "200 hello from the origin\nhello from the origin\n", got.stderr
        got = subprocess.run(runlib.argv_of(tmp_path / "log", *command, "https://evil.test/x"), cwd=tmp_path,
                             env=clean_env(HOME=str(tmp_path)), capture_output=True, text=True, timeout=120)
        assert got.returncode != 0 and "403" in got.stderr
    finally:
        o.close()


def test_the_bundle_holds_the_system_s_roots(folder):
    cli("ca", "bundle", "--dir", "t", cwd=folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / "t/ca-bundle.pem")
    alone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    alone.load_verify_locations("/etc/ssl/certs/ca-certificates.crt")
    assert context.cert_store_stats()["x509_ca"] == alone.cert_store_stats()["x509_ca"] + 1
