"""Decides for each finding whether it is accepted or refused, and why.

Agents' streams and devices' messages both pass through this module. The callers report refusals to the sender
and decide when a finding counts as stored.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from hyperscout.v1.discovery_pb2 import FindingBatch, Unchanged
from hyperscout.v1.finding_pb2 import Finding, FindingKey
from hyperscout_formats.facts.clean_message import clean
from hyperscout_formats.text.reporters import (
    DEVICE_PROBE,
    FABRIC_PROBES,
    SWITCH_PROBE,
    is_fabric,
    is_switch,
)

from hyperscout_collector.evidence.committer import Refused
from hyperscout_collector.evidence.limits import decoded_bytes
from hyperscout_collector.evidence.rows import (
    MAX_NAME_CHARS,
    MAX_TIME_NS,
    WHOLE,
    BadFinding,
    Key,
    Row,
    newer,
    row_of,
)
from hyperscout_collector.evidence.state import COUNTING_PROBE, DEVICES_PROBE, LEASED_PROBES, EvidenceState
from hyperscout_collector.ingest.refusals import LineLimit
from hyperscout_collector.ingest.streams import IngestCounters

_log = logging.getLogger(__name__)

MAX_BATCH_BYTES = 1024 * 1024
# An agent sends 2000 keys in a batch, with up to three findings each: whole, partial and failed.
MAX_BATCH_FINDINGS = 8192  # and unchanged ones and removed keys
MAX_BATCH_MEMORY = 32 * 1024 * 1024  # bytes, see `limits.decoded_bytes`; a batch of an agent takes 12 MiB
# Decoded bytes that are checked at once: 5 to 20 ms.
_SLICE_BYTES = 256 * 1024
_REFUSED_BYTES = 1024  # what a refused finding counts, which takes no memory
_RENEWED_BYTES = 512  # what a finding with new times alone counts
_SLICE_UNCHANGED = 1000  # unchanged findings that are checked at once: 10 ms
_MAX_TEXT_CHARS = 100
_NEVER_UNCHANGED = LEASED_PROBES | {DEVICE_PROBE}
_DEVICE_PAYLOADS = (None, "lldp", "infiniband")


class SweepGate(Protocol):
    """Decides which agents may report sweeps of a whole fabric."""

    def may_sweep(self, node: str) -> bool:
        """Whether the node has a lease for any fabric."""

    def refuse_sweep(self, node: str, lease_id: str, port_guid: int | None) -> str | None:
        """Returns why a fabric finding of this node under this lease is refused; None = it is accepted.

        `port_guid`: of the port that a whole sweep started from; None for other findings.
        """

    def holds(self, node: str, lease_id: str) -> bool:
        """Whether the node has this lease."""

    def unreadable(self, node: str, lease_id: str, reason: str) -> None:
        """Called when the text of a sweep cannot be read."""


@dataclass(slots=True)
class CheckedBatch:
    """The result of checking a batch. `rows`: accepted findings, with their encoded form. `renewed`: stored
    findings with new times.

    `not_held`: findings that the batch names as unchanged, and that are not stored as the reporter assumes.
    `named`: keys of all findings that belong to the reporter, accepted or not. `offset_ns`: the reporter's
    clock minus the collector's. `memory_bytes`: of the accepted findings.
    """

    offset_ns: int
    rows: list[tuple[Row, bytes]] = field(default_factory=list)
    renewed: list[Row] = field(default_factory=list)
    removed: list[Key] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    named: set[Key] = field(default_factory=set)
    not_held: list[Key] = field(default_factory=list)
    memory_bytes: int = 0


@dataclass(slots=True)
class Intake:
    """Checks the findings of one reporter. `is_device`: the reporter is a device that sends messages, with
    the limits of a device."""

    reporter: str
    state: EvidenceState
    gate: SweepGate
    counters: IngestCounters
    lines: LineLimit
    is_device: bool = False

    async def check(self, batch: FindingBatch, now_ns: int) -> CheckedBatch:
        """Check a batch, and let other work run after each slice of it. Stores nothing.

        `now_ns`: arrival time by the collector's clock, Unix ns.
        """
        self.counters.batches += 1
        self.counters.findings += len(batch.findings) + len(batch.unchanged)
        self.counters.unchanged += len(batch.unchanged)
        sent_ns = _sent_ns(batch, now_ns)
        checked = CheckedBatch(sent_ns - now_ns)
        slice_bytes = 0
        for finding in batch.findings:
            before = checked.memory_bytes
            self._check_finding(finding, sent_ns, now_ns, checked)
            slice_bytes += _REFUSED_BYTES + checked.memory_bytes - before
            if slice_bytes > _SLICE_BYTES:
                slice_bytes = 0
                await asyncio.sleep(0)
        for first in range(0, len(batch.unchanged), _SLICE_UNCHANGED):
            if first:
                await asyncio.sleep(0)
            self._check_unchanged(batch.unchanged[first : first + _SLICE_UNCHANGED], sent_ns, now_ns, checked)
        for key in batch.removed:
            if self._is_own(Finding(key=key), checked):
                checked.removed.append(_key(key))
        return checked

    def _check_finding(self, finding: Finding, sent_ns: int, now_ns: int, checked: CheckedBatch) -> None:
        if not self._is_own(finding, checked):
            return
        key = _key(finding.key)
        if max(map(len, key)) <= MAX_NAME_CHARS:
            checked.named.add(key)
        try:
            row = self._row(finding, key, sent_ns, now_ns)
            if checked.memory_bytes + row.memory_bytes > MAX_BATCH_MEMORY:
                raise BadFinding(f"its batch takes more than {MAX_BATCH_MEMORY >> 20} MiB of memory")
        except BadFinding as error:
            checked.refused.append(Refused(key, str(error)))
            return
        # A manager's finding needs no lease: only one agent queries it, and the query does not load the
        # fabric.
        if not is_fabric(key.node) and (key.probe in LEASED_PROBES or finding.HasField("sweep")):
            if any(
                not newer(row, one, now_ns) and row.rank == one.rank for one in self.state.rows_of_key(key)
            ):
                return  # a repetition in the full state: its lease no longer matters
            sweep = finding.sweep if finding.HasField("sweep") else None
            lease_id = sweep.lease_id if sweep else ""
            is_whole = row.rank == WHOLE and key.probe != COUNTING_PROBE
            port_guid = sweep.port_guid if sweep and is_whole else None
            if refusal := self.gate.refuse_sweep(key.node, lease_id, port_guid):
                moved = not self.gate.holds(key.node, lease_id)
                checked.refused.append(Refused(key, refusal, lease_moved=moved))
                return
        checked.rows.append((row, finding.SerializeToString()))
        checked.memory_bytes += row.memory_bytes

    def _check_unchanged(
        self, unchanged: Iterable[Unchanged], sent_ns: int, now_ns: int, checked: CheckedBatch
    ) -> None:
        """Look up findings that are named in place of being sent.

        A sweep is not renewed without its lease, and a finding of a device in the node not by the agent.
        """
        reporter, named, offset_ns = self.reporter, checked.named, sent_ns - now_ns
        for one in unchanged:
            held_ns = one.held_ns
            key = Key(reporter, one.probe, one.subject)
            for row in self.state.rows_of_key(key):
                if row.observed_ns == held_ns:
                    break
            else:
                checked.not_held.append(key)
                continue
            if row.sha256 or key.probe in _NEVER_UNCHANGED or key in named:
                checked.not_held.append(key)
                continue
            named.add(row.key)
            if (observed_ns := min(one.observed_ns, sent_ns)) > held_ns:
                checked.renewed.append(row.renewed(observed_ns, offset_ns, now_ns))
                checked.memory_bytes += _RENEWED_BYTES

    def _row(self, finding: Finding, key: Key, sent_ns: int, now_ns: int) -> Row:
        memory_bytes = decoded_bytes(finding)
        if all(text.isprintable() for text in key):  # otherwise `row_of` refuses it
            clean(finding)
        known = self.state.rows_of_key(key)
        return row_of(finding, sent_ns=sent_ns, received_ns=now_ns, known=known, memory_bytes=memory_bytes)

    def _is_own(self, finding: Finding, checked: CheckedBatch) -> bool:
        if finding.key.node != self.reporter:
            self._refuse(_key(finding.key), "foreign_finding", checked)
        elif reason := _why_foreign(finding, is_device=self.is_device):
            self._refuse(_key(finding.key), "wrong_probe", checked, reason)
        else:
            return True
        return False

    def _refuse(self, key: Key, why: str, checked: CheckedBatch, reason: str = "") -> None:
        """Refuse a finding that is not the reporter's own.

        Count each one, and log it at a limited rate.
        """
        node = self.reporter
        reason = reason or f"not a finding of {node}"
        checked.refused.append(Refused(key, reason))
        if (more := self.lines.more(why, node)) is not None:
            probe, subject, owner = map(_for_the_log, (key.probe, key.subject, key.node))
            _log.warning("refused: %s reports %s %s of %s: %s%s", node, probe, subject, owner, reason, more)
        self.counters.refusals[why] += 1


def newest_held_ns(state: EvidenceState, node: str, instance: int) -> int:
    """Returns when the newest finding of this process of an agent was observed, Unix ns by the agent's clock.

    0 = the evidence is not of this process.
    """
    agent = state.agents.get(node)
    if agent is None or agent.instance != instance:
        return 0
    rows = state.rows_of_node(node)
    return max((row.observed_ns for row in rows if row.key.probe != DEVICE_PROBE), default=0)


def texts_of(rows: Iterable[tuple[Row, bytes]]) -> set[bytes]:
    """Returns the digests of the texts that the rows name."""
    return {row.sha256 for row, _ in rows if row.sha256}


def _why_foreign(finding: Finding, *, is_device: bool = False) -> str:
    """Returns why the finding does not belong to its reporter; "" = it does.

    Both the probe and the payload are checked. The payload decides how a finding is processed, but a finding
    of outcome NOTHING or FAILED has none.
    """
    node, probe, payload = finding.key.node, finding.key.probe, finding.WhichOneof("payload")
    if payload == "sweep" and finding.sweep.format not in ("", probe):
        return f"a text of the format {_for_the_log(finding.sweep.format)} belongs to the probe of that name"
    if payload == "device_resource" and probe != DEVICES_PROBE:
        return f"only the probe `{DEVICES_PROBE}` reports devices of the kubelet"
    if is_switch(node) or probe == SWITCH_PROBE or payload == "switch_port":
        if is_switch(node) and probe == SWITCH_PROBE and payload in (None, "switch_port"):
            return ""
        return f"only a switch reports the probe `{SWITCH_PROBE}`, and a switch reports no other probe"
    if is_fabric(node) or probe in FABRIC_PROBES or payload == "switch_table":
        if is_fabric(node) and probe in FABRIC_PROBES and payload in (None, "switch_table", "sweep"):
            return ""
        probes = ", ".join(f"`{name}`" for name in sorted(FABRIC_PROBES))
        return f"only an agent of role fabric reports the probes {probes}, and it reports no other probe"
    if is_device or probe == DEVICE_PROBE:
        if is_device and probe == DEVICE_PROBE and payload in _DEVICE_PAYLOADS:
            return ""
        return f"only a device in a node reports the probe `{DEVICE_PROBE}`, and it reports no other probe"
    return ""


def _for_the_log(text: str) -> str:
    """Returns an unchecked name, shortened and escaped for a log line.

    The name may be a megabyte long, or contain line breaks.
    """
    return repr(text[:_MAX_TEXT_CHARS])[1:-1]


def _sent_ns(batch: FindingBatch, now_ns: int) -> int:
    """Returns when the batch was sent, by the reporter's clock; `now_ns` if the batch has no valid time."""
    try:
        if batch.HasField("sent_at"):
            sent_ns = batch.sent_at.ToNanoseconds()
        else:
            times = (finding.observed_at.ToNanoseconds() for finding in batch.findings)
            sent_ns = max(times, default=now_ns)
            sent_ns = max(sent_ns, now_ns)
    except ValueError:
        return now_ns
    return sent_ns if abs(sent_ns) < MAX_TIME_NS else now_ns


def _key(key: FindingKey) -> Key:
    return Key(key.node, key.probe, key.subject)
