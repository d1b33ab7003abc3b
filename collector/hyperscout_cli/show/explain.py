"""`hyperscout explain`: shows how two nodes are connected, at which tier, and the evidence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from hyperscout_topology import objects
from hyperscout_topology.names import visible

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import Endpoint, expanded, output_option, topology_options
from hyperscout_cli.shared.output import emit, emit_data

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import ExplainResponse


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout explain gpu-01 gpu-77
  hyperscout explain 'gpu-[01,77]' -o json
  hyperscout explain gpu-01 gpu-77 --topology saved.json""",
)
@click.argument(
    "nodes", metavar="A B", nargs=-1, required=True, callback=expanded, shell_complete=names("nodes")
)
@output_option()
@topology_options
def explain(*, nodes: Sequence[str], output: str, topology: str | None, collector: Endpoint) -> None:
    """Explain how nodes A and B are connected: their lowest common HyperNode, a path, and its anomalies."""
    if len(nodes) != 2:
        raise click.UsageError(f"expected two nodes, not {len(nodes)}: name A and B")
    answer = _of_file(topology, *nodes) if topology is not None else _of_collector(collector, *nodes)
    if emit_data(objects.plain(answer), output):
        return
    lines = answer.text.splitlines()
    if answer.evidence:
        lines.append("This is based on these findings:")
        lines += [f"  {key.node} {key.probe} {key.subject}" for key in answer.evidence]
    emit(visible(line) + "\n" for line in lines)


def _of_file(topology: str, node_a: str, node_b: str) -> "ExplainResponse":
    from hyperscout_collector.serve.grpc.explain import UnknownNodeError
    from hyperscout_collector.serve.grpc.explain import explain as explanation

    from hyperscout_cli.shared.saved_topology import read_topology

    try:
        return explanation(read_topology(topology), node_a, node_b, evidence=())
    except UnknownNodeError as error:
        raise CliError(str(error)) from error


def _of_collector(collector: Endpoint, node_a: str, node_b: str) -> "ExplainResponse":
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        return connection.explain(node_a, node_b)
