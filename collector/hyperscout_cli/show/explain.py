"""`hyperscout explain`: shows how two nodes are connected, at which tier, and the evidence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from hyperscout_topology import objects
from hyperscout_topology.names import visible

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.files import shown
from hyperscout_cli.shared.options import Endpoint, expanded, output_option, topology_options
from hyperscout_cli.shared.output import emit, emit_data

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import ExplainResponse, StoredFinding


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
    """Explain how nodes A and B are connected: their lowest common HyperNode, a path with its
    speeds, and its anomalies.

    A finding that failed, is incomplete (a partial sweep) or is stale is marked with that word.
    """
    if len(nodes) != 2:
        raise click.UsageError(f"expected two nodes, not {len(nodes)}: name A and B")
    marks: dict[tuple[str, str, str], str] = {}
    if topology is not None:
        answer = _of_file(topology, *nodes)
    else:
        answer, marks = _of_collector(collector, *nodes)
    if emit_data(objects.plain(answer), output):
        return
    lines = answer.text.splitlines()
    if answer.evidence:
        lines.append("This is based on these findings:")
        for key in answer.evidence:
            mark = marks.get((key.node, key.probe, key.subject), "")
            lines.append(f"  {key.node} {key.probe} {key.subject}{f' ({mark})' if mark else ''}")
    emit(visible(line) + "\n" for line in lines)


def _of_file(topology: str, node_a: str, node_b: str) -> "ExplainResponse":
    from hyperscout_collector.serve.grpc.explain import UnknownNodeError
    from hyperscout_collector.serve.grpc.explain import explain as explanation

    from hyperscout_cli.shared.saved_topology import read_topology

    try:
        return explanation(read_topology(topology), node_a, node_b, evidence=())
    except UnknownNodeError as error:
        of_file = f"`hyperscout get nodes --topology {shown(topology)}`"
        raise CliError(str(error).replace("`hyperscout get nodes`", of_file)) from error


def _of_collector(
    collector: Endpoint, node_a: str, node_b: str
) -> tuple["ExplainResponse", dict[tuple[str, str, str], str]]:
    """The answer, and the marks of the findings of both nodes by node, probe and subject."""
    from hyperscout_cli.remote.client import Collector

    with Collector(collector, or_saved=True) as connection:
        answer = connection.explain(node_a, node_b)
        stored = [x for node in dict.fromkeys((node_a, node_b)) for x in connection.findings(node)]
    keys = [(x.finding.key.node, x.finding.key.probe, x.finding.key.subject) for x in stored]
    return answer, dict(zip(keys, map(_mark, stored), strict=True))


def _mark(stored: "StoredFinding") -> str:
    """What limits a finding: it failed, describes a part, or is stale; "" = nothing."""
    from hyperscout.v1.finding_pb2 import Outcome

    finding = stored.finding
    marks = (
        (finding.outcome == Outcome.OUTCOME_FAILED, "failed"),
        (finding.sweep.partial, "incomplete"),
        (stored.stale, "stale"),
    )
    return ", ".join(text for is_so, text in marks if is_so)
