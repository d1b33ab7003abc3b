"""`hyperscout history`: shows what changed, when and why."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import click
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.events import KINDS

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import note
from hyperscout_cli.shared.tables import show
from hyperscout_cli.shared.times import time_option
from hyperscout_cli.show.history_text import event_table, flap_table

_PAGE = 1000  # the server's maximum

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import HistoryEvent, ListHistoryRequest, ListHistoryResponse


@click.command(
    cls=Command,
    epilog="""\b
Examples:
  hyperscout history                                 the newest changes
  hyperscout history --since 2h -o wide              with generation and cause
  hyperscout history gpu-01 --since 1d               of a node
  hyperscout history leaf-03/p17                     of a cable, by one of its ends
  hyperscout history 'leaf-03/p17 -- spine-01/p3'    of a cable, by both ends
  hyperscout history --kind ConditionChanged         only changes of conditions
  hyperscout history --since 1d --flaps              repeated changes, most often first
  hyperscout history --since 1d --net                only the net difference""",
)
@click.argument(
    "about",
    metavar="[NODE|HYPERNODE|SWITCH|LINK]",
    default="",
    shell_complete=names("nodes", "hypernodes", "switches"),
)
@time_option("--since", "Start of the time range")
@time_option("--until", "End of the time range")
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    type=click.Choice(KINDS, case_sensitive=False),
    help=f"Only events of this kind; may be repeated. One of {', '.join(sorted(KINDS))}.",
)
@click.option("--net", is_flag=True, help="Only the net difference within the time range.")
@click.option("--flaps", is_flag=True, help="Show what changed more than twice, in place of events.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Maximum number of events, the newest first; 0 = all.",
)
@output_option("wide")
@collector_options
def history(
    *,
    about: str,
    since_ns: int | None,
    until_ns: int | None,
    kinds: Sequence[str],
    net: bool,
    flaps: bool,
    limit: int,
    output: str,
    collector: Endpoint,
) -> None:
    """Show changes, the newest first: cables, switches, nodes, HyperNodes, anomalies, conditions.

    Each change belongs to a generation, which was published for a cause: changed findings, nodes of the
    cluster, an approval, stale evidence, or a collector that did not run.
    """
    from hyperscout_cli.remote.client import Collector

    if net and flaps:
        raise click.UsageError("--net and --flaps contradict each other: give one of them")
    request = asked(about=about, since_ns=since_ns, until_ns=until_ns, kinds=kinds, net=net)
    with Collector(collector) as connection:
        pages = connection.history(request)
        first = next(pages)
        reach(first, since_ns)
        if flaps:
            show(flap_table(first.flaps, time.time_ns()), output)
            return
        found = list(islice(_events(first, pages), limit + 1 if limit else None))
    empty = f"nothing changed{f' about {about!r}' if about else ''}"
    show(event_table(found[: limit or None]), output, empty)
    if limit and len(found) > limit:
        note("there are older events: --limit 0 shows all, --since selects by time")


def asked(
    *,
    since_ns: int | None,
    until_ns: int | None = None,
    about: str = "",
    kinds: Sequence[str] = (),
    net: bool = False,
) -> "ListHistoryRequest":
    """The request; times are Unix ns, None = unlimited."""
    from hyperscout.v1.topology_pb2 import ListHistoryRequest
    from hyperscout_topology.proto import timestamp

    return ListHistoryRequest(
        about=about,
        kinds=kinds,
        net=net,
        page_size=_PAGE,
        since=timestamp(since_ns) if since_ns is not None else None,
        until=timestamp(until_ns) if until_ns is not None else None,
    )


def reach(answer: "ListHistoryResponse", since_ns: int | None) -> None:
    """Print a note if the history begins later."""
    if since_ns is not None and answer.HasField("oldest") and since_ns < answer.oldest.ToNanoseconds():
        note(f"the history begins at {rfc3339(answer.oldest.ToNanoseconds())}")


def _events(
    first: "ListHistoryResponse", others: "Iterator[ListHistoryResponse]"
) -> "Iterator[HistoryEvent]":
    yield from first.events
    for page in others:
        yield from page.events
