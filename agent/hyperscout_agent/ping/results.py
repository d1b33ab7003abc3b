"""What was measured of whom: the newest of each peer, its interface and method, with a short history.
Bounded."""

from collections import OrderedDict
from dataclasses import replace

from hyperscout_formats.facts.facts import LatencyResult, LatencySample

# Of one interface. Some hosts are measured by everybody: in a cluster of so many nodes they know them all.
MAX_RESULTS = 3000
MAX_HISTORY = 8

_Key = tuple[str, str, str]


class Results:
    """Those of one interface; the one that was measured longest ago goes first."""

    def __init__(self) -> None:
        self.changes = 0
        self._held: OrderedDict[_Key, LatencyResult] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, result: LatencyResult) -> None:
        """Take in a burst: the one before becomes history, if it had a number."""
        key = (result.peer, result.peer_interface, result.method)
        before = self._held.pop(key, None)
        if before is not None:
            history = before.history
            if not before.failure:
                history = (*history, LatencySample(before.at_ns, before.min_us, before.jitter_us))
            result = replace(result, history=history[-MAX_HISTORY:])
        self._held[key] = result
        self.changes += 1
        while len(self._held) > MAX_RESULTS:
            self._held.popitem(last=False)

    def newest(self, share: float = 1.0, told: float = 1.0) -> tuple[LatencyResult, ...]:
        """By peer, its interface and method: all, or the part of them that was measured last. `told`: the
        part of these that have their history with them."""
        kept = list(self._held.items())
        kept = kept[len(kept) - int(len(kept) * share) :]
        bare = len(kept) - int(len(kept) * told)
        kept[:bare] = [(key, replace(x, history=()) if x.history else x) for key, x in kept[:bare]]
        return tuple(result for _, result in sorted(kept, key=lambda one: one[0]))
