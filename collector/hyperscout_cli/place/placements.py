"""`hyperscout placements`: lists, releases, repairs and improves reserved gangs of a collector."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click
from hyperscout_formats.text.counts import count
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.names import visible

from hyperscout_cli.place.gang_flags import Gang
from hyperscout_cli.place.gang_options import gang_options
from hyperscout_cli.place.placement_files import MAX_WORKERS
from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Group, SeveralCommand, WholeNumber
from hyperscout_cli.shared.errors import NO, CliError, in_options
from hyperscout_cli.shared.options import (
    Endpoint,
    collector_options,
    expanded,
    output_option,
)
from hyperscout_cli.shared.output import emit, emit_data, note, one_of_many
from hyperscout_cli.shared.table_view import View, view_options

if TYPE_CHECKING:
    from hyperscout.v1 import placement_pb2 as pb


def _columns(_: click.Context) -> Sequence[str]:
    from hyperscout_cli.place.placement_text import PLACEMENT_HEADINGS, PLACEMENT_MORE

    return PLACEMENT_HEADINGS + PLACEMENT_MORE


@click.group(
    cls=Group,
    epilog="""\b
Examples:
  hyperscout placements list
  hyperscout placements queue
  hyperscout placements release train-7
  hyperscout placements repair train-7 --failed gpu-17
  hyperscout placements resize train-7 --workers 96
  hyperscout placements improve train-7
  hyperscout placements defragment --workers 64 --highest-tier-allowed leaf

Exit codes: 0 ok, 1 failure, 2 wrong usage, 3 nothing was found (repair, resize, improve, defragment).""",
)
def placements() -> None:
    """List, follow, release, repair, resize or improve gangs that hold nodes; free nodes for another gang."""


@placements.command(
    "list",
    epilog="""\b
Examples:
  hyperscout placements list
  hyperscout placements list -o json
  hyperscout placements list 'train-*' -l holder=api --sort-by workers
  sbatch -w "$(hyperscout placements list train-7 -o hostlist)" job.sh""",
)
@click.argument("gangs", metavar="[GANG...]", nargs=-1, shell_complete=names("gangs"))
@output_option("wide", "name", "hostlist")
@view_options(_columns)
@collector_options
def list_placements(*, gangs: Sequence[str], view: View, output: str, collector: Endpoint) -> None:
    """List gangs that hold nodes: all, or those with the given names.

    A GANG may be a host list, or the start of names with * after it, in quotes. The keys of --selector are
    the columns of the table, in any case. `-o hostlist` prints a line for each gang: its nodes in the order
    of ranks.
    """
    from hyperscout_cli.place.placement_text import host_list, placements_table
    from hyperscout_cli.remote.client import Collector
    from hyperscout_cli.shared.kinds import check_found, select
    from hyperscout_cli.shared.tables import show

    with Collector(collector) as connection:
        every = placements_table(connection.placements(), time.time_ns())
    table, missing = select("placements", every, gangs)
    table = view.of(table)
    if output == "hostlist":
        emit(f"{host_list(x['node'] for x in row.data['assignments'])}\n" for row in table.rows)
    else:
        none = "no gang matches the selector" if view.selector else "no gang holds nodes"
        show(table, output, "" if missing else none, heading=view.heading)
    check_found("placements", every, missing)


@placements.command(
    epilog="""\b
Examples:
  hyperscout placements queue
  hyperscout placements queue -o json"""
)
@output_option("wide", "name")
@collector_options
def queue(*, output: str, collector: Endpoint) -> None:
    """List the gangs of pods that wait for nodes, in the order in which they are tried.

    KEPT is the domain that drains for a gang: its nodes that become free are kept for the gang.
    """
    from hyperscout_cli.place.placement_text import queue_table
    from hyperscout_cli.remote.client import Collector
    from hyperscout_cli.shared.tables import show

    with Collector(collector) as connection:
        show(queue_table(connection.queue(), time.time_ns()), output, "no gang waits for nodes")


@placements.command(
    epilog="""\b
Examples:
  hyperscout placements watch
  hyperscout placements watch -o json | jq .released"""
)
@output_option()
@collector_options
def watch(*, output: str, collector: Endpoint) -> None:
    """Follow new, changed and released gangs until interrupted.

    `-o json` prints one object a line, `-o yaml` one document a change.
    """
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        for text in changes(connection.watch_placements(), output=output):
            emit([text])
    raise CliError(f"the collector at {collector.address} ended the stream: run the command again")


def changes(events: "Iterable[pb.WatchPlacementsResponse]", *, output: str = "table") -> Iterator[str]:
    """The text of each event: lines of a table, or one object."""
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
    """Release the nodes of gangs. If one gang cannot be released, the others are released nevertheless."""
    from hyperscout_cli.remote.client import Collector, NotReleasedError

    kept, released = [], []
    with Collector(collector) as connection:
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
  hyperscout placements repair train-7 --clear gpu-17

Exit codes: 0 done, 1 failure, 2 wrong usage, 3 there is no replacement.""",
)
@click.argument("gang", metavar="GANG", required=False, shell_complete=names("gangs"))
@click.option(
    "--failed",
    metavar="NODE...",
    multiple=True,
    callback=expanded,
    shell_complete=names("nodes"),
    help="Failed nodes: its ranks leave them, and do not move to them.",
)
@click.option(
    "--clear",
    "cleared",
    metavar="NODE...",
    multiple=True,
    callback=expanded,
    shell_complete=names("nodes"),
    help="Nodes that are repaired: its ranks may move to them again.",
)
@click.option("--dry-run", is_flag=True, help="Show the moves, and leave the reservation unchanged.")
@output_option()
@collector_options
def repair(
    *,
    gang: str | None,
    failed: Sequence[str],
    cleared: Sequence[str],
    dry_run: bool,
    output: str,
    collector: Endpoint,
) -> int:
    """Find other nodes for the ranks of a GANG that are on failed nodes. Other ranks do not move.

    The gang remembers its failed nodes, and no later repair uses them. It forgets a node with --clear, or
    when the node is healthy again: it was down after the report, is up, and its agent has reported since.
    `placements list -o wide` shows the remembered nodes.
    """
    from hyperscout_cli.remote.client import Collector

    if gang is None:
        raise click.UsageError(
            "Missing argument 'GANG': give it before --failed and --clear, which take all later words"
        )
    with Collector(collector) as connection:
        with in_options({"failed_nodes": "--failed", "cleared_nodes": "--clear"}):
            found = connection.repair(gang, failed, cleared, dry_run=dry_run)
        placed = found.placement.placed
        if output != "table":
            from hyperscout_placer.messages.changes import repair_json

            emit_data(repair_json(found), output)
        elif not placed:
            note(found.placement.reason)
        elif not found.moves:
            emit(["no rank has to move\n"])
        else:
            from hyperscout_cli.place.placement_text import moved_text

            wider = "" if found.kept_tier else "The gang spans a higher tier than before.\n"
            emit(moved_text(found.moves, found.placement, connection.topology(links=False), wider))
    return 0 if placed else NO


@placements.command(
    epilog="""\b
Examples:
  hyperscout placements resize train-7 --workers 96
  hyperscout placements resize train-7 --workers 96 --dry-run -o json

Exit codes: 0 done, 1 failure, 2 wrong usage, 3 no more workers have a place."""
)
@click.argument("gang", metavar="GANG", shell_complete=names("gangs"))
@click.option(
    "--workers",
    metavar="N",
    type=WholeNumber(1, MAX_WORKERS),
    required=True,
    help="Number of workers: from the minimum of the gang's request (--min-workers) to its maximum.",
)
@click.option("--dry-run", is_flag=True, help="Show the placement, and leave the reservation unchanged.")
@output_option()
@collector_options
def resize(*, gang: str, workers: int, dry_run: bool, output: str, collector: Endpoint) -> int:
    """Grow or shrink a GANG in place. No rank that stays moves.

    The gang gets N workers, or as many as have a place beside those that stay. New workers are placed near
    them. A gang that shrinks releases the last copies of its elastic parts.
    """
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        found = connection.resize(gang, workers, dry_run=dry_run)
        placed = found.placement.placed
        if output != "table":
            from hyperscout_placer.messages.changes import resize_json

            emit_data(resize_json(found), output)
            if placed and found.placement.reason:
                note(found.placement.reason)
        elif not placed:
            note(found.placement.reason)
        else:
            from hyperscout_cli.place.placement_text import placement_text

            emit([f"Before: {count(found.before, 'worker')}\n\n"])
            emit(placement_text(found.placement, connection.topology(links=False)))
    return 0 if placed else NO


@placements.command(
    epilog="""\b
Examples:
  hyperscout placements improve train-7
  hyperscout placements improve train-7 -o json

Exit codes: 0 a better placement exists, 1 failure, 2 wrong usage, 3 no better placement exists."""
)
@click.argument("gang", metavar="GANG", shell_complete=names("gangs"))
@output_option()
@collector_options
def improve(*, gang: str, output: str, collector: Endpoint) -> int:
    """Show a better placement for a GANG, and its price. Changes nothing."""
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        found = connection.improve(gang)
        if output != "table":
            emit_data(_improvement_json(found), output)
        elif not found.better:
            note(f"{gang}: no better placement exists")
        else:
            from hyperscout_cli.place.placement_text import moved_text

            words = f"Gain: {visible(found.gain)}\nPrice: {visible(found.price)}\n"
            emit(moved_text(found.moves, found.placement, connection.topology(links=False), words))
    return 0 if found.better else NO


@placements.command(
    cls=SeveralCommand,
    epilog="""\b
Examples:
  hyperscout placements defragment --workers 64 --highest-tier-allowed leaf
  hyperscout placements defragment --request job.json --most-moves 16 -o json
  hyperscout placements defragment --last

Exit codes: 0 a plan was found, 1 failure, 2 wrong usage or input, 3 no plan was found.""",
)
@gang_options
@click.option(
    "--most-moves",
    metavar="N",
    type=WholeNumber(1, 100_000),
    default=64,
    show_default=True,
    help="Maximum number of workers of other gangs that may move.",
)
@click.option(
    "--last",
    is_flag=True,
    help="Show the newest plan of the collector's schedule (gates_defragment_every_s), which is for the "
    "first waiting gang; leave out the options that describe a gang.",
)
@output_option()
@collector_options
def defragment(*, gang: Gang, most_moves: int, last: bool, output: str, collector: Endpoint) -> int:
    """Show which workers of other gangs to move so that a gang fits. Changes nothing."""
    from hyperscout_cli.place.placing import in_flags
    from hyperscout_cli.remote.client import Collector

    if last and gang.given():
        raise click.UsageError(
            "--last shows a plan for the first waiting gang: leave out the flags of a gang"
        )
    message = None if last else gang.message()
    with Collector(collector) as connection:
        with in_flags(gang):
            found = connection.last_plan() if message is None else connection.defragment(message, most_moves)
        placed = found.placement.placed
        if output != "table":
            emit_data(_plan_json(found), output)
        elif not placed:
            note(found.placement.reason)
        else:
            from hyperscout_cli.place.placement_text import plan_text

            emit(plan_text(found, connection.topology(links=False)))
    return 0 if placed else NO


def _improvement_json(found: "pb.ImproveResponse") -> dict[str, Any]:
    from hyperscout_placer.messages.changes import moves_json
    from hyperscout_placer.messages.placements import placement_json

    return {
        "moves": moves_json(found.moves),
        "better": found.better,
        "gain": found.gain,
        "price": found.price,
        "placement": placement_json(found.placement) if found.better else None,
    }


def _plan_json(found: "pb.DefragmentResponse") -> dict[str, Any]:
    from hyperscout_placer.messages.changes import moves_json
    from hyperscout_placer.messages.placements import placement_json

    return {
        "placement": placement_json(found.placement),
        "gangs": [{"gang": x.gang, "moves": moves_json(x.moves)} for x in found.gangs],
        "moved": found.moved,
        **({"plannedAt": rfc3339(found.planned_at.ToNanoseconds())} if found.HasField("planned_at") else {}),
    }
