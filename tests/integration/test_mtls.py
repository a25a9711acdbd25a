"""Credentials `as: mtls`: which certificate an origin is shown, and by whose request; that neither a connection nor a TLS
session of one rule serves another; what a rotation leaves; what makes a certificate unusable."""

import base64
import datetime
import json
import os
import pathlib
import socket
import ssl
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

import h2.config
import h2.connection
import h2.events

from h2lib import H2
from stilelib import SANITIZED, SLOWER, TIMEOUT, Peer, Raw, Stile, allow, check_refusal, put_over, wait_for
from vaultlib import Vault

UNAVAILABLE = "credential_unavailable"
KINDS = {"rsa": lambda: rsa.generate_private_key(65537, 2048), "ec": lambda: ec.generate_private_key(ec.SECP256R1()),
         "ed25519": ed25519.Ed25519PrivateKey.generate}
DAY = datetime.timedelta(days=1)


# ---- certificates ----


class Made:
    """A certificate, its key and its issuers."""

    def __init__(self, name: str, issuer: "Made | None" = None, kind: str = "ec", ca: bool = False, begins=-DAY,
                 life=30 * DAY, key=None):
        self.name, self.key = name, key or KINDS[kind]()
        start = datetime.datetime.utcnow() + begins
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = issuer.key if issuer else self.key
        b = (x509.CertificateBuilder().subject_name(subject)
             .issuer_name(issuer.cert.subject if issuer else subject).public_key(self.key.public_key())
             .serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(start + life)
             .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True))
        if not ca:
            b = b.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        self.cert = b.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())
        self.issuer = issuer

    @property
    def pem(self) -> str:
        return self.cert.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def chain(self) -> str:
        """As it is sent: without the root."""
        up = self.issuer.chain if self.issuer and self.issuer.issuer else ""
        return self.pem + up

    def key_pem(self, form=serialization.PrivateFormat.PKCS8, secret=serialization.NoEncryption()) -> str:
        return self.key.private_bytes(serialization.Encoding.PEM, form, secret).decode()


@pytest.fixture(scope="module")
def ca() -> Made:
    return Made("clients", ca=True)


@pytest.fixture(scope="module")
def middle(ca) -> Made:
    return Made("clients, below", ca, ca=True)


def pair(folder: pathlib.Path, made: Made, name: str = "pair") -> dict:
    return {"file": {"cert": put_over(folder / f"{name}.pem", made.chain), "key": put_over(folder / f"{name}.key", made.key_pem())}}


# ---- the origin ----


def common_name(der: bytes | None) -> str | None:
    if not der:
        return None
    return x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value


class Asking:
    """An origin of TLS that asks for a certificate, and answers each request with what it was shown: peer, connection,
    whether its session was resumed, the version of TLS."""

    def __init__(self, pki: pathlib.Path, ca: Made, required: bool = True, version=None, alpn: str = "http/1.1",
                 close: bool = False, kind: str = "good", later: bool = False):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(pki / f"{kind}.pem", pki / f"{kind}.key")
        self.context.load_verify_locations(cadata=ca.pem)
        self.context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        self.context.post_handshake_auth = later  # then it does not ask in the handshake
        self.context.set_alpn_protocols([alpn])
        if version:
            self.context.minimum_version = self.context.maximum_version = version
        self.alpn, self.close, self.connections, self.failed = alpn, close, 0, []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self) -> None:
        self.listener.close()

    def accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(sock, self.connections), daemon=True).start()

    def serve(self, sock: socket.socket, number: int) -> None:
        sock.settimeout(TIMEOUT)
        try:
            with self.context.wrap_socket(sock, server_side=True) as s:
                (self.serve_h2 if self.alpn == "h2" else self.serve_h1)(s, number)
        except (OSError, ssl.SSLError) as e:
            self.failed.append(str(e))

    def say(self, s: ssl.SSLSocket, number: int) -> bytes:
        return json.dumps({"peer": common_name(s.getpeercert(True)), "connection": number,
                           "resumed": s.session_reused, "tls": s.version()}).encode()

    def serve_h1(self, s: ssl.SSLSocket, number: int) -> None:
        head = b""
        while data := s.recv(65536):
            head += data
            while b"\r\n\r\n" in head:
                one, _, head = head.partition(b"\r\n\r\n")
                body = self.say(s, number)
                if b"/later " in one:  # RFC 8446 section 4.6.2
                    try:
                        s.verify_client_post_handshake()
                        body = b'"asked"'
                    except ssl.SSLError as e:
                        body = json.dumps(str(e)).encode()
                s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s"
                          % (len(body), b"Connection: close\r\n" if self.close else b"", body))
                if self.close:
                    return

    def serve_h2(self, s: ssl.SSLSocket, number: int) -> None:
        c = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        c.initiate_connection()
        s.sendall(c.data_to_send())
        while data := s.recv(65536):
            for event in c.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    c.send_headers(event.stream_id, [(":status", "200")])
                    c.send_data(event.stream_id, self.say(s, number), end_stream=True)
            s.sendall(c.data_to_send())


@pytest.fixture
def asking(origin, ca):
    made = []

    def make(**settings) -> Asking:
        made.append(Asking(origin.pki, ca, **settings))
        return made[-1]
    yield make
    for a in made:
        a.stop()


def start(make, port: int, source: dict, other: dict | None = None, **more) -> Stile:
    """/a/ shows the credential `one`, /c/ shows `two`, /b/ none."""
    rules = [allow(f"https://origin.test:{port}/a/**", credential="one"), allow(f"https://origin.test:{port}/b/**")]
    credentials = {"one": {"from": source, "as": "mtls"}}
    if other:
        credentials["two"] = {"from": other, "as": "mtls"}
        rules.append(allow(f"https://origin.test:{port}/c/**", credential="two"))
    return make(rules=rules, credentials=credentials, **more)


def ask(s: Stile, port: int, path: str = "/a/x") -> dict:
    r = s.tls_get(path, port)
    assert r.status == 200, (r, s.stderr)
    return r.json()


def refused(s: Stile, port: int, *why: str) -> None:
    r = s.tls_get("/a/x", port)
    check_refusal(r, 503, UNAVAILABLE)
    for text in why:
        assert text in r.json()["detail"], r.json()


# ---- what is shown ----


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_keys(stile, tmp_path, asking, middle, kind, version):
    """With the chain, without which the origin could not verify it."""
    origin = asking(version=version)
    made = Made(f"robot, {kind}", middle, kind)
    s = start(stile, origin.port, pair(tmp_path, made))
    said = ask(s, origin.port)
    assert (said["peer"], said["tls"]) == (made.name, version.name.replace("_", "."))
    record = s.wait_record(event="request.start")
    assert record["credential"] == "one"
    s.stop()
    for line in made.key_pem().splitlines()[1:-1]:
        assert line not in s.stderr + s.log_path.read_text()


@pytest.mark.parametrize("form", ["TraditionalOpenSSL", "PKCS8"])
@pytest.mark.parametrize("where", ["file", "env", "exec"])
def test_one_text_of_both(stile, tmp_path, asking, middle, where, form):
    """In any order, and whatever stands between."""
    origin, made = asking(), Made("robot", middle)
    text = "a comment\n" + made.key_pem(getattr(serialization.PrivateFormat, form)) + middle.pem + made.pem
    path = put_over(tmp_path / "both.pem", text)
    source = {"file": {"file": path}, "env": {"env": "STILE_TEST_PEM"}, "exec": {"exec": ["/bin/cat", path]}}[where]
    rules = [allow(f"https://origin.test:{origin.port}/a/**", credential="one")]
    credentials = {"one": {"from": source, "as": "mtls", **({"ttl": "1h"} if where == "exec" else {})}}
    s = stile(rules=rules, credentials=credentials, env={"STILE_TEST_PEM": text})
    assert ask(s, origin.port)["peer"] == "robot"


def test_from_a_vault(stile, tmp_path, origin, asking, middle):
    vault, to, made = Vault(origin.pki), asking(), Made("robot", middle)
    vault.kv["ci/tls"] = [{"certificate": made.chain, "private_key": made.key_pem()}]
    try:
        s = start(stile, to.port, {"vault": {
            "address": f"https://origin.test:{vault.port}", "path": "secret/data/ci/tls",
            "field": ["certificate", "private_key"], "token": {"file": put_over(tmp_path / "token", vault.give_token())}},
            "addresses": ["127.0.0.0/8"]})
        assert ask(s, to.port)["peer"] == "robot"
    finally:
        vault.stop()


# ---- who shows it ----


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_connections_are_kept_apart(stile, tmp_path, asking, middle, version):
    """Each rule has its own, and finds it again."""
    origin = asking(required=False, version=version)
    s = start(stile, origin.port, pair(tmp_path, Made("one", middle)), pair(tmp_path, Made("two", middle), "two"),
              limits={"workers": 1})
    found = {}
    for path, peer in [("/a/1", "one"), ("/b/1", None), ("/c/1", "two"), ("/b/2", None), ("/a/2", "one"),
                       ("/c/2", "two"), ("/b/3", None)]:
        said = ask(s, origin.port, path)
        assert said["peer"] == peer, f"{path}: {said}"
        assert found.setdefault(path[1], said["connection"]) == said["connection"]
    assert len(set(found.values())) == 3


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_sessions_are_kept_apart(stile, tmp_path, asking, middle, version):
    """A resumed session stands for the certificate that it began with."""
    origin = asking(required=False, version=version, close=True)
    s = start(stile, origin.port, pair(tmp_path, Made("one", middle)), pair(tmp_path, Made("two", middle), "two"),
              limits={"workers": 1})
    resumed = set()
    for n in range(3):
        for path, peer in [("/a/1", "one"), ("/b/1", None), ("/c/1", "two")]:
            said = ask(s, origin.port, path)
            assert said["peer"] == peer and (n > 0 or not said["resumed"]), f"{path}: {said}"
            if said["resumed"]:
                resumed.add(peer)
    assert resumed == {"one", None, "two"}


def test_streams_are_kept_apart(stile, tmp_path, asking, middle):
    """HTTP/2 on both sides, all at once."""
    origin = asking(required=False, alpn="h2")
    s = start(stile, origin.port, pair(tmp_path, Made("one", middle)), pair(tmp_path, Made("two", middle), "two"),
              limits={"workers": 1})
    want = {"a": "one", "b": None, "c": "two"}
    connections: dict[str, set[int]] = {k: set() for k in want}
    with H2(s, origin.port) as c:
        for _ in range(3):
            streams = {c.ask(path=f"/{k}/x"): k for k in want for _ in range(4)}
            c.until(lambda: all(c.answers[n].done for n in streams))
            for n, k in streams.items():
                said = c.answers[n].json()
                assert said["peer"] == want[k], (k, said)
                connections[k].add(said["connection"])
    assert all(len(v) == 1 for v in connections.values()) and len(set.union(*connections.values())) == 3


def test_policies_and_listeners_are_kept_apart(stile, tmp_path, asking, middle):
    """The same host and path at two listeners, of which one has the certificate."""
    origin = asking(required=False)
    target = f"https://origin.test:{origin.port}/a/**"
    s = stile(listen=[{"proxy": "127.0.0.1:0", "policy": "with", "name": "with"},
                      {"proxy": f"unix:{tmp_path}/s", "policy": "without", "name": "without"}],
              policies={"with": [allow(target, credential="one")], "without": [allow(target)]},
              credentials={"one": {"from": pair(tmp_path, Made("one", middle)), "as": "mtls"}}, limits={"workers": 1})
    for _ in range(2):
        assert ask(s, origin.port)["peer"] == "one"
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(f"{tmp_path}/s")
        with Raw(sock) as c:
            assert c.connect(f"origin.test:{origin.port}").status == 200
            c.start_tls(s.context(), "origin.test")
            r = c.ask(f"GET /a/x HTTP/1.1\r\nHost: origin.test:{origin.port}\r\n\r\n".encode())
            assert r.json()["peer"] is None


def test_an_origin_that_asks_later(stile, tmp_path, asking, middle):
    """Within a connection: stile does not offer that, and shows nothing, whatever the rule says."""
    origin = asking(required=False, version=ssl.TLSVersion.TLSv1_3, later=True)
    s = start(stile, origin.port, pair(tmp_path, Made("one", middle)))
    for path in ("/b", "/a"):
        assert "extension not received" in ask(s, origin.port, path + "/later")
        assert ask(s, origin.port, path + "/x")["peer"] is None


@pytest.mark.parametrize("kind", ["unknown-issuer", "wrong-name", "expired"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_an_origin_that_is_not_believed_is_shown_none(stile, tmp_path, origin, ca, middle, kind, version):
    """What comes over the wire is looked at where TLS 1.2 sends it in clear; in 1.3 the handshake gets no further than
    the origin's own part."""
    made = Made("one", middle)
    context = Asking(origin.pki, ca, kind=kind, version=version)
    context.stop()
    with Peer() as peer:
        s = start(stile, peer.port, pair(tmp_path, made))
        got, answers = bytearray(), []
        t = threading.Thread(target=lambda: answers.append(s.tls_get("/a/x", peer.port)))
        t.start()
        sock = peer.accept().sock
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.context.wrap_bio(incoming, outgoing, server_side=True)
        done = False
        while not done:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                sock.sendall(outgoing.read())
                data = sock.recv(65536)
                got += data
                incoming.write(data) if data else incoming.write_eof()
            except ssl.SSLError:
                break
        t.join(TIMEOUT)
        assert not done
        check_refusal(answers[0], 502, "upstream_untrusted")
        der = made.cert.public_bytes(serialization.Encoding.DER)
        assert der not in got and der[-64:] not in got


# ---- what the origin thinks of it ----


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_an_origin_that_does_not_take_it(stile, tmp_path, asking, version):
    origin = asking(version=version)
    s = start(stile, origin.port, pair(tmp_path, Made("stranger")))
    r = s.tls_get("/a/x", origin.port)
    check_refusal(r, 502, "upstream_wants_certificate")
    assert "does not take the client certificate of the rule's credential" in r.json()["detail"]


def test_a_rule_without_one(stile, tmp_path, asking, middle):
    origin = asking()
    s = start(stile, origin.port, pair(tmp_path, Made("one", middle)))
    assert ask(s, origin.port)["peer"] == "one"
    r = s.tls_get("/b/x", origin.port)
    check_refusal(r, 502, "upstream_wants_certificate")
    assert "as: mtls" in r.json()["detail"]


def test_what_the_client_brings(stile, tmp_path, origin, middle):
    """It gets no other identity beside the certificate."""
    s = stile(rules=[allow("https://origin.test:*/echo/**", credential="one")],
              credentials={"one": {"from": pair(tmp_path, Made("one", middle)), "as": "mtls"}})
    r = s.tls_get("/echo/x", more="Authorization: Bearer x\r\nX-Forwarded-Client-Cert: Subject=evil\r\n"
                                  "Client-Cert: :AAAA:\r\nCookie: a=b\r\nX-Plain: y\r\n")
    names = {n.lower() for n, _ in r.json()["headers"]}
    assert "x-plain" in names and not names & {"authorization", "x-forwarded-client-cert", "client-cert", "cookie"}


# ---- rotation ----


def memory_of(pid: int) -> list[bytes]:
    """All that a process can write."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, mode, *_ = line.split()
            if "w" not in mode or "[v" in line:
                continue
            begin, end = (int(x, 16) for x in span.split("-"))
            try:
                mem.seek(begin)
                found.append(mem.read(end - begin))
            except OSError:
                pass
    return found


def traces(pid: int, made: Made) -> list[str]:
    """What of a key lies in the memory of a stile and its keeper."""
    number = made.key.private_numbers().private_value.to_bytes(32, "big")
    text = made.key_pem().splitlines()[1]
    der = base64.b64decode("".join(made.key_pem().splitlines()[1:-1]))
    forms = {"text": text.encode(), "DER": der[:64], "number": number, "words": number[::-1]}
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    memory = [m for p in [pid, *map(int, children)] for m in memory_of(p)]
    return [k for k, v in forms.items() if any(v in m for m in memory)]


@pytest.mark.skipif(os.geteuid() != 0 or SANITIZED,
                    reason="needs root, to read a process's memory, and a build without a sanitizer, which keeps copies")
def test_a_rotation_leaves_nothing(stile, tmp_path, asking, middle):
    """New connections show the new certificate, kept ones are not used any more, and the old key is gone."""
    origin = asking()
    old, new = Made("old", middle), Made("new", middle)
    source = pair(tmp_path, old)
    s = start(stile, origin.port, source, limits={"workers": 1})
    before = ask(s, origin.port)
    assert before["peer"] == "old" and traces(s.pid, old)
    pair(tmp_path, new)
    wait_for(lambda: ask(s, origin.port)["peer"] == "new", 20 * SLOWER)
    after = [ask(s, origin.port) for _ in range(3)]
    assert {a["peer"] for a in after} == {"new"} and before["connection"] not in {a["connection"] for a in after}
    try:
        wait_for(lambda: not traces(s.pid, old), 20 * SLOWER)
    except AssertionError:
        raise AssertionError(f"of the old key there stays: {traces(s.pid, old)}") from None
    assert traces(s.pid, new)


def test_half_a_rotation(stile, tmp_path, asking, middle):
    """Between the two files nothing fails; a pair that does not become whole is no credential."""
    origin = asking()
    old, new = Made("old", middle), Made("new", middle)
    s = start(stile, origin.port, pair(tmp_path, old))
    assert ask(s, origin.port)["peer"] == "old"
    put_over(tmp_path / "pair.pem", new.chain)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        assert ask(s, origin.port)["peer"] == "old"
    put_over(tmp_path / "pair.key", new.key_pem())
    wait_for(lambda: ask(s, origin.port)["peer"] == "new", 20 * SLOWER)
    put_over(tmp_path / "pair.key", old.key_pem())
    s.wait_stderr("credential one .* is not available: its key is not that of its certificate")
    refused(s, origin.port, "its key is not that of its certificate")


def test_a_certificate_that_expires(stile, tmp_path, asking, middle):
    """It is not shown a moment longer, on no connection that is there already either."""
    origin = asking()
    life = 8 if SANITIZED else 4
    made = Made("short", middle, life=DAY + datetime.timedelta(seconds=life))
    begun = time.monotonic()
    s = start(stile, origin.port, pair(tmp_path, made))
    assert ask(s, origin.port)["peer"] == "short"
    wait_for(lambda: s.tls_get("/a/x", origin.port).status == 503, 20 * SLOWER)
    assert time.monotonic() - begun > life - 2
    refused(s, origin.port, "expired")
    pair(tmp_path, Made("next", middle))
    wait_for(lambda: s.tls_get("/a/x", origin.port).status == 200, 20 * SLOWER)


def faults(middle: Made) -> dict[str, tuple[str, str, str]]:
    good = Made("good", middle)
    secret = serialization.BestAvailableEncryption(b"secret")
    traditional = serialization.PrivateFormat.TraditionalOpenSSL
    weak = Made("weak", middle, key=rsa.generate_private_key(65537, 1024))
    odd = Made("odd", middle, key=dsa.generate_private_key(2048))
    return {
        "another's key": (good.chain, Made("other", middle).key_pem(), "its key is not that of its certificate"),
        "no key": (good.chain, good.chain, "it has no key"),
        "no certificate": (good.key_pem(), "# nothing\n", "it has no certificate"),
        "two keys": (good.chain + good.key_pem(), good.key_pem(), "it has more than one key"),
        "neither": ("x\n", "y\n", "it is no PEM of a certificate and a key"),
        "cut": (good.chain[:200], good.key_pem(), "it is no PEM"),
        "garbage": ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", good.key_pem(), "cannot be read"),
        "a broken key": (good.chain, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "cannot be read"),
        "encrypted": (good.chain, good.key_pem(secret=secret), "its key is encrypted"),
        "encrypted in the old way": (good.chain, good.key_pem(traditional, secret), "its key is encrypted"),
        "expired": ((old := Made("old", middle, begins=-9 * DAY, life=2 * DAY)).chain, old.key_pem(), "expired on 20"),
        "not yet": ((early := Made("early", middle, begins=DAY)).chain, early.key_pem(), "is not valid before 20"),
        "weak": (weak.chain, weak.key_pem(), "its key is too short"),
        "of another kind": (odd.chain, odd.key_pem(), "of a kind that is not used"),
        "empty": ("", good.key_pem(), "it is empty"),
        "too many": (good.pem + middle.pem * 17, good.key_pem(), "too many certificates"),
    }


def test_what_is_no_certificate(stile, tmp_path, asking, middle):
    """Nothing is dialled, and stderr and the answer say what is wrong, without a word of the key."""
    origin = asking(required=False)
    good = Made("good", middle)
    s = start(stile, origin.port, pair(tmp_path, good))
    assert ask(s, origin.port)["peer"] == "good"
    seen = origin.connections
    for name, (cert, key, why) in faults(middle).items():
        put_over(tmp_path / "pair.pem", cert)
        put_over(tmp_path / "pair.key", key)
        s.reload(credentials={"one": {"from": {"file": {"cert": str(tmp_path / "pair.pem"),
                                                        "key": str(tmp_path / "pair.key")}}, "as": "mtls"}})
        refused(s, origin.port, why)
        assert all(line not in s.stderr for line in key.splitlines()[1:-1] if len(line) > 32), name
    assert origin.connections == seen
    pair(tmp_path, good)
    wait_for(lambda: s.tls_get("/a/x", origin.port).status == 200, 20 * SLOWER)


def test_files_that_are_not_there(stile, tmp_path, asking, middle):
    origin, made = asking(), Made("one", middle)
    source = pair(tmp_path, made)
    (tmp_path / "pair.key").unlink()
    s = start(stile, origin.port, source)
    refused(s, origin.port, "`key`", "cannot be opened")
    assert str(tmp_path) not in s.tls_get("/a/x", origin.port).json()["detail"]
    put_over(tmp_path / "pair.key", made.key_pem())
    wait_for(lambda: s.tls_get("/a/x", origin.port).status == 200, 20 * SLOWER)
    (tmp_path / "pair.key").chmod(0o644)
    put_over(tmp_path / "pair.pem", made.chain)
    s.wait_stderr("credential one: .*pair.key can be read by every user")
