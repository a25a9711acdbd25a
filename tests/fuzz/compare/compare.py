#!/usr/bin/env python3
"""Compares our verdicts on HTTP/1 requests with those of Node's llhttp and of Python's h11.

compare.py VERDICTS [COUNT [SEED]]: makes COUNT connections' bytes out of templates and changes, has
all three read them, and prints a table of the classes of differences with an example of each. A class
where we accept what another refuses, or read something else, must be explained in EXPLAINED (and in
tests/fuzz/README.md); exit 1 if one is not.
"""
import collections
import json
import os
import random
import re
import struct
import subprocess
import sys

import h11

HERE = os.path.dirname(os.path.abspath(__file__))
H = b"Host: example.com\r\n"

TEMPLATES = [
    b"GET / HTTP/1.1\r\n" + H + b"\r\n",
    b"GET /a/b?c=d HTTP/1.1\r\n" + H + b"X-A: 1\r\nX-B: two words\r\nAccept: */*\r\n\r\n",
    b"HEAD http://example.com/a HTTP/1.1\r\n" + H + b"\r\n",
    b"GET / HTTP/1.0\r\n" + H + b"X-A: 1\r\n\r\n",
    b"POST /p HTTP/1.1\r\n" + H + b"Content-Length: 5\r\nX-A: 1\r\n\r\nhello",
    b"POST /p HTTP/1.0\r\n" + H + b"Content-Length: 5\r\n\r\nhello",
    b"POST /p HTTP/1.1\r\n" + H + b"Content-Length: 0\r\n\r\n",
    b"POST /p HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"POST /p HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
    b"3;ext=\"v\"\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-T: t\r\n\r\n",
    b"PUT /p HTTP/1.1\r\n" + H + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
    b"GET /ws HTTP/1.1\r\n" + H + b"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\r\n",
    b"DELETE /x HTTP/1.1\r\n" + H + b"Connection: close\r\n\r\n",
]
# What stands behind: a second request, which nobody may see in another place.
NEXT = b"GET /next HTTP/1.1\r\n" + H + b"\r\n"

PIECES = [
    b"\r", b"\n", b"\r\n", b"\n\n", b"\r\r\n", b"\0", b"\x01", b"\x0b", b"\x0c", b"\x7f", b"\x80", b"\xff",
    b"\xc3\xa9", b" ", b"\t", b"  ", b":", b";", b",", b"+", b"-", b"_", b"#", b"\\", b"%", b"%00", b"@",
    b"\"", b"(", b"0", b"00", b"0x", b"1", b"chunked", b"identity", b"gzip", b"\r\n ", b"\r\n\t", b"HTTP/1.1",
]
LINES = [
    b"Content-Length: 5", b"Content-Length: 6", b"Content-Length: 05", b"Content-Length: +5",
    b"Content-Length: 5, 5", b"Content-Length: 5 5", b"Content-Length: ", b"Content-Length: -1",
    b"Content-Length: 18446744073709551621", b"Content-Length : 5", b"Content-Length: 5a", b"Content-Length: 0x5",
    b"content-length: 5", b"Content_Length: 5", b"Transfer-Encoding: chunked", b"Transfer-Encoding: Chunked",
    b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, gzip",
    b"Transfer-Encoding: identity", b"Transfer-Encoding: ", b"Transfer-Encoding : chunked",
    b"Transfer-Encoding:chunked", b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: chunked;q=1",
    b"Transfer-Encoding: xchunked", b"Transfer-Encoding:\tchunked\t", b"Transfer-Encoding: \"chunked\"",
    b"Transfer_Encoding: chunked", b"Host: example.com", b"Host: other.test", b"Host: example.com:80",
    b"Host: EXAMPLE.com.", b"Host:", b"Host : example.com", b"Connection: close", b"Connection: Content-Length",
    b"Connection: Transfer-Encoding", b"Connection: upgrade", b"Upgrade: websocket", b"Upgrade: h2c",
    b"Expect: 100-continue", b"Expect: nothing", b"X-A", b"X-A ", b": x", b" X-A: folded", b"\tX-A: folded",
    b"X A: 1", b"X-A: a\rb", b"X-A: a\0b", b"X-\xe9: 1", b"X-A: \xe9", b"X-A:", b"X-A:   ", b"X-(A): 1",
    b"X-A: " + b"a" * 9000, b"TE: trailers, chunked", b"Keep-Alive: timeout=5", b"Proxy-Connection: close",
    b"HTTP2-Settings: AAA", b"Trailer: Content-Length", b"Cookie: a=b",
]
VERSIONS = [b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"HTTP/1.10", b"HTTP/01.1",
            b"HTTP/1,1", b"HTTP /1.1", b"ICE/1.0", b"RTSP/1.0", b"HTTP/1", b"", b"HTTP/1.1 "]
METHODS = [b"get", b"GET ", b" GET", b"G\tET", b"FOO", b"GE(T", b"", b"TRACE", b"CONNECT", b"PRI", b"M-SEARCH", b"PROPFIND",
           b"QUERY", b"X" * 40]
TARGETS = [b"*", b"", b"a", b"//a", b"http://other.test/", b"https://example.com/", b"http://example.com:81/", b"/a b",
           b"/a#b", b"/\xc3\xa9", b"/\\", b"/../x", b"/%2e%2e/x", b"/a%", b"/a%00", b"/<>\"{}|^`", b"example.com:80",
           b"http://u@example.com/", b"/a?b#", b"ftp://example.com/", b"/" + b"a" * 17000, b"/a\x0bb", b"/;x", b"/..;/x"]
CHUNKS = [b"5 \r\n", b" 5\r\n", b"+5\r\n", b"0x5\r\n", b"5\n", b"5\r", b"05\r\n", b"5;\r\n", b"5;a\r\n", b"5 ;a=b\r\n",
          b"5;a=\"\r\n\"\r\n", b"5;a\n\r\n", b"5;a\rb\r\n", b"5\t\r\n", b"-5\r\n", b"g\r\n", b"\r\n",
          b"00000000000000005\r\n", b"FFFFFFFFFFFFFFFF\r\n", b"10000000000000005\r\n", b"5_0\r\n", b"5\0\r\n",
          b"5;\x01\r\n", b"5;\xe9\r\n"]


def change(b, rnd):
    """One change of a request."""
    how = rnd.randrange(13)
    head, sep, body = b.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if how == 0:
        at = rnd.randrange(len(b) + 1)
        return b[:at] + rnd.choice(PIECES) + b[at:]
    if how == 1:
        at = rnd.randrange(len(b))
        return b[:at] + b[at + 1:]
    if how == 2:
        at = rnd.randrange(len(b))
        return b[:at] + rnd.choice(PIECES) + b[at + 1:]
    if how in (3, 4, 5):
        lines.insert(rnd.randrange(1, len(lines) + 1), rnd.choice(LINES))
    elif how == 6:
        lines[rnd.randrange(min(1, len(lines) - 1), len(lines))] = rnd.choice(LINES)
    elif how == 7:
        at = rnd.randrange(len(lines))
        lines.insert(at, lines[at])
    elif how == 8:
        first = lines[0].split(b" ")
        first[0] = rnd.choice(METHODS)
        lines[0] = b" ".join(first)
    elif how == 9:
        first = lines[0].split(b" ")
        first[1 if len(first) > 1 else 0] = rnd.choice(TARGETS)
        lines[0] = b" ".join(first)
    elif how == 10:
        first = lines[0].split(b" ")
        first[-1] = rnd.choice(VERSIONS)
        lines[0] = b" ".join(first)
    elif how == 11:
        return re.sub(rb"(?m)^[0-9A]+(;[^\r]*)?\r\n", lambda m: rnd.choice(CHUNKS), body, count=1).join([head + sep, b""])
    else:
        at = b.find(b"\r\n", rnd.randrange(len(b)))
        if at >= 0:
            return b[:at] + rnd.choice([b"\n", b"\r", b"\r\r\n", b"\n\r", b" \r\n", b"\0\r\n", b""]) + b[at + 2:]
    return b"\r\n".join(lines) + sep + body


def inputs(count, seed):
    rnd = random.Random(seed)
    out = list(TEMPLATES)
    while len(out) < count:
        b = rnd.choice(TEMPLATES)
        for _ in range(1 if rnd.random() < 0.7 else 2):
            b = change(b, rnd) or b
        out.append(b + NEXT if rnd.random() < 0.7 else b)
    return out


def framed(conns):
    return b"".join(struct.pack(">I", len(b)) + b for b in conns)


def run(argv, data):
    out = subprocess.run(argv, input=data, stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in out.decode("utf-8").splitlines()]


def read_h11(b):
    """The same for h11, which is a parser without a connection."""
    c = h11.Connection(h11.SERVER)
    requests, end, why = [], "whole", ""
    try:
        c.receive_data(b)
        while True:
            event = c.next_event()
            if isinstance(event, h11.Request):
                now = {"method": event.method.decode("latin-1"), "target": event.target.decode("latin-1"), "body": b"",
                       "fields": [x.decode("latin-1") for pair in event.headers.raw_items() for x in pair]}
            elif isinstance(event, h11.Data):
                now["body"] += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                now["body"] = now["body"].decode("latin-1")
                requests.append(now)
                if now["method"] == "CONNECT":
                    end = "closed"
                    break
                c.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                c.send(h11.EndOfMessage())
                if c.our_state is h11.MUST_CLOSE:
                    end = "closed"
                    break
                c.start_next_cycle()
            elif event is h11.NEED_DATA:
                end = "more" if c.trailing_data[0] or c.their_state is not h11.IDLE else "whole"
                break
            else:
                end = "closed"
                break
    except h11.RemoteProtocolError as e:
        end, why = "refused", re.sub(r"b?(['\"]).*\1|bytearray.*", "...", str(e))
    return {"requests": requests, "end": end, "why": why}


def shown(text):
    """A value of our JSON or of latin-1 text, in one spelling."""
    return re.sub(r"[^ -~]|\\x[0-9a-f]{2}", "?", text.encode("latin-1", "replace").decode("latin-1"))


def squeeze(text):
    return re.sub(r"\?+", "?", shown(text))


def same(a, b):
    if a["method"] != b["method"] or squeeze(a["target"]) != squeeze(b["target"]):
        return "method or target"
    if squeeze(a["body"]) != squeeze(b["body"]):
        return "body"
    # Fields of the hop are not in ours; those of X- are, unless Connection names them.
    mine, theirs = ([(n.lower(), squeeze(v).strip()) for n, v in zip(x["fields"][::2], x["fields"][1::2])
                     if n.lower() in ("x-a", "x-b", "accept")] for x in (a, b))
    return "" if mine == theirs else "fields"


def classify(ours, theirs, conn):
    """(what, our word, their word) of the first difference; None if there is none that counts."""
    for i in range(max(len(ours["requests"]), len(theirs["requests"])) + 1):
        mine = ours["requests"][i] if i < len(ours["requests"]) else None
        other = theirs["requests"][i] if i < len(theirs["requests"]) else None
        if mine and other:
            what = same(mine, other)
            if what:
                return ("read differently", what, "")
            continue
        if mine:
            word = {"refused": "they refuse", "more": "they wait for more"}.get(theirs["end"], "they stop")
            return ("we accept", word, normal(theirs["why"]) + ": " + detail(mine, i == 0, conn, theirs["why"]))
        if other:
            if ours["end"] == "closed":
                return None
            word = {"refused": "we refuse", "more": "we wait for more"}.get(ours["end"], "we stop")
            return (word, ours["why"], "")
        break
    ends = (ours["end"], theirs["end"])
    if ends == ("refused", "more") or ends == ("more", "refused"):
        # Neither has anything to act on yet: one sees the fault sooner.
        return ("sooner or later", "we" if ends[0] == "refused" else "they", "")
    return None


def normal(text):
    """Messages without what varies."""
    text = re.sub(r"byte 0x[0-9a-f]{2} at \d+", "byte 0x.. at N", text)
    text = re.sub(r"0x[0-9a-f]{2}", "0x..", text)
    text = re.sub(r"at byte \d+", "at byte N", text)
    text = re.sub(r"the target names .*", "the target names another origin", text)
    text = re.sub(r"Host is .*", "Host is another", text)
    text = re.sub(r"\"[^\"]*\"$|in the value of .*", lambda m: "..." if m.group(0)[0] == "\"" else "in a value", text)
    text = re.sub(r"HTTP/\d\.\d in", "HTTP/N in", text)
    return re.sub(r"of \d+ bytes", "of N bytes", text)


# "parser: class" -> why that is right. No class where we accept or read more is without its reason;
# README.md says it at length.
EXPLAINED = {
    "llhttp: we accept: they refuse: HPE_INVALID_METHOD: a method that llhttp does not know": "methods are tokens",
    "llhttp: we accept: they refuse: HPE_CLOSED_CONNECTION: behind Proxy-Connection: close": "no field of HTTP; dropped",
    "llhttp: we accept: they refuse: HPE_INVALID_URL: bytes from 0x80 up in the target": "sent on as escapes",
    "llhttp: we accept: they refuse: HPE_STRICT: a chunk extension out of grammar": "white space around ; and =; dropped",
    "llhttp: we accept: they refuse: HPE_INVALID_CONTENT_LENGTH: a tab behind the number":
        "white space around a value; sent on without",
    "llhttp: we accept: they stop: : behind a request to upgrade": "not upgraded by us before the origin agrees",
    "llhttp: we accept: they refuse: HPE_HEADER_OVERFLOW: a head of more than 16 KiB": "bounds differ; ours is 64 KiB",
    "llhttp: we accept: they refuse: HPE_INVALID_TRANSFER_ENCODING: a tab behind chunked":
        "white space around a value; sent on without",
    "h11: we accept: they refuse: illegal request line: ...: bytes from 0x80 up in the target": "sent on as escapes",
    "h11: we accept: they refuse: no request line received: an empty line before a request":
        "forgiven (RFC 9112 section 2.2)",
}

NODE_METHODS = set(json.loads(subprocess.run(["node", "-p", "JSON.stringify(http.METHODS)"], stdout=subprocess.PIPE,
                                             check=True).stdout))


def detail(request, first, conn, why):
    """What about a request that we accept made another refuse it, as far as we know."""
    if why == "HPE_INVALID_METHOD" and request["method"] not in NODE_METHODS:
        return "a method that llhttp does not know"
    if "closed" in why.lower() and re.search(rb"(?mi)^proxy-connection: *close", conn):
        return "behind Proxy-Connection: close"
    if not why and re.search(rb"(?mi)^upgrade:", conn) and re.search(rb"(?mi)^connection:.*upgrade", conn):
        return "behind a request to upgrade"
    if re.search(r"[^ -~]|\\x", request["target"]):
        return "bytes from 0x80 up in the target"
    if why == "HPE_INVALID_CONTENT_LENGTH" and re.search(rb"(?i)content-length:[ \t]*\d+[ \t]*\t", conn):
        return "a tab behind the number"
    if why == "no request line received":  # h11's words for a head of no line at all
        return "an empty line before a request"
    if why == "HPE_HEADER_OVERFLOW" and len(conn) > 16384:
        return "a head of more than 16 KiB"
    if why == "HPE_STRICT" and re.search(rb"\r\n[0-9A-F]+;[^\r\n]*\r\n", conn):
        return "a chunk extension out of grammar"
    if why == "HPE_INVALID_TRANSFER_ENCODING" and re.search(rb"(?i)transfer-encoding:[ \t]*chunked[ \t]*\t", conn):
        return "a tab behind chunked"
    if conn.startswith(b"\r\n") if first else b"\r\n\r\n\r\n" in conn or conn.startswith(b"\r\n"):
        return "an empty line before a request"
    return "for another reason"


def main():
    verdicts = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 6000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    conns = inputs(count, seed)
    data = framed(conns)
    ours = run([verdicts], data)
    others = {"llhttp": run(["node", os.path.join(HERE, "node.js")], data), "h11": [read_h11(b) for b in conns]}
    bad = 0
    accepted = sum(1 for o in ours if o["requests"])
    print(f"{count} connections (seed {seed}); a first request accepted: ours {accepted}, "
          + ", ".join(f"{n} {sum(1 for o in v if o['requests'])}" for n, v in others.items()))
    for name, theirs in others.items():
        classes, example = collections.Counter(), {}
        for b, mine, other in zip(conns, ours, theirs):
            c = classify(mine, other, b)
            if c:
                key = (c[0], normal(c[1]), c[2])
                classes[key] += 1
                if key not in example or len(b) < len(example[key]):
                    example[key] = b
        print(f"\n{name}: {sum(classes.values())} differ, {len(classes)} classes")
        for key, n in sorted(classes.items(), key=lambda kv: (kv[0][0] != "read differently", kv[0][0] != "we accept",
                                                              kv[0][0], -kv[1])):
            what = ": ".join(k for k in key if k)
            why = EXPLAINED.get(f"{name}: {what}", "")
            if key[0] in ("read differently", "we accept", "we wait for more", "we stop") and not why:
                bad += 1
                why = "NOT EXPLAINED"
            print(f"{n:6} {what}" + (f"  [{why}]" if why else ""))
            if why == "NOT EXPLAINED" or os.environ.get("EXAMPLES"):
                print(f"         {example[key][:200]!r}")
    if bad:
        print(f"\n{bad} classes without an explanation")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
