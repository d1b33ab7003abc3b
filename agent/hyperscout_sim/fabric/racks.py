"""Clusters of racks that are one NVLink domain each, beside hosts whose NVLink ends in their own box.

What the cables say (rail leaves, spines, cores) is a `SimFabric` like any other; the NVLink domains inside
are values beside it, since no sweep shows them.
Trays have names as large sites give them: uk-london1-dc01-row01-rack01-tray07.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hyperscout_sim.fabric.build import Builder, numbers
from hyperscout_sim.fabric.fabric import Partition, SimFabric, informative
from hyperscout_sim.fabric.nvlink import TRAYS, Gpus, hgx_host, nvl72_rack

SITE = "uk-london1-dc01"
_HGX_RAILS = 8


@dataclass(frozen=True, slots=True)
class Rack:
    """Trays behind the same NVLink switches. `split_at`: those from that one on are in another clique, and
    cannot reach the others, though the switches are the same."""

    name: str
    trays: tuple[str, ...]
    split_at: int | None = None

    @property
    def cliques(self) -> Partition:
        """Trays that reach each other."""
        at = self.split_at or 0
        return tuple(frozenset(part) for part in (self.trays[:at], self.trays[at:]) if part)


@dataclass(frozen=True, slots=True)
class RackCluster:
    """`fabric` holds the cables of all hosts; those of `hgx` have NVSwitches of their own, those of
    `without_gpus` have no GPU. `units`: hosts under the same leaves. `gpus`: by host that has any."""

    fabric: SimFabric
    racks: tuple[Rack, ...]
    units: Partition
    hgx: tuple[str, ...] = ()
    without_gpus: tuple[str, ...] = ()
    gpus: Mapping[str, Gpus] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        found = {host: hgx_host(host) for host in self.hgx}
        for rack in self.racks:
            found |= nvl72_rack(rack.name, trays=rack.trays, split_at=rack.split_at)
        object.__setattr__(self, "gpus", found)

    @property
    def hosts(self) -> tuple[str, ...]:
        return self.fabric.hosts

    @property
    def nvlink(self) -> Partition:
        """The innermost domains: the cliques, and every other host alone."""
        cliques = [clique for rack in self.racks for clique in rack.cliques]
        return (*cliques, *(frozenset([host]) for host in (*self.hgx, *self.without_gpus)))

    @property
    def tiers(self) -> tuple[Partition, ...]:
        """The truth with NVLink inside the wires, of a cluster each of whose racks hangs under one unit."""
        found = informative((self.nvlink, *self.fabric.truth.tiers))
        alone = all(len(domain) == 1 for domain in found[0])
        return found[1:] if alone and len(found) > 1 else found


def racks(
    units: int,
    racks_per_unit: int,
    *,
    trays: int = TRAYS,
    rails: int = 4,
    spines: int = 4,
    pods: int = 1,
    hgx: int = 0,
    cpu_nodes: int = 0,
    split: Mapping[int, int] | None = None,
    moved: Mapping[str, int] | None = None,
    seed: int = 0,
) -> RackCluster:
    """`units` (of one pod) of some racks each; rail i of a unit's trays goes to that unit's rail-i leaf.
    All leaves of a pod meet in its spines, and cores join the n-th spines of all pods.

    `hgx`: hosts with eight rails in a unit of their own, `cpu_nodes`: hosts with one adapter, on a leaf of
    their own; both are in the first pod. `split`: rack (from 0) -> tray (from 0) with which its second
    clique begins. `moved`: tray -> unit (from 0, over all pods) that it is plugged into, in place of its
    rack's. Tier 1 = NVLink domain, tier 2 = unit, tier 3 = pod, tier 4 = all.
    """
    for what, size in (("units", units), ("racks_per_unit", racks_per_unit), ("trays", trays)):
        if size < 1:
            raise ValueError(f"{what} is {size}: it must be at least 1")
    build = Builder("racks", seed)
    found = _racks(pods * units, racks_per_unit, trays, split or {})
    boxes = tuple(f"{SITE}-row00-hgx{n}" for n in numbers(hgx)) if hgx else ()
    bare = tuple(f"{SITE}-row00-cpu{n}" for n in numbers(cpu_nodes)) if cpu_nodes else ()
    # (what its leaves are called, hosts, rails) of each unit, pod by pod
    plan = [
        [(f"u{u}", hosts, rails) for u, hosts in zip(numbers(units), members, strict=True)]
        for members in _members(found, units, racks_per_unit, moved or {})
    ]
    plan[0] += [("hgx", boxes, _HGX_RAILS)] * bool(boxes) + [("cpu", bare, 1)] * bool(bare)
    first_uplink = 1 + max(len(hosts) for pod in plan for _, hosts, _ in pod)
    cores = build.switches("core", 3, spines) if pods > 1 else []
    parts: list[frozenset[str]] = []
    wholes: list[frozenset[str]] = []
    for pod, p in zip(plan, numbers(pods), strict=True):
        at = f"p{p}-" if pods > 1 else ""
        tops = [build.switch(f"spine-{at}{n}", 2) for n in numbers(spines)]
        for name, hosts, width in pod:
            leaves = [build.switch(f"leaf-{at}{name}-r{rail}", 1, len(parts)) for rail in range(width)]
            for host in hosts:
                build.host(host, leaves)
            for leaf in leaves:
                build.skip_to(leaf, first_uplink)
            build.mesh(leaves, tops)
            parts.append(frozenset(hosts))
        for top, core in zip(tops, cores, strict=False):
            build.mesh([top], [core], 2)
        wholes.append(frozenset(host for _, hosts, _ in pod for host in hosts))
    fabric = build.finish(tuple(parts), tuple(wholes), (frozenset().union(*wholes),))
    return RackCluster(fabric, found, tuple(parts), boxes, bare)


def _racks(units: int, racks_per_unit: int, trays: int, split: Mapping[int, int]) -> tuple[Rack, ...]:
    """A row of racks for each unit."""
    names = [f"{SITE}-row{row}-rack{place}" for row in numbers(units) for place in numbers(racks_per_unit)]
    return tuple(
        Rack(name, tuple(f"{name}-tray{n}" for n in numbers(trays)), split.get(i))
        for i, name in enumerate(names)
    )


def _members(
    found: Sequence[Rack], units: int, racks_per_unit: int, moved: Mapping[str, int]
) -> list[list[tuple[str, ...]]]:
    """The hosts on the leaves of each unit, pod by pod."""
    count = len(found) // racks_per_unit
    members: list[tuple[str, ...]] = [()] * count
    for number, rack in enumerate(found):
        for tray in rack.trays:
            unit = moved.get(tray, number // racks_per_unit)
            members[unit] = (*members[unit], tray)
    return [members[first : first + units] for first in range(0, count, units)]
