"""Makes clusters of racks that are one NVLink domain each, with or without HGX and CPU hosts.

The cabling (rail leaves, spines, cores) is a `SimFabric` like any other. The NVLink domains are separate
values, because no sweep shows them. Trays have names as on large sites: uk-london1-dc01-row01-rack01-tray07.
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
    """Trays behind the same NVLink switches.

    `split_at`: the trays from this index on are in another clique. They cannot reach the other trays,
    although the switches are the same.
    """

    name: str
    trays: tuple[str, ...]
    split_at: int | None = None

    @property
    def cliques(self) -> Partition:
        """Sets of trays that reach each other."""
        at = self.split_at or 0
        return tuple(frozenset(part) for part in (self.trays[:at], self.trays[at:]) if part)


@dataclass(frozen=True, slots=True)
class RackCluster:
    """A cluster of racks. `fabric` has the cables of all hosts.

    The hosts of `hgx` have their own NVSwitches. The hosts of `without_gpus` have no GPU. `units`: the hosts
    under the same leaves. `gpus`: host -> GPUs, for hosts with GPUs.
    """

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
        """The innermost domains: the cliques, and a domain of its own for every other host."""
        cliques = [clique for rack in self.racks for clique in rack.cliques]
        return (*cliques, *(frozenset([host]) for host in (*self.hgx, *self.without_gpus)))

    @property
    def tiers(self) -> tuple[Partition, ...]:
        """The true topology with NVLink domains as innermost tier. Each rack must be under one unit."""
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
    """Make a cluster of pods of `units` units with `racks_per_unit` racks each.

    Rail i of the trays of a unit goes to the rail-i leaf of that unit. All leaves of a pod connect to its
    spines, and cores join the n-th spines of all pods.

    `hgx`: number of hosts with eight rails, in a unit of their own. `cpu_nodes`: number of hosts with one
    adapter, on a leaf of their own. Both are in the first pod. `split`: rack (from 0) -> tray (from 0) at
    which its second clique begins. `moved`: tray -> unit (from 0, over all pods) to which it is connected
    instead of the unit of its rack.

    Tier 1 = NVLink domain, tier 2 = unit, tier 3 = pod, tier 4 = all. Raises ValueError for a size below 1.
    """
    for what, size in (("units", units), ("racks_per_unit", racks_per_unit), ("trays", trays)):
        if size < 1:
            raise ValueError(f"{what} is {size}; expected at least 1")
    build = Builder("racks", seed)
    found = _racks(pods * units, racks_per_unit, trays, split or {})
    boxes = tuple(f"{SITE}-row00-hgx{n}" for n in numbers(hgx)) if hgx else ()
    bare = tuple(f"{SITE}-row00-cpu{n}" for n in numbers(cpu_nodes)) if cpu_nodes else ()
    # (name of its leaves, hosts, rails) of each unit, pod by pod
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
    """Return the racks of all units. Each unit is one row."""
    names = [f"{SITE}-row{row}-rack{place}" for row in numbers(units) for place in numbers(racks_per_unit)]
    return tuple(
        Rack(name, tuple(f"{name}-tray{n}" for n in numbers(trays)), split.get(i))
        for i, name in enumerate(names)
    )


def _members(
    found: Sequence[Rack], units: int, racks_per_unit: int, moved: Mapping[str, int]
) -> list[list[tuple[str, ...]]]:
    """Return the hosts on the leaves of each unit, pod by pod."""
    count = len(found) // racks_per_unit
    members: list[tuple[str, ...]] = [()] * count
    for number, rack in enumerate(found):
        for tray in rack.trays:
            unit = moved.get(tray, number // racks_per_unit)
            members[unit] = (*members[unit], tray)
    return [members[first : first + units] for first in range(0, count, units)]
