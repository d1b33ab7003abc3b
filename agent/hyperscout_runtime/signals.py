"""A typed signal. A component emits it by calling it; the components that need it subscribe to it.

The emitter does not know its subscribers, so both can be complete when they are constructed.
"""

from collections.abc import Callable
from typing import Generic, ParamSpec

_P = ParamSpec("_P")


class Signal(Generic[_P]):
    """Calls its subscribers with the arguments of each emission, in the order of their subscription.

    Subscribers run on the emitter's thread and must not block. An exception of a subscriber reaches the
    emitter, and the remaining subscribers are not called.
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[_P, object]] = []

    def subscribe(self, subscriber: Callable[_P, object]) -> Callable[[], None]:
        """Call `subscriber` for each later emission. Returns a function that ends the subscription."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> None:
        """Emit the signal."""
        for subscriber in tuple(self._subscribers):
            subscriber(*args, **kwargs)
