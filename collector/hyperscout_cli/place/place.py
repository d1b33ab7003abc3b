"""`hyperscout place`: nodes and ranks for a gang, from saved files or from a running collector."""

from typing import TYPE_CHECKING

import click
from hyperscout_formats.text.counts import count

from hyperscout_cli.place.gang_flags import Gang
from hyperscout_cli.place.gang_options import capacity_option, gang_options, nodes_option
from hyperscout_cli.place.placement_files import Files
from hyperscout_cli.shared.command import SeveralCommand
from hyperscout_cli.shared.errors import NO
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
from hyperscout_cli.shared.output import emit, emit_data, note
from hyperscout_cli.shared.times import Duration
from hyperscout_cli.shared.writers import unnamed_option

if TYPE_CHECKING:
    from hyperscout.v1 import placement_pb2 as pb

    from hyperscout_cli.place.placing import Placer

EXPLAINED = 10  # candidates


@click.command(
    cls=SeveralCommand,
    short_help="Choose nodes for a gang of workers.",
    epilog="""\b
Examples:
  hyperscout place --topology fabric.json --workers 64
  hyperscout infer --ibnetdiscover fabric.txt -o json | hyperscout place --topology - --workers 64
  hyperscout place --workers 128 --gpus-per-worker 8 --highest-tier-allowed pod
  hyperscout place --workers 128 --group-size 64 --group-tier pod --group-size 8 --group-tier leaf
  hyperscout place --workers 16 --spread 8:leaf --group-size 8 --group-tier leaf --prefer-spread 1:node:8
  hyperscout place --topology fabric.json --capacity free.json --request job.json -o json
  hyperscout place --workers 64 --gang train-7 --reserve --expires 30m
  hyperscout place --workers 64 --clusters any   in one of several clusters
  sbatch -w "$(hyperscout place --workers 64 -o hostlist)" job.sh

\b
A tier is a number or a name (`hyperscout tree` shows both). --capacity is {"node": free workers}, or
{"node": {"nvidia.com/gpu": 8, "cpu": "500m"}}; without it every node of a saved topology takes one
worker, or its GPUs / --gpus-per-worker where `infer --nvlink` saw GPUs.

\b
Exit codes: 0 placed, 1 failure, 2 wrong usage or input, 3 there is no placement.""",
)
@gang_options
@capacity_option
@nodes_option
@click.option("--explain", is_flag=True, help="Also show the candidates, and why each was not chosen.")
@click.option("--gang", "name", metavar="NAME", help="Name of the gang, for --reserve.")
@click.option("--reserve", is_flag=True, help="Reserve the nodes at the collector.")
@click.option(
    "--expires",
    "expires_s",
    type=Duration(0.001, 3650 * 86_400),
    help="Duration of the reservation (90s, 30m, 2h, 1d); default: until it is released.",
)
@output_option("name", "hostlist")
@topology_options
@unnamed_option
def place(
    *,
    unnamed: bool,
    gang: Gang,
    capacity: str | None,
    nodes: str | None,
    explain: bool,
    name: str | None,
    reserve: bool,
    expires_s: float | None,
    output: str,
    topology: str | None,
    collector: Endpoint,
) -> int:
    """Choose nodes for a gang of workers, and the order of ranks.

    Without --min-workers the gang is placed whole or not at all: in the lowest tier that can contain it, by
    default on as few domains and nodes as possible. A collector knows the free capacity; with --topology the
    command reads only files.

    `-o hostlist` prints the nodes in the order of their ranks, each once, in Slurm's form:
    gpu-[0001-0016,0020]. Slurm orders the tasks of `-w` itself, unless --distribution=arbitrary is given.
    """
    from hyperscout_cli.place.placing import check_sources, placer

    files = Files(topology, capacity, nodes)

    if (name is not None or reserve) and topology is not None:
        raise click.UsageError("--gang and --reserve need a collector: a file has no reservations")
    if expires_s is not None and not reserve:
        raise click.UsageError("--expires needs --reserve: a dry run reserves nothing")
    check_sources(gang, files, unnamed=unnamed)
    message = gang.message()
    message.gang = _name(name, message.gang)
    if reserve and not message.gang:
        raise click.UsageError("--reserve needs --gang NAME: the name releases the reservation")
    message.dry_run = not reserve
    if name is not None and not reserve:
        note(f"dry run: nothing is reserved: --reserve reserves the nodes for {name!r}")
    if expires_s is not None:
        message.expires_in.FromMilliseconds(round(expires_s * 1000))
    with placer(gang, files=files, collector=collector, unnamed=unnamed) as asked:
        return _answer(asked, message, explain=explain, output=output)


def _name(flag: str | None, in_file: str) -> str:
    if flag is not None and in_file and flag != in_file:
        raise click.UsageError(f"--gang {flag}: the request has the name {in_file!r}: give the same name")
    return flag or in_file


def _what_differs(placement: "pb.Placement") -> str:
    """How an answer differs from the request, for outputs with nothing but nodes; "" = it does not."""
    number = len(placement.assignments)
    is_less = placement.placed and any(part.count < part.max_count for part in placement.elastic)
    few = f"{count(number, 'worker')} placed, fewer than the maximum" if is_less else ""
    return "; ".join(filter(None, (few, placement.reason)))


def _answer(asked: "Placer", message: "pb.PlaceRequest", *, explain: bool, output: str) -> int:
    from hyperscout_placer.messages.placements import placement_json

    # Explain before the nodes are reserved: reserved nodes are no candidates.
    found = asked.explain(message, EXPLAINED) if explain else None
    placement = asked.place(message) if found is None or not message.dry_run else found.placement
    if output in ("name", "hostlist") and (why := _what_differs(placement)):
        note(why)
    if output == "name":
        emit(f"node/{node}\n" for node in dict.fromkeys(x.node for x in placement.assignments))
    elif output == "hostlist":
        from hyperscout_cli.place.placement_text import host_list

        if placement.placed:
            emit([host_list(x.node for x in placement.assignments) + "\n"])
    elif output != "table":
        data = placement_json(placement)
        if found is not None:
            from hyperscout_placer.messages.placements import explanation_json

            data["explanation"] = explanation_json(found)
        emit_data(data, output)
    else:
        from hyperscout_cli.place.placement_text import explanation_text, placement_text

        if placement.placed:
            emit(placement_text(placement, asked.topology(), message))
        else:
            note(placement.reason)
        if found is not None:
            emit(["\n"] * placement.placed)
            emit(explanation_text(found))
    return 0 if placement.placed else NO
