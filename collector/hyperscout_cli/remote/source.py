"""Loads a topology from a saved file or a running collector."""

from typing import TYPE_CHECKING

import click

from hyperscout_cli.shared.options import Endpoint

if TYPE_CHECKING:
    from hyperscout_topology.topology import Topology


def load(
    *, topology: str | None, collector: Endpoint, links: bool = True, at_ns: int | None = None
) -> "Topology":
    """The saved topology if a file is named, else the published one, now or at a time (Unix ns).

    Raises CliError and UsageError.
    """
    if topology is not None:
        if at_ns is not None:
            raise click.UsageError("--at needs a collector: a saved topology has no history")
        from hyperscout_cli.shared.saved_topology import read_topology

        return read_topology(topology)
    from hyperscout_cli.remote.client import Collector

    with Collector(collector, or_saved=at_ns is None) as connection:
        return connection.topology(links=links, at_ns=at_ns)
