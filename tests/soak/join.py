"""Joins what the clients know (ledger.py), what the origin counted (its book) and what stile wrote: each exchange
must be told alike by all three."""

import collections
import json
import re

from ledger import Entry, Ledger

RID = re.compile(r"r\d{9}")
PAIRS = {"request.start": "request.end", "tunnel.start": "tunnel.end"}
MAY_BE_UNTOLD = {"log_unavailable", "overloaded", "shutting_down", "client_timeout", "malformed_request",
                 "version_unsupported", "not_tls", "client_closed"}


def brief(r: dict) -> dict:
    return {k: r[k] for k in ("time", "event", "id", "reason", "status", "bytes_out", "bytes_in", "ms", "error",
                              "error_detail") if k in r}


class Joined:
    """All records of one round."""

    def __init__(self, ledger: Ledger, ids: set):
        self.ledger, self.ids = ledger, ids  # ids: of the whole soak, hashed
        self.by_rid: dict[str, list[dict]] = collections.defaultdict(list)
        self.open: dict[str, dict] = {}
        self.book: dict[str, list[tuple]] = collections.defaultdict(list)
        self.conns: dict[str, tuple] = {}
        self.records, self.events, self.joined = 0, collections.Counter(), 0
        self.errors = collections.Counter()
        self.rushed = 0

    def wrong(self, text: str) -> None:
        self.ledger.complain(text)

    # the log

    def read_log(self, name: str, data: bytes) -> None:
        if data and not data.endswith(b"\n"):
            self.wrong(f"{name}: the last line is cut: {data[-200:]!r}")
        lines = data.split(b"\n")
        for number, line in enumerate(lines[:-1], 1):
            try:
                record = json.loads(line)
            except ValueError:
                self.wrong(f"{name}:{number}: no record: {line[:300]!r}")
                continue
            self.take(record, f"{name}:{number}")

    def take(self, r: dict, where: str) -> None:
        self.records += 1
        event = r["event"]
        self.events[event] += 1
        ident = r.get("id")
        if ident is None:
            if not event.startswith(("proxy.", "policy.")):
                self.wrong(f"{where}: a record without id: {r}")
            return
        if "internal_error" in (r.get("error"), r.get("reason")):
            self.internal(r, where)
        if event in PAIRS or event.endswith(".deny"):
            h = hash(ident)
            if h in self.ids:
                self.wrong(f"{where}: {event} of an id that was there before: {r}")
            self.ids.add(h)
        if event in PAIRS:
            self.open[ident] = r
        elif not event.endswith(".deny"):
            start = self.open.pop(ident, None)
            if start is None or PAIRS[start["event"]] != event:
                self.wrong(f"{where}: {event} without its start: {r}")
            else:
                self.same(start, r, where)
            if r.get("error"):
                self.errors[r["error"]] += 1
        elif r.get("reason"):
            self.errors[r["reason"]] += 1
        if r.get("host") == "rush.test":
            if event == "request.end" and "error" not in r and r["status"] == 200 and r["bytes_in"] == 100:
                self.rushed += 1
            return
        found = RID.search(r.get("path", "")) or RID.search(r.get("host", ""))
        if found:
            self.by_rid[found.group()].append(r)
        elif event in PAIRS:
            self.wrong(f"{where}: a {event} that no client asked for: {r}")

    def internal(self, r: dict, where: str) -> None:
        now_or_never = [w for w in self.ledger.windows.all if w[2] is None or "internal_error" in w[2]]
        if not now_or_never:
            self.wrong(f"{where}: an internal error: {r}")

    def same(self, start: dict, end: dict, where: str) -> None:
        for key in ("client", "listener", "method", "scheme", "host", "port", "path", "query", "rule_at", "policy",
                    "policy_version", "credential"):
            if start.get(key) != end.get(key):
                self.wrong(f"{where}: start and end differ in {key}: {start} {end}")

    # the origin's book

    def read_book(self, text: str) -> None:
        for line in text.splitlines():
            f = line.split("\t")
            if f[0] == "C":
                if f[1]:
                    self.conns[f[1]] = (int(f[2]), int(f[3]))
            else:
                self.book[f[0]].append((f[1], int(f[2]), int(f[3]), f[4] == "whole"))

    # all three

    def balance(self) -> bool:
        return not self.open

    def check(self) -> None:
        for ident, r in self.open.items():
            self.wrong(f"no end of {ident}: {r}")
        entries = self.ledger.entries
        for rid in self.by_rid:
            if rid not in entries:
                self.wrong(f"the log has {rid}, of which no client knows: {self.by_rid[rid]}")
        for rid in self.book:
            if rid not in entries:
                self.wrong(f"the origin was asked for {rid}, of which no client knows")
        for e in entries.values():
            if not e.outcome:
                self.wrong(f"{e.kind} {e.rid} has no outcome")
                continue
            self.joined += 1
            self.check_entry(e, self.by_rid.get(e.rid, []), self.book.get(e.rid, []))

    def check_entry(self, e: Entry, records: list[dict], arrivals: list[tuple]) -> None:
        events = [r["event"] for r in records]
        tell = (f"{e.kind} {e.rid} ({e.outcome} {e.status}, sent {e.sent}, got {e.got}): "
                f"log {[brief(r) for r in records]}, origin {arrivals}")
        if e.parent:
            if records:
                self.wrong(f"what went inside a tunnel is in the log: {tell}")
            if arrivals and "tunnel.start" not in [r["event"] for r in self.by_rid.get(e.parent, [])]:
                self.wrong(f"it came to the origin without a record: {tell}")
        else:
            if arrivals and "request.start" not in events:
                self.wrong(f"it came to the origin without a record: {tell}")
            if not self.told_right(e, records, events):
                self.wrong(f"the log tells it otherwise: {tell}")
        if len(arrivals) > (1 if e.posted else 2):
            self.wrong(f"sent too often: {tell}")
        if e.outcome == "ok" and not e.tunnel:
            # What was a WebSocket to its last byte can be hit afterwards.
            whole = [a for a in arrivals if a[3] or e.success == 101]
            if len(whole) != 1 or whole[0][1] != e.sent or whole[0][2] != e.got:
                self.wrong(f"the origin counted otherwise: {tell}")

    def told_right(self, e: Entry, records: list[dict], events: list[str]) -> bool:
        what = "tunnel" if e.tunnel else "request"
        pair = events == [f"{what}.start", f"{what}.end"]
        last = records[-1] if records else {}
        if e.outcome == "ok":
            # The last word of TLS may meet a socket that is closed already: a reset, after everything.
            # And a tunnel that its client has left can still be hit by what hits everybody.
            error, windows = last.get("error"), self.ledger.windows
            fine = error is None or (e.tunnel == "pass" and error in ("upstream_closed", "client_closed")) \
                or ((e.tunnel or e.success == 101) and (error in e.expect or
                                                        windows.excuse(e.begun, e.ended + windows.grace, error)))
            return pair and bool(fine) and self.bytes_right(e, last)
        if e.outcome in ("status", "cut"):
            if e.outcome == "cut" and pair and "error" not in last and "early" not in e.kind:
                return False
            return pair and (e.tunnel or last.get("status") == e.status)
        if e.outcome in ("closed", "hang", "aborted"):
            return not events or pair or (len(events) == 1 and events[0].endswith(".deny"))
        # A refusal of stile's.
        if not events:
            return e.outcome in MAY_BE_UNTOLD or not RID.search(e.rid) or "CONNECT" in e.kind or self.fixed_name(e)
        if pair:
            return last.get("error") == e.outcome and (e.tunnel or last.get("status") == e.status)
        return len(events) == 1 and events[0].endswith(".deny") and last["reason"] == e.outcome

    @staticmethod
    def fixed_name(e: Entry) -> bool:
        """Refused at a CONNECT to a name that does not carry the id."""
        return e.kind.startswith(("inspected", "client", "origin")) and not e.posted

    def bytes_right(self, e: Entry, end: dict) -> bool:
        if not e.tunnel:
            return end.get("status") == e.success and end["bytes_out"] == e.sent and end["bytes_in"] == e.got
        if e.tunnel == "pass":
            # What the client counts is within TLS.
            return (e.sent < end["bytes_out"] < e.sent * 1.05 + 16384 and e.got < end["bytes_in"] < e.got * 1.05 + 16384)
        return end["bytes_out"] == e.sent and end["bytes_in"] == e.got

    def check_tunnels(self) -> None:
        """Raw bytes of a tcp tunnel that ended well, as the origin's socket saw them."""
        for e in self.ledger.entries.values():
            if e.parent and e.rid in self.conns:
                t = self.ledger.entries[e.parent]
                if t.tunnel in ("tcp", "rev") and t.outcome == "ok" and self.conns[e.rid] != (t.sent, t.got):
                    self.wrong(f"{t.kind} {t.rid}: the origin's socket saw {self.conns[e.rid]}, the client "
                               f"{(t.sent, t.got)}")
