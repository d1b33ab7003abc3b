"""Issues the collector's own certificate from a CA, and renews it long before it expires.

The Helm chart makes a CA in a Secret. Each replica issues its own certificate from it into files, which
`ServerCertificates` reads again at the next connection. So no controller has to renew a Secret, and the
collector needs no right to write one.
"""

import asyncio
import hashlib
import ipaddress
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from hyperscout_collector.identity.certificates import CertificateError

if TYPE_CHECKING:
    from cryptography import x509

_log = logging.getLogger(__name__)

VALID = timedelta(days=90)
RENEW_BEFORE = timedelta(days=30)
_SKEW = timedelta(hours=1)  # clocks of clients may be behind
_CHECK_EVERY_S = 60.0
_MAX_COMMON_NAME = 64  # RFC 5280, ub-common-name


class CertificateIssuer:
    """Issues a certificate for `names` (DNS names, IP addresses and URIs) into the files `cert` and `key`.

    `client`: the certificate of a client, otherwise of a server.
    """

    def __init__(
        self,
        ca_cert: Path,
        ca_key: Path,
        names: Sequence[str],
        cert: Path,
        key: Path,
        *,
        client: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._ca_cert = ca_cert
        self._ca_key = ca_key
        self._names = names
        self._cert = cert
        self._key = key
        self._is_of_client = client
        self._now = now
        self._issued_from = b""  # digest of the CA
        self._renew_at = datetime.min.replace(tzinfo=UTC)

    def check(self) -> bool:
        """Issue a certificate if it is due or the CA has changed. Returns whether it did.

        Raises CertificateError.
        """
        try:
            ca = self._ca_cert.read_bytes(), self._ca_key.read_bytes()
            digest = hashlib.sha256(b"\0".join(ca)).digest()
            if digest == self._issued_from and self._now() < self._renew_at:
                return False
            expires = self._issue(*ca)
        except OSError as error:
            why = f"{error.filename or self._cert}: {error.strerror or error}"
            raise CertificateError(f"the certificate {self._cert} cannot be issued: {why}") from error
        self._issued_from = digest
        self._renew_at = expires - min(RENEW_BEFORE, (expires - self._now()) / 3)
        _log.info("issued the certificate %s, valid until %s", self._cert, expires.isoformat())
        return True

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Renew the certificate until cancelled. A failure is logged once, and the next check tries again."""
        failed = ""
        while True:
            await sleep(_CHECK_EVERY_S)
            try:
                self.check()
                failed = ""
            except CertificateError as error:
                if str(error) != failed:
                    failed = str(error)
                    _log.error("the certificate is not renewed, and the next check tries again: %s", error)

    def _issue(self, ca_cert: bytes, ca_key: bytes) -> datetime:
        """Write a new key and its certificate. Returns when it expires. Raises CertificateError, OSError."""
        # The import costs 10 MiB. Only collectors with a CA of their own need it.
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec, rsa
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

        try:
            issuer = x509.load_pem_x509_certificate(ca_cert)
            signer = serialization.load_pem_private_key(ca_key, password=None)
        except (ValueError, TypeError) as error:
            cause = str(error).rpartition(" for more details. ")[2]  # the library refers to its own pages
            raise CertificateError(
                f"{self._ca_cert}, {self._ca_key}: not a CA and its key: {cause}: "
                "expected PEM without a password"
            ) from error
        if not isinstance(signer, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise CertificateError(f"{self._ca_key}: expected an RSA or EC key")
        if signer.public_key() != issuer.public_key():
            raise CertificateError(f"{self._ca_key} is not the key of {self._ca_cert}")
        now = self._now()
        expires = min(now + VALID, issuer.not_valid_after_utc)
        if expires <= now:
            raise CertificateError(f"the CA {self._ca_cert} has expired: replace it")
        key = ec.generate_private_key(ec.SECP256R1())
        common_name = x509.NameAttribute(NameOID.COMMON_NAME, self._names[0][:_MAX_COMMON_NAME])
        usage = dict.fromkeys(_OTHER_USAGES, False)
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if self._is_of_client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([common_name]))
            .issuer_name(issuer.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(expires)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in self._names]), False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .add_extension(x509.KeyUsage(digital_signature=True, **usage), True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(_authority(issuer), False)
        )
        certificate = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        # A reader that sees only the new key waits for the certificate.
        _replace(self._key, key.private_bytes(serialization.Encoding.PEM, *form))
        _replace(self._cert, certificate)
        return expires


_OTHER_USAGES = (
    *("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign"),
    *("crl_sign", "encipher_only", "decipher_only"),
)


def _general_name(name: str) -> "x509.GeneralName":
    from cryptography import x509

    if "://" in name:
        return x509.UniformResourceIdentifier(name)
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _authority(issuer: "x509.Certificate") -> "x509.AuthorityKeyIdentifier":
    """The key identifier as the CA states it: clients compare both."""
    from cryptography import x509

    try:
        stated = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(stated)


def _replace(path: Path, text: bytes) -> None:
    """Replace a file at once. Only its owner can read it."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
    fresh.replace(path)
