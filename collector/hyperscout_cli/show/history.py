"""`hyperscout history`: shows what changed, when and why."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import click
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.events import KINDS, ends_in

from hyperscout_cli.remote.live_names import names
from hyperscout_cli.remote.source import check_cluster
from hyperscout_cli.shared.command import Command, WholeNumber
from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.options import Endpoint, collector_options, output_option
from hyperscout_cli.shared.output import note
from hyperscout_cli.shared.table_view import View, view_options
from hyperscout_cli.shared.tables import show
from hyperscout_cli.shared.times import time_option
from hyperscout_cli.show.history_text import (
    EVENT_HEADINGS,
    EVENT_MORE,
    event_row,
    event_table,
    flap_table,
)

_PAGE = 1000  # the server's maximum

if TYPE_CHECKING:
    from hyperscout.v1.topology_pb2 import FlapCount, HistoryEvent, ListHistoryRequest, ListHistoryResponse
    from hyperscout_topology.topology import Topology

    from hyperscout_cli.remote.client import Collector


class _Kind(click.Choice[str]):
    """A kind of event, in any case. The error lists the kinds as the history writes them."""

    def get_invalid_choice_message(self, value: str, ctx: click.Context | None) -> str:
        return f"unknown kind {value!r}: expected one of {', '.join(sorted(self.choices))}"


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
  hyperscout history -l hypernode=leaf-03-1f2e --sort-by kind
  hyperscout history --since 1d --flaps              repeated changes, most often first
  hyperscout history --since 1d --net                only the net difference
  hyperscout history --cluster east                  of one of several clusters""",
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
    type=_Kind(KINDS, case_sensitive=False),
    help=f"Only events of this kind, in any case; may be repeated. One of {', '.join(sorted(KINDS))}.",
)
@click.option(
    "--cluster",
    metavar="NAME",
    help="Only changes of nodes of this one of several clusters, and of domains that contain them; "
    '"" = the collector\'s own cluster.',
)
@click.option("--net", is_flag=True, help="Only the net difference within the time range.")
@click.option("--flaps", is_flag=True, help="Show what changed more than twice, in place of events.")
@click.option(
    "--limit",
    metavar="N",
    type=WholeNumber(min=0),
    default=100,
    show_default=True,
    help="Maximum number of events, the newest first; 0 = all.",
)
@output_option("wide")
@view_options(lambda _: EVENT_HEADINGS + EVENT_MORE)
@collector_options
def history(
    *,
    about: str,
    since_ns: int | None,
    until_ns: int | None,
    kinds: Sequence[str],
    net: bool,
    flaps: bool,
    cluster: str | None,
    limit: int,
    view: View,
    output: str,
    collector: Endpoint,
) -> None:
    """Show changes, the newest first: cables, switches, nodes, HyperNodes, anomalies, conditions.

    Each change belongs to a generation, which was published for a cause: changed findings, nodes of the
    cluster, an approval, stale evidence, or a collector that did not run.

    A name that is neither in the history nor in the published topology is an error (exit code 1). The keys of
    --selector are the columns of the table, in any case, also those of -o wide. --limit counts what it
    selects.
    """
    from hyperscout_cli.remote.client import Collector

    if net and flaps:
        raise click.UsageError("--net and --flaps contradict each other: give one of them")
    request = asked(about=about, since_ns=since_ns, until_ns=until_ns, kinds=kinds, net=net)
    with Collector(collector) as connection:
        pages = connection.history(request)
        first = next(pages)
        reach(first, since_ns)
        if about and not first.events and not first.flaps and not is_known(connection, about):
            raise CliError(
                f"nothing is recorded about {about!r}: expected a node, HyperNode, switch or link as "
                "`hyperscout get nodes`, `get hypernodes`, `get switches` and `get links` list them, or a "
                "port as messages write it (leaf-1/p4)"
            )
        of_cluster = None if cluster is None else changes_in(connection.topology(links=False), cluster)
        if not flaps:
            rows = filter(
                view.keeps(event_table(())), map(event_row, filter(of_cluster, _events(first, pages)))
            )
            found = list(islice(rows, limit + 1 if limit else None))
    subject = f" about {about!r}" if about else ""
    if flaps:
        empty = f"nothing changed more than twice{subject}"
        table = flap_table(filter(of_cluster, first.flaps), time.time_ns())
        show(view.of(table), output, empty, heading=view.heading)
        return
    table = view.sorted(event_table(found[: limit or None]))
    show(table, output, f"nothing changed{subject}", heading=view.heading)
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


def changes_in(topology: "Topology", cluster: str) -> "Callable[[HistoryEvent | FlapCount], bool]":
    """A predicate: a change is about a node of the cluster, or about a domain that contains one.

    `topology`: the published one. Raises CliError for a cluster without nodes.
    """
    from hyperscout_publish.clusters.about import change_about

    check_cluster(topology, cluster)
    return change_about(topology, cluster)


def reach(answer: "ListHistoryResponse", since_ns: int | None) -> None:
    """Print a note if the history begins later."""
    if since_ns is not None and answer.HasField("oldest") and since_ns < answer.oldest.ToNanoseconds():
        note(f"the history begins at {rfc3339(answer.oldest.ToNanoseconds())}")


def is_known(connection: "Collector", about: str) -> bool:
    """Whether the history has any event about a name, or the published topology contains it."""
    if next(connection.history(asked(about=about, since_ns=None))).events:
        return True
    return _names(connection.topology()).issuperset(ends_in(about))


def _names(topology: "Topology") -> set[str]:
    """Names of nodes, HyperNodes, switches and ends of links, as the history writes them."""
    from hyperscout_topology.topology import Endpoint, say

    names = {x.id: x.name for x in topology.switches} | {x.id: x.node for x in topology.adapters}
    found = {*names, *names.values(), *topology.nodes_without_evidence}
    for hypernode in topology.hypernodes:
        found |= {hypernode.name, *hypernode.nodes}
    for link in topology.links:
        for device, port in ((link.a_device, link.a_port), (link.b_device, link.b_port)):
            own = device, names.get(device, device)
            found |= {f"{device}:{port}", *(say(Endpoint(device, name, port)) for name in own)}
    return found


def _events(
    first: "ListHistoryResponse", others: "Iterator[ListHistoryResponse]"
) -> "Iterator[HistoryEvent]":
    yield from first.events
    for page in others:
        yield from page.events
