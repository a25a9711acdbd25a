#!/usr/bin/python3
"""The DNS server of the soak: tests/origin/dns.py, with answers that the name asks for: ID.MODE.soak.test.

    names.py --log FILE

Prints its port as JSON; ends at SIGTERM. The modes that are to be answered honestly are HONEST, what the
others must lead to says EXPECTED (reasons of stile)."""

import argparse
import json
import os
import pathlib
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "origin"))
import dns  # noqa: E402

HERE = ["127.0.0.1"]
MODES = {
    "tcp": {"addresses": HERE}, "pass": {"addresses": HERE}, "rev": {"addresses": HERE},
    "plain": {"addresses": HERE},
    "slow": {"addresses": HERE, "delay": 200},
    "cut": {"addresses": HERE, "truncated": True},
    "alias": {"addresses": HERE, "cname": "alias.soak.test"},
    "mixed": {"addresses": ["10.1.2.3", "127.0.0.1"]},
    "private": {"addresses": ["10.1.2.3", "192.168.7.7"]},
    "meta": {"addresses": ["169.254.169.254"]},
    "wrongid": {"addresses": HERE, "wrong_id": True},
    "wrongname": {"addresses": HERE, "wrong_name": True},
    "drop": {"drop": True},
    "servfail": {"rcode": "servfail"},
    "nothing": {"addresses": []},
}
HONEST = ["plain", "slow", "cut", "alias", "mixed"]
EXPECTED = {
    "private": {"address_denied"}, "meta": {"address_denied"},
    "wrongid": {"dns_timeout", "dns_failed"}, "wrongname": {"dns_failed", "dns_timeout"},
    "drop": {"dns_timeout"}, "servfail": {"dns_failed", "dns_timeout"}, "nothing": {"dns_failed"},
}


class Server(dns.Server):
    """Its zone is MODES, whatever stands before the mode."""

    def next_entry(self, name: str, qtype: str, tcp: bool) -> dict | None:
        labels = name.lower().split(".")
        mode = MODES.get(labels[1]) if len(labels) == 4 and labels[2:] == ["soak", "test"] else None
        if mode is None:
            return None
        entry = dict(mode)
        if qtype != "A":
            entry["addresses"] = []
        entry.setdefault("ttl", 1)
        return entry


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--log", type=pathlib.Path, required=True)
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.stack_size(256 * 1024)
    server = Server({}, args.log)
    udp, tcp = dns.open_both("127.0.0.1", 0)
    threading.Thread(target=server.serve_udp, args=(udp,), daemon=True).start()
    threading.Thread(target=server.serve_tcp, args=(tcp,), daemon=True).start()
    print(json.dumps({"port": udp.getsockname()[1]}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
