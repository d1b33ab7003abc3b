"""`hyperscout explain-placement`: the candidates for a gang, and why each lost."""

import click

from hyperscout_cli.place.gang_flags import Gang, gang_options
from hyperscout_cli.place.place import EXPLAINED
from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.errors import NO
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, emit_data, note
from hyperscout_cli.shared.several import SeveralCommand


@click.command(
    cls=SeveralCommand,
    short_help="Say why a gang goes where it goes, or nowhere.",
    epilog="""\b
Examples:
  hyperscout explain-placement --topology fabric.json --workers 64
  hyperscout explain-placement --workers 64 --group-size 8 --group-tier leaf -o json
  hyperscout explain-placement --gang train-7        one that is reserved, as if it were placed now

\b
Exit codes: 0 it has a place, 1 failure, 2 wrong usage or input, 3 there is no placement.""",
)
@gang_options
@click.option(
    "--capacity", metavar="FILE", type=click.Path(), help="What is free on each node (JSON; with --topology)."
)
@click.option(
    "--gang",
    "name",
    metavar="NAME",
    shell_complete=names("gangs"),
    help="A gang that holds nodes, in place of the flags above.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=EXPLAINED,
    show_default=True,
    help="At most so many candidates.",
)
@output_option()
@topology_options
def explain_placement(
    *,
    gang: Gang,
    capacity: str | None,
    name: str | None,
    limit: int,
    output: str,
    topology: str | None,
    collector: Endpoint,
) -> int:
    """Show the domains that could hold a gang: what each would cost, and what decided against it.

    FREE is how many workers fit there. DOMAINS counts those it would use, from the tier below its own down.
    """
    from hyperscout_cli.place.placing import check_sources, explained

    if name is not None and gang.given():
        raise click.UsageError("--gang names one that holds nodes: give either it or what to place")
    if name is not None and topology is not None:
        raise click.UsageError("--gang goes with --collector: a file holds nothing")
    check_sources(gang, topology, capacity)
    message = gang.message() if name is None else None
    found = explained(gang, name, message, limit, topology=topology, capacity=capacity, collector=collector)
    placed = found.placement.placed
    if output != "table":
        from hyperscout_placer.messages.placements import placement_json

        from hyperscout_cli.place.placement_text import explanation_json

        emit_data({"placement": placement_json(found.placement), **explanation_json(found)}, output)
    else:
        from hyperscout_cli.place.placement_text import explanation_text

        emit(explanation_text(found))
        if not placed:
            note(found.placement.reason)
    return 0 if placed else NO
