"""Serves the socket to which the LLDP listener sends received frames, and starts the listener.

The agent owns the socket, so the privileged listener accepts no input from it. The agent accepts
connections only from root and from its own user.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from hyperscout_agent.lldp.messages import MAX_MESSAGE_BYTES, Heard, MessageError, decode
from hyperscout_agent.runtime.subprocesses import start

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
                f"{self._path}: the path of a socket has at most {_MAX_PATH_BYTES} bytes: set lldp.socket"
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
        _log.info("the LLDP listener is connected")
        self._on_change()
        try:
            with peer, contextlib.suppress(ConnectionError):
                peer.setblocking(False)
                while message := await loop.sock_recv(peer, MAX_MESSAGE_BYTES + 1):
                    self._on_heard(decode(message))
        except MessageError as error:
            _log.warning("the LLDP listener sent an invalid message: %s", error)
        finally:
            self.connected -= 1
            self._on_change()
            _log.info("the LLDP listener is disconnected")


def _trusted(peer: socket.socket) -> bool:
    _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    if uid in (0, os.geteuid()):
        return True
    _log.warning("rejected an LLDP listener of user %d: expected root or the agent's own user", uid)
    return False


def may_listen() -> bool:
    """Whether this process has CAP_NET_RAW."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


async def run_listener(socket_path: Path, *, sysfs: Path, pattern: str | None) -> None:
    """Run the listener until cancelled, with the agent's stderr. Raises OSError when it ends by itself."""
    arguments = ["--socket", str(socket_path), "--sysfs", str(sysfs)]
    if pattern is not None:
        arguments += ["--ports", pattern]
    child = await start(
        (sys.executable, "-m", "hyperscout_agent.lldp.listener", *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=None,
    )
    try:
        raise OSError(f"the LLDP listener ended with exit code {await child.process.wait()}")
    finally:
        await child.end()
