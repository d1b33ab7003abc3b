"""Serves `GET /v1/stream`: sends the hub's events to one reader, with flow control.

A reader that reads nothing occupies only its connection's buffer. After `_STALL_S` the collector sends it an
`error` event, and disconnects it at the latest `_LINGER_S` later, also if it has not read the event.
"""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from hyperscout_collector.identity.access import Access
from hyperscout_collector.identity.callers import AccessError, Caller
from hyperscout_collector.serve.http.problems import ProblemError, of_access
from hyperscout_collector.serve.http.protocol import ABORT
from hyperscout_collector.serve.stream.hub import Hub, Reader

_STALL_S = 20.0  # a reader that takes less than one chunk in this time is too slow
_LINGER_S = 10.0  # time to deliver the error event to such a reader

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # without it nginx buffers events
)


class Stream:
    """The ASGI response of the stream.

    `reader` has joined the hub before and leaves it at the end. The access of `caller` is checked again
    during the stream.
    """

    def __init__(self, hub: Hub, reader: Reader, access: Access, caller: Caller) -> None:
        self._hub = hub
        self._reader = reader
        self._access = access
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hung_up = asyncio.create_task(_hung_up(receive))
        hung_up.add_done_callback(self._reader.leave)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            problem = await self._tell(send)
            if problem is not None:
                async with asyncio.timeout(_LINGER_S):
                    text = json.dumps(problem.document(Request(scope).url.path))
                    await _say(send, f"event: error\ndata: {text}\n\n".encode())
                    await send({"type": "http.response.body"})
        except TimeoutError:
            scope["state"][ABORT]()
        finally:
            self._hub.leave(self._reader)
            hung_up.cancel()

    async def _tell(self, send: Send) -> ProblemError | None:
        """Send events until the stream ends. Returns the problem that ended it; None = the reader left."""
        try:
            async with contextlib.aclosing(self._hub.events(self._reader)) as chunks:
                async for chunk in chunks:
                    await self._look_again()
                    async with asyncio.timeout(_STALL_S):
                        await _say(send, chunk)
        except AccessError as error:
            return of_access(error)
        except ProblemError as problem:
            return problem
        except TimeoutError:
            return self._hub.too_slow(f"nothing was read for {_STALL_S:g} s")
        return None

    async def _look_again(self) -> None:
        """Check expired credentials again. Raises AccessError if they are no longer valid."""
        if self._access.over(self._caller):
            self._caller = await self._access.still_admitted(self._caller, "get")


async def _say(send: Callable[[dict[str, object]], Awaitable[None]], data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
