"""A lock that all agents of a host share, whatever user, folder or container they have.

An abstract Unix socket (unix(7)): it belongs to the network namespace, which is the host's for agents, it is
no file that could be left over, and it is gone with its process.
"""

import errno
import socket
from types import TracebackType


class LockedError(Exception):
    """Another process holds the lock."""


class HostLock:
    """`with HostLock("name"):` raises LockedError when another one has it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket: socket.socket | None = None

    def __enter__(self) -> "HostLock":
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(f"\0{self._name}")
        except OSError as error:
            bound.close()
            if error.errno == errno.EADDRINUSE:
                raise LockedError(f"another process of this host holds the lock {self._name}") from error
            raise
        self._socket = bound
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
