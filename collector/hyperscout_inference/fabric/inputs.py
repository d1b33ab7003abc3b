"""What inference starts from: current evidence, already read, without clock or transport.

`infer` fills it from files, the collector from its evidence store; from here on both are the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hyperscout_formats.facts.facts import (
    Gpu,
    InfinibandPort,
    LldpPort,
    NcclRun,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.infiniband.ibnetdiscover import Sweep

from hyperscout_inference.latency.pairs import NO_PAIRS, PairTable


@dataclass(frozen=True, slots=True)
class SweepSeen:
    """One sweep of one fabric. `source` is the probe (or the file) that is named as witness."""

    sweep: Sweep
    source: str = "ibnetdiscover"
    partial: bool = False
    observed_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class SwitchTableSeen:
    """One look at one switch. `source` is the probe that is named as witness: "snmp", "netq".

    `silent`: whoever looked speaks no more, or could not look for long; what was seen then stands where
    nobody says otherwise.
    """

    table: SwitchTable
    source: str = "snmp"
    silent: bool = False
    observed_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class PortHealth:
    """What a port does wrong at present: only ports that are over a threshold, and not yet well under it."""

    errors_per_s: float = 0.0
    discards_per_s: float = 0.0
    flaps_per_hour: float = 0.0
    source: str = ""  # the probe whose counters these are

    def worse(self, other: "PortHealth") -> "PortHealth":
        """What two that count on one port say together: the worse of each, in the name of the first."""
        return PortHealth(
            max(self.errors_per_s, other.errors_per_s),
            max(self.discards_per_s, other.discards_per_s),
            max(self.flaps_per_hour, other.flaps_per_hour),
            self.source,
        )


@dataclass(frozen=True, slots=True)
class FabricInputs:
    """All current evidence. Keys of `lldp`, `infiniband`, `gpus` and `nccl` are node names, those of
    `switch_ports` the names that switches report under."""

    sweeps: tuple[SweepSeen, ...] = ()
    lldp: Mapping[str, tuple[LldpPort, ...]] = field(default_factory=dict)
    infiniband: Mapping[str, tuple[InfinibandPort, ...]] = field(default_factory=dict)
    infiniband_at_ns: Mapping[str, int] = field(
        default_factory=dict
    )  # when, by node: newer than a sweep, it wins
    node_map: Mapping[int, str] = field(default_factory=dict)  # adapter GUID -> host
    gpus: Mapping[str, tuple[Gpu, ...]] = field(default_factory=dict)
    answering: frozenset[str] = frozenset()  # nodes that can be measured
    pairs: PairTable = NO_PAIRS  # what nodes measured of each other
    nccl: Mapping[str, tuple[NcclRun, ...]] = field(default_factory=dict)
    switch_ports: Mapping[str, tuple[SwitchPort, ...]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()  # nodes and switches whose agents speak no more
    tables: tuple[SwitchTableSeen, ...] = ()  # whole switches as others saw them
    labels: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by node: domains that its cloud names, the farthest first
    health: Mapping[tuple[str, str], PortHealth] = field(default_factory=dict)  # by device id and port
    health_is_young: bool = False  # nobody has counted for long enough: what was published of it stands
    managed_gpus: Mapping[str, tuple[Gpu, ...]] = field(
        default_factory=dict
    )  # what an NVLink manager tells of them, by its names for hosts


@dataclass(frozen=True, slots=True)
class InferOptions:
    """`cluster_nodes`: the cluster's nodes (None = every host found); they never change a level or a
    grouping. `latency_places`: whether hosts may be placed by latency alone. Not while too little is measured
    to say more than nothing: then they stay where they were published, and new ones wait.
    """

    cluster_nodes: frozenset[str] | None = None
    compute_ports: str | None = (
        None  # regular expression on interface names; None = the rule of the architecture page
    )
    latency_places: bool = True
