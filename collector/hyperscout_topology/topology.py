"""Defines the result of inference as values, which publishers, the API and the command line read.

`hyperscout infer -o json` prints a `Topology`, and `TopologyService` serves it. Links are kept in columns;
`Link` objects are created on access. `objects`, `json_reader`, `proto` and `frames` convert it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hyperscout_runtime.units import rfc3339

ANOMALY_KINDS = (
    "MissingLink",
    "MissingSwitch",
    "Miswired",
    "SlowLink",
    "ErroringLink",
    "SourcesDisagree",
    "UnknownHost",
    "Overlap",
    "BlueprintDrift",
    "EvidenceSetAside",
    "NotATree",
)


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A device, and its port where one is known. `device` is a GUID, chassis id or node name; `adapter` the
    name on its node of the adapter that a GUID identifies, "" where unknown."""

    device: str
    name: str
    port: str | None = None
    adapter: str = field(default="", compare=False)  # the GUID identifies the adapter


def say(end: Endpoint) -> str:
    """An end as text: leaf-03/p17, node-0001/eth0, node-0001 mlx5_0/p1, or only the device where no port is
    known."""
    device = f"{end.name} {end.adapter}" if end.adapter else end.name
    if end.port is None:
        return device
    return f"{device}/p{end.port}" if end.port.isdecimal() else f"{device}/{end.port}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value in a message. `name` ends with the unit or with what is counted."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A contradiction or defect, with the names that a person needs to find it.

    `since_ns` (Unix ns) is 0 when inferred offline. `hypernode` is the one domain it counts against: for a
    host's link its tier-1 domain, for a link between switches the domain of the lower end. `tier` is that
    domain's tier. Both are None when it is in no domain. `nodes`: all nodes that it is about, sorted, where
    the ends do not name them. `figures`: the measured values in `message`.

    `flaps`: how often it went and came back lately; `changed_ns`: when it last did either, Unix ns; 0 = not.
    `clears_ns`: until when it is published if nothing happens, Unix ns; 0 = unknown. With `flaps` it is over
    since `changed_ns`, and its all-clear is held back.
    """

    kind: str
    subject: Endpoint
    peer: Endpoint | None
    tier: int | None
    sources: tuple[str, ...]
    confidence: float
    message: str
    hypernode: str | None = None
    since_ns: int = 0
    nodes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    flaps: int = 0
    changed_ns: int = 0
    clears_ns: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it is published only because its all-clear is held back."""
        return self.flaps > 0 and self.clears_ns > 0

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Identity over time: kind and both ends."""
        peer = self.peer or Endpoint("", "")
        return (self.kind, self.subject.device, self.subject.port or "", peer.device, peer.port or "")

    @property
    def ends(self) -> frozenset[tuple[str, str | None]]:
        """(device, port) of both ends, in no order."""
        return frozenset((end.device, end.port) for end in (self.subject, self.peer) if end is not None)


MEASURING = frozenset({"latency", "nccl"})  # sources that observe no links, but measure paths


def is_measured(anomaly: Anomaly) -> bool:
    """Whether only measurements report it."""
    return bool(anomaly.sources) and MEASURING.issuperset(anomaly.sources)


_BEFORE = "; before: "  # in the message of an anomaly that is over


def held_back(anomaly: Anomaly, *, is_up: bool) -> Anomaly:
    """An anomaly that is over, with a message that says since and until when, and what it was.

    `is_up`: whether the cable or switch that was missing is there.
    """
    state = over_since("up" if is_up else "over", anomaly.changed_ns, anomaly.flaps, anomaly.clears_ns)
    return replace(anomaly, message=f"{state}{_BEFORE}{anomaly.message}")


def over_since(state: str, changed_ns: int, flaps: int, clears_ns: int) -> str:
    """The text that something is over, and how long it stays shown. Times are Unix ns."""
    times = "once" if flaps == 1 else f"{flaps} times"
    return f"{state} since {rfc3339(changed_ns)}; flapped {times}; clears at {rfc3339(clears_ns)}"


def state_of(anomaly: Anomaly) -> str:
    """Since and until when an anomaly that is over is held back: the first part of its message."""
    return anomaly.message.partition(_BEFORE)[0]


def undamped(anomaly: Anomaly) -> Anomaly:
    """The anomaly as inference found it: without what damping added.

    One that came again while it was still shown is there since then.
    """
    if not anomaly.flaps:
        return anomaly
    if not anomaly.is_over:
        since_ns = max(anomaly.since_ns, anomaly.changed_ns) if anomaly.since_ns else 0
        return replace(anomaly, since_ns=since_ns, flaps=0, changed_ns=0)
    message = anomaly.message.partition(_BEFORE)[2]
    return replace(anomaly, message=message, flaps=0, changed_ns=0, clears_ns=0)


@dataclass(frozen=True, slots=True)
class Condition:
    """As metav1.Condition; `since_ns` (its lastTransitionTime, Unix ns) is 0 when inferred offline.

    `nodes`, `switches` (ids): all that are not ready or stale, sorted; `message` names only the first few.
    They are set on the lowest HyperNode that contains them, which for nodes is of tier 1. `details`: a text
    for each of `nodes`, then for each of `switches`: why it is not ready, or when its newest evidence was
    observed (RFC 3339); "" = unknown. Empty: all are unknown.
    """

    type: str
    status: str  # "True", "False", "Unknown"
    reason: str
    message: str
    since_ns: int = 0
    nodes: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured values between nodes, in the unit in the field's name.

    `p99` is the worse end: for latency the 99th percentile, for bandwidth the first. `samples`: pairs of
    nodes and rails; 0 = only the median is known, with two digits (from a HyperNode's annotation). `at_ns`:
    time of the newest sample, Unix ns; 0 when inferred offline.
    """

    median: float
    p99: float
    samples: int
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Tier:
    """All domains of one tier together.

    Values are between nodes that have their lowest common domain in it.
    """

    tier: int
    tier_name: str
    latency_us: Measured | None = None
    bandwidth_gbps: Measured | None = None


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A domain as published. `children` are names of HyperNodes, `nodes` all nodes below, both sorted.

    `source`: "wires", a kind of accelerator fabric ("nvlink", "xgmi", "ascend"), "latency" or "labels";
    `confidence` in it, 0 to 1. `latency_us` (round trip) and `bandwidth_gbps`: between nodes that have this
    as their lowest common HyperNode; None = not measured.
    """

    name: str
    tier: int
    tier_name: str
    parent: str | None
    children: tuple[str, ...]
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    source: str = "wires"
    confidence: float = 1.0
    latency_us: Measured | None = None
    bandwidth_gbps: Measured | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch. `level` 1 is a leaf; 0 = the level is unknown."""

    id: str
    name: str
    level: int


class Adapter(NamedTuple):
    """A host's endpoint of links: its node, and its name on the host ("mlx5_0", "" where unknown)."""

    id: str
    node: str
    name: str


# Nominal Gbit/s of a lane, and the bits of data in it. SDR, DDR and QDR send 8 bits as 10, FDR sends 64 as 66
# at 14.0625 Gbit/s (InfiniBand Architecture Specification, volume 2). FDR10 has QDR's nominal speed.
_DATA_GBPS = {2.5: 2.0, 5.0: 4.0, 10.0: 8.0, 14.0: 14.0625 * 64 / 66}


class Rate(NamedTuple):
    """The current speed of a link in Gbit/s and its number of lanes; 0 = unknown.

    The speed is the nominal one of all lanes together, as Linux prints it: 40 for 4x QDR.
    """

    speed_gbps: float = 0.0
    width: int = 0

    @property
    def data_gbps(self) -> float:
        """Gbit/s of data in one direction: 32 for 4x QDR.

        It is the nominal speed from EDR on, on Ethernet, and where the number of lanes is unknown.
        """
        if not self.width:
            return self.speed_gbps
        lane_gbps = self.speed_gbps / self.width
        return _DATA_GBPS.get(lane_gbps, lane_gbps) * self.width


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """One link, from one source or several. `note`: what is uncertain about it, "" = nothing.

    `speed_gbps`, `width`: as in `Rate`.
    """

    a_device: str
    a_port: str
    b_device: str
    b_port: str
    fabric: str
    sources: tuple[str, ...]
    note: str = ""
    speed_gbps: float = 0.0
    width: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class LinkTable(Sequence[Link]):
    """Links in columns. `a`, `b` index `devices`; `a_port`, `b_port` index `ports`.

    `fabric` indexes `fabrics`; `sources` indexes `source_sets`; `rate` indexes `rates`. All index columns
    have shape (links,). `notes`: by row, only for rows with a note.
    """

    devices: Sequence[str]
    ports: Sequence[str]
    fabrics: Sequence[str]
    source_sets: Sequence[tuple[str, ...]]
    rates: Sequence[Rate]
    a: npt.NDArray[np.int32]
    a_port: npt.NDArray[np.int32]
    b: npt.NDArray[np.int32]
    b_port: npt.NDArray[np.int32]
    fabric: npt.NDArray[np.int32]
    sources: npt.NDArray[np.int32]
    rate: npt.NDArray[np.int32]
    notes: Mapping[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.a)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return Link(
            self.devices[self.a[index]],
            self.ports[self.a_port[index]],
            self.devices[self.b[index]],
            self.ports[self.b_port[index]],
            self.fabrics[self.fabric[index]],
            self.source_sets[self.sources[index]],
            self.notes.get(int(index) % len(self), "") if self.notes else "",
            *self.rates[self.rate[index]],
        )

    def __iter__(self) -> Iterator[Link]:
        columns = (self.a, self.a_port, self.b, self.b_port, self.fabric, self.sources, self.rate)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for row, (a, ap, b, bp, f, s, r) in enumerate(rows):
            yield Link(
                self.devices[a],
                self.ports[ap],
                self.devices[b],
                self.ports[bp],
                self.fabrics[f],
                self.source_sets[s],
                self.notes.get(row, ""),
                *self.rates[r],
            )

    @classmethod
    def of(cls, links: Sequence[Link]) -> "LinkTable":
        """A table of these links, in the order given."""
        tables: list[dict[Any, int]] = [{}, {}, {}, {}, {}]

        def column(table: int, values: list[Any]) -> npt.NDArray[np.int32]:
            index = tables[table]
            return np.array([index.setdefault(v, len(index)) for v in values], dtype=np.int32)

        a, b = column(0, [x.a_device for x in links]), column(0, [x.b_device for x in links])
        ap, bp = column(1, [x.a_port for x in links]), column(1, [x.b_port for x in links])
        fabric, sources = column(2, [x.fabric for x in links]), column(3, [x.sources for x in links])
        rate = column(4, [Rate(x.speed_gbps, x.width) for x in links])
        devices, ports, fabrics, source_sets, rates = (tuple(t) for t in tables)
        notes = {row: x.note for row, x in enumerate(links) if x.note}
        return cls(devices, ports, fabrics, source_sets, rates, a, ap, b, bp, fabric, sources, rate, notes)


@dataclass(frozen=True, slots=True)
class Topology:
    """One generation of the topology. HyperNodes are sorted by (tier, name), anomalies by (kind, ends).

    `devices`: by node, the number of its devices by resource name ("nvidia.com/gpu"), where files contain it.
    A collector keeps this as evidence instead.
    """

    generation: int
    hypernodes: tuple[HyperNode, ...] = ()
    switches: tuple[Switch, ...] = ()
    adapters: Sequence[Adapter] = ()
    links: Sequence[Link] = field(default_factory=tuple)
    anomalies: tuple[Anomaly, ...] = ()
    nodes_without_evidence: tuple[str, ...] = ()
    foreign_endpoints: tuple[str, ...] = ()
    tiers: tuple[Tier, ...] = ()
    devices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
