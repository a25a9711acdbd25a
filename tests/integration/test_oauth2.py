"""Credentials from an OAuth 2.0 token endpoint. The endpoint is oauthlib's server behind TLS, so that what stile asks is
judged by somebody else's reading of the RFCs; answers that no honest server gives come from the test itself."""

import http.server
import json
import pathlib
import secrets
import ssl
import threading
import urllib.parse

import pytest

import canary
from stilelib import SLOWER, Stile, allow, check_refusal, put, wait_for

oauthlib = pytest.importorskip("oauthlib.oauth2", reason="python3-oauthlib is not installed")

UNAVAILABLE = "credential_unavailable"
TYPES = "urn:ietf:params:oauth:"


class Validator(oauthlib.RequestValidator):
    """One client, its secret, and the refresh tokens that were given out."""

    def __init__(self):
        self.client, self.secret = "robot+1", canary.register(secrets.token_urlsafe(16) + "/+&%")
        self.refresh = {canary.register(secrets.token_hex(8))}
        self.given: list[str] = []
        self.life = 3600

    def authenticate_client(self, request, *args, **kwargs):
        import base64
        header = request.headers.get("Authorization", "")
        if header.startswith("Basic "):
            pair = base64.b64decode(header[6:]).decode().split(":", 1)
            client, secret = map(urllib.parse.unquote_plus, pair)
        else:
            client, secret = request.client_id, request.client_secret
        request.client = type("Client", (), {"client_id": client})()
        return (client, secret) == (self.client, self.secret)

    def validate_grant_type(self, client_id, grant_type, client, request, *args, **kwargs):
        return True

    def get_default_scopes(self, client_id, request, *args, **kwargs):
        return ["all"]

    def validate_scopes(self, client_id, scopes, client, request, *args, **kwargs):
        return set(scopes) <= {"all", "read", "write"}

    def get_original_scopes(self, refresh_token, request, *args, **kwargs):
        return ["all"]

    def validate_refresh_token(self, refresh_token, client, request, *args, **kwargs):
        return refresh_token in self.refresh

    def rotate_refresh_token(self, request):
        return True

    def save_token(self, token, request, *args, **kwargs):
        self.given.append(token["access_token"])
        if "refresh_token" in token:
            self.refresh = {token["refresh_token"]}

    save_bearer_token = save_token


class Endpoint:
    """https://127.0.0.1:PORT/token, and what it was asked. `answer` replaces what oauthlib would say."""

    def __init__(self, pki: pathlib.Path, kind: str = "good"):
        self.validator, self.asked, self.answer, self.down = Validator(), [], None, False
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append((self.path, dict(self.headers), body))
                status, fields, text = endpoint.reply(f"https://127.0.0.1{self.path}", body, dict(self.headers))
                self.send_response(status)
                for name, value in fields.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / f"{kind}.pem", pki / f"{kind}.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def reply(self, uri, body, headers):
        if self.down:
            return 503, {}, b"down"
        if self.answer is not None:
            return self.answer if isinstance(self.answer, tuple) else (200, {}, json.dumps(self.answer).encode())
        server = oauthlib.BackendApplicationServer(self.validator, token_expires_in=self.validator.life)
        if urllib.parse.parse_qs(body).get("grant_type") == ["refresh_token"]:
            server = oauthlib.LegacyApplicationServer(self.validator, token_expires_in=self.validator.life)
        fields, text, status = server.create_token_response(uri, "POST", body, headers)
        return status, fields, text.encode()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def endpoint(origin):
    e = Endpoint(origin.pki)
    yield e
    e.stop()


def start(make, tmp_path, endpoint, more: dict | None = None, host: str = "origin.test", addresses=("127.0.0.0/8",),
          source: dict | None = None, **settings) -> Stile:
    oauth2 = {"token_url": f"https://{host}:{endpoint.port}/token", "client_id": endpoint.validator.client,
              "client_secret": {"file": put(tmp_path / "secret", endpoint.validator.secret + "\n")}} | (more or {})
    oauth2 = {k: v for k, v in oauth2.items() if v is not None}
    return make(rules=[allow("https://origin.test:*/echo/a/**", credential="tok")], credentials={
        "tok": {"from": {"oauth2": oauth2, **({"addresses": list(addresses)} if addresses else {}), **(source or {})},
                "as": "bearer"}}, **settings)


def ask(s: Stile) -> str:
    r = s.tls_get("/echo/a/x")
    assert r.status == 200, r
    [value] = [v for n, v in r.json()["headers"] if n.lower() == "authorization"]
    return value.removeprefix("Bearer ")


def refused(s: Stile, *why: str) -> None:
    r = s.tls_get("/echo/a/x")
    check_refusal(r, 503, UNAVAILABLE)
    for text in why:
        assert text in r.json()["detail"], r.json()


def form(endpoint: Endpoint, n: int = -1) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(endpoint.asked[n][2], strict_parsing=True))


# ---- grants ----


@pytest.mark.parametrize("auth", [None, "basic", "post"])
def test_client_credentials(stile, tmp_path, endpoint, auth):
    s = start(stile, tmp_path, endpoint, {"client_auth": auth, "scope": "read write"})
    assert [ask(s), ask(s)] == [endpoint.validator.given[0]] * 2
    assert len(endpoint.asked) == 1
    path, headers, _ = endpoint.asked[0]
    assert path == "/token" and ("Authorization" in headers) == (auth != "post")
    assert form(endpoint)["scope"] == "read write" and form(endpoint)["grant_type"] == "client_credentials"
    s.stop()
    assert endpoint.validator.secret not in s.stderr + s.log_path.read_text()
    assert endpoint.validator.given[0] not in s.stderr + s.log_path.read_text()


def test_a_secret_from_the_environment(stile, tmp_path, endpoint):
    s = start(stile, tmp_path, endpoint, {"client_secret": {"env": "STILE_TEST_SECRET"}},
              env={"STILE_TEST_SECRET": endpoint.validator.secret})
    assert ask(s) in endpoint.validator.given
    assert endpoint.validator.secret.encode() not in pathlib.Path(f"/proc/{s.pid}/environ").read_bytes()


def test_a_refresh_token_that_is_replaced(stile, tmp_path, endpoint):
    """The endpoint takes each refresh token once and hands out the next one with the access token."""
    [first] = endpoint.validator.refresh
    endpoint.validator.life = 2
    s = start(stile, tmp_path, endpoint, {
        "grant": "refresh_token", "refresh_token": {"file": put(tmp_path / "refresh", first)}})
    ask(s)
    wait_for(lambda: len(endpoint.validator.given) >= 3, 20 * SLOWER)
    used = [form(endpoint, n)["refresh_token"] for n in range(len(endpoint.asked))]
    assert used[0] == first and len(set(used)) == len(used)
    assert ask(s) in endpoint.validator.given[1:]


def test_token_exchange(stile, tmp_path, endpoint):
    """RFC 8693; the subject's token is read anew each time."""
    endpoint.answer = {"access_token": "exchanged", "issued_token_type": TYPES + "token-type:access_token",
                       "token_type": "Bearer", "expires_in": 3600}
    s = start(stile, tmp_path, endpoint, {
        "grant": "token_exchange", "subject_token": {"file": put(tmp_path / "subject", "subject-1")},
        "subject_token_type": TYPES + "token-type:jwt", "audience": "https://api.test/", "resource": "urn:x"})
    assert ask(s) == "exchanged"
    assert form(endpoint) == {
        "grant_type": TYPES + "grant-type:token-exchange", "subject_token": "subject-1",
        "subject_token_type": TYPES + "token-type:jwt", "audience": "https://api.test/", "resource": "urn:x"}


def test_a_jwt_as_grant(stile, tmp_path, endpoint):
    """RFC 7523, from a client that is known by the assertion alone."""
    endpoint.answer = {"access_token": "by-assertion", "expires_in": "3600"}
    s = start(stile, tmp_path, endpoint, {"grant": "jwt_bearer", "client_id": None, "client_secret": None,
                                          "assertion": {"file": put(tmp_path / "jwt", "aa.bb.cc")}})
    assert ask(s) == "by-assertion"
    assert form(endpoint) == {"grant_type": TYPES + "grant-type:jwt-bearer", "assertion": "aa.bb.cc"}
    assert "Authorization" not in endpoint.asked[0][1]


# ---- what goes wrong ----


def test_a_wrong_secret(stile, tmp_path, endpoint):
    endpoint.validator.secret, good = "other", endpoint.validator.secret
    s = start(stile, tmp_path, endpoint, {"client_secret": {"file": put(tmp_path / "wrong", "wrong")}})
    refused(s, "401", "invalid_client")
    endpoint.validator.secret = good
    put(tmp_path / "wrong", good)
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 20 * SLOWER, "the secret is read anew")


@pytest.mark.parametrize("answer, why", [
    ({"access_token": "x"}, "add `ttl`"),
    ({"access_token": "x", "expires_in": 0}, "ended already"),
    ({"access_token": "x", "expires_in": -5}, "ended already"),
    ({"access_token": "x", "expires_in": "soon"}, "no number of seconds"),
    ({"access_token": "", "expires_in": 60}, "it is empty"),
    ({"access_token": "a\r\nX: y", "expires_in": 60}, "control character"),
    ({"access_token": ["x"], "expires_in": 60}, "no text for `access_token`"),
    ({"token": "x"}, "no text for `access_token`"),
    ((200, {}, b"not json"), "not a JSON object"),
    ((200, {}, b"x" * 200000), "more than"),
    ((302, {"Location": "https://evil.test/token"}, b""), "answers 302"),
    ((400, {}, b'{"error": "invalid_scope"}'), "answers 400 invalid_scope"),
    ((400, {}, b'{"error": "a b\\u0000"}'), "answers 400"),
    ((500, {}, b"<html>"), "answers 500"),
])
def test_answers_that_are_no_token(stile, tmp_path, endpoint, answer, why):
    endpoint.answer = answer
    s = start(stile, tmp_path, endpoint)
    refused(s, why)
    assert all(path == "/token" for path, _, _ in endpoint.asked)


@pytest.mark.parametrize("kind", ["unknown-issuer", "expired", "wrong-name"])
def test_an_endpoint_that_does_not_verify(stile, tmp_path, origin, kind):
    endpoint = Endpoint(origin.pki, kind)
    try:
        s = start(stile, tmp_path, endpoint)
        refused(s, "its endpoint")
        assert endpoint.asked == []
    finally:
        endpoint.stop()


@pytest.mark.parametrize("addresses", [None, ("10.0.0.0/8",)])
def test_an_endpoint_at_an_address_that_nobody_opened(stile, tmp_path, endpoint, addresses):
    s = start(stile, tmp_path, endpoint, addresses=addresses)
    refused(s, "loopback")
    assert endpoint.asked == []


def test_an_endpoint_that_hangs(stile, tmp_path, endpoint):
    gate = threading.Event()
    endpoint.reply = lambda *_: (gate.wait(60), (503, {}, b""))[1]
    s = start(stile, tmp_path, endpoint, source={"timeout": "500ms"})
    refused(s, "did not answer in time")
    gate.set()


def test_an_endpoint_that_is_not_there(stile, tmp_path, endpoint):
    endpoint.stop()
    s = start(stile, tmp_path, endpoint)
    refused(s, "its endpoint")


def test_down_in_between(stile, tmp_path, endpoint):
    endpoint.validator.life = 4 * int(SLOWER)
    s = start(stile, tmp_path, endpoint)
    first = ask(s)
    endpoint.down = True
    s.wait_stderr(r"credential tok .* cannot be renewed: its endpoint answers 503")
    assert ask(s) == first
    wait_for(lambda: s.tls_get("/echo/a/x").status == 503, 20 * SLOWER)
    endpoint.down = False
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 20 * SLOWER)
    assert ask(s) != first


def test_a_reload_changes_how_it_is_verified(stile, tmp_path, endpoint, origin):
    """The source goes on with its token; its next question is verified by the new roots."""
    endpoint.validator.life = 3 * int(SLOWER)
    s = start(stile, tmp_path, endpoint)
    ask(s)
    s.reload(upstream={"trust": ["system"]})
    s.wait_stderr(r"credential tok .* cannot be renewed: its endpoint: .*(issuer|certificate)")
    s.reload(upstream={"trust": [str(origin.pki / "ca.pem")]})
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 30 * SLOWER)
