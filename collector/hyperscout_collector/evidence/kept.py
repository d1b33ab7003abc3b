"""Results of measurements on request, which survive a restart of their agent: no agent would repeat them.

The newest `MAX_KEPT` of a node are kept, and fewer where other findings of the node need the space. An agent
reports its whole state, and must not be refused because of results of an earlier agent of its name.
"""

from collections.abc import Iterable, Mapping

from hyperscout_formats.facts.facts import NcclRun

from hyperscout_collector.evidence.rows import Key, Row

KEPT_PROBES = frozenset({"nccl"})
# A node has a result for each peer, and one for runs within the node. Runs in a window use one pair of each
# domain, so a node reaches this only by runs on request.
MAX_KEPT = 64


def is_result(key: Key, rows: Iterable[Row]) -> bool:
    """Whether the rows of a key contain a result. A run without one leaves nothing to keep."""
    return key.probe in KEPT_PROBES and any(isinstance(row.fact, NcclRun) for row in rows)


class KeptKeys:
    """The keys of `KEPT_PROBES` by node, with the time of their latest observation in Unix ns.

    `base`: what is true of nodes that have not changed here.
    """

    def __init__(self, base: "KeptKeys | None" = None) -> None:
        self._base = base
        self._nodes: dict[str, dict[Key, int]] = {}

    def of(self, node: str) -> Mapping[Key, int]:
        found = self._nodes.get(node)
        if found is None:
            return {} if self._base is None else self._base.of(node)
        return found

    def update(self, key: Key, rows: tuple[Row, ...]) -> None:
        """Record the rows of a key; () = it was removed."""
        if key.probe not in KEPT_PROBES:
            return
        if key.node not in self._nodes:
            self._nodes[key.node] = dict(self.of(key.node))
        keys = self._nodes[key.node]
        if rows:
            keys[key] = max(row.seen_ns for row in rows)
            return
        keys.pop(key, None)
        if not keys and self._base is None:
            del self._nodes[key.node]

    def oldest(self, node: str, other_than: Key | None = None) -> Key | None:
        keys = self.of(node)
        return min((key for key in keys if key != other_than), key=keys.__getitem__, default=None)
