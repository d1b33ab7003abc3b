"""Builds the fabric of a plan, port by port, with its truth."""

from dataclasses import dataclass, replace
from random import Random

from hyperscout_sim.fabric.build import Builder
from hyperscout_sim.fabric.fabric import Partition, SimFabric, SimSwitch, Truth, informative
from hyperscout_sim.uneven.naming import FACTORY_NAMES, Model, model_for
from hyperscout_sim.uneven.site import Pod, SideNetwork, Site, Unit


@dataclass(frozen=True, slots=True)
class Built:
    """A fabric, and truths that are right as well as `fabric.truth`."""

    fabric: SimFabric
    alternatives: tuple[Truth, ...] = ()


def build(site: Site, seed: int) -> Built:
    """Build the fabric of a plan. `seed` draws GUIDs and switch models."""
    _make_room(site)
    works = _Works(site, seed)
    truths = _truths(site)
    return Built(works.fabric(truths[0]), truths[1:])


def _make_room(site: Site) -> None:
    """Move the first uplink port up where a unit has more hosts than ports below it, for all units alike."""
    units = [*site.units, *site.on_cores]
    taken = max((len(u.hosts) + len(u.servers) for u in units if u.first_host < u.first_uplink), default=0)
    usual = min((u.first_uplink for u in units if u.first_host < u.first_uplink), default=1)
    more = max(0, taken + 1 - usual)
    for unit in units:
        if unit.first_host < unit.first_uplink:
            unit.first_uplink += more


class _Works:
    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._build = Builder("uneven", seed)
        self._rng = Random(seed)  # noqa: S311 - draws models, not secrets
        self._role: dict[int, tuple[str, Model | None]] = {}  # switches of one role are of one model
        self._domain = 0
        self._leaves: list[int] = []
        self._spines: list[list[int]] = []
        self._cores: list[int] = []
        self._numbers = {"unit": 0, "spine": 0}
        self._lay()

    def fabric(self, truth: Truth) -> SimFabric:
        fabric = self._build.finish(*truth.tiers)
        return replace(fabric, switches=self._modelled(fabric), truth=truth)

    def _lay(self) -> None:
        site = self._site
        for p, pod in enumerate(site.pods):
            self._pod(p, pod)
        if site.cores:
            self._core_layer()
        for n in range(site.trunks):
            one, other = (spines[n % len(spines)] for spines in self._spines)
            self._build.cable(one, other, site.rate)
        for unit in site.on_cores:
            self._unit(len(site.pods), unit, [self._cores] * unit.rails)
        self._outsiders()
        for network in site.side:
            self._side_network(network)

    def _pod(self, p: int, pod: Pod) -> None:
        site = self._site
        columns = site.rails if site.per_rail else 1
        names = [site.naming.spine(p, n) for n in range(columns * site.spines)]
        spines = [self._switch(name, 2, "spine") for name in names]
        by_rail = [
            spines[r * site.spines : (r + 1) * site.spines] if site.per_rail else spines
            for r in range(site.rails)
        ]
        for unit in pod.units:
            self._unit(p, unit, by_rail)
        self._spines.append(spines)

    def _unit(self, pod: int, unit: Unit, above: list[list[int]]) -> None:
        """Add the leaves and hosts of a unit. `above`: for each rail the switches above its leaf."""
        site, build = self._site, self._build
        number = self._numbers["unit"]
        self._numbers["unit"] += 1
        domain = self._domain if unit.hosts else None
        self._domain += bool(unit.hosts)
        leaves = [
            self._switch(site.naming.leaf(pod, number, rail), 1, "leaf", unit.model, domain)
            for rail in range(unit.rails)
        ]
        for i, host in enumerate(unit.hosts):
            for rail, device in zip(host.rails, host.devices, strict=True):
                build.skip_to(leaves[rail], unit.first_host + i)
                build.adapter(host.name, device, [leaves[rail]], host.rate or unit.rate)
        for i, server in enumerate(unit.servers):
            for rail, leaf in enumerate(leaves):
                build.skip_to(leaf, unit.first_host + i)
                build.adapter(server, f"mlx5_{rail}", [leaf], unit.rate, "storage")
        for leaf, uppers in zip(leaves, above, strict=False):
            build.restart_at(leaf, unit.first_uplink)
            build.mesh([leaf], uppers[: unit.spines], unit.uplinks, unit.rate)
            build.restart_at(
                leaf, max(unit.first_uplink, unit.first_host + len(unit.hosts) + len(unit.servers))
            )
            build.skip_to(leaf, unit.first_uplink + unit.uplinks * len(uppers))
        if site.peer_links and len(leaves) == 2:
            build.mesh(leaves[:1], leaves[1:], site.peer_links, unit.rate)
        self._leaves += leaves

    def _core_layer(self) -> None:
        site = self._site
        groups = len(self._spines[0]) if site.planes else 1
        self._cores = [self._switch(site.naming.core(n), 3, "core") for n in range(groups * site.cores)]
        for spines in self._spines:
            for n, spine in enumerate(spines):
                cores = self._cores[n * site.cores : (n + 1) * site.cores] if site.planes else self._cores
                self._build.mesh([spine], cores, site.core_trunk, site.rate)

    def _outsiders(self) -> None:
        levels = {1: self._leaves, 2: [s for spines in self._spines for s in spines], 3: self._cores}
        turn = dict.fromkeys(levels, 0)
        for one in self._site.outsiders:
            switches = levels[one.where]
            mine = [
                switches[(turn[one.where] + i) % len(switches)] for i in range(min(one.cables, len(switches)))
            ]
            turn[one.where] += len(mine)
            if one.role == "storage":  # a server has one adapter for each cable
                for i, switch in enumerate(mine):
                    self._build.adapter(one.name, f"mlx5_{i}", [switch], self._site.rate, one.role)
            else:
                self._build.adapter(one.name, "mlx5_0", mine, self._site.rate, one.role)

    def _side_network(self, network: SideNetwork) -> None:
        build, name = self._build, network.name
        leaves = [
            self._switch(f"{name}-leaf{n:02d}", 1, f"{name} leaf") for n in range(1, network.leaves + 1)
        ]
        spines = [
            self._switch(f"{name}-spine{n:02d}", 2, f"{name} spine") for n in range(1, network.spines + 1)
        ]
        for host, mine in network.leaf_of.items():
            for device, leaf in zip(network.devices, mine, strict=True):
                build.adapter(host, device, [leaves[leaf]], network.rate)
        for n in range(network.servers):
            build.adapter(
                f"{name}-server{n + 1:02d}", "mlx5_0", [leaves[n % len(leaves)]], network.rate, "storage"
            )
        build.mesh(leaves, spines, network.trunk, network.trunk_rate or network.rate)

    def _switch(
        self, name: str, level: int, role: str, model: Model | None = None, domain: int | None = None
    ) -> int:
        guid = self._build.switch(name, level, domain)
        self._role[guid] = role, model
        return guid

    def _modelled(self, fabric: SimFabric) -> tuple[SimSwitch, ...]:
        """Give the switches of a role one model with enough ports. Some have a model of their own."""
        used: dict[int, int] = dict.fromkeys(self._role, 1)
        for cable in fabric.cables:
            for guid, port in cable.ends:
                used[guid] = max(port, used.get(guid, 1))
        most: dict[str, int] = {}
        for guid, (role, _) in self._role.items():
            most[role] = max(most.get(role, 1), used[guid])
        usual = {role: model_for(ports, self._rng) for role, ports in most.items()}
        found = []
        for i, switch in enumerate(fabric.switches):
            role, own = self._role[switch.guid]
            model = own if own and own.ports >= used[switch.guid] else usual[role]
            name, text = switch.name, f"MF0;{switch.name}:{model.name}/U1"
            if self._site.factory_named:
                name = text = FACTORY_NAMES[i % len(FACTORY_NAMES)]
            found.append(replace(switch, name=name, port_count=model.ports, description=text))
        return tuple(found)


def _truths(site: Site) -> tuple[Truth, ...]:
    """Return the truths of a plan.

    Leaves on cores are one domain of tier 2 each, or all together: no cable prefers either.
    """
    units = [*site.units, *site.on_cores]
    first = _filled([[h.name for h in unit.hosts] for unit in units])
    everything = (frozenset(h.name for h in site.hosts),)
    pods = [[h.name for unit in pod.units for h in unit.hosts] for pod in site.pods]
    alone = [[h.name for h in unit.hosts] for unit in site.on_cores]
    found = []
    for borders in [alone, [[name for one in alone for name in one]]]:
        tiers = [first, _filled([*pods, *borders]), everything]
        if site.racks:
            tiers.insert(0, _cliques(site))
        truth = Truth(informative(tiers))
        if truth not in found:
            found.append(truth)
    return tuple(found)


def _filled(domains: list[list[str]]) -> Partition:
    return tuple(frozenset(hosts) for hosts in domains if hosts)


def _cliques(site: Site) -> Partition:
    found: dict[tuple[str, int], list[str]] = {}
    for host, clique in site.racks.items():
        found.setdefault(clique, []).append(host)
    rest = [[h.name] for h in site.hosts if h.name not in site.racks]
    return _filled([*found.values(), *rest])
