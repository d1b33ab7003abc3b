"""Certificates for one load test: an authority in a folder, and a client certificate for each agent.

The collector issues its own certificate from the same authority (`tls_issuer_cert`).
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperscout_runtime.credentials import Credentials

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_VALID = timedelta(days=2)
_SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate of an authority and its key, as files."""

    cert: Path
    key: Path


def new_authority(folder: Path) -> Authority:
    """Make an authority in a folder."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder("hyperscout load test", key, issuer=None).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    made = Authority(folder / "ca.crt", folder / "ca.key")
    _write(made.cert, made.key, builder.sign(key, hashes.SHA256()), key)
    return made


class Issuer:
    """Issues client certificates into a folder, each when it is first asked for."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization

        self._ca = authority.cert
        self._folder = folder
        self._cert = x509.load_pem_x509_certificate(authority.cert.read_bytes())
        self._key: Any = serialization.load_pem_private_key(authority.key.read_bytes(), password=None)

    def credentials(self, identity: str) -> Credentials:
        """Credentials of `node/NAME` or `reader/NAME` (docs/certificates.md)."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        name = identity.replace("/", "-")
        cert, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        if not cert.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            uri = x509.UniformResourceIdentifier(f"hyperscout://{identity}")
            builder = (
                _builder(name[:64], key, issuer=self._cert)
                .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
                .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            )
            _write(cert, key_file, builder.sign(self._key, hashes.SHA256()), key)
        return Credentials(ca=self._ca, cert=cert, key=key_file)


def _builder(
    name: str, key: "ec.EllipticCurvePrivateKey", issuer: "x509.Certificate | None"
) -> "x509.CertificateBuilder":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
    )


def _write(cert: Path, key_file: Path, signed: "x509.Certificate", key: "ec.EllipticCurvePrivateKey") -> None:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key_file.touch(mode=0o600)
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
