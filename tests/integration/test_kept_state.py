"""What a worker keeps from request to request (memory, texts of rules and origins, who calls, keys of connections) is
never to be seen: requests made at random get the same answer, reach the origin with the same head and body and leave
the same records, each on a connection of its own or all on a few, in whatever order."""

import json
import os
import random
import re

from canary import made_up, source
from stilelib import allow, chunked

RULES = 40  # more than a worker keeps the text of
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~.:;,@!$&'()*+="
NAMES = ["Accept", "User-Agent", "X-Foo", "X-Y", "Cookie", "Authorization", "X-Api-Key", "x.y!", "Range", "TE", "Via",
         "Referer", "If-None-Match", "Proxy-Authorization", "X-HTTP-Method-Override", "Accept-Language", "Upgrade"]
CREDENTIALS = {"one": "bearer", "two": "bearer", "field": {"header": "X-Api-Key"}, "query": {"query": "apikey"},
               "user": {"basic": "u"}}


def rules() -> list[dict]:
    out = []
    for i in range(RULES):
        rule = allow(f"https://origin.test:*/echo/{i}/**", f"http://origin.test:*/echo/{i}/**")
        if i % 2:
            rule = allow(f"https://origin.test:*/echo/{i}/**", credential=list(CREDENTIALS)[i // 2 % len(CREDENTIALS)])
        if i % 3 == 0:
            rule["name"] = f'rule {i} "{"n" * (i % 7 * 15)}\u00e4'
        if i % 5 == 0:
            rule["client_credentials"] = ["strip", "deny"][i // 5 % 2]
        if i % 7 == 0:
            rule["methods"] = ["GET", "POST"]
        out.append(rule)
    out += [{"deny": [f"http://origin.test:*/**/no{i}/**", f"https://origin.test:*/**/no{i}/**"]} for i in range(20)]
    return out


def text(r: random.Random, sizes, more: str = "") -> str:
    return "".join(r.choice(LETTERS + more) for _ in range(r.choice(sizes)))


def draw(r: random.Random, number: int) -> tuple[bool, str, str, bytes]:
    """(over TLS?, the method, what stands behind the authority, what stands behind Host)."""
    method = r.choice(["GET"] * 6 + ["POST"] * 3 + ["PUT", "DELETE", "OPTIONS", "PATCH", "FOO"])
    target = f"/echo/{r.randrange(RULES + 2)}/{number}"
    if r.random() < 0.15:
        target += f"/no{r.randrange(20)}/"
    if r.random() < 0.7:
        target += "/" + text(r, [1, 7, 15, 16, 17, 40, 900])
    target += r.choice([""] * 8 + ["%41%2f", "%c3%a4", "/..", "%zz", "[x]"])
    if r.random() < 0.5:
        target += "?" + "&".join(f"{r.choice(['a', 'token', 'userKey', 'x'])}={text(r, [0, 5, 30, 2500], '/?%41'[:2])}"
                                 for _ in range(r.randrange(4)))
    lines = [f"{r.choice(NAMES)}: {text(r, [0, 1, 8, 15, 16, 17, 90], ' ')}" for _ in range(r.choice([0, 1, 3, 8, 16, 40]))]
    if r.random() < 0.1:
        lines += ["TE: trailers", "Connection: TE"]
    if r.random() < 0.05:
        lines.append("X-Big: " + "b" * r.choice([1500, 2048, 5000]))
    if r.random() < 0.1:
        lines.append("Connection: " + r.choice(["close", "X-Foo", "TE", "Via, X-Y"]))
    body = b""
    if method in ("POST", "PUT", "PATCH"):
        data = text(r, [0, 1, 20, 3000]).encode()
        body = data if r.random() < 0.5 else chunked(data or b"x", b"y", trailers=r.choice([b"", b"X-Sum: 1\r\n"]))
        lines.append(f"Content-Length: {len(body)}" if body is data else "Transfer-Encoding: chunked")
        if r.random() < 0.1:
            lines.append("Expect: 100-continue")
    r.shuffle(lines)
    return r.random() < 0.5, method, target, "".join(x + "\r\n" for x in lines).encode() + b"\r\n" + body


class Asker:
    """Asks on a connection of its own for each request, or on one of each kind as long as it lasts."""

    def __init__(self, stile, keeps: bool):
        self.stile, self.keeps, self.kept = stile, keeps, {}

    def ask(self, secure: bool, method: str, target: str, rest: bytes):
        origin = self.stile.origin
        host = f"origin.test:{origin.tls if secure else origin.plain}"
        c = self.kept.pop(secure, None) or (self.stile.tunnel() if secure else self.stile.client())
        url = target if secure else f"http://{host}{target}"
        r = c.ask(f"{method} {url} HTTP/1.1\r\nHost: {host}\r\n".encode() + rest, method)
        if self.keeps and r.get("connection") != "close":
            self.kept[secure] = c
        else:
            c.close()
        said = re.sub(rb'"id":"\w{20}"', b"", r.body)
        if r.status == 200 and not r.get("proxy-status"):
            said = {k: v for k, v in r.json().items() if k not in ("connection", "request", "tls")}
        return r.status, r.reason, r.fields if isinstance(said, bytes) else None, said, r.trailers

    def close(self) -> None:
        for c in self.kept.values():
            c.close()


def seen(records: list[dict]) -> list[str]:
    """Without what differs by its nature. The upstream of a start is known when its connection was there; an echo has the
    connection's number in it."""
    out = []
    for r in records:
        if r["event"].startswith("request."):
            gone = {"time", "id", "client", "ms", "tls", "bytes_in"} | ({"upstream"} if r["event"] == "request.start" else set())
            out.append(json.dumps({k: v for k, v in r.items() if k not in gone}))
    return sorted(out)


def test_nothing_of_another_request(stile, tmp_path):
    credentials = {}
    for name, how in CREDENTIALS.items():
        path = source(tmp_path / name)
        path.write_text(made_up(name))
        os.chmod(path, 0o600)
        credentials[name] = {"from": {"file": str(path)}, "as": how}
    s = stile(rules=rules(), credentials=credentials, limits={"workers": 1})
    seed = int(os.environ.get("SEED") or random.randrange(1 << 30))
    r = random.Random(seed)
    asked = [draw(r, i) for i in range(400)]
    answers, records = [], []
    for keeps in (False, True):
        since, asker = s.mark(), Asker(s, keeps)
        order = r.sample(range(len(asked)), len(asked))
        got = {i: asker.ask(*asked[i]) for i in order}
        answers.append([got[i] for i in range(len(asked))])
        asker.close()
        s.settled()
        records.append(seen(s.records(since)))
    for a, alone, among in zip(asked, *answers):
        assert alone == among, f"seed {seed}: {a}"
    assert records[0] == records[1], f"seed {seed}"
    # Each rule stands on a line of its own, and is told by the path.
    told = {(r["path"].split("/")[2], r["rule_at"]) for r in s.records() if r.get("decision") == "allow"}
    assert len(told) == len({n for n, _ in told}) == len({at for _, at in told}) > RULES // 2, f"seed {seed}: {told}"
    statuses = [a[0] for a in answers[0]]
    assert statuses.count(200) > 100 and statuses.count(403) > 20, f"seed {seed}: {statuses}"
