"""The cables of a healthy fabric while faults are planted, and which devices are alike.

A fault is planted only where a careful person could find it in the faulty fabric alone: at least two devices
of the same kind, in the same place, show how the touched one should be cabled ("Limits" in
docs/inference.md).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from hyperscout_formats.infiniband.ibnetdiscover import MAX_PORT

from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimSwitch
from hyperscout_sim.fabric.planted import NotApplicableError
from hyperscout_sim.uneven.case import Uneven

WITNESSES = 2


class Wiring:
    """`cables` are the present ones; everything else describes the healthy fabric.

    `touched`: hosts and switches that have a fault already. A further fault does not touch them.
    """

    def __init__(self, case: Uneven) -> None:
        self.case = case
        fabric = case.fabric
        self.cables = set(fabric.cables)
        self.touched: set[object] = set()
        self.switch: dict[int, SimSwitch] = {x.guid: x for x in fabric.switches}
        self.adapter: dict[int, SimAdapter] = {x.guid: x for x in fabric.adapters}
        self._free: dict[int, list[int]] = {}
        self.near: dict[int, list[int]] = defaultdict(list)  # between switches
        between = [c for c in fabric.cables if c.a in self.switch]
        for cable in between:
            self.near[cable.a].append(cable.b)
            self.near[cable.b].append(cable.a)
        self.computing = self._connected(g for g, x in self.switch.items() if x.domain is not None)
        self.uplinks: dict[int, list[Cable]] = defaultdict(list)  # of the lower switch
        for cable in between:
            if cable.a in self.computing and self.level(cable.a) < self.level(cable.b):
                self.uplinks[cable.a].append(cable)
        self.links: dict[str, list[Cable]] = defaultdict(list)  # host -> its cables in the compute fabric
        for cable in fabric.cables:
            adapter = self.adapter.get(cable.a)
            if adapter and not adapter.foreign and cable.b in self.computing:
                self.links[adapter.host].append(cable)
        self.unit = {host: n for n, domain in enumerate(self._units()) for host in domain}
        self._alike: dict[object, list[str]] = defaultdict(list)
        for host in self.links:
            self._alike[self._model(host)].append(host)

    def level(self, guid: int) -> int:
        return self.switch[guid].level

    def hosts(self, rails: int = 1) -> list[str]:
        """Return the untouched hosts with that many cables or more, and with two hosts alike."""
        return [h for h, mine in self.links.items() if len(mine) >= rails and self.has_witnesses(h)]

    def devices(self, host: str) -> tuple[str, ...]:
        """Return the names of its adapters in the compute fabric, which tell its model."""
        return tuple(self.adapter[cable.a].device for cable in self.links[host])

    def has_witnesses(self, host: str) -> bool:
        others = [h for h in self._alike[self._model(host)] if h != host and h not in self.touched]
        return host not in self.touched and len(others) >= WITNESSES

    def lowers(self, least: int = 1) -> list[int]:
        """Return the untouched switches with so many uplinks, and with two alike below the same ones."""
        return [g for g, mine in self.uplinks.items() if len(mine) >= least and self.lower_has_witnesses(g)]

    def lower_has_witnesses(self, guid: int, besides: int = 0) -> bool:
        """Return whether a switch and two alike, other than `besides`, are untouched."""
        mine, away = self._place(guid), {guid, besides, *self.touched}
        others = [g for g in self.uplinks if g not in away and self._place(g) == mine]
        return guid not in self.touched and len(others) >= WITNESSES

    def free_port(self, guid: int) -> int:
        """Take a port without a cable. Raises NotApplicableError."""
        if guid not in self._free:
            used = {port for cable in self.cables for g, port in cable.ends if g == guid}
            ports = range(1, min(self.switch[guid].port_count, MAX_PORT) + 1)
            self._free[guid] = [p for p in ports if p not in used]
        if not self._free[guid]:
            raise NotApplicableError("the switch has no free port")
        return self._free[guid].pop(0)

    def rewire(self, gone: Iterable[Cable], instead: Iterable[Cable] = ()) -> None:
        self.cables -= set(gone)
        self.cables |= set(instead)

    def touch(self, *guids: int) -> None:
        """Mark devices, an adapter by its host."""
        self.touched |= {self.adapter[g].host if g in self.adapter else g for g in guids}

    def _units(self) -> Iterable[frozenset[str]]:
        """Return the hosts below the same leaves, which NVLink domains may divide further."""
        found: dict[int | None, set[str]] = defaultdict(set)
        for host, mine in self.links.items():
            found[self.switch[mine[0].b].domain].add(host)
        return [frozenset(hosts) for hosts in found.values()]

    def _model(self, host: str) -> object:
        """Return what hosts alike have in common: unit, adapter names, leaves and rates."""
        mine = self.links[host]
        return self.unit[host], tuple((self.adapter[c.a].device, c.b, c.rate) for c in mine)

    def _place(self, guid: int) -> object:
        """Return what lower switches alike have in common: model, and cables to each upper switch by rate."""
        counts = Counter((c.b, c.rate) for c in self.uplinks[guid])
        return self.level(guid), self.switch[guid].port_count, frozenset(counts.items())

    def _connected(self, starts: Iterable[int]) -> set[int]:
        seen: set[int] = set()
        todo = list(starts)
        while todo:
            guid = todo.pop()
            if guid not in seen:
                seen.add(guid)
                todo += self.near[guid]
        return seen
