"""Serves the socket to which the LLDP listener sends received frames.

The agent owns the socket, so the privileged listener accepts no input from it. The agent accepts
connections only from root and from its own user.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

from hyperscout_agent.lldp.messages import MAX_MESSAGE_BYTES, Heard, MessageError, decode

_log = logging.getLogger(__name__)

_PEER = struct.Struct("=iII")  # ucred: pid, uid, gid
_MAX_CONNECTIONS = 4
_MAX_PATH_BYTES = 107  # sun_path of unix(7)


class ListenerLink:
    """Passes each message to `on_heard`. `connected`: number of connected listeners."""

    def __init__(
        self, path: Path, on_heard: Callable[[Heard], None], on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._path = path
        self._on_heard = on_heard
        self._on_change = on_change
        self.connected = 0

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError when the socket cannot be created."""
        loop = asyncio.get_running_loop()
        with self._bound() as server:
            try:
                async with asyncio.TaskGroup() as group:
                    while True:
                        peer, _ = await loop.sock_accept(server)
                        if self.connected >= _MAX_CONNECTIONS or not _trusted(peer):
                            peer.close()
                            continue
                        self.connected += 1
                        group.create_task(self._serve(peer), name="lldp-link")
            finally:
                self._path.unlink(missing_ok=True)

    def _bound(self) -> socket.socket:
        if len(os.fsencode(self._path)) > _MAX_PATH_BYTES:
            raise OSError(
                f"{self._path}: longer than the {_MAX_PATH_BYTES} bytes that a socket's path may have"
            )
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            server.setblocking(False)
            server.bind(str(self._path))
            # Group access is needed in a pod: the listener runs as root without CAP_DAC_OVERRIDE and does
            # not own the socket, but both processes share the volume's group. The agent checks the peer's
            # user at each connection.
            self._path.chmod(0o660)
            server.listen(_MAX_CONNECTIONS)
        except OSError:
            server.close()
            raise
        return server

    async def _serve(self, peer: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        _log.info("the LLDP listener is here")
        self._on_change()
        try:
            with peer, contextlib.suppress(ConnectionError):
                peer.setblocking(False)
                while message := await loop.sock_recv(peer, MAX_MESSAGE_BYTES + 1):
                    self._on_heard(decode(message))
        except MessageError as error:
            _log.warning("the LLDP listener is not understood: %s", error)
        finally:
            self.connected -= 1
            self._on_change()
            _log.info("the LLDP listener is gone")


def _trusted(peer: socket.socket) -> bool:
    _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if uid in (0, os.geteuid()):
        return True
    _log.warning("user %d may not send LLDP frames to the agent", uid)
    return False
