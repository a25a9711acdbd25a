#!/usr/bin/python3
"""A DNS server for the tests: UDP and TCP on loopback, scripted answers, a log of the questions.

    dns.py --zone ZONE.json --log QUESTIONS.jsonl [--bind ADDRESS] [--port N]

Prints one JSON line with its port. The zone maps a name to its types, and a type to what is answered
to the first question, the second, ... (the last entry stays):

    {"rebind.test": {"A": [["203.0.113.7"], ["127.0.0.1"]], "ttl": 0}}

An entry is a list of addresses, or an object: addresses, delay (ms), rcode (servfail, refused, ...),
cname, and the flags truncated (over UDP: ask again over TCP), drop (no answer), wrong_id, wrong_name.
A name without entry is NXDOMAIN, a type without entry an empty answer."""

import argparse
import ipaddress
import json
import os
import pathlib
import signal
import socket
import struct
import threading
import time

TYPES = {1: "A", 5: "CNAME", 28: "AAAA", 16: "TXT", 15: "MX", 65: "HTTPS"}
RCODES = {"noerror": 0, "formerr": 1, "servfail": 2, "nxdomain": 3, "notimp": 4, "refused": 5}


def encode_name(name: str) -> bytes:
    return b"".join(bytes([len(p)]) + p.encode() for p in name.rstrip(".").split(".") if p) + b"\0"


def decode_question(packet: bytes) -> tuple[str, int, bytes]:
    """The name, the type, and the question as it was sent."""
    labels, at = [], 12
    while n := packet[at]:
        labels.append(packet[at + 1:at + 1 + n].decode("latin-1"))
        at += 1 + n
    (qtype,) = struct.unpack_from("!H", packet, at + 1)
    return ".".join(labels), qtype, packet[12:at + 5]


def record(name: str, qtype: int, ttl: int, data: bytes) -> bytes:
    return encode_name(name) + struct.pack("!HHIH", qtype, 1, ttl, len(data)) + data


class Server:
    def __init__(self, zone: dict, log: pathlib.Path):
        self.zone = {k.lower(): v for k, v in zone.items()}
        self.log, self.lock, self.asked = open(log, "a", 1), threading.Lock(), {}

    def next_entry(self, name: str, qtype: str, tcp: bool) -> dict | None:
        with self.lock:
            self.log.write(json.dumps({"name": name, "type": qtype, "tcp": tcp, "time": time.monotonic()}) + "\n")
            types = self.zone.get(name.lower())
            if types is None:
                return None
            entries = types.get(qtype, [[]])
            key = (name.lower(), qtype)
            i = self.asked.get(key, 0)
            entry = entries[min(i, len(entries) - 1)]
            entry = dict(entry) if isinstance(entry, dict) else {"addresses": entry}
            if tcp or not entry.get("truncated"):  # the question over TCP belongs to the same entry
                self.asked[key] = i + 1
            entry.setdefault("ttl", types.get("ttl", 60))
            return entry

    def answer(self, packet: bytes, tcp: bool) -> bytes | None:
        name, number, question = decode_question(packet)
        qtype = TYPES.get(number, str(number))
        entry = self.next_entry(name, qtype, tcp)
        rcode, records, flags = 0, [], 0x8180
        if entry is None:
            rcode = 3
        else:
            time.sleep(entry.get("delay", 0) / 1000)
            if entry.get("drop"):
                return None
            rcode = RCODES[entry.get("rcode", "noerror")]
            owner = "other.invalid" if entry.get("wrong_name") else name
            if cname := entry.get("cname"):
                records.append(record(owner, 5, entry["ttl"], encode_name(cname)))
                owner = cname
            for a in entry.get("addresses", []):
                records.append(record(owner, number, entry["ttl"], ipaddress.ip_address(a).packed))
            if entry.get("truncated") and not tcp:
                flags, records = flags | 0x0200, []
        (ident,) = struct.unpack_from("!H", packet)
        if entry and entry.get("wrong_id"):
            ident ^= 0x5555
        return struct.pack("!HHHHHH", ident, flags | rcode, 1, len(records), 0, 0) + question + b"".join(records)

    def serve_udp(self, sock: socket.socket) -> None:
        while True:
            packet, peer = sock.recvfrom(4096)
            threading.Thread(target=self.reply_udp, args=(sock, packet, peer), daemon=True).start()

    def reply_udp(self, sock: socket.socket, packet: bytes, peer) -> None:
        if reply := self.answer(packet, False):
            sock.sendto(reply, peer)

    def serve_tcp(self, listener: socket.socket) -> None:
        while True:
            conn, _ = listener.accept()
            threading.Thread(target=self.reply_tcp, args=(conn,), daemon=True).start()

    def reply_tcp(self, conn: socket.socket) -> None:
        with conn, conn.makefile("rb") as f:
            while len(size := f.read(2)) == 2:
                reply = self.answer(f.read(struct.unpack("!H", size)[0]), True)
                if reply is None:
                    return
                conn.sendall(struct.pack("!H", len(reply)) + reply)


def open_both(address: str, port: int) -> tuple[socket.socket, socket.socket]:
    """UDP and TCP on the same port."""
    for _ in range(50):
        tcp = socket.create_server((address, port), backlog=128)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.bind((address, tcp.getsockname()[1]))
            return udp, tcp
        except OSError:
            tcp.close()
            udp.close()
    raise OSError("no port is free for both")


def start(zone: dict, log: pathlib.Path, address: str = "127.0.0.1", port: int = 0) -> int:
    """In this process, in threads; the port."""
    server = Server(zone, log)
    udp, tcp = open_both(address, port)
    threading.Thread(target=server.serve_udp, args=(udp,), daemon=True).start()
    threading.Thread(target=server.serve_tcp, args=(tcp,), daemon=True).start()
    return udp.getsockname()[1]


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--zone", type=pathlib.Path, required=True)
    p.add_argument("--log", type=pathlib.Path, required=True)
    p.add_argument("--bind", default="127.0.0.1")
    p.add_argument("--port", type=int, default=0)
    args = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(json.dumps({"port": start(json.loads(args.zone.read_text()), args.log, args.bind, args.port)}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
