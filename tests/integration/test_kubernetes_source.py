"""Tokens of Kubernetes service accounts: from a projected volume, which is renewed as the kubelet does it, and from a
stand-in for the cluster's TokenRequest that has a CA of its own."""

import os
import threading
import time

import pytest

import pki as certificates  # tests/origin/pki.py
from issuerlib import Endpoint, ask, key, nowhere, refused, request, stamp, start
from stilelib import SLOWER, put_over, wait_for

jwt = pytest.importorskip("jwt", reason="python3-jwt (PyJWT) is not installed")

AUDIENCE = "https://vault.test"
SHOWN = "stile-own-token"


def token(life: float = 3600, audience=AUDIENCE, **more) -> str:
    """As the cluster signs them."""
    claims = {"iss": "https://kubernetes.default.svc", "aud": [audience] if isinstance(audience, str) else audience,
              "exp": int(time.time() + life), "iat": int(time.time()),
              "sub": "system:serviceaccount:ci:builder", **more}
    return jwt.encode({k: v for k, v in claims.items() if v is not None}, key("rsa"), "RS256")


# ---- a projected volume ----


class Volume:
    """The kubelet writes a folder and swaps a link to it; what is read is a link through that link."""

    def __init__(self, folder, text: str):
        self.folder, self.n = folder, 0
        folder.mkdir()
        self.write(text)
        (folder / "token").symlink_to("..data/token")

    def write(self, text: str) -> None:
        self.n += 1
        version = self.folder / f"..{self.n}"
        version.mkdir()
        put_over(version / "token", text)
        (self.folder / "..data_tmp").symlink_to(version.name)
        os.rename(self.folder / "..data_tmp", self.folder / "..data")

    @property
    def source(self) -> dict:
        return {"token": {"file": str(self.folder / "token")}}


def test_a_projected_token(stile, tmp_path):
    """Used until its `exp` and no longer, and replaced as soon as the file is."""
    first, short, second = token(3600, n=1), token(3 * SLOWER), token(3600, n=2)
    volume = Volume(tmp_path / "volume", first)
    s = start(stile, {"kubernetes": {**volume.source, "audiences": AUDIENCE}}, addresses=())
    assert ask(s) == first
    volume.write(short)
    wait_for(lambda: request(s).status == 503, 20 * SLOWER)
    assert time.time() >= jwt.decode(short, options={"verify_signature": False})["exp"] - 0.1
    refused(s, "has ended")
    s.wait_stderr(r"credential a .* is not available: its token has ended already")
    volume.write(second)
    wait_for(lambda: request(s).status == 200)
    assert ask(s) == second
    volume.write(token(3600, n=3))
    wait_for(lambda: ask(s) != second)
    volume.write("gone")
    wait_for(lambda: request(s).status == 503)
    nowhere(s, first, short, second)


FILES = [
    (lambda: token(-5), "ended already"),
    (lambda: token(exp=None), "when it ends"),
    (lambda: token(exp="soon"), "when it ends"),
    (lambda: token(audience="https://other.test"), "another audience"),
    (lambda: token(audience=[AUDIENCE, "https://other.test"]), "another audience"),
    (lambda: token(audience=[]), "another audience"),
    (lambda: token(aud=None), "another audience"),
    (lambda: "opaque", "no JWT"), (lambda: "a.b", "no JWT"), (lambda: "a.e30.c.d", "no JWT"), (lambda: "a.e30=.c", "no JWT"),
    (lambda: "a..c", "not a JSON object"), (lambda: "a.W10.c", "not a JSON object"), (lambda: "a.e.c", "no JWT"),
    (lambda: "a.e31.c", "no JWT"), (lambda: "x" * 70000, "larger than"), (lambda: "", "empty"),
    (lambda: token() + "\nX: y", "control character"),
]


def test_projected_tokens_that_are_refused(stile, tmp_path):
    files = [put_over(tmp_path / f"{n}", text()) for n, (text, _) in enumerate(FILES)]
    s = start(stile, [{"kubernetes": {"token": {"file": f}, "audiences": [AUDIENCE]}} for f in files], addresses=())
    for n, (_, why) in enumerate(FILES):
        refused(s, why, name=f"c{n}")


def test_any_audience_where_none_is_named(stile, tmp_path):
    text = token(audience="whoever")
    s = start(stile, {"kubernetes": {"token": {"file": put_over(tmp_path / "t", text)}}}, addresses=())
    assert ask(s) == text


# ---- TokenRequest ----


class Cluster:
    def __init__(self, folder):
        root = certificates.make("cluster CA", ca=True)
        certificates.write(folder, "cluster", certificates.make("kube-apiserver", root, names=["origin.test", "127.0.0.1"]))
        self.ca = folder / "cluster-ca.pem"
        self.ca.write_bytes(certificates.pem(root))
        self.shown, self.given, self.life = SHOWN, [], 3600.0
        self.change, self.changes, self.down = lambda answer: answer, [], None
        self.endpoint = Endpoint(folder, self.reply, "cluster")

    @property
    def asked(self):
        return self.endpoint.asked

    def reply(self, asked):
        if self.down:
            return self.down
        case, _, path = asked.path.rpartition("!")
        change = self.changes[int(case[1:])] if case else self.change
        if asked.bearer != self.shown:
            return 401, {"kind": "Status", "code": 401}
        if path == "/api/v1/namespaces/kube-system/serviceaccounts/builder/token":
            return 403, {"kind": "Status", "code": 403}
        if asked.method != "POST" or path != "/api/v1/namespaces/ci/serviceaccounts/builder/token":
            return 404, {"kind": "Status", "code": 404}
        body = asked.json()
        assert (body["apiVersion"], body["kind"]) == ("authentication.k8s.io/v1", "TokenRequest")
        self.given.append(token(self.life, body["spec"]["audiences"], n=len(self.given)))
        return 201, change({**body, "status": {"token": self.given[-1], "expirationTimestamp": stamp(self.life)}})


@pytest.fixture
def cluster(tmp_path):
    c = Cluster(tmp_path)
    yield c
    c.endpoint.stop()


def api(tmp_path, cluster, case=None, host: str = "origin.test", **settings) -> dict:
    if not (tmp_path / "shown").exists():
        put_over(tmp_path / "shown", SHOWN + "\n")
    given = {"api": f"https://{host}:{cluster.endpoint.port}{f'/{case}!' if case is not None else ''}",
             "token": {"file": str(tmp_path / "shown")}, "ca": str(cluster.ca), "namespace": "ci",
             "service_account": "builder", "audiences": [AUDIENCE], **settings}
    return {"kubernetes": {k: v for k, v in given.items() if v is not None}}


def test_a_token_that_is_asked_for(stile, tmp_path, cluster):
    s = start(stile, api(tmp_path, cluster, audiences=[AUDIENCE, "other"], lifetime="30m"))
    assert [ask(s), ask(s)] == [cluster.given[0]] * 2
    assert len(cluster.asked) == 1 and cluster.asked[0].headers["Content-Type"] == "application/json"
    assert cluster.asked[0].json()["spec"] == {"audiences": [AUDIENCE, "other"], "expirationSeconds": 1800}
    nowhere(s, cluster.given[0], SHOWN)


def test_a_cluster_that_is_known_by_its_address(stile, tmp_path, cluster):
    assert ask(start(stile, api(tmp_path, cluster, host="127.0.0.1"))) == cluster.given[0]


def test_by_whom_the_cluster_is_verified(stile, tmp_path, cluster, origin):
    """Its own CA and nothing else where one is named; what verifies all others where none is."""
    public = Endpoint(origin.pki, cluster.reply)
    theirs = {"api": f"https://origin.test:{public.port}"}
    try:
        s = start(stile, [api(tmp_path, cluster), api(tmp_path, cluster, ca=None), api(tmp_path, cluster, **theirs),
                          api(tmp_path, cluster, ca=None, **theirs), api(tmp_path, cluster, ca=str(tmp_path / "shown")),
                          api(tmp_path, cluster, ca=str(tmp_path / "absent"))])
        assert ask(s, "c0") in cluster.given and ask(s, "c3") in cluster.given
        refused(s, "its endpoint: ", "issuer", name="c1")
        refused(s, "its endpoint: ", "issuer", name="c2")
        for name in ("c4", "c5"):
            refused(s, "`ca` is no file with a certificate", name=name)
            assert str(tmp_path) not in request(s, name).body.decode()
        assert len(cluster.given) == 2
    finally:
        public.stop()


ANSWERS = [
    (lambda a: {**a, "status": {**a["status"], "token": token(audience="other")}}, "another audience"),
    (lambda a: {**a, "status": {**a["status"], "token": "opaque"}}, "no JWT"),
    (lambda a: {**a, "status": {**a["status"], "token": token(-5)}}, "ended already"),
    (lambda a: {**a, "status": {**a["status"], "expirationTimestamp": stamp(-5)}}, "ended already"),
    (lambda a: {**a, "status": {**a["status"], "expirationTimestamp": "soon"}}, "is no time"),
    (lambda a: {**a, "status": {}}, "no text for `token`"),
    (lambda a: {"status": "Failure"}, "no text for `token`"),
    (lambda a: b"x" * 1000000, "more than"),
]


def test_answers_that_are_no_token(stile, tmp_path, cluster):
    cluster.changes = [change for change, _ in ANSWERS]
    s = start(stile, [api(tmp_path, cluster, case=n) for n in range(len(ANSWERS))])
    for n, (_, why) in enumerate(ANSWERS):
        refused(s, why, name=f"c{n}")


def test_refusals(stile, tmp_path, cluster):
    wrong = {"file": put_over(tmp_path / "wrong", "wrong")}
    s = start(stile, [api(tmp_path, cluster, token=wrong), api(tmp_path, cluster, namespace="kube-system"),
                      api(tmp_path, cluster, service_account="nobody"), api(tmp_path, cluster, service_account=".."),
                      api(tmp_path, cluster, token={"file": str(tmp_path / "absent")})])
    for n, why in enumerate(["answers 401", "answers 403", "answers 404", "its endpoint", "`token`"]):
        refused(s, why, name=f"c{n}")
    assert cluster.given == [] and not any(".." in a.path for a in cluster.asked)


def test_a_cluster_that_hangs(stile, tmp_path, cluster):
    gate = threading.Event()
    cluster.endpoint.reply = lambda _: (gate.wait(60), (503, b""))[1]
    refused(start(stile, {**api(tmp_path, cluster), "timeout": "500ms"}), "did not answer in time")
    gate.set()


def test_down_in_between(stile, tmp_path, cluster):
    """Refused at the start; renewed with the token that the file has then; used to its end while the cluster is down."""
    cluster.down, cluster.life = (503, b""), 3 * SLOWER
    s = start(stile, api(tmp_path, cluster))
    refused(s, "answers 503")
    cluster.shown, cluster.down = "rotated", None
    put_over(tmp_path / "shown", "rotated")
    wait_for(lambda: len(cluster.given) >= 3, 20 * SLOWER)
    wait_for(lambda: request(s).status == 200, 20 * SLOWER)
    cluster.down = (503, b"")
    wait_for(lambda: request(s).status == 503, 20 * SLOWER)
    cluster.down = None
    wait_for(lambda: request(s).status == 200, 20 * SLOWER)
