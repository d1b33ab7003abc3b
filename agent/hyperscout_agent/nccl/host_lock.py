"""Provides a lock for all agents of a host, independent of user, folder and container.

The lock is an abstract Unix socket (unix(7)). It belongs to the network namespace, which is the host's for
agents. It leaves no file behind, and the kernel releases it when its process ends.
"""

import errno
import socket
from types import TracebackType


class LockedError(Exception):
    """Another process holds the lock."""


class HostLock:
    """`with HostLock("name"):` raises LockedError when another process holds the lock."""

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
