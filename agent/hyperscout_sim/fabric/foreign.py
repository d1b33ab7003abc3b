"""Adds endpoints that do not compute, as in real fabrics. They must not affect the hierarchy."""

from dataclasses import replace
from random import Random

from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric, SimSwitch

FACTORY_DESCRIPTION = "MT4129 ConnectX7   Mellanox Technologies"
SHARP_DESCRIPTION = "Mellanox Technologies Aggregation Node"
_SHARP_GUID_OFFSET = 8  # GUID of an aggregation node minus the GUID of its switch
_FOREIGN_PREFIX = 0x506B4B03_00000000


def add_storage(fabric: SimFabric, rng: Random) -> tuple[SimFabric, str]:
    """Add a storage server with one or two ports, on one or two leaves of any domain."""
    leaves = [x for x in fabric.switches if x.level == 1]
    chosen = rng.sample(leaves, min(rng.choice((1, 2)), len(leaves)))
    return _attach(fabric, "storage", "storage", chosen, rng)


def add_manager(fabric: SimFabric, rng: Random) -> tuple[SimFabric, str]:
    """Add a fabric manager on a switch of the highest level."""
    return _attach(fabric, "manager", "ufm", [_top(fabric, rng)], rng)


def add_login(fabric: SimFabric, rng: Random) -> tuple[SimFabric, str]:
    """Add a login node on a switch of the highest level."""
    return _attach(fabric, "login", "login", [_top(fabric, rng)], rng)


def add_sharp(fabric: SimFabric) -> tuple[SimFabric, tuple[str, ...]]:
    """Add one SHARP aggregation node to every switch, on an additional port."""
    switches: list[SimSwitch] = []
    adapters: list[SimAdapter] = []
    cables: list[Cable] = []
    for switch in fabric.switches:
        guid = switch.guid + _SHARP_GUID_OFFSET
        name = f"sharp {switch.name}"
        adapters.append(SimAdapter(guid, guid + 1, name, "", SHARP_DESCRIPTION, foreign="sharp"))
        switches.append(replace(switch, port_count=switch.port_count + 1))
        cables.append(Cable(guid, 1, switch.guid, switch.port_count + 1))
    with_sharp = replace(
        fabric,
        switches=tuple(switches),
        adapters=fabric.adapters + tuple(adapters),
        cables=fabric.cables + tuple(cables),
    )
    return with_sharp, tuple(x.host for x in adapters)


def _attach(
    fabric: SimFabric, foreign: str, prefix: str, switches: list[SimSwitch], rng: Random
) -> tuple[SimFabric, str]:
    number = 1 + len({x.host for x in fabric.adapters if x.foreign == foreign})
    name = f"{prefix}-{number:02d}"
    taken = {x.guid for x in fabric.adapters}
    guid = next(g for g in iter(lambda: _FOREIGN_PREFIX + 16 * rng.randrange(1, 2**28), 0) if g not in taken)
    adapter = SimAdapter(
        guid, guid + 1, name, "mlx5_0", f"{name} mlx5_0", port_count=len(switches), foreign=foreign
    )
    used = {end for cable in fabric.cables for end in cable.ends}
    wider: dict[int, SimSwitch] = {}
    cables: list[Cable] = []
    for own_port, switch in enumerate(switches, start=1):
        port = next(p for p in range(1, switch.port_count + 2) if (switch.guid, p) not in used)
        if port > switch.port_count:
            wider[switch.guid] = replace(switch, port_count=port)
        cables.append(Cable(guid, own_port, switch.guid, port))
    return replace(
        fabric,
        switches=tuple(wider.get(x.guid, x) for x in fabric.switches),
        adapters=(*fabric.adapters, adapter),
        cables=(*fabric.cables, *cables),
    ), name


def _top(fabric: SimFabric, rng: Random) -> SimSwitch:
    highest = max(x.level for x in fabric.switches)
    return rng.choice([x for x in fabric.switches if x.level == highest])
