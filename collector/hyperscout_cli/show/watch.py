"""`hyperscout watch`: shows the HyperNode table and its changes."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import click
from hyperscout_topology.topology import Topology

from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.kinds import KINDS, hypernodes, select
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import emit, one_of_many
from hyperscout_cli.shared.table_view import ALL, View
from hyperscout_cli.shared.tables import Row, Table, lines

if TYPE_CHECKING:
    from hyperscout.v1 import topology_pb2

_HOME_AND_CLEAR = "\x1b[H\x1b[2J"


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout watch                     on a terminal: one table that changes in place
  hyperscout watch | tee changes.txt   elsewhere: one line for each change
  hyperscout watch -o json | jq .hypernodes[].name
  hyperscout get hn -w leaf-03-1f2e    only this one""",
)
@click.argument("kind", default="hypernodes", required=False)
@output_option("wide", "name")
@collector_options
def watch(*, kind: str, output: str, collector: Endpoint) -> None:
    """Follow the HyperNodes as they change, until interrupted.

    `-o json` prints a line for each generation, `-o yaml` a document: changed HyperNodes, as `get` shows
    them, and names of removed ones. `-o name` prints the name of each changed or removed HyperNode.
    """
    if KINDS.get(kind.lower()) != "hypernodes":
        raise click.UsageError(f"cannot watch {kind!r}: watch hypernodes, or repeat `hyperscout get {kind}`")
    follow(collector, output=output)


def follow(
    collector: Endpoint, *, names: Sequence[str] = (), output: str = "table", view: View = ALL
) -> NoReturn:
    """Print the table and its changes until the stream ends; raises CliError then."""
    from hyperscout_cli.remote.client import Collector

    with Collector(collector) as connection:
        if output in {"table", "wide"}:
            live = sys.stdout.isatty()
            wide = output == "wide"
            texts = changes(connection.watch(), time.time_ns, names=names, view=view, wide=wide, live=live)
        else:
            texts = objects_changed(connection.watch(), time.time_ns, output, names=names, view=view)
        for text in texts:
            emit([text])
    raise CliError(f"the collector at {collector.address} ended the stream: run the command again")


def changes(
    events: "Iterable[topology_pb2.WatchTopologyResponse]",
    clock: Callable[[], int],
    *,
    names: Sequence[str] = (),
    view: View = ALL,
    wide: bool = False,
    live: bool = False,
) -> Iterator[str]:
    """The text of each event: the whole table again (`live`), or rows that are new, changed or removed.

    `clock` gives Unix time in ns.
    """
    from hyperscout_topology.proto import after_event

    topology, printed = Topology(0), dict[str, Row]()
    for event in events:
        topology = after_event(topology, event)
        table, _ = select("hypernodes", hypernodes(topology, clock()), names)
        table = view.of(table)
        rows = {row.name: row for row in table.rows}
        if live:
            yield _HOME_AND_CLEAR + "".join(lines(table, wide=wide, heading=view.heading))
        else:
            changed = [
                row for name, row in rows.items() if name not in printed or printed[name].data != row.data
            ]
            gone = [_gone(row) for name, row in printed.items() if name not in rows]
            yield "".join(
                lines(
                    Table(table.kind, table.headings, table.more, (*changed, *gone)),
                    wide=wide,
                    heading=view.heading and not printed,
                )
            )
        printed = rows


def objects_changed(
    events: "Iterable[topology_pb2.WatchTopologyResponse]",
    clock: Callable[[], int],
    output: str,
    *,
    names: Sequence[str],
    view: View,
) -> Iterator[str]:
    """json: a line for each event; yaml: a document; name: a line for each changed or removed HyperNode."""
    from hyperscout_topology.proto import after_event

    topology, before = Topology(0), dict[str, Row]()
    for event in events:
        topology = after_event(topology, event)
        table, _ = select("hypernodes", hypernodes(topology, clock()), names)
        table = view.of(table)
        rows = {row.name: row for row in table.rows}
        changed = [row for name, row in rows.items() if name not in before or before[name].data != row.data]
        removed = [name for name in before if name not in rows]
        before = rows
        if output == "name":
            yield "".join(f"{table.kind}/{name}\n" for name in (*(row.name for row in changed), *removed))
            continue
        data = [row.data for row in changed]
        found = {"generation": topology.generation, "hypernodes": data, "removedHypernodes": removed}
        yield one_of_many(found, output)


def _gone(row: Row) -> Row:
    blank = ("",) * (len(row.cells) - 2)
    return Row(row.name, (row.name, *blank, "removed"), ("",) * len(row.more))
