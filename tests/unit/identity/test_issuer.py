"""The collector issues its own certificate from a CA, and has another one long before it expires."""

import asyncio
import logging
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hyperscout_collector.identity.certificates import CertificateError, ServerCertificates
from hyperscout_collector.identity.issuer import RENEW_BEFORE, VALID, CertificateIssuer
from hyperscout_collector.identity.x509 import not_after_s

NAMES = ("hyperscout-collector.hyperscout.svc", "localhost", "127.0.0.1", "fd00::7")
# TLS compares with the clock of this machine.
START = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)


class Desk:
    """An issuer, its CA and its clock."""

    def __init__(self, folder: Path, key: Any = None, days: int = 3650, *, identified: bool = True) -> None:
        self.now = START
        self.ca, self.ca_key = folder / "ca.crt", folder / "ca.key"
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.replace_ca(key, days, identified=identified)
        self.issuer = CertificateIssuer(
            self.ca, self.ca_key, NAMES, self.cert, self.key, now=lambda: self.now
        )

    def replace_ca(self, key: Any = None, days: int = 3650, *, identified: bool = True) -> None:
        key = key or ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hyperscout-ca")])
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(START - DAY)
            .not_valid_after(START + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        )
        if identified:  # any other identifier than the one that is derived from the key by default
            builder = builder.add_extension(x509.SubjectKeyIdentifier(b"0123456789"), critical=False)
        hashed = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        self.ca.write_bytes(builder.sign(key, hashed).public_bytes(serialization.Encoding.PEM))
        form = serialization.PrivateFormat.TraditionalOpenSSL  # as helm writes it
        if isinstance(key, ed25519.Ed25519PrivateKey):
            form = serialization.PrivateFormat.PKCS8
        pem = serialization.Encoding.PEM
        self.ca_key.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))

    def encrypt_key(self) -> None:
        key = serialization.load_pem_private_key(self.ca_key.read_bytes(), None)
        form, password = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
        self.ca_key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, password))

    def expires(self) -> datetime:
        return datetime.fromtimestamp(not_after_s(self.cert.read_bytes()), UTC)

    def handshake(self, name: str) -> None:
        """A client that trusts the CA and expects that name, in memory."""
        server_context = ServerCertificates(self.cert, self.key).context()
        client_context = ssl.create_default_context(cadata=self.ca.read_text())
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
        server = server_context.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        assert client.version() == "TLSv1.3"


@pytest.mark.parametrize("identified", [True, False])
@pytest.mark.parametrize("kind", ["ec", "rsa"])
def test_clients_that_trust_the_ca_accept_it(tmp_path: Path, kind: str, identified: bool) -> None:
    key = rsa.generate_private_key(65537, 2048) if kind == "rsa" else None
    desk = Desk(tmp_path, key, identified=identified)
    assert desk.issuer.check()
    for name in NAMES:
        desk.handshake(name)
    with pytest.raises(ssl.SSLCertVerificationError):
        desk.handshake("elsewhere.example")
    assert stat.S_IMODE(desk.key.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


@pytest.mark.parametrize(("is_client", "purpose"), [(True, "CLIENT_AUTH"), (False, "SERVER_AUTH")])
def test_a_certificate_has_one_purpose_and_the_given_uri(
    tmp_path: Path, *, is_client: bool, purpose: str
) -> None:
    desk, uri = Desk(tmp_path), "hyperscout://node/gpu-01"
    CertificateIssuer(desk.ca, desk.ca_key, [uri], desk.cert, desk.key, client=is_client).check()
    extensions = x509.load_pem_x509_certificate(desk.cert.read_bytes()).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [uri]
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        getattr(ExtendedKeyUsageOID, purpose)
    ]


def test_it_is_renewed_before_its_end_and_not_earlier(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.issuer.check()
    first, expires = desk.key.read_bytes(), desk.expires()
    assert expires == START + VALID
    desk.now = expires - RENEW_BEFORE - timedelta(seconds=1)
    assert not desk.issuer.check()
    assert desk.key.read_bytes() == first
    desk.now += timedelta(seconds=1)
    assert desk.issuer.check()
    assert desk.expires() == desk.now + VALID
    assert desk.key.read_bytes() != first, "a new key each time"
    assert not desk.issuer.check()


def test_another_ca_gives_another_certificate_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.issuer.check()
    desk.replace_ca()
    assert desk.issuer.check()
    desk.handshake("localhost")


def test_it_does_not_outlive_its_ca(tmp_path: Path) -> None:
    desk = Desk(tmp_path, days=6)
    desk.issuer.check()
    assert desk.expires() == START + 6 * DAY
    assert not desk.issuer.check(), "not renewed each minute"
    desk.now += 4 * DAY
    assert desk.issuer.check()


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda desk: desk.ca.unlink(), "No such file"),
        (
            lambda desk: desk.ca.write_text("-----BEGIN"),
            "not a CA and its key: MalformedFraming: expected PEM",
        ),
        (lambda desk: desk.ca_key.write_text(""), "not a CA and its key"),
        (lambda desk: desk.encrypt_key(), "private key is encrypted: expected PEM without a password"),
        (lambda desk: desk.replace_ca(ed25519.Ed25519PrivateKey.generate()), "expected an RSA or EC key"),
        (lambda desk: desk.ca_key.write_bytes(desk.other_key), "ca.key is not the key of"),
        (lambda desk: desk.replace_ca(days=0), "has expired: replace it"),
        (lambda desk: desk.cert.mkdir(), "cannot be issued"),
    ],
    ids=[
        "no CA",
        "no certificate",
        "no key",
        "a password",
        "another kind of key",
        "another's key",
        "expired",
        "no file",
    ],
)
def test_what_it_cannot_issue_from_is_named(tmp_path: Path, spoil: Any, named: str) -> None:
    desk: Any = Desk(tmp_path)
    desk.other_key = desk.ca_key.read_bytes()
    desk.replace_ca()
    spoil(desk)
    with pytest.raises(CertificateError, match=named):
        desk.issuer.check()


async def test_a_renewal_that_fails_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    desk.issuer.check()
    ca = desk.ca.read_bytes()
    steps = [lambda: desk.ca.write_text("no"), lambda: None, lambda: desk.ca.write_bytes(ca), lambda: None]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) > len(steps):
            raise asyncio.CancelledError
        steps[len(waits) - 1]()

    desk.now += VALID
    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        await desk.issuer.run(sleep)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "is not renewed" in errors[0].getMessage()
    assert desk.expires() == desk.now + VALID
    assert set(waits) == {60.0}
