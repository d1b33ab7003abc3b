"""Define the input of inference: current evidence, already parsed, without clock or transport.

The `infer` command fills it from files, the collector from its evidence store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hyperscout_formats.facts.facts import (
    Gpu,
    InfinibandPort,
    LldpPort,
    NcclRun,
    SwitchPort,
    SwitchTable,
)
from hyperscout_formats.infiniband.ibnetdiscover import Sweep
from hyperscout_runtime.units import NS
from hyperscout_topology.topology import Anomaly

from hyperscout_inference.latency.pairs import NO_PAIRS, PairTable

SURE: Final = 0.9  # what is missing with less confidence may never have been there
# A sweep is dated when it ends, and may have read a port so long before.
TAKES_NS: Final = 10 * NS


@dataclass(frozen=True, slots=True)
class SweepSeen:
    """One sweep of one fabric. `source` is the probe (or file) that findings name as the reporter.

    `disputed`: the ports (node GUID, port) whose published cables stay until another sweep confirms this one.
    """

    sweep: Sweep
    source: str = "ibnetdiscover"
    partial: bool = False
    observed_at_ns: int = 0
    disputed: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class SwitchTableSeen:
    """One reading of one switch. `source` is the probe that findings name as the reporter: "snmp", "netq".

    `silent`: the reporter is stale, or has not read the switch for a long time. The reading then counts only
    where no current reporter contradicts it.
    """

    table: SwitchTable
    source: str = "snmp"
    silent: bool = False
    observed_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class PortHealth:
    """Current error rates of a port. Only ports that crossed a threshold and are not yet well below it."""

    errors_per_s: float = 0.0
    discards_per_s: float = 0.0
    flaps_per_hour: float = 0.0
    source: str = ""  # the probe that read the counters
    clears_ns: int = 0  # until when the flaps count, Unix ns, if there are no more; 0 = there were none

    def worse(self, other: "PortHealth") -> "PortHealth":
        """Return the higher of each rate where two reporters count on one port, with the source of `self`."""
        return PortHealth(
            max(self.errors_per_s, other.errors_per_s),
            max(self.discards_per_s, other.discards_per_s),
            max(self.flaps_per_hour, other.flaps_per_hour),
            self.source,
            max(self.clears_ns, other.clears_ns),
        )


@dataclass(frozen=True, slots=True)
class FabricInputs:
    """All current evidence. `lldp`, `infiniband`, `gpus` and `nccl` are keyed by node name, `switch_ports` by
    the name under which the switch reports."""

    sweeps: tuple[SweepSeen, ...] = ()
    lldp: Mapping[str, tuple[LldpPort, ...]] = field(default_factory=dict)
    infiniband: Mapping[str, tuple[InfinibandPort, ...]] = field(default_factory=dict)
    infiniband_at_ns: Mapping[str, int] = field(
        default_factory=dict
    )  # by node, Unix ns: an agent's report that is newer than the sweep wins
    infiniband_up_ns: Mapping[str, Mapping[tuple[int, int], int]] = field(
        default_factory=dict
    )  # by node: since when, Unix ns, its agent sees ports (node GUID, port) as ACTIVE
    node_map: Mapping[int, str] = field(default_factory=dict)  # adapter GUID -> host
    gpus: Mapping[str, tuple[Gpu, ...]] = field(default_factory=dict)
    answering: frozenset[str] = frozenset()  # nodes that can take part in measurements
    pairs: PairTable = NO_PAIRS  # round trips between nodes
    nccl: Mapping[str, tuple[NcclRun, ...]] = field(default_factory=dict)
    switch_ports: Mapping[str, tuple[SwitchPort, ...]] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()  # nodes and switches whose agents are stale
    tables: tuple[SwitchTableSeen, ...] = ()  # whole switches as read by other reporters
    labels: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by node: the domains that its cloud names, the outermost first
    health: Mapping[tuple[str, str], PortHealth] = field(default_factory=dict)  # by device id and port
    health_is_young: bool = False  # no reporter has counted for long enough: published findings stay
    flapped: frozenset[frozenset[tuple[str, str | None]]] = frozenset()  # links by (device, port) of both
    # ends, whose flaps count since an earlier process: their published findings stay
    sweep_claims: tuple[Anomaly, ...] = ()  # reporters of sweeps that do not count as a whole
    managed_gpus: Mapping[str, tuple[Gpu, ...]] = field(
        default_factory=dict
    )  # GPUs as an NVLink manager reports them, by its names for hosts
    labelled_gpus: Mapping[str, tuple[Gpu, ...]] = field(
        default_factory=dict
    )  # GPUs of hosts whose NVLink domain a label of their node names
    node_names: Mapping[str, str] = field(
        default_factory=dict
    )  # by the name that a host announces, the node of another cluster; "" = nodes of two clusters have it

    def is_heard(self, node: str) -> bool:
        """Return whether the agent of a node reports something."""
        return node in self.lldp or node in self.infiniband or node in self.answering


@dataclass(frozen=True, slots=True)
class InferOptions:
    """`cluster_nodes`: the cluster's nodes (None = every host found); they never change a level or a
    grouping. `latency_places`: whether latency alone may place hosts. It is False while too few round trips
    are measured: placed hosts then keep their published place, and new hosts wait.
    """

    cluster_nodes: frozenset[str] | None = None
    compute_ports: str | None = (
        None  # regular expression on interface names; None = the rule in docs/inference.md
    )
    latency_places: bool = True
