"""Stand-ins for services of AWS, which compute each signature again with botocore's own signer over the bytes that
came, and refuse those that differ; and botocore as a client through stile, with keys that nobody knows."""

import contextlib
import datetime
import hashlib
import http.server
import json
import pathlib
import re
import secrets
import ssl
import sys
import threading
import urllib.parse
import xml.sax.saxutils

BUILT = pathlib.Path(__file__).resolve().parents[2] / "build" / "clients" / "aws"
if (BUILT / "fetched").exists():
    sys.path.insert(0, str(BUILT))

try:
    import botocore.auth
    import botocore.awsrequest
    import botocore.config
    import botocore.credentials
    import botocore.session
    MISSING = None if hasattr(botocore.auth, "S3SigV4Auth") else "botocore is too old (tests/install-deps.sh test fetches one)"
except ImportError as e:
    MISSING = f"botocore was not fetched (tests/install-deps.sh test): {e}"

EMPTY = hashlib.sha256(b"").hexdigest()
REGION = "eu-central-1"
UNRESERVED = "-_.~"


class Keys:
    """What an account consists of here."""

    def __init__(self, token: bool = False):
        self.id = "AKIA" + secrets.token_hex(8).upper()
        self.secret = secrets.token_urlsafe(30)[:36] + "+/=="
        self.token = secrets.token_urlsafe(90) + "==" if token else None

    def text(self) -> str:
        return " ".join(x for x in (self.id, self.secret, self.token) if x)


def encode(text: str, safe: str = "") -> str:
    return urllib.parse.quote(urllib.parse.unquote_to_bytes(text), safe=UNRESERVED + safe)


def canonical_query(query: str) -> str:
    """As services do: each part decoded and encoded again. A raw `+` is a blank to them."""
    pairs = [p.partition("=") for p in query.split("&") if p]
    return "&".join(f"{n}={v}" for n, v in sorted(
        (encode(n.replace("+", "%20")), encode(v.replace("+", "%20"))) for n, _, v in pairs))


def judge(method: str, target: str, fields: list[tuple[str, str]], body: bytes | None, accounts: dict[str, Keys],
          service: str, region: str = REGION) -> str | None:
    """None: this request is signed by one of the accounts. Otherwise what is wrong."""
    headers = [(n.lower(), v) for n, v in fields]
    once = dict(headers)
    if len([1 for n, _ in headers if n == "authorization"]) != 1:
        return "not one Authorization"
    m = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
                     r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})", once["authorization"])
    if not m:
        return "Authorization is malformed: " + once["authorization"]
    key_id, date, its_region, its_service, names, signature = m.groups()
    keys = accounts.get(key_id)
    if not keys:
        return f"unknown key {key_id}"
    if (its_region, its_service) != (region, service):
        return f"the scope is {its_region}/{its_service}"
    names = names.split(";")
    stamp = once.get("x-amz-date", "")
    if names != sorted(set(names)) or not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(names):
        return f"signed are {names}"
    if {n for n, _ in headers if n.startswith("x-amz-")} - set(names):
        return "a field x-amz-... is not signed"
    for name in names:
        if name.startswith("x-amz-") and len([1 for n, _ in headers if n == name]) != 1:
            return f"not one {name}"
    now = datetime.datetime.now(datetime.timezone.utc)
    at = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    if stamp[:8] != date or abs((now - at).total_seconds()) > 300:
        return f"the time is {stamp}"
    if once.get("x-amz-security-token") != keys.token:
        return "another session token"
    path, _, query = target.partition("?")
    if re.search(r"(^|&)x-amz-(signature|credential|algorithm)=", query, re.I):
        return "signed twice"
    cls = botocore.auth.S3SigV4Auth if service.startswith("s3") else botocore.auth.SigV4Auth
    if service.startswith("s3"):
        path = encode(path, "/")
    query = canonical_query(query)
    auth = cls(botocore.credentials.Credentials(keys.id, keys.secret, keys.token), service, region)
    r = botocore.awsrequest.AWSRequest(method=method, url=f"https://{once['host']}{path}" + (f"?{query}" if query else ""))
    for name, value in headers:
        if name in names:
            r.headers[name] = value
    r.context["timestamp"] = stamp
    canonical = auth.canonical_request(r)
    if auth.signature(auth.string_to_sign(r, canonical), r) != signature:
        return "SignatureDoesNotMatch:\n" + canonical
    said = once["x-amz-content-sha256"]
    if body is not None and re.fullmatch("[0-9a-f]{64}", said) and hashlib.sha256(body).hexdigest() != said:
        return "XAmzContentSHA256Mismatch"
    return None


def unchunk(body: bytes) -> bytes:
    """The data in aws-chunked."""
    out = b""
    while True:
        size, _, body = body.partition(b"\r\n")
        n = int(size.split(b";")[0], 16)
        if n == 0:
            return out
        out, body = out + body[:n], body[n + 2:]


class Aws:
    """S3, DynamoDB and STS at https://origin.test:PORT/, for `accounts`. What was refused is in `refused`."""

    def __init__(self, pki: pathlib.Path, service: str, *accounts: Keys):
        self.accounts = {k.id: k for k in accounts}
        self.service, self.refused, self.seen, self.cut = service, [], [], 0
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.items: dict[str, dict] = {}
        self.roles: dict[str, str] = {}  # web identity tokens to role ARNs
        self.life = 3600
        self.given: list[Keys] = []
        self.forms: list[dict[str, str]] = []
        aws = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def body(self) -> bytes | None:
                if self.headers.get("Expect", "").lower() == "100-continue":
                    pass  # http.server has answered it
                if self.headers.get("Transfer-Encoding") == "chunked":
                    out = b""
                    while n := int(self.rfile.readline().split(b";")[0] or b"-1", 16):
                        if n < 0:
                            return None
                        out += self.rfile.read(n)
                        self.rfile.readline()
                    while self.rfile.readline().strip():
                        pass
                    return out
                n = int(self.headers.get("Content-Length") or 0)
                data = self.rfile.read(n)
                return data if len(data) == n else None

            def answer(self):
                body = self.body()
                if body is None:
                    aws.cut += 1
                    self.close_connection = True
                    return
                fields = list(self.headers.items())
                target = self.requestline.split(" ")[1]  # self.path has its slashes folded
                aws.seen.append((self.command, target, fields, body))
                form = dict(urllib.parse.parse_qsl(body.decode("latin-1"))) if aws.service == "sts" else {}
                if form.get("Action") == "AssumeRoleWithWebIdentity":
                    wrong = None
                else:
                    wrong = aws.judge(self.command, target, fields, body)
                if wrong:
                    aws.refused.append(wrong)
                    status, extra, text = 403, {}, aws.error("SignatureDoesNotMatch")
                else:
                    status, extra, text = aws.serve(self.command, target, dict(self.headers), body, form)
                self.send_response(status)
                for name, value in extra.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(text)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

            def log_message(self, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args):  # who leaves in the middle is told by `cut`
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "good.pem", pki / "good.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def judge(self, method, target, fields, body):
        return judge(method, target, fields, body, self.accounts, self.service)

    def error(self, code: str) -> bytes:
        if self.service == "dynamodb":
            return json.dumps({"__type": f"x#{code}", "message": code}).encode()
        if self.service == "sts":
            return f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>".encode()
        return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()

    def serve(self, method, target, headers, body, form):
        if self.service == "dynamodb":
            return self.dynamodb(headers, json.loads(body))
        if self.service == "sts":
            return self.sts(form)
        return self.s3(method, target, headers, body)

    # S3, path-style

    def s3(self, method, target, headers, body):
        path, _, query = target.partition("?")
        key, q = urllib.parse.unquote(path), dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if headers.get("X-Amz-Content-Sha256", "").startswith("STREAMING-UNSIGNED"):
            body = unchunk(body)
        if method == "POST" and "uploads" in q:
            upload = secrets.token_hex(4)
            self.parts[upload] = {}
            return 200, {}, f"<R><UploadId>{upload}</UploadId></R>".encode()
        if method == "PUT" and "uploadId" in q:
            self.parts[q["uploadId"]][int(q["partNumber"])] = body
            return 200, {"ETag": '"x"'}, b""
        if method == "POST" and "uploadId" in q:
            self.objects[key] = b"".join(v for _, v in sorted(self.parts.pop(q["uploadId"]).items()))
            return 200, {}, b"<R><ETag>x</ETag></R>"
        if method == "PUT":
            self.objects[key] = body
            return 200, {"ETag": '"x"'}, b""
        if method == "GET" and key.count("/") == 1 or q.get("list-type"):
            prefix = key.rstrip("/") + "/" + q.get("prefix", "")
            keys = [k for k in sorted(self.objects) if k.startswith(prefix)]
            rows = "".join("<Contents><Key>" + xml.sax.saxutils.escape(k.split("/", 2)[2]) + f"</Key><Size>{len(self.objects[k])}</Size></Contents>"
                           for k in keys)
            return 200, {}, f"<ListBucketResult><Name>b</Name>{rows}</ListBucketResult>".encode()
        if method == "DELETE":
            self.objects.pop(key, None)
            return 204, {}, b""
        if key not in self.objects:
            return 404, {}, self.error("NoSuchKey")
        return 200, {"ETag": '"x"', "Content-Type": "binary/octet-stream"}, self.objects[key]

    def dynamodb(self, headers, q):
        what = headers["X-Amz-Target"].split(".")[1]
        kind = {"Content-Type": "application/x-amz-json-1.0"}
        if what == "PutItem":
            self.items[q["Item"]["id"]["S"]] = q["Item"]
            return 200, kind, b"{}"
        return 200, kind, json.dumps({"Item": self.items[q["Key"]["id"]["S"]]}).encode()

    def sts(self, form):
        self.forms.append(form)
        action = form["Action"]
        if action == "GetCallerIdentity":
            return 200, {}, (b"<GetCallerIdentityResponse><GetCallerIdentityResult><Account>1</Account>"
                             b"</GetCallerIdentityResult></GetCallerIdentityResponse>")
        if action == "AssumeRoleWithWebIdentity" and self.roles.get(form["WebIdentityToken"]) != form["RoleArn"]:
            return 400, {}, self.error("InvalidIdentityToken")
        keys = Keys(token=True)
        self.given.append(keys)
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.life)
        return 200, {}, (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
            f"<AccessKeyId>{keys.id}</AccessKeyId><SecretAccessKey>{keys.secret}</SecretAccessKey>"
            f"<SessionToken>{keys.token}</SessionToken><Expiration>{end:%Y-%m-%dT%H:%M:%SZ}</Expiration></Credentials>"
            f"</{action}Result></{action}Response>").encode()


class Container:
    """http://127.0.0.1:PORT/creds, as a container finds it, for who brings `token`."""

    def __init__(self, keys: Keys, token: str):
        self.keys, self.token, self.life, self.asked, self.status = keys, token, 3600, [], 200
        container = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                container.asked.append((self.path, self.headers.get("Authorization")))
                end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=container.life)
                k = container.keys
                right = self.headers.get("Authorization") == container.token and self.path == "/creds"
                body = json.dumps({"AccessKeyId": k.id, "SecretAccessKey": k.secret, "Token": k.token,
                                   "Expiration": f"{end:%Y-%m-%dT%H:%M:%SZ}"}).encode() if right else b"{}"
                self.send_response(container.status if right else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def client(stile, aws: Aws, service: str, **more):
    """botocore in the sandbox: keys that are good for nothing, and the proxy."""
    session = botocore.session.Session()
    session.set_credentials("AKIADUMMY", "dummy", "dummy-token")
    config = {"proxies": {"https": f"http://127.0.0.1:{stile.port}"}, "retries": {"total_max_attempts": 1},
              "s3": {"addressing_style": "path", **more.pop("s3", {})}, **more}
    return session.create_client(service, region_name=REGION, endpoint_url=f"https://origin.test:{aws.port}",
                                 verify=str(stile.ca), config=botocore.config.Config(**config))


@contextlib.contextmanager
def standing(*things):
    try:
        yield things
    finally:
        for t in things:
            t.stop()
