"""Bounds of measuring: what a burst costs, how fast bursts may follow one another, and who is left alone.

A probe is one burst to one peer. A task is two probes: each end pings the other, one after the other. What
both bursts put onto either end's wires, out and in, is charged to that end before the task is given out; so
over any time that is long against one task no node sees more than its share.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

NS = 1_000_000_000
PROBES_OF_TASK = 2
_WIRE_BYTES = 128  # of a ping or its answer: 60 in UDP over IPv6 in Ethernet, with checksum
# Besides those that count, agents send one after each two of them (it tells how long the peer kept those),
# and some to find the peer and to say that one is done.
_GROUP, _EXTRA_PINGS = 2, 4
_RDMA_BYTES = 2 * 64 * 1024 * 1024  # a test of bandwidth from each end
_WINDOW_NS = 10 * NS


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Times in seconds."""

    probes_per_s: float = 100.0  # of the cluster
    node_kbps: float = 200.0  # of each node, out and in
    pings: int = 16  # of a burst
    reverify_s: float = 21_600.0
    slot_s: float = 0.8  # a node is left to a task for as long: each of two bursts takes 0.25 s
    expires_s: float = 15.0  # then agents forget the key
    report_s: float = 45.0  # after that, until which results are waited for: agents publish every 10 s
    rdma_slot_s: float = 20.0
    rdma_expires_s: float = 60.0
    rest_s: float = 300.0  # a pair that was measured is not measured again before, whatever is planned
    disagree_s: float = 5.0  # a rail whose ends disagree, which noise makes them do; doubles each time
    hopeless_s: float = 40.0  # a pair that must wait so long for its next try keeps nobody else waiting
    back_off_s: float = 60.0  # a rail of a pair that failed; doubles with each failure
    node_back_off_s: float = 30.0  # a node whose tasks fail again and again; doubles too
    node_back_off_most_s: float = 3600.0
    node_failures: int = 3  # in a row, until it is left alone
    replan_s: float = 5.0  # between two plans
    replan_most_s: float = 60.0  # the same when nothing comes of them: it doubles up to this
    batch_s: float = 20.0  # of probes, that a plan is to hold
    resting: int = 100_000  # rails that are remembered to have been measured or to have failed

    def cost_ns(self, method: str) -> int:
        """For how long a task takes up all that a node may see."""
        sent = self.pings + -(-self.pings // _GROUP) + _EXTRA_PINGS
        size = 2 * 2 * sent * _WIRE_BYTES
        if method == "rdma":
            size = _RDMA_BYTES
        return round(size * 8 * NS / (self.node_kbps * 1000))

    @property
    def batch(self) -> int:
        """Pairs of one plan."""
        return max(32, min(4096, round(self.probes_per_s * self.batch_s / PROBES_OF_TASK)))


@dataclass(slots=True)
class Rate:
    """The cluster's probes: what may go now, and how many went lately."""

    per_s: float
    total: int = 0
    _tokens: float = PROBES_OF_TASK
    _at_ns: int | None = None
    _lately: list[tuple[int, int]] = field(default_factory=list)

    def allows(self, now_ns: int) -> bool:
        """Whether a task may be given out now. It holds half a second's worth: ticks are not exact."""
        if self._at_ns is not None:
            more = max(0, now_ns - self._at_ns) * self.per_s / NS
            self._tokens = min(self._tokens + more, max(float(PROBES_OF_TASK), self.per_s / 2))
        self._at_ns = now_ns
        return self._tokens >= PROBES_OF_TASK

    def take(self, now_ns: int) -> None:
        self._tokens -= PROBES_OF_TASK
        self.total += PROBES_OF_TASK
        if self._lately and self._lately[-1][0] == now_ns:
            self._lately[-1] = (now_ns, self._lately[-1][1] + PROBES_OF_TASK)
        else:
            self._lately = [x for x in self._lately if 0 <= now_ns - x[0] < _WINDOW_NS]
            self._lately.append((now_ns, PROBES_OF_TASK))

    def now_per_s(self, now_ns: int) -> float:
        """Of the last ten seconds."""
        recent = sum(count for at_ns, count in self._lately if 0 <= now_ns - at_ns < _WINDOW_NS)
        return recent * NS / _WINDOW_NS


@dataclass(slots=True)
class _Rest:
    until_ns: int
    failures: int = 0
    wait_s: float = 0.0  # for a failure


@dataclass(slots=True)
class Rests:
    """Who is left alone until when. A failure doubles the wait; a success ends the row of failures.

    At most `limit` are remembered; those that were put in first go first.
    """

    first_s: float
    most_s: float
    limit: int
    _rests: dict[Hashable, _Rest] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._rests)

    def is_over(self, key: Hashable, now_ns: int) -> bool:
        rest = self._rests.get(key)
        return rest is None or rest.until_ns <= now_ns

    def wait_s(self, key: Hashable) -> float:
        """How long it is left alone for its failures; 0 where it has none."""
        rest = self._rests.get(key)
        return rest.wait_s if rest else 0.0

    def failed(self, key: Hashable, now_ns: int, first_s: float | None = None) -> None:
        """`first_s`: of a lesser failure, that waits less."""
        before = self._rests.pop(key, None)
        failures = before.failures + 1 if before else 1
        wait_s = min((first_s or self.first_s) * 2.0 ** min(failures - 1, 30), self.most_s)
        self._put(key, _Rest(now_ns + round(wait_s * NS), failures, wait_s))

    def measured(self, key: Hashable, until_ns: int) -> None:
        self._rests.pop(key, None)
        self._put(key, _Rest(until_ns))

    def forget(self, now_ns: int) -> None:
        """Drop what no longer matters: a row of failures is remembered for another `most_s`."""
        most_ns = round(self.most_s * NS)
        self._rests = {
            key: rest
            for key, rest in self._rests.items()
            if rest.until_ns + (most_ns if rest.failures else 0) > now_ns
        }

    def _put(self, key: Hashable, rest: _Rest) -> None:
        while len(self._rests) >= self.limit:
            del self._rests[next(iter(self._rests))]
        self._rests[key] = rest
