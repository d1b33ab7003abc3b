"""Length and seed of long runs: short and always the same in the tests, long and fresh in `make soak`."""

import os
import secrets

_MINUTES = float(os.environ.get("HYPERSCOUT_SOAK_MIN") or 0)
IS_SOAK = _MINUTES > 0


def soak_s(short_s: float) -> float:
    """Seconds that a long run takes; `short_s` outside `make soak`."""
    return _MINUTES * 60 or short_s


def soak_seed() -> int:
    """A fresh seed in `make soak`, or HYPERSCOUT_SOAK_SEED to repeat a run; 1 in the tests. Print it."""
    given = os.environ.get("HYPERSCOUT_SOAK_SEED")
    return int(given) if given else secrets.randbelow(10**9) if _MINUTES else 1
