"""Throw-away keys and certificates, by the `openssl` command: nothing to install, and nothing that lives on.

Elliptic-curve keys, since a dozen of them take a tenth of a second.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_DAYS = "3"
_TIMEOUT_S = 240.0
LOOPBACK = "DNS:localhost,IP:127.0.0.1"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority in a folder of its own; `cert` is what others are to trust.

    `reuse`: the one that is there, if there is one.
    """

    def __init__(self, folder: Path, name: str = "test-ca", *, reuse: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self.cert, self._key = folder / "ca.crt", folder / "ca.key"
        if reuse and self.cert.exists() and self._key.exists():
            return
        _openssl(
            *("req", "-x509", *_CURVE, "-keyout", self._key, "-out", self.cert, "-days", _DAYS),
            *("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def issue(self, name: str, subject: str, *, san: str = "", days: str = _DAYS) -> Pair:
        """A certificate that serves and asks. `subject`: "/O=group/CN=name"; `san`: "DNS:a,IP:127.0.0.1".

        `days`: how long it is good for; "-1" makes one that has expired.
        """
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, extensions = pair.cert.with_suffix(".csr"), pair.cert.with_suffix(".ext")
        extensions.write_text(
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
            "extendedKeyUsage=serverAuth,clientAuth\n"
            "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
            + (f"subjectAltName={san}\n" if san else "")
        )
        _openssl("req", *_CURVE, "-keyout", pair.key, "-out", request, "-subj", subject)
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self._key, "-CAcreateserial"),
            *("-days", days, "-out", pair.cert, "-extfile", extensions),
        )
        return pair


def signing_key(path: Path) -> Path:
    """A bare private key, as service-account tokens are signed with."""
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
    return path


def _openssl(*arguments: str | Path) -> None:
    command = ["openssl", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except FileNotFoundError as error:
        raise RuntimeError("openssl not found: install it with `apt-get install openssl`") from error
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
