"""Serves the pages for health probes and metrics in a thread and on a loop of its own.

Whatever the collector's loop does, `/healthz` is answered. The pages that read the collector are made on its
loop. A collector whose loop stands still for `STUCK_S` is not healthy, so that Kubernetes restarts it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping

from hyperscout_runtime.event_loops import loop_in_thread
from hyperscout_runtime.health_server import Answer, Page, not_ready, ok, serving

STUCK_S = 60.0
_BEAT_S = 1.0
_PAGE_TIMEOUT_S = 4.0


@contextlib.asynccontextmanager
async def serving_in_thread(
    host: str,
    port: int,
    pages: Mapping[str, Callable[[], Answer]],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[int]:
    """Serve `/healthz`, and `pages` of the running loop, while the body runs.

    Yields the port. Raises OSError if it cannot listen.
    """
    loop = asyncio.get_running_loop()
    beat_s = clock()

    async def beat() -> None:
        nonlocal beat_s
        while True:
            beat_s = clock()
            await asyncio.sleep(_BEAT_S)

    def healthz() -> Answer:
        silent_s = clock() - beat_s
        return (
            ok() if silent_s < STUCK_S else not_ready(f"the event loop has stood still for {silent_s:.0f} s")
        )

    here = {"/healthz": healthz, **{path: _from(loop, page) for path, page in pages.items()}}
    async with loop_in_thread("health") as thread, contextlib.AsyncExitStack() as stack:
        found = await thread.run(stack.enter_async_context(serving(host, port, here)))
        beating = asyncio.create_task(beat(), name="health-beat")
        try:
            yield found
        finally:
            beating.cancel()
            await thread.run(stack.aclose())


def _from(loop: asyncio.AbstractEventLoop, page: Callable[[], Answer]) -> Page:
    """Make a page on another loop."""

    async def make() -> Answer:
        return page()

    async def answer() -> Answer:
        future = asyncio.run_coroutine_threadsafe(make(), loop)
        try:
            async with asyncio.timeout(_PAGE_TIMEOUT_S):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            return not_ready(f"the event loop has not answered within {_PAGE_TIMEOUT_S:g} s")

    return answer
