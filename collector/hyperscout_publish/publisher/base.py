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


class Recheck:
    """Tells when to read again what no watch follows, because another program may change or delete it.

    `wake` is called when the time has come: `after_s` seconds after the last call of `restart`.
    """

    def __init__(self, wake: Callable[[], None], after_s: float = 300.0) -> None:
        self.is_due = True
        self._wake = wake
        self._after_s = after_s
        self._timer: asyncio.TimerHandle | None = None

    def restart(self) -> None:
        """Start the time: everything was just read. Needs a running event loop."""
        if self._timer is not None:
            self._timer.cancel()
        self.is_due = False
        self._timer = asyncio.get_running_loop().call_later(self._after_s, self.expire)

    def expire(self) -> None:
        """End the time now."""
        self.is_due = True
        self._wake()
