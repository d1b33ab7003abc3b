"""Waits that tests control, and services that are restarted when they end."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from random import Random

from hyperscout_runtime.backoff import Backoff
from hyperscout_runtime.task_watch import run_checked

_log = logging.getLogger(__name__)

_BASE_S, _CAP_S = 1.0, 60.0
# A service that ran this long was healthy. Its next failure starts a new back-off.
_WELL_S = 60.0

# Returns when the event is set or the seconds have passed (None = no time-out). Does not raise TimeoutError.
Wait = Callable[[asyncio.Event, float | None], Awaitable[None]]


async def wait(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait by the event loop's clock."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


async def supervise(
    name: str,
    service: Callable[[], Awaitable[None]],
    *,
    rng: Random,
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Run `service` until cancelled, and restart it whenever it ends or raises."""
    backoff = Backoff(_BASE_S, _CAP_S, rng, jitter=1.0)
    while True:
        started_s = time.monotonic()
        try:
            await run_checked(name, service())
            _log.warning("%s: ended", name)
        except Exception as error:
            cause = _first(error)
            if isinstance(cause, OSError):  # an error of the environment: a trace adds no information
                _log.warning("%s: %s", name, cause)
            else:
                _log.warning("%s: crashed", name, exc_info=cause)
        if time.monotonic() - started_s >= _WELL_S:
            backoff.reset()
        await sleep(backoff.next_s())


def _first(error: Exception) -> Exception:
    """Return the first exception inside nested exception groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
