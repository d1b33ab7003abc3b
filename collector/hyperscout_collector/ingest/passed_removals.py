"""The findings that the leader lets another replica remove, which has the agent's stream, as a message.

Their times differ between the replicas' clocks, so a row is named by its rank and by the time of its finding.
"""

import json
from collections.abc import Collection, Mapping

from hyperscout_collector.evidence.rows import Key, Row
from hyperscout_collector.evidence.state import EvidenceState


def encoded(rows: Mapping[Key, Collection[Row]]) -> bytes:
    """Encode rows of one node."""
    found = [
        (key.probe, key.subject, [(row.rank, row.observed_ns) for row in known])
        for key, known in rows.items()
    ]
    return json.dumps(found).encode()


def decoded(node: str, body: bytes, state: EvidenceState) -> dict[Key, list[Row]]:
    """Returns those of the rows that `state` has."""
    found: dict[Key, list[Row]] = {}
    for probe, subject, names in json.loads(body):
        key = Key(node, probe, subject)
        if rows := [row for row in state.rows_of_key(key) if [row.rank, row.observed_ns] in names]:
            found[key] = rows
    return found
