"""Keeps a helper task going: what breaks is logged, and started again after a back-off."""

import logging
import time
from collections.abc import Awaitable, Callable
from random import Random

from hyperscout_agent.runtime.backoff import Backoff

_log = logging.getLogger(__name__)

_BASE_S, _CAP_S = 1.0, 60.0
# What ran this long was well: its next failure is a new one.
_WELL_S = 60.0


async def supervise(
    name: str,
    service: Callable[[], Awaitable[None]],
    *,
    rng: Random,
    sleep: Callable[[float], Awaitable[None]],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run `service` for ever, whatever it raises. Ends only when cancelled."""
    backoff = Backoff(rng, base_s=_BASE_S, cap_s=_CAP_S)
    while True:
        started_s = clock()
        try:
            await service()
            _log.warning("%s: ended", name)
        except Exception as error:
            cause = _first(error)
            if isinstance(cause, OSError):  # of the surroundings, not of the code: a trace says no more
                _log.warning("%s: %s", name, cause)
            else:
                _log.warning("%s: crashed", name, exc_info=cause)
        if clock() - started_s >= _WELL_S:
            backoff.reset()
        await sleep(backoff.next_s())


def _first(error: Exception) -> Exception:
    """The cause inside a task group's bundle."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
