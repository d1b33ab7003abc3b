"""`hyperscout explain`: how two nodes are connected, at which tier, and on what evidence."""

import click
from hyperscout_collector.publish.texts.names import visible

from hyperscout_cli.options import Endpoint, topology_options
from hyperscout_cli.output import emit


@click.command(
    epilog="""\b
Examples:
  hyperscout explain gpu-01 gpu-77
  hyperscout explain gpu-01 gpu-77 --topology saved.json"""
)
@click.argument("node_a", metavar="A")
@click.argument("node_b", metavar="B")
@topology_options
def explain(*, node_a: str, node_b: str, topology: str | None, collector: Endpoint) -> None:
    """Say how nodes A and B are connected: their lowest common HyperNode, a path, and what is wrong on it."""
    if topology is not None:
        from hyperscout_cli.files import read_topology
        from hyperscout_cli.paths import explained

        lines = explained(read_topology(topology), node_a, node_b)
    else:
        from hyperscout_cli.client import Collector

        with Collector(collector) as connection:
            answer = connection.explain(node_a, node_b)
        lines = answer.text.splitlines()
        if answer.evidence:
            lines.append("It rests on these findings:")
            lines += [f"  {key.node} {key.probe} {key.subject}" for key in answer.evidence]
    emit(visible(line) + "\n" for line in lines)
