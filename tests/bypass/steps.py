"""Cases that are more than one message: a list of steps, each a map. Its keys, in the order in which
they act:

    open         a connection to the proxy (`second` listener: 2)
    resolve      that name, of the stub DNS (setups with `{netns}`)
    dial         NAME:PORT or ADDRESS:PORT, without a proxy
    connect      CONNECT to that target; 200 is expected, unless `status` says otherwise
    setup        another configuration, and SIGHUP
    tls          a handshake: {name, fragment, trust: stile|origin}; `fails: true` when it must not come about
    hello        a raw ClientHello: {sni: [..], fragment, grease, padding, ...} (wire.client_hello)
    send         bytes
    sleep        seconds
    h2           as tls, with HTTP/2 inside from here on
    ask          a request (see http2/): {set, with, body, ..., stream}
    frames       as they are: [type, flags, stream, payload]
    goaway       the connection must end so, with that code
    lookup       a question to the stub DNS at {proxy2}, over UDP and TCP: {name or labels, type, rcode, address: the
                 text that it begins with, or none}; or `raw`, the message
    answer       the status that must come, with `reason`, `client_lacks`, `client_has`; HTTP/2: to the
                 request asked last, or to `stream`; `reset` for none but that
    closed       the connection must end, without an answer in HTTP
    zone         what DNS answers from now on
    chmod, file  the credential's file: a mode; new contents
    sandbox      {name, policy, listener, ttl_ms}: a token is made; {name} is it, {name_basic} as Basic has it
    revoke       the sandbox of that name
"""

import socket
import ssl
import struct
import time

import case as cases
import h2wire
import wire


def play(run) -> None:
    stack, o = run.stack, run.stack.origin
    o.greeting = run.bytes(run.case.get("greeting", ""))
    o.kind = run.case.get("certificate", "good")
    o.client_cert = run.case.get("client_certificate", False)
    stack.world.asked()
    mark = o.mark()
    try:
        for step in run.case["steps"]:
            one(run, step)
        run.close()
        run.check_records()
        run.check_origin(o.since(mark))
        names = stack.world.asked()
        if "questions" in run.expect:
            cases.expect(sorted(set(names)) == sorted(run.expect["questions"]), "questions to DNS",
                         run.expect["questions"], names)
        if "most_questions" in run.expect:
            cases.expect(len(names) <= run.expect["most_questions"], "questions to DNS", run.expect["most_questions"], names)
        conns = [c for c, _ in o.since(mark)]
        if "upstream" in run.expect:
            seen = [c.local[0].removeprefix("::ffff:") for c in conns]
            cases.expect(all(a in run.expect["upstream"] for a in seen), "addresses dialled", run.expect["upstream"], seen)
        if "sni" in run.expect:
            cases.expect([c.sni for c in conns] == cases.as_list(run.expect["sni"]), "SNI upstream", run.expect["sni"],
                         [c.sni for c in conns])
    finally:
        if any("setup" in s for s in run.case["steps"]):
            stack.reload(stack.name)
        for one_of_them in stack.admin({"do": "sandbox.list"})["sandboxes"] if run.tokens else []:
            stack.admin({"do": "sandbox.revoke", "sandbox": one_of_them["id"]})
        if any("file" in s or "chmod" in s for s in run.case["steps"]):
            write_secret(stack, stack.secret + "\n", 0o600)
            time.sleep(0.6)


def write_secret(stack, text: str | None, mode: int) -> None:
    path = stack.folder / "tok"
    path.unlink(missing_ok=True)
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
        path.chmod(mode)


def one(run, step: dict) -> None:
    stack = run.stack
    if "open" in step:
        run.place, run.position = "proxy", "first"
        run.connect()
    if "resolve" in step:
        run.addresses[step["resolve"]] = stack.world.inside.resolve(step["resolve"])
    if "setup" in step:
        stack.reload(step["setup"])
    if "dial" in step:
        run.place, run.position = "proxy", "first"
        run.dial(run.fill(step["dial"]))
    if "sandbox" in step:
        run.tokens[step["sandbox"]["name"]] = stack.admin({"do": "sandbox.new"} | step["sandbox"])["token"]
    if "revoke" in step:
        stack.admin({"do": "sandbox.revoke", "sandbox": step["revoke"]})
    if "file" in step:
        write_secret(stack, None if step["file"] is None else run.fill(step["file"]), step.get("chmod", 0o600))
        time.sleep(0.6)
    if "zone" in step:
        stack.world.dns.zone |= step["zone"]
        stack.world.dns.asked.clear()
    if "lookup" in step:
        lookup(run, step["lookup"])
    if "connect" in step:
        target = run.bytes(step["connect"])
        host = run.bytes(step.get("host", step["connect"]))
        run.send(b"CONNECT " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + run.bytes(step.get("fields", "")) +
                 b"\r\n" + run.bytes(step.get("behind", "")))
        check_answer(run, step, step.get("status", 200), connect=True)
    if "tls" in step:
        handshake(run, step["tls"] or {}, step.get("fails", False))
    if "h2" in step:
        handshake(run, (step["h2"] or {}) | {"h2": True}, False)
        run.start_h2()
    if "ask" in step:
        run.ask_h2(step["ask"] or {})
    for kind, flags, stream, payload in step.get("frames", []):
        run.send_raw(h2wire.frame(h2wire.TYPES.get(kind, kind), flags, stream, run.bytes(payload)))
    if "goaway" in step:
        run.check_goaway(step["goaway"])
    if "hello" in step:
        h = dict(step["hello"])
        fragment, cut = h.pop("fragment", 16384), h.pop("cut", None)
        for key in ("sni", "sni_again"):
            if h.get(key) is not None:
                h[key] = [run.bytes(n) for n in h[key]]
        h = {k: run.bytes(v) if isinstance(v, str) else v for k, v in h.items()}
        run.send(wire.records(wire.client_hello(**h), fragment)[:cut])
    if "send" in step:
        run.send(run.bytes(step["send"]))
    if "sleep" in step:
        time.sleep(step["sleep"])
    if "answer" in step:
        check_answer(run, step, step["answer"])
    if "closed" in step:
        cases.expect(run.read_end(step.get("within", 5)), "the connection", "closed", "open")
        cases.expect(b"HTTP/1." not in run.buffer, "what came before the end", "no answer in HTTP", run.buffer)
        cases.expect(run.bytes(step.get("alert", "")) in run.buffer, "the alert", step.get("alert"), run.buffer)


def lookup(run, q: dict) -> None:
    labels = [run.bytes(x) for x in q.get("labels", q.get("name", "").split("."))]
    name = b"".join(bytes([len(x)]) + x for x in labels if x) + b"\0"
    packet = b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + name + struct.pack("!HH", q.get("type", 1), 1)
    packet = run.bytes(q["raw"]) if "raw" in q else packet
    at = ("127.0.0.1", run.stack.ports[1])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u, socket.create_connection(at, 5) as t:
        u.settimeout(5)
        u.connect(at)
        run.clients |= {"%s:%d" % s.getsockname() for s in (u, t)}
        u.send(packet)
        answer = u.recv(4096)
        t.sendall(struct.pack("!H", len(packet)) + packet)
        over_tcp = t.makefile("rb").read(2 + len(answer))
    cases.expect(over_tcp[2:] == answer, "the answer over TCP", answer, over_tcp)
    cases.expect(answer[3] & 15 == q.get("rcode", 0), "the rcode", q.get("rcode", 0), answer)
    cases.expect(answer[:2] == packet[:2] and answer[2] & 0x80, "an answer", packet[:2], answer)
    if answer[5]:
        cases.expect(answer[12:12 + len(packet) - 12] == packet[12:], "the question in it", packet, answer)
    got = socket.inet_ntoa(answer[-4:]) if answer[7] else ""
    cases.expect(got.startswith(q.get("address", "")) and bool(got) == bool(q.get("address")), "the address", q.get("address"), got)


def check_answer(run, step: dict, status, connect: bool = False) -> None:
    if run.link:
        stream = step.get("stream", run.link.asked[-1] if run.link.asked else 1)
        a = run.link.wait(stream, run.more, step.get("within", 6))
        if status == "reset":
            cases.expect(stream in run.link.resets, "the stream", "reset", (a and a.status, run.link.goaway))
            return
    else:
        a = run.read_answer(step.get("within", 6), connect=connect)
    cases.expect(a is not None, "the answer", status, f"none (end: {run.eof}, read: {run.buffer[:200]!r})")
    cases.expect(a.status in cases.as_list(status), "status", status, (a.status, a.reason(), a.body[:300]))
    if "reason" in step:
        cases.expect(a.reason() in cases.as_list(step["reason"]), "reason", step["reason"], a.reason())
    for text in cases.as_list(step.get("client_lacks")):
        cases.expect(run.bytes(text) not in a.head + a.body, "the answer lacks", text, a.head + a.body[:500])
    for text in cases.as_list(step.get("client_has")):
        cases.expect(run.bytes(text) in a.head + a.body, "the answer has", text, a.head + a.body[:500])
    if a.status >= 400 and a.reason():
        run.answers.append(a)


def handshake(run, t: dict, fails: bool) -> None:
    trust = (run.stack.origin_trust if t.get("trust") == "origin" else
             run.stack.trust_h2 if t.get("h2") else run.stack.trust)
    try:
        run.start_tls(t.get("name", "allowed.test"), trust, t.get("fragment", 0))
        if t.get("no_context") is None and fails:
            run.sock.sendall(b"GET / HTTP/1.1\r\n")
            run.sock.recv(10)
    except (OSError, ssl.SSLError) as e:
        cases.expect(fails, "the handshake", "success", f"{type(e).__name__}: {e}")
        return
    cases.expect(not fails, "the handshake", "failure", "success")
