"""One finding as the collector keeps it, and which of two findings is the newer one.

Clocks. `observed_at` is the agent's clock, and that clock may be an hour off, or may be set while the
agent runs. A batch says when it was sent by the same clock, so `offset_ns` = sent - received is how far
that clock was from ours (plus the way here, milliseconds), and `seen_ns` = observed - offset is when the
thing was seen by *our* clock. Ages come from `seen_ns` alone: a wrong clock makes nothing old or young.

- Two findings under the same offset came from one clock: their own times decide, exactly.
- Under different offsets (the clock was set, the agent moved) the times by our clock decide.
- Nothing is seen after it was sent: a finding from its own agent's future counts as seen when it was
  sent. So it never blocks the ones that come after it.
- What was received after "now" is from before *our* clock was set back: whatever comes in is newer.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hyperscout.v1.finding_pb2 import Finding, Outcome
from hyperscout_formats.facts.facts import (
    Gpu,
    InfinibandPort,
    LatencyPort,
    LldpPort,
    NcclRun,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.facts.wire import (
    infiniband_from_proto,
    lldp_from_proto,
    switch_port_from_proto,
    switch_table_from_proto,
)
from hyperscout_formats.facts.wire_measured import (
    gpu_from_proto,
    latency_from_proto,
    nccl_from_proto,
)

# A look that failed, or saw only a part, never takes the place of a better one (see `Row.rank`).
FAILED, PARTIAL, WHOLE = 0, 1, 2

# Offsets this close are one clock: more than the way of a batch here varies, less than a clock is set by.
SAME_CLOCK_NS = 2_000_000_000

MAX_NAME_CHARS = 253  # of a node (RFC 1123), a probe or a subject
MAX_REASON_CHARS = 1024
MAX_TIME_NS = 1 << 62  # the year 2116: the store's numbers have 64 bits, for differences too

OUTCOME_WORDS: Mapping[int, str] = {
    Outcome.OUTCOME_DATA: "data",
    Outcome.OUTCOME_NOTHING: "nothing",
    Outcome.OUTCOME_FAILED: "failed",
}


class Key(NamedTuple):
    """Identity of a finding."""

    node: str
    probe: str
    subject: str


@dataclass(frozen=True, slots=True)
class SweepFact:
    """A sweep, or what a manager shows, as its finding tells it; the text is kept apart, by its digest.

    `format`: of the text, the name of the probe that brings it.
    """

    device: str
    port: int
    port_guid: int
    sha256: bytes
    size_bytes: int
    partial: bool
    partial_reason: str
    lease_id: str
    format: str = "ibnetdiscover"


Fact = LldpPort | InfinibandPort | SweepFact | Gpu | LatencyPort | NcclRun | SwitchPort | SwitchTable


@dataclass(frozen=True, slots=True)
class Row:
    """One finding without its encoded form (which only the store holds). Times are Unix ns.

    `observed_ns` is the agent's clock, `received_ns` ours, `offset_ns` the first minus the second.
    `fact` is None where there is nothing to infer from (a failure, a payload of a newer agent).
    """

    key: Key
    rank: int
    observed_ns: int
    offset_ns: int
    received_ns: int
    outcome: int
    reason: str
    fact: Fact | None

    @property
    def seen_ns(self) -> int:
        """When it was seen, by our clock."""
        return self.observed_ns - self.offset_ns

    @property
    def sha256(self) -> bytes | None:
        """The text that it names."""
        return self.fact.sha256 if isinstance(self.fact, SweepFact) and self.fact.sha256 else None

    def same_sight(self, other: "Row") -> bool:
        """Whether two looks of one key differ in nothing but their times."""
        return self.outcome == other.outcome and self.reason == other.reason and self.fact == other.fact


class BadFinding(ValueError):  # noqa: N818 - names what is refused
    """A finding that no agent of ours sends; says what is wrong with it."""


def row_of(finding: Finding, *, sent_ns: int, received_ns: int, looks: Iterable[Row] = ()) -> Row:
    """Read one finding. `sent_ns`: the agent's clock when it sent it; `looks`: what is known of its key.
    Raises BadFinding."""
    key = Key(finding.key.node, finding.key.probe, finding.key.subject)
    for name, text in zip(Key._fields, key, strict=True):
        if not 0 < len(text) <= MAX_NAME_CHARS:
            raise BadFinding(f"{name} of {len(text)} characters; 1 to {MAX_NAME_CHARS} are taken")
    if finding.outcome not in OUTCOME_WORDS:
        raise BadFinding(f"outcome {finding.outcome}: neither data, nothing there nor failed")
    if len(finding.reason) > MAX_REASON_CHARS:
        raise BadFinding(f"reason of {len(finding.reason)} characters; up to {MAX_REASON_CHARS} are taken")
    if not finding.HasField("observed_at"):
        raise BadFinding("no observed_at")
    try:
        observed_ns = finding.observed_at.ToNanoseconds()
    except ValueError as error:
        raise BadFinding(f"observed_at: {error}") from error
    if abs(observed_ns) >= MAX_TIME_NS:
        raise BadFinding("observed_at is not a time of this age")
    return Row(
        key,
        _rank(finding),
        min(observed_ns, sent_ns),
        sent_ns - received_ns,
        received_ns,
        int(finding.outcome),
        finding.reason,
        _fact(finding, next((x.fact for x in looks if isinstance(x.fact, LatencyPort)), None)),
    )


def stored_row(finding: Finding, rank: int, observed_ns: int, offset_ns: int, received_ns: int) -> Row:
    """The row of a finding that was stored with these columns."""
    key = Key(finding.key.node, finding.key.probe, finding.key.subject)
    return Row(
        key, rank, observed_ns, offset_ns, received_ns, int(finding.outcome), finding.reason, _fact(finding)
    )


def newer(row: Row, than: Row, now_ns: int) -> bool:
    """Whether `row`, which has just come in, was seen after `than`. The same sight sent again is not newer.

    Of two sights with one time the later arrival is taken: a stream keeps its order.
    """
    if row.observed_ns == than.observed_ns and row.same_sight(than):
        return False
    if than.received_ns > now_ns:
        return True
    if abs(row.offset_ns - than.offset_ns) <= SAME_CLOCK_NS:
        return row.observed_ns >= than.observed_ns
    return row.seen_ns >= than.seen_ns


def merged(looks: tuple[Row, ...], row: Row, now_ns: int) -> tuple[Row, ...]:
    """The looks of a key, best rank first, after `row` came in; the same object when it changes nothing.

    Kept is up to one look of each rank: a failed or partial one only beside the better one before it.
    """
    if any(look.rank >= row.rank and not newer(row, look, now_ns) for look in looks):
        return looks
    kept = [look for look in looks if look.rank > row.rank or not newer(row, look, now_ns)]
    return tuple(sorted((*kept, row), key=lambda look: -look.rank))


def _rank(finding: Finding) -> int:
    if finding.outcome == Outcome.OUTCOME_FAILED:
        return FAILED
    return PARTIAL if finding.HasField("sweep") and finding.sweep.partial else WHOLE


def _fact(finding: Finding, before: LatencyPort | None = None) -> Fact | None:
    if finding.outcome == Outcome.OUTCOME_FAILED:
        return None
    match finding.WhichOneof("payload"):
        case "lldp":
            return lldp_from_proto(finding.lldp)
        case "switch_port":
            return switch_port_from_proto(finding.switch_port)
        case "switch_table":
            if len({port.chassis_id for port in finding.switch_table.ports}) > 1:
                raise BadFinding("a table of several switches: all its ports must have one chassis id")
            return switch_table_from_proto(finding.switch_table)
        case "infiniband":
            return infiniband_from_proto(finding.infiniband)
        case "sweep":
            sweep = finding.sweep
            if len(sweep.sha256) != 32:
                raise BadFinding(f"a sweep's SHA-256 of {len(sweep.sha256)} bytes")
            return SweepFact(
                sweep.device,
                sweep.port,
                sweep.port_guid,
                sweep.sha256,
                sweep.size_bytes,
                sweep.partial,
                sweep.partial_reason,
                sweep.lease_id,
                sweep.format or "ibnetdiscover",
            )
        case "gpu":
            return gpu_from_proto(finding.gpu)
        case "latency" | "nccl" as measured:
            try:
                if measured == "latency":
                    return latency_from_proto(finding.latency, before)
                return nccl_from_proto(finding.nccl)
            except ValueError as error:
                raise BadFinding(f"{measured}: {error}") from error
    return None
