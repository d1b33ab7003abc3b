"""Serves /healthz, /readyz and /metrics, read-only, on a separate plaintext port.

It supports the HTTP (RFC 9112) that a kubelet and Prometheus need: one GET per connection. It ignores request
headers.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus

_log = logging.getLogger(__name__)

_REQUEST_TIMEOUT_S = 5.0
_MAX_REQUEST_BYTES = 16 * 1024
_MAX_CONNECTIONS = 64

# Returns (status, content type, body). Called on the event loop, so it must take milliseconds at most.
Page = Callable[[], tuple[HTTPStatus, str, bytes]]
TEXT = "text/plain; charset=utf-8"


class HttpServer:
    """Serves `pages`, by path."""

    def __init__(self, pages: Mapping[str, Page]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._connections = 0

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_REQUEST_BYTES)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                status, kind, body = await self._answer(reader)
                head = (
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client disconnected or is too slow
        finally:
            self._connections -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[HTTPStatus, str, bytes]:
        if self._connections > _MAX_CONNECTIONS:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        line = request.split(b"\r\n", 1)[0].split(b" ")
        if len(line) != 3 or not line[2].startswith(b"HTTP/1."):
            return _plain(HTTPStatus.BAD_REQUEST)
        if line[0] != b"GET":
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        page = self._pages.get(line[1].split(b"?", 1)[0].decode("latin-1"))
        if page is None:
            return _plain(HTTPStatus.NOT_FOUND)
        try:
            return page()
        except Exception:
            _log.exception("a page could not be made")
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR)


def _plain(status: HTTPStatus) -> tuple[HTTPStatus, str, bytes]:
    return status, TEXT, f"{status.phrase}\n".encode()
