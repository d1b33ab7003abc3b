"""The time of a process: Unix time that a step of the machine's clock does not change.

The process reads the machine's clock once, when it starts, and adds the monotonic time since then. Ages and
deadlines within the process are differences of this time, so a step of the machine's clock, forward or back,
makes nothing old and nothing young. Times of other systems (the end of a certificate or a token, a window of
the calendar) are compared with the machine's clock.
"""

import time
from collections.abc import Callable


def boottime_ns() -> int:
    """Return monotonic ns that include the time a machine is suspended (clock_gettime(2))."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Clock:
    """`wall_ns`: the machine's clock, Unix ns. `steady_ns`: monotonic ns."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, steady_ns: Callable[[], int] = boottime_ns
    ) -> None:
        self.wall_ns = wall_ns
        self._steady_ns = steady_ns
        self._base_ns = wall_ns() - steady_ns()

    def now_ns(self) -> int:
        """Return the process's time, Unix ns. It never steps."""
        return self._base_ns + self._steady_ns()

    def step_ns(self) -> int:
        """Return how far the machine's clock is ahead of the process's time: what it was set by since."""
        return self.wall_ns() - self.now_ns()
