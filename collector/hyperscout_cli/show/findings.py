"""The table of a collector's findings."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hyperscout.v1 import finding_pb2
from hyperscout_formats.text.host_list import natural_key
from hyperscout_topology import objects

from hyperscout_cli.remote.client import Collector
from hyperscout_cli.shared.kinds import FINDING_HEADINGS, FINDING_MORE
from hyperscout_cli.shared.options import Endpoint, names_in, with_prefixes
from hyperscout_cli.shared.tables import Row, Table, age

if TYPE_CHECKING:
    from hyperscout.v1 import topology_pb2

_MAX_ASKED = 20  # nodes


def findings(collector: Endpoint, nodes: Sequence[str], now_ns: int) -> tuple[Table, list[str]]:
    """Findings of these nodes (of all if none is named), by name; and the nodes without findings.

    Raises CliError, and UsageError for an invalid host list.
    """
    wanted = names_in(nodes)
    several = len(wanted) > _MAX_ASKED or any(name.endswith("*") for name in wanted)
    asked = [] if several else wanted  # of several nodes, one request for all findings
    rows: list[Row] = []
    with Collector(collector) as connection:
        for node in asked or [""]:
            rows += (_row(stored, now_ns) for stored in connection.findings(node))
    found = {row.cells[0] for row in rows}
    wanted = with_prefixes(wanted, found)
    missing = [node for node in wanted if node not in found]
    if wanted and not asked:
        found.intersection_update(wanted)
        rows = [row for row in rows if row.cells[0] in found]
    rows.sort(key=lambda row: tuple(map(natural_key, row.cells[:3])))
    return Table("finding", FINDING_HEADINGS, FINDING_MORE, tuple(rows)), missing


def _row(stored: "topology_pb2.StoredFinding", now_ns: int) -> Row:
    finding = stored.finding
    key = finding.key
    outcome = finding_pb2.Outcome.Name(finding.outcome).removeprefix("OUTCOME_").lower()
    cells = (
        key.node,
        key.probe,
        key.subject,
        outcome,
        age(finding.observed_at.ToNanoseconds(), now_ns),
        "stale" if stored.stale else "",
    )
    return Row(f"{key.node}:{key.probe}:{key.subject}", cells, (finding.reason,), objects.plain(stored))
