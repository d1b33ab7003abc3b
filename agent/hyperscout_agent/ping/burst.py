"""Sends one burst of pings to one peer.

The burst blocks in a thread of its own, so that the agent's event loop adds no delay. It first pings until
the peer answers, because the peer may receive its task a moment later. Then it sends pings in groups, each
ping after the previous one is answered or timed out. The first ping of a group wakes up sleeping resources
(a CPU, a cache) and is not counted. The last ping of the burst is not counted either: its answer only
carries the residence of the previous ping.
"""

import itertools
import secrets
import select
import socket
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hyperscout_runtime.units import NS

from hyperscout_agent.ping.bucket import Bucket
from hyperscout_agent.ping.clocks import Reading, read_clocks
from hyperscout_agent.ping.keys import plain_address
from hyperscout_agent.ping.packet import (
    DONE,
    GROUP,
    NONCE_BYTES,
    PING,
    PONG,
    WIRE_BYTES,
    Packet,
    PacketError,
    pack,
    packets_of,
    unpack,
)
from hyperscout_agent.ping.stamps import Datagram, enable, open_socket, receive, sent_stamps
from hyperscout_agent.ping.statistics import PingSample, Summary, summary

_FIND_EVERY_S = 0.1
_FIND_TRIES = 20
_ANSWER_S = 0.2
# A host can be slow for some milliseconds (its clock, a busy neighbour on its core, a queue), which would
# slow all consecutive pings. Groups are therefore spread over this time, at irregular intervals.
_SPREAD_S = 0.25
_RHYTHM = (0.8, 1.25, 0.95)
# Maximum delay until a stop takes effect.
_SLICE_S = 0.05
# How long the burst waits at its end for missing kernel stamps.
_LAST_STAMPS_S = 0.01


@dataclass(frozen=True, slots=True)
class BurstPlan:
    """The two ends and the key of a burst. `first`: this end measures first."""

    task_id: int
    key: bytes
    first: bool
    interface: str
    address: str
    peer_address: str
    peer_port: int
    pings: int

    @property
    def wire_bytes(self) -> int:
        """Bytes of one ping on the wire."""
        return WIRE_BYTES[6 if ":" in self.address else 4]

    @property
    def cost_bytes(self) -> int:
        """Bytes of a whole burst if the peer answers the first ping."""
        return (packets_of(self.pings) + 1) * self.wire_bytes


@dataclass(slots=True)
class _Ping:
    nonce: bytes
    before: Reading
    left_ns: int = 0  # kernel stamps
    came_ns: int = 0
    after: Reading | None = None  # None = not answered


class Burst:
    """One burst. Call `run` in a thread of its own; call `stop` from any thread.

    `turn`: the lock for exchanging pings, so that only one burst does so at a time.
    """

    def __init__(
        self,
        plan: BurstPlan,
        bucket: Bucket,
        turn: threading.Lock,
        *,
        read: Callable[[], Reading] = read_clocks,
    ) -> None:
        self.sent = 0
        self.received = 0
        self.dropped: Counter[str] = Counter()
        self.stamped = False  # by the kernel
        self._plan = plan
        self._bucket = bucket
        self._turn = turn
        self._read = read
        self._stopped = threading.Event()
        self._peer_address = plain_address(plan.peer_address)
        self._pings: list[_Ping] = []
        self._residence_ns: dict[int, int] = {}

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> Summary | None:
        """Run the burst and return its summary, or None when it was stopped.

        The caller has already taken plan.cost_bytes from the bucket.
        """
        plan = self._plan
        try:
            ours = open_socket(plan.address, 0, plan.interface)
        except OSError as error:
            return Summary(0, 0, failure=f"cannot send from {plan.address}: {error.strerror or error}")
        with ours:
            stamping = enable(ours)
            poll = select.poll()
            poll.register(ours, select.POLLIN)
            try:
                return self._measure(ours, poll, stamping)
            except OSError as error:
                return Summary(
                    len(self._pings),
                    0,
                    failure=f"cannot send to {plan.peer_address}: {error.strerror or error}",
                )

    def _measure(self, ours: socket.socket, poll: "select.poll", stamping: bool) -> Summary | None:
        plan = self._plan
        found = self._find_peer(ours, poll)
        counted: list[int] = []
        pauses_s = itertools.cycle(one * _SPREAD_S * GROUP / plan.pings for one in _RHYTHM)
        while found and len(counted) < plan.pings:
            if counted and self._stopped.wait(next(pauses_s)):
                return None
            counted += self._group(ours, poll, min(plan.pings - len(counted), GROUP))
            if self._stopped.is_set():
                return None
        if found:
            self._ping(ours, poll, _ANSWER_S)
        if self._stopped.is_set():
            return None
        done = Packet(DONE, plan.first, plan.task_id, len(self._pings))
        ours.sendto(pack(done, plan.key), (plan.peer_address, plan.peer_port))
        self.sent += 1
        if not found:
            return Summary(len(self._pings), 0, failure="no answer")
        if stamping and any(self._pings[at].after and not self._pings[at].left_ns for at in counted):
            poll.poll(_LAST_STAMPS_S * 1000)
            self._take_stamps(ours)
        self.stamped = any(self._pings[at].left_ns and self._pings[at].came_ns for at in counted)
        samples = [sample for at in counted if (sample := self._sample(at, self._pings[at]))]
        return summary(plan.pings, samples)

    def _group(self, ours: socket.socket, poll: "select.poll", pings: int) -> range:
        """Send one wake-up ping and `pings` counted pings under the turn lock.

        Returns the sequence numbers of the counted pings; empty when the burst was stopped.
        """
        while not self._turn.acquire(timeout=_SLICE_S):
            if self._stopped.is_set():
                return range(0)
        try:
            for _ in range(1 + pings):
                self._ping(ours, poll, _ANSWER_S)
        finally:
            self._turn.release()
        return range(len(self._pings) - pings, len(self._pings))

    def _find_peer(self, ours: socket.socket, poll: "select.poll") -> bool:
        """Ping until the peer answers; return whether it did.

        The first exchange fills caches and neighbour tables, so it is not counted.
        """
        for attempt in range(_FIND_TRIES):
            if attempt and not self._bucket.take(self._plan.wire_bytes):
                if self._stopped.wait(_FIND_EVERY_S):
                    return False
                continue
            if self._ping(ours, poll, _FIND_EVERY_S):
                return True
            if self._stopped.is_set():
                return False
        return False

    def _ping(self, ours: socket.socket, poll: "select.poll", timeout_s: float) -> bool:
        """Send one ping and wait for its answer. Returns whether it arrived in time."""
        plan = self._plan
        sequence = len(self._pings)
        nonce = secrets.token_bytes(NONCE_BYTES)
        datagram = pack(Packet(PING, plan.first, plan.task_id, sequence, nonce), plan.key)
        ping = _Ping(nonce, self._read())
        self._pings.append(ping)
        ours.sendto(datagram, (plan.peer_address, plan.peer_port))
        self.sent += 1
        until_ns = ping.before.steady_ns + int(timeout_s * NS)
        now_ns = ping.before.steady_ns
        while ping.after is None and now_ns < until_ns and not self._stopped.is_set():
            left_ms = min((until_ns - now_ns) / 1e6, _SLICE_S * 1000)
            for _, events in poll.poll(max(left_ms, 1.0)):
                if events & ~select.POLLIN:
                    self._take_stamps(ours)
                while datagram_in := receive(ours):
                    self._take(datagram_in)
            now_ns = self._read().steady_ns
        return ping.after is not None

    def _take(self, datagram: Datagram) -> None:
        """Accept a datagram only if it is a valid answer to an unanswered ping of this burst."""
        self.received += 1
        plan = self._plan
        try:
            if (plain_address(datagram.source), datagram.source_port) != (self._peer_address, plan.peer_port):
                raise PacketError("wrong address")
            packet = unpack(datagram.data, plan.key)
        except PacketError as error:
            self.dropped[str(error)] += 1
            return
        if packet.task_id != plan.task_id or packet.kind != PONG or packet.first == plan.first:
            self.dropped["reflected"] += 1
            return
        ping = self._pings[packet.sequence] if packet.sequence < len(self._pings) else None
        if ping is None or ping.after is not None or ping.nonce != packet.nonce:
            self.dropped["replayed"] += 1
            return
        ping.came_ns = datagram.received_ns
        ping.after = self._read()
        for back, residence_ns in enumerate(packet.residence_ns, 1):
            if residence_ns:
                self._residence_ns.setdefault(packet.sequence - back, residence_ns)

    def _take_stamps(self, ours: socket.socket) -> None:
        for number, left_ns in sent_stamps(ours):
            if number < len(self._pings):
                self._pings[number].left_ns = left_ns

    def _sample(self, sequence: int, ping: _Ping) -> PingSample | None:
        if ping.after is None:
            return None
        at_most_ns = ping.after.steady_ns - ping.before.steady_ns
        gap_ns = ping.came_ns - ping.left_ns if self.stamped and ping.left_ns and ping.came_ns else at_most_ns
        return PingSample(
            gap_ns, self._residence_ns.get(sequence, 0), at_most_ns, ping.after.stepped_since(ping.before)
        )
