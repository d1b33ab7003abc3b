"""Certificates for one load test: an authority in a folder, and a client certificate for each agent.

The collector issues its own certificate from the same authority (`tls_issuer_cert`).
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hyperscout_runtime.credentials import Credentials

_VALID = timedelta(days=2)
_SKEW = timedelta(hours=1)
CERT, KEY = "ca.crt", "ca.key"  # of the authority


def make_authority(folder: Path) -> None:
    """Write the certificate of a new authority and its key into a folder."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "hyperscout load test")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / KEY).touch(mode=0o600)
    (folder / KEY).write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    (folder / CERT).write_bytes(cert.public_bytes(serialization.Encoding.PEM))


def client_credentials(folder: Path, identity: str) -> Credentials:
    """Credentials of `node/NAME` or `reader/NAME` (docs/certificates.md), issued when first asked for."""
    from hyperscout_collector.identity.issuer import CertificateIssuer

    cert, key = (folder / f"{identity.replace('/', '-')}.{kind}" for kind in ("crt", "key"))
    if not cert.exists():
        uri = f"hyperscout://{identity}"
        CertificateIssuer(folder / CERT, folder / KEY, [uri], cert, key, client=True).check()
    return Credentials(ca=folder / CERT, cert=cert, key=key)
