"""`hyperscout hostfile`: prints the nodes of a gang for MPI, in the order of ranks.

Open MPI adds up the slots of a node that is on several lines, so its hostfile can only have each node once.
MPICH's Hydra starts ranks line by line, and so does Open MPI with `--map-by seq`.
"""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any

import click
from hyperscout_formats.text.host_list import fold

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command, WholeNumber
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, emit_data

if TYPE_CHECKING:
    from hyperscout.v1 import placement_pb2 as pb

_MAX_SLOTS = 1024
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Host:
    """Consecutive ranks on one node."""

    name: str
    ranks: tuple[int, ...]


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout hostfile train-7 > hosts && mpirun --hostfile hosts ./train
  hyperscout hostfile train-7 --slots 8
  hyperscout hostfile train-7 -o mpich > hosts && mpiexec -f hosts ./train
  hyperscout hostfile train-7 -o plain > hosts && mpirun --hostfile hosts --map-by seq ./train
  hyperscout hostfile ml/MPIJob/bert --role worker""",
)
@click.argument("gang", metavar="GANG", shell_complete=names("gangs"))
@click.option(
    "--slots",
    metavar="N",
    type=WholeNumber(1, _MAX_SLOTS),
    default=1,
    show_default=True,
    help="Slots for each rank, for example the GPUs of a worker.",
)
@click.option("--role", metavar="ROLE", help="Only ranks of this role. [default: all]")
@output_option(words=("openmpi", "mpich", "plain", "json", "yaml"), default="openmpi")
@collector_options
def hostfile(*, gang: str, slots: int, role: str | None, output: str, collector: Endpoint) -> None:
    """Print the nodes of a GANG in the order of its ranks, as a hostfile for MPI.

    `-o openmpi` prints `node slots=N`, `-o mpich` prints `node:N`: a line for consecutive ranks on one node.
    `-o plain` prints a line for each slot.
    """
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        hosts = hosts_of(_placement(connection.placements(), gang), role)
    if not emit_data(_json(gang, hosts, slots), output):
        emit(lines(gang, hosts, slots, output))


def _placement(placements: "Sequence[pb.Placement]", gang: str) -> "pb.Placement":
    """Return the placement of a gang. Raises CliError."""
    from hyperscout_cli.place.placement_text import placements_table
    from hyperscout_cli.shared.kinds import check_found

    for placement in placements:
        if placement.gang == gang:
            return placement
    check_found("placements", placements_table(placements, time.time_ns()), [gang])
    raise CliError(f"no gang is named {gang!r}")


def hosts_of(placement: "pb.Placement", role: str | None = None) -> list[Host]:
    """Return the nodes in the order of ranks. Raises CliError if a rank has no node, or none has the role."""
    gang = placement.gang
    if not placement.assignments:
        raise CliError(f"{gang}: it has no ranks: `hyperscout placements list {gang} -o json` shows why")
    mine = [x for x in placement.assignments if role is None or x.role == role]
    if not mine:
        roles = ", ".join(sorted({x.role for x in placement.assignments}))
        why = " (a role like a+3 is several roles of equal needs, a among them)" if "+" in roles else ""
        raise CliError(f"{gang}: no rank has the role {role!r}: write one of {roles}{why}")
    for rank in mine:
        if not rank.node:
            raise CliError(f"{gang}: rank {rank.rank} has no node yet: try again when it is placed")
        if not _NAME.fullmatch(rank.node):
            raise CliError(
                f"{gang}: node {rank.node!r}: a hostfile takes only letters, digits, '.', '-' and '_' in a "
                f"name, and no '.' or '-' at its start: use `hyperscout placements list {gang} -o json`"
            )
    return [
        Host(node, tuple(x.rank for x in ranks)) for node, ranks in groupby(mine, key=lambda rank: rank.node)
    ]


def lines(gang: str, hosts: Sequence[Host], slots: int, output: str) -> Iterator[str]:
    """Yield the lines of a hostfile. Raises CliError if the format cannot express the order of ranks."""
    if output == "openmpi":
        _check_once(gang, hosts)
    for host in hosts:
        number = len(host.ranks) * slots
        if output == "openmpi":
            yield f"{host.name} slots={number}\n"
        elif output == "mpich":
            yield f"{host.name}:{number}\n"
        else:
            yield from repeat(f"{host.name}\n" * slots, len(host.ranks))


def _check_once(gang: str, hosts: Sequence[Host]) -> None:
    first: dict[str, Host] = {}
    for host in hosts:
        before = first.setdefault(host.name, host)
        if before is not host:
            raise CliError(
                f"{gang}: {host.name} has ranks {_ranks(before)} and {_ranks(host)} but not those between, "
                "and Open MPI starts all ranks of a node together: use -o plain with `mpirun --map-by seq`, "
                "or -o mpich with MPICH"
            )


def _ranks(host: Host) -> str:
    return fold(map(str, host.ranks)).strip("[]")


def _json(gang: str, hosts: Sequence[Host], slots: int) -> dict[str, Any]:
    return {
        "gang": gang,
        "hosts": [
            {"host": host.name, "slots": len(host.ranks) * slots, "ranks": list(host.ranks)} for host in hosts
        ],
    }
