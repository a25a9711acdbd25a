"""Chromium without a screen, driven over a pipe in the DevTools protocol (so it opens no port), and an origin with a
page for it."""

import asyncio
import base64
import json
import os
import pathlib
import select
import ssl
import subprocess
import threading
import time

import aiohttp
from aiohttp import web

from stilelib import SLOWER

WAIT = 60 * SLOWER
# What would go out without being asked is switched off as far as there is a switch; the rest goes to the proxy.
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
         "--disable-default-apps", "--disable-dev-shm-usage", "--disable-breakpad", "--remote-debugging-pipe"]


class Gone(AssertionError):
    pass


class Chromium:
    """The browser with one page. `around(command)` may put something before the command: it keeps standard input and
    output."""

    def __init__(self, program: str, folder: pathlib.Path, env: dict[str, str], *flags: str, around=lambda command: command):
        self.errors = folder / "chromium.stderr"
        command = ["sh", "-c", 'exec "$@" 3<&0 4>&1 0</dev/null 1>&2', "sh", program, *FLAGS,
                   f"--user-data-dir={folder / 'profile'}", *flags, "about:blank"]
        self.proc = subprocess.Popen(around(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=open(self.errors, "wb"), cwd=folder, env=env, bufsize=0)
        self.count, self.buffer, self.session, self.events = 0, b"", None, []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.call("Page.enable")
        except BaseException:
            self.kill()
            raise

    def message(self, end: float) -> dict:
        while b"\0" not in self.buffer:
            if not select.select([self.proc.stdout], [], [], max(0, end - time.monotonic()))[0]:
                raise Gone(f"Chromium does not answer: {self.said()}")
            data = os.read(self.proc.stdout.fileno(), 1 << 16)
            if not data:
                raise Gone(f"Chromium has ended: {self.said()}")
            self.buffer += data
        one, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(one)

    def said(self) -> str:
        return self.errors.read_text(errors="replace")[-4000:]

    def call(self, method: str, **params) -> dict:
        self.count += 1
        order = {"id": self.count, "method": method, "params": params}
        if self.session:
            order["sessionId"] = self.session
        self.proc.stdin.write(json.dumps(order).encode() + b"\0")
        end = time.monotonic() + WAIT
        while (got := self.message(end)).get("id") != self.count:
            self.events.append(got)
        assert "error" not in got, got
        return got["result"]

    def open(self, url: str) -> str | None:
        """Goes there and waits until it is there; the browser's own error, if it shows that instead."""
        self.events.clear()
        error = self.call("Page.navigate", url=url).get("errorText")
        end = time.monotonic() + WAIT
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message(end))
        return error

    def evaluate(self, code: str):
        """The value of an expression in the page; what it promises is awaited."""
        got = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def text(self) -> str:
        return self.evaluate("document.body.innerText")

    def screenshot(self, path: pathlib.Path) -> bytes:
        data = base64.b64decode(self.call("Page.captureScreenshot")["data"])
        path.write_bytes(data)
        return data

    def kill(self) -> None:
        self.proc.kill()
        self.proc.wait()
        self.proc.stdin.close(), self.proc.stdout.close()

    def close(self) -> None:
        """As its user would; it writes its profile and ends."""
        try:
            self.session = None
            self.call("Browser.close")
            self.proc.wait(WAIT)
        finally:
            self.kill()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close() if kind is None else self.kill()


PAGE = """<!doctype html>
<title>page</title><link rel=stylesheet href=/style.css>
<h1>A page</h1><dl id=results></dl>
<script>
const other = new URLSearchParams(location.search).get("other");
async function said(what) {
  let text;
  try { text = String(await what()); } catch (e) { text = "error: " + e.name; }
  return text;
}
const tasks = {
  style: async () => getComputedStyle(document.querySelector("h1")).color,
  get: async () => (await fetch("/data")).text(),
  post: async () => (await fetch("/upload", {method: "POST", body: new Uint8Array(300000)})).text(),
  many: async () => (await Promise.all([...Array(30).keys()].map(i => fetch("/data?" + i)))).filter(r => r.ok).length,
  stream: async () => {
    const reader = (await fetch("/stream")).body.getReader();
    let n = 0;
    for (let r; !(r = await reader.read()).done;) n += r.value.length;
    return n;
  },
  events: () => new Promise((done, fail) => {
    const got = [], source = new EventSource("/events");
    source.onmessage = e => { got.push(e.data); if (got.length == 3) { source.close(); done(got); } };
    source.onerror = () => fail(new Error());
  }),
  socket: () => new Promise((done, fail) => {
    const got = [], s = new WebSocket(`wss://${location.host}/socket`);
    s.onopen = () => { s.send("text"); s.send(new Uint8Array(70000)); };
    s.onmessage = e => { got.push(typeof e.data == "string" ? e.data : e.data.size); if (got.length == 2) s.close(1000, "bye"); };
    s.onclose = e => done([...got, e.code]);
    s.onerror = () => fail(new Error());
  }),
  deniedGet: async () => { const r = await fetch("/no/data"); return r.status + " " + (await r.json()).reason; },
  deniedPost: async () => {
    const r = await fetch("/no/data", {method: "POST", body: new Uint8Array(3000000)});
    return r.status + " " + (await r.json()).reason;
  },
  deniedSocket: () => new Promise(done => { const s = new WebSocket(`wss://${location.host}/no/socket`); s.onclose = e => done(e.code); }),
  deniedEvents: () => new Promise(done => { const s = new EventSource("/no/events"); s.onerror = () => done(s.readyState); }),
  deniedHost: async () => (await fetch(other, {mode: "no-cors"})).type,
};
(async () => {
  for (const [name, task] of Object.entries(tasks)) {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name; dd.id = name; dd.textContent = await said(task);
    document.querySelector("#results").append(dt, dd);
  }
  document.title = "done";
})();
</script>
"""


class PageOrigin:
    """Serves PAGE and what it asks for, over TLS. `seen` is (method, path) of each request, in order."""

    def __init__(self, pki: pathlib.Path, host: str = "origin.test"):
        self.seen: list[tuple[str, str]] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "good.pem", pki / "good.key")
        self.loop = asyncio.new_event_loop()
        app = web.Application(client_max_size=1 << 24)
        app.router.add_get("/", self.page)
        app.router.add_get("/style.css", self.style)
        app.router.add_get("/data", self.data)
        app.router.add_post("/upload", self.upload)
        app.router.add_get("/stream", self.stream)
        app.router.add_get("/events", self.events)
        app.router.add_get("/socket", self.socket)
        app.on_response_prepare.append(self.note)
        self.runner = web.AppRunner(app, access_log=None)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.port = self.wait(self.start(context))
        self.url = f"https://{host}:{self.port}"

    async def start(self, context) -> int:
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=context, shutdown_timeout=1).start()
        return self.runner.addresses[0][1]

    async def end(self) -> None:
        await self.runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def wait(self, what):
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(WAIT)

    def stop(self) -> None:
        self.wait(self.end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT)
        self.loop.close()

    async def note(self, request, response) -> None:
        self.seen.append((request.method, request.path))

    async def page(self, _):
        return web.Response(text=PAGE, content_type="text/html")

    async def style(self, _):
        return web.Response(text="h1 { color: rgb(0, 100, 0) }", content_type="text/css")

    async def data(self, _):
        return web.Response(text="data of the origin")

    async def upload(self, request):
        return web.Response(text=f"{len(await request.read())} bytes")

    async def stream(self, request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(20):
            await answer.write(bytes(50_000))
        return answer

    async def events(self, request):
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for i in range(3):
            await answer.write(b"data: %d\n\n" % i)
        await asyncio.sleep(0.5)
        return answer

    async def socket(self, request):
        s = web.WebSocketResponse()
        await s.prepare(request)
        async for message in s:
            if message.type == aiohttp.WSMsgType.TEXT:
                await s.send_str("re " + message.data)
            elif message.type == aiohttp.WSMsgType.BINARY:
                await s.send_bytes(message.data)
        return s
