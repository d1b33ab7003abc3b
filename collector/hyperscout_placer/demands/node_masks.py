"""Remembers which nodes pods with the same demands may use."""

from collections.abc import Callable, Mapping

from hyperscout_placer.cluster.capacity import Mask
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.demands.eligible import Object, demands_key, mask_for

_MAX_MASKS = 256


class NodeMasks:
    """The masks on the newest forest. `node`: returns the stored form of a node, None if it is unknown."""

    def __init__(self, node: Callable[[str], Object | None]) -> None:
        self._node = node
        self._masks: dict[str, Mask] = {}
        self._forest: Forest | None = None

    def nodes_changed(self) -> None:
        """Discard all masks: nodes, their labels, their taints or their state have changed."""
        self._masks.clear()

    def by_role(self, specs: Mapping[str, Object], forest: Forest) -> dict[str, Mask]:
        """The masks by role. `specs`: the part of a pod's spec in `DEMANDS`, by role."""
        if forest is not self._forest:
            self._forest = forest
            self._masks.clear()
        return {role: self._mask(spec, forest) for role, spec in specs.items()}

    def _mask(self, spec: Object, forest: Forest) -> Mask:
        key = demands_key(spec)
        if (mask := self._masks.get(key)) is None:
            if len(self._masks) >= _MAX_MASKS:
                self._masks.clear()
            mask = self._masks[key] = mask_for(spec, self._node, forest)
        return mask
