"""Builds the agent's page /findings: the state of its probes, for diagnosis on the node.

The collector has the same data, but a faulty node may be unable to reach a collector.
"""

import json
from collections import Counter
from collections.abc import Mapping

from hyperscout.v1.finding_pb2 import Outcome

from hyperscout_agent.findings.scheduler import ProbeStats
from hyperscout_agent.findings.store import FindingStore

MAX_LISTED = 200  # listed subjects without data; further ones are only counted


def findings_page(store: FindingStore, probes: Mapping[str, ProbeStats], *, connected: bool) -> bytes:
    """Return JSON with each probe's last result and number of subjects by outcome.

    `withoutData` lists the subjects without data, with the reason.
    """
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
