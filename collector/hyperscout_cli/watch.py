"""`hyperscout watch`: the HyperNode table, kept true while you look."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from hyperscout_cli.errors import CliError
from hyperscout_cli.kinds import KINDS, hypernodes, select
from hyperscout_cli.options import Endpoint, collector_options
from hyperscout_cli.output import emit
from hyperscout_cli.picture import Picture
from hyperscout_cli.tables import Row, Table, lines

if TYPE_CHECKING:
    from hyperscout.v1 import topology_pb2

_HOME_AND_CLEAR = "\x1b[H\x1b[2J"


@click.command(
    epilog="""\b
Examples:
  hyperscout watch                     on a terminal: one table that changes in place
  hyperscout watch | tee changes.txt   elsewhere: one line a change
  hyperscout get hn -w leaf-03-1f2e    only this one"""
)
@click.argument("kind", default="hypernodes", required=False)
@collector_options
def watch(*, kind: str, collector: Endpoint) -> None:
    """Follow the HyperNodes as they change, until interrupted."""
    if KINDS.get(kind.lower()) != "hypernodes":
        raise click.UsageError(f"cannot watch {kind!r}: only hypernodes")
    follow(collector)


def follow(collector: Endpoint, *, names: Sequence[str] = (), wide: bool = False) -> NoReturn:
    """Print the table and its changes until the stream ends; raises CliError then."""
    from hyperscout_cli.client import Collector

    with Collector(collector) as connection:
        live = sys.stdout.isatty()
        for text in changes(connection.watch(), time.time_ns, names=names, wide=wide, live=live):
            emit([text])
    raise CliError(f"the collector at {collector.address} ended the stream")


def changes(
    events: "Iterable[topology_pb2.WatchTopologyResponse]",
    clock: Callable[[], int],
    *,
    names: Sequence[str] = (),
    wide: bool = False,
    live: bool = False,
) -> Iterator[str]:
    """Text for each event: the whole table again (`live`), or only rows that are new, changed or gone.

    `clock` gives Unix time in ns.
    """
    picture = Picture()
    printed: dict[str, Row] = {}
    for event in events:
        picture.take(event)
        table, _ = select("hypernodes", hypernodes(picture.topology(), clock()), names)
        rows = {row.name: row for row in table.rows}
        if live:
            yield _HOME_AND_CLEAR + "".join(lines(table, wide=wide))
        else:
            changed = [
                row for name, row in rows.items() if name not in printed or printed[name].data != row.data
            ]
            gone = [_gone(row) for name, row in printed.items() if name not in rows]
            yield "".join(
                lines(
                    Table(table.kind, table.headings, table.more, (*changed, *gone)),
                    wide=wide,
                    heading=not printed,
                )
            )
        printed = rows


def _gone(row: Row) -> Row:
    blank = ("",) * (len(row.cells) - 2)
    return Row(row.name, (row.name, *blank, "removed"), ("",) * len(row.more))
