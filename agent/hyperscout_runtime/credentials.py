"""Reads the credentials of a client and the CA of the collector from files that can change at any time.

Certificates and projected tokens are renewed in place. So the certificate files are read for each
connection, and the token file for each call. Agents, standby replicas and the command line use this module.

Findings describe every link of a cluster. They do not cross a network unencrypted unless the operator
permits it, and a token never does.
"""

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from hyperscout_runtime.connections import GRPC_PORT, HEALTH_PORT, REST_PORT, is_loopback

_MAX_BYTES = 1024 * 1024
_MAX_TOKEN_BYTES = 16 * 1024

Metadata = tuple[tuple[str, str], ...]
EMPTY, NO_TEXT = "empty", "not one line of text"


class TargetError(ValueError):
    """The address is not usable. The message names the setting to change."""


class CredentialsError(Exception):
    """A credential file is missing or invalid. The message names the file and the problem."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credential files of a client.

    `ca`: enables TLS; the collector's certificate must be signed by it. `server_name`: the name expected in
    that certificate, instead of the address. `cert`, `key`: the client certificate and its key.
    `token_file`: the bearer token. `insecure`: plaintext may leave this machine.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str = ""
    token_file: Path | None = None
    insecure: bool = False

    def check(self, target: str) -> None:
        """Raise TargetError when these credentials must not be used for this address."""
        check_target(
            target, insecure=self.insecure, tls=self.ca is not None, token=self.token_file is not None
        )

    def for_channel(self) -> grpc.ChannelCredentials | None:
        """Read the files and return channel credentials, None for plaintext. Raises CredentialsError."""
        if self.ca is None:
            return None
        ca = read_pem(self.ca)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))  # comments may have any text
        except (ssl.SSLError, ValueError) as error:
            raise CredentialsError(f"{self.ca}: no certificates in PEM: give the CA's file") from error
        if self.cert is None or self.key is None:
            return grpc.ssl_channel_credentials(ca)
        cert, key = read_pem(self.cert), read_pem(self.key)
        try:
            context.load_cert_chain(self.cert, self.key, password="")  # an encrypted key fails, no prompt
        except (ssl.SSLError, OSError) as error:
            what = f"{self.cert} and {self.key} are no certificate and its key"
            raise CredentialsError(f"{what}: give the files (PEM, no password) of one certificate") from error
        return grpc.ssl_channel_credentials(ca, key, cert)

    def options(self) -> tuple[tuple[str, str], ...]:
        """Return the gRPC channel arguments for the server name."""
        if self.ca is None or not self.server_name:
            return ()
        return (("grpc.ssl_target_name_override", self.server_name),)

    def metadata(self) -> Metadata:
        """Read the token and return the metadata for one call. Raises CredentialsError."""
        if self.token_file is None:
            return ()
        try:
            token = read_secret(self.token_file, _MAX_TOKEN_BYTES)
        except OSError as error:
            raise CredentialsError(
                f"{self.token_file}: {error.strerror}: check the path and its rights"
            ) from error
        except SecretError as error:
            what = "not a token" if error.reason == NO_TEXT else error.reason
            raise CredentialsError(f"{self.token_file}: {what}: expected one line, the token") from None
        return bearer(token.strip(), str(self.token_file))

    def connect(self, target: str, options: Sequence[tuple[str, int | str]]) -> grpc.aio.Channel:
        """Open a new channel with the current content of the files. Raises CredentialsError."""
        try:
            self.check(target)
        except TargetError as error:
            raise CredentialsError(str(error)) from error
        credentials = self.for_channel()
        options = (*options, *self.options())
        if credentials is None:
            return grpc.aio.insecure_channel(target, options=options)
        return grpc.aio.secure_channel(target, credentials, options=options)


def bearer(token: str, source: str) -> Metadata:
    """Return the metadata for a bearer token (RFC 6750, 2.1).

    Raises CredentialsError. Its message contains no part of the token.
    """
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CredentialsError(f"{source}: not a token: expected one word of ASCII characters")
    return (("authorization", f"Bearer {token}"),)


NO_TLS = "WRONG_VERSION_NUMBER"  # in the text of a handshake with a server that does not use TLS
_HINTS = (
    ("certificate has expired", "its certificate has expired"),
    ("CERTIFICATE_VERIFY_FAILED", "its certificate is not signed by the CA that was given (tls_ca)"),
    ("Hostname Verification", "its certificate is for another name: set the expected name (tls_server_name)"),
    (
        "not in peer certificate",
        "its certificate is for another name: set the expected name (tls_server_name)",
    ),
    (NO_TLS, "the server does not use TLS on this port"),
)


def tls_hint(details: str) -> str:
    """Return a short cause for gRPC's text about a failed TLS connection, "" when it is unknown."""
    return next((hint for words, hint in _HINTS if words in details), "")


def protocol_hint(details: str) -> tuple[str, str] | None:
    """Return cause and next step for gRPC's text about a server that is no gRPC, None for other texts."""
    if "Failed parsing HTTP/2" not in details:
        return None
    what = "speaks HTTP/1 and not gRPC" if "http1" in details else "does not speak gRPC"
    ports = f"{GRPC_PORT}; {REST_PORT} is REST's and {HEALTH_PORT} that of health and metrics"
    return f"the program that listens there {what}", f"give the collector's port of gRPC ({ports})"


def read_pem(path: Path) -> bytes:
    """Return a file of at most 1 MiB. Raises CredentialsError."""
    try:
        with path.open("rb") as file:
            found = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}: check the path and its rights") from error
    if not found or len(found) > _MAX_BYTES:
        raise CredentialsError(
            f"{path}: found {len(found)} bytes, expected a PEM file of 1 to {_MAX_BYTES} bytes"
        )
    return found


def check_target(target: str, *, insecure: bool, tls: bool = False, token: bool = False) -> None:
    """Raise TargetError unless `target` is well formed and permitted with these options.

    `insecure`: the operator permits plaintext. A token is never sent in plaintext to another machine, because
    an eavesdropper could use it.
    """
    if target.startswith(("unix:", "unix-abstract:")):
        return
    if "://" in target:
        raise TargetError(
            f"collector address {target!r}: expected host:port without http://, such as "
            f"127.0.0.1:{GRPC_PORT} (the port of gRPC; {REST_PORT} is REST's)"
        )
    host, _, port = target.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        such_as = f", such as {target}:{GRPC_PORT}" if re.fullmatch(r"[\w.-]+", target) else ""
        expected = f"expected host:port, [v6 address]:port or unix:PATH{such_as}"
        raise TargetError(f"collector address {target!r}: {expected}")
    if tls or is_loopback(host.strip("[]")):
        return
    if token:
        raise TargetError(
            f"collector address {target!r} is not on this machine, and a token is never sent in the clear: "
            "give the CA of its certificate (tls_ca)"
        )
    if not insecure:
        raise TargetError(
            f"collector address {target!r} is not on this machine, and the stream is not encrypted: "
            "give the CA of its certificate (tls_ca), or set `insecure: true` if the network is trusted"
        )


class SecretError(ValueError):
    """The file contains no valid secret. `reason`: EMPTY, NO_TEXT, or a text that gives the size limit."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.reason = reason


def read_secret(path: Path, most_bytes: int) -> str:
    """Return the one line of a file with a secret. Raises SecretError, and OSError from `open`."""
    with path.open("rb") as file:
        found = file.read(most_bytes + 2)
    found = found.rstrip(b"\r\n")
    if len(found) > most_bytes:
        raise SecretError(path, f"larger than {most_bytes} bytes")
    if not found:
        raise SecretError(path, EMPTY)
    try:
        text = found.decode()
    except UnicodeDecodeError:
        raise SecretError(path, NO_TEXT) from None  # the original message would show a part of the secret
    if not text.isprintable():
        raise SecretError(path, NO_TEXT)
    return text
