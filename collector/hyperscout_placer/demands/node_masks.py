"""Remembers which nodes pods and roles with the same demands may use."""

import json
from collections.abc import Callable, Mapping

import numpy as np

from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Request
from hyperscout_placer.demands.eligible import Object, demands_key, mask_for

_MAX_MASKS = 256
_MAX_ENTRIES = 2_000_000  # nodes of all masks of a table together; each takes up to 70 bytes


class MaskTable:
    """The masks on one forest, for the nodes as they were at one moment. Threads may use it.

    `nodes`: the stored forms by name. None = all are unknown; `unknown` is why then.
    """

    def __init__(self, forest: Forest, nodes: Mapping[str, Object] | None, unknown: str) -> None:
        self.forest = forest
        self._nodes = nodes
        self._unknown = unknown
        self._masks: dict[str, Mask] = {}
        self._most = max(1, min(_MAX_MASKS, _MAX_ENTRIES // max(1, len(forest.nodes))))

    def of(self, request: Request) -> dict[str, Mask]:
        """The masks of the roles of a request that have demands."""
        return self.by_role({role: json.loads(text) for role, text in request.demands})

    def by_role(self, specs: Mapping[str, Object]) -> dict[str, Mask]:
        """The masks by role. `specs`: the part of a pod's spec in `DEMANDS`, by role."""
        return {role: self._mask(spec) for role, spec in specs.items()}

    def _mask(self, spec: Object) -> Mask:
        if self._nodes is None:
            none = np.zeros(len(self.forest.nodes), np.bool_)
            return Mask("unknown", none, why=f"may not be used, because {self._unknown}")
        key = demands_key(spec)
        if (mask := self._masks.get(key)) is None:
            mask = mask_for(spec, self._nodes.get, self.forest)
            if len(self._masks) >= self._most:
                self._masks.clear()
            self._masks[key] = mask
        return mask


class NodeMasks:
    """The masks on the newest forest.

    `node`: returns the stored form of a node, None if it is unknown. None = all are; `unknown` is why then.
    """

    def __init__(self, node: Callable[[str], Object | None] | None, unknown: str = "") -> None:
        self._node = node
        self._unknown = unknown
        self._table: MaskTable | None = None

    def node_changed(self, before: Object | None, after: Object | None) -> None:
        """Discard all masks: a node appeared, changed its labels, taints or state, or disappeared."""
        if before != after:
            self._table = None

    def now(self, forest: Forest) -> MaskTable:
        """The masks for the nodes as they are now."""
        if self._table is None or self._table.forest is not forest:
            nodes = None
            if self._node is not None:
                found = ((name, self._node(name)) for name in forest.nodes)
                nodes = {name: node for name, node in found if node is not None}
            self._table = MaskTable(forest, nodes, self._unknown)
        return self._table
