"""Publisher interface: a publisher makes an external system match a topology.

To add one, write a package beside this one, with `file/publisher.py` as its model, and append the publisher
in `build_publishers` of `hyperscout_collector.app.build.publishers`, or, if it writes to a cluster, in
`build_cluster` of `hyperscout_collector.app.build.clusters`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from hyperscout_runtime.signals import Signal
from hyperscout_topology.topology import Topology

_RECHECK_S = 300.0


class PublishError(RuntimeError):
    """The topology was not published. The message contains the next step. `retry`: a retry may help."""

    def __init__(self, reason: str, *, retry: bool = True) -> None:
        super().__init__(reason)
        self.retry = retry


class Publisher(ABC):
    """`name`: a word for logs, metrics and the status.

    `wake`: the publisher emits it on the event loop, at any time, to receive the newest topology again, for
    example because the external system has changed or a delay has ended.

    A publisher may also have `notice: str | None`: a problem to report although everything is published.
    """

    name: str

    def __init__(self) -> None:
        self.wake: Signal[[]] = Signal()

    @abstractmethod
    async def publish(self, topology: Topology) -> None:
        """Make the external system match. Idempotent: the same topology again changes nothing.

        Calls do not overlap, and the newest topology always comes last. Raises PublishError.
        """


class Alarm:
    """Calls `wake` once, later. Needs a running event loop."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None

    @property
    def at_s(self) -> float | None:
        """The time of the event loop when it calls, None = it does not."""
        return self._timer.when() if self._timer is not None else None

    def set(self, delay_s: float | None) -> None:
        """Call after this time, and not at the time that was set before. None = do not call."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if delay_s is None else loop.call_later(delay_s, self._wake)


class Recheck:
    """Tells when to read again what no watch follows, because another program may change or delete it.

    `wake` is called when the time has come, some minutes after the last call of `restart`.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.is_due = True
        self._wake = wake
        self._alarm = Alarm(self.expire)

    def restart(self) -> None:
        """Start the time: everything was just read. Needs a running event loop."""
        self.is_due = False
        self._alarm.set(_RECHECK_S)

    def expire(self) -> None:
        """End the time now."""
        self.is_due = True
        self._wake()
