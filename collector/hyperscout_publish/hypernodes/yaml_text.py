"""HyperNode resources as YAML for `kubectl apply -f -` (topology.volcano.sh/v1alpha1).

Leaves precede their parents. A scheduler that reads a parent before its children exist needs much
more time, and one that reads a child with two parents stops.
"""

from collections.abc import Iterator

from hyperscout_topology.names import left_out, scalar
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.wanted import (
    API_VERSION,
    KIND,
    MAX_EXACT_NAME,
    NODES_ANNOTATION,
    OWNER_LABELS,
    Wanted,
    unpublishable,
    wanted,
)


def hypernodes_yaml(topology: Topology) -> Iterator[str]:
    """Yield one document per HyperNode. A domain without Kubernetes nodes is omitted and not named."""
    yield from left_out(
        unpublishable(topology), "because these are not valid Kubernetes node names (use a node map)"
    )
    separator = ""
    for hypernode in wanted(topology):
        yield separator + "".join(_document(hypernode))
        separator = "---\n"


def _document(hypernode: Wanted) -> Iterator[str]:
    labels = "".join(f"    {key}: {value}\n" for key, value in OWNER_LABELS.items())
    annotations = "".join(
        f'    {key}: "{value}"\n'
        for key, value in (*hypernode.annotations, (NODES_ANNOTATION, str(hypernode.count)))
    )
    yield (
        f"apiVersion: {API_VERSION}\n"
        f"kind: {KIND}\n"
        "metadata:\n"
        f"  name: {scalar(hypernode.name)}\n"
        f"  labels:\n{labels}"
        f"  annotations:\n{annotations}"
        "spec:\n"
        f"  tier: {hypernode.tier}\n"
    )
    if hypernode.tier_name:
        yield f"  tierName: {scalar(hypernode.tier_name)}\n"
    yield "  members:\n"
    for child in hypernode.children:
        yield _exact(KIND, child)
    for node in hypernode.exact_nodes:
        yield _exact("Node", node)
    if hypernode.has_long_names:
        yield (
            f"  # names over {MAX_EXACT_NAME} characters: those nodes must carry this label\n"
            "  - type: Node\n"
            "    selector:\n"
            "      labelMatch:\n"
            "        matchLabels:\n"
            f"          {hypernode.tier_label}: {scalar(hypernode.name)}\n"
        )


def _exact(kind: str, name: str) -> str:
    return f"  - type: {kind}\n    selector:\n      exactMatch:\n        name: {scalar(name)}\n"
