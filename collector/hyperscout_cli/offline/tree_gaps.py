"""Find what an inferred tree lacks: hosts, one root, tiers. `infer` prints it, and fails with `--strict`."""

from collections.abc import Iterable
from dataclasses import dataclass

from hyperscout_formats.text.counts import are, count, first_few
from hyperscout_topology.gaps import names_line, tree_gaps
from hyperscout_topology.topology import Topology

_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class Gap:
    """One line for stderr. `strict`: `--strict` fails with it."""

    text: str
    strict: bool = True


def gaps(
    topology: Topology, previous: Topology | None, listed: frozenset[str] | None, *, only_labels: bool = False
) -> list[Gap]:
    """Return what the tree lacks. `listed`: the nodes of `--nodes`; other hosts are then not expected.
    `only_labels`: the only files are those of `--node-labels`."""
    unplaced = _unplaced(topology, listed)
    return [
        *_empty(topology, listed, only_labels=only_labels),
        *_of_hosts(topology, unplaced),
        *map(Gap, tree_gaps(topology).lines),
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
            them = "it" if len(hosts) == 1 else "them"
            text = f"{count(len(hosts), 'host')} {are(len(hosts))} not in the tree: {names_line(hosts)}"
            yield Gap(f"{text}: {why.format(them=them)}")


def _foreign(topology: Topology, unplaced: set[str]) -> Iterable[Gap]:
    from hyperscout_inference.fabric.foreign import is_foreign

    if by_name := {name for name in topology.foreign_endpoints if is_foreign(name)} - unplaced:
        what = f"{count(len(by_name), 'endpoint')} {are(len(by_name))} taken"
        text = f"{what} for no compute host by name and wiring"
        yield Gap(f"{text}: {names_line(by_name)}: list compute hosts with --nodes", strict=False)


def _of_tiers(topology: Topology, previous: Topology | None) -> Iterable[Gap]:
    """Find tiers that the previous tree has."""
    if previous is None or not topology.hypernodes:
        return
    now = {h.tier_name for h in topology.hypernodes}
    for name in sorted({h.tier_name for h in previous.hypernodes} - now):
        yield Gap(f"the tier {name!r} of the previous tree is gone")


def _empty(topology: Topology, listed: frozenset[str] | None, *, only_labels: bool) -> Iterable[Gap]:
    if topology.hypernodes:
        return
    hosts = {a.node for a in topology.adapters}
    if only_labels:
        why = "no node has a label of a known cloud: name the keys of its labels with --label-keys"
    elif not topology.links:
        why = "the files show no cable: read the fabric again (ibnetdiscover needs root, LLDP a minute)"
    elif not hosts:
        why = "the files show no cable of a host: check that they contain the hosts' ports"
    elif listed is not None and not hosts & listed:
        why = (
            f"none of the {count(len(hosts), 'host')} in the files is in --nodes "
            f"({first_few(sorted(listed), _MAX_NAMED)} in --nodes, "
            f"{first_few(sorted(hosts), _MAX_NAMED)} in the files): "
            "use names of the files, or give --node-map"
        )
    else:
        why = "no cable of a host leads to a leaf of the compute fabric (see --compute-ports)"
    yield Gap(f"the tree is empty: {why}")
