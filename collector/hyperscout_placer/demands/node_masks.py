"""Remembers which nodes pods and roles with the same demands may use."""

import json
from collections.abc import Callable, Mapping

import numpy as np

from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.request import Request
from hyperscout_placer.demands.eligible import Object, demands_key, mask_for

_MAX_MASKS = 256


class NodeMasks:
    """The masks on the newest forest.

    `node`: returns the stored form of a node, None if it is unknown. None = all are; `unknown` is why then.
    """

    def __init__(self, node: Callable[[str], Object | None] | None, unknown: str = "") -> None:
        self._node = node
        self._unknown = unknown
        self._masks: dict[str, Mask] = {}
        self._forest: Forest | None = None

    def node_changed(self, before: Object | None, after: Object | None) -> None:
        """Discard all masks: a node appeared, changed its labels, taints or state, or disappeared."""
        if before != after:
            self._masks.clear()

    def of(self, request: Request, forest: Forest) -> dict[str, Mask]:
        """The masks of the roles of a request that have demands."""
        return self.by_role({role: json.loads(text) for role, text in request.demands}, forest)

    def by_role(self, specs: Mapping[str, Object], forest: Forest) -> dict[str, Mask]:
        """The masks by role. `specs`: the part of a pod's spec in `DEMANDS`, by role."""
        if forest is not self._forest:
            self._forest = forest
            self._masks.clear()
        return {role: self._mask(spec, forest) for role, spec in specs.items()}

    def _mask(self, spec: Object, forest: Forest) -> Mask:
        if self._node is None:
            none = np.zeros(len(forest.nodes), np.bool_)
            return Mask("unknown", none, why=f"may not be used, because {self._unknown}")
        key = demands_key(spec)
        if (mask := self._masks.get(key)) is None:
            if len(self._masks) >= _MAX_MASKS:
                self._masks.clear()
            mask = self._masks[key] = mask_for(spec, self._node, forest)
        return mask
