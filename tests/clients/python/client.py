"""One HTTP library of Python behind a proxy: what is allowed, both ways and as a stream, and what a refusal looks like.
client.py LIBRARY BASE EVIL GATES: the origin, a host of no rule, the folder whose files let events go."""

import asyncio
import hashlib
import json
import os
import pathlib
import ssl
import sys
import uuid

LIBRARY, BASE, EVIL, GATES = sys.argv[1:]
DATA = os.urandom(5 << 20)
SUM = hashlib.sha256(DATA).hexdigest()
GATE = "python-" + uuid.uuid4().hex


def let_go(i: int) -> None:
    (pathlib.Path(GATES) / f"{GATE}.{i}").touch()


def events(parts) -> int:
    """Reads events, of which each is sent only when the one before was read."""
    seen, n = b"", 0
    let_go(0)
    for part in parts:
        seen += part
        while b"data: %d\n\n" % n in seen:
            n += 1
            let_go(n)
    return n


def check(get, post, stream) -> None:
    """get(url) -> (status, text); post(url, data) -> text; stream(url) -> parts of bytes."""
    for i in range(3):
        assert get(f"{BASE}/ok/{i}") == (200, f"ok /ok/{i}\n")
    assert json.loads(post(f"{BASE}/upload", DATA))["sha256"] == SUM
    assert events(stream(f"{BASE}/sse?n=3&gate={GATE}")) == 3
    status, why = get(f"{BASE}/no/a")
    assert status == 403 and json.loads(why)["reason"] == "denied_by_rule", why
    print(why)
    try:
        print("answered", *get(f"{EVIL}/x"))
    except Exception as e:
        print("failed", repr(e))


def with_urllib() -> None:
    import urllib.error
    import urllib.request

    def get(url):
        try:
            with urllib.request.urlopen(url) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def stream(url):
        with urllib.request.urlopen(url) as r:
            while part := r.read1(100):
                yield part

    check(get, lambda url, data: urllib.request.urlopen(url, data=data).read(), stream)


def with_requests(requests) -> None:
    with requests.Session() as s:
        check(lambda url: (lambda r: (r.status_code, r.text))(s.get(url)), lambda url, data: s.post(url, data=data).text,
              lambda url: s.get(url, stream=True).iter_content(None))


def with_httpx() -> None:
    import httpx

    def stream(url):
        with c.stream("GET", url) as r:
            yield from r.iter_bytes()

    with httpx.Client(http2=True, timeout=60) as c:
        version = c.get(f"{BASE}/ok/v").http_version
        assert version == "HTTP/2", version
        check(lambda url: (lambda r: (r.status_code, r.text))(c.get(url)), lambda url, data: c.post(url, content=data).text, stream)


async def with_aiohttp() -> None:
    import aiohttp

    context = ssl.create_default_context()
    async with aiohttp.ClientSession(trust_env=True, connector=aiohttp.TCPConnector(ssl=context)) as s:
        async def get(url):
            async with s.get(url) as r:
                return r.status, await r.text()

        got = await asyncio.gather(*(get(f"{BASE}/ok/{i}") for i in range(10)))
        assert got == [(200, f"ok /ok/{i}\n") for i in range(10)], got
        async with s.post(f"{BASE}/upload", data=DATA) as r:
            assert (await r.json())["sha256"] == SUM
        async with s.get(f"{BASE}/sse?n=3&gate={GATE}") as r:
            seen, n = b"", 0
            let_go(0)
            async for part in r.content.iter_any():
                seen += part
                while b"data: %d\n\n" % n in seen:
                    n += 1
                    let_go(n)
            assert n == 3
        status, why = await get(f"{BASE}/no/a")
        assert status == 403 and json.loads(why)["reason"] == "denied_by_rule", why
        print(why)
        try:
            print("answered", *await get(f"{EVIL}/x"))
        except aiohttp.ClientError as e:
            print("failed", repr(e))


if LIBRARY == "urllib":
    with_urllib()
elif LIBRARY == "requests":
    import requests
    with_requests(requests)
elif LIBRARY == "pip":
    from pip._vendor import requests  # as pip has it within itself
    with_requests(requests)
elif LIBRARY == "httpx":
    with_httpx()
elif LIBRARY == "aiohttp":
    asyncio.run(with_aiohttp())
else:
    sys.exit(f"no library {LIBRARY}")
