"""Results of measurements on request, which survive a restart of their agent: no agent would repeat them.

The newest `MAX_KEPT` of a node are kept, and fewer where other findings of its agent need the space. An agent
reports its whole state, and must not be refused because of results of an earlier agent of its name.
"""

from collections.abc import Iterable

from hyperscout_formats.facts.facts import NcclRun

from hyperscout_collector.evidence.rows import Key, Row

KEPT_PROBES = frozenset({"nccl"})
# A node has a result for each peer, and one for runs within the node. Runs in a window use one pair of each
# domain, so a node reaches this only by runs on request.
MAX_KEPT = 64


def is_result(key: Key, rows: Iterable[Row]) -> bool:
    """Whether the rows of a key contain a result. A run without one leaves nothing to keep."""
    return key.probe in KEPT_PROBES and any(isinstance(row.fact, NcclRun) for row in rows)
