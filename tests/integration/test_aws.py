"""AWS signatures: botocore in the sandbox with keys that are good for nothing, services that check every signature with
botocore's own signer, and the ways that stile gets its keys."""

import hashlib
import json
import pathlib
import random
import secrets

import pytest

import awslib
from h2_origin import H2Origin
from h2lib import H2
from stilelib import SLOWER, Stile, allow, check_refusal, put, wait_for

pytestmark = pytest.mark.skipif(awslib.MISSING is not None, reason=str(awslib.MISSING))
EXAMPLES = [b"", b"x", b"hello" * 40]


class World:
    def __init__(self, make, tmp_path, origin):
        self.make, self.tmp_path, self.origin, self.things = make, tmp_path, origin, []
        self.keys = awslib.Keys(token=True)

    def aws(self, service: str, *accounts) -> awslib.Aws:
        a = awslib.Aws(self.origin.pki, service, *(accounts or (self.keys,)))
        self.things.append(a)
        return a

    def container(self, *args) -> awslib.Container:
        c = awslib.Container(*args)
        self.things.append(c)
        return c

    def fixed(self) -> dict:
        return {"access_key_id": self.keys.id,
                "secret_access_key": {"file": put(self.tmp_path / "key", self.keys.secret + "\n")},
                "session_token": {"file": put(self.tmp_path / "token", self.keys.token)}}

    def start(self, port: int, service: str, source: dict | None = None, payload: str | None = None, rule=None, **more) -> Stile:
        sigv4 = {"service": service, "region": awslib.REGION} | ({"payload": payload} if payload else {})
        frm = {"aws": source or self.fixed(), "addresses": ["127.0.0.0/8"]}
        return self.make(rules=[allow(f"https://origin.test:{port}/**", credential="aws", **(rule or {}))],
                         credentials={"aws": {"from": frm, "as": {"sigv4": sigv4}}}, **more)


@pytest.fixture
def world(stile, tmp_path, origin):
    w = World(stile, tmp_path, origin)
    yield w
    for t in w.things:
        t.stop()


def ask(s: Stile, port: int, method: str, target: str, body: bytes | None = None, fields: str = "", chunked=False):
    c = s.tunnel(port)
    head = f"{method} {target} HTTP/1.1\r\nHost: origin.test:{port}\r\n{fields}"
    if chunked:
        body = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n" if body else b"0\r\n\r\n"
        head += "Transfer-Encoding: chunked\r\n"
    elif body is not None:
        head += f"Content-Length: {len(body)}\r\n"
    c.send_quietly(head.encode("latin-1") + b"\r\n" + (body or b""))
    return c.response(method)


# ---- botocore ----


@pytest.mark.parametrize("payload", ["signed", "unsigned"])
def test_botocore_and_s3(world, payload):
    aws = world.aws("s3")
    s = world.start(aws.port, "s3", payload=payload)
    # What newer SDKs do unasked, a trailer behind a body that is framed, needs `payload: unsigned`.
    s3 = awslib.client(s, aws, "s3", **({} if payload == "unsigned" else {"request_checksum_calculation": "when_required"}))
    names = ["plain", "a b/ü€/+=:@!$&'()*,;~", "x//y/", "%2e%25", "quote\"<>^`{|}"]
    for name in names:
        s3.put_object(Bucket="bucket", Key=name, Body=name.encode() * 3, Metadata={"note": "a  b"}, ContentType="text/x")
        assert s3.get_object(Bucket="bucket", Key=name)["Body"].read() == name.encode() * 3
    found = s3.list_objects_v2(Bucket="bucket", Prefix="a b/ü€", Delimiter="+&= ~", StartAfter="")
    assert [x["Key"] for x in found["Contents"]] == [names[1]]
    upload = s3.create_multipart_upload(Bucket="bucket", Key="big")["UploadId"]
    parts = [secrets.token_bytes(300_000) for _ in range(3)]
    etags = [{"PartNumber": n, "ETag": s3.upload_part(Bucket="bucket", Key="big", UploadId=upload, PartNumber=n, Body=p)["ETag"]}
             for n, p in enumerate(parts, 1)]
    s3.complete_multipart_upload(Bucket="bucket", Key="big", UploadId=upload, MultipartUpload={"Parts": etags})
    assert s3.get_object(Bucket="bucket", Key="big")["Body"].read() == b"".join(parts)
    s3.delete_object(Bucket="bucket", Key="big")
    assert aws.refused == []
    assert all(r["credential"] == "aws" and r["credential_stripped"] for r in s.records() if r["event"] == "request.start")
    everything = json.dumps([fields for _, _, fields, _ in aws.seen])
    assert "DUMMY" not in everything and "dummy-token" not in everything
    s.stop()
    text = s.stderr + s.log_path.read_text()
    assert world.keys.secret not in text and world.keys.token not in text


def test_botocore_and_dynamodb(world):
    aws = world.aws("dynamodb")
    s = world.start(aws.port, "dynamodb")
    db = awslib.client(s, aws, "dynamodb")
    item = {"id": {"S": "ü"}, "data": {"B": secrets.token_bytes(200_000)}}
    db.put_item(TableName="t", Item=item)
    assert db.get_item(TableName="t", Key={"id": {"S": "ü"}})["Item"] == item
    assert aws.refused == []


def test_botocore_and_sts(world):
    aws = world.aws("sts")
    s = world.start(aws.port, "sts")
    assert awslib.client(s, aws, "sts").get_caller_identity()["Account"] == "1"
    assert aws.refused == []


def test_presigned_urls_of_the_client_are_signed_anew(world):
    aws = world.aws("s3")
    s = world.start(aws.port, "s3")
    url = awslib.client(s, aws, "s3", signature_version="s3v4").generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})
    assert "X-Amz-Signature" in url
    r = ask(s, aws.port, "GET", url.partition(f":{aws.port}")[2])
    assert r.status == 404 and aws.refused == []
    assert "X-Amz" not in aws.seen[0][1]
    assert s.wait_record(event="request.start")["credential_stripped"] is True


def test_where_no_identity_of_the_client_is_admitted(world):
    aws = world.aws("s3")
    s = world.start(aws.port, "s3", rule={"client_credentials": "deny"})
    for target, fields in (("/b/k?X-Amz-Signature=ff", ""), ("/b/k", "Authorization: AWS4-HMAC-SHA256 x\r\n"),
                           ("/b/k", "X-Amz-Security-Token: x\r\n")):
        check_refusal(ask(s, aws.port, "GET", target, fields=fields), 403, "client_credential")
    assert ask(s, aws.port, "GET", "/b/k", fields="X-Amz-Date: 20200101T000000Z\r\n").status == 404
    assert len(aws.seen) == 1 and aws.refused == []


# ---- what is signed is what is sent ----


def spell(rng: random.Random, alphabet: str, most: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(most)))


def generated(rng: random.Random, s3: bool) -> tuple[str, str, str, bytes | None, bool]:
    segment = "ab.Z9-_~%=+:@!$&'()*,; üé€/" if s3 else "ab.Z9-_~=+:@!$&'()*,;üé€/"
    raw = "/" + spell(rng, segment, 14)
    if any("." in p and not p.strip(". ") for p in raw.replace(";", "/").split("/")):  # some servers take ". " for "."
        raw = "/dots"
    keep = rng.choice(["/~", "/~=+:@!$&'()*,;"])
    path = awslib.urllib.parse.quote(raw, safe=keep)
    pairs = []
    for _ in range(rng.randrange(5)):
        name, value = spell(rng, "abAB1-_.~ü €[]", 5) or "k", spell(rng, "abAB1-_.~/=ü €&+%\"", 8)
        quote = lambda t, safe: awslib.urllib.parse.quote(t, safe=safe)
        pairs.append(quote(name, "-_.~[]") + rng.choice([f"={quote(value, '-_.~/=')}", f"={quote(value, '')}", "=", ""]))
    target = path + (rng.choice(["", "?"]) if not pairs else "?" + "&".join(pairs))
    fields = ""
    for name, values in (("Content-Type", ["a/b", "text/plain;  charset=utf-8"]), ("X-Amz-Meta-" + spell(rng, "abc-", 4) + "x", ["", "a   b  c", "\"a  b\""]),
                         ("x-amz-tagging", ["a=b&c=d"]), ("User-Agent", ["a  b"]), ("Range", ["bytes=0-1"]), ("X-Amz-Date", ["20200101T000000Z"]),
                         ("X-Amz-Content-Sha256", ["UNSIGNED-PAYLOAD"])):
        if rng.random() < 0.4:
            fields += f"{name}: {rng.choice(values)}\r\n"
    method = rng.choice(["GET", "PUT", "POST", "DELETE", "HEAD"])
    body = rng.choice(EXAMPLES) if method in ("PUT", "POST") else None
    return method, target, fields, body, rng.random() < 0.3 and body is not None


@pytest.mark.parametrize("service, payload", [("s3", "signed"), ("s3", "unsigned"), ("execute-api", "signed")])
def test_generated_requests(world, service, payload):
    """Paths, queries and fields of all kinds; the service computes each signature from the bytes that it got."""
    aws = world.aws(service)
    aws.serve = lambda *_: (200, {}, b"")
    s = world.start(aws.port, service, payload=payload)
    rng = random.Random(secrets.randbits(32))
    c = s.tunnel(aws.port)
    for n in range(120):
        method, target, fields, body, chunked = generated(rng, service == "s3")
        head = f"{method} {target} HTTP/1.1\r\nHost: origin.test:{aws.port}\r\n{fields}"
        data = b"" if body is None else body
        if chunked:
            head += "Transfer-Encoding: chunked\r\n"
            data = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
        elif body is not None:
            head += f"Content-Length: {len(body)}\r\n"
        c.send(head.encode("latin-1") + b"\r\n" + data)
        r = c.response(method)
        assert r.status == 200, (aws.refused, head, r)
        assert aws.seen[-1][3] == data if not chunked else aws.seen[-1][3] == body
    assert len(aws.seen) == 120 and aws.refused == []


def test_an_origin_of_http2(world, origin):
    with H2Origin(origin.pki / "good.pem", origin.pki / "good.key") as o:
        s = world.start(o.port, "s3")
        c = H2(s, o.port)
        for n, body in enumerate([b"", b"hello", secrets.token_bytes(200_000)]):
            stream = c.ask("PUT", f"/echo?b=2&a={n}", end=False)
            c.send_body(stream, body)
            assert c.wait(stream).status == 200
        r = ask(s, o.port, "PUT", "/echo?x", b"hi", "Authorization: AWS4 x\r\nX-Amz-Date: x\r\n")
        assert r.status == 200
        assert len(o.seen) == 4
        for seen in o.seen:
            head = [(n, v) for n, v in seen["headers"] if not n.startswith(":")]
            pseudo = {n: v for n, v in seen["headers"] if n.startswith(":")}
            fields = [("host", pseudo[":authority"]), *head]
            assert awslib.judge(pseudo[":method"], pseudo[":path"], fields, None, {world.keys.id: world.keys}, "s3") is None


# ---- bodies ----


def test_a_declared_hash_is_checked_as_the_body_goes_by(world):
    aws = world.aws("s3")
    s = world.start(aws.port, "s3")
    body = secrets.token_bytes(40_000_000)
    field = lambda b: f"X-Amz-Content-Sha256: {hashlib.sha256(b).hexdigest()}\r\n"
    assert ask(s, aws.port, "PUT", "/b/big", body, field(body)).status == 200
    assert ask(s, aws.port, "PUT", "/b/chunked", b"hello", field(b"hello"), chunked=True).status == 200
    assert aws.objects["/b/big"] == body and aws.refused == [] and aws.cut == 0
    for chunked in (False, True):
        mark = s.mark()
        r = ask(s, aws.port, "PUT", "/b/other", body[:200_000], field(b"hello"), chunked=chunked)
        check_refusal(r, 400, "malformed_request")
        assert s.wait_record(since=mark, event="request.end")["error"] == "malformed_request"
    wait_for(lambda: aws.cut >= 1)
    assert "/b/other" not in aws.objects


def test_what_is_not_signed(world):
    aws = world.aws("s3")
    s = world.start(aws.port, "s3")
    for target, fields, status, reason, word in (
        ("/b/k", "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\r\n", 403, "unsignable", "chunks"),
        ("/b/k", "X-Amz-Content-Sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER\r\n", 403, "unsignable", "chunks"),
        ("/b/k", "X-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n", 403, "unsignable", "payload: unsigned"),
        ("/b/k", "X-Amz-Content-Sha256: nonsense\r\n", 403, "unsignable", "neither"),
        ("/b/k", "X-Amz-Acl: a\r\nx-amz-acl: b\r\n", 403, "unsignable", "twice"),
        ("/b/a%2Fk", "", 403, "unsignable", "%2F"),
    ):
        r = ask(s, aws.port, "PUT", target, b"hello", fields)
        check_refusal(r, status, reason)
        assert word in r.json()["detail"], r.json()
    c = s.tunnel(aws.port)
    c.send(f"PUT /b/k HTTP/1.1\r\nHost: origin.test:{aws.port}\r\nContent-Length: 16777217\r\n\r\n".encode())
    r = c.response("PUT")
    check_refusal(r, 413, "body_too_large")
    assert "payload: unsigned" in r.json()["detail"]
    assert aws.seen == []


def test_a_held_body_costs_no_more_than_its_bound(world):
    """Chunked, so that nobody knows how long it will be: refused when it is too long, and nothing of it is sent."""
    aws = world.aws("dynamodb")
    s = world.start(aws.port, "dynamodb")
    c = s.tunnel(aws.port)
    c.send(f"POST / HTTP/1.1\r\nHost: origin.test:{aws.port}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    block = b"10000\r\n" + bytes(65536) + b"\r\n"
    for _ in range(257):
        c.send_quietly(block)
    check_refusal(c.response("POST"), 413, "body_too_large")
    assert s.wait_record(event="request.deny")["reason"] == "body_too_large"
    assert aws.seen == [] and aws.cut == 0


def waiting_at(port: int) -> int:
    """Bytes that connections to it have sent, and nobody has read yet."""
    n = 0
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, _, queues = line.split()[1:5]
        on_its_way, unread = (int(q, 16) for q in queues.split(":"))
        n += on_its_way * remote.endswith(f":{port:04X}") + unread * local.endswith(f":{port:04X}")
    return n


def test_held_bodies_have_a_bound_together(world):
    """Four of the largest fill a worker; what comes then is refused until one of them has gone, and they go on."""
    aws = world.aws("dynamodb")
    aws.serve = lambda *_: (200, {}, b"{}")
    s = world.start(aws.port, "dynamodb", limits={"workers": 1})
    head = f"POST / HTTP/1.1\r\nHost: origin.test:{aws.port}\r\nContent-Length: 16777216\r\n\r\n".encode()
    held = [s.tunnel(aws.port) for _ in range(4)]
    for c in held:
        c.send(head + bytes(16777215))
    # What the last of them sent may be on its way still, and would be refused itself beside another.
    wait_for(lambda: not waiting_at(s.port))
    r = ask(s, aws.port, "POST", "/", b"hello" * 100)
    check_refusal(r, 503, "overloaded")
    assert "X-Amz-Content-Sha256" in r.json()["detail"], r.json()
    assert ask(s, aws.port, "POST", "/", b"four").status == 200
    # One that says its hash is not held.
    digest = hashlib.sha256(b"hello" * 100).hexdigest()
    assert ask(s, aws.port, "POST", "/", b"hello" * 100, f"X-Amz-Content-Sha256: {digest}\r\n").status == 200
    held[0].close()
    s.wait_record(event="request.deny", reason="client_closed")
    assert ask(s, aws.port, "POST", "/", b"hello" * 100).status == 200
    held[1].send(b"\0")
    assert held[1].response("POST").status == 200
    assert len(aws.seen[-1][3]) == 16777216 and aws.refused == [] and aws.cut == 0
    for c in held[2:]:
        c.close()


def test_expect_and_a_client_that_leaves(world):
    aws = world.aws("dynamodb")
    aws.serve = lambda *_: (200, {}, b"{}")
    s = world.start(aws.port, "dynamodb")
    c = s.tunnel(aws.port)
    c.send(f"POST / HTTP/1.1\r\nHost: origin.test:{aws.port}\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n".encode())
    assert c.read_head().startswith(b"HTTP/1.1 100")
    c.send(b"hello")
    assert c.response("POST").status == 200
    assert "expect" not in {n.lower() for n, _ in aws.seen[0][2]} and aws.seen[0][3] == b"hello"
    c = s.tunnel(aws.port)
    c.send(f"POST / HTTP/1.1\r\nHost: origin.test:{aws.port}\r\nContent-Length: 5\r\n\r\nhel".encode())
    c.close()
    s.wait_record(event="request.deny", reason="client_closed")
    assert len(aws.seen) == 1 and aws.cut == 0


# ---- where keys come from ----


def test_keys_in_files_are_read_again(world):
    aws = world.aws("sts")
    path = put(world.tmp_path / "creds", f"[default]\naws_access_key_id = x\naws_secret_access_key = x\n\n[work]\n"
               f"aws_access_key_id = {world.keys.id}\naws_secret_access_key = {world.keys.secret}\n"
               f"aws_session_token = {world.keys.token}\n")
    s = world.start(aws.port, "sts", {"profiles": {"file": path}, "profile": "work"})
    assert awslib.client(s, aws, "sts").get_caller_identity()["Account"] == "1"
    put(world.tmp_path / "creds", "[other]\n")
    s.reload(rules=s.settings["rules"] + [allow("https://other.test:1")])
    assert awslib.client(s, aws, "sts").get_caller_identity()["Account"] == "1"
    s.stop()
    assert world.keys.secret not in s.stderr


@pytest.mark.parametrize("text, why", [("[default]\n", "no such profile"), ("[work]\nx\n", "line 2"),
                                       ("[work]\naws_access_key_id=A\n", "lacks"), (None, "cannot be opened")])
def test_files_of_profiles_that_are_none(world, text, why):
    aws = world.aws("sts")
    path = put(world.tmp_path / "creds", text) if text else str(world.tmp_path / "none")
    s = world.start(aws.port, "sts", {"profiles": {"file": path}, "profile": "work"})
    r = ask(s, aws.port, "POST", "/", b"Action=GetCallerIdentity")
    check_refusal(r, 503, "credential_unavailable")
    assert why in r.json()["detail"] and aws.seen == []


def test_the_endpoint_of_a_container(world):
    """Its keys end and are asked for again, with the token as its file says it then."""
    aws = world.aws("sts")
    container = world.container(world.keys, "token-1")
    container.life = 4 * int(SLOWER)
    token = put(world.tmp_path / "auth", "token-1\n")
    s = world.start(aws.port, "sts", {"container_url": f"http://127.0.0.1:{container.port}/creds", "authorization_token": {"file": token}})
    sts = awslib.client(s, aws, "sts")
    assert sts.get_caller_identity()["Account"] == "1" and container.asked == [("/creds", "token-1")]
    fresh = awslib.Keys(token=True)
    aws.accounts[fresh.id] = fresh
    container.keys, container.token = fresh, "token-2"
    put(world.tmp_path / "auth", "token-2\n")
    s.wait_stderr("credential aws: has a new value|credential aws: is available again", 30 * SLOWER)
    assert ask(s, aws.port, "POST", "/", b"Action=GetCallerIdentity").status == 200
    assert fresh.id in json.dumps(aws.seen[-1][2]) and aws.refused == []
    container.status = 500
    s.wait_stderr("credential aws .* cannot be renewed: its endpoint answers 500", 30 * SLOWER)


def test_a_container_elsewhere_is_not_asked_in_clear(world):
    aws = world.aws("sts")
    s = world.make(rules=[allow(f"https://origin.test:{aws.port}", credential="aws")], credentials={"aws": {
        "from": {"aws": {"container_url": "http://10.1.2.3/creds"}, "addresses": ["10.0.0.0/8"]},
        "as": {"sigv4": {"service": "sts", "region": "r"}}}})
    r = ask(s, aws.port, "GET", "/")
    check_refusal(r, 503, "credential_unavailable")
    assert "in clear" in r.json()["detail"]


def test_web_identity(world):
    sts, aws = world.aws("sts"), world.aws("s3")
    sts.roles["jwt-1"] = role = "arn:aws:iam::123456789012:role/r"
    sts.life = 5 * int(SLOWER)
    narrow = '{"Version":"2012-10-17","Statement":[]}'
    s = world.start(aws.port, "s3", {
        "role_arn": role, "web_identity_token": {"file": put(world.tmp_path / "jwt", "jwt-1")}, "duration": "15m",
        "sts_url": f"https://origin.test:{sts.port}/", "session_name": "job@7", "policy": narrow})
    assert sts.forms[0] == {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": role, "Policy": narrow,
                            "RoleSessionName": "job@7", "DurationSeconds": "900", "WebIdentityToken": "jwt-1"}
    first = sts.given[0]
    aws.accounts = {first.id: first}
    assert ask(s, aws.port, "GET", "/b/k").status == 404 and aws.refused == []
    wait_for(lambda: len(sts.given) > 1, 30 * SLOWER)
    s.wait_stderr("credential aws: has a new value", 30 * SLOWER)
    aws.accounts |= {k.id: k for k in sts.given}
    assert ask(s, aws.port, "GET", "/b/k").status == 404 and aws.refused == []
    assert first.id not in json.dumps(aws.seen[-1][2])
    put(world.tmp_path / "jwt", "jwt-2")
    s.wait_stderr("cannot be renewed: its endpoint answers 400 InvalidIdentityToken", 30 * SLOWER)
    s.stop()
    assert all(k.secret not in s.stderr + s.log_path.read_text() for k in sts.given)


@pytest.mark.parametrize("base", ["fixed", "container"])
def test_a_role_that_another_credential_takes_on(world, base):
    """The question is signed by stile itself, and the service checks that as well."""
    sts, aws = world.aws("sts"), world.aws("s3")
    source = world.fixed()
    if base == "container":
        container = world.container(world.keys, "t")
        source = {"container_url": f"http://127.0.0.1:{container.port}/creds",
                  "authorization_token": {"file": put(world.tmp_path / "auth", "t")}}
    s = world.start(aws.port, "s3", source | {
        "role_arn": "arn:aws:iam::1:role/r", "sts_url": f"https://origin.test:{sts.port}", "sts_region": awslib.REGION,
        "external_id": "x/y z"})
    assert sts.refused == [] and sts.forms[0]["ExternalId"] == "x/y z" and sts.forms[0]["RoleSessionName"] == "stile"
    aws.accounts = {k.id: k for k in sts.given}
    assert ask(s, aws.port, "GET", "/b/k").status == 404 and aws.refused == []


@pytest.mark.parametrize("answer, why", [
    ((200, {}, b"<!DOCTYPE x [<!ENTITY a 'b'>]><x>&a;</x>"), "not the XML"),
    ((200, {}, b"<x/>"), "no Credentials"),
    ((200, {}, b"x" * 200_000), "more than"),
    ((302, {"Location": "https://evil.test/"}, b""), "answers 302"),
    ((403, {}, b"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>"), "answers 403 AccessDenied"),
])
def test_answers_that_are_none(world, answer, why):
    sts, aws = world.aws("sts"), world.aws("s3")
    sts.serve = lambda *_: answer
    s = world.start(aws.port, "s3", {"role_arn": "arn:aws:iam::1:role/r", "sts_url": f"https://origin.test:{sts.port}",
                                     "web_identity_token": {"file": put(world.tmp_path / "jwt", "j")}})
    r = ask(s, aws.port, "GET", "/b/k")
    check_refusal(r, 503, "credential_unavailable")
    assert why in r.json()["detail"] and aws.seen == []


AS = {"sigv4": {"service": "s3", "region": "r"}}
ROLE = {"role_arn": "arn:x", "sts_url": "https://sts.test/"}


@pytest.mark.parametrize("source, sent, why", [
    ({"access_key_id": "A"}, AS, "needs its `secret_access_key`"),
    ({"access_key_id": "A", "secret_access_key": "x"}, AS, "is a secret, so say where it is"),
    ({"profile": "x"}, AS, "takes one of"),
    ({"profiles": {"file": "x"}, "container_url": "https://x.test/"}, AS, "takes one of"),
    ({"profiles": {"file": "x"}}, "bearer", "is a key to sign with"),
    ({"profiles": {"file": "x"}}, {"sigv4": {"service": "s3"}}, "needs `service` and `region`"),
    ({"profiles": {"file": "x"}}, {"sigv4": {"service": "S3/x", "region": "r"}}, "lower-case letters"),
    ({"profiles": {"file": "x"}}, {"sigv4": {"service": "s3", "region": "r", "payload": "none"}}, "payload"),
    ({"profiles": {"file": "x"}, "duration": "1h"}, AS, "`duration` without `role_arn`"),
    ({"profiles": {"file": "x"}, **ROLE}, AS, "`sts_region`"),
    ({"web_identity_token": {"env": "T"}, **ROLE, "external_id": "x"}, AS, "`external_id` without"),
    ({"web_identity_token": {"env": "T"}, **ROLE, "session_name": "a b"}, AS, "session_name"),
    ({"web_identity_token": {"env": "T"}, **ROLE, "duration": "5m"}, AS, "duration"),
    ({"web_identity_token": {"env": "T"}}, AS, "without `role_arn`"),
])
def test_what_check_refuses(tmp_path, source, sent, why):
    import subprocess
    from stilelib import BIN
    (tmp_path / "stile.yaml").write_text(json.dumps({
        "version": 1, "credentials": {"c": {"from": {"aws": source}, "as": sent}},
        "policies": {"default": {"rules": [{"allow": "https://a.test", "credential": "c"}]}}}))
    r = subprocess.run([str(BIN), "check", str(tmp_path / "stile.yaml")], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2 and why in r.stderr, r.stderr


def test_any_source_may_hold_keys(world):
    """Three parts in one text: a file, a variable or a helper gives them as well."""
    aws = world.aws("s3")
    s = world.make(rules=[allow(f"https://origin.test:{aws.port}", credential="aws")], credentials={"aws": {
        "from": {"file": put(world.tmp_path / "all", world.keys.text() + "\n")},
        "as": {"sigv4": {"service": "s3", "region": awslib.REGION}}}})
    assert ask(s, aws.port, "GET", "/b/k").status == 404 and aws.refused == []
    put(world.tmp_path / "all", "only-one-part")
    s.wait_stderr("has a new value")
    r = ask(s, aws.port, "GET", "/b/k")
    check_refusal(r, 503, "credential_unavailable")
    assert "only-one-part" not in r.json()["detail"] and len(aws.seen) == 1
