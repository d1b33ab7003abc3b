"""`hyperscout tree`: prints the published hierarchy, in all formats of `infer`."""

import click

from hyperscout_cli.remote.source import load
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.options import Endpoint, cluster_option, output_option, topology_options
from hyperscout_cli.shared.output import emit, note
from hyperscout_cli.shared.times import at_option
from hyperscout_cli.shared.writers import OUTPUTS, block_sizes_option, unnamed_option, written


@click.command(
    "tree",
    cls=Command,
    epilog="""\b
Examples:
  hyperscout tree
  hyperscout tree -o json > today.json          saves it for --topology, --previous and diff
  hyperscout tree -o slurm-tree > topology.conf
  hyperscout tree -o dot | dot -Tsvg > tree.svg  draws it with Graphviz
  hyperscout tree --cluster east                the nodes of one of several clusters
  hyperscout tree --at 2h                       as it was two hours ago
  hyperscout tree --topology today.json         offline""",
)
@at_option
@cluster_option
@output_option(words=OUTPUTS, default="tree")
@topology_options
@unnamed_option
@block_sizes_option
def show_tree(
    *,
    at_ns: int | None,
    cluster: str | None,
    output: str,
    unnamed: bool,
    block_sizes: tuple[int, ...],
    topology: str | None,
    collector: Endpoint,
) -> None:
    """Print the hierarchy as a tree, with sizes and problems.

    With --cluster, the tree and `-o dot` have the names of the collector, CLUSTER/NODE. The other formats are
    for the cluster itself, and have the names of its API server.
    """
    links = output in {"json", "yaml", "dot"}
    loaded = load(
        topology=topology,
        collector=collector,
        links=links,
        at_ns=at_ns,
        cluster=cluster,
        prefixed=output in {"tree", "dot"},  # the other formats are for programs of the cluster
    )
    if output == "tree" and not loaded.hypernodes:
        note("no hypernodes found")
    emit(written(loaded, output, unnamed=unnamed, block_sizes=block_sizes))
