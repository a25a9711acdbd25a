"""Installation tokens of a GitHub App. The stand-in judges the app's JWT as GitHub says that it does (signature, algorithm,
`iss`, `iat` and `exp` by its own clock) with PyJWT, and gives out what it was asked for, or, where a test wants it, more."""

import json
import threading
import time

import pytest

from issuerlib import Endpoint, ask, key, nowhere, pem, refused, request, stamp, start
from stilelib import SLOWER, put_over, wait_for

jwt = pytest.importorskip("jwt", reason="python3-jwt (PyJWT) is not installed")

APP, INSTALLATION = "12345", 678
ALL = {"contents": "write", "issues": "write", "metadata": "read"}


class GitHub:
    """The part of the API that hands out tokens; `api` is where it is."""

    def __init__(self, pki):
        self.key, self.iss, self.clock, self.life = key("rsa"), APP, 0.0, 3600.0
        self.owner, self.repositories, self.given = "Acme", ["site", "docs", "payroll"], []
        self.change, self.changes = lambda answer: answer, []
        self.down = None
        self.endpoint = Endpoint(pki, self.reply)
        self.api = f"https://origin.test:{self.endpoint.port}/api/v3"

    @property
    def asked(self):
        return self.endpoint.asked

    def wrong(self, asked) -> str | None:
        """What GitHub finds wrong with a JWT."""
        try:
            claims = jwt.decode(asked.bearer, self.key.public_key(), algorithms=["RS256"],
                                options={"verify_iat": False, "verify_exp": False, "require": ["iat", "exp", "iss"]})
        except jwt.InvalidTokenError as e:
            return str(e)
        now = time.time() + self.clock
        if claims["iss"] != self.iss or not isinstance(claims["iss"], str):
            return "iss"
        if claims["iat"] > now:
            return "iat is in the future"
        return "exp" if not now < claims["exp"] <= now + 600 else None

    def reply(self, asked):
        if self.down:
            return self.down
        case, _, path = asked.path.removeprefix("/api/v3").rpartition("!")
        change = self.changes[int(case[1:])] if case else self.change
        assert asked.headers["Accept"] == "application/vnd.github+json" and asked.headers["User-Agent"]
        assert asked.headers["X-GitHub-Api-Version"] == "2022-11-28"
        if why := self.wrong(asked):
            return 401, {"message": f"A JSON web token could not be decoded: {why}"}
        found = {"id": INSTALLATION, "account": {"login": self.owner}, "app_id": int(APP)}
        if path in (f"/users/{self.owner}/installation", f"/repos/{self.owner}/site/installation"):
            return 200, change(found)
        if asked.method != "POST" or path != f"/app/installations/{INSTALLATION}/access_tokens":
            return 404, {"message": "Not Found"}
        want = asked.json()
        names = want.get("repositories")
        if not set(names or []) <= set(self.repositories) or not set(want.get("permissions", {})) <= set(ALL):
            return 422, {"message": "There is at least one repository that does not exist"}
        answer = {"token": f"ghs_{len(self.given)}{'x' * 30}", "expires_at": stamp(self.life + self.clock),
                  "permissions": {**want.get("permissions", ALL), "metadata": "read"},
                  "repository_selection": "selected" if names else "all"}
        if names:
            answer["repositories"] = [{"id": n, "name": name, "full_name": f"{self.owner}/{name}", "topics": ["[", "{"],
                                       "owner": {"login": self.owner}, "about": "x" * 6000} for n, name in enumerate(names)]
        self.given.append(answer["token"])
        return 201, change(answer)


@pytest.fixture
def github(origin):
    g = GitHub(origin.pki)
    yield g
    g.endpoint.stop()


def app(tmp_path, github, private=None, case=None, **settings) -> dict:
    """case: the answer of that case of `github.changes`."""
    path = put_over(tmp_path / f"key{private is not None}.pem", pem(private or key("rsa"), "TraditionalOpenSSL"))
    given = {"app_id": APP, "key": {"file": path}, "api": github.api + (f"/{case}!" if case is not None else ""),
             "installation_id": INSTALLATION} | settings
    return {"github_app": {k: v for k, v in given.items() if v is not None}}


def begin(make, tmp_path, github, timeout=None, **settings):
    return start(make, {**app(tmp_path, github, **settings), **({"timeout": timeout} if timeout else {})})


def begin_each(make, tmp_path, github, changes, **settings):
    """A credential for each change of an answer."""
    github.changes = changes
    return start(make, [app(tmp_path, github, case=n, **settings) for n in range(len(changes))])


def test_a_token_of_an_installation(stile, tmp_path, github):
    s = begin(stile, tmp_path, github)
    assert [ask(s), ask(s)] == [github.given[0]] * 2
    assert len(github.asked) == 1 and github.asked[0].json() == {}
    nowhere(s, github.given[0], github.asked[0].bearer, pem(key("rsa"), "TraditionalOpenSSL").splitlines()[1])


def test_the_client_id_in_place_of_the_number(stile, tmp_path, github):
    github.iss = "Iv1.8a61f9b3a7aba766"
    assert ask(begin(stile, tmp_path, github, app_id=None, client_id=github.iss)) == github.given[0]


FOUND = [
    ({"owner": "Acme"}, ["/orgs/Acme/installation", "/users/Acme/installation"], {}),
    ({"owner": "Acme", "repositories": ["docs"]}, ["/orgs/Acme/installation", "/users/Acme/installation"],
     {"repositories": ["docs"]}),
    # A repository that is named is all that the token is for.
    ({"repository": "Acme/site"}, ["/repos/Acme/site/installation"], {"repositories": ["site"]}),
]


def test_an_installation_that_is_found(stile, tmp_path, github):
    github.changes = [lambda a: a] * len(FOUND)
    s = start(stile, [app(tmp_path, github, case=n, installation_id=None, **how) for n, (how, _, _) in enumerate(FOUND)])
    for n, (_, paths, body) in enumerate(FOUND):
        assert ask(s, f"c{n}") in github.given
        asked = [a for a in github.asked if f"/{n}!" in a.path]
        assert [a.path.partition("!")[2] for a in asked[:-1]] == paths and asked[-1].json() == body


def test_an_installation_of_somebody_else(stile, tmp_path, github):
    github.change = lambda answer: {**answer, "account": {"login": "evil"}}
    s = begin(stile, tmp_path, github, installation_id=None, owner="Acme")
    refused(s, "another account")
    assert github.given == []


def test_a_narrow_token(stile, tmp_path, github):
    """What is asked for is what the configuration says, and a description of each of many repositories fits."""
    github.repositories += [f"r{n}" for n in range(60)]
    names = github.repositories[1:]
    s = begin(stile, tmp_path, github, repositories=names, permissions={"contents": "read", "issues": "write"})
    assert ask(s) == github.given[0]
    assert github.asked[0].json() == {"repositories": names, "permissions": {"contents": "read", "issues": "write"}}


def repositories(*names):
    return lambda a: {**a, "repositories": [{"name": n} for n in names]}


WIDER = [
    (lambda a: {**a, "permissions": {"contents": "write"}}, "may do more"),
    (lambda a: {**a, "permissions": {"contents": "read", "issues": "read"}}, "may do more"),
    (lambda a: {**a, "permissions": {"contents": "owner"}}, "may do more"),
    (lambda a: {**a, "permissions": {"metadata": "write"}}, "may do more"),
    (lambda a: {k: v for k, v in a.items() if k != "permissions"}, "may do more"),
    (lambda a: {**a, "permissions": ["contents"]}, "may do more"),
    (lambda a: {**a, "repository_selection": "all"}, "more repositories"),
    (lambda a: {k: v for k, v in a.items() if k != "repository_selection"}, "more repositories"),
    (lambda a: {k: v for k, v in a.items() if k != "repositories"}, "more repositories"),
    (repositories(), "more repositories"),
    (repositories("site", "payroll"), "more repositories"),
    (lambda a: {**a, "repositories": [{"name": None}]}, "more repositories"),
]
NARROW = [lambda a: {**a, "permissions": {"contents": "read"}}, lambda a: {**a, "permissions": {}}, repositories("SITE"),
          lambda a: {**a, "more": 1}]


def test_what_comes_is_held_to_what_was_asked_for(stile, tmp_path, github):
    s = begin_each(stile, tmp_path, github, [change for change, _ in WIDER] + NARROW, repositories=["site"],
                   permissions={"contents": "read"})
    for n, (_, why) in enumerate(WIDER):
        refused(s, why, name=f"c{n}")
    for n in range(len(NARROW)):
        assert ask(s, f"c{len(WIDER) + n}") in github.given
    nowhere(s, *github.given)


@pytest.mark.parametrize("clock", [-50, 250])
def test_clocks_that_differ(stile, tmp_path, github, clock):
    github.clock = clock
    assert ask(begin(stile, tmp_path, github)) == github.given[0]


REFUSALS = [
    ({"private": key("rsa", 1)}, 401, "not the app's"),
    ({"app_id": "54321"}, 401, "not the app's"),
    ({"installation_id": 1}, 404, "no such installation"),
    ({"installation_id": None, "owner": "nobody"}, 404, "no such installation"),
    ({"repositories": ["other"]}, 422, "not all that was asked for"),
    ({"permissions": {"secrets": "read"}}, 422, "not all that was asked for"),
]


def test_refusals(stile, tmp_path, github):
    s = start(stile, [app(tmp_path, github, **settings) for settings, _, _ in REFUSALS])
    for n, (_, status, why) in enumerate(REFUSALS):
        refused(s, f"answers {status}", why, name=f"c{n}")
    assert github.given == []


NO_TOKENS = [
    (lambda a: {**a, "expires_at": stamp(-5)}, "ended already"),
    (lambda a: {**a, "expires_at": "soon"}, "is no time"),
    (lambda a: {k: v for k, v in a.items() if k != "expires_at"}, "add `ttl`"),
    (lambda a: {**a, "token": "a\r\nX: y"}, "control character"),
    (lambda a: {**a, "token": 5}, "no text for `token`"),
    (lambda a: b"x" * 1000000, "more than"),
    (lambda a: b"{", "not a JSON object"),
    (lambda a: json.dumps(a)[:-1].encode() + b', "deep": ' + b"[" * 3000 + b"]" * 3000 + b"}", "nested"),
]


def test_answers_that_are_no_token(stile, tmp_path, github):
    s = begin_each(stile, tmp_path, github, [change for change, _ in NO_TOKENS])
    for n, (_, why) in enumerate(NO_TOKENS):
        refused(s, why, name=f"c{n}")


def test_a_key_of_another_kind(stile, tmp_path, github):
    files = [put_over(tmp_path / "other.pem", pem(key("p256"))), put_over(tmp_path / "none.pem", "x"), str(tmp_path / "absent.pem")]
    s = start(stile, [app(tmp_path, github, key={"file": f}) for f in files])
    for n, why in enumerate(["RS256 wants an RSA key", "no private key", "cannot be opened"]):
        refused(s, why, name=f"c{n}")
    assert github.asked == []


def test_a_key_that_all_can_read(stile, tmp_path, github):
    key_file = tmp_path / "open.pem"
    put_over(key_file, pem(key("rsa")))
    key_file.chmod(0o644)
    s = begin(stile, tmp_path, github, key={"file": str(key_file)})
    assert ask(s) in github.given
    s.wait_stderr(r"credential a: .*/open\.pem can be read by every user")


def test_an_api_that_hangs(stile, tmp_path, github):
    gate = threading.Event()
    github.endpoint.reply = lambda _: (gate.wait(60), (503, b""))[1]
    refused(begin(stile, tmp_path, github, timeout="500ms"), "did not answer in time")
    gate.set()


def test_down_in_between(stile, tmp_path, github):
    """Refused at the start, renewed before the end, used to the end while the API is down, and back again."""
    github.down = (503, b"")
    github.life = 3 * SLOWER
    s = begin(stile, tmp_path, github)
    refused(s, "answers 503")
    github.down = None
    wait_for(lambda: request(s).status == 200, 20 * SLOWER)
    wait_for(lambda: len(github.given) >= 3, 20 * SLOWER)
    github.down = (401, {"message": "gone"})
    s.wait_stderr(r"credential a .* (cannot be renewed|is not available): its endpoint answers 401")
    wait_for(lambda: request(s).status == 503, 20 * SLOWER)
    refused(s, "answers 401")
    github.down = None
    wait_for(lambda: request(s).status == 200, 20 * SLOWER)
