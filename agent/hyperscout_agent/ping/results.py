"""Stores the newest latency result by peer, peer interface and method, with a bounded history."""

from collections import OrderedDict
from dataclasses import replace

from hyperscout_formats.facts.facts import LatencyResult, LatencySample

# Per interface. Some hosts measure with every other node, so this is also the largest cluster of which such
# a host keeps all results.
MAX_RESULTS = 3000
MAX_HISTORY = 8

_Key = tuple[str, str, str]


class Results:
    """The results of one interface. The result measured longest ago is evicted first."""

    def __init__(self) -> None:
        self.changes = 0
        self._held: OrderedDict[_Key, LatencyResult] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def put(self, result: LatencyResult) -> None:
        """Store a result. The previous one becomes history unless it is a failure."""
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

    def newest(self, share: float = 1.0, with_history: float = 1.0) -> tuple[LatencyResult, ...]:
        """Return the results, sorted by peer, peer interface and method.

        `share`: the share of the results to return, the newest ones. `with_history`: the share of these
        that include their history, the newest ones.
        """
        kept = list(self._held.items())
        kept = kept[len(kept) - int(len(kept) * share) :]
        bare = len(kept) - int(len(kept) * with_history)
        kept[:bare] = [(key, replace(x, history=()) if x.history else x) for key, x in kept[:bare]]
        return tuple(result for _, result in sorted(kept, key=lambda one: one[0]))
