"""What a publisher is: something that makes the world outside agree with a topology.

To add one, copy `file.py`, the smallest that can fail, and name it in the shell.
"""

from collections.abc import Callable
from typing import Protocol

from hyperscout_topology.topology import Topology


class PublishError(RuntimeError):
    """The topology is not out. Says what to do. `retry`: whether trying again, later, may help."""

    def __init__(self, reason: str, *, retry: bool = True) -> None:
        super().__init__(reason)
        self.retry = retry


def nobody() -> None:
    """Nobody is to be woken: what `wake` is until the runner sets it."""


class Publisher(Protocol):
    """`name` is a word for logs, metrics and the status.

    `wake` is set by the runner: call it (on the loop, also later) to be given the newest topology again
    although it has not changed: the world outside has, or it is time.

    A publisher may also have `notice: str | None`: what a person should know although everything is out.
    """

    name: str
    wake: Callable[[], None]

    async def publish(self, topology: Topology) -> None:
        """Make it so. Idempotent: the same topology again changes nothing. Raises PublishError.

        Calls do not overlap, and the newest topology always comes last.
        """
