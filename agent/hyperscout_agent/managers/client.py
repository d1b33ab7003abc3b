"""Reads a fabric manager's REST API over HTTPS, with credentials from files and bounded time and size.

The client blocks, so run it in a thread of its own. It uses the standard library's HTTP client to avoid
another dependency in the image. It follows no redirects and uses no proxy, so credentials go only to the
configured URL. Error messages contain neither credentials nor content of the manager's answer.
"""

import base64
import contextlib
import http.client
import json
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

from hyperscout.v1.finding_pb2 import Sweep
from hyperscout_formats.text.errors import FormatError
from hyperscout_runtime.credentials import SecretError, read_secret

from hyperscout_agent.findings.bulk import compress
from hyperscout_agent.findings.probe import Observation, ProbeError, ProbeParts, Scope, data
from hyperscout_agent.runtime.threads import in_thread
from hyperscout_agent.settings.manager_settings import ManagerSettings

S = TypeVar("S", bound=ManagerSettings)

_PIECE_BYTES: Final = 64 * 1024
_MAX_SECRET_BYTES: Final = 4096
_REFUSED: Final = frozenset({401, 403})


class ManagerError(Exception):
    """The query failed. The message names the manager, the problem and the setting to check."""


class ManagerConnection:
    """The requests of one probe run, sent one after the other.

    `settings.timeout_s` limits all requests together. `max_answer_bytes`: of one answer. `clock`: monotonic
    seconds. `abandon` may be called from another thread.
    """

    def __init__(
        self,
        settings: ManagerSettings,
        max_answer_bytes: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._max_answer_bytes = max_answer_bytes
        self._clock = clock
        self._until_s = clock() + settings.timeout_s
        parts = urlsplit(settings.url)
        self.place = parts.netloc
        self._prefix = parts.path
        self._host, self._port = parts.hostname or "", parts.port
        self._is_tls = parts.scheme == "https"
        self._open: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None  # http.client forgets it when an answer has no length
        self._response: http.client.HTTPResponse | None = None
        self._abandoned = False

    def credentials(self) -> tuple[str, str]:
        """Read user name and password from the files. Raises ManagerError."""
        folder = self._settings.credentials
        if folder is None:
            raise ManagerError("credentials are not set")
        return _secret(folder / "username"), _secret(folder / "password")

    def basic(self) -> dict[str, str]:
        """Return the header for HTTP Basic authentication (RFC 7617). Raises ManagerError."""
        name, password = self.credentials()
        return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}

    def get(self, path: str, headers: Mapping[str, str]) -> Iterator[bytes]:
        """Send a GET request and yield the answer's body in pieces. Raises ManagerError."""
        return self._ask("GET", path, headers, None)

    def post(self, path: str, headers: Mapping[str, str], document: Any) -> Iterator[bytes]:
        """Send a POST request with a JSON document and yield the answer in pieces. Raises ManagerError."""
        return self._ask(
            "POST", path, {"Content-Type": "application/json", **headers}, json.dumps(document).encode()
        )

    def abandon(self) -> None:
        """Shut down the connection. Blocked and later calls fail."""
        self._abandoned = True
        if (sock := self._socket) is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the open request. Its answer may have been read only in part."""
        if self._response is not None:
            self._response.close()
        if self._open is not None:
            self._open.close()
        self._open = self._socket = self._response = None

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Iterator[bytes]:
        where = f"{self._settings.url}{path.partition('?')[0]}"
        try:
            yield from self._answer(where, method, path, headers, body)
        except ssl.SSLCertVerificationError as error:
            signer = self._settings.ca or "the system's CAs"
            raise ManagerError(f"{where}: its certificate: {error.verify_message} (ca: {signer})") from None
        except ssl.SSLError as error:
            raise ManagerError(f"{where}: the TLS handshake failed: {error.reason}") from None
        except TimeoutError:
            limit_s = self._settings.timeout_s
            raise ManagerError(f"{where}: no complete answer in {limit_s:g} s (timeout_s)") from None
        except OSError as error:
            raise ManagerError(f"{where}: {error.strerror or type(error).__name__}") from None
        except (http.client.HTTPException, ValueError) as error:
            # `from None`: the error may quote a header, and headers contain credentials.
            raise ManagerError(f"{where}: the answer is not valid HTTP ({type(error).__name__})") from None

    def _answer(
        self, where: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> Iterator[bytes]:
        connection = self._open = self._connection()
        try:
            connection.connect()
            self._socket = connection.sock
            self._hurry()
            connection.request(
                method,
                self._prefix + path,
                body,
                {"Accept": "application/json", "Accept-Encoding": "identity", **headers},
            )
            response = self._response = connection.getresponse()
            if response.status != http.client.OK:
                raise ManagerError(f"{where}: {self._refusal(response.status)}")
            most, size = self._max_answer_bytes, 0
            while True:
                self._hurry()
                piece = response.read1(_PIECE_BYTES)
                if not piece:
                    break
                size += len(piece)
                if size > most:
                    raise ManagerError(f"{where}: an answer of more than {most} bytes")
                yield piece
            if response.length:
                raise ManagerError(f"{where}: the answer is cut off")
        finally:
            self.close()

    def _refusal(self, status: int) -> str:
        if status in _REFUSED:
            return (
                f"{status}: the manager rejected the user name and password in {self._settings.credentials}"
            )
        if 300 <= status < 400:
            return f"{status}: redirects are not followed: set url to the address after the redirect"
        return f"{status} {http.client.responses.get(status, '')}".rstrip()

    def _connection(self) -> http.client.HTTPConnection:
        left_s = self._left_s()
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=left_s)
        ca = self._settings.ca
        try:
            context = ssl.create_default_context(cafile=ca)
        except OSError as error:
            reason = "no certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise ManagerError(f"ca: {ca}: {reason}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return http.client.HTTPSConnection(self._host, self._port, timeout=left_s, context=context)

    def _hurry(self) -> None:
        """Set the socket's time-out to the remaining time."""
        left_s = self._left_s()
        if self._socket is not None:
            self._socket.settimeout(left_s)

    def _left_s(self) -> float:
        left_s = self._until_s - self._clock()
        if self._abandoned or left_s <= 0:
            raise TimeoutError
        return left_s


class ManagerProbe(ABC, Generic[S]):
    """A probe that reads a manager once in each run. `clock`: monotonic seconds."""

    name: str
    max_answer_bytes: int  # of one answer of the manager
    scope: Scope = "fabric"
    interval_s = 60.0
    max_findings = 1

    def __init__(self, settings: S, clock: Callable[[], float] = time.monotonic) -> None:
        self.timeout_s = settings.timeout_s + 5.0
        self._settings = settings
        self._clock = clock

    @classmethod
    def parts(cls, settings: S) -> ProbeParts | None:
        """Return the probe for these settings, None when no URL is set."""
        return ProbeParts(cls(settings)) if settings.on else None

    async def observe(self) -> Observation:
        connection = ManagerConnection(self._settings, self.max_answer_bytes, self._clock)

        def read() -> Observation:
            with contextlib.closing(connection):
                return self._read(connection)

        try:
            return await in_thread(read, self.name)
        except (ManagerError, FormatError) as error:
            raise ProbeError(str(error)) from error
        finally:
            connection.abandon()

    @abstractmethod
    def _read(self, connection: ManagerConnection) -> Observation:
        """Query the manager. Runs in a thread. Raises ManagerError and FormatError."""

    def _text_observation(
        self, connection: ManagerConnection, text: bytes, started_s: float, *, partial: str = "", reason: str
    ) -> Observation:
        """Return the observation of a text. `partial`: why it is partial. `reason`: the problems in it."""
        bulk = compress(text)
        payload = Sweep(
            format=self.name,
            sha256=bulk.sha256,
            size_bytes=bulk.size_bytes,
            partial=bool(partial),
            partial_reason=partial,
            duration_s=self._clock() - started_s,
        )
        return Observation({connection.place: data(payload, partial or reason)}, bulks=(bulk,))


def bearer(token: object) -> dict[str, str]:
    """Return the header for a manager's access token. Raises ManagerError, without the token in its text."""
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise ManagerError("the manager returned no access token")
    return {"Authorization": f"Bearer {token}"}


def _secret(file: Path) -> str:
    try:
        return read_secret(file, _MAX_SECRET_BYTES)
    except OSError as error:
        raise ManagerError(f"credentials: {file}: {error.strerror}") from None
    except SecretError:
        raise ManagerError(
            f"credentials: {file}: expected one line of at most {_MAX_SECRET_BYTES} bytes of text"
        ) from None
