#!/usr/bin/python3
"""A throw-away PKI for the tests and the demo: one root, one intermediate, and a certificate for each
way in which an origin's TLS can be right or wrong.

    pki.py DIR [NAME]...        NAMEs and IP addresses are added to those of the good certificates

DIR then holds ca.pem (the root), and for each kind KIND.pem (the chain as it is sent) and KIND.key."""

import datetime
import ipaddress
import os
import pathlib
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAMES = ["origin.test", "*.origin.test", "other.test", "evil.test", "localhost", "127.0.0.1", "::1"]
DAY = datetime.timedelta(days=1)


class Issuer:
    """A certificate with its key; it may sign others."""

    def __init__(self, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey):
        self.cert, self.key = cert, key


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def key_usage(ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(digital_signature=not ca, key_cert_sign=ca, crl_sign=ca, content_commitment=False,
                         key_encipherment=False, data_encipherment=False, key_agreement=False,
                         encipher_only=False, decipher_only=False)


def make(name: str, issuer: Issuer | None = None, ca: bool = False, names: list[str] | None = None,
         begins: float = -1, days: float = 30, usage=ExtendedKeyUsageOID.SERVER_AUTH) -> Issuer:
    """A certificate; self-signed without an issuer. begins and days count from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    start = datetime.datetime.utcnow() + begins * DAY
    signer = issuer.key if issuer else key
    b = (x509.CertificateBuilder()
         .subject_name(common_name(name))
         .issuer_name(issuer.cert.subject if issuer else common_name(name))
         .public_key(key.public_key())
         .serial_number(x509.random_serial_number())
         .not_valid_before(start).not_valid_after(start + days * DAY)
         .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
         .add_extension(key_usage(ca), critical=True)
         .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
         .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
                        critical=False))
    if names:
        b = b.add_extension(x509.SubjectAlternativeName([general_name(n) for n in names]), critical=False)
    if not ca:
        b = b.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return Issuer(b.sign(signer, hashes.SHA256()), key)


def pem(*issuers: Issuer) -> bytes:
    return b"".join(i.cert.public_bytes(serialization.Encoding.PEM) for i in issuers)


def write(folder: pathlib.Path, kind: str, *chain: Issuer) -> None:
    (folder / f"{kind}.pem").write_bytes(pem(*chain))
    path = folder / f"{kind}.key"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(chain[0].key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                           serialization.NoEncryption()))


def make_all(folder: pathlib.Path, more_names: list[str] = []) -> None:
    """Everything that origin.py can serve."""
    folder.mkdir(parents=True, exist_ok=True)
    names = NAMES + [n for n in more_names if n not in NAMES]
    root = make("stile test root", ca=True)
    middle = make("stile test intermediate", root, ca=True)
    other = make("stile test stranger", ca=True)
    write(folder, "good", make("good", root, names=names))
    write(folder, "chained", make("chained", middle, names=names), middle)
    write(folder, "missing-intermediate", make("missing-intermediate", middle, names=names))
    write(folder, "expired", make("expired", root, names=names, begins=-10, days=9))
    write(folder, "not-yet-valid", make("not-yet-valid", root, names=names, begins=2))
    write(folder, "wrong-name", make("wrong-name", root, names=["wrong.example.com"]))
    write(folder, "no-san", make("origin.test", root))
    write(folder, "self-signed", make("self-signed", names=names))
    write(folder, "unknown-issuer", make("unknown-issuer", other, names=names))
    write(folder, "wrong-usage", make("wrong-usage", root, names=names, usage=ExtendedKeyUsageOID.CLIENT_AUTH))
    write(folder, "client", make("client", root, names=["client.test"], usage=ExtendedKeyUsageOID.CLIENT_AUTH))
    (folder / "ca.pem").write_bytes(pem(root))


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    make_all(pathlib.Path(sys.argv[1]), sys.argv[2:])
