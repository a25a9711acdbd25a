"""What the clients know of each exchange, and when something was done to everybody at once."""

import collections
import time


class Entry:
    """One exchange (or tunnel) as its client saw it.

    outcome: ok; a reason of stile's own answer; cut (an answer that did not come whole); closed (no answer);
    hang; aborted (by the client, on purpose); status (an answer of the origin other than 200)."""

    __slots__ = ("rid", "kind", "expect", "outcome", "status", "sent", "got", "begun", "ended", "parent", "tunnel",
                 "posted", "success")

    def __init__(self, rid: str, kind: str, expect: frozenset):
        self.rid, self.kind, self.expect = rid, kind, expect
        self.outcome, self.status, self.sent, self.got = "", 0, 0, 0
        self.begun, self.ended = time.monotonic(), 0.0
        self.parent = ""       # the tunnel in which it went, opaque to stile
        self.tunnel = None     # of a tunnel: "tcp" or "pass"
        self.success = 200     # the status of an exchange that went well
        self.posted = False    # not idempotent, or with a body: never sent twice


class Windows:
    """Times during which others than the one concerned may be harmed, and how: a set of outcomes, or None for
    any. Whoever was under way within the time, or shortly after it, is excused."""

    def __init__(self, grace: float):
        self.grace, self.all = grace, []

    def open(self, effects: set | None) -> list:
        w = [time.monotonic(), None, effects]
        self.all.append(w)
        return w

    def close(self, w: list) -> None:
        w[1] = time.monotonic()

    def excuse(self, begun: float, ended: float, outcome: str) -> bool:
        for start, end, effects in self.all:
            if begun <= (end or ended) + self.grace and ended >= start and (effects is None or outcome in effects):
                return True
        return False

    def open_since(self, begun: float) -> bool:
        """Was any open at that time, or since?"""
        return any(end is None or end + self.grace >= begun for _, end, _ in self.all)

    def forget(self) -> None:
        self.all.clear()


class Ledger:
    """The entries of one round, and counts over all."""

    def __init__(self, grace: float):
        self.windows = Windows(grace)
        self.entries: dict[str, Entry] = {}
        self.number = 0
        self.kinds = collections.Counter()
        self.outcomes = collections.Counter()
        self.complaints: list[str] = []
        self.complained = 0

    def new(self, kind: str, expect=("ok",)) -> Entry:
        self.number += 1
        e = Entry(f"r{self.number:09d}", kind, frozenset(expect))
        self.entries[e.rid] = e
        return e

    def end(self, e: Entry, outcome: str) -> None:
        if e.outcome:
            return
        e.outcome, e.ended = outcome, time.monotonic()
        self.kinds[e.kind.split(" (")[0]] += 1
        self.outcomes[outcome] += 1
        if outcome not in e.expect and not self.windows.excuse(e.begun, e.ended, outcome):
            self.complain(f"{e.kind} {e.rid} ended with {outcome} (status {e.status}, sent {e.sent}, got {e.got}, "
                          f"after {e.ended - e.begun:.3f} s), expected {'/'.join(sorted(e.expect))}")

    def complain(self, text: str) -> None:
        self.complained += 1
        if len(self.complaints) < 200:
            self.complaints.append(text)
            print(f"soak: WRONG: {text}", flush=True)
