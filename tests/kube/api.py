"""A small, blocking client of an API server, on the standard library alone: what fixtures and the demo ask.

It shares nothing with the collector's client, so that a fault there cannot hide itself.
"""

import http.client
import json
import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kube.pki import Pair

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v1,application/json"
_THREADS = 8


class ApiError(Exception):
    """The server refused; `code` is the HTTP status, 0 when it could not be asked."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """Requests as one user, from any thread; connections stay open until `close`."""

    def __init__(self, port: int, ca: Path, user: Pair) -> None:
        self._port = port
        self._tls = ssl.create_default_context(cafile=str(ca))
        self._tls.load_cert_chain(user.cert, user.key)
        self._idle: list[http.client.HTTPSConnection] = []

    def ask(
        self,
        method: str,
        path: str,
        body: Object | str | None = None,
        *,
        content: str = "application/json",
        accept: str = "application/json",
        timeout_s: float = 30.0,
    ) -> Object:
        """One request. Raises ApiError."""
        answer = self.text(method, path, body, content=content, accept=accept, timeout_s=timeout_s)
        return json.loads(answer) if answer else {}

    def text(
        self,
        method: str,
        path: str,
        body: Object | str | None = None,
        *,
        content: str = "application/json",
        accept: str = "*/*",
        timeout_s: float = 30.0,
    ) -> str:
        """The answer as it came. Raises ApiError."""
        text = body if body is None or isinstance(body, str) else json.dumps(body)
        headers = {"Content-Type": content, "Accept": accept}
        while True:
            try:
                connection, fresh = self._idle.pop(), False
            except IndexError:
                connection, fresh = self._connection(timeout_s), True
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            try:
                connection.request(method, path, text, headers)
                response = connection.getresponse()
                answer = response.read().decode()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if fresh or isinstance(error, TimeoutError):
                    raise ApiError(0, f"{method} {path}: {error or type(error).__name__}") from error
                continue  # the server has closed an idle connection: try the next, in the end a new one
            self._idle.append(connection)
            if response.status >= 400:
                raise ApiError(response.status, f"{method} {path}: {answer.strip()[:800]}")
            return answer

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _connection(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=timeout_s)

    def items(self, path: str) -> list[Object]:
        """All objects of a collection, whole."""
        return list(self.ask("GET", path).get("items") or [])

    def names(self, path: str) -> list[Object]:
        """The metadata of all objects of a collection, nothing else."""
        answer = self.ask("GET", path, accept=_METADATA)
        return [item["metadata"] for item in answer.get("items") or []]


def all_at_once(work: Iterable[Callable[[], Any]]) -> list[Any]:
    """Do it on a few threads; the first error is raised when all is over."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return [future.result() for future in [pool.submit(call) for call in work]]
