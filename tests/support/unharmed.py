"""What one false reporter must leave as it was."""

from collections.abc import Collection

from hyperscout_topology.topology import Anomaly, Topology


def check_unharmed(
    before: Topology,
    after: Topology,
    own: Collection[str],
    devices: Collection[str],
    *,
    conditions: bool = True,
    least: float = 0.0,
) -> None:
    """`own`: the nodes that the liar may harm. `devices`: the ids of its own devices. `conditions`: those of
    domains without the liar stay, too. `least`: the confidence from which on an anomaly is an accusation."""
    harmed = frozenset(own)

    def is_about_the_liar(x: Anomaly) -> bool:
        ends = [x.subject, *([x.peer] if x.peer else [])]
        return any(end.device in devices or end.name in harmed for end in ends)

    check_others_stay(before, after, harmed)
    kept = {h.name: h for h in after.hypernodes}
    for h in before.hypernodes:
        # The liar may move itself, and its reports count against the domain that it is in.
        mine = harmed & {*h.nodes, *(kept[h.name].nodes if h.name in kept else h.nodes)}
        if not mine and not set(devices) & set(h.switches):
            assert kept[h.name] == h or not conditions
    new = [x for x in after.anomalies if x not in before.anomalies and x.confidence >= least]
    assert [x for x in new if not is_about_the_liar(x)] == []
    assert set(after.nodes_without_evidence) <= harmed


def check_others_stay(before: Topology, after: Topology, harmed: Collection[str]) -> None:
    """All other nodes have the same domains of the same tiers."""

    def members(topology: Topology) -> set[tuple[int, frozenset[str]]]:
        found = {(h.tier, frozenset(h.nodes).difference(harmed)) for h in topology.hypernodes}
        return {(tier, nodes) for tier, nodes in found if nodes}

    assert members(after) == members(before)
