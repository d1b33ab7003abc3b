"""Metrics of the published topology: domains, conditions, links, anomalies and measured figures.

They are most of a scrape and change only with a generation, so their text is made once per generation.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from hyperscout_formats.text.prometheus_text import escaped, gauge
from hyperscout_formats.text.reporters import cluster_of
from hyperscout_topology.gaps import tree_gaps
from hyperscout_topology.topology import ANOMALY_KINDS, HyperNode, LinkTable, Measured, Topology

_MAX_FABRICS = 32
_OTHER = "other"
_NO_TIER = "none"  # label of a link outside all domains
_GBPS = 1e9 / 8  # bytes a second
_US = 1e-6  # seconds
CONDITIONS = ("Ready", "Degraded", "Consistent", "Stale")
FAULTS = {"MissingLink": "down", "ErroringLink": "erroring", "SlowLink": "slow", "Miswired": "miswired"}

# The only name without "collector": queries join other series to domains by it.
NODE_INFO = gauge(
    "hyperscout_node_info",
    "Always 1; the HyperNode of each tier that contains a node.",
    "node",
    "hypernode",
    "tier",
)
HYPERNODES = gauge("hyperscout_collector_hypernodes", "Published HyperNodes, by tier.", "tier")
IN_CONDITION = gauge(
    "hyperscout_collector_hypernodes_in_condition",
    "Published HyperNodes with a condition that is True, by tier.",
    "tier",
    "condition",
)
CLUSTER_NODES = gauge(
    "hyperscout_collector_cluster_nodes",
    'Nodes in the published tree, by cluster; "" = the collector\'s own. Absent with one cluster.',
    "kube_cluster",
)
HYPERNODE_NODES = gauge(
    "hyperscout_collector_hypernode_nodes",
    "Nodes of a HyperNode, with the performance class of its tier and its parent.",
    "hypernode",
    "tier",
    "tier_name",
    "parent",
)
HYPERNODE_CONDITION = gauge(
    "hyperscout_collector_hypernode_condition",
    "1 if the condition of a HyperNode is True, else 0.",
    "hypernode",
    "tier",
    "condition",
)
HYPERNODE_ANOMALIES = gauge(
    "hyperscout_collector_hypernode_anomalies",
    "Published anomalies of a HyperNode, by kind; HyperNodes without anomalies are left out.",
    "hypernode",
    "tier",
    "kind",
)
HYPERNODE_LATENCY = gauge(
    "hyperscout_collector_hypernode_latency_seconds",
    "Measured round trip within a HyperNode in seconds: the median, and the worst (99th percentile).",
    "hypernode",
    "tier",
    "stat",
)
HYPERNODE_BANDWIDTH = gauge(
    "hyperscout_collector_hypernode_bandwidth_bytes_per_second",
    "Measured bandwidth within a HyperNode in bytes a second: the median, and the worst (1st percentile).",
    "hypernode",
    "tier",
    "stat",
)
TIER_LATENCY = gauge(
    "hyperscout_collector_latency_seconds",
    "Measured round trip within a tier in seconds: the median, and the worst (99th percentile).",
    "tier",
    "stat",
)
TIER_BANDWIDTH = gauge(
    "hyperscout_collector_bandwidth_bytes_per_second",
    "Measured bandwidth within a tier in bytes a second: the median, and the worst (1st percentile).",
    "tier",
    "stat",
)
LINKS = gauge("hyperscout_collector_links", "Published links, by fabric.", "fabric")
LINK_FAULTS = gauge(
    "hyperscout_collector_link_faults",
    "Links that are down, erroring, slow or miswired, by tier of their domain; none = outside all.",
    "tier",
    "fault",
)
ANOMALIES = gauge("hyperscout_collector_anomalies", "Published anomalies, by kind.", "kind")
FABRIC_SWITCHES = gauge(
    "hyperscout_collector_fabric_switches", "Published switches, by level; 0 = unknown.", "level"
)
UNSEEN_NODES = gauge(
    "hyperscout_collector_nodes_without_evidence",
    "Expected nodes that no fabric shows, or dead cables alone.",
)
SEPARATE_ROOTS = gauge(
    "hyperscout_collector_separate_roots", "Roots of one connected fabric or sweep; 0 = there is one root."
)
UNUSED_SWITCHES = gauge(
    "hyperscout_collector_switches_in_no_tier",
    "Switches above separate roots that join no domains, by level.",
    "level",
)


class TopologyMetrics:
    """Caches the text of one topology."""

    def __init__(self) -> None:
        self._topology: Topology | None = None
        self._text = b""

    def text(self, topology: Topology) -> bytes:
        if topology is not self._topology:
            self._text = "".join(_texts(topology)).encode()
            self._topology = topology
        return self._text


def _texts(topology: Topology) -> Iterator[str]:
    tiers = sorted({h.tier for h in topology.hypernodes})
    yield HYPERNODES.by(_words(Counter(h.tier for h in topology.hypernodes)))
    true = Counter((h.tier, c.type) for h in topology.hypernodes for c in h.conditions if c.status == "True")
    yield IN_CONDITION.by(
        {(str(t), condition): true[t, condition] for t in tiers for condition in CONDITIONS}
    )
    of_cluster = Counter(cluster_of(node) for h in topology.hypernodes if h.tier == 1 for node in h.nodes)
    if of_cluster.keys() - {""}:
        yield CLUSTER_NODES.by(dict(sorted(of_cluster.items())))
    yield from _wiring(topology, tiers)
    yield from _tier_figures(topology)
    yield from _domains(topology)
    yield NODE_INFO.head
    yield from map(_node_info, topology.hypernodes)


def _wiring(topology: Topology, tiers: list[int]) -> Iterator[str]:
    yield LINKS.by(_links(topology))
    faults = Counter((_tier(x.tier), FAULTS[x.kind]) for x in topology.anomalies if x.kind in FAULTS)
    all_faults = [(t, fault) for t in (*map(str, tiers), _NO_TIER) for fault in FAULTS.values()]
    yield LINK_FAULTS.by({key: faults[key] for key in all_faults})
    kinds = Counter(x.kind for x in topology.anomalies)
    yield ANOMALIES.by({kind: kinds[kind] for kind in ANOMALY_KINDS})
    yield FABRIC_SWITCHES.by(_words(Counter(switch.level for switch in topology.switches)))
    yield UNSEEN_NODES.of(len(topology.nodes_without_evidence))
    gaps = tree_gaps(topology)
    yield SEPARATE_ROOTS.of(len(gaps.separate_roots))
    yield UNUSED_SWITCHES.by({str(level): count for level, count in gaps.unused})


def _links(topology: Topology) -> dict[str, int]:
    """Links by fabric, for the `_MAX_FABRICS` largest; the rest is "other"."""
    links, counts = topology.links, Counter[str]()
    if isinstance(links, LinkTable):
        for fabric, count in zip(links.fabrics, np.bincount(links.fabric).tolist(), strict=False):
            counts[fabric] += count
    else:
        counts.update(link.fabric for link in links)
    found = dict(sorted(counts.most_common(_MAX_FABRICS)))
    if rest := counts.total() - sum(found.values()):
        found[_OTHER] = rest
    return found


def _tier_figures(topology: Topology) -> Iterator[str]:
    latency = {str(t.tier): t.latency_us for t in topology.tiers if t.latency_us}
    bandwidth = {str(t.tier): t.bandwidth_gbps for t in topology.tiers if t.bandwidth_gbps}
    yield TIER_LATENCY.by({(tier, *at): v for tier, m in latency.items() for at, v in _stats(m, _US)})
    yield TIER_BANDWIDTH.by({(tier, *at): v for tier, m in bandwidth.items() for at, v in _stats(m, _GBPS)})


def _stats(measured: Measured, unit: float) -> Iterator[tuple[tuple[str], float]]:
    yield ("median",), measured.median * unit
    yield ("worst",), measured.p99 * unit


def _domains(topology: Topology) -> Iterator[str]:
    domains = [(h, (h.name, str(h.tier))) for h in topology.hypernodes]
    yield HYPERNODE_NODES.by({(*key, h.tier_name, h.parent or ""): len(h.nodes) for h, key in domains})
    yield HYPERNODE_CONDITION.by(
        {(*key, c.type): c.status == "True" for h, key in domains for c in h.conditions}
    )
    yield HYPERNODE_ANOMALIES.by(
        Counter((x.hypernode, _tier(x.tier), x.kind) for x in topology.anomalies if x.hypernode)
    )
    latency = [(key, h.latency_us) for h, key in domains if h.latency_us]
    bandwidth = [(key, h.bandwidth_gbps) for h, key in domains if h.bandwidth_gbps]
    yield HYPERNODE_LATENCY.by({(*key, *at): v for key, m in latency for at, v in _stats(m, _US)})
    yield HYPERNODE_BANDWIDTH.by({(*key, *at): v for key, m in bandwidth for at, v in _stats(m, _GBPS)})


def _node_info(h: HyperNode) -> str:
    """The lines of all nodes of a HyperNode, formatted directly: there are nodes times tiers such lines."""
    rest = f'",hypernode="{escaped(h.name)}",tier="{h.tier}"}} 1\n'
    return "".join([f'hyperscout_node_info{{node="{escaped(node)}{rest}' for node in h.nodes])


def _tier(tier: int | None) -> str:
    return _NO_TIER if tier is None else str(tier)


def _words(counts: Counter[int]) -> dict[str, int]:
    return {str(number): count for number, count in sorted(counts.items())}
