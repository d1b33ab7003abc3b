"""The limits of measurements: the cost of a burst, the rate of bursts, and back-offs.

A probe is one burst to one peer. A task is two probes: the ends ping each other, one after the other. The
traffic of both bursts on an end's wires, out and in, is charged to that end before the task is assigned. Over
any time that is long against one task, no node exceeds its share.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from hyperscout_runtime.backoff import doubled_s
from hyperscout_runtime.rate_limit import TokenBucket
from hyperscout_runtime.units import NS

PROBES_OF_TASK = 2
_WIRE_BYTES = 128  # of a ping or its answer: 60 in UDP over IPv6 in Ethernet, with checksum
# Beside the counted pings, agents send one ping after every two of them (it reports how long the peer kept
# those). They also send a few to find the peer and to report the end of the burst.
_GROUP, _EXTRA_PINGS = 2, 4
_RDMA_BYTES = 2 * 64 * 1024 * 1024  # a bandwidth test from each end
_WINDOW_NS = 10 * NS


@dataclass(frozen=True, slots=True)
class PairSettings:
    """Settings of the measurements. Times in seconds."""

    probes_per_s: float = 100.0  # of the cluster
    node_kbps: float = 200.0  # of each node, out and in
    pings: int = 16  # of a burst
    reverify_s: float = 21_600.0
    slot_s: float = 0.8  # a task reserves its nodes this long: each of two bursts takes 0.25 s
    expires_s: float = 15.0  # then agents forget the key
    report_s: float = 45.0  # additional wait for the results: agents publish every 10 s
    rdma_slot_s: float = 20.0
    rdma_expires_s: float = 60.0
    rest_s: float = 300.0  # minimum time between two measurements of a pair, whatever is planned
    disagree_s: float = 5.0  # of a rail with disagreeing ends, often by noise; doubles each time
    hopeless_s: float = 40.0  # a pair with a longer back-off no longer delays other pairs
    back_off_s: float = 60.0  # of a rail of a pair that failed; doubles with each failure
    node_back_off_s: float = 30.0  # of a node with repeated failures; doubles too
    node_back_off_most_s: float = 3600.0
    node_failures: int = 3  # in a row, before the node backs off
    replan_s: float = 5.0  # between two plans
    replan_most_s: float = 60.0  # the same after plans without any task: the interval doubles up to this
    batch_s: float = 20.0  # amount of work of one plan: probes for this long
    resting: int = 100_000  # rails that are remembered as measured or failed

    def cost_ns(self, method: str) -> int:
        """Returns how long a task uses up a node's whole share of traffic, in ns."""
        sent = self.pings + -(-self.pings // _GROUP) + _EXTRA_PINGS
        size = 2 * 2 * sent * _WIRE_BYTES
        if method == "rdma":
            size = _RDMA_BYTES
        return round(size * 8 * NS / (self.node_kbps * 1000))

    @property
    def batch(self) -> int:
        """Number of pairs in one plan."""
        return max(32, min(4096, round(self.probes_per_s * self.batch_s / PROBES_OF_TASK)))


class Rate:
    """Limits the rate of the cluster's probes, and keeps the recent rate for display."""

    def __init__(self, per_s: float) -> None:
        self.total = 0
        # The bucket stores half a second of probes, because ticks are not exact.
        capacity = max(float(PROBES_OF_TASK), per_s / 2)
        self._bucket = TokenBucket(per_s / NS, capacity, PROBES_OF_TASK)
        self._lately: list[tuple[int, int]] = []

    def allows(self, now_ns: int) -> bool:
        """Whether a task may be assigned now."""
        return self._bucket.has(PROBES_OF_TASK, now_ns)

    def take(self, now_ns: int) -> None:
        self._bucket.charge(PROBES_OF_TASK, now_ns)
        self.total += PROBES_OF_TASK
        if self._lately and self._lately[-1][0] == now_ns:
            self._lately[-1] = (now_ns, self._lately[-1][1] + PROBES_OF_TASK)
        else:
            self._lately = [x for x in self._lately if 0 <= now_ns - x[0] < _WINDOW_NS]
            self._lately.append((now_ns, PROBES_OF_TASK))

    def now_per_s(self, now_ns: int) -> float:
        """Returns the mean rate of the last ten seconds, in probes per second."""
        recent = sum(count for at_ns, count in self._lately if 0 <= now_ns - at_ns < _WINDOW_NS)
        return recent * NS / _WINDOW_NS


@dataclass(slots=True)
class _Rest:
    until_ns: int
    failures: int = 0
    wait_s: float = 0.0  # of a failure


@dataclass(slots=True)
class Rests:
    """Back-offs and rests by key. A failure doubles the wait; a success resets it.

    At most `limit` keys are remembered; the oldest entries are dropped first.
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
        """Returns the back-off of its failures in seconds; 0 = it has none."""
        rest = self._rests.get(key)
        return rest.wait_s if rest else 0.0

    def failed(self, key: Hashable, now_ns: int, first_s: float | None = None) -> None:
        """Record a failure. `first_s`: first back-off of a lesser failure, which waits less."""
        before = self._rests.pop(key, None)
        failures = before.failures + 1 if before else 1
        wait_s = doubled_s(failures, first_s or self.first_s, self.most_s)
        self._put(key, _Rest(now_ns + round(wait_s * NS), failures, wait_s))

    def measured(self, key: Hashable, until_ns: int) -> None:
        self._rests.pop(key, None)
        self._put(key, _Rest(until_ns))

    def forget(self, now_ns: int) -> None:
        """Drop expired entries. Failures are remembered for another `most_s`."""
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
