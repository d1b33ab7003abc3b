"""`hyperscout placements`: which gangs hold nodes at a collector, and what to do about them."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from hyperscout_topology.names import visible

from hyperscout_cli.place.gang_flags import Gang, gang_options
from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Group
from hyperscout_cli.shared.errors import NO, CliError
from hyperscout_cli.shared.node_names import expanded
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data, note, one_of_many
from hyperscout_cli.shared.several import SeveralCommand

if TYPE_CHECKING:
    from hyperscout.v1 import placement_pb2 as pb
    from hyperscout_topology.topology import Topology


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  hyperscout placements list
  hyperscout placements release train-7
  hyperscout placements repair train-7 --failed gpu-17
  hyperscout placements improve train-7
  hyperscout placements defragment --workers 64 --highest-tier-allowed leaf""",
)
def placements() -> None:
    """Gangs that hold nodes: list, follow, release, repair or improve them; make room for another."""


@placements.command(
    "list",
    epilog="""\b
Examples:
  hyperscout placements list
  hyperscout placements list -o json""",
)
@output_option("wide", "name")
@collector_options
def list_placements(*, output: str, collector: Endpoint) -> None:
    """List gangs that hold nodes."""
    from hyperscout_cli.place.placement_text import placements_table
    from hyperscout_cli.remote.placement_client import PlacementCollector
    from hyperscout_cli.show.get import show

    with PlacementCollector(collector) as connection:
        table = placements_table(connection.placements(), time.time_ns())
    show(table, output)
    if not table.rows and output in {"table", "wide"}:
        note("no gang holds nodes")


@placements.command(
    epilog="""\b
Examples:
  hyperscout placements watch
  hyperscout placements watch -o json | jq .released"""
)
@output_option()
@collector_options
def watch(*, output: str, collector: Endpoint) -> None:
    """Follow gangs as they come, change and go, until interrupted.

    `-o json` prints one object a line, `-o yaml` one document a change.
    """
    from hyperscout_cli.remote.placement_client import PlacementCollector

    with PlacementCollector(collector) as connection:
        for text in changes(connection.watch_placements(), output=output):
            emit([text])
    raise CliError(f"the collector at {collector.address} ended the stream")


def changes(events: "Iterable[pb.WatchPlacementsResponse]", *, output: str = "table") -> Iterator[str]:
    """Text for each event: lines of a table, or one object."""
    from hyperscout_cli.place.placement_text import placements_table
    from hyperscout_cli.shared.tables import Row, Table, lines

    heading = True
    for event in events:
        table = placements_table(event.placements, time.time_ns())
        if output != "table":
            placed = [row.data for row in table.rows]
            data = {"snapshot": event.snapshot, "placements": placed, "released": list(event.released)}
            yield one_of_many(data, output)
            continue
        blank = ("",) * (len(table.headings) - 2)
        gone = [Row(gang, (gang, *blank, "released")) for gang in event.released]
        rows = (*table.rows, *gone)
        if rows or heading:
            yield "".join(lines(Table(table.kind, table.headings, (), rows), heading=heading))
        heading = False


@placements.command(epilog="\b\nExamples:\n  hyperscout placements release train-7")
@click.argument("gangs", metavar="GANG...", nargs=-1, required=True, shell_complete=names("gangs"))
@output_option()
@collector_options
def release(*, gangs: Sequence[str], output: str, collector: Endpoint) -> None:
    """Give back what gangs hold. One that holds nothing does not keep the others."""
    from hyperscout_cli.remote.placement_client import NotReleasedError, PlacementCollector

    kept, released = [], []
    with PlacementCollector(collector) as connection:
        for gang in gangs:
            try:
                connection.release(gang)
            except NotReleasedError as error:
                kept.append(error.message)
            else:
                released.append(gang)
                if output == "table":
                    emit([f"released {visible(gang)}\n"])
    emit_data({"released": released}, output)
    if kept:
        raise CliError("\n".join(kept))


@placements.command(
    cls=SeveralCommand,
    epilog="""\b
Examples:
  hyperscout placements repair train-7 --failed gpu-17 gpu-18
  hyperscout placements repair train-7 --failed gpu-17 --dry-run -o json

Exit codes: 0 done, 1 failure, 2 wrong usage, 3 there is no replacement.""",
)
@click.argument("gang", metavar="GANG", required=False, shell_complete=names("gangs"))
@click.option(
    "--failed",
    metavar="NODE...",
    multiple=True,
    required=True,
    callback=expanded,
    shell_complete=names("nodes"),
    help="Nodes that its ranks must leave, and may not move to.",
)
@click.option("--dry-run", is_flag=True, help="Show the moves, and leave what is held as it is.")
@output_option()
@collector_options
def repair(
    *, gang: str | None, failed: Sequence[str], dry_run: bool, output: str, collector: Endpoint
) -> int:
    """Find other nodes for the ranks of a GANG that are on failed ones. Only what must move moves.

    Failed nodes are not remembered: name all of them each time, or cordon them.
    """
    from hyperscout_cli.remote.placement_client import PlacementCollector

    if gang is None:
        raise click.UsageError("Missing argument 'GANG': it goes before --failed, which takes all after it")
    with PlacementCollector(collector) as connection:
        found = connection.repair(gang, failed, dry_run=dry_run)
        placed = found.placement.placed
        if output != "table":
            emit_data(_with_moves(found.placement, found.moves, {"keptTier": found.kept_tier}), output)
        elif not placed:
            note(found.placement.reason)
        elif not found.moves:
            emit(["nothing has to move\n"])
        else:
            wider = "" if found.kept_tier else "It is spread wider than before.\n"
            emit(_moved(found.moves, found.placement, connection.topology(links=False), wider))
    return 0 if placed else NO


@placements.command(
    epilog="""\b
Examples:
  hyperscout placements improve train-7
  hyperscout placements improve train-7 -o json

Exit codes: 0 it would be better off, 1 failure, 2 wrong usage, 3 it is well where it is."""
)
@click.argument("gang", metavar="GANG", shell_complete=names("gangs"))
@output_option()
@collector_options
def improve(*, gang: str, output: str, collector: Endpoint) -> int:
    """Say whether a GANG would be better off elsewhere now, and at what price. Nothing is changed."""
    from hyperscout_cli.remote.placement_client import PlacementCollector

    with PlacementCollector(collector) as connection:
        found = connection.improve(gang)
        if output != "table":
            more = {"better": found.better, "gain": found.gain, "price": found.price}
            emit_data(_with_moves(found.placement, found.moves, more, placed=found.better), output)
        elif not found.better:
            note(f"{gang} is well where it is")
        else:
            words = f"Gain: {visible(found.gain)}\nPrice: {visible(found.price)}\n"
            emit(_moved(found.moves, found.placement, connection.topology(links=False), words))
    return 0 if found.better else NO


@placements.command(
    cls=SeveralCommand,
    epilog="""\b
Examples:
  hyperscout placements defragment --workers 64 --highest-tier-allowed leaf
  hyperscout placements defragment --request job.json --most-moves 16 -o json

Exit codes: 0 here is how, 1 failure, 2 wrong usage or input, 3 no such plan was found.""",
)
@gang_options
@click.option(
    "--most-moves",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=64,
    show_default=True,
    help="At most so many workers of other gangs may move.",
)
@output_option()
@collector_options
def defragment(*, gang: Gang, most_moves: int, output: str, collector: Endpoint) -> int:
    """Say which workers of other gangs to move so that a gang fits that has no place now. Changes nothing."""
    from hyperscout_cli.place.placing import in_flags
    from hyperscout_cli.remote.placement_client import PlacementCollector

    message = gang.message()
    with PlacementCollector(collector) as connection:
        with in_flags(gang):
            found = connection.defragment(message, most_moves)
        placed = found.placement.placed
        if output != "table":
            emit_data(_plan_json(found), output)
        elif not placed:
            note(found.placement.reason)
        else:
            emit(_plan_text(found, connection.topology(links=False)))
    return 0 if placed else NO


def _with_moves(
    placement: "pb.Placement", moves: "Iterable[pb.Move]", more: dict[str, Any], *, placed: bool = True
) -> dict[str, Any]:
    from hyperscout_placer.messages.placements import placement_json

    from hyperscout_cli.place.placement_text import moves_json

    return {"moves": moves_json(moves), **more, "placement": placement_json(placement) if placed else None}


def _moved(
    moves: "Iterable[pb.Move]", placement: "pb.Placement", topology: "Topology", words: str
) -> Iterator[str]:
    from hyperscout_cli.place.placement_text import Names, moves_table, placement_text

    yield from moves_table(moves)
    yield "\n"
    if words:
        yield words + "\n"
    yield from placement_text(placement, Names.of(topology, (x.node for x in placement.assignments)))


def _plan_json(found: "pb.DefragmentResponse") -> dict[str, Any]:
    from hyperscout_placer.messages.placements import placement_json

    from hyperscout_cli.place.placement_text import moves_json

    return {
        "placement": placement_json(found.placement),
        "gangs": [{"gang": x.gang, "moves": moves_json(x.moves)} for x in found.gangs],
        "moved": found.moved,
    }


def _plan_text(found: "pb.DefragmentResponse", topology: "Topology") -> Iterator[str]:
    from hyperscout_cli.place.placement_text import Names, placement_text, plan_table

    if found.gangs:
        yield from plan_table(found.gangs)
        yield "\nThen:\n\n"
    placement = found.placement
    yield from placement_text(placement, Names.of(topology, (x.node for x in placement.assignments)))
