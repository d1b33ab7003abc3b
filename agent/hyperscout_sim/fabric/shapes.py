"""Makes the common shapes of AI clusters, of any size, each with its true hierarchy.

Hosts use the low ports of their leaf in host order, with the same port number on the leaf of every rail.
Uplinks use the next ports. Port j of a spine leads to leaf j. `seed` changes only GUIDs. All functions raise
ValueError for a size below 1.
"""

from dataclasses import replace
from itertools import combinations
from typing import Final

from hyperscout_formats.infiniband.ibnetdiscover import MAX_PORT

from hyperscout_sim.fabric.build import Builder, host_names, numbers, runs, whole
from hyperscout_sim.fabric.fabric import SimFabric, Truth

_MAX_UNITS: Final = MAX_PORT - 2  # of a pod: a spine has a port for each, and two to the core of several pods


def clos2(
    leaves: int, hosts_per_leaf: int, spines: int, uplinks_per_spine: int = 1, *, seed: int = 0
) -> SimFabric:
    """Make leaves and spines. Tier 1 = leaf, tier 2 = all."""
    _positive(leaves=leaves, hosts_per_leaf=hosts_per_leaf, spines=spines, uplinks=uplinks_per_spine)
    build = Builder("clos2", seed)
    hosts = host_names(leaves * hosts_per_leaf)
    lows = [build.switch(f"leaf-{n}", 1, i) for i, n in enumerate(numbers(leaves))]
    for i, host in enumerate(hosts):
        build.host(host, [lows[i // hosts_per_leaf]])
    build.mesh(lows, build.switches("spine", 2, spines), uplinks_per_spine)
    return build.finish(runs(hosts, hosts_per_leaf), whole(hosts))


def clos3(
    pods: int,
    leaves_per_pod: int,
    hosts_per_leaf: int,
    aggs_per_pod: int,
    cores_per_agg: int,
    *,
    seed: int = 0,
) -> SimFabric:
    """Make pods of leaves and aggregation switches, with cores above.

    The n-th aggregation switch of every pod leads to the n-th group of cores. Tier 1 = leaf, tier 2 = pod,
    tier 3 = all.
    """
    _positive(pods=pods, leaves=leaves_per_pod, hosts=hosts_per_leaf, aggs=aggs_per_pod, cores=cores_per_agg)
    build = Builder("clos3", seed)
    hosts = host_names(pods * leaves_per_pod * hosts_per_leaf)
    groups = [
        [build.switch(f"core-{g}-{n}", 3) for n in numbers(cores_per_agg)] for g in numbers(aggs_per_pod)
    ]
    for pod, p in enumerate(numbers(pods)):
        first = pod * leaves_per_pod
        lows = [build.switch(f"leaf-p{p}-{n}", 1, first + i) for i, n in enumerate(numbers(leaves_per_pod))]
        for i, low in enumerate(lows, start=first):
            for host in hosts[i * hosts_per_leaf : (i + 1) * hosts_per_leaf]:
                build.host(host, [low])
        aggs = [build.switch(f"spine-p{p}-{n}", 2) for n in numbers(aggs_per_pod)]
        build.mesh(lows, aggs)
        for agg, cores in zip(aggs, groups, strict=True):
            build.mesh([agg], cores)
    return build.finish(
        runs(hosts, hosts_per_leaf), runs(hosts, hosts_per_leaf * leaves_per_pod), whole(hosts)
    )


def fat_tree(k: int, *, seed: int = 0) -> SimFabric:
    """Make the k-ary fat tree. Raises ValueError if k is odd or below 4.

    It has k pods of k/2 leaves and k/2 aggregation switches, k*k/4 cores and k**3/4 hosts.
    """
    if k < 4 or k % 2:
        raise ValueError(f"k is {k}; expected an even number, at least 4")
    half = k // 2
    return clos3(k, half, half, half, half, seed=seed)


def rail_optimised(
    units: int,
    hosts_per_unit: int,
    rails: int,
    spines_per_rail: int = 0,
    *,
    shared_spines: int = 0,
    pods: int = 1,
    seed: int = 0,
) -> SimFabric:
    """Make scalable units: rail i of every host of a unit goes to the rail-i leaf of that unit.

    `units` is the number of units in one pod. The leaves connect to the spines of their rail (disjoint
    rails), or to spines that all rails share. With several pods, each pod has its own spines, and as many
    cores as one pod has spines join the n-th spines of all pods. Tier 1 = unit, tier 2 = pod, tier 3 = all.
    Raises ValueError unless exactly one of `spines_per_rail` and `shared_spines` is given.
    """
    _positive(units=units, hosts_per_unit=hosts_per_unit, rails=rails, pods=pods)
    if (spines_per_rail > 0) == (shared_spines > 0):
        raise ValueError("expected either spines_per_rail or shared_spines")
    build = Builder("rail_optimised", seed)
    hosts = host_names(pods * units * hosts_per_unit)
    columns = [f"r{rail}-" for rail in range(rails) for _ in range(spines_per_rail)] or [""] * shared_spines
    spine_names = [f"{c}{n}" for c, n in zip(columns, numbers(len(columns)), strict=True)]
    cores = [build.switch(f"core-{n}", 3) for n in spine_names] if pods > 1 else []
    for pod, p in enumerate(numbers(pods)):
        at = f"p{p}-" if pods > 1 else ""
        by_rail: list[list[int]] = [[] for _ in range(rails)]
        for unit, u in enumerate(numbers(units), start=pod * units):
            leaves = [build.switch(f"leaf-{at}u{u}-r{rail}", 1, unit) for rail in range(rails)]
            for rail, leaf in enumerate(leaves):
                by_rail[rail].append(leaf)
            for host in hosts[unit * hosts_per_unit : (unit + 1) * hosts_per_unit]:
                build.host(host, leaves)
        spines = [build.switch(f"spine-{at}{n}", 2) for n in spine_names]
        for rail, leaves in enumerate(by_rail):
            build.mesh(
                leaves,
                spines[rail * spines_per_rail : (rail + 1) * spines_per_rail] if spines_per_rail else spines,
            )
        for spine, core in zip(spines, cores, strict=False):
            # Two cables each: the loss of one weakens a pod, but does not disconnect it.
            build.mesh([spine], [core], 2)
    return build.finish(runs(hosts, hosts_per_unit), runs(hosts, hosts_per_unit * units), whole(hosts))


def cluster(hosts: int, *, hosts_per_unit: int = 50, pods: int = 1) -> SimFabric:
    """Make a rail-optimised fabric of any number of hosts, with 4 rails and 2 spines for each rail.

    No unit has more than `hosts_per_unit` hosts, and the sizes of units differ by one host at most. There are
    more pods than `pods` if a pod would have more than 252 units. Raises ValueError if there are fewer
    hosts than pods.
    """
    _positive(hosts=hosts, hosts_per_unit=hosts_per_unit, pods=pods)
    if hosts < pods:
        raise ValueError(f"{hosts} hosts for {pods} pods: expected at least one for each")
    pods = max(pods, -(-hosts // (hosts_per_unit * _MAX_UNITS)))
    units = -(-hosts // (hosts_per_unit * pods))
    size = -(-hosts // (units * pods))
    full = rail_optimised(units, size, 4, 2, pods=pods)
    surplus = len(full.hosts) - hosts
    gone = set(full.hosts[::-1][: surplus * size : size])  # the last host of the last units
    guids = {x.guid for x in full.adapters if x.host in gone}
    return replace(
        full,
        adapters=tuple(x for x in full.adapters if x.guid not in guids),
        cables=tuple(x for x in full.cables if x.a not in guids),
        truth=Truth(tuple(tuple(part - gone for part in tier) for tier in full.truth.tiers)),
    )


def dual_homed(
    racks: int, hosts_per_rack: int, spines: int, peer_links: int = 0, *, seed: int = 0
) -> SimFabric:
    """Make racks with two switches, and every host on both. `peer_links` MLAG cables join the two switches.

    Tier 1 = rack, tier 2 = all.
    """
    _positive(racks=racks, hosts_per_rack=hosts_per_rack, spines=spines)
    build = Builder("dual_homed", seed)
    hosts = host_names(racks * hosts_per_rack)
    pairs = [[build.switch(f"tor-{n}{side}", 1, i) for side in "ab"] for i, n in enumerate(numbers(racks))]
    for i, host in enumerate(hosts):
        build.host(host, pairs[i // hosts_per_rack])
    tops = build.switches("spine", 2, spines)
    for a, b in pairs:
        build.mesh([a, b], tops)
        build.mesh([a], [b], peer_links)
    return build.finish(runs(hosts, hosts_per_rack), whole(hosts))


def rail_only(units: int, hosts_per_unit: int, rails: int, *, seed: int = 0) -> SimFabric:
    """Make units with one switch for each rail and nothing above: the units are islands. Tier 1 = unit."""
    _positive(units=units, hosts_per_unit=hosts_per_unit, rails=rails)
    build = Builder("rail_only", seed)
    hosts = host_names(units * hosts_per_unit)
    for unit, u in enumerate(numbers(units)):
        leaves = [build.switch(f"leaf-u{u}-r{rail}", 1, unit) for rail in range(rails)]
        for host in hosts[unit * hosts_per_unit : (unit + 1) * hosts_per_unit]:
            build.host(host, leaves)
    return build.finish(runs(hosts, hosts_per_unit))


def rail_only_wide(hosts: int, rails: int, *, seed: int = 0) -> SimFabric:
    """Make one switch for each rail, wide enough for all hosts. All hosts are one domain."""
    return rail_only(1, hosts, rails, seed=seed)


def multi_plane(planes: int, leaves: int, hosts_per_leaf: int, spines: int, *, seed: int = 0) -> SimFabric:
    """Make disjoint planes, with every host on the same leaf number of each. Tier 1 = leaf, tier 2 = all."""
    _positive(planes=planes, leaves=leaves, hosts_per_leaf=hosts_per_leaf, spines=spines)
    build = Builder("multi_plane", seed)
    hosts = host_names(leaves * hosts_per_leaf)
    lows = [
        [build.switch(f"leaf-{plane}-{n}", 1, i) for i, n in enumerate(numbers(leaves))]
        for plane in _planes(planes)
    ]
    for i, host in enumerate(hosts):
        build.host(host, [plane[i // hosts_per_leaf] for plane in lows])
    for plane, mine in zip(_planes(planes), lows, strict=True):
        build.mesh(mine, build.switches(f"spine-{plane}", 2, spines))
    return build.finish(runs(hosts, hosts_per_leaf), whole(hosts))


def dragonfly_plus(
    groups: int,
    leaves_per_group: int,
    spines_per_group: int,
    hosts_per_leaf: int,
    global_links: int = 1,
    *,
    seed: int = 0,
) -> SimFabric:
    """Make groups of leaves and spines. `global_links` cables join the spines of each two groups, in turn.

    Tier 1 = leaf, tier 2 = group, tier 3 = all.
    """
    _positive(
        groups=groups,
        leaves=leaves_per_group,
        spines=spines_per_group,
        hosts=hosts_per_leaf,
        links=global_links,
    )
    build = Builder("dragonfly_plus", seed)
    hosts = host_names(groups * leaves_per_group * hosts_per_leaf)
    tops: list[list[int]] = []
    for group, g in enumerate(numbers(groups)):
        first = group * leaves_per_group
        lows = [build.switch(f"leaf-g{g}-{n}", 1, first + i) for i, n in enumerate(numbers(leaves_per_group))]
        for i, low in enumerate(lows, start=first):
            for host in hosts[i * hosts_per_leaf : (i + 1) * hosts_per_leaf]:
                build.host(host, [low])
        spines = [build.switch(f"spine-g{g}-{n}", 2) for n in numbers(spines_per_group)]
        build.mesh(lows, spines)
        tops.append(spines)
    turn = [0] * groups
    for a, b in combinations(range(groups), 2):
        for _ in range(global_links):
            build.cable(tops[a][turn[a] % spines_per_group], tops[b][turn[b] % spines_per_group])
            turn[a] += 1
            turn[b] += 1
    return build.finish(
        runs(hosts, hosts_per_leaf), runs(hosts, hosts_per_leaf * leaves_per_group), whole(hosts)
    )


def single_rack(hosts: int, nics: int = 1, *, seed: int = 0) -> SimFabric:
    """Make one switch, with `nics` cables to every host. All hosts are one domain."""
    _positive(hosts=hosts, nics=nics)
    build = Builder("single_rack", seed)
    names = host_names(hosts)
    leaf = build.switch("tor-01", 1, 0)
    for host in names:
        build.host(host, [leaf] * nics)
    return build.finish(whole(names))


def _planes(count: int) -> list[str]:
    return [f"p{n}" for n in range(1, count + 1)]


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; expected at least 1")
