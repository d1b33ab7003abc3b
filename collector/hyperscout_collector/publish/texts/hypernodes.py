"""HyperNode resources as YAML that `kubectl apply -f -` takes (topology.volcano.sh/v1alpha1).

Leaves come before their parents: a scheduler that reads a parent whose children do not exist yet
works much longer, and one that reads a child with two parents stops.
"""

from collections.abc import Iterator

from hyperscout_collector.publish.texts.names import is_node_name, left_out, scalar
from hyperscout_collector.topology import HyperNode, Topology

SOURCE_LABEL = "volcano.sh/network-topology-source"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
OWNER = "hyperscout"
NODES_ANNOTATION = "hyperscout.io/nodes"
TIER_LABEL_PREFIX = "hyperscout.io/"  # + tierName; its value is the HyperNode's name
MAX_EXACT_NAME = 63  # the admission policy of the HyperNode's consumer refuses longer exactMatch names


def unpublishable(topology: Topology) -> tuple[str, ...]:
    """Hosts that no Kubernetes node can be called, sorted: they are left out of every HyperNode."""
    return tuple(
        sorted({n for h in topology.hypernodes if not h.children for n in h.nodes if not is_node_name(n)})
    )


def hypernodes_yaml(topology: Topology) -> Iterator[str]:
    """One document a HyperNode. A domain that no Kubernetes node is left in is not written, nor named."""
    out = unpublishable(topology)
    yield from left_out(out, "since a Kubernetes node cannot have such a name (give a node map)")
    lacking = frozenset(out)
    published = {h.name for h in topology.hypernodes if any(n not in lacking for n in h.nodes)}
    separator = ""
    for hypernode in sorted(topology.hypernodes, key=lambda h: (h.tier, h.name)):
        if hypernode.name in published:
            yield separator + "".join(_document(hypernode, published, lacking))
            separator = "---\n"


def _document(hypernode: HyperNode, published: set[str], lacking: frozenset[str]) -> Iterator[str]:
    nodes = [n for n in hypernode.nodes if n not in lacking] if lacking else hypernode.nodes
    yield (
        "apiVersion: topology.volcano.sh/v1alpha1\n"
        "kind: HyperNode\n"
        "metadata:\n"
        f"  name: {scalar(hypernode.name)}\n"
        "  labels:\n"
        f"    {MANAGED_BY_LABEL}: {OWNER}\n"
        f"    {SOURCE_LABEL}: {OWNER}\n"
        "  annotations:\n"
        f'    {NODES_ANNOTATION}: "{len(nodes)}"\n'
        "spec:\n"
        f"  tier: {hypernode.tier}\n"
    )
    if hypernode.tier_name:
        yield f"  tierName: {scalar(hypernode.tier_name)}\n"
    yield "  members:\n"
    if hypernode.children:
        for child in hypernode.children:
            if child in published:
                yield _exact("HyperNode", child)
        return
    for node in nodes:
        if len(node) <= MAX_EXACT_NAME:
            yield _exact("Node", node)
    if any(len(node) > MAX_EXACT_NAME for node in nodes):
        label = TIER_LABEL_PREFIX + (hypernode.tier_name or f"tier-{hypernode.tier}")
        yield (
            f"  # names over {MAX_EXACT_NAME} characters: those nodes must carry this label\n"
            "  - type: Node\n"
            "    selector:\n"
            "      labelMatch:\n"
            "        matchLabels:\n"
            f"          {label}: {scalar(hypernode.name)}\n"
        )


def _exact(kind: str, name: str) -> str:
    return f"  - type: {kind}\n    selector:\n      exactMatch:\n        name: {scalar(name)}\n"
