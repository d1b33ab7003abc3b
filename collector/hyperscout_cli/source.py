"""Where a topology comes from: a saved file or a running collector."""

from typing import TYPE_CHECKING

from hyperscout_cli.options import Endpoint

if TYPE_CHECKING:
    from hyperscout_collector.topology import Topology


def load(*, topology: str | None, collector: Endpoint, links: bool = True) -> "Topology":
    """The saved topology if a file is named, else the published one. Raises CliError."""
    if topology is not None:
        from hyperscout_cli.files import read_topology

        return read_topology(topology)
    from hyperscout_cli.client import Collector

    with Collector(collector) as connection:
        return connection.topology(links=links)
