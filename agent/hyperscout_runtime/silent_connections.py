"""Limits connections that have sent nothing yet, so that idle connections do not block others."""

from collections import Counter
from collections.abc import Callable, Hashable


class SilentConnections:
    """At most `limit` silent connections. A new one closes the oldest of the address that has the most.

    One address cannot lock out callers from other addresses. Many callers behind one translated address can
    also connect, because a connection is no longer silent when its request arrives.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Hashable, tuple[str, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Hashable, address: str, close: Callable[[], None]) -> None:
        """Add a connection. `close` is called when a new connection takes its place."""
        if len(self._open) >= self._limit:
            crowded, _ = Counter(address for address, _ in self._open.values()).most_common(1)[0]
            oldest = next(one for one, (address, _) in self._open.items() if address == crowded)
            self._open.pop(oldest)[1]()
        self._open[connection] = address, close

    def discard(self, connection: Hashable) -> None:
        """The connection has sent its request, or has ended."""
        self._open.pop(connection, None)
