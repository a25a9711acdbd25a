"""What a peer sends below HTTP and no library would: TLS's own messages without end, in any number and size. A few are
taken; more end that connection, with a record that says so, and nobody else's."""

import socket
import ssl

import pytest

from stilelib import Peer, Stile, allow
from tlslib import (ALERT, CERTIFICATE_REQUEST, CLIENT_HELLO, DATA, HANDSHAKE, HELLO_REQUEST, KEY_UPDATE,
                    NO_RENEGOTIATION, USER_CANCELED, Tls, message, ticket)

FEW, FLOOD = 20, 400
TOO_MANY = "too many TLS messages"
HELLO = message(CLIENT_HELLO, b"\x03\x03" + bytes(32) + b"\0\0\2\xc0\x2b\1\0")
ASK = message(CERTIFICATE_REQUEST, b"\x01a\0\x08\0\x0d\0\x04\0\x02\x04\x03")


def mixed(kind, *content):
    """A record of `kind`, and a KeyUpdate so that there are never many of one kind in a row."""
    return lambda t: t.record(kind, *content) + t.key_update()


def in_pieces(content):
    return lambda t: b"".join(t.record(HANDSHAKE, content[i:i + 1]) for i in range(len(content)))


BOTH = {
    "new keys": (13, lambda t: t.key_update()),
    "new keys both ways": (13, lambda t: t.key_update(True)),
    "alerts between": (13, mixed(ALERT, bytes([1, USER_CANCELED]))),
    "nothing between": (13, mixed(DATA, b"")),
    "padding between": (13, mixed(DATA, b"", 2000)),
    "new keys in pieces": (13, lambda t: in_pieces(message(KEY_UPDATE, b"\0"))(t) + (t.keys.update() or b"")),
}
NEW_HANDSHAKE = {
    "whole": (12, lambda t: t.record(HANDSHAKE, HELLO)),
    "in pieces": (12, in_pieces(HELLO)),
    "its length": (12, lambda t: t.record(HANDSHAKE, bytes([CLIENT_HELLO]) + (131000).to_bytes(3, "big"))),
}
OF_AN_ORIGIN = {
    **BOTH,
    "tickets": (13, lambda t: t.record(HANDSHAKE, ticket())),
    "tickets, many in a record": (13, lambda t: t.record(HANDSHAKE, b"".join(ticket() for _ in range(20)))),
    "large tickets": (13, lambda t: t.record(HANDSHAKE, ticket(16000))),
    "requests to begin": (12, lambda t: t.record(HANDSHAKE, message(HELLO_REQUEST, b""))),
    "requests to begin, in a record": (12, lambda t: t.record(HANDSHAKE, 50 * message(HELLO_REQUEST, b""))),
}
# These OpenSSL ends by itself.
OTHERS = {
    "alerts": (13, lambda t: t.alert(USER_CANCELED)),
    "alerts of 1.2": (12, lambda t: t.alert(NO_RENEGOTIATION)),
    "nothing": (13, lambda t: t.data(b"")),
    "nothing in 1.2": (12, lambda t: t.data(b"")),
    "padding": (13, lambda t: t.record(DATA, b"", 16000)),
    "new keys in 1.2": (12, lambda t: t.record(HANDSHAKE, message(KEY_UPDATE, b"\0"))),
    "a certificate is asked for": (13, lambda t: t.record(HANDSHAKE, ASK)),
}


def cases(those):
    return pytest.mark.parametrize("version, make", those.values(), ids=those.keys())


@pytest.fixture(scope="module")
def flooded_of_all(origin, tmp_path_factory):
    s = Stile(tmp_path_factory.mktemp("floods"), origin, rules=[allow("https://origin.test:*", "http://origin.test:*")],
              limits={"workers": 1})
    yield s
    s.finish()


@pytest.fixture
def flooded(flooded_of_all):
    return flooded_of_all.settled()


@pytest.fixture
def peer():
    with Peer() as p:
        yield p


def limited(context: ssl.SSLContext, version: int) -> ssl.SSLContext:
    if version == 12:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def client_of(s, port, version) -> Tls:
    c = s.client()
    assert c.connect(f"origin.test:{port}").status == 200
    return Tls(c.sock, limited(s.context(), version), "origin.test")


def origin_of(s, peer, version):
    """A request that waits for its answer: the client that made it, and the origin in our hands."""
    c = s.tunnel(peer.port)
    c.send(f"GET / HTTP/1.1\r\nHost: origin.test:{peer.port}\r\n\r\n".encode())
    context = limited(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), version)
    context.load_cert_chain(s.origin.pki / "good.pem", s.origin.pki / "good.key")
    context.num_tickets = 0  # ours are the first of its records
    t = Tls(peer.accept().sock, context, server=True)
    assert t.read().startswith(b"GET / ")
    return c, t


def flood(t: Tls, data: bytes) -> None:
    """Sends it, and waits for the end of the connection."""
    try:
        t.send(data)
        while t.sock.recv(65536):
            pass
    except ConnectionError:
        pass
    t.close()


def ended(s, since, **want) -> dict:
    """The record, and that others are served."""
    record = s.wait_record(since, **want)
    assert s.get("/echo").status == 200
    return record


@cases(BOTH)
def test_a_flood_of_a_client_ends(flooded, origin, version, make):
    since = flooded.mark()
    t = client_of(flooded, origin.tls, version)
    flood(t, b"".join(make(t) for _ in range(FLOOD)))
    assert TOO_MANY in ended(flooded, since, event="tunnel.deny", reason="client_tls_failed")["error_detail"]


@cases(NEW_HANDSHAKE)
def test_a_new_handshake_of_a_client_ends(flooded, origin, version, make):
    """Before OpenSSL gets ready for the whole of it."""
    since = flooded.mark()
    t = client_of(flooded, origin.tls, version)
    flood(t, make(t))
    record = ended(flooded, since, event="tunnel.deny", reason="client_tls_failed")
    assert "a new handshake within the old one" in record["error_detail"]


@cases(OF_AN_ORIGIN)
def test_a_flood_of_an_origin_ends(flooded, peer, version, make):
    since = flooded.mark()
    c, t = origin_of(flooded, peer, version)
    flood(t, b"".join(make(t) for _ in range(FLOOD)))
    assert c.response().status == 502
    assert TOO_MANY in ended(flooded, since, event="request.end", error="upstream_tls_failed")["error_detail"]
    c.close()


@cases(OTHERS)
def test_what_has_no_place_ends(flooded, origin, version, make):
    since = flooded.mark()
    t = client_of(flooded, origin.tls, version)
    flood(t, b"".join(make(t) for _ in range(FLOOD)))
    ended(flooded, since, event="tunnel.deny", reason="client_tls_failed")


def test_in_the_middle_of_a_request_it_is_said_too(flooded, origin):
    """The record of the request says that it was not an end as any other."""
    since = flooded.mark()
    t = client_of(flooded, origin.tls, 13)
    t.send(t.data(f"POST /echo HTTP/1.1\r\nHost: origin.test:{origin.tls}\r\nContent-Length: 100000\r\n\r\n".encode()))
    flooded.wait_record(since, event="request.start")
    flood(t, b"".join(t.data(b"a") + t.key_update() for _ in range(FLOOD)))
    assert TOO_MANY in ended(flooded, since, event="request.end", error="client_tls_failed")["error_detail"]


def test_a_pooled_connection_ends_as_well(flooded, peer):
    since = flooded.mark()
    c, t = origin_of(flooded, peer, 13)
    t.send(t.data(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    assert c.response().body == b"ok"
    flooded.wait_record(since, event="request.end")
    flood(t, b"".join(t.key_update(True) for _ in range(FLOOD)))  # returns when stile has closed it
    c.close()


@pytest.mark.parametrize("version", [12, 13])
def test_an_end_behind_the_handshake_is_said_to_be_that(flooded, origin, version):
    since = flooded.mark()
    t = client_of(flooded, origin.tls, version)
    t.sock.shutdown(socket.SHUT_WR)
    record = ended(flooded, since, event="tunnel.deny", reason="client_tls_failed")
    assert "cut the connection without a request" in record["error_detail"]
    t.close()


@pytest.mark.parametrize("kind", ["new keys", "new keys both ways"])
def test_a_few_of_a_client_are_taken(flooded, origin, kind):
    t = client_of(flooded, origin.tls, 13)
    t.send(b"".join(BOTH[kind][1](t) for _ in range(FEW)))
    t.send(t.data(f"GET /ok HTTP/1.1\r\nHost: origin.test:{origin.tls}\r\n\r\n".encode()))
    assert t.read().startswith(b"HTTP/1.1 200 ")
    t.close()


@pytest.mark.parametrize("kind", ["new keys", "new keys both ways", "tickets", "large tickets"])
def test_a_few_of_an_origin_are_taken(flooded, peer, kind):
    c, t = origin_of(flooded, peer, 13)
    t.send(b"".join(OF_AN_ORIGIN[kind][1](t) for _ in range(FEW)))
    t.send(t.data(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    assert c.response().body == b"ok"
    t.close()
    c.close()
