"""`hyperscout get`: lists objects in tables like kubectl's."""

import time
from collections.abc import Sequence

import click
from hyperscout_runtime.errors import did_you_mean

from hyperscout_cli.remote.live_names import names as live_names
from hyperscout_cli.remote.source import load
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.kinds import (
    ALIASES,
    KINDS,
    TABLES,
    check_found,
    columns_of,
    complete_kind,
    select,
)
from hyperscout_cli.shared.options import Endpoint, cluster_option, output_option, topology_options
from hyperscout_cli.shared.output import emit
from hyperscout_cli.shared.table_view import View, view_options
from hyperscout_cli.shared.tables import show
from hyperscout_cli.shared.times import at_option


@click.command(
    cls=Command,
    epilog="""\b
Kinds (and their short names):
  hypernodes (hn)  nodes (no)  links (ln)  switches (sw)  findings (fi)  anomalies (an)

\b
Examples:
  hyperscout get hypernodes
  hyperscout get hn leaf-03-1f2e -o yaml
  hyperscout get nodes gpu-01 gpu-02 -o wide
  hyperscout get nodes 'gpu-0*'                nodes whose names begin so
  hyperscout get nodes -l leaf=leaf-03-1f2e    those of one leaf
  hyperscout get hn -l 'tier=1,reason' --sort-by nodes
  hyperscout get links gpu-01                  all cables of a node or switch
  hyperscout get links gpu-01 -o dot | dot -Tsvg > gpu-01.svg
  hyperscout get links -o netbox-csv > cables.csv
  hyperscout get anomalies MissingLink -o wide
  hyperscout get hn --at 2026-01-31T14:03:07Z  as they were then
  hyperscout get hn --topology saved.json      offline
  hyperscout get hn -w                         follow changes""",
)
@click.argument("kind", metavar="KIND", shell_complete=complete_kind)
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=live_names())
@output_option("wide", "name", "dot", "netbox-csv")
@view_options(columns_of)
@at_option
@cluster_option
@click.option("-w", "--watch", is_flag=True, help="Follow changes (hypernodes only).")
@topology_options
def get(
    *,
    kind: str,
    names: Sequence[str],
    view: View,
    at_ns: int | None,
    cluster: str | None,
    output: str,
    watch: bool,
    topology: str | None,
    collector: Endpoint,
) -> int:
    """List all objects of a KIND, or those with the given names.

    The names of a link are those of its ends, the names of an anomaly its kind, its ends and its HyperNode,
    the name of a finding is its node. A NAME may be a host list (gpu-[01-16]), or the start of names with *
    after it (put it in quotes, because the shell may expand it).

    The keys of --selector are the columns of the table, in any case, also those of -o wide. Those of nodes
    include the domain of each tier: -l leaf=NAME. A value must match exactly; a list matches by each item.

    `-o json` and `-o yaml` always print a list. Of links only, `-o dot` prints a graph for Graphviz, and `-o
    netbox-csv` the cables for NetBox's bulk import.
    """
    found = KINDS.get(kind.lower())
    if found is None:
        hint = did_you_mean(kind.lower(), KINDS)
        raise click.UsageError(f"no such kind: {kind!r}{hint}; kinds are {', '.join(ALIASES)}")
    if output == "dot" and found != "links":
        raise click.UsageError(f"-o dot draws links, not {found}: `hyperscout tree -o dot` draws all domains")
    if output == "netbox-csv" and found != "links":
        raise click.UsageError(f"-o netbox-csv writes cables, not {found}: use `hyperscout get links`")
    if watch:
        if found != "hypernodes" or topology is not None or at_ns is not None or cluster is not None:
            raise click.UsageError(
                "--watch needs the kind hypernodes and a collector, without --at and --cluster"
            )
        from hyperscout_cli.show.watch import follow

        follow(collector, names=names, output=output, view=view)
    now_ns = time.time_ns()
    if found == "findings":
        if cluster is not None:
            raise click.UsageError("--cluster: findings have the names of all clusters: NAME/*")
        if topology is not None or at_ns is not None:
            raise click.UsageError(
                "findings need a collector, without --topology and --at: only current ones exist"
            )
        from hyperscout_cli.show.findings import findings

        table, missing = findings(collector, names, now_ns)
        every = table
    else:
        links = found in {"links", "nodes", "switches"}
        loaded = load(topology=topology, collector=collector, links=links, at_ns=at_ns, cluster=cluster)
        every = TABLES[found](loaded, now_ns)
        table, missing = select(found, every, names)
    table = view.of(table)
    if output == "dot":
        from hyperscout_cli.shared.dot import dot

        emit(dot(loaded, [row.data for row in table.rows]))
    elif output == "netbox-csv":
        from hyperscout_cli.show.netbox import cables_csv

        emit(cables_csv(loaded, [row.data for row in table.rows]))
    else:
        show(table, output, "" if missing else f"no {found} found", heading=view.heading)
    check_found(found, every, missing)
    return 0
