"""Places a gang in one of several clusters: the named one, or that in which it costs least."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_formats.text.reporters import CLUSTER_LABEL, cluster_of

from hyperscout_cli.shared.output import note

if TYPE_CHECKING:
    from hyperscout_cli.place.placing import Placer


def check_clusters(cluster: str | None, any_cluster: bool, topology: str | None) -> None:
    """Raise UsageError for flags that contradict each other."""
    if cluster is not None and any_cluster:
        raise click.UsageError("--cluster and --any-cluster: give one of them")
    if (cluster is not None or any_cluster) and topology is not None:
        raise click.UsageError(
            "--cluster and --any-cluster need a collector: it knows the nodes of each cluster"
        )


def chosen_cluster(asked: "Placer", message: pb.PlaceRequest) -> str:
    """The cluster in which the gang costs least; "" = the collector's own. Of equal ones the first by name.

    If the gang fits in none, stderr says why for each, and the first by name is returned.
    """
    found: dict[str, pb.Placement] = {}
    for cluster in sorted({cluster_of(node) for h in asked.topology().hypernodes for node in h.nodes}):
        request = pb.PlaceRequest()
        request.CopyFrom(message)
        request.dry_run = True
        restrict(request.parts, cluster)
        found[cluster] = asked.place(request)
    if not any(placement.placed for placement in found.values()):
        for cluster, placement in found.items():
            note(f"cluster {cluster or 'of the collector'}: {placement.reason}")
    fragments = message.packing == pb.PACKING_FRAGMENTS
    return min(found, key=lambda name: _order(found[name], fragments), default="")


def restrict(parts: Iterable[pb.Part], cluster: str) -> None:
    """Let all workers use nodes of this cluster only."""
    for part in parts:
        if part.HasField("group"):
            restrict(part.group.parts, cluster)
        else:
            part.workers.node_selector[CLUSTER_LABEL] = cluster


def _order(placement: pb.Placement, fragments: bool) -> tuple[object, ...]:
    """The order of goodness (docs/placer.md), with refusals last."""
    cost = placement.cost
    domains, left = tuple(cost.domains), tuple(cost.fragmentation)
    return (
        not placement.placed,
        cost.top,
        left if fragments else (),
        domains,
        cost.nodes,
        cost.unpreferred,
        cost.degraded,
        left,
        tuple(cost.above),
        cost.whole,
        tuple(cost.widths),
    )
