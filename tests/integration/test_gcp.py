"""Tokens of Google Cloud service accounts. The stand-ins judge what they are asked as the documentation of each API says:
the assertion (PyJWT: signature, `kid`, `iss`, `aud`, times), the metadata server's header, the bearer of an impersonation.
The metadata server has its own address, in a network namespace that leads nowhere."""

import ctypes
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.parse

import pytest

from issuerlib import Endpoint, ask, key, nowhere, pem, refused, request, stamp, start
from stilelib import SLOWER, Origin, Stile, put_over, wait_for

jwt = pytest.importorskip("jwt", reason="python3-jwt (PyJWT) is not installed")

ROBOT, OTHER = "robot@acme.iam.gserviceaccount.com", "deploy@acme.iam.gserviceaccount.com"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_only"
AUDIENCE = "https://service-1.run.app/"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
METADATA = "169.254.169.254"
CLONE_NEWNET = 0x40000000


def id_token(audience: str, life: float = 3600) -> str:
    """As Google would sign one; stile does not verify it, whoever is sent it does."""
    return jwt.encode({"aud": audience, "iss": "https://accounts.google.com", "exp": int(time.time() + life)}, key("rsa", 1),
                      "RS256")


class Google:
    """The token endpoint at /token, IAM below /iam, the metadata server below /computeMetadata."""

    def __init__(self, pki, **where):
        self.key, self.given, self.claims, self.life = key("rsa"), [], [], 3600.0
        self.change, self.changes = lambda answer: answer, []
        self.down = None
        self.endpoint = Endpoint(pki, self.reply, **where)
        self.url = f"https://origin.test:{self.endpoint.port}"

    @property
    def asked(self):
        return self.endpoint.asked

    def give(self, what: str) -> str:
        self.given.append(f"ya29.{what}-{len(self.given)}")
        return self.given[-1]

    def reply(self, asked):
        if self.down:
            return self.down
        path, _, query = asked.path.partition("?")
        case, _, path = path.rpartition("!")
        change = self.changes[int(case[1:])] if case else self.change
        if path == "/token":
            return self.exchange(asked, change)
        if path.startswith("/iam/v1/projects/-/serviceAccounts/"):
            return self.iam(asked, path.rpartition("/")[2], change)
        if path.startswith("/computeMetadata/v1/instance/service-accounts/default/"):
            return self.metadata(asked, path.rpartition("/")[2], dict(urllib.parse.parse_qsl(query)))
        return 404, b""

    def exchange(self, asked, change):
        assert asked.method == "POST" and asked.headers["Content-Type"] == "application/x-www-form-urlencoded"
        form = dict(urllib.parse.parse_qsl(asked.body.decode(), strict_parsing=True))
        try:
            assert form["grant_type"] == GRANT and jwt.get_unverified_header(form["assertion"])["kid"] == "key-1"
            claims = jwt.decode(form["assertion"], self.key.public_key(), algorithms=["RS256"], issuer=ROBOT,
                                audience=f"https://origin.test:{self.endpoint.port}{asked.path}",
                                options={"require": ["iss", "aud", "iat", "exp"]})
            assert claims["exp"] - claims["iat"] <= 3600
        except jwt.InvalidTokenError as e:
            return 400, {"error": "invalid_grant", "error_description": str(e)}
        self.claims.append(claims)
        if "target_audience" in claims:
            return 200, change({"id_token": self.keep(id_token(claims["target_audience"], self.life))})
        return 200, change({"access_token": self.give("first"), "expires_in": self.life, "token_type": "Bearer"})

    def keep(self, token: str) -> str:
        self.given.append(token)
        return token

    def iam(self, asked, what, change):
        if asked.bearer not in self.given or what.partition(":")[0] != OTHER:
            return 403, {"error": {"code": 403, "status": "PERMISSION_DENIED"}}
        body = asked.json()
        if what.endswith(":generateIdToken"):
            return 200, change({"token": self.keep(id_token(body["audience"], self.life))})
        assert what.endswith(":generateAccessToken") and body["lifetime"].endswith("s"), what
        return 200, change({"accessToken": self.give("second"), "expireTime": stamp(int(body["lifetime"][:-1]))})

    def metadata(self, asked, what, query):
        if asked.method != "GET" or asked.headers["Metadata-Flavor"] != "Google":
            return 403, b"", {"Metadata-Flavor": "Google"}
        if what == "identity":
            return 200, self.keep(id_token(query["audience"])).encode(), {"Metadata-Flavor": "Google"}
        answer = {"access_token": self.give("machine"), "expires_in": 3000, "token_type": "Bearer"}
        return self.change((200, answer, {"Metadata-Flavor": "Google"}))


@pytest.fixture
def google(origin):
    g = Google(origin.pki)
    yield g
    g.endpoint.stop()


def key_file(tmp_path, google, name: str = "sa", case=None, private=None, **more) -> dict:
    text = {"type": "service_account", "project_id": "acme", "private_key_id": "key-1", "client_email": ROBOT,
            "private_key": pem(private or key("rsa")), "token_uri": f"{google.url}{f'/{case}!' if case is not None else ''}/token",
            "universe_domain": "googleapis.com", **more}
    return {"file": put_over(tmp_path / f"{name}.json", json.dumps({k: v for k, v in text.items() if v is not None}, indent=2))}


def begin(make, tmp_path, google, addresses=("127.0.0.0/8",), **settings):
    source = {"key": key_file(tmp_path, google), "scopes": [SCOPE, "openid"], **settings}
    return start(make, {"gcp": {k: v for k, v in source.items() if v is not None}}, addresses)


# ---- with a key file ----


def test_an_access_token(stile, tmp_path, google):
    s = begin(stile, tmp_path, google)
    assert [ask(s), ask(s)] == [google.given[0]] * 2
    assert len(google.asked) == 1 and google.claims[0]["scope"] == f"{SCOPE} openid"
    assertion = dict(urllib.parse.parse_qsl(google.asked[0].body.decode()))["assertion"]
    nowhere(s, google.given[0], assertion, pem(key("rsa")).splitlines()[1])


def test_an_id_token(stile, tmp_path, google):
    s = begin(stile, tmp_path, google, scopes=None, audience=AUDIENCE)
    assert ask(s) == google.given[0]
    assert google.claims[0]["target_audience"] == AUDIENCE and "scope" not in google.claims[0]


FILES = [
    (lambda g: {"token_uri": g.url.replace("https", "http") + "/token"}, "no https:// URL"),
    (lambda g: {"token_uri": "file:///etc/passwd"}, "no https:// URL"),
    (lambda g: {"token_uri": None}, "lacks"),
    (lambda g: {"type": "authorized_user"}, "not of a service account"),
    (lambda g: {"private_key": "x"}, "no private key"),
    (lambda g: {"private_key": pem(key("p256"))}, "RS256 wants an RSA key"),
    (lambda g: {"private": key("rsa", 1)}, "answers 400 (the key is not the account's"),
    (lambda g: {"client_email": OTHER}, "answers 400"),
]


def test_key_files_that_are_refused(stile, tmp_path, google):
    files = [key_file(tmp_path, google, f"sa{n}", **change(google)) for n, (change, _) in enumerate(FILES)]
    cases = [why for _, why in FILES] + ["not a JSON object", "cannot be opened"]
    files += [{"file": put_over(tmp_path / "text.json", "x")}, {"file": str(tmp_path / "absent.json")}]
    s = start(stile, [{"gcp": {"key": f, "scopes": SCOPE}} for f in files])
    for n, why in enumerate(cases):
        refused(s, why, name=f"c{n}")
    assert google.given == []


def test_a_token_uri_at_an_address_that_nobody_opened(stile, tmp_path, google):
    """What the file names is an endpoint like any other: its addresses are judged."""
    s = begin(stile, tmp_path, google, addresses=("10.0.0.0/8",))
    refused(s, "loopback")
    assert google.asked == []


ANSWERS = [
    (lambda a: {**a, "expires_in": -5}, SCOPE, "ended already"),
    (lambda a: {"expires_in": 60}, SCOPE, "no text for `access_token`"),
    (lambda a: {**a, "access_token": "a\r\nX: y"}, SCOPE, "control character"),
    (lambda a: b"x" * 1000000, SCOPE, "more than"),
    (lambda a: {"id_token": id_token(AUDIENCE, -5)}, None, "ended already"),
    (lambda a: {"id_token": id_token("https://other.test/")}, None, "another audience"),
    (lambda a: {"id_token": "aa.!!.cc"}, None, "no JWT"),
    (lambda a: {"id_token": "opaque"}, None, "no JWT"),
    (lambda a: {"id_token": jwt.encode({"aud": AUDIENCE}, "x")}, None, "when it ends"),
]


def test_answers_that_are_no_token(stile, tmp_path, google):
    google.changes = [change for change, _, _ in ANSWERS]
    s = start(stile, [{"gcp": {"key": key_file(tmp_path, google, f"sa{n}", case=n),
                               **({"scopes": scope} if scope else {"audience": AUDIENCE})}}
                      for n, (_, scope, _) in enumerate(ANSWERS)])
    for n, (_, _, why) in enumerate(ANSWERS):
        refused(s, why, name=f"c{n}")


def test_an_endpoint_that_hangs(stile, tmp_path, google):
    gate = threading.Event()
    google.endpoint.reply = lambda _: (gate.wait(60), (503, b""))[1]
    s = start(stile, {"gcp": {"key": key_file(tmp_path, google), "scopes": SCOPE}, "timeout": "500ms"})
    refused(s, "did not answer in time")
    gate.set()


def test_down_at_the_start(stile, tmp_path, google):
    """Refused, and then renewed before each end."""
    google.down, google.life = (503, b""), 2 * SLOWER
    s = begin(stile, tmp_path, google)
    refused(s, "answers 503")
    google.down = None
    wait_for(lambda: len(google.given) >= 3, 20 * SLOWER)
    wait_for(lambda: request(s).status == 200, 20 * SLOWER)


# ---- another account ----


def test_impersonation(stile, tmp_path, google):
    """The first token, of IAM's scope alone, makes the second, and never leaves for an origin."""
    s = begin(stile, tmp_path, google, impersonate=OTHER, lifetime="30m", iam=f"{google.url}/iam")
    first, second = google.given
    assert ask(s) == second and google.asked[1].bearer == first
    assert google.claims[0]["scope"] == "https://www.googleapis.com/auth/iam"
    assert google.asked[1].json() == {"scope": [SCOPE, "openid"], "lifetime": "1800s"}
    assert google.asked[1].path == f"/iam/v1/projects/-/serviceAccounts/{OTHER}:generateAccessToken"
    nowhere(s, first, second)


def test_impersonation_for_an_id_token(stile, tmp_path, google):
    s = begin(stile, tmp_path, google, scopes=None, audience=AUDIENCE, impersonate=OTHER, iam=f"{google.url}/iam")
    assert ask(s) == google.given[1]
    assert google.asked[1].json() == {"audience": AUDIENCE, "includeEmail": True}
    assert google.claims[0]["scope"] == "https://www.googleapis.com/auth/iam"


def test_impersonation_that_is_refused(stile, tmp_path, google):
    s = begin(stile, tmp_path, google, impersonate="boss@acme.iam.gserviceaccount.com", iam=f"{google.url}/iam")
    refused(s, "answers 403 (the account may not make tokens of the other one)")


# ---- the metadata server ----


def libc_call(name: str, *args: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), name)


class Machine:
    """A network namespace of this thread, without a way out, in which a metadata server and an origin live."""

    def __init__(self, folder):
        self.before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self.made, self.origin, self.google = [], None, None
        try:
            libc_call("unshare", CLONE_NEWNET)
        except OSError as e:
            os.close(self.before)
            pytest.skip(f"no network namespace is to be had: {e}")
        try:
            for args in (["link", "set", "lo", "up"], ["addr", "add", f"{METADATA}/32", "dev", "lo"]):
                subprocess.run(["ip", *args], check=True, capture_output=True)
            self.origin = Origin(folder)
            self.google = Google(None, address=(METADATA, 80))
            self.iam = Google(self.origin.pki)
        except BaseException:
            self.leave()
            raise

    def start(self, folder, settings: dict, addresses=(METADATA,)) -> Stile:
        def make(**options):
            self.made.append(Stile(folder / f"stile{len(self.made)}", self.origin, **options))
            return self.made[-1]
        return start(make, {"gcp": {"metadata": "default", **settings}}, addresses)

    def leave(self) -> None:
        try:
            for s in self.made:
                s.finish()
        finally:
            for g in (self.google, getattr(self, "iam", None)):
                if g:
                    g.endpoint.stop()
            if self.origin:
                self.origin.stop()
            libc_call("setns", self.before, CLONE_NEWNET)
            os.close(self.before)


@pytest.fixture
def machine(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("a network namespace needs root")
    if not shutil.which("ip"):
        pytest.skip("needs ip (iproute2)")
    m = Machine(tmp_path)
    yield m
    m.leave()


def test_the_metadata_server(machine, tmp_path):
    """Its tokens for scopes and for an audience; what answers in its place without the header is not believed."""
    s = machine.start(tmp_path, {})
    assert ask(s) == machine.google.given[0]
    assert machine.google.asked[0].path == "/computeMetadata/v1/instance/service-accounts/default/token"
    s = machine.start(tmp_path, {"scopes": [SCOPE, "openid"]})
    assert ask(s) == machine.google.given[1]
    assert urllib.parse.parse_qs(machine.google.asked[1].path.partition("?")[2]) == {"scopes": [f"{SCOPE},openid"]}
    s = machine.start(tmp_path, {"audience": AUDIENCE})
    assert ask(s) == machine.google.given[2]
    assert urllib.parse.parse_qs(machine.google.asked[2].path.partition("?")[2]) == {"format": ["full"], "audience": [AUDIENCE]}
    for fields in ({}, {"Metadata-Flavor": "Other"}):
        machine.google.change = lambda a: (*a[:2], fields)
        refused(machine.start(tmp_path, {}), "not the metadata server")


def test_impersonation_from_the_metadata_server(machine, tmp_path):
    machine.iam.given = machine.google.given  # what the one gave the other knows
    s = machine.start(tmp_path, {"scopes": [SCOPE], "impersonate": OTHER, "iam": f"{machine.iam.url}/iam"},
                      (METADATA, "127.0.0.0/8"))
    assert ask(s) == machine.iam.given[1] and machine.iam.asked[0].bearer == machine.iam.given[0]
    assert "?" not in machine.google.asked[0].path
