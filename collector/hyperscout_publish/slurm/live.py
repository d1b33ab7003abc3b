"""Moves nodes in the topology of a running slurmctld: `scontrol update NodeName=... Topology=...`.

Slurm's Topology Guide, "Dynamic Topology": the value names a topology and a unit of it, which is a block or
the path of switches down to a leaf, for example `default:core:spine:leaf`. The topology of topology.conf is
called "default". Slurm creates missing switches of a path, but no root and no block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hyperscout_formats.text.host_list import fold, natural_key
from hyperscout_topology.topology import Topology

from hyperscout_publish.slurm.text import SlurmOptions, block_plan, switches, writable

_MAX_UPDATES = 64  # with more commands one reconfiguration is less work


@dataclass(frozen=True, slots=True)
class Layout:
    """What a file says. `units`: by node, the value of its `Topology`. `paths`: by switch, the switches from
    its root down to it. `blocks`, `sizes`: of topology/block, in their order. `may_have_more`: Slurm may also
    have switches that have become empty, which are not in the file."""

    units: Mapping[str, str]
    paths: Mapping[str, tuple[str, ...]]
    leaves: frozenset[str]
    blocks: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    may_have_more: bool = False


def layout_of(topology: Topology, kind: str, options: SlurmOptions) -> Layout:
    """`kind`: "tree", "block" or "yaml", as the files."""
    topology, _ = writable(topology, options)
    units: dict[str, str] = {}
    paths: dict[str, tuple[str, ...]] = {}
    lines = [] if kind == "block" else list(switches(topology, options))
    above = {child: switch.name for switch in lines for child in switch.children}
    for switch in reversed(lines):  # a switch comes after its children
        paths[switch.name] = (*paths.get(above.get(switch.name, ""), ()), switch.name)
        unit = ":".join(("tree" if kind == "yaml" else "default", *paths[switch.name]))
        units |= dict.fromkeys(switch.nodes, unit)
    leaves = frozenset(switch.name for switch in lines if not switch.children)
    if kind == "tree":
        return Layout(units, paths, leaves)
    plan = block_plan(topology, options, gaps=kind == "yaml")
    for name, nodes in plan.blocks:
        for node in nodes:
            units[node] = f"{units[node]},block:{name}" if kind == "yaml" else f"default:{name}"
    return Layout(units, paths, leaves, tuple(name for name, _ in plan.blocks), plan.sizes)


def updates(old: Layout, new: Layout) -> list[Sequence[str]] | None:
    """Return the arguments of scontrol that turn `old` into `new`; None if only a reconfiguration can.

    They name no node whose unit is the same: Slurm no longer keeps segments of jobs in one block if the block
    of a node is set again without a change (SchedMD/slurm, pull request 225).
    """
    if (old.blocks, old.sizes) != (new.blocks, new.sizes) or not all(
        _can_become(old, new, name) for name in new.paths
    ):
        return None
    moved: dict[str, list[str]] = {}
    for node in sorted(old.units.keys() | new.units.keys(), key=natural_key):
        if (unit := new.units.get(node, "")) != old.units.get(node, ""):
            moved.setdefault(unit, []).append(node)
    if len(moved) > _MAX_UPDATES:
        return None
    return [("update", f"NodeName={fold(nodes)}", f"Topology={unit}") for unit, nodes in moved.items()]


def updated(old: Layout, new: Layout) -> Layout:
    """Return the layout after `updates`: Slurm keeps switches that have become empty."""
    kept = {name: path for name, path in old.paths.items() if name not in new.paths}
    leaves = new.leaves | (old.leaves & kept.keys())
    return replace(new, paths={**new.paths, **kept}, leaves=leaves, may_have_more=old.may_have_more)


def _can_become(old: Layout, new: Layout, name: str) -> bool:
    """Return whether Slurm has this switch where it is wanted, or can create it there."""
    path = new.paths[name]
    if name in old.paths:
        return old.paths[name] == path and (name in old.leaves) == (name in new.leaves)
    return len(path) > 1 and not old.may_have_more  # it may be an empty switch elsewhere
