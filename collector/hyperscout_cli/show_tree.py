"""`hyperscout tree`: the published hierarchy as a whole, in every output that `infer` has."""

import click

from hyperscout_cli.options import Endpoint, topology_options
from hyperscout_cli.output import emit
from hyperscout_cli.source import load
from hyperscout_cli.writers import OUTPUTS, written


@click.command(
    "tree",
    epilog="""\b
Examples:
  hyperscout tree
  hyperscout tree -o json > today.json          save it, for --topology, --previous and diff
  hyperscout tree -o slurm-tree > topology.conf
  hyperscout tree --topology today.json         offline""",
)
@click.option("-o", "--output", type=click.Choice(OUTPUTS), default="tree", show_default=True)
@topology_options
def show_tree(*, output: str, topology: str | None, collector: Endpoint) -> None:
    """Print the hierarchy as a tree, with sizes and what is wrong."""
    loaded = load(topology=topology, collector=collector, links=output == "json")
    emit(written(loaded, output))
