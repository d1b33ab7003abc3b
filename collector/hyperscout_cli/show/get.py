"""`hyperscout get`: lists objects in tables like kubectl's."""

import difflib
import time
from collections.abc import Sequence

import click

from hyperscout_cli.remote.live_names import names as live_names
from hyperscout_cli.remote.source import load
from hyperscout_cli.shared.command import Command
from hyperscout_cli.shared.kinds import ALIASES, KINDS, TABLES, check_found, complete_kind, select
from hyperscout_cli.shared.options import Endpoint, output_option, topology_options
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
  hyperscout get links gpu-01                  all cables of a node or switch
  hyperscout get anomalies MissingLink -o wide
  hyperscout get hn --at 2026-01-31T14:03:07Z  as they were then
  hyperscout get hn --topology saved.json      offline
  hyperscout get hn -w                         follow changes""",
)
@click.argument("kind", metavar="KIND", shell_complete=complete_kind)
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=live_names())
@output_option("wide", "name")
@at_option
@click.option("-w", "--watch", is_flag=True, help="Follow changes (hypernodes only).")
@topology_options
def get(
    *,
    kind: str,
    names: Sequence[str],
    at_ns: int | None,
    output: str,
    watch: bool,
    topology: str | None,
    collector: Endpoint,
) -> int:
    """List all objects of a KIND, or those with the given names.

    The names of a link are those of its ends, the names of an anomaly its kind, its ends and its HyperNode,
    the name of a finding is its node. `-o json` and `-o yaml` always print a list.
    """
    found = KINDS.get(kind.lower())
    if found is None:
        close = difflib.get_close_matches(kind.lower(), KINDS, 1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise click.UsageError(f"no such kind: {kind!r}{hint}; kinds are {', '.join(ALIASES)}")
    if watch:
        if found != "hypernodes" or topology is not None or at_ns is not None:
            raise click.UsageError("--watch needs the kind hypernodes and a collector, without --at")
        from hyperscout_cli.show.watch import follow

        follow(collector, names=names, output=output)
    now_ns = time.time_ns()
    if found == "findings":
        if topology is not None or at_ns is not None:
            raise click.UsageError(
                "findings need a collector, without --topology and --at: only current ones exist"
            )
        from hyperscout_cli.show.findings import findings

        table, missing = findings(collector, names, now_ns)
    else:
        links = found in {"links", "nodes", "switches"}
        loaded = load(topology=topology, collector=collector, links=links, at_ns=at_ns)
        table, missing = select(found, TABLES[found](loaded, now_ns), names)
    show(table, output, "" if missing else f"no {found} found")
    check_found(found, table, missing)
    return 0
