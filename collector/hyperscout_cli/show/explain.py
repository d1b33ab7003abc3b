"""`hyperscout explain`: how two nodes are connected, at which tier, and on what evidence."""

from collections.abc import Sequence
from typing import Any

import click
from hyperscout_topology.names import visible

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.node_names import expanded
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, emit_data


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
    """Say how nodes A and B are connected: their lowest common HyperNode, a path, and what is wrong on it."""
    if len(nodes) != 2:
        raise click.UsageError(f"two nodes are expected, not {len(nodes)}: name A and B")
    if topology is not None:
        found, lines = _of_file(topology, output, *nodes)
    else:
        found, lines = _of_collector(collector, *nodes)
    if not emit_data(found, output):
        emit(visible(line) + "\n" for line in lines)


def _of_file(topology: str, output: str, node_a: str, node_b: str) -> tuple[dict[str, Any], list[str]]:
    from hyperscout_cli.shared.files import read_topology
    from hyperscout_cli.show.paths import explained

    loaded = read_topology(topology)
    lines = explained(loaded, node_a, node_b)
    if output == "table":
        return {}, lines
    from hyperscout_collector.serve.grpc.explain import UnknownNodeError
    from hyperscout_collector.serve.grpc.explain import explain as explanation
    from hyperscout_topology import objects

    try:
        return objects.plain(explanation(loaded, node_a, node_b, (), ())), lines
    except UnknownNodeError as error:
        raise CliError(str(error)) from error


def _of_collector(collector: Endpoint, node_a: str, node_b: str) -> tuple[dict[str, Any], list[str]]:
    from hyperscout_topology import objects

    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        answer = connection.explain(node_a, node_b)
    lines = answer.text.splitlines()
    if answer.evidence:
        lines.append("It rests on these findings:")
        lines += [f"  {key.node} {key.probe} {key.subject}" for key in answer.evidence]
    return objects.plain(answer), lines
