"""Find what an inferred tree lacks: hosts, one root, tiers. `infer` prints it, and fails with `--strict`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.counts import count
from hyperscout_formats.text.host_list import fold
from hyperscout_topology.topology import LinkTable, Topology

_LIST = 2_000  # characters of a list of names in one line


@dataclass(frozen=True, slots=True)
class Gap:
    """One line for stderr. `strict`: `--strict` fails with it."""

    text: str
    strict: bool = True


def gaps(topology: Topology, previous: Topology | None, listed: frozenset[str] | None) -> list[Gap]:
    """Return what the tree lacks. `listed`: the nodes of `--nodes`; other hosts are then not expected."""
    unplaced = _unplaced(topology, listed)
    return [
        *_empty(topology, listed),
        *_of_hosts(topology, unplaced),
        *_of_roots(topology),
        *_of_tiers(topology, previous),
        *_foreign(topology, unplaced),
    ]


def is_not_a_tree(topology: Topology) -> bool:
    """Return whether the switches form no tree. The anomaly is printed like any other."""
    return any(x.kind == "NotATree" for x in topology.anomalies)


def _unplaced(topology: Topology, listed: frozenset[str] | None) -> set[str]:
    """Return the named hosts that are in no HyperNode. A host is foreign if no cable of it leads to a leaf
    and only a description names it."""
    found = set(topology.nodes_without_evidence)
    if listed is None and topology.foreign_endpoints:
        foreign = set(topology.foreign_endpoints)
        found |= {a.node for a in topology.adapters if a.node in foreign and a.node != a.id}
    return found


def _of_hosts(topology: Topology, unplaced: set[str]) -> Iterable[Gap]:
    seen = {a.node for a in topology.adapters if a.node in unplaced} if unplaced else set()
    for hosts, why in (
        (unplaced - seen, "the files show no port of {them}"),
        (seen, "no cable of {them} leads to a leaf of the compute fabric"),
    ):
        if hosts:
            are, them = ("is", "it") if len(hosts) == 1 else ("are", "them")
            text = f"{count(len(hosts), 'host')} {are} not in the tree: {_names(hosts)}"
            yield Gap(f"{text}: {why.format(them=them)}")


def _foreign(topology: Topology, unplaced: set[str]) -> Iterable[Gap]:
    from hyperscout_inference.fabric.foreign import is_foreign

    if by_name := {name for name in topology.foreign_endpoints if is_foreign(name)} - unplaced:
        are = "is" if len(by_name) == 1 else "are"
        text = f"{count(len(by_name), 'endpoint')} {are} taken for no compute host by name and wiring"
        yield Gap(f"{text}: {_names(by_name)}: list compute hosts with --nodes", strict=False)


def _of_roots(topology: Topology) -> Iterable[Gap]:
    """Find roots that cables between switches connect, or that one sweep contains."""
    from hyperscout_inference.grouping.parts import connected_parts

    roots = [h for h in topology.hypernodes if h.parent is None]
    if len(roots) < 2:
        return
    links = topology.links if isinstance(topology.links, LinkTable) else LinkTable.of(list(topology.links))
    switches = {s.id for s in topology.switches if s.level > 0}
    ranked = np.fromiter((d in switches for d in links.devices), np.bool_, len(links.devices))
    rows = ranked[links.a] & ranked[links.b]
    root_of = {node: h.name for h in roots for node in h.nodes}

    def together(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> set[str]:
        """Return the roots that share a part of this graph of devices with another root."""
        part = dict(zip(links.devices, connected_parts(len(links.devices), a, b).tolist(), strict=True))
        of_part: dict[object, set[str]] = {}
        for h in topology.hypernodes:
            for switch in h.switches:
                of_part.setdefault(part.get(switch, switch), set()).add(root_of[h.nodes[0]])
        return {name for mine in of_part.values() if len(mine) > 1 for name in mine}

    if apart := together(links.a[rows], links.b[rows]):
        yield Gap(
            f"the tree has {len(apart)} roots in one connected fabric ({_names(apart)}): "
            "no switches above join them"
        )
        return
    # A sweep finds what cables connect, so its parts are connected, too.
    swept = np.array([name.startswith("infiniband") for name in links.fabrics], np.bool_)[links.fabric]
    _, first = np.unique(links.fabric, return_index=True)
    of_fabric = links.a[first][np.searchsorted(links.fabric[first], links.fabric[swept])]
    if apart := together(np.r_[links.a[swept], links.b[swept]], np.r_[of_fabric, of_fabric]):
        yield Gap(
            f"the tree has {len(apart)} roots in one sweep ({_names(apart)}), and no cable joins them: "
            "run ibnetdiscover again, and give each fabric a file of its own"
        )


def _of_tiers(topology: Topology, previous: Topology | None) -> Iterable[Gap]:
    """Find tiers that the previous tree has."""
    if previous is None or not topology.hypernodes:
        return
    now = {h.tier_name for h in topology.hypernodes}
    for name in sorted({h.tier_name for h in previous.hypernodes} - now):
        yield Gap(f"the tier {name!r} of the previous tree is gone")


def _empty(topology: Topology, listed: frozenset[str] | None) -> Iterable[Gap]:
    if topology.hypernodes:
        return
    hosts = {a.node for a in topology.adapters}
    if not topology.links:
        why = "the files show no cable"
    elif not hosts:
        why = "the files show no cable of a host"
    elif listed is not None and not hosts & listed:
        why = f"none of the {count(len(hosts), 'host')} in the files is in --nodes"
    else:
        why = "no cable of a host leads to a leaf of the compute fabric (see --compute-ports)"
    yield Gap(f"the tree is empty: {why}")


def _names(names: Sequence[str] | set[str]) -> str:
    text = fold(sorted(names))
    return text if len(text) <= _LIST else text[:_LIST] + "... (all: -o json)"
