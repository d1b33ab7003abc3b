"""The plan of a site: pods of units of hosts, and everything else that is cabled to the fabric.

A trait changes the plan. `cabling` builds the fabric from it. The truth follows from the plan alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

from hyperscout_sim.readings.lldp import PLAIN_HOSTS, Hearing
from hyperscout_sim.uneven.naming import Model, Naming


class UnsuitableError(ValueError):
    """The plan has no place for this trait."""


@dataclass(slots=True)
class Host:
    """`rails` are the leaves of its unit that its adapters are cabled to, `devices` the adapters' names.

    `rate` "" is the rate of its unit.
    """

    name: str
    rails: tuple[int, ...]
    devices: tuple[str, ...]
    rate: str = ""


@dataclass(slots=True)
class Unit:
    """Hosts below the same leaves, one leaf for each rail. `uplinks`: cables from a leaf to each spine.

    `first_uplink` is the first port of the leaves' uplinks, `first_host` that of their hosts. `model` None is
    the usual model of the site's leaves. `spines` None: the leaves are cabled to all spines of the pod.
    `servers`: names of storage servers, which have one adapter for each leaf.
    """

    hosts: list[Host]
    rails: int
    uplinks: int
    rate: str
    first_uplink: int
    first_host: int = 1
    model: Model | None = None
    spines: int | None = None
    servers: tuple[str, ...] = ()


@dataclass(slots=True)
class Pod:
    units: list[Unit]


@dataclass(slots=True)
class Outsider:
    """An endpoint that does not compute: a storage server, a fabric manager, a login node.

    `where` is the level of the switches that it is cabled to: 1, 2 or 3. `cables` go to different switches.
    """

    name: str
    role: str
    where: int
    cables: int


@dataclass(slots=True)
class SideNetwork:
    """A second network of the same hosts: storage, front end, or management.

    `leaf_of`: host -> the leaf of each of its adapters, which have the names `devices`. `servers`:
    number of endpoints that do not compute, in turn on the leaves.
    """

    name: str
    leaves: int
    spines: int
    leaf_of: Mapping[str, tuple[int, ...]]
    devices: tuple[str, ...]
    rate: str
    servers: int = 0
    trunk: int = 1
    trunk_rate: str = ""


@dataclass(slots=True)
class Site:
    """A plan. `cores` 0 is a fabric of two tiers, where the only pod has all spines.

    `per_rail`: the leaves of a rail have spines of their own, `spines` each; otherwise a pod has `spines`.
    `planes`: the n-th spines of all pods share `cores` cores of their own; otherwise every spine is cabled to
    every core. `core_trunk`: cables from a spine to each of its cores.
    """

    naming: Naming
    ethernet: bool
    rails: int
    per_rail: bool
    spines: int
    uplinks: int
    rate: str
    pods: list[Pod]
    cores: int = field(default=0, init=False)
    planes: bool = field(default=False, init=False)
    core_trunk: int = field(default=1, init=False)
    trunks: int = field(default=0, init=False)  # cables between the spines of two pods without cores
    peer_links: int = field(default=0, init=False)  # between the two leaves of a unit (MLAG)
    on_cores: list[Unit] = field(default_factory=list, init=False)
    outsiders: list[Outsider] = field(default_factory=list, init=False)
    side: list[SideNetwork] = field(default_factory=list, init=False)
    factory_named: bool = field(default=False, init=False)  # the switches have no names of their own
    node_map: str = field(default="", init=False)  # "hosts", or "all": the fabric manager, too
    walks_only: bool = field(default=False, init=False)
    hearing: Hearing = field(default=PLAIN_HOSTS, init=False)
    # By host: its NVLink rack and clique.
    racks: dict[str, tuple[str, int]] = field(default_factory=dict, init=False)
    traits: list[str] = field(default_factory=list, init=False)

    @property
    def units(self) -> list[Unit]:
        """The units of all pods."""
        return [unit for pod in self.pods for unit in pod.units]

    @property
    def hosts(self) -> Iterator[Host]:
        return (host for unit in (*self.units, *self.on_cores) for host in unit.hosts)

    def plain_units(self) -> list[Unit]:
        """The units that no trait has changed: rails, uplinks and hosts are those of the site."""
        return [unit for unit in self.units if self.is_plain(unit)]

    def is_plain(self, unit: Unit) -> bool:
        alike = {(host.rails, host.devices, host.rate) for host in unit.hosts}
        usual = (tuple(range(self.rails)), self.naming.styles[0][: self.rails], "")
        return (
            (unit.rails, unit.uplinks, unit.rate) == (self.rails, self.uplinks, self.rate)
            and unit.model is None
            and unit.spines is None
            and alike == {usual}
        )

    def unit(self, hosts: int, *, pattern: str = "", rails: int | None = None) -> Unit:
        """Return a new unit of the usual kind, which is in no pod yet."""
        rails = self.rails if rails is None else rails
        number = len(self.units) + len(self.on_cores)
        devices = self.naming.styles[0][:rails]
        people = [
            Host(name, tuple(range(rails)), devices) for name in self.naming.hosts(number, hosts, pattern)
        ]
        first = self.units[0].first_uplink if self.pods and self.units else 33
        return Unit(people, rails, self.uplinks, self.rate, first)

    def spare_unit(self, rng: Random, least_left: int = 2) -> Unit:
        """Return a plain unit that a trait may change. At least `least_left` plain ones remain.

        Raises UnsuitableError.
        """
        plain = self.plain_units()
        if len(plain) <= least_left:
            raise UnsuitableError("too few plain units are left")
        return rng.choice(plain)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a trait needs of a site. None: anything."""

    ethernet: bool | None = None
    tiers: int | None = None
    rails: int = 1  # at least
    most_rails: int = 8
    per_rail: bool | None = None
    uplinks: int = 1  # at least
    units: int = 3  # at least, over all pods
    peer_links: bool = False

    def fit(self, site: Site) -> bool:
        return (
            self.ethernet in (None, site.ethernet)
            and self.tiers in (None, 3 if site.cores or site.trunks else 2)
            and self.rails <= site.rails <= self.most_rails
            and self.per_rail in (None, site.per_rail)
            and self.uplinks <= site.uplinks
            and self.units <= len(site.units)
            and self.peer_links <= bool(site.peer_links)
        )


ANY = Needs()


def draw_site(rng: Random, needs: Needs = ANY, *, large: bool = False) -> Site:
    """Draw a regular site that fits the needs: 30 to 300 hosts, or with `large` up to 1,500."""
    ethernet = needs.ethernet if needs.ethernet is not None else rng.random() < 0.25
    tiers = needs.tiers or (3 if rng.random() < 0.4 else 2)
    usual = (1, 1, 2, 4, 4) if ethernet and needs.rails <= 4 else (1, 1, 2, 4, 4, 8, 8)
    choices = [n for n in usual if needs.rails <= n <= needs.most_rails]
    rails = 2 if needs.peer_links else rng.choice(choices)
    per_rail = needs.per_rail if needs.per_rail is not None else rails > 2 and rng.random() < 0.25
    uplinks = max(needs.uplinks, rng.choice((1, 1, 1, 2, 2, 4)))
    pods = 1 if tiers == 2 else rng.choice((2, 3, 3, 4))
    least = max(2, -(-needs.units // pods))
    each = rng.randint(least, least + (3 if tiers == 2 else 1)) + (4 if rails == 1 and tiers == 2 else 0)
    size = rng.randint(4, 12) if rails > 2 else rng.randint(4, 16)
    if large:
        each, size = each * 2, size * 2
    if ethernet:  # a walk has many lines for each port of a switch
        each, size, pods = min(each, 6), min(size, 8), min(pods, 3)
    spines = rng.choice((2, 2, 4)) if per_rail else rng.choice((2, 3, 4, 4, 8))
    rate = rng.choice(("4xHDR", "4xNDR", "4xNDR", "4xEDR"))
    site = Site(
        Naming.draw(rng, ethernet=ethernet),
        ethernet,
        rails,
        per_rail,
        spines if uplinks < 4 else min(spines, 4),
        uplinks,
        rate,
        [],
    )
    if needs.peer_links or (rails == 2 and ethernet and rng.random() < 0.5):
        site.peer_links = rng.choice((1, 2))
    if tiers == 3:
        site.planes = per_rail or rng.random() < 0.5
        site.cores = rng.choice((1, 2)) if site.planes else rng.choice((2, 4))
        site.core_trunk = rng.choice((1, 2, 4))
    first = size + rng.choice((1, 1, 3, 5)) if ethernet or rng.random() < 0.5 else 33
    for _ in range(pods):
        site.pods.append(Pod([]))
        for _ in range(each):
            unit = site.unit(size - (rng.randrange(size // 4 + 1) if rng.random() < 0.3 else 0))
            unit.first_uplink = first
            site.pods[-1].units.append(unit)
    return site
