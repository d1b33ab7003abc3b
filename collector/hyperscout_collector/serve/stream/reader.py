"""`GET /v1/stream`: the hub's events to one reader, with flow control.

A reader that takes nothing holds its connection's buffer and nothing else. It is waited for a while, told
that it is too slow, and let go whether it hears that or not.
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
_LINGER_S = 10.0  # and may take this long to hear that

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
)


class Stream:
    """An answer in ASGI: `reader` has joined already, and leaves in the end. `caller` is looked at again."""

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
        """Why it ended; None = it hung up."""
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
        """Raises AccessError when its credentials are not good any more."""
        if self._access.over(self._caller):
            self._caller = await self._access.still_admitted(self._caller, "get")


async def _say(send: Callable[[dict[str, object]], Awaitable[None]], data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
