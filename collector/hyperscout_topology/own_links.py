"""Decides which node's link an anomaly is about, the same way for taints and for placement."""

from collections.abc import Container, Mapping

from hyperscout_topology.topology import Anomaly, is_measured

LINK_KINDS = frozenset({"MissingLink", "ErroringLink", "SlowLink"})
# The kinds of anomalies that the condition Degraded reports.
DEGRADING = LINK_KINDS | {"MissingSwitch"}
SURE = 0.5  # confidence above which an anomaly is not ambiguous


def is_of_a_link(anomaly: Anomaly) -> bool:
    """Whether a link is down, erroring or slow.

    A slow measured path between two nodes is neither's own link.
    """
    return anomaly.kind in LINK_KINDS and not (is_measured(anomaly) and anomaly.peer is not None)


def nodes_of(anomaly: Anomaly, owner: Mapping[str, str], nodes: Container[str]) -> set[str]:
    """The nodes that the link belongs to. `owner`: the node of each adapter.

    An end that has no adapter, or no longer has one, still has the node's name.
    """
    ends = [anomaly.subject, *([anomaly.peer] if anomaly.peer else [])]
    return {n for end in ends for n in (owner.get(end.device, ""), end.device, end.name) if n in nodes}
