"""Answers pings in the agent's event loop, on one socket for each address of a compute interface.

Delays of the event loop are part of the residence. Kernel time stamps measure the residence, and the other
end subtracts it. Without a live task the responder does not read its sockets, so a flood costs nothing.
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

# Maximum number of datagrams read before the event loop runs other work.
_AT_A_TIME = 32
_MAX_PENDING = 64
_RECEIVE_BUFFER_BYTES = 64 * 1024
# After this many answers without any kernel stamp, the responder measures the residence with its own clock.
_PATIENCE = 4
_PORT_TRIES = 16


@dataclass(slots=True)
class _Socket:
    ours: socket.socket
    interface: str
    address: str
    wire_bytes: int
    stamping: bool
    sends: int = 0  # sends since stamps were last numbered from 0
    stamps: int = 0
    pending: OrderedDict[int, tuple[LiveTask, int, int]] = field(default_factory=OrderedDict)


class Responder:
    """Answers pings of live tasks. `clock`: monotonic seconds. `sent`, `received`: number of packets."""

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
        """Whether the kernel stamps sent and received datagrams on all sockets."""
        return all(one.stamping for group in self._sockets.values() for one in group)

    def port_of(self, interface: str) -> int:
        """Return the UDP port of an interface; 0 when the responder is not open there."""
        return self._ports.get(interface, 0)

    def addresses_of(self, interface: str) -> tuple[str, ...]:
        return tuple(one.address for one in self._sockets.get(interface, ()))

    def open(self, interface: str, addresses: Sequence[str], port: int = 0) -> None:
        """Answer at these addresses of an interface, on one port for all. 0 selects a free port.

        Raises OSError. Then no socket of the interface is open.
        """
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
        """Start reading, when there is a live task."""
        if not self._awake:
            self._awake = True
            for group in self._sockets.values():
                self._watch(group)

    def rest(self) -> None:
        """Stop reading, when there is no live task."""
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
            # It is unknown whether the kernel counted this send, so restart the numbering.
            one.pending.clear()
            one.sends = 0
            one.stamping = one.stamping and enable(one.ours)
            return
        self.sent += 1
        number = one.sends
        one.sends += 1
        if stepped:
            return  # the residence of this answer is not reported
        kernel = one.stamping and datagram.received_ns and not (one.stamps == 0 and number >= _PATIENCE)
        if kernel:
            one.pending[number] = (task, ping.sequence, datagram.received_ns)
            while len(one.pending) > _MAX_PENDING:
                one.pending.popitem(last=False)
            self._take_stamps(one)  # usually the stamp is already available
        else:
            task.stayed(ping.sequence, self._read().steady_ns - came.steady_ns)

    def _allowed(self, task: LiveTask, wire_bytes: int) -> bool:
        """Whether the traffic limit allows this answer.

        The first ping of a burst takes the bytes for the whole burst. A burst that has to wait is only late,
        but a partially answered burst would count as packet loss.
        """
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
    # A small buffer: datagrams that wait in it for long are useless for a measurement.
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    family = 6 if ":" in address else 4
    return _Socket(ours, interface, plain_address(address), WIRE_BYTES[family], enable(ours))
