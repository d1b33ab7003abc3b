"""Serves the agent's HTTP pages: GET or HEAD, one answer for each connection."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0
_MAX_REQUEST_BYTES = 8 * 1024
_MAX_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class NotYet:
    """A page's answer while the agent is not ready: status 503 with this text."""

    words: bytes


Page = Callable[[], bytes | NotYet]


@contextlib.asynccontextmanager
async def serving(host: str, port: int, pages: Mapping[str, Page]) -> AsyncIterator[int]:
    """Serve `pages` by path while the body runs. Yields the port. Raises OSError when it cannot listen."""
    slots = asyncio.Semaphore(_MAX_CONNECTIONS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with slots, asyncio.timeout(_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, pages))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # the client is too slow, sends too much or has disconnected
        except Exception:
            _log.exception("a page could not be made")
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host, port, limit=_MAX_REQUEST_BYTES)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _response(head: bytes, pages: Mapping[str, Page]) -> bytes:
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return _message("400 Bad Request", b"expected HTTP/1.x\n")
    if words[0] not in (b"GET", b"HEAD"):
        return _message("405 Method Not Allowed", b"only GET\n")
    page = pages.get(words[1].split(b"?", 1)[0].decode("ascii", "replace"))
    if page is None:
        return _message("404 Not Found", (" ".join(pages) + "\n").encode())
    found = page()
    status, content = (
        ("503 Service Unavailable", found.words) if isinstance(found, NotYet) else ("200 OK", found)
    )
    return _message(status, content, body=words[0] == b"GET")


def _message(status: str, content: bytes, *, body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (content if body else b"")
