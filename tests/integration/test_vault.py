"""Credentials from a Vault: how stile logs in, reads, keeps leases alive, gives them back, and what it says when it
cannot. vaultlib.py is the Vault; the last tests ask a real one where it was built."""

import base64
import pathlib
import secrets
import threading
import time

import pytest

from stilelib import SANITIZED, SLOWER, Stile, allow, check_refusal, put, wait_for
from vaultlib import REAL, RealVault, Vault

UNAVAILABLE = "credential_unavailable"
PACE = 2 if SANITIZED else 1  # of lives, which tests wait for


@pytest.fixture
def vault(origin):
    v = Vault(origin.pki)
    yield v
    v.stop()


def credential(vault, login: dict, path: str = "secret/data/ci/api", field="token", as_="bearer", source=None,
               ttl=None, **more) -> dict:
    c = {"from": {"vault": {"address": f"https://origin.test:{vault.port}", "path": path, "field": field, **login,
                            **more}, "addresses": ["127.0.0.0/8"], **(source or {})}, "as": as_}
    return c | ({"ttl": ttl} if ttl else {})


def approle(vault, tmp_path, **more) -> dict:
    return {"approle": {"role_id": vault.role_id, "secret_id": {"file": put(tmp_path / "secret_id", vault.secret_id)},
                        **more}}


def start(make, vault, login: dict, **more) -> Stile:
    settings = {k: more.pop(k) for k in ("env", "exit_code") if k in more}
    return make(rules=[allow("https://origin.test:*/echo/a/**", credential="tok")],
                credentials={"tok": credential(vault, login, **more)}, **settings)


def database(make, vault, login: dict, **more) -> Stile:
    return start(make, vault, login, path="database/creds/app", field=["username", "password"], as_="basic", **more)


def again(make, s: Stile | None, vault, login: dict, n: int) -> Stile:
    """The same once more, as a source that is new to stile: a start, then reloads."""
    source = {"timeout": f"{9000 + n}ms"}
    if not s:
        return start(make, vault, login, source=source)
    s.reload(credentials={"tok": credential(vault, login, source=source)})
    return s


def ask(s: Stile) -> str:
    r = s.tls_get("/echo/a/x")
    assert r.status == 200, r
    [value] = [v for n, v in r.json()["headers"] if n.lower() == "authorization"]
    return value.removeprefix("Bearer ")


def ask_pair(s: Stile) -> tuple[str, str]:
    value = ask(s)
    assert value.startswith("Basic ")
    return tuple(base64.b64decode(value[6:]).decode().split(":", 1))


def refused(s: Stile, *why: str) -> None:
    r = s.tls_get("/echo/a/x")
    check_refusal(r, 503, UNAVAILABLE)
    for text in why:
        assert text in r.json()["detail"], r.json()


def paths(vault, of: str = "") -> list[str]:
    return [p.removeprefix("/v1/") for _, p in vault.asked if of in p]


# ---- logins ----


def test_approle(stile, tmp_path, vault):
    value = secrets.token_urlsafe(9)
    vault.kv["ci/api"] = [{"token": value}]
    s = start(stile, vault, approle(vault, tmp_path))
    assert [ask(s), ask(s)] == [value] * 2
    assert paths(vault) == ["auth/approle/login", "secret/data/ci/api"]
    [token] = vault.tokens
    assert vault.fields[1]["X-Vault-Token"] == token and "X-Vault-Token" not in vault.fields[0]
    assert all(f["X-Vault-Request"] == "true" for f in vault.fields)
    s.stop()
    assert vault.alive(vault.tokens) == [] and paths(vault)[-1] == "auth/token/revoke-self"
    for secret in (value, token, vault.secret_id):
        assert secret not in s.stderr + s.log_path.read_text()


def test_approle_by_names_of_variables(stile, tmp_path, vault):
    vault.kv["ci/api"] = [{"token": "t"}]
    s = start(stile, vault, {"approle": {"role_id": {"env": "STILE_TEST_ROLE"},
                                         "secret_id": {"env": "STILE_TEST_SECRET"}}},
              env={"STILE_TEST_ROLE": vault.role_id, "STILE_TEST_SECRET": vault.secret_id})
    assert ask(s) == "t"
    environ = pathlib.Path(f"/proc/{s.pid}/environ").read_bytes()
    assert vault.secret_id.encode() not in environ and vault.role_id.encode() not in environ


def test_a_wrapped_secret_id(stile, tmp_path, vault):
    """The wrapping token is used once; later logins go on with what it held."""
    vault.kv["ci/api"] = [{"token": "t"}]
    vault.token_ttl, vault.token_renewable = 4.0 * PACE, False
    login = approle(vault, tmp_path, wrapped=True)
    put(tmp_path / "secret_id", vault.wrap({"secret_id": vault.secret_id}))
    s = start(stile, vault, login, ttl=f"{2 * PACE}s")
    assert ask(s) == "t"
    (tmp_path / "secret_id").unlink()
    wait_for(lambda: len(paths(vault, "login")) >= 2, 20 * SLOWER)
    assert len(paths(vault, "unwrap")) == 1 and ask(s) == "t"


def test_a_wrapped_secret_id_that_was_used(stile, tmp_path, vault):
    login = approle(vault, tmp_path, wrapped=True)
    put(tmp_path / "secret_id", "hvs.used")
    s = start(stile, vault, login)
    refused(s, "`secret_id` cannot be unwrapped", "somebody else")
    vault.kv["ci/api"] = [{"token": "t"}]
    put(tmp_path / "secret_id", vault.wrap({"secret_id": vault.secret_id}))
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 20 * SLOWER)


@pytest.mark.parametrize("mount", [None, "k8s/east"])
def test_kubernetes(stile, tmp_path, vault, mount):
    vault.kv["ci/api"] = [{"token": "t"}]
    s = start(stile, vault, {"kubernetes": {"role": "ci", "jwt": {"file": put(tmp_path / "jwt", vault.jwt + "\n")},
                                            **({"mount": mount} if mount else {})}})
    assert ask(s) == "t"
    assert paths(vault)[0] == f"auth/{mount or 'kubernetes'}/login"


def test_a_token_that_was_given(stile, tmp_path, vault):
    """It is looked up, renewed while it is needed, and not revoked: it is somebody else's."""
    vault.kv["ci/api"] = [{"token": "t"}]
    token = vault.give_token(2.0 * PACE)
    s = start(stile, vault, {"token": {"file": put(tmp_path / "token", token)}})
    assert ask(s) == "t"
    assert paths(vault)[:2] == ["auth/token/lookup-self", "secret/data/ci/api"]
    wait_for(lambda: len(paths(vault, "renew-self")) >= 2, 30 * SLOWER)
    assert ask(s) == "t"
    s.stop()
    assert vault.alive(vault.tokens) == [token] and not paths(vault, "revoke")


def test_a_token_that_is_exchanged(stile, tmp_path, vault):
    vault.kv["ci/api"] = [{"token": "t"}]
    first, second = vault.give_token(), vault.give_token()
    s = start(stile, vault, {"token": {"file": put(tmp_path / "token", first)}}, ttl=f"{2 * PACE}s")
    assert ask(s) == "t"
    put(tmp_path / "token", second)
    wait_for(lambda: any(f.get("X-Vault-Token") == second for f in vault.fields), 20 * SLOWER)
    assert ask(s) == "t"


def test_a_namespace(stile, tmp_path, vault):
    vault.namespace = "team-a/ci"
    vault.kv["ci/api"] = [{"token": "t"}]
    s = start(stile, vault, approle(vault, tmp_path), namespace="team-a/ci")
    assert ask(s) == "t"


# ---- what is read ----


def test_versions_of_a_key_value_secret(stile, tmp_path, vault):
    vault.kv["ci/api"] = [{"token": "one"}, {"token": "two"}]
    s = start(stile, vault, approle(vault, tmp_path), version=1)
    assert ask(s) == "one"
    s.reload(credentials={"tok": credential(vault, approle(vault, tmp_path), ttl=f"{2 * PACE}s")})
    assert ask(s) == "two"
    vault.kv["ci/api"].append({"token": "three"})
    wait_for(lambda: ask(s) == "three", 20 * SLOWER, "the latest is read again")


def test_version_1_of_the_engine(stile, tmp_path, vault):
    vault.kv1["api"] = {"token": "plain", "data": "x"}
    assert ask(start(stile, vault, approle(vault, tmp_path), path="kv1/api")) == "plain"


def test_a_secret_that_is_to_be_deleted(stile, tmp_path, vault):
    """Its end is the value's."""
    end = time.time() + 3 * PACE
    vault.kv["ci/api"] = [{"token": "t", "deletion_time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))}]
    s = start(stile, vault, approle(vault, tmp_path), ttl="1h")
    assert ask(s) == "t"
    vault.kv["ci/api"] = [None]
    wait_for(lambda: s.tls_get("/echo/a/x").status == 503, 20 * SLOWER)


def test_secrets_that_are_none(stile, tmp_path, vault):
    login = approle(vault, tmp_path)
    s = None
    for n, (data, why) in enumerate([
            ({"other": "x"}, "no text for `token`"),
            ({"token": 5}, "no text for `token`"),
            ({"token": ""}, "it is empty"),
            ({"token": "a\nb"}, "control character"),
            (None, "404")]):
        vault.kv["ci/api"] = [data]
        s = again(stile, s, vault, login, n)
        refused(s, why)


# ---- leases ----


def test_a_lease_is_renewed(stile, tmp_path, vault):
    vault.lease_ttl = 2.0 * PACE
    s = database(stile, vault, approle(vault, tmp_path))
    first = ask_pair(s)
    assert vault.valid(*first)
    wait_for(lambda: len(paths(vault, "leases/renew")) >= 3, 30 * SLOWER)
    assert ask_pair(s) == first and vault.valid(*first) and len(vault.made) == 1
    s.stop()
    assert not vault.valid(*first) and vault.alive(vault.tokens) == []
    assert first[1] not in s.stderr + s.log_path.read_text()


def test_a_lease_that_comes_to_its_most(stile, tmp_path, vault):
    """What is left of a renewal is no more than a part: another secret, before the first one ends."""
    vault.lease_ttl, vault.lease_most = 2.5 * PACE, 3.5 * PACE
    s = database(stile, vault, approle(vault, tmp_path))
    used = set()

    def look():
        pair = ask_pair(s)
        assert vault.valid(*pair), "it was used beyond its end"
        used.add(pair)
        return len(used) >= 2
    wait_for(look, 60 * SLOWER)
    s.stop()
    assert vault.alive(vault.leases) == []


def test_a_renewal_that_is_refused(stile, tmp_path, vault):
    vault.lease_ttl, vault.denied = 3.0 * PACE, {"sys/leases/renew"}
    s = database(stile, vault, approle(vault, tmp_path))
    first = ask_pair(s)
    wait_for(lambda: ask_pair(s) != first, 20 * SLOWER)
    assert vault.valid(*ask_pair(s))


def test_a_lease_that_cannot_be_renewed(stile, tmp_path, vault):
    vault.lease_ttl, vault.lease_renewable = 3.0 * PACE, False
    s = database(stile, vault, approle(vault, tmp_path))
    first = ask_pair(s)
    wait_for(lambda: ask_pair(s) != first, 20 * SLOWER)
    assert not paths(vault, "leases/renew")


def test_ttl_is_the_most_of_a_lease(stile, tmp_path, vault):
    s = database(stile, vault, approle(vault, tmp_path), ttl=f"{4 * PACE}s")
    first, begun = ask_pair(s), time.monotonic()
    wait_for(lambda: ask_pair(s) != first, 20 * SLOWER)
    assert time.monotonic() - begun <= 4 * PACE + 2


def test_a_login_that_ends_takes_its_leases_with_it(stile, tmp_path, vault):
    """So it is renewed; and when that goes on no longer, another login's secret comes before."""
    vault.token_ttl, vault.token_most = 2.5 * PACE, 4.0 * PACE
    s = database(stile, vault, approle(vault, tmp_path))
    used = set()

    def look():
        pair = ask_pair(s)
        assert vault.valid(*pair), "it was used beyond its login's end"
        used.add(pair)
        return len(used) >= 2
    wait_for(look, 60 * SLOWER)
    assert paths(vault, "renew-self") and len(paths(vault, "login")) >= 2
    s.stop()
    assert vault.alive(vault.tokens) == [] and vault.alive(vault.leases) == []


@pytest.mark.parametrize("kind", ["given", "batch"])
def test_leases_that_no_login_ends(stile, tmp_path, vault, kind):
    """Of a token that was given, and of a batch token, which cannot be revoked: each lease is."""
    vault.token_type = "batch" if kind == "batch" else "service"
    token = {"token": {"file": put(tmp_path / "token", vault.give_token())}}
    s = database(stile, vault, token if kind == "given" else approle(vault, tmp_path))
    pair = ask_pair(s)
    s.stop()
    assert not vault.valid(*pair) and paths(vault)[-1] == "sys/leases/revoke"
    assert not paths(vault, "revoke-self")


def test_a_credential_that_a_reload_removes(stile, tmp_path, vault):
    s = database(stile, vault, approle(vault, tmp_path))
    pair = ask_pair(s)
    s.reload()
    assert ask_pair(s) == pair and vault.valid(*pair)
    s.reload(credentials=None, rules=[allow("https://origin.test:*/echo/**")])
    wait_for(lambda: vault.alive(vault.tokens) == [], 10 * SLOWER)
    assert not vault.valid(*pair)
    assert s.tls_get("/echo/a/x").status == 200


def test_an_end_that_the_vault_holds_up(stile, tmp_path, vault):
    s = database(stile, vault, approle(vault, tmp_path))
    ask_pair(s)
    vault.gate = threading.Event()
    begun = time.monotonic()
    s.stop(30 * SLOWER)
    assert 2 < time.monotonic() - begun < 6 + 4 * SLOWER
    vault.gate.set()


def test_an_end_at_which_nothing_is_taken_back(stile, tmp_path, vault):
    s = database(stile, vault, {"token": {"file": put(tmp_path / "token", vault.give_token())}})
    ask_pair(s)
    vault.denied = {"sys/leases/revoke"}
    s.stop()
    assert "credential tok: a lease could not be given back" in s.stderr and "403" in s.stderr


# ---- what goes wrong ----


def test_a_token_that_is_revoked(stile, tmp_path, vault):
    """One more login, and all is well again."""
    vault.kv["ci/api"] = [{"token": "one"}]
    s = start(stile, vault, approle(vault, tmp_path), ttl=f"{2 * PACE}s")
    assert ask(s) == "one"
    vault.revoke_token(*vault.tokens)
    vault.kv["ci/api"].append({"token": "two"})
    wait_for(lambda: ask(s) == "two", 20 * SLOWER)
    assert len(paths(vault, "login")) == 2
    s.stop()
    assert vault.alive(vault.tokens) == [] and "given back" not in s.stderr


def test_a_policy_that_does_not_allow_it(stile, tmp_path, vault):
    """Asked again and again, but with one login: a fresh token may no more than the one before."""
    vault.kv["ci/api"] = [{"token": "t"}]
    vault.denied = {"secret/data/ci/api"}
    s = start(stile, vault, approle(vault, tmp_path))
    refused(s, "403", "permission denied")
    wait_for(lambda: len(paths(vault, "secret/data")) >= 2, 20 * SLOWER)
    assert len(paths(vault, "login")) == 1
    vault.denied = set()
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 20 * SLOWER)
    assert len(paths(vault, "login")) == 1


@pytest.mark.parametrize("change, why", [
    ({"sealed": True}, ("503", "sealed")),
    ({"standby": "https://evil.test"}, ("307", "standby", "not followed")),
    ({"secret_id": "other"}, ("login", "400", "role_id or secret_id is not valid")),
    ({"namespace": "elsewhere"}, ("403",)),
])
def test_what_it_says(stile, tmp_path, vault, change, why):
    vault.kv["ci/api"] = [{"token": "t"}]
    login = approle(vault, tmp_path)
    was = {k: getattr(vault, k) for k in change}
    for k, v in change.items():
        setattr(vault, k, v)
    s = start(stile, vault, login)
    refused(s, *why)
    for k, v in was.items():
        setattr(vault, k, v)
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 20 * SLOWER)


def test_sealed_in_between(stile, tmp_path, vault):
    """The lease at hand is used to its end; then requests are refused; then there is another."""
    vault.lease_ttl = 3.0 * PACE
    s = database(stile, vault, approle(vault, tmp_path))
    first = ask_pair(s)
    vault.sealed = True
    s.wait_stderr("credential tok .* cannot be renewed: .*503.*sealed")
    assert ask_pair(s) == first and vault.valid(*first)
    wait_for(lambda: s.tls_get("/echo/a/x").status == 503, 20 * SLOWER)
    refused(s, "sealed")
    vault.sealed = False
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 30 * SLOWER)
    assert vault.valid(*ask_pair(s))


def test_answers_that_no_vault_gives(stile, tmp_path, vault):
    login = approle(vault, tmp_path)
    s = None
    for n, (answer, why) in enumerate([
            ({"data": {"token": "t"}, "lease_id": "a b", "lease_duration": 5}, "`lease_id` that is none"),
            ({"data": {"token": "t"}, "lease_id": "a/b", "lease_duration": 0}, "no `lease_duration`"),
            ({"data": {"token": "t"}, "lease_id": "a/b", "lease_duration": "soon"}, "no number of seconds"),
            ({"data": {"token": "t"}, "lease_id": "x" * 2000, "lease_duration": 5}, "`lease_id` that is none"),
            ({"data": []}, "no `data`"),
            ({"wrap_info": {"token": "w"}}, "wrapped"),
            ([], "not a JSON object")]):
        vault.do = lambda *_: answer
        s = again(stile, s, vault, login, n)
        refused(s, why)


def test_logins_that_no_vault_gives(stile, tmp_path, vault):
    login = approle(vault, tmp_path)
    s = None
    for n, (answer, why) in enumerate([
            ({"auth": None}, "no `auth`"),
            ({"auth": {"client_token": 5}}, "no text for `client_token`"),
            ({"auth": {"client_token": "a\r\nX: y"}}, "control character"),
            ({"auth": {"client_token": "t", "lease_duration": []}}, "no number of seconds"),
            ({"auth": {"client_token": "t", "lease_duration": 1e-4}}, "ends as soon as it is made")]):
        vault.login, vault.asked = (lambda *_: answer), []
        s = again(stile, s, vault, login, n)
        refused(s, why)
        assert len(vault.asked) < 10, "it is asked without end"


def test_a_token_that_is_about_to_end(stile, tmp_path, vault):
    vault.do = lambda *_: {"data": {"ttl": 1e-4, "creation_ttl": 60, "renewable": True}}
    s = start(stile, vault, {"token": {"file": put(tmp_path / "token", vault.give_token())}})
    refused(s, "its token has ended")
    assert len(vault.asked) < 10


# ---- a real one ----


@pytest.fixture
def real(origin):
    if not REAL.exists():
        pytest.skip("no Vault was built (make vault)")
    v = RealVault(origin.pki)
    yield v
    v.stop()


def set_up(v: RealVault, tmp_path, token_ttl: str = "1h") -> dict:
    """Engines, a policy, a role; what a credential logs in with."""
    assert v("POST", "sys/mounts/secret", {"type": "kv", "options": {"version": "2"}})[0] == 204
    assert v("POST", "sys/mounts/leased", {"type": "leased"})[0] == 204
    assert v("POST", "sys/auth/approle", {"type": "approle"})[0] == 204
    rules = 'path "secret/data/*" { capabilities = ["read"] }\npath "leased/*" { capabilities = ["read"] }'
    assert v("POST", "sys/policies/acl/ci", {"policy": rules})[0] == 204
    assert v("POST", "auth/approle/role/ci", {"token_policies": "ci", "token_ttl": token_ttl})[0] == 204
    _, role = v("GET", "auth/approle/role/ci/role-id")
    _, wrapped = v("POST", "auth/approle/role/ci/secret-id", {}, wrap="60s")
    return {"approle": {"role_id": role["data"]["role_id"], "wrapped": True,
                        "secret_id": {"file": put(tmp_path / "wrapped", wrapped["wrap_info"]["token"])}}}


def leases(v: RealVault) -> list[str]:
    status, found = v("LIST", "sys/leases/lookup/leased/app")
    return found["data"]["keys"] if status == 200 else []


def test_a_real_one_with_versions(stile, tmp_path, real):
    login = set_up(real, tmp_path)
    first, second = secrets.token_urlsafe(9), secrets.token_urlsafe(9)
    for value in (first, second):
        wait_for(lambda: real("POST", "secret/data/ci/api", {"data": {"token": value}})[0] == 200)
    s = start(stile, real, login)
    assert ask(s) == second
    pinned = credential(real, login, version=1)
    refused_before = s.mark()
    s.reload(credentials={"tok": pinned})  # a wrapping token is used once
    s.wait_stderr("`secret_id` cannot be unwrapped: .*used already")
    assert refused_before <= s.mark()
    _, wrapped = real("POST", "auth/approle/role/ci/secret-id", {}, wrap="60s")
    put(tmp_path / "wrapped", wrapped["wrap_info"]["token"])
    wait_for(lambda: s.tls_get("/echo/a/x").status == 200, 20 * SLOWER)
    assert ask(s) == first


def test_a_real_one_with_leases(stile, tmp_path, real):
    """Renewed, and gone with the login at the end."""
    login = set_up(real, tmp_path)
    value = secrets.token_urlsafe(9)
    assert real("POST", "leased/app", {"user": "u", "password": value, "ttl": "3s"})[0] == 204
    s = start(stile, real, login, path="leased/app", field=["user", "password"], as_="basic")
    assert ask_pair(s) == ("u", value)
    [lease] = leases(real)
    end = time.monotonic() + 7
    while time.monotonic() < end:
        assert ask_pair(s) == ("u", value)
        time.sleep(0.2)
    assert lease in leases(real), "it was renewed twice over its first life"
    s.stop()
    wait_for(lambda: leases(real) == [], 20 * SLOWER, "the leases go with the login")


def test_a_real_one_that_is_sealed(stile, tmp_path, real):
    login = set_up(real, tmp_path)
    s = start(stile, real, login, path="secret/data/none")
    refused(s, "404")
    assert real("PUT", "sys/seal")[0] == 204
    wait_for(lambda: "sealed" in s.tls_get("/echo/a/x").json()["detail"], 20 * SLOWER)
