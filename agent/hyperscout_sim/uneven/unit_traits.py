"""Traits of units, leaves and hosts: each changes the plan of a site in one way that occurs in practice.

Every site that results is healthy. A trait keeps at least two plain units, so that there is a usual unit. It
raises UnsuitableError where the plan has no place for it.
"""

from collections.abc import Iterable, Sequence
from random import Random

from hyperscout_sim.uneven.naming import ROLE_HOSTS, Model
from hyperscout_sim.uneven.site import Host, Outsider, Site, Unit, UnsuitableError

_OLDER = {"4xNDR": "4xHDR", "4xHDR": "4xEDR", "4xEDR": "4xFDR"}
_CONTROL = ("ctl-{n:03d}", "k8s-cp{n:02d}")
_SERVICE = ("svc-{n:03d}", "cpu{n:03d}", "etl-{n:02d}")


def other_adapter_names(site: Site, rng: Random) -> None:
    """A unit is of another server model, whose adapters have other names."""
    unit = site.spare_unit(rng)
    style = rng.choice(site.naming.styles[1:])
    for host in unit.hosts:
        host.devices = style[: len(host.rails)]


def fewer_rails(site: Site, rng: Random) -> None:
    """A unit has half the rails, and no leaves for the others."""
    _narrow(site, site.spare_unit(rng), max(1, site.rails // 2))


def cpu_unit(site: Site, rng: Random) -> None:
    """A unit of hosts without GPUs has a single rail on one leaf."""
    unit = site.spare_unit(rng)
    _narrow(site, unit, 1)
    _rename(site, unit.hosts, rng.choice(_SERVICE))


def hosts_without_a_rail(site: Site, rng: Random) -> None:
    """At least half of a unit's hosts are of a model that lacks one rail. The leaf of the rail is there.

    The adapters of that model have other names, without a gap. Otherwise the hosts would look like hosts of
    the usual model with a missing cable.
    """
    unit = site.spare_unit(rng)
    if len(unit.hosts) < 3:
        raise UnsuitableError("the unit has too few hosts")
    count = rng.randint((len(unit.hosts) + 1) // 2, len(unit.hosts) - 1)
    lacking = rng.randrange(site.rails)
    style = rng.choice(site.naming.styles[1:])
    for host in unit.hosts[-count:]:
        host.rails = tuple(rail for rail in range(site.rails) if rail != lacking)
        host.devices = style[: len(host.rails)]


def leaves_without_hosts(site: Site, rng: Random) -> None:
    """One unit, or a third of the units, is cabled and has no hosts yet. A pod keeps a unit with hosts."""
    wanted = 1 if rng.random() < 0.5 else max(1, len(site.units) // 3)
    for _ in range(wanted):
        pods = [pod for pod in site.pods if sum(bool(u.hosts) for u in pod.units) > 1]
        spare = [u for pod in pods for u in pod.units if u.hosts and site.is_plain(u)]
        if len(spare) <= 2:
            break
        rng.choice(spare).hosts.clear()
    if all(unit.hosts for unit in site.units):
        raise UnsuitableError("no unit can do without hosts")


def thin_pod(site: Site, rng: Random) -> None:
    """A pod, or the last unit of a fabric of two tiers, has one to four hosts in each unit so far."""
    pod = rng.choice(site.pods)
    units = pod.units if site.cores else pod.units[-1:]
    for unit in units:
        if site.is_plain(unit):
            del unit.hosts[rng.randint(1, 4) :]


def fewer_uplinks(site: Site, rng: Random) -> None:
    """The leaves of a unit have fewer parallel uplinks to every spine."""
    unit = site.spare_unit(rng)
    unit.uplinks = max(1, site.uplinks // rng.choice((2, 4)))


def fewer_spines(site: Site, rng: Random) -> None:
    """The leaves of a unit are a smaller model and are cabled to half of the spines."""
    unit = site.spare_unit(rng)
    unit.spines = max(1, site.spines // 2)
    _smaller(site, unit)


def shifted_uplinks(site: Site, rng: Random) -> None:
    """The uplinks of a unit's leaves begin at another port, before or after the hosts."""
    unit = site.spare_unit(rng)
    if rng.random() < 0.5:
        unit.first_uplink = 1
        unit.first_host = 1 + unit.uplinks * site.spines + rng.choice((0, 4))
    else:
        unit.first_uplink += rng.choice((1, 2, 8))
    _smaller(site, unit, exact=False)


def other_port_count(site: Site, rng: Random) -> None:
    """The leaves of a unit have as many ports as they use, and one uplink to every spine."""
    unit = site.spare_unit(rng)
    unit.uplinks = 1
    unit.first_uplink = len(unit.hosts) + 1
    _smaller(site, unit)


def control_nodes(site: Site, rng: Random) -> None:
    """One to three hosts without GPUs are cabled with their only adapter to a leaf of any rail. The adapter
    has the name of the first adapter of other hosts, or of the one on its rail."""
    for n in range(rng.randint(1, 3)):
        index = rng.randrange(len(site.units))
        unit = site.units[index]
        if unit.rails < 4 or not unit.hosts:
            continue
        [name] = site.naming.hosts(index, 1, rng.choice(_CONTROL))
        rail = rng.randrange(unit.rails)
        unit.hosts.append(Host(name, (rail,), (site.naming.styles[0][rail if n % 2 else 0],)))
    if not any(len(host.rails) == 1 for host in site.hosts):
        raise UnsuitableError("no unit has leaves for several rails")


def service_hosts(site: Site, rng: Random) -> None:
    """Two to four hosts of a unit have two of eight adapters, on any two rails. The adapters have the names
    of the first adapters of other hosts, or of those on their rails."""
    index = rng.randrange(len(site.units))
    unit = site.units[index]
    if unit.rails < 6 or not unit.hosts:
        raise UnsuitableError("the unit has too few rails")
    rails = tuple(sorted(rng.sample(range(unit.rails), 2)))
    style = site.naming.styles[0]
    devices = tuple(style[rail] for rail in rails) if index % 2 else style[:2]
    for name in site.naming.hosts(index, rng.randint(2, 4), rng.choice(_SERVICE)):
        unit.hosts.append(Host(name, rails, devices))


def older_unit(site: Site, rng: Random) -> None:
    """A unit is of an older generation. All its cables are slower."""
    unit = site.spare_unit(rng)
    unit.rate = _OLDER[site.rate]


def splitters(site: Site, rng: Random) -> None:
    """The last two or four hosts of each unit share splitter cables, at half width each."""
    count = rng.choice((2, 2, 4))
    units = [u for u in site.units if len(u.hosts) > 2 * count]
    for unit in units:
        for host in unit.hosts[-count:]:
            host.rate = unit.rate.replace("4x", "2x")
    if not units:
        raise UnsuitableError("the units have too few hosts")


def leaves_on_cores(site: Site, rng: Random) -> None:
    """Border or service leaves with a few hosts each are cabled directly to the cores."""
    for n in range(rng.choice((1, 2, 2, 3))):
        unit = site.unit(rng.randint(2, 6), pattern=f"border{n}-{{n:02d}}", rails=1)
        for host in unit.hosts:
            host.devices = ("mlx5_0",)
        unit.uplinks = 1 if rng.random() < 0.5 else site.core_trunk
        site.on_cores.append(unit)


def storage_leaves(site: Site, rng: Random) -> None:
    """Leaves without computing hosts carry storage servers, below the spines or the cores."""
    unit = site.unit(0, rails=1)
    unit.servers = tuple(f"nvme{n + 1:02d}" for n in range(rng.randint(3, 8)))
    (site.on_cores if site.cores and rng.random() < 0.5 else site.pods[-1].units).append(unit)


def storage_on_spines(site: Site, rng: Random) -> None:
    """Storage servers are cabled to the spines and use up to 35 % of their ports in use."""
    switches = site.spines * (site.rails if site.per_rail else 1) * len(site.pods)
    leaves = sum(unit.rails for unit in site.units) / len(site.pods) * site.uplinks
    ports = leaves / (site.rails if site.per_rail else 1) + site.cores * site.core_trunk
    share = rng.uniform(0.1, 0.35)
    cables = int(share / (1 - share) * ports) * switches
    each = min(switches, rng.choice((2, 2, 4)))
    if cables < each:
        raise UnsuitableError("the spines have too few ports")
    for n in range(cables // each):
        site.outsiders.append(Outsider(f"oss{n + 1:02d}", "storage", 2, each))


def managers(site: Site, rng: Random) -> None:
    """Fabric managers or login nodes are on leaves or spines. A node map may name the managers, too."""
    for n in range(rng.choice((1, 2))):
        site.outsiders.append(Outsider(f"ufm{n + 1}", "manager", rng.choice((1, 2)), 1))
    if rng.random() < 0.7:
        site.node_map = "all"


def role_names(site: Site, rng: Random) -> None:
    """The names of some or all hosts look like names of equipment that does not compute."""
    units = [u for u in (*site.units, *site.on_cores) if u.hosts]
    pattern = rng.choice(ROLE_HOSTS)
    for unit in units if rng.random() < 0.5 else rng.sample(units, 1):
        _rename(site, unit.hosts, pattern)


def factory_names(site: Site, rng: Random) -> None:
    """The switches have the names that the factory gave them, which several share."""
    del rng
    site.factory_named = True


def _narrow(site: Site, unit: Unit, rails: int) -> None:
    unit.rails = rails
    for host in unit.hosts:
        host.rails = tuple(range(rails))
        host.devices = site.naming.styles[0][:rails]


def _smaller(site: Site, unit: Unit, *, exact: bool = True) -> None:
    """Give the leaves a model of their own, with as many ports as they use, or with a few more."""
    last_host = unit.first_host + len(unit.hosts) - 1
    last_uplink = unit.first_uplink + unit.uplinks * (unit.spines or site.spines) - 1
    ports = max(last_host, last_uplink)
    unit.model = Model(ports, "SX6025") if exact else Model(max(ports + 2, 18), "SX6036")


def _rename(site: Site, hosts: Sequence[Host], pattern: str) -> None:
    names: Iterable[str] = site.naming.hosts(0, len(hosts), pattern)
    for host, name in zip(hosts, names, strict=True):
        host.name = name
