"""`hyperscout explain-placement`: the candidates for a gang, and why each was not chosen."""

import click

from hyperscout_cli.place.gang_flags import Gang
from hyperscout_cli.place.gang_options import capacity_option, gang_options, nodes_option
from hyperscout_cli.place.place import EXPLAINED
from hyperscout_cli.place.placement_files import Files
from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import SeveralCommand, WholeNumber
from hyperscout_cli.shared.errors import NO
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, emit_data, note
from hyperscout_cli.shared.writers import unnamed_option


@click.command(
    cls=SeveralCommand,
    short_help="Explain the placement of a gang.",
    epilog="""\b
Examples:
  hyperscout explain-placement --topology fabric.json --workers 64
  hyperscout explain-placement --workers 64 --group-size 8 --group-tier leaf -o json
  hyperscout explain-placement --gang train-7        a reserved gang, as if it were placed now

\b
Exit codes: 0 there is a placement, 1 failure, 2 wrong usage or input, 3 there is no placement.""",
)
@gang_options
@capacity_option
@nodes_option
@click.option(
    "--gang",
    "name",
    metavar="NAME",
    shell_complete=names("gangs"),
    help="A gang that holds nodes, in place of the flags about a gang.",
)
@click.option(
    "--limit",
    metavar="N",
    type=WholeNumber(1, 1000),
    default=EXPLAINED,
    show_default=True,
    help="Maximum number of candidates.",
)
@output_option()
@topology_options
@unnamed_option
def explain_placement(
    *,
    unnamed: bool,
    gang: Gang,
    capacity: str | None,
    nodes: str | None,
    name: str | None,
    limit: int,
    output: str,
    topology: str | None,
    collector: Endpoint,
) -> int:
    """Show the candidate domains for a gang, their costs, and why each was not chosen.

    FREE is the number of workers that fit. DOMAINS counts the domains used, from the tier below downwards.
    """
    from hyperscout_cli.place.placing import check_sources, placer

    files = Files(topology, capacity, nodes)

    if name is not None and gang.given():
        raise click.UsageError("--gang names a gang that holds nodes: give either --gang or a gang to place")
    if name is not None and topology is not None:
        raise click.UsageError("--gang needs a collector: a file has no reservations")
    check_sources(gang, files, unnamed=unnamed)
    message = None
    if name is not None:
        from hyperscout.v1.placement_pb2 import ExplainPlacementRequest

        from hyperscout_cli.remote.client import Collector

        with Collector(collector) as connection:
            found = connection.explain_placement(ExplainPlacementRequest(gang=name, limit=limit))
    else:
        message = gang.message()
        with placer(gang, files=files, collector=collector, unnamed=unnamed) as asked:
            found = asked.explain(message, limit)
    placed = found.placement.placed
    if output != "table":
        from hyperscout_placer.messages.placements import explained_json

        emit_data(explained_json(found), output)
    else:
        from hyperscout_cli.place.placement_text import explanation_text

        emit(explanation_text(found, message))
        if not placed:
            note(found.placement.reason)
    return 0 if placed else NO
