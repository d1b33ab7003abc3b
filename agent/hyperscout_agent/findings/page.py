"""What the agent itself says of its probes, for who asks on the node why nothing is known of it.

The collector holds the same, but a node in trouble may be one that reaches no collector.
"""

import json
from collections import Counter
from collections.abc import Mapping

from hyperscout.v1.finding_pb2 import Outcome

from hyperscout_agent.findings.scheduler import ProbeStats
from hyperscout_agent.findings.store import FindingStore

MAX_LISTED = 200  # of subjects that gave no data; the rest is only counted


def findings_page(store: FindingStore, probes: Mapping[str, ProbeStats], *, connected: bool) -> bytes:
    """JSON: per probe its last look and how many subjects gave what; and why some gave nothing."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in probes}
    listed: list[dict[str, str]] = []
    for finding in store.newest():
        outcome = Outcome.Name(finding.outcome).removeprefix("OUTCOME_").lower()
        counts.setdefault(finding.key.probe, Counter())[outcome] += 1
        if outcome != "data" and len(listed) < MAX_LISTED:
            listed.append(
                {
                    "probe": finding.key.probe,
                    "subject": finding.key.subject,
                    "outcome": outcome,
                    "reason": finding.reason,
                }
            )
    page = {
        "reporter": store.node,
        "connected": connected,
        "probes": {
            name: {"success": probes[name].success if name in probes else None, **counts[name]}
            for name in counts
        },
        "withoutData": listed,
    }
    return json.dumps(page).encode() + b"\n"
