"""TLS on both sides of an inspected connection: an origin that is not to be believed, the leaf a client gets, a
client that does not believe it, versions, resumption, ALPN, and a ClientHello in pieces."""

import concurrent.futures
import datetime
import ipaddress
import re
import socket
import ssl
import subprocess
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
from cryptography.x509.oid import ExtensionOID as Ext

import pki  # tests/origin/pki.py
from accepting import serve_each
from stilelib import TIMEOUT, Peer, Stile, allow, check_refusal, clean_env, client_context, get, wait_for

NAMES = [f"n{i}.origin.test" for i in range(50)]
V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
PASSED = "other.test"  # tls: passthrough
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def tls_of_all(origin, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("tls"), origin,
              rules=[allow("https://origin.test:*", "https://evil.test:*", "https://*.origin.test:*", "https://127.0.0.1:*",
                           "https://[::1]:*"),
                     allow(f"https://{PASSED}:*", tls="passthrough")],
              upstream={"hosts": {n: "127.0.0.1" for n in ["origin.test", "evil.test", PASSED, *NAMES]}})
    yield s
    s.finish()


@pytest.fixture
def tls(tls_of_all):
    return tls_of_all.settled()


def request(s, port, path="/ok/a", host="origin.test", more="", method="GET"):
    return f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n".encode()


def leaf_of(raw) -> x509.Certificate:
    return x509.load_der_x509_certificate(raw.sock.getpeercert(binary_form=True))


def leaf_for(s, host="origin.test", port=443) -> x509.Certificate:
    """The leaf alone: nothing needs to listen on the port, since nothing is asked inside."""
    since = s.mark()
    with s.tunnel(port, host) as c:
        leaf = leaf_of(c)
    s.wait_record(since, event="tunnel.deny")
    return leaf


def contexts(**settings) -> list:
    return [pytest.param(v, id=v.name, **settings) for v in (V12, V13)]


# ---- origins that are not to be believed ----

UNTRUSTED = {
    "expired": "certificate of origin.test expired on 20",
    "not-yet-valid": "certificate of origin.test is not valid before 20",
    "wrong-name": "certificate is for wrong.example.com, not for origin.test",
    "no-san": "no subjectAltName",
    "unknown-issuer": "issuer CN=stile test stranger is not trusted",
    "self-signed": "is self-signed and not trusted",
    "missing-intermediate": "sends no intermediate certificate, and none is fetched",
    "wrong-usage": "is refused: ",
}
WANTS_CERT = {k: "asks for a client certificate.*tls: passthrough" for k in ("wants-client-cert", "wants-client-cert-1.2")}


def failed_upstream(s, port, reason, detail, host="origin.test"):
    """The handshake with the client is made, the failure is told inside it, and nothing is passed on."""
    since, seen = s.mark(), s.origin.mark()
    body = b"secret=" + b"x" * 20
    with s.tunnel(port, host) as c:
        for send in (request(s, port, host=host), request(s, port, host=host, method="POST",
                                                          more=f"Content-Length: {len(body)}\r\n") + body):
            r = c.ask(send)
            check_refusal(r, 502, reason)
            assert re.search(detail, r.json()["detail"]), r.json()
    ends = s.wait_records(2, since, event="request.end")
    assert [x["event"] for x in s.records(since)] == ["request.start", "request.end"] * 2
    for end in ends:
        assert (end["error"], end["status"], end["decision"]) == (reason, 502, "allow")
        assert re.search(detail, end["error_detail"]) and end["bytes_in"] == 0
        assert end["tls"]["version"] == "TLSv1.3"
    assert s.origin.since(seen) == b"", "something of the request was passed on"
    return r


@pytest.mark.parametrize("kind", UNTRUSTED)
def test_an_origin_that_cannot_be_trusted(tls, kind):
    failed_upstream(tls, tls.origin.ports[kind], "upstream_untrusted", UNTRUSTED[kind])


@pytest.mark.parametrize("kind", ["unknown-issuer", "missing-intermediate", "self-signed"])
def test_the_cure_is_named(tls, kind):
    r = tls.tls_get("/ok/a", tls.origin.ports[kind])
    assert "upstream.trust: [system, FILE]" in r.json()["detail"]
    assert f"subject CN={kind}" in r.json()["detail"]


@pytest.mark.parametrize("kind", WANTS_CERT)
def test_an_origin_that_wants_a_client_certificate(tls, kind):
    failed_upstream(tls, tls.origin.ports[kind], "upstream_wants_certificate", WANTS_CERT[kind])


@pytest.mark.parametrize("kind", WANTS_CERT)
def test_passthrough_carries_the_client_s_certificate(tls, kind):
    context = client_context(tls.origin.pki / "ca.pem")
    context.load_cert_chain(tls.origin.pki / "client.pem", tls.origin.pki / "client.key")
    port = tls.origin.ports[kind]
    with tls.client() as c:
        assert c.connect(f"{PASSED}:{port}").status == 200
        assert c.start_tls(context, PASSED).ask(request(tls, port, host=PASSED)).status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_certificate_without_the_address(tls, host):
    with_family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with TlsPeer(server_context(tls.origin.pki / "wrong-name.pem", tls.origin.pki / "wrong-name.key"), with_family) as p:
        failed_upstream(tls, p.port, "upstream_untrusted",
                        re.escape(f"is for wrong.example.com, not for {host.strip('[]')}"), host)


class TlsPeer:
    """A TLS origin of the test's own: each connection is answered with OK as long as it asks."""

    def __init__(self, context: ssl.SSLContext, family=socket.AF_INET):
        self.context, self.heads, self.alpn = context, [], []
        self.listener = socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family)
        self.port = self.listener.getsockname()[1]
        serve_each(self.listener, self.serve)

    def serve(self, sock) -> None:
        sock.settimeout(TIMEOUT)
        try:
            with self.context.wrap_socket(sock, server_side=True) as s:
                self.alpn.append(s.selected_alpn_protocol())
                head = b""
                while data := s.recv(65536):
                    head += data
                    if head.endswith(b"\r\n\r\n"):
                        self.heads.append(head)
                        head = b""
                        s.sendall(OK)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def server_context(chain, key, security_level=2, **settings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(f"DEFAULT:@SECLEVEL={security_level}")
    context.load_cert_chain(chain, key)
    for k, v in settings.items():
        setattr(context, k, v)
    return context


def signed_by_root(folder, key, digest, root_key, root_cert, name="origin.test"):
    """A certificate for a name, right but for its key or its digest."""
    now = datetime.datetime.utcnow()
    cert = (x509.CertificateBuilder().subject_name(pki.common_name("weak")).issuer_name(root_cert.subject)
            .public_key(key.public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(now - pki.DAY).not_valid_after(now + pki.DAY)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([Usage.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root_key.public_key()), critical=False)
            .sign(root_key, digest))
    (folder / "weak.pem").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    (folder / "weak.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                                        serialization.NoEncryption()))
    return folder / "weak.pem", folder / "weak.key"


@pytest.mark.filterwarnings("ignore:SHA1")
@pytest.mark.parametrize("weak", ["sha1", "rsa1024", "neither"])
def test_a_weak_certificate(stile, tmp_path, weak):
    root = pki.make("weak test root", ca=True)
    (tmp_path / "root.pem").write_bytes(pki.pem(root))
    key = rsa.generate_private_key(65537, 1024) if weak == "rsa1024" else ec.generate_private_key(ec.SECP256R1())
    digest = hashes.SHA1() if weak == "sha1" else hashes.SHA256()
    chain = signed_by_root(tmp_path, key, digest, root.key, root.cert)
    s = stile(upstream={"trust": [str(tmp_path / "root.pem")]})
    with TlsPeer(server_context(*chain, security_level=0)) as p:
        if weak == "neither":  # the same certificate without the fault is believed
            assert s.tls_get("/", p.port).body == b"ok"
        else:
            failed_upstream(s, p.port, "upstream_untrusted", "(is too weak|is refused): ")
            assert p.heads == []


def test_an_address_that_stands_among_the_names(stile, tmp_path):
    """To say that it is for 127.0.0.1 and not for 127.0.0.1 would help nobody."""
    root = pki.make("names test root", ca=True)
    (tmp_path / "root.pem").write_bytes(pki.pem(root))
    chain = signed_by_root(tmp_path, ec.generate_private_key(ec.SECP256R1()), hashes.SHA256(), root.key, root.cert,
                           "127.0.0.1")
    s = stile(rules=[allow("https://127.0.0.1:*")], upstream={"trust": [str(tmp_path / "root.pem")]})
    with TlsPeer(server_context(*chain)) as p:
        failed_upstream(s, p.port, "upstream_untrusted", "has 127.0.0.1 as a DNS name, and not as the IP address",
                        "127.0.0.1")
        assert p.heads == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_an_origin_that_speaks_only_old_tls(tls, version):
    context = server_context(tls.origin.pki / "good.pem", tls.origin.pki / "good.key", 0,
                             minimum_version=ssl.TLSVersion.TLSv1, maximum_version=ssl.TLSVersion[version])
    with TlsPeer(context) as p:
        failed_upstream(tls, p.port, "upstream_tls_failed", "origin.test")


def test_an_origin_that_speaks_no_tls(tls):
    def speak(p):
        for _ in range(2):
            with p.accept() as c:
                c.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                c.read_all()

    with Peer() as p:
        threading.Thread(target=speak, args=(p,), daemon=True).start()
        failed_upstream(tls, p.port, "upstream_tls_failed", "does it speak TLS on this port")


def test_an_intermediate_that_is_sent_is_used(tls):
    assert tls.tls_get("/ok/a", tls.origin.ports["chained"]).status == 200


# ---- the leaf ----


@pytest.mark.parametrize("host", ["origin.test", "n0.origin.test", "127.0.0.1", "[::1]"])
def test_fields_of_a_leaf(tls, host):
    leaf = leaf_for(tls, host)
    ca = x509.load_pem_x509_certificate(tls.ca.read_bytes())
    ext = {e.oid: e for e in leaf.extensions}
    bare = host.strip("[]")
    want = [x509.DNSName(bare)] if bare[-1].isalpha() else [x509.IPAddress(ipaddress.ip_address(bare))]
    assert list(ext[Ext.SUBJECT_ALTERNATIVE_NAME].value) == want
    assert ext[Ext.AUTHORITY_KEY_IDENTIFIER].value.key_identifier == \
        ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert ext[Ext.SUBJECT_KEY_IDENTIFIER].value == x509.SubjectKeyIdentifier.from_public_key(leaf.public_key())
    assert list(ext[Ext.EXTENDED_KEY_USAGE].value) == [Usage.SERVER_AUTH]
    basic, usage = ext[Ext.BASIC_CONSTRAINTS].value, ext[Ext.KEY_USAGE]
    assert not basic.ca and usage.critical and usage.value.digital_signature and not usage.value.key_cert_sign
    assert leaf.issuer == ca.subject and leaf.version == x509.Version.v3
    assert isinstance(leaf.public_key(), ec.EllipticCurvePublicKey) and leaf.public_key().curve.name == "secp256r1"
    assert isinstance(leaf.signature_hash_algorithm, hashes.SHA256)
    assert leaf.serial_number.bit_length() >= 64


def test_life_of_a_leaf(tls):
    leaf, now = leaf_for(tls), datetime.datetime.utcnow()
    # An hour back at the least, so that a client whose clock is behind is not turned away.
    assert datetime.timedelta(hours=1) <= now - leaf.not_valid_before < datetime.timedelta(hours=2)
    assert datetime.timedelta(days=1) < leaf.not_valid_after - now < datetime.timedelta(days=30)
    assert leaf.not_valid_after - leaf.not_valid_before <= datetime.timedelta(days=199)


def test_fields_of_the_ca(tls):
    ca = x509.load_pem_x509_certificate(tls.ca.read_bytes())
    ext = {e.oid: e for e in ca.extensions}
    assert ext[Ext.BASIC_CONSTRAINTS].critical and ext[Ext.BASIC_CONSTRAINTS].value.ca
    assert ext[Ext.KEY_USAGE].critical and ext[Ext.KEY_USAGE].value.key_cert_sign
    assert Ext.SUBJECT_KEY_IDENTIFIER in ext
    assert (tls.ca.parent / "ca.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("host", ["origin.test", "127.0.0.1", "[::1]"])
def test_openssl_verifies_a_leaf_strictly(tls, tmp_path, host):
    (tmp_path / "leaf.pem").write_bytes(leaf_for(tls, host).public_bytes(serialization.Encoding.PEM))
    bare = host.strip("[]")
    name = ["-verify_hostname" if bare[-1].isalpha() else "-verify_ip", bare]
    got = subprocess.run(["openssl", "verify", "-x509_strict", "-purpose", "sslserver", *name, "-CAfile", tls.ca,
                          tmp_path / "leaf.pem"], capture_output=True, text=True, env=clean_env(), timeout=TIMEOUT)
    assert got.returncode == 0, got.stdout + got.stderr
    wrong = subprocess.run(["openssl", "verify", "-verify_hostname", "evil.test", "-CAfile", tls.ca, tmp_path / "leaf.pem"],
                           capture_output=True, env=clean_env(), timeout=TIMEOUT)
    assert wrong.returncode != 0


@pytest.mark.parametrize("host", ["origin.test", "127.0.0.1", "[::1]"])
def test_a_strict_python_client(tls, host):
    port = tls.origin.ports["tls6" if ":" in host else "tls"]
    context = tls.context()
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    with tls.client() as c:
        assert c.connect(f"{host}:{port}").status == 200
        c.start_tls(context, host.strip("[]"))
        got = c.ask(request(tls, port, "/echo", host)).json()
    # An address is never an SNI (RFC 6066 section 3).
    assert got["tls"]["sni"] == (host if host == "origin.test" else None)


def test_a_client_without_sni_gets_the_leaf_of_the_connect_name(tls):
    context = tls.context(check_hostname=False)
    with tls.client() as c:
        assert c.connect(f"origin.test:{tls.origin.tls}").status == 200
        c.start_tls(context, None)
        assert [n.value for n in leaf_of(c).extensions.get_extension_for_class(
            x509.SubjectAlternativeName).value] == ["origin.test"]
        assert c.ask(request(tls, tls.origin.tls)).status == 200


def test_a_wildcard_s_fifty_names(tls):
    def visit(name):
        with tls.tunnel(host=name) as c:
            leaf = leaf_of(c)
            got = c.ask(request(tls, tls.origin.tls, "/echo", name)).json()
            return leaf, got["tls"]["sni"]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        first = list(pool.map(visit, NAMES))
        again = list(pool.map(visit, NAMES))
    for name, (leaf, sni), (later, _) in zip(NAMES, first, again):
        assert sni == name
        assert [n.value for n in leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value] == [name]
        assert later.serial_number == leaf.serial_number, "the leaf was not kept"
    assert len({leaf.serial_number for leaf, _ in first}) == len(NAMES)


def test_a_new_name_asked_for_at_once_has_one_leaf(stile):
    s = stile(rules=[allow("https://*.origin.test:*")])
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        leaves = list(pool.map(lambda _: leaf_for(s, "new.origin.test").serial_number, range(16)))
    assert len(set(leaves)) == 1


# ---- clients that do not believe the leaf ----


@pytest.mark.parametrize("version", contexts())
@pytest.mark.parametrize("quick", [False, True])
def test_a_client_that_does_not_trust_the_ca(tls, version, quick):
    since, connections = tls.mark(), len(list(tls.origin.record.iterdir()))
    context = client_context(tls.origin.pki / "ca.pem", maximum_version=version)
    with tls.client() as c:
        assert c.connect(f"origin.test:{tls.origin.tls}").status == 200
        raw = c.sock.dup() if not quick else None  # held open: the alert alone must do
        with pytest.raises(ssl.SSLCertVerificationError):
            c.start_tls(context, "origin.test")
        record = tls.wait_record(since, event="tunnel.deny")
        if raw:
            raw.settimeout(TIMEOUT)
            try:
                while raw.recv(65536):
                    pass
            except ConnectionResetError:
                pass
            raw.close()
    assert (record["reason"], record["host"], record["decision"]) == ("leaf_rejected", "origin.test", "deny")
    assert "unknown_ca" in record["error_detail"] and "stile ca bundle" in record["error_detail"]
    assert record["tls"]["sni"] == "origin.test"
    assert len(tls.records(since)) == 1
    assert len(list(tls.origin.record.iterdir())) == connections, "the origin was dialled"


@pytest.mark.parametrize("version", contexts())
def test_a_client_that_expects_another_name(tls, version):
    since = tls.mark()
    context = tls.context(maximum_version=version)
    with tls.client() as c:
        assert c.connect(f"127.0.0.1:{tls.origin.tls}").status == 200
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            c.start_tls(context, "::1")
    assert tls.wait_record(since, event="tunnel.deny")["reason"] == "leaf_rejected"
    assert len(tls.records(since)) == 1


def test_after_a_rejected_leaf_nothing_is_relayed(tls):
    """What follows the alert on the same connection is never taken for another protocol."""
    since, seen = tls.mark(), tls.origin.mark()
    context = client_context(tls.origin.pki / "ca.pem")
    with tls.client() as c:
        assert c.connect(f"origin.test:{tls.origin.tls}").status == 200
        raw = c.sock.dup()
        with pytest.raises(ssl.SSLCertVerificationError):
            c.start_tls(context, "origin.test")
        try:
            raw.sendall(get(f"http://origin.test:{tls.origin.plain}/ok/a"))
        except OSError:
            pass
        raw.close()
    tls.wait_record(since, event="tunnel.deny", reason="leaf_rejected")
    assert len(tls.records(since)) == 1 and tls.origin.since(seen) == b""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_tls_is_refused(tls, version):
    since = tls.mark()
    context = tls.context(minimum_version=ssl.TLSVersion.TLSv1)
    context.maximum_version = ssl.TLSVersion[version]
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with tls.client() as c:
        assert c.connect(f"origin.test:{tls.origin.tls}").status == 200
        with pytest.raises(ssl.SSLError, match="(?i)version"):
            c.start_tls(context, "origin.test")
    assert tls.wait_record(since, event="tunnel.deny")["reason"] == "client_tls_failed"
    assert len(tls.records(since)) == 1


# ---- versions and resumption ----


@pytest.mark.parametrize("theirs", ["tls", "tls1.2"])
@pytest.mark.parametrize("version", contexts())
def test_versions_are_each_side_s_own(tls, version, theirs):
    since = tls.mark()
    port = tls.origin.ports[theirs]
    with tls.tunnel(port, maximum_version=version, minimum_version=version) as c:
        got = c.ask(request(tls, port, "/echo")).json()
    assert got["tls"]["version"] == ("TLSv1.2" if theirs == "tls1.2" else "TLSv1.3")
    assert tls.wait_record(since, event="request.end")["tls"]["version"] == ("TLSv1.2" if version == V12 else "TLSv1.3")


def visit(s, context, host="origin.test", session=None):
    """One request in a tunnel of its own; the session it leaves, whether one was resumed, the leaf."""
    with s.client() as c:
        assert c.connect(f"{host}:{s.origin.tls}").status == 200
        c.start_tls(context, host, session)
        assert c.ask(request(s, s.origin.tls, host=host)).status == 200
        return c.sock.session, c.sock.session_reused, leaf_of(c)


@pytest.mark.parametrize("version", contexts())
def test_a_client_s_session_is_resumed(tls, version):
    context = tls.context(maximum_version=version)
    session, reused, _ = visit(tls, context)
    assert not reused
    since = tls.mark()
    session, reused, _ = visit(tls, context, session=session)
    assert reused
    assert visit(tls, context, session=session)[1]
    tls.wait_records(2, since, event="request.end")  # what is inside a resumed one is judged and logged all the same


@pytest.mark.parametrize("version", contexts())
def test_a_session_serves_no_other_name(tls, version):
    context = tls.context(maximum_version=version)
    session, _, _ = visit(tls, context)
    _, reused, leaf = visit(tls, context, "n1.origin.test", session)
    assert not reused
    assert [n.value for n in leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value] == ["n1.origin.test"]


@pytest.mark.parametrize("version", contexts())
def test_a_session_of_another_process_is_only_not_resumed(tls, stile, version):
    context = tls.context(maximum_version=version)
    other = stile()
    context.load_verify_locations(other.ca)
    session, _, _ = visit(tls, context)
    assert not visit(other, context, session=session)[1]


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssl_resumes_and_is_asked_for_no_certificate(tls, tmp_path, version):
    def s_client(*more):
        send = request(tls, tls.origin.tls, more="Connection: close\r\n")
        got = subprocess.run(["openssl", "s_client", "-proxy", f"127.0.0.1:{tls.port}", "-connect",
                              f"origin.test:{tls.origin.tls}", "-servername", "origin.test", "-CAfile", tls.ca,
                              "-verify_return_error", "-ign_eof", version, *more], input=send, capture_output=True,
                             env=clean_env(), timeout=TIMEOUT)
        assert b"200 OK" in got.stdout or b"200 Fine" in got.stdout, got.stdout + got.stderr
        return got.stdout

    first = s_client("-sess_out", tmp_path / "session")
    assert b"\nNew, " in first and b"No client certificate CA names sent" in first
    assert b"\nReused, " in s_client("-sess_in", tmp_path / "session")


@pytest.mark.parametrize("length", ["512", "1024", "4096"])
@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_a_client_that_asks_for_short_records(tls, version, length):
    """RFC 6066 section 4: what we write becomes more records than we thought, and all of them must go out."""
    send = request(tls, tls.origin.tls, "/bytes/200000", more="Connection: close\r\n")
    got = subprocess.run(["openssl", "s_client", "-quiet", "-proxy", f"127.0.0.1:{tls.port}", "-connect",
                          f"origin.test:{tls.origin.tls}", "-servername", "origin.test", "-CAfile", tls.ca, "-maxfraglen",
                          length, "-ign_eof", version], input=send, capture_output=True, env=clean_env(), timeout=TIMEOUT)
    head, _, body = got.stdout.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and len(body) == 200000, (len(body), got.stderr)
    assert body == bytes(range(256)) * (200000 // 256) + bytes(range(200000 % 256))


@pytest.mark.parametrize("theirs", ["tls", "tls1.2"])
def test_sessions_with_the_origin_are_resumed(stile, theirs):
    s = stile(rules=[allow("https://origin.test:*", "https://evil.test:*")])
    port = s.origin.ports[theirs]

    closing = s.origin.script("closing", ["send", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"])

    def resumed(host="origin.test"):
        """Whether the next connection is; it is a new one, since the last answer closed the one before."""
        with s.tunnel(port, host) as c:
            got = c.ask(request(s, port, "/echo", host)).json()["tls"]
            assert c.ask(request(s, port, closing, host)).body == b"ok"
        assert got["sni"] == host
        return got["resumed"]

    assert not resumed()
    assert resumed() and resumed()
    # Another name at the same address and port has no part in it.
    assert not resumed("evil.test")
    assert resumed()


# ---- ALPN ----


@pytest.mark.parametrize("offer, picked", [(None, None), (["http/1.1"], "http/1.1"), (["x", "http/1.1"], "http/1.1"),
                                           (["http/1.0"], "http/1.0"), (["http/1.0", "http/1.1"], "http/1.1")])
@pytest.mark.parametrize("theirs", ["http/1.1", "none"])
def test_alpn_pairs(tls, offer, picked, theirs):
    server = server_context(tls.origin.pki / "good.pem", tls.origin.pki / "good.key")
    if theirs != "none":
        server.set_alpn_protocols(["http/1.1"])
    context = tls.context()
    if offer:
        context.set_alpn_protocols(offer)
    since = tls.mark()
    with TlsPeer(server) as p, tls.client() as c:
        assert c.connect(f"origin.test:{p.port}").status == 200
        c.start_tls(context, "origin.test")
        assert c.sock.selected_alpn_protocol() == picked
        assert c.ask(request(tls, p.port)).body == b"ok"
        # Our own offer, whatever the client's was.
        assert p.alpn == [None if theirs == "none" else "http/1.1"]
    assert tls.wait_record(since, event="request.end")["tls"].get("alpn") == picked


@pytest.mark.parametrize("version", contexts())
@pytest.mark.parametrize("offer", [["h2c"], ["h3", "spdy/3"], ["HTTP/1.1"]])
def test_no_protocol_in_common(tls, offer, version):
    since, seen = tls.mark(), tls.origin.mark()
    context = tls.context(maximum_version=version)
    context.set_alpn_protocols(offer)
    with tls.client() as c:
        assert c.connect(f"origin.test:{tls.origin.tls}").status == 200
        with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
            c.start_tls(context, "origin.test")
    record = tls.wait_record(since)
    assert (record["event"], record["reason"]) == ("tunnel.deny", "client_tls_failed")
    assert "ALPN" in record["error_detail"]
    assert len(tls.records(since)) == 1 and tls.origin.since(seen) == b""


# ---- a ClientHello in pieces ----


class Pieces:
    """A TLS client over memory, so that the test decides how the bytes of its hello leave."""

    def __init__(self, raw, context, name):
        self.raw, self.incoming, self.outgoing = raw, ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)

    def hello(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def until(self, what, *args):
        while True:
            try:
                return what(*args)
            except ssl.SSLWantReadError:
                self.flush()
                data = self.raw.sock.recv(65536)
                assert data, "closed in the handshake"
                self.incoming.write(data)

    def flush(self) -> None:
        if self.outgoing.pending:
            self.raw.send(self.outgoing.read())

    def ask(self, data: bytes) -> bytes:
        self.until(self.tls.do_handshake)
        self.tls.write(data)
        self.flush()
        return self.until(self.tls.read, 65536)


def records_of(hello: bytes, size: int) -> bytes:
    """The same handshake message in TLS records of `size` bytes (RFC 8446 section 5.1)."""
    kind, length = hello[:3], int.from_bytes(hello[3:5], "big")
    message = hello[5:]
    assert len(message) == length
    return b"".join(kind + len(part).to_bytes(2, "big") + part
                    for part in (message[i:i + size] for i in range(0, length, size)))


def cut(hello: bytes, how: str) -> list[bytes]:
    if how.startswith("records"):
        return [records_of(hello, int(how[7:]))]
    if how.startswith("segments"):
        n = int(how[8:])
        return [hello[i:i + n] for i in range(0, len(hello), n)]
    return [records_of(hello, 40)[i:i + 7] for i in range(0, len(records_of(hello, 40)), 7)] if how == "both" else [hello]


@pytest.mark.parametrize("host", ["origin.test", PASSED])
@pytest.mark.parametrize("how", ["whole", "segments1", "segments100", "records1", "records5", "records40", "both"])
@pytest.mark.parametrize("large", [False, True])
def test_a_hello_in_pieces(tls, host, how, large):
    context = client_context(tls.ca if host != PASSED else tls.origin.pki / "ca.pem")
    if large:  # about 5 KiB, as with the key shares of tomorrow
        context.set_alpn_protocols(["http/1.1"] + [f"{i:03d}" + "x" * 200 for i in range(24)])
    with tls.client() as c:
        assert c.connect(f"{host}:{tls.origin.tls}").status == 200
        p = Pieces(c, context, host)
        hello = p.hello()
        assert (len(hello) > 4000) == large
        for piece in cut(hello, how):
            c.send(piece)
        assert p.ask(request(tls, tls.origin.tls, host=host)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("host", ["origin.test", PASSED])
@pytest.mark.parametrize("keep", [0, 1, 4, 5, 6, 60, -1])
def test_half_a_hello(tls, host, keep):
    since, seen = tls.mark(), len(list(tls.origin.record.iterdir()))
    with tls.client() as c:
        assert c.connect(f"{host}:{tls.origin.tls}").status == 200
        c.send(Pieces(c, tls.context(), host).hello()[:keep])
        c.half_close()
        assert c.at_end()
    record = tls.wait_record(since)
    assert (record["event"], record["host"]) == ("tunnel.deny", host)
    assert record["reason"] in ("client_closed", "client_tls_failed", "not_tls")
    assert len(tls.records(since)) == 1
    assert len(list(tls.origin.record.iterdir())) == seen


def test_a_hello_beyond_its_bound(tls):
    """A hello that claims 16 MiB, in records without end: an end comes all the same, with one record."""
    since = tls.mark()
    with tls.client() as c:
        assert c.connect(f"origin.test:{tls.origin.tls}").status == 200
        body = b"\x01\xff\xff\xff\x03\x03" + b"r" * 32 + b"\x00" + b"a" * (1 << 16)
        for i in range(0, len(body), 16000):
            part = body[i:i + 16000]
            c.send_quietly(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part)
        c.read_all()
    assert tls.wait_record(since)["reason"] == "client_tls_failed"
    assert len(tls.records(since)) == 1


def test_the_names_disagree_before_any_handshake(tls):
    since, seen = tls.mark(), len(list(tls.origin.record.iterdir()))
    for host in ("origin.test", PASSED):
        with tls.client() as c:
            assert c.connect(f"{host}:{tls.origin.tls}").status == 200
            with pytest.raises((ssl.SSLError, OSError)):
                c.start_tls(tls.context(), "evil.test")
    records = tls.wait_records(2, since)
    assert [(r["event"], r["reason"]) for r in records] == [("tunnel.deny", "name_mismatch")] * 2
    assert all(r["tls"]["sni"] == "evil.test" for r in records)
    assert len(list(tls.origin.record.iterdir())) == seen


def test_renegotiation_is_refused(tls):
    """TLS 1.2: the client asks for a second handshake; the connection goes on without, or ends."""
    proc = subprocess.Popen(["openssl", "s_client", "-proxy", f"127.0.0.1:{tls.port}", "-connect",
                             f"origin.test:{tls.origin.tls}", "-servername", "origin.test", "-CAfile", tls.ca,
                             "-tls1_2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            env=clean_env())
    got = bytearray()
    threading.Thread(target=lambda: [got.extend(x) for x in iter(lambda: proc.stdout.read1(4096), b"")], daemon=True).start()
    try:
        wait_for(lambda: b"Verify return code: 0" in got, why="handshake")
        proc.stdin.write(b"R\n")
        proc.stdin.flush()
        wait_for(lambda: b"RENEGOTIATING" in got, why="renegotiation began")
        wait_for(lambda: b"no renegotiation" in got or proc.poll() is not None, why=str(bytes(got[-400:])))
    finally:
        proc.kill()
        proc.wait()


def test_a_peer_that_answers_nothing_to_our_hello(stile):
    s = stile(rules=[allow("https://origin.test:*")], limits={"tls": "300ms"})
    with Peer() as p:
        r = s.tls_get("/ok/a", p.port)
    check_refusal(r, 504, "upstream_tls_timeout")
    assert "error=connection_timeout" in r.get("proxy-status")
    assert "no TLS handshake with origin.test within 300 ms" in r.json()["detail"]
    assert s.wait_record(event="request.end")["error"] == "upstream_tls_timeout"
