"""Loads a topology from a saved file or a running collector."""

from typing import TYPE_CHECKING

import click

from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import Endpoint

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology


def load(
    *,
    topology: str | None,
    collector: Endpoint,
    links: bool = True,
    at_ns: int | None = None,
    cluster: str | None = None,
    prefixed: bool = True,
) -> "Topology":
    """The saved topology if a file is named, else the published one, now or at a time (Unix ns).

    `cluster`: only the part that this cluster gets; "" = the collector's own, None = all of it. Its nodes
    have the names of the collector if `prefixed`, else those of its API server. Raises CliError and
    UsageError.
    """
    # Conditions of a part count its links.
    found = _loaded(topology, collector, links or cluster is not None, at_ns)
    if cluster is None:
        return found
    from hyperscout_publish.clusters.cut import cut_to

    check_cluster(found, cluster)
    return cut_to(found, cluster, prefixed=prefixed)


def check_cluster(topology: "Topology", cluster: str) -> None:
    """Raise CliError if the topology has nodes, and none of this cluster."""
    from hyperscout_publish.clusters.about import not_found

    if (error := not_found(topology, cluster)) is not None:
        raise CliError(error)


def _loaded(topology: str | None, collector: Endpoint, links: bool, at_ns: int | None) -> "Topology":
    if topology is not None:
        if at_ns is not None:
            raise click.UsageError("--at needs a collector: a saved topology has no history")
        from hyperscout_cli.shared.saved_topology import read_topology

        return read_topology(topology)
    from hyperscout_cli.remote.client import Collector

    with Collector(collector, or_saved=at_ns is None) as connection:
        return connection.topology(links=links, at_ns=at_ns)
