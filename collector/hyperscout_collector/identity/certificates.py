"""Loads the server's certificates, and reloads them when they are renewed in place (cert-manager, kubelets).

gRPC requests the certificates at each handshake, from its own threads; the REST server does so on its event
loop. The files are read at most once per `_REREAD_S`. A certificate and a key that do not match (only one of
the files is new) are ignored until they do.
"""

import hashlib
import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
from hyperscout_runtime.credentials import CredentialsError, read_pem

_log = logging.getLogger(__name__)

_REREAD_S = 1.0

Files = tuple[bytes, bytes, bytes | None]


class CertificateError(Exception):
    """The certificate files cannot be used. The message names the file and the reason."""


class ServerCertificates:
    """The certificate and key of one port. `client_ca`: None = no client certificates are requested.

    Raises CertificateError if the files are invalid at the start. Later the last valid ones stay in use.
    """

    def __init__(
        self,
        cert: Path,
        key: Path,
        client_ca: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cert = cert
        self._key = key
        self._client_ca = client_ca
        self._clock = clock
        self._lock = threading.Lock()
        self._verify = ssl.CERT_NONE
        files = self._read()
        self._context = self._check(files)
        self._used = self._seen = _digest(files)
        self._read_s = clock()
        self._first = files

    def credentials(self) -> grpc.ServerCredentials:
        """Returns the credentials for `add_secure_port`."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._first),
            self.renewed,
            require_client_authentication=self._client_ca is not None,
        )

    def renewed(self) -> grpc.ServerCertificateConfiguration:
        """Returns new certificates, or None if there are none. Never raises.

        gRPC's type annotations omit the None.
        """
        files = self._renewed()
        return None if files is None else _configuration(files)  # type: ignore[return-value]

    def context(self, *, demanded: bool = False) -> ssl.SSLContext:
        """Returns a context for `asyncio`: HTTP/1.1, always with the newest certificates.

        `demanded`: a client must present a certificate of the client CA. Otherwise a
        certificate is requested if there is a client CA, but optional. Raises CertificateError.
        """

        if self._client_ca is not None:
            self._verify = ssl.CERT_REQUIRED if demanded else ssl.CERT_OPTIONAL

        def switch(connection: ssl.SSLObject | ssl.SSLSocket, *_: object) -> None:
            self._renewed()
            if connection.context is not self._context:
                connection.context = self._context

        # A connection starts with this context and copies from it whether to request a certificate.
        self._context = first = self._check(self._first)
        first.set_alpn_protocols(["http/1.1"])
        if self._client_ca is not None:
            # A resumed session skips the verification of the client certificate, which may have expired
            # meanwhile, or its CA may have been removed. A server that issues no tickets resumes no session;
            # that needs TLS 1.3.
            first.minimum_version = ssl.TLSVersion.TLSv1_3
            first.num_tickets = 0
        first.sni_callback = switch
        return first

    def _renewed(self) -> Files | None:
        with self._lock:
            if self._clock() - self._read_s < _REREAD_S:
                return None
            self._read_s = self._clock()
            try:
                files = self._read()
                digest = _digest(files)
                if digest == self._used:
                    self._seen = digest
                    return None
                self._context = self._check(files)
            except CertificateError as error:
                if (reason := str(error).encode()) != self._seen:
                    _log.warning("the current certificates stay in use: %s", error)
                    self._seen = reason
                return None
            self._used = self._seen = digest
            _log.info("loaded new certificates from %s", self._cert)
            return files

    def _read(self) -> Files:
        ca = None if self._client_ca is None else _bytes(self._client_ca)
        return _bytes(self._cert), _bytes(self._key), ca

    def _check(self, files: Files) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = self._verify
        try:
            # The empty password makes an encrypted key fail. Without it OpenSSL prompts for one.
            context.load_cert_chain(self._cert, self._key, password="")
        except OSError as error:
            reason = error.strerror or str(error)
            if isinstance(error, ssl.SSLError):
                cause = f"{error.reason.lower().replace('_', ' ')}: " if error.reason else ""
                reason = f"{cause}expected PEM without a password"
                if error.reason == "KEY_VALUES_MISMATCH":
                    reason = "the key is of another certificate"
            raise CertificateError(
                f"{self._cert} and {self._key} are not a certificate and its private key: {reason}"
            ) from error
        if self._client_ca is not None and files[2] is not None:
            try:
                context.load_verify_locations(cadata=files[2].decode("ascii"))
            except (ssl.SSLError, UnicodeDecodeError) as error:
                raise CertificateError(f"{self._client_ca}: expected certificates in PEM") from error
        return context


def _configuration(files: Files) -> grpc.ServerCertificateConfiguration:
    cert, key, ca = files
    return grpc.ssl_server_certificate_configuration([(key, cert)], ca)


def _bytes(path: Path) -> bytes:
    try:
        return read_pem(path)
    except CredentialsError as error:
        raise CertificateError(str(error)) from error


def _digest(files: Files) -> bytes:
    return hashlib.sha256(b"\0".join(part or b"" for part in files)).digest()
