"""Clients that keep asking while something else happens to the proxy."""

import threading

from stilelib import get


class Load:
    """n keep-alive clients, each with a connection (or a TLS tunnel) of its own, until the block ends. Then
    `done` is how many requests got their 200 and `failures` what else happened. A client whose connection was
    closed in good order between two requests opens another."""

    def __init__(self, stile, clients: int = 4, tls: int = 0, path: str = "/ok/load"):
        self.stile, self.path, self.stopping = stile, path, threading.Event()
        self.done, self.failures, self.lock = 0, [], threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(i >= clients,), daemon=True)
                        for i in range(clients + tls)]

    def open(self, tls: bool):
        return self.stile.tunnel() if tls else self.stile.client()

    def request(self, tls: bool) -> bytes:
        origin = self.stile.origin
        if tls:
            return get(self.path, host=f"origin.test:{origin.tls}")
        return get(f"http://origin.test:{origin.plain}{self.path}")

    def run(self, tls: bool) -> None:
        done = 0
        try:
            request, c = self.request(tls), self.open(tls)
            while not self.stopping.is_set():
                r = c.ask(request)
                assert r.status == 200 and r.whole, r
                done += 1
                if r.get("connection") == "close":
                    c.close()
                    c = self.open(tls)
            c.close()
        except (AssertionError, OSError) as e:
            with self.lock:
                self.failures.append(repr(e))
        with self.lock:
            self.done += done

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for t in self.threads:
            t.join()
