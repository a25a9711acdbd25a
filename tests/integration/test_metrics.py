"""`metrics:`: what is counted is what was recorded, as a real reader of the format reads it; who asks wrongly, slowly or
too often is no trouble; and there is no name in it."""

import re
import socket
import time

import pytest

from adminlib import ADMIN, Sandbox
from stilelib import TIMEOUT, allow, check_refusal, default_rules, wait_for

parser = pytest.importorskip("prometheus_client.parser", reason="python3-prometheus-client is not installed")
METRICS = "metrics: 127.0.0.1:0"


@pytest.fixture
def counted(stile):
    def make(**settings):
        settings["extra"] = "\n".join(filter(None, (METRICS, settings.get("extra"))))
        s = stile(**settings)
        s.metrics = int(s.wait_stderr(r"metrics at http://127\.0\.0\.1:(\d+)/metrics").group(1))
        return s
    return make


def send(s, data, half_close=True):
    """All that comes back."""
    with socket.create_connection(("127.0.0.1", s.metrics), TIMEOUT) as c:
        c.sendall(data)
        got = b""
        while piece := c.recv(65536):
            got += piece
    return got


def text(s):
    head, _, body = send(s, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), head
    assert int(re.search(rb"Content-Length: (\d+)", head).group(1)) == len(body)
    return body.decode()


def read(s):
    """{(name, label values): number}; the parser refuses what is no such text."""
    got = {}
    for family in parser.text_string_to_metric_families(text(s)):
        assert family.documentation and family.type in ("gauge", "counter"), family
        for sample in family.samples:
            key = (sample.name.removeprefix("stile_"), *sample.labels.values())
            assert key not in got
            got[key] = sample.value
    return got


def test_what_is_counted_is_what_was_recorded(counted, origin):
    s = counted(rules=[*default_rules(), allow("http://evil.test:1/**", addresses=["127.0.0.0/8"])])
    assert read(s)["requests_total", "allow", ""] == 0
    for _ in range(3):
        assert s.get("/ok/a").status == 200
    assert s.tls_get("/ok/a").status == 200
    check_refusal(s.get("/no/a"), 403, "denied_by_rule")
    check_refusal(s.get("/ok/a", host="other.test"), 403, "no_rule")
    with s.client() as c:
        assert c.connect("other.test:443").status == 403
    with s.client() as c:
        assert c.ask(b"GET http://evil.test:1/x HTTP/1.1\r\nHost: evil.test:1\r\n\r\n").status == 502
    s.reload(good=False, rules=[{"allow": "x y"}])
    s.settled()
    records = s.records()

    def number(**want):
        return sum(all(r.get(k) == v for k, v in want.items()) for r in records)
    # All of it has come to the log by now; a worker counts right before.
    m = read(s)
    assert m["requests_total", "allow", ""] == number(event="request.start") == 5
    for event, name in (("request.deny", "requests_total"), ("tunnel.deny", "tunnels_total")):
        reasons = {r["reason"] for r in records if r["event"] == event}
        assert reasons == {k[2] for k in m if k[0] == name and k[1] == "deny"}
        for reason in reasons:
            assert m[name, "deny", reason] == number(event=event, reason=reason)
    assert m["errors_total", "connect_refused"] == number(event="request.end", error="connect_refused") == 1
    ends = [r for r in records if r["event"] in ("request.end", "tunnel.end")]
    assert m["bytes_total", "in"] == sum(r.get("bytes_in", 0) for r in ends) > 0
    assert m["bytes_total", "out"] == sum(r.get("bytes_out", 0) for r in ends)
    assert m["policy_loads_total",] == number(event="policy.load") and m["policy_rejects_total",] == 1
    assert m["healthy",] == m["log_available",] == 1 and m["build_info", "0.1.0"] == 1


def test_no_name_is_in_it(counted, canary, tmp_path):
    """Not of a host, a path, a policy, a sandbox, a credential; and no secret."""
    secret = tmp_path / "secret"
    secret.write_text(canary)
    secret.chmod(0o600)
    s = counted(extra=ADMIN, policies={"pol-name": [allow("https://origin.test:*/echo/**", credential="cred-name")]},
                credentials={"cred-name": {"from": {"file": str(secret)}, "as": "bearer"}},
                listen=[{"proxy": "127.0.0.1:0", "name": "listener-name", "tokens": "required"}])
    box = Sandbox(s, "pol-name", "--name", "sandbox-name")
    with s.client() as c:
        assert c.connect(f"origin.test:{s.origin.tls}", more=box.basic).status == 200
    check_refusal(s.get("/hidden-path", host="hidden-host.test", more=box.basic), 403, "no_rule")
    wait_for(lambda: ("credentials", "available") in read(s) and read(s)["credentials", "available"] == 1)
    got = text(s)
    assert 'stile_sandboxes 1\n' in got
    for word in (canary, box.token, "pol-name", "cred-name", "listener-name", "sandbox-name", "hidden", "origin.test"):
        assert word not in got


@pytest.mark.parametrize("request_bytes, status", [
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"404"), (b"GET /metricsx HTTP/1.1\r\nHost: x\r\n\r\n", b"404"),
    (b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n", b"200"), (b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"405"),
    (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200"), (b"\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
    (b"GET /metrics HTTP/1.1\nHost: x\n\n", None), (b"\x16\x03\x01\x00\x05hello", None), (b"GET /metrics\r\n\r\n", None),
    (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 9000, None)], ids=range(10))
def test_what_else_is_asked(counted, request_bytes, status):
    s = counted()
    try:
        got = send(s, request_bytes)
    except ConnectionResetError:
        got = b""
    assert (got.split(b" ", 2)[1] if got else None) == status, got
    if status and request_bytes.startswith(b"HEAD"):
        assert got.endswith(b"\r\n\r\n")
    assert read(s)["healthy",] == 1


def test_who_says_nothing_is_in_nobody_s_way_for_long(counted):
    s = counted()
    idle = [socket.create_connection(("127.0.0.1", s.metrics), TIMEOUT) for _ in range(100)]
    begun = time.monotonic()
    assert read(s)["healthy",] == 1, "behind those that were dropped"
    assert time.monotonic() - begun < 20, "13 times LIMIT_MS_ONESHOT_SILENT; LIMIT_MS_METRICS were 60 s"
    # And what the proxy is for did not wait for them.
    assert s.get("/ok/a").status == 200
    for c in idle:
        c.close()


def test_a_reload_does_not_move_it(counted):
    s = counted()
    record = s.reload(good=False, extra="metrics: 127.0.0.1:9")
    assert "`metrics` has changed (restart stile)" in record["error_detail"]
    assert read(s)["policy_rejects_total",] == 1


def test_an_address_that_is_taken(counted, stile):
    s = counted()
    other = stile(extra=f"metrics: 127.0.0.1:{s.metrics}", wait=False, exit_code=1, pairs=False)
    assert other.proc.wait(TIMEOUT) == 1
    other.wait_stderr(rf"metrics: listen on 127\.0\.0\.1 port {s.metrics}: Address already in use")
