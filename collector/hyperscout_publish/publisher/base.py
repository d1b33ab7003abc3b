"""Publisher interface: a publisher makes an external system match a topology.

To add one, copy `hypernodes/file.py`, the smallest that can fail, and append it in `build_publishers` of
`hyperscout_collector.app.build.publishers`.
"""

from collections.abc import Callable
from typing import Protocol

from hyperscout_topology.topology import Topology


class PublishError(RuntimeError):
    """The topology was not published. The message contains the next step. `retry`: a retry may help."""

    def __init__(self, reason: str, *, retry: bool = True) -> None:
        super().__init__(reason)
        self.retry = retry


def no_wake() -> None:
    """Do nothing: the value of `wake` until the runner sets it."""


class Publisher(Protocol):
    """`name`: a word for logs, metrics and the status.

    `wake`: set by the runner. The publisher calls it on the event loop, at any time, to receive the newest
    topology again, for example because the external system has changed or a delay has ended.

    A publisher may also have `notice: str | None`: a problem to report although everything is published.
    """

    name: str
    wake: Callable[[], None]

    async def publish(self, topology: Topology) -> None:
        """Make the external system match. Idempotent: the same topology again changes nothing.

        Calls do not overlap, and the newest topology always comes last. Raises PublishError.
        """
