"""Whose link an anomaly is about: what taints and placement both must know, and must answer alike."""

from collections.abc import Container, Mapping

from hyperscout_topology.topology import Anomaly, is_measured

LINK_KINDS = frozenset({"MissingLink", "ErroringLink", "SlowLink"})
# As the condition Degraded has it (`hierarchy.conditions`, which brings all of inference along).
DEGRADING = LINK_KINDS | {"MissingSwitch"}
SURE = 0.5  # confidence above which an anomaly is no tie and no guess


def is_of_a_link(anomaly: Anomaly) -> bool:
    """Whether a link is down, erroring or slow. A way between two nodes that was measured to be slow is
    neither's own link."""
    return anomaly.kind in LINK_KINDS and not (is_measured(anomaly) and anomaly.peer is not None)


def nodes_of(anomaly: Anomaly, owner: Mapping[str, str], nodes: Container[str]) -> set[str]:
    """The nodes that it is a link of. `owner`: the node of each adapter. An end whose adapter is gone, or was
    never known, still carries the node's name."""
    ends = [anomaly.subject, *([anomaly.peer] if anomaly.peer else [])]
    return {n for end in ends for n in (owner.get(end.device, ""), end.device, end.name) if n in nodes}
