"""Receives link changes from the kernel (rtnetlink(7)), so that a pulled cable is noticed immediately."""

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_log = logging.getLogger(__name__)

_RTMGRP_LINK = 1
_RTM_NEWLINK, _RTM_DELLINK = 16, 17
_IFLA_IFNAME, _IFLA_OPERSTATE, _IFLA_CARRIER, _IFLA_CARRIER_CHANGES = 3, 16, 33, 35
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
_RECEIVE_BYTES = 64 * 1024
_BUFFER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """The state of one link in one message. None: the message does not contain the attribute."""

    name: str
    gone: bool
    operstate: int | None
    carrier: bool | None
    carrier_changes: int | None


def parse(data: bytes) -> list[LinkEvent]:
    """Parse the result of one recv(). Malformed parts are skipped; no input raises an error."""
    events = []
    for kind, body in messages(data):
        if kind not in (_RTM_NEWLINK, _RTM_DELLINK) or len(body) < _LINK.size:
            continue
        name = ""
        operstate = carrier = changes = None
        for attribute, value in attributes(body[_LINK.size :]):
            if attribute == _IFLA_IFNAME:
                name = value.split(b"\0", 1)[0].decode("utf-8", "replace")
            elif attribute == _IFLA_OPERSTATE and len(value) >= 1:
                operstate = value[0]
            elif attribute == _IFLA_CARRIER and len(value) >= 1:
                carrier = value[0] != 0
            elif attribute == _IFLA_CARRIER_CHANGES and len(value) >= 4:
                changes = int.from_bytes(value[:4], "little" if struct.pack("=H", 1)[0] else "big")
        if name:
            events.append(LinkEvent(name, kind == _RTM_DELLINK, operstate, carrier, changes))
    return events


class LinkWatch:
    """Calls `on_change` when a link appears, disappears or changes its state. Other messages are ignored."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._known: dict[str, LinkEvent] = {}

    async def run(self) -> None:
        """Listen until cancelled. Raises OSError when the kernel refuses the socket."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link_socket:
            link_socket.setblocking(False)
            link_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            link_socket.bind((0, _RTMGRP_LINK))
            self._on_change()  # covers changes before the socket was bound
            while True:
                try:
                    data = await loop.sock_recv(link_socket, _RECEIVE_BYTES)
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    # The socket's buffer overflowed and changes were lost. A new observation of all links
                    # covers them.
                    _log.info("link changes were lost: %s", error)
                    self._known.clear()
                    self._on_change()
                    continue
                self.take(data)

    def take(self, data: bytes) -> None:
        """Process the result of one recv()."""
        changed = False
        for event in parse(data):
            if event.gone:
                changed |= self._known.pop(event.name, None) is not None
            elif self._known.get(event.name) != event:
                self._known[event.name] = event
                changed = True
        if changed:
            self._on_change()


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, body) of each message in the results of one or several recv() of a netlink socket."""
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (type, value) of each attribute after the fixed part of a message."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
