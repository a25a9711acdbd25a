"""Answers that break RFC 9110 or 9112. `BAD`: kind -> the bytes an origin sends for /bad/KIND; each of
them must become a 502 (or, once part of it was passed on, a cut that cannot be taken for an end).
`ODD`: kind -> bytes that look odd and are right, with the body a client must get."""

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

# Refused before any byte of the answer is passed on.
BAD_HEADS = {
    "two-lengths-differ": OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two-lengths-equal": OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "length-list": OK + b"Content-Length: 3, 3\r\n\r\nabc",
    "length-empty": OK + b"Content-Length:\r\n\r\n",
    "length-plus": OK + b"Content-Length: +3\r\n\r\nabc",
    "length-minus": OK + b"Content-Length: -1\r\n\r\n",
    "length-hex": OK + b"Content-Length: 0x3\r\n\r\nabc",
    "length-huge": OK + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "length-space": OK + b"Content-Length: 3 3\r\n\r\nabc",
    "length-and-chunked": OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding-gzip": OK + b"Transfer-Encoding: gzip\r\n\r\nx",
    "coding-gzip-chunked": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding-chunked-twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding-xchunked": OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "coding-identity": OK + b"Transfer-Encoding: identity\r\n\r\nx",
    "coding-in-1.0": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "obs-fold": OK + b"X-A: 1\r\n 2\r\nContent-Length: 0\r\n\r\n",
    "bare-lf-status": b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
    "bare-lf-field": OK + b"X-A: 1\nContent-Length: 0\r\n\r\n",
    "bare-lf-all": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "bare-cr": OK + b"X-A: 1\rX-B: 2\r\nContent-Length: 0\r\n\r\n",
    "nul-value": OK + b"X-A: 1\x002\r\nContent-Length: 0\r\n\r\n",
    "nul-name": OK + b"X\x00A: 1\r\nContent-Length: 0\r\n\r\n",
    "space-before-colon": OK + b"Content-Length : 0\r\n\r\n",
    "empty-name": OK + b": 1\r\nContent-Length: 0\r\n\r\n",
    "space-in-name": OK + b"X A: 1\r\nContent-Length: 0\r\n\r\n",
    "no-colon": OK + b"X-A\r\nContent-Length: 0\r\n\r\n",
    "leading-space-field": OK + b" X-A: 1\r\nContent-Length: 0\r\n\r\n",
    "status-two-digits": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "status-four-digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "status-zero": b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
    "status-600": b"HTTP/1.1 600 OK\r\nContent-Length: 0\r\n\r\n",
    "status-letters": b"HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n",
    "version-2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "version-0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "version-lower": b"http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "version-1.10": b"HTTP/1.10 200 OK\r\nContent-Length: 0\r\n\r\n",
    "not-http": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "http-0.9": b"<html>hello</html>",
    "blank-lines-first": b"\r\n" * 64 + OK + b"Content-Length: 0\r\n\r\n",
    "head-too-large": OK + b"X-A: " + b"a" * 70000 + b"\r\n\r\n",
    "too-many-fields": OK + b"a: b\r\n" * 2000 + b"\r\n",
    "name-too-long": OK + b"a" * 70000 + b": 1\r\n\r\n",
    "many-interims": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100 + OK + b"Content-Length: 0\r\n\r\n",
    "interim-with-length": b"HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\n\r\nabc" + OK + b"Content-Length: 0\r\n\r\n",
    "switching-unasked": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nraw",
    "nothing": b"",
    "half-a-head": OK + b"Content-Le",
}

# The head is fine and the body is not: the client must see that it is not whole.
BAD_BODIES = {
    "short-body": OK + b"Content-Length: 10\r\n\r\nabc",
    "chunk-size-sign": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "chunk-size-minus": CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
    "chunk-size-0x": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk-size-blank": CHUNKED + b" 3\r\nabc\r\n0\r\n\r\n",
    "chunk-size-empty": CHUNKED + b"\r\nabc\r\n0\r\n\r\n",
    "chunk-size-overflow": CHUNKED + b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "chunk-size-letters": CHUNKED + b"zz\r\nabc\r\n0\r\n\r\n",
    "chunk-line-lf": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "chunk-data-lf": CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    "chunk-data-unended": CHUNKED + b"3\r\nabc0\r\n\r\n",
    "chunk-line-cr": CHUNKED + b"3\rabc\r\n0\r\n\r\n",
    "chunk-ext-lf": CHUNKED + b"3;\nxx\r\nabc\r\n0\r\n\r\n",
    "chunk-ext-huge": CHUNKED + b"3" + b";a" * 16384 + b"\r\nabc\r\n0\r\n\r\n",
    "chunk-last-missing": CHUNKED + b"3\r\nabc\r\n",
    "chunk-cut": CHUNKED + b"9\r\nabc",
    "chunk-end-cut": CHUNKED + b"3\r\nabc\r\n0\r\n",
    "trailer-fold": CHUNKED + b"3\r\nabc\r\n0\r\nX-A: 1\r\n 2\r\n\r\n",
    "trailer-bare-lf": CHUNKED + b"3\r\nabc\r\n0\r\nX-A: 1\n\r\n",
    "trailer-huge": CHUNKED + b"3\r\nabc\r\n0\r\nX-A: " + b"a" * 70000 + b"\r\n\r\n",
}

BAD = {**BAD_HEADS, **BAD_BODIES}

ODD = {
    "no-reason": (b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok", b"ok"),
    "coding-case": (OK + b"Transfer-Encoding: CHUNKED \t\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"ok"),
    "chunk-extension": (CHUNKED + b"2;a=b;c=\"d\"\r\nok\r\n0\r\n\r\n", b"ok"),
    "chunk-upper-hex": (CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789"),
    "chunk-leading-zeros": (CHUNKED + b"0002\r\nok\r\n000\r\n\r\n", b"ok"),
    "length-leading-zeros": (OK + b"Content-Length: 002\r\n\r\nok", b"ok"),
    "hints-first": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nok", b"ok"),
    "until-close": (OK + b"\r\nok", b"ok"),
    "http-1.0": (b"HTTP/1.0 200 OK\r\n\r\nok", b"ok"),
    "latin-1-value": (OK + b"X-A: \xe9\r\nContent-Length: 2\r\n\r\nok", b"ok"),
}

# Heads that claim a body where there is none (RFC 9112 section 6.3, rule 1).
NO_BODY = {
    "304-chunked": b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n",
    "304-length": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\n\r\n",
    "304-with-body": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\nabc",
    "204-length": b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
    "204-with-body": b"HTTP/1.1 204 No Content\r\n\r\nabc",
    "204-chunked": b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
    "head-chunked": OK + b"Transfer-Encoding: chunked\r\n\r\n",
    "head-length": OK + b"Content-Length: 1234\r\n\r\n",
    "head-with-body": OK + b"Content-Length: 3\r\n\r\nabc",
}

# More bytes than the framing has: the answer is whole, the connection is not to be used again.
EXTRA = {
    "long-body": (OK + b"Content-Length: 2\r\n\r\nok" + OK + b"Content-Length: 6\r\n\r\nforged", b"ok"),
    "long-chunked": (CHUNKED + b"2\r\nok\r\n0\r\n\r\n" + OK + b"Content-Length: 6\r\n\r\nforged", b"ok"),
}
