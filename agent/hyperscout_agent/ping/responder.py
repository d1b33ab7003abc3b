"""Answers pings, on one socket for each address of a compute interface, in the agent's event loop.

The loop's own delays are part of the residence, which is measured by kernel time stamps and taken out at
the other end. While no task is alive nothing is even read: a flood then costs the agent nothing.
"""

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.clocks import Reading, read_clocks
from hyperscout_agent.ping.keys import Keyring, LiveTask, answer_to, plain_address
from hyperscout_agent.ping.packet import WIRE_BYTES, packets_of
from hyperscout_agent.ping.stamps import Datagram, enable, open_socket, receive, sent_stamps

_log = logging.getLogger(__name__)

# Datagrams read before the loop's other work gets its turn.
_AT_A_TIME = 32
_MAX_PENDING = 64
_RECEIVE_BUFFER_BYTES = 64 * 1024
# A kernel that stamped none of so many answers stamps none.
_PATIENCE = 4
_PORT_TRIES = 16


@dataclass(slots=True)
class _Socket:
    ours: socket.socket
    interface: str
    address: str
    wire_bytes: int
    stamping: bool
    sends: int = 0  # since stamps are numbered
    stamps: int = 0
    pending: OrderedDict[int, tuple[LiveTask, int, int]] = field(default_factory=OrderedDict)


class Responder:
    """`clock`: monotonic seconds. `sent`, `received`: packets."""

    def __init__(
        self,
        keyring: Keyring,
        bucket: Bucket,
        *,
        clock: Callable[[], float],
        read: Callable[[], Reading] = read_clocks,
    ) -> None:
        self.sent = 0
        self.received = 0
        self._keyring = keyring
        self._bucket = bucket
        self._clock = clock
        self._read = read
        self._last: Reading | None = None
        self._sockets: dict[str, list[_Socket]] = {}  # by interface
        self._ports: dict[str, int] = {}
        self._awake = False

    @property
    def stamping(self) -> bool:
        """Whether the kernel stamps what goes and comes on all sockets."""
        return all(one.stamping for group in self._sockets.values() for one in group)

    def port_of(self, interface: str) -> int:
        """0 = nobody answers there."""
        return self._ports.get(interface, 0)

    def addresses_of(self, interface: str) -> tuple[str, ...]:
        return tuple(one.address for one in self._sockets.get(interface, ()))

    def open(self, interface: str, addresses: Sequence[str], port: int = 0) -> None:
        """Answer at these addresses of an interface, on one port for all. Raises OSError; nothing is open
        then."""
        self.close(interface)
        tries = _PORT_TRIES if port == 0 else 1
        for left in range(tries - 1, -1, -1):
            group: list[_Socket] = []
            try:
                for address in addresses:
                    chosen = port or (group[0].ours.getsockname()[1] if group else 0)
                    group.append(_made(interface, address, chosen))
            except OSError:
                for one in group:
                    one.ours.close()
                if left == 0:
                    raise
                continue
            self._sockets[interface] = group
            self._ports[interface] = group[0].ours.getsockname()[1] if group else 0
            if self._awake:
                self._watch(group)
            return

    def close(self, interface: str) -> None:
        for one in self._sockets.pop(interface, ()):
            if self._awake:
                asyncio.get_running_loop().remove_reader(one.ours)
            one.ours.close()
        self._ports.pop(interface, None)

    def close_all(self) -> None:
        for interface in list(self._sockets):
            self.close(interface)

    def wake(self) -> None:
        """There are keys: read."""
        if not self._awake:
            self._awake = True
            for group in self._sockets.values():
                self._watch(group)

    def rest(self) -> None:
        """There are none: do not even read."""
        if self._awake:
            self._awake = False
            for group in self._sockets.values():
                for one in group:
                    asyncio.get_running_loop().remove_reader(one.ours)
                    one.pending.clear()

    def _watch(self, group: Sequence[_Socket]) -> None:
        loop = asyncio.get_running_loop()
        for one in group:
            loop.add_reader(one.ours, self._ready, one)

    def _ready(self, one: _Socket) -> None:
        self._take_stamps(one)
        for _ in range(_AT_A_TIME):
            try:
                datagram = receive(one.ours)
            except OSError as error:
                _log.debug("pings to %s: %s", one.address, error)
                return
            if datagram is None:
                return
            self.received += 1
            self._answer(one, datagram)

    def _answer(self, one: _Socket, datagram: Datagram) -> None:
        heard = self._keyring.hear(
            datagram.data, plain_address(datagram.source), one.interface, one.address, self._clock()
        )
        if heard is None:
            return
        task, ping = heard
        if not self._allowed(task, one.wire_bytes):
            self._keyring.dropped["rate limit"] += 1
            return
        came = self._read()
        stepped = self._last is not None and came.stepped_since(self._last)
        self._last = came
        try:
            one.ours.sendto(answer_to(ping, task), (datagram.source, datagram.source_port))
        except OSError as error:
            self._keyring.dropped["not sent"] += 1
            _log.debug("answer to %s: %s", datagram.source, error)
            # Whether the kernel counted this send is not known: number them anew.
            one.pending.clear()
            one.sends = 0
            one.stamping = one.stamping and enable(one.ours)
            return
        self.sent += 1
        number = one.sends
        one.sends += 1
        if stepped:
            return  # its residence stays untold
        kernel = one.stamping and datagram.received_ns and not (one.stamps == 0 and number >= _PATIENCE)
        if kernel:
            one.pending[number] = (task, ping.sequence, datagram.received_ns)
            while len(one.pending) > _MAX_PENDING:
                one.pending.popitem(last=False)
            self._take_stamps(one)  # mostly it is there already
        else:
            task.stayed(ping.sequence, self._read().steady_ns - came.steady_ns)

    def _allowed(self, task: LiveTask, wire_bytes: int) -> bool:
        """A burst is paid for as a whole when its first ping comes: one that has to wait is late, one that
        was answered in parts would look like loss."""
        if not task.paid:
            answers = min(packets_of(task.pings), self._bucket.most_bytes // wire_bytes)
            if not self._bucket.take(answers * wire_bytes, answer=True):
                return False
            task.paid = answers
        task.paid -= 1
        return True

    def _take_stamps(self, one: _Socket) -> None:
        if not one.stamping:
            return
        for number, left_ns in sent_stamps(one.ours):
            one.stamps += 1
            waiting = one.pending.pop(number, None)
            if waiting is not None:
                task, sequence, came_ns = waiting
                task.stayed(sequence, left_ns - came_ns)


def _made(interface: str, address: str, port: int) -> _Socket:
    ours = open_socket(address, port, interface)
    # Small: what comes while nobody reads, or faster than it is read, is of no use.
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    family = 6 if ":" in address else 4
    return _Socket(ours, interface, plain_address(address), WIRE_BYTES[family], enable(ours))
