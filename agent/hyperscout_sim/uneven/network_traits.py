"""Traits of whole sites: second networks, Ethernet hosts that do not look like hosts, NVLink racks."""

from random import Random

from hyperscout_sim.readings.lldp import Hearing
from hyperscout_sim.uneven.site import Outsider, Pod, SideNetwork, Site, UnsuitableError
from hyperscout_sim.uneven.unit_traits import service_hosts


def thick_trunks(site: Site, rng: Random) -> None:
    """Two to nine parallel cables join each leaf with each spine."""
    site.uplinks = rng.choice((2, 3, 4, 6, 8, 9))
    site.spines = min(site.spines, 4)
    for unit in site.units:
        unit.uplinks = site.uplinks


def two_trees(site: Site, rng: Random) -> None:
    """An old and a new tree are joined by a few cables between their spines."""
    units = site.pods[0].units
    half = len(units) // 2
    site.pods = [Pod(units[:half]), Pod(units[half:])]
    site.trunks = rng.randint(2, max(2, site.spines))


def storage_fabric(site: Site, rng: Random) -> None:
    """A second InfiniBand fabric for storage is swept too. Its leaves match the units, or they do not."""
    hosts = [h.name for unit in site.units for h in unit.hosts]
    each = rng.choice((1, 2))
    aligned = rng.random() < 0.4
    units = [u for u in site.units if u.hosts]
    leaves = len(units) if aligned else rng.choice((2, 4))
    leaf_of: dict[str, tuple[int, ...]] = {}
    for n, unit in enumerate(units):
        for i, host in enumerate(unit.hosts):
            at = n if aligned else i % leaves
            leaf_of[host.name] = tuple((at + k) % leaves for k in range(each))
    devices = tuple(f"mlx5_{n}" for n in rng.choice(((1, 7), (8, 9), (12, 13))))[:each]
    taken = {d for h in site.hosts for d in h.devices}
    if taken.intersection(devices) or len(leaf_of) < len(hosts):
        raise UnsuitableError("adapters of that name compute")
    servers = rng.randint(2, 6)
    site.side.append(SideNetwork("stor", leaves, 2, leaf_of, devices, site.rate, servers))


def management_network(site: Site, rng: Random) -> None:
    """Switches of 1 Gb/s, read like all others, carry the hosts' management ports."""
    size = rng.choice((6, 10, 24))
    names = [host.name for host in site.hosts]
    leaf_of = {name: (n // size,) for n, name in enumerate(names)}
    leaves = -(-len(names) // size)
    site.side.append(SideNetwork("mgmt", leaves, 1, leaf_of, ("mgmt0",), "1xGE", trunk_rate="10xGE"))


def front_end_network(site: Site, rng: Random) -> None:
    """A front-end network at a quarter of the speed carries all hosts in another order."""
    names = [host.name for host in site.hosts]
    leaves = max(2, len(names) // 12)
    leaf_of = {name: (n % leaves,) for n, name in enumerate(names)}
    slower = {"4xNDR": "2xHDR", "4xHDR": "2xEDR", "4xEDR": "25xGE"}[site.rate]
    site.side.append(SideNetwork("fe", leaves, rng.choice((1, 2)), leaf_of, ("fe0",), slower))


def bluefields(site: Site, rng: Random) -> None:
    """The adapters of all hosts are BlueFields in DPU mode: host and switch each hear only the BlueField."""
    del rng
    site.hearing = Hearing(dpu=frozenset(host.name for host in site.hosts))


def virtual_machines(site: Site, rng: Random) -> None:
    """Switches also hear virtual machines of some hosts. There are walks alone."""
    site.walks_only = True
    hosts = [host.name for host in site.hosts]
    some = rng.sample(hosts, max(1, len(hosts) // 3))
    guests = {h: tuple(f"vm-{n}-{k}" for k in range(rng.choice((1, 2, 3)))) for n, h in enumerate(some)}
    site.hearing = Hearing(guests=guests)


def routing_hosts(site: Site, rng: Random) -> None:
    """Hosts announce that they route, as Kubernetes nodes do. There are walks, and often LLDP."""
    site.walks_only = rng.random() < 0.5
    hosts = [host.name for host in site.hosts]
    routes = hosts if rng.random() < 0.7 else rng.sample(hosts, len(hosts) // 2)
    site.hearing = Hearing(routes=frozenset(routes))


def roce_rails(site: Site, rng: Random) -> None:
    """Ethernet with a leaf for each rail. A unit may have interfaces with other names."""
    if rng.random() < 0.5:
        unit = site.spare_unit(rng)
        for host in unit.hosts:
            host.devices = site.naming.styles[1][: len(host.rails)]


def mlag_pairs(site: Site, rng: Random) -> None:
    """Each unit is a pair of leaves with peer links. Some hosts are on one of the two alone."""
    for unit in site.units:
        if unit.rails == 2 and len(unit.hosts) > 4 and rng.random() < 0.3:
            unit.hosts[-1].rails, unit.hosts[-1].devices = (0,), unit.hosts[-1].devices[:1]


def nvlink_racks(site: Site, rng: Random) -> None:
    """The hosts are trays of NVLink racks, one or two for each unit. One rack is split into two cliques."""
    units = [u for u in site.plain_units() if len(u.hosts) >= 4]
    if len(units) < 2:
        raise UnsuitableError("too few plain units")
    split = rng.randrange(len(units))
    for n, unit in enumerate(units):
        half = len(unit.hosts) // 2 if rng.random() < 0.5 else len(unit.hosts)
        for i, host in enumerate(unit.hosts):
            rack = f"rack{n:02d}{'a' if i < half else 'b'}"
            clique = 1 if n == split and i % half >= half // 2 else 0
            site.racks[host.name] = (rack, clique)


def dgx_dump(site: Site, rng: Random) -> None:
    """As in a real installation: a unit with other adapter names, and service hosts with two adapters."""
    service_hosts(site, rng)
    unit = site.spare_unit(rng, least_left=1)
    for host in unit.hosts:
        host.devices = site.naming.styles[1][: len(host.rails)]
    site.outsiders.append(Outsider("ufm9", "manager", 1, 1))
