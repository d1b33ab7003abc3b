"""Serves /healthz, /readyz, /metrics and similar pages over plaintext HTTP: one request per connection.

It implements the part of HTTP (RFC 9112) that a kubelet and Prometheus need, and ignores request headers. No
library is used: aiohttp is too heavy for the agent, and http.server needs a thread for each connection.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from hyperscout_runtime.connections import SilentConnections

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_BACKLOG = 1024
_MAX_REQUEST_BYTES = 16 * 1024
_MAX_SILENT = 64  # connections that have not sent their request
_MAX_ANSWERING = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of a page. A page that reports "not ready" has the status 503."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


def ok() -> Answer:
    return Answer(b"ok\n")


def not_ready(reason: str) -> Answer:
    return Answer(f"not ready: {reason}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)


Page = Callable[[], Answer | Awaitable[Answer]]
"""Called on the event loop, so it must take milliseconds at most."""


@contextlib.asynccontextmanager
async def serving(host: str, port: int, pages: Mapping[str, Page]) -> AsyncIterator[int]:
    """Serve `pages` by path while the body runs. Yields the port. Raises OSError if it cannot listen."""
    silent = SilentConnections(_MAX_SILENT)
    answering = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal answering
        is_counted = False
        peer = writer.get_extra_info("peername") or ("",)  # None = it has already disconnected
        silent.add(writer, peer[0], writer.transport.abort)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                request = await _request(reader)
                silent.discard(writer)
                if answering >= _MAX_ANSWERING:
                    writer.write(_error(HTTPStatus.SERVICE_UNAVAILABLE))
                else:
                    answering, is_counted = answering + 1, True
                    writer.write(await _answer(request, pages))
                writer.close()
                await writer.wait_closed()  # until the answer is sent
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the client disconnected or is too slow
        finally:
            silent.discard(writer)
            answering -= is_counted
            writer.transport.abort()

    server = await asyncio.start_server(serve, host, port, limit=_MAX_REQUEST_BYTES, backlog=_BACKLOG)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def _request(reader: asyncio.StreamReader) -> bytes:
    """Read a request; b"" = it is too large."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return b""


async def _answer(request: bytes, pages: Mapping[str, Page]) -> bytes:
    """Return the response to a request."""
    if not request:
        return _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    line = request.split(b"\r\n", 1)[0].split(b" ")
    if len(line) != 3 or not line[2].startswith(b"HTTP/1."):
        return _error(HTTPStatus.BAD_REQUEST, ": expected HTTP/1.x")
    if line[0] not in (b"GET", b"HEAD"):
        return _error(HTTPStatus.METHOD_NOT_ALLOWED, ": expected GET or HEAD")
    page = pages.get(line[1].split(b"?", 1)[0].decode("latin-1"))
    if page is None:
        return _error(HTTPStatus.NOT_FOUND, f": expected one of {' '.join(pages)}")
    try:
        answer = page()
        if not isinstance(answer, Answer):
            answer = await answer
    except Exception:
        _log.exception("the page %r failed", line[1])
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR)
    return _response(answer, with_body=line[0] == b"GET")


def _error(status: HTTPStatus, more: str = "") -> bytes:
    return _response(Answer(f"{status.phrase}{more}\n".encode(), status))


def _response(answer: Answer, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (answer.body if with_body else b"")
