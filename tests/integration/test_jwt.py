"""Tokens that stile signs itself, verified by PyJWT as whoever is sent one would: signature, algorithm, claims, times,
and the key found by its `kid` in a set of keys."""

import json
import pathlib
import socket
import time

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from issuerlib import ask, key, nowhere, pem, refused, request, start
from stilelib import SLOWER, Raw, allow, put_over, wait_for

jwt = pytest.importorskip("jwt", reason="python3-jwt (PyJWT) is not installed")

KINDS = {"RS256": "rsa", "PS256": "rsa", "ES256": "p256", "EdDSA": "ed25519"}


def source(path: str, **more) -> dict:
    return {"jwt": {"key": {"file": path}, "claims": {"iss": "stile", "aud": "https://api.test/"}, **more}}


def verify(token: str, private, algorithm: str, **more) -> dict:
    return jwt.decode(token, private.public_key(), algorithms=[algorithm], audience="https://api.test/",
                      issuer="stile", options={"require": ["iss", "aud", "exp", "iat", "nbf", "jti"]}, **more)


def begin(make, tmp_path, algorithm: str, more: dict | None = None, **claims):
    private = key(KINDS[algorithm])
    path = put_over(tmp_path / "key.pem", pem(private))
    given = source(path, algorithm=algorithm, kid="key-1")
    given["jwt"]["claims"] |= claims
    return start(make, given, addresses=(), more=more), private


@pytest.mark.parametrize("algorithm", KINDS)
def test_each_algorithm(stile, tmp_path, algorithm):
    s, private = begin(stile, tmp_path, algorithm, sub="robot", team=["a", "b"], level=7, admin=True, low=-3, code="0042",
                       odd="\u00fc \" \\ \u2028")
    token = ask(s)
    assert jwt.get_unverified_header(token) == {"alg": algorithm, "typ": "JWT", "kid": "key-1"}
    got = verify(token, private, algorithm)
    now = time.time()
    own = {k: got.pop(k) for k in ("exp", "iat", "nbf", "jti")}
    assert got == {"iss": "stile", "aud": "https://api.test/", "sub": "robot", "team": ["a", "b"], "level": 7,
                   "admin": True, "low": -3, "code": "0042", "odd": "\u00fc \" \\ \u2028"}
    assert 240 < own["exp"] - now <= 300 and now - 120 * SLOWER < own["iat"] == own["nbf"] < now
    assert len(own["jti"]) >= 20
    # Each other algorithm's verifier refuses it, and so does another key of the kind.
    for other in KINDS:
        with pytest.raises(jwt.InvalidTokenError):
            verify(token, key(KINDS[other], 1), other)
    assert ask(s) == token
    nowhere(s, token)


FORMS = [("rsa", "TraditionalOpenSSL", "RS256"), ("p256", "TraditionalOpenSSL", "ES256"), ("rsa", "PKCS8", "RS256"),
         ("p256", "PKCS8", "ES256"), ("ed25519", "PKCS8", "EdDSA")]


def test_the_key_says_the_algorithm(stile, tmp_path):
    s = start(stile, [source(put_over(tmp_path / f"{n}.pem", pem(key(kind), form))) for n, (kind, form, _) in enumerate(FORMS)],
              addresses=())
    for n, (kind, _, algorithm) in enumerate(FORMS):
        token = ask(s, f"c{n}")
        assert jwt.get_unverified_header(token) == {"alg": algorithm, "typ": "JWT"}
        verify(token, key(kind), algorithm)


def test_a_set_of_keys(stile, tmp_path):
    """As a service verifies that has fetched our public keys as a JWKS: the key is the one of that `kid`."""
    keys = {"old": key("rsa", 1), "new": key("rsa")}
    members = [{**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(k.public_key())), "kid": kid, "use": "sig", "alg": "RS256"}
               for kid, k in keys.items()]
    known = {k.key_id: k.key for k in jwt.PyJWKSet.from_dict({"keys": members}).keys}
    path = put_over(tmp_path / "key.pem", pem(keys["new"]))
    token = ask(start(stile, source(path, kid="new"), addresses=()))
    kid = jwt.get_unverified_header(token)["kid"]
    got = jwt.decode(token, known[kid], algorithms=["RS256"], audience="https://api.test/")
    assert got["iss"] == "stile"
    with pytest.raises(jwt.InvalidSignatureError):
        jwt.decode(token, known["old"], algorithms=["RS256"], audience="https://api.test/")


def test_keys_that_are_refused(stile, tmp_path):
    cases = [
        (pem(key("rsa1024")), None, "1024 bits"),
        (pem(key("p384")), None, "P-256"),
        (pem(key("p256")), "RS256", "RS256 wants an RSA key"),
        (pem(key("rsa")), "EdDSA", "EdDSA wants an Ed25519 key"),
        (pem(key("rsa"), password=b"x"), None, "encrypted"),
        (pem(key("p256"), "TraditionalOpenSSL", b"x"), None, "encrypted"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", None, "no private key"),
        (key("p256").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode(), None,
         "no private key"),
        ("x" * 70000, None, "larger than"),
        ("", None, "empty"),
    ]
    s = start(stile, [source(put_over(tmp_path / f"{n}.pem", text), **({"algorithm": algorithm} if algorithm else {}))
                      for n, (text, algorithm, _) in enumerate(cases)], addresses=())
    for n, (_, _, why) in enumerate(cases):
        refused(s, why, name=f"c{n}")
        s.wait_stderr(f"credential c{n} .*is not available")
        assert str(tmp_path) not in request(s, f"c{n}").body.decode()


def test_a_key_that_comes_changes_and_goes(stile, tmp_path):
    """There from the moment on that the file is; another key signs anew; no key, no token."""
    s = start(stile, source(str(tmp_path / "key.pem")), addresses=())
    refused(s, "cannot be opened")
    put_over(tmp_path / "key.pem", pem(key("p256")))
    wait_for(lambda: request(s).status == 200)
    first = ask(s)
    verify(first, key("p256"), "ES256")
    put_over(tmp_path / "key.pem", pem(key("p256", 1)))
    wait_for(lambda: ask(s) != first)
    verify(ask(s), key("p256", 1), "ES256")
    put_over(tmp_path / "key.pem", "gone")
    wait_for(lambda: request(s).status == 503)
    refused(s, "no private key")


def test_a_key_that_all_can_read(stile, tmp_path):
    path = put_over(tmp_path / "key.pem", pem(key("p256")))
    pathlib.Path(path).chmod(0o644)
    s = start(stile, source(path), addresses=())
    s.wait_stderr(r"key\.pem can be read by every user")


def test_a_token_is_made_anew_before_it_ends(stile, tmp_path):
    """Whoever gets one has half of its life before him, and each has another `jti`."""
    life = 2 * int(SLOWER)
    s, private = begin(stile, tmp_path, "ES256", more={"ttl": f"{life}s"})
    seen: dict[str, str] = {}
    end = time.monotonic() + 1.5 * life
    while time.monotonic() < end:
        before = time.time()
        token = ask(s)
        got = verify(token, private, "ES256", leeway=60 * SLOWER)
        assert got["exp"] - before > life / 2 - 1  # fractions of a second are cut off in a token
        seen[got["jti"]] = token
    assert 3 <= len(seen) == len(set(seen.values()))


def two_sandboxes(make, tmp_path, claims: dict, **more):
    path = put_over(tmp_path / "key.pem", pem(key("ed25519")))
    return make(
        listen=[{"name": n, "proxy": f"unix:{tmp_path}/{n}.sock", "policy": "default"} for n in ("red", "blue")]
        + [{"name": "tcp", "proxy": "127.0.0.1:0", "policy": "default"}],
        rules=[allow("https://origin.test:*/echo/a/**", credential="a")],
        credentials={"a": {"from": {"jwt": {"key": {"file": path}, "claims": claims}}, "as": "bearer"}}, **more)


def ask_as(s, tmp_path, name: str) -> dict:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(f"{tmp_path}/{name}.sock")
    with Raw(sock) as c:
        assert c.connect(f"origin.test:{s.origin.tls}").status == 200
        c.start_tls(s.context(), "origin.test")
        r = c.ask(f"GET /echo/a/x HTTP/1.1\r\nHost: origin.test:{s.origin.tls}\r\n\r\n".encode())
    [value] = [v for n, v in r.json()["headers"] if n.lower() == "authorization"]
    return jwt.decode(value.removeprefix("Bearer "), key("ed25519").public_key(), algorithms=["EdDSA"])


def test_each_sandbox_has_its_own(stile, tmp_path):
    """The name of the sandbox stands where the claims want it, in texts and in lists, and no token is another's."""
    s = two_sandboxes(stile, tmp_path, {"sub": "sandbox:{sandbox}", "groups": ["all", "{sandbox}-{sandbox}"]})
    red, blue = ask_as(s, tmp_path, "red"), ask_as(s, tmp_path, "blue")
    assert (red["sub"], red["groups"]) == ("sandbox:red", ["all", "red-red"])
    assert (blue["sub"], blue["groups"]) == ("sandbox:blue", ["all", "blue-blue"])
    assert red["jti"] != blue["jti"] and ask_as(s, tmp_path, "red")["jti"] == red["jti"]
    assert {r["sandbox"] for r in s.records() if r["event"] == "request.start"} == {"red", "blue"}


def test_one_for_all_where_none_is_named(stile, tmp_path):
    s = two_sandboxes(stile, tmp_path, {"sub": "robot"})
    assert ask_as(s, tmp_path, "red") == ask_as(s, tmp_path, "blue")
