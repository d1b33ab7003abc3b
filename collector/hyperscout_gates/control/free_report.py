"""Reports free resources to the placements: which nodes changed, and what was reported before."""

from collections.abc import Mapping

from hyperscout_placer.book.placements import Placements

from hyperscout_gates.workloads.node_resources import FreeResources


class FreeReport:
    """`changed`: nodes whose free resources may have changed since the last report."""

    def __init__(self) -> None:
        self.resources = FreeResources()
        self.changed: set[str] = set()
        self._reported: dict[str, Mapping[str, int]] = {}

    def report_all(self, placements: Placements) -> None:
        self._reported = dict(self.resources.all())
        placements.set_unused(self._reported)
        self.changed.clear()

    def report(self, placements: Placements) -> bool:
        """Report the changed nodes. Returns whether resources became free."""
        grown = False
        for node in self.changed:
            free = self.resources.of(node)
            before = self._reported.get(node, {})
            if free is None:
                self._reported.pop(node, None)
            else:
                self._reported[node] = free
                grown = grown or any(amount > before.get(name, 0) for name, amount in free.items())
            placements.set_unused_of(node, free)
        self.changed.clear()
        return grown
