"""One finding as the collector stores it, and the order of two findings in time.

Clocks. `observed_at` is the agent's clock. That clock may be an hour off, or may be set while the agent runs.
A batch contains its sending time by the same clock. `offset_ns` = sent - received is therefore the difference
between that clock and the collector's (plus the transfer time, milliseconds). `seen_ns` = observed - offset
is the time of the observation by the *collector's* clock. Ages come from `seen_ns` only: a wrong agent clock
makes nothing old or young.

- Two findings with the same offset come from one clock: their own times decide, exactly.
- With different offsets (the clock was set, the agent moved) the times by the collector's clock decide.
- An observation cannot be later than its sending. A finding from the future of its own agent's clock gets
  the sending time, so it never blocks later findings.
- A finding that was received after "now" is from before the *collector's* clock was set back: any new
  finding is newer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from google.protobuf.message import Message
from hyperscout.v1 import finding_pb2
from hyperscout.v1.finding_pb2 import Finding, Outcome
from hyperscout_formats.facts.facts import (
    MAX_DEVICES,
    MAX_NUMA_NODES,
    DeviceResource,
    Gpu,
    InfinibandPort,
    LatencyPort,
    LldpPort,
    NcclRun,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.facts.pci import PciSlot, is_pci_slot
from hyperscout_formats.facts.shared_fields import SharedFields, one_copy, one_number
from hyperscout_formats.facts.wire import (
    device_resource_from_proto,
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

# A failed or partial reading never replaces a better one (see `merged`).
FAILED, PARTIAL, WHOLE = 0, 1, 2

# Offsets this close are one clock: more than the transfer time varies, less than a clock is typically set by.
SAME_CLOCK_NS = 2_000_000_000

MAX_NAME_CHARS = 253  # of a node (RFC 1123), a probe or a subject
MAX_REASON_CHARS = 1024
_SHOWN = 40  # characters of a bad value in a message
MAX_NUMBER = 1e300  # a multiple or sum of such numbers is finite; the limit of topology files too
MAX_TIME_NS = 1 << 62  # the year 2116: the store's integers have 64 bits, for differences too

OUTCOME_WORDS: Mapping[int, str] = {
    Outcome.OUTCOME_DATA: "data",
    Outcome.OUTCOME_NOTHING: "nothing",
    Outcome.OUTCOME_FAILED: "failed",
}

_UNCOUNTED: Mapping[type, Callable[[object], object]] = {
    kind: SharedFields(kind, "counters").values for kind in (SwitchPort, LldpPort, InfinibandPort)
}


class Key(NamedTuple):
    """Identity of a finding."""

    node: str
    probe: str
    subject: str


@dataclass(frozen=True, slots=True)
class SweepFact:
    """A sweep or a manager's data, as its finding describes it. The text is stored separately, by its digest.

    `format`: of the text; the name of the probe that produces it.
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


Fact = (
    LldpPort
    | InfinibandPort
    | SweepFact
    | Gpu
    | LatencyPort
    | NcclRun
    | SwitchPort
    | SwitchTable
    | DeviceResource
)


@dataclass(frozen=True, slots=True)
class Row:
    """One finding without its encoded form, which only the store has. Times are Unix ns.

    `observed_ns` is by the agent's clock, `received_ns` by the collector's, `offset_ns` is the first clock
    minus the second. `fact` is None where there is nothing to infer from (a failure, a payload of a newer
    agent). `memory_bytes`: see `limits.decoded_bytes`.
    """

    key: Key
    rank: int
    observed_ns: int
    offset_ns: int
    received_ns: int
    outcome: int
    reason: str
    fact: Fact | None
    memory_bytes: int = field(default=0, compare=False)

    @property
    def seen_ns(self) -> int:
        """Time of the observation, by the collector's clock."""
        return self.observed_ns - self.offset_ns

    @property
    def sha256(self) -> bytes | None:
        """Digest of the text that the finding names."""
        return self.fact.sha256 if isinstance(self.fact, SweepFact) and self.fact.sha256 else None

    def same_content(self, other: "Row") -> bool:
        """Whether two rows of one key differ in nothing but their times."""
        if self.outcome != other.outcome or self.reason != other.reason:
            return False
        return self.fact is other.fact or self.fact == other.fact  # a renewed row has the same object

    def is_renewal_of(self, other: "Row") -> bool:
        """Whether the row is another one with new times."""
        is_same = self.fact is other.fact and self.memory_bytes == other.memory_bytes
        return is_same and self.rank == other.rank and self.same_content(other)

    def renewed(self, observed_ns: int, offset_ns: int, received_ns: int) -> "Row":
        """Returns the row with new times."""
        times = observed_ns, offset_ns, received_ns
        return Row(self.key, self.rank, *times, self.outcome, self.reason, self.fact, self.memory_bytes)


class BadFinding(ValueError):  # noqa: N818 - names what is refused
    """An invalid finding, which no agent of this project sends. The message names the problem."""


def row_of(
    finding: Finding, *, sent_ns: int, received_ns: int, known: Sequence[Row] = (), memory_bytes: int = 0
) -> Row:
    """Converts one finding. Raises BadFinding.

    `sent_ns`: sending time by the agent's clock. `known`: the stored rows of its key.
    """
    key = next((row.key for row in known), _checked_key(finding))  # one object for all rows of a key
    if not finding.HasField("observed_at"):
        raise BadFinding("observed_at is missing")
    try:
        observed_ns = finding.observed_at.ToNanoseconds()
    except ValueError as error:
        raise BadFinding(f"observed_at: {error}") from error
    if abs(observed_ns) >= MAX_TIME_NS:
        raise BadFinding("observed_at: expected a time before the year 2116")
    fact = _fact(finding, next((x.fact for x in known if isinstance(x.fact, LatencyPort)), None))
    return Row(
        key,
        _rank(finding),
        min(observed_ns, sent_ns),
        one_number(sent_ns - received_ns),  # of all findings of a batch
        received_ns,
        int(finding.outcome),
        finding.reason,
        next((x.fact for x in known if x.fact == fact), fact),  # the one that the tables of evidence have
        memory_bytes,
    )


def stored_row(
    finding: Finding, rank: int, observed_ns: int, offset_ns: int, received_ns: int, memory_bytes: int
) -> Row:
    """Returns the row of a finding that was stored with these columns. Raises BadFinding."""
    key = _checked_key(finding)
    if rank != _rank(finding):
        raise BadFinding(f"rank {rank}: expected {_rank(finding)}")
    if max(map(abs, (observed_ns, offset_ns, observed_ns - offset_ns, received_ns))) >= MAX_TIME_NS:
        raise BadFinding("a time after the year 2116")
    fact, outcome = _fact(finding), int(finding.outcome)
    times = observed_ns, offset_ns, received_ns
    return Row(key, rank, *times, outcome, finding.reason, fact, memory_bytes)


def _checked_key(finding: Finding) -> Key:
    key = Key(*map(one_copy, (finding.key.node, finding.key.probe, finding.key.subject)))
    for name, text in zip(Key._fields, key, strict=True):
        if not 0 < len(text) <= MAX_NAME_CHARS:
            raise BadFinding(f"key.{name} has {len(text)} characters; expected 1 to {MAX_NAME_CHARS}")
        if not text.isprintable():
            raise BadFinding(f"key.{name} contains characters that cannot be printed: {text!a}")
    if finding.outcome not in OUTCOME_WORDS:
        raise BadFinding(
            f"outcome {finding.outcome}: expected OUTCOME_DATA, OUTCOME_NOTHING or OUTCOME_FAILED"
        )
    if len(finding.reason) > MAX_REASON_CHARS:
        raise BadFinding(f"reason has {len(finding.reason)} characters; expected at most {MAX_REASON_CHARS}")
    return key


def only_counted(a: Row, b: Row) -> bool:
    """Whether two rows differ in nothing but times and error counters."""
    return (
        type(a.fact) is type(b.fact)
        and a.outcome == b.outcome
        and a.reason == b.reason
        and _uncounted(a.fact) == _uncounted(b.fact)
    )


def all_alike(before: Sequence[Row], after: Sequence[Row], alike: Callable[[Row, Row], bool]) -> bool:
    """Whether a key has rows of the same ranks as before, and those of each rank are alike."""
    return len(before) == len(after) and all(
        a.rank == b.rank and alike(a, b) for a, b in zip(before, after, strict=True)
    )


def _uncounted(fact: Fact | None) -> object:
    """The values of a fact without error counters, to compare with those of a fact of the same type."""
    match fact:
        case SwitchPort() | LldpPort() | InfinibandPort():
            return _UNCOUNTED[type(fact)](fact)
        case SwitchTable():
            return replace(fact, ports=()), [_UNCOUNTED[SwitchPort](port) for port in fact.ports]
        case Gpu():
            return replace(
                fact,
                links=tuple(
                    replace(link, replay_errors=0, recovery_errors=0, crc_errors=0, ber_exponent=0)
                    for link in fact.links
                ),
            )
    return fact


def newer(row: Row, than: Row, now_ns: int) -> bool:
    """Whether `row`, which has just arrived, was observed after `than`. A repetition of one observation is
    not newer.

    Of two different observations with the same time the later arrival is newer: a stream keeps its order.
    """
    if row.observed_ns == than.observed_ns and row.same_content(than):
        return False
    if than.received_ns > now_ns:
        return True
    if abs(row.offset_ns - than.offset_ns) <= SAME_CLOCK_NS:
        return row.observed_ns >= than.observed_ns
    return row.seen_ns >= than.seen_ns


def merged(known: tuple[Row, ...], row: Row, now_ns: int) -> tuple[Row, ...]:
    """Returns the rows of a key, best rank first, after `row` arrived; `known` itself if `row` changes
    nothing.

    At most one row of each rank is kept: a failed or partial one only beside an older, better one.
    """
    if not known:
        return (row,)
    if len(known) == 1 and known[0].rank == row.rank:
        return (row,) if newer(row, known[0], now_ns) else known
    if any(one.rank >= row.rank and not newer(row, one, now_ns) for one in known):
        return known
    kept = [one for one in known if one.rank > row.rank or not newer(row, one, now_ns)]
    return by_rank((*kept, row))


def by_rank(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Returns rows of one key in their order: best rank first."""
    return tuple(sorted(rows, key=lambda row: -row.rank))


def _rank(finding: Finding) -> int:
    if finding.outcome == Outcome.OUTCOME_FAILED:
        return FAILED
    return PARTIAL if finding.HasField("sweep") and finding.sweep.partial else WHOLE


def _fact(finding: Finding, before: LatencyPort | None = None) -> Fact | None:
    if finding.outcome == Outcome.OUTCOME_FAILED:
        return None
    match finding.WhichOneof("payload"):
        case "lldp":
            _check_slot("lldp", finding.lldp)
            return lldp_from_proto(finding.lldp)
        case "switch_port":
            return switch_port_from_proto(finding.switch_port)
        case "switch_table":
            if len({port.chassis_id for port in finding.switch_table.ports}) > 1:
                raise BadFinding("switch_table: expected one chassis id for all ports")
            return switch_table_from_proto(finding.switch_table)
        case "infiniband":
            _check_numbers("infiniband", (finding.infiniband,), "rate_gbps")
            _check_slot("infiniband", finding.infiniband)
            return infiniband_from_proto(finding.infiniband)
        case "sweep":
            sweep = finding.sweep
            if len(sweep.sha256) != 32:
                raise BadFinding(f"sweep.sha256 has {len(sweep.sha256)} bytes; expected 32")
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
            _check_numbers("gpu", (finding.gpu,), "pcie_gbps")
            _check_numbers("gpu.links", finding.gpu.links, "gbytes_per_s")
            try:
                return gpu_from_proto(finding.gpu)
            except ValueError as error:
                raise BadFinding(f"gpu.{error}") from error
        case "device_resource":
            return _device_resource(finding)
        case "latency" | "nccl" as measured:
            _check_measured(finding)
            try:
                if measured == "latency":
                    return latency_from_proto(finding.latency, before)
                return nccl_from_proto(finding.nccl)
            except ValueError as error:
                raise BadFinding(f"{measured}: {error}") from error
    return None


def _check_measured(finding: Finding) -> None:
    for result in finding.latency.results:
        times = "min_us", "median_us", "jitter_us"
        _check_numbers("latency.results", (result,), *times, "bandwidth_gbps")
        _check_numbers("latency.results.history", result.history, "min_us", "jitter_us")
    _check_numbers("nccl", (finding.nccl,), "duration_s")
    speeds = "algorithm_gbytes_per_s", "bus_gbytes_per_s"
    _check_numbers("nccl.results", finding.nccl.results, "time_us", *speeds)


def _check_numbers(where: str, messages: Iterable[Message], *names: str) -> None:
    """Check that these fields are numbers of at least 0. Raises BadFinding, for NaN too."""
    for message in messages:
        for name in names:
            value = getattr(message, name)
            if not 0 <= value < MAX_NUMBER:
                raise BadFinding(f"{where}.{name}: {value}: expected a number from 0 to {MAX_NUMBER:g}")


def _check_slot(where: str, port: finding_pb2.LldpPort | finding_pb2.InfinibandPort) -> None:
    slot = PciSlot(port.pci_address, port.pcie_root)
    if not is_pci_slot(slot):
        raise BadFinding(
            f"{where}.pci_address, {where}.pcie_root: {slot.address[:_SHOWN]!a}, {slot.root[:_SHOWN]!a}: "
            "expected a function and its root complex, such as 0000:18:00.0 and pci0000:15"
        )
    if port.numa_node >= MAX_NUMA_NODES:
        raise BadFinding(f"{where}.numa_node: {port.numa_node}: NUMA nodes are below {MAX_NUMA_NODES}")


def _device_resource(finding: Finding) -> DeviceResource:
    message = finding.device_resource
    if message.name != finding.key.subject:
        raise BadFinding(
            f"device_resource.name: {message.name[:MAX_NAME_CHARS]!a}: expected the key's subject"
        )
    if len(message.devices) > MAX_DEVICES:
        raise BadFinding(
            f"device_resource has {len(message.devices)} devices; expected at most {MAX_DEVICES}"
        )
    if len({device.id for device in message.devices}) < len(message.devices):
        raise BadFinding("device_resource.devices: two devices have the same id")
    for device in message.devices:
        if not 0 < len(device.id) <= MAX_NAME_CHARS:
            raise BadFinding(f"device_resource.devices: an id has {len(device.id)} characters")
        if any(number >= MAX_NUMA_NODES for number in device.numa_nodes):
            raise BadFinding(f"device_resource.devices: {device.id}: NUMA nodes are below {MAX_NUMA_NODES}")
    return device_resource_from_proto(message)
