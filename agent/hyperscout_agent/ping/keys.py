"""Decides which pings are answered: live tasks, their keys and their sequence numbers. No I/O.

A ping is answered when it is authenticated with the key of a live task, comes from the task's other end and
peer address, arrives at the task's interface and address, and has a sequence number higher than all before.
All other packets are dropped silently and counted by reason. A packet without a live task costs one
dictionary lookup.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address

from hyperscout_agent.ping.packet import (
    DONE,
    PING,
    PONG,
    RESIDENCES,
    Packet,
    PacketError,
    pack,
    task_of,
    unpack,
)

MAX_TASKS = 256


def plain_address(text: str) -> str:
    """Return the canonical spelling of an address, without a zone. Raises ValueError."""
    address = ip_address(text.split("%", 1)[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


@dataclass(slots=True)
class LiveTask:
    """One end of a task. `first`: this end measures first. Addresses are as `plain_address` returns them."""

    task_id: int
    key: bytes
    first: bool
    interface: str
    address: str
    peer_address: str
    expires_s: float  # monotonic clock
    pings: int = 16  # pings in the other end's burst
    paid: int = field(default=0, init=False)  # further answers that the traffic limit has already allowed
    heard: int = field(default=-1, init=False)  # highest sequence number received
    heard_s: float | None = field(default=None, init=False)  # time of the last valid packet
    done: bool = field(default=False, init=False)  # the peer reported that its measurement is over
    residence_ns: OrderedDict[int, int] = field(default_factory=OrderedDict, init=False)

    def stayed(self, sequence: int, residence_ns: int) -> None:
        """Record the residence: the time between receiving a ping and sending its answer."""
        self.residence_ns[sequence] = residence_ns
        while len(self.residence_ns) > 2 * RESIDENCES:
            self.residence_ns.popitem(last=False)


class Keyring:
    """The live tasks, at most MAX_TASKS. `on_done`: called with a task when its peer reports the end."""

    def __init__(self, on_done: Callable[[LiveTask], None] = lambda _: None) -> None:
        self.dropped: Counter[str] = Counter()  # by reason
        self._live: dict[int, LiveTask] = {}
        self.on_done = on_done

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, task_id: int) -> bool:
        return task_id in self._live

    def add(self, task: LiveTask) -> bool:
        """Add a task. Returns False for a known task or when the keyring is full."""
        if task.task_id in self._live or len(self._live) >= MAX_TASKS:
            return False
        self._live[task.task_id] = task
        return True

    def forget(self, task_id: int) -> None:
        self._live.pop(task_id, None)

    def forget_all(self) -> None:
        self._live.clear()

    def hear(
        self, datagram: bytes, source: str, interface: str, address: str, now_s: float
    ) -> tuple[LiveTask, Packet] | None:
        """Return the task and the ping to answer, or None when the datagram gets no answer."""
        task_id = task_of(datagram)
        if task_id is None:
            self._drop("malformed")
            return None
        task = self._live.get(task_id)
        if task is None or task.expires_s <= now_s:
            self._drop("unknown task")
            return None
        if (task.interface, task.address) != (interface, address):
            self._drop("wrong interface")
            return None
        if source != task.peer_address:
            self._drop("wrong address")
            return None
        try:
            packet = unpack(datagram, task.key)
        except PacketError as error:
            self._drop(str(error))
            return None
        if packet.first == task.first or packet.kind not in (PING, DONE):
            self._drop("reflected")
            return None
        if packet.sequence <= task.heard:
            self._drop("replayed")
            return None
        task.heard, task.heard_s = packet.sequence, now_s
        if packet.kind == DONE:
            task.done = True
            self.on_done(task)
            return None
        return task, packet

    def _drop(self, reason: str) -> None:
        self.dropped[reason] += 1


def answer_to(ping: Packet, task: LiveTask) -> bytes:
    """Return the answer: as large as the ping, with its nonce and the residences of earlier answers."""
    stayed = tuple(task.residence_ns.get(ping.sequence - back, 0) for back in range(1, RESIDENCES + 1))
    return pack(Packet(PONG, task.first, task.task_id, ping.sequence, ping.nonce, stayed), task.key)
