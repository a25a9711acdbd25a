"""gRPC through inspection: the four kinds of calls, a rule by /package.Service/Method, a denial in its own words."""

import os
import subprocess
import sys
from concurrent import futures

import pytest

grpc = pytest.importorskip("grpc", reason="python3-grpcio is not installed")

from stilelib import TIMEOUT, allow


class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        method = details.method.rsplit("/", 1)[1]
        return {
            "Unary": grpc.unary_unary_rpc_method_handler(lambda q, c: b"unary " + q),
            "Server": grpc.unary_stream_rpc_method_handler(lambda q, c: (b"%d" % i * 1000 for i in range(100))),
            "Client": grpc.stream_unary_rpc_method_handler(lambda qs, c: b"%d" % sum(map(len, qs))),
            "Both": grpc.stream_stream_rpc_method_handler(lambda qs, c: (b"re " + q for q in qs)),
            "Fails": grpc.unary_unary_rpc_method_handler(
                lambda q, c: c.abort(grpc.StatusCode.NOT_FOUND, "there is none")),
        }.get(method)


@pytest.fixture
def port(origin):
    server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((Handlers(),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(
        [((origin.pki / "good.key").read_bytes(), (origin.pki / "good.pem").read_bytes())]))
    server.start()
    yield port
    server.stop(0).wait()


@pytest.fixture
def world(stile, port):
    return stile(rules=[allow(f"https://origin.test:{port}/package.Service/*"),
                        {"deny": [f"https://origin.test:{port}/package.Service/Secret"]}])


@pytest.fixture
def channel(world, port):
    with grpc.secure_channel(f"origin.test:{port}", grpc.ssl_channel_credentials(world.ca.read_bytes()), options=[
            ("grpc.http_proxy", f"http://127.0.0.1:{world.port}")]) as c:
        yield c


def test_unary(world, channel):
    assert channel.unary_unary("/package.Service/Unary")(b"x" * 100_000, timeout=TIMEOUT) == b"unary " + b"x" * 100_000
    end = world.wait_record(event="request.end", path="/package.Service/Unary")
    assert (end["http"], end["method"], end["status"]) == ("2", "POST", 200)


def test_streams(channel):
    assert list(channel.unary_stream("/package.Service/Server")(b"", timeout=TIMEOUT)) == [b"%d" % i * 1000 for i in range(100)]
    assert channel.stream_unary("/package.Service/Client")(iter([b"x" * 50_000] * 40), timeout=TIMEOUT) == b"2000000"


def test_both_ways(channel):
    """Each message is answered before the next is sent: nothing waits for the end of a body."""
    answers = iter(())

    def questions():
        for i in range(20):
            yield b"%d" % i
            got.append(next(answers))

    got: list[bytes] = []
    answers = channel.stream_stream("/package.Service/Both")(questions(), timeout=TIMEOUT)
    try:
        for _ in iter(lambda: len(got) >= 20, True):
            pass
    finally:
        answers.cancel()
    assert got == [b"re %d" % i for i in range(20)]


def test_status_of_the_origin(channel):
    with pytest.raises(grpc.RpcError) as e:
        channel.unary_unary("/package.Service/Fails")(b"", timeout=TIMEOUT)
    assert (e.value.code(), e.value.details()) == (grpc.StatusCode.NOT_FOUND, "there is none")


@pytest.mark.parametrize("method, reason", [("/package.Service/Secret", "denied_by_rule"), ("/other.Service/Unary", "no_rule")])
def test_denial(world, channel, method, reason):
    with pytest.raises(grpc.RpcError) as e:
        channel.unary_unary(method)(b"x", timeout=TIMEOUT)
    assert e.value.code() == grpc.StatusCode.PERMISSION_DENIED and reason in e.value.details()
    assert world.wait_record(event="request.deny", path=method)["id"] in e.value.details()
    assert channel.unary_unary("/package.Service/Unary")(b"x", timeout=TIMEOUT) == b"unary x"


def test_origin_is_down(world, channel, port, stile):
    s = stile(rules=[allow("https://origin.test:1")])
    with grpc.secure_channel("origin.test:1", grpc.ssl_channel_credentials(s.ca.read_bytes()), options=[
            ("grpc.http_proxy", f"http://127.0.0.1:{s.port}")]) as c:
        with pytest.raises(grpc.RpcError) as e:
            c.unary_unary("/a.B/C")(b"", timeout=TIMEOUT)
    assert e.value.code() == grpc.StatusCode.UNAVAILABLE and "connect_refused" in e.value.details()
