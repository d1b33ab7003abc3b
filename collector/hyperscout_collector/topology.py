"""The result of inference, as values: what publishers, the API and the command line read.

`Topology` is what `hyperscout infer -o json` prints and `TopologyService` serves. Links are kept in
columns; `Link` objects are views made when someone iterates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
)


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """A device, and a port of it where one is known. `device` is a GUID, chassis id or node name."""

    device: str
    name: str
    port: str | None = None


def say(end: Endpoint) -> str:
    """An end as people write it: leaf-03/p17, node-0001/mlx5_0, or only the device where no port is known."""
    if end.port is None:
        return end.name
    return f"{end.name}/p{end.port}" if end.port.isdecimal() else f"{end.name}/{end.port}"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """What does not fit, named so that a person can walk up to it. `since_ns` is 0 when inferred offline.

    `hypernode` is the one domain it counts against (a host's link: its tier-1 domain; a link between
    switches: the lower end's domain), `tier` that domain's tier; both None when it is in no domain.
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

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """Identity over time: kind and both ends."""
        peer = self.peer or Endpoint("", "")
        return (self.kind, self.subject.device, self.subject.port or "", peer.device, peer.port or "")


@dataclass(frozen=True, slots=True)
class Condition:
    """As metav1.Condition; `since_ns` (its lastTransitionTime, Unix ns) is 0 when inferred offline."""

    type: str
    status: str  # "True", "False", "Unknown"
    reason: str
    message: str
    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured between nodes, in the unit that the field's name says. `p99` is the worse end: of
    latency the 99th percentile, of bandwidth the first. `samples`: pairs of nodes and rails. `at_ns`: of the
    newest, Unix ns; 0 when inferred offline."""

    median: float
    p99: float
    samples: int
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Tier:
    """All domains of one tier together: between nodes whose lowest common domain is in it."""

    tier: int
    tier_name: str
    latency_us: Measured | None = None
    bandwidth_gbps: Measured | None = None


@dataclass(frozen=True, slots=True)
class HyperNode:
    """A domain as published. `children` are names of HyperNodes, `nodes` all nodes below, both sorted.

    `source`: "wires", "nvlink" or "latency"; `confidence` in it, 0 to 1. `latency_us` (round trip) and
    `bandwidth_gbps`: between nodes whose lowest common HyperNode this is; None = nothing was measured.
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
    """`level` 1 is a leaf; 0 = nothing told its level."""

    id: str
    name: str
    level: int


class Adapter(NamedTuple):
    """An endpoint of the links: whose it is, and its name on its host ("mlx5_0", "" where unknown)."""

    id: str
    node: str
    name: str


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """One cable, seen once or by many."""

    a_device: str
    a_port: str
    b_device: str
    b_port: str
    fabric: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LinkTable(Sequence[Link]):
    """Links in columns. `a`, `b` index `devices`; `a_port`, `b_port` index `ports`; `fabric` indexes
    `fabrics`; `sources` indexes `source_sets`. All index columns have shape (links,)."""

    devices: Sequence[str]
    ports: Sequence[str]
    fabrics: Sequence[str]
    source_sets: Sequence[tuple[str, ...]]
    a: npt.NDArray[np.int32]
    a_port: npt.NDArray[np.int32]
    b: npt.NDArray[np.int32]
    b_port: npt.NDArray[np.int32]
    fabric: npt.NDArray[np.int32]
    sources: npt.NDArray[np.int32]

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
        )

    def __iter__(self) -> Iterator[Link]:
        columns = (self.a, self.a_port, self.b, self.b_port, self.fabric, self.sources)
        for a, ap, b, bp, f, s in zip(*(column.tolist() for column in columns), strict=True):
            yield Link(
                self.devices[a],
                self.ports[ap],
                self.devices[b],
                self.ports[bp],
                self.fabrics[f],
                self.source_sets[s],
            )

    @classmethod
    def of(cls, links: Sequence[Link]) -> "LinkTable":
        """Columns from objects, in the order given."""
        tables: list[dict[Any, int]] = [{}, {}, {}, {}]

        def column(table: int, values: list[Any]) -> npt.NDArray[np.int32]:
            index = tables[table]
            return np.array([index.setdefault(v, len(index)) for v in values], dtype=np.int32)

        a, b = column(0, [x.a_device for x in links]), column(0, [x.b_device for x in links])
        ap, bp = column(1, [x.a_port for x in links]), column(1, [x.b_port for x in links])
        fabric, sources = column(2, [x.fabric for x in links]), column(3, [x.sources for x in links])
        devices, ports, fabrics, source_sets = (tuple(t) for t in tables)
        return cls(devices, ports, fabrics, source_sets, a, ap, b, bp, fabric, sources)


@dataclass(frozen=True, slots=True)
class Topology:
    """One generation of the picture. HyperNodes come sorted by (tier, name), anomalies by (kind, ends)."""

    generation: int
    hypernodes: tuple[HyperNode, ...] = ()
    switches: tuple[Switch, ...] = ()
    adapters: Sequence[Adapter] = ()
    links: Sequence[Link] = field(default_factory=tuple)
    anomalies: tuple[Anomaly, ...] = ()
    nodes_without_evidence: tuple[str, ...] = ()
    foreign_endpoints: tuple[str, ...] = ()
    tiers: tuple[Tier, ...] = ()


def rfc3339(ns: int) -> str:
    """Unix nanoseconds as an absolute UTC time in whole seconds: 2026-01-31T14:03:07Z."""
    return str(np.datetime64(ns // 1_000_000_000, "s")) + "Z"


def from_rfc3339(text: str) -> int:
    """The other way round; raises ValueError."""
    return int(np.datetime64(text.removesuffix("Z"), "s").astype(np.int64)) * 1_000_000_000


def to_json(topology: Topology) -> dict[str, Any]:
    """The object of `infer -o json`: plain dicts and lists, keys in a fixed order."""

    def end(endpoint: Endpoint | None) -> dict[str, Any] | None:
        if endpoint is None:
            return None
        return {"device": endpoint.device, "name": endpoint.name, "port": endpoint.port}

    def condition(c: Condition) -> dict[str, Any]:
        row = {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
        return row | {"lastTransitionTime": rfc3339(c.since_ns)} if c.since_ns else row

    def anomaly(x: Anomaly) -> dict[str, Any]:
        row = {
            "kind": x.kind,
            "subject": end(x.subject),
            "peer": end(x.peer),
            "tier": x.tier,
            "sources": list(x.sources),
            "confidence": x.confidence,
            "message": x.message,
            "hypernode": x.hypernode,
        }
        return row | {"since": rfc3339(x.since_ns)} if x.since_ns else row

    return {
        "generation": topology.generation,
        "hypernodes": [
            {
                "name": h.name,
                "tier": h.tier,
                "tierName": h.tier_name,
                "parent": h.parent,
                "children": list(h.children),
                "nodes": list(h.nodes),
                "switches": list(h.switches),
                "conditions": [condition(c) for c in h.conditions],
            }
            for h in topology.hypernodes
        ],
        "switches": [{"id": s.id, "name": s.name, "level": s.level} for s in topology.switches],
        "adapters": [{"id": x.id, "node": x.node, "name": x.name} for x in topology.adapters],
        "links": [
            {
                "a": {"device": x.a_device, "port": x.a_port},
                "b": {"device": x.b_device, "port": x.b_port},
                "fabric": x.fabric,
                "sources": list(x.sources),
            }
            for x in topology.links
        ],
        "anomalies": [anomaly(x) for x in topology.anomalies],
        "nodesWithoutEvidence": list(topology.nodes_without_evidence),
        "foreignEndpoints": list(topology.foreign_endpoints),
    }


class TopologyError(ValueError):
    """A saved topology that is not one; names the field."""


def from_json(data: Any) -> Topology:
    """Read what `to_json` wrote (and what the API sends). Raises TopologyError that names the field.

    Only `hypernodes` must be there: a hand-made file of names is a fair `--previous`.
    """

    def get(row: Any, where: str, key: str, kind: type, default: Any = ...) -> Any:
        if not isinstance(row, Mapping):
            raise TopologyError(f"{where}: expected an object, found {type(row).__name__}")
        value = row.get(key, default)
        if value is ...:
            raise TopologyError(f"{where}.{key}: missing")
        if value is default:
            return value
        if kind is int and isinstance(value, str) and value.isdecimal():
            value = int(value)  # protobuf's JSON writes 64-bit integers as texts
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TopologyError(f"{where}.{key}: expected {kind.__name__}, found {type(value).__name__}")
        return value

    def texts(row: Any, where: str, key: str, default: Any = ...) -> tuple[str, ...]:
        values = get(row, where, key, list, default)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise TopologyError(f"{where}.{key}[{i}]: expected a text, found {type(value).__name__}")
        return tuple(values)

    def optional(row: Any, where: str, key: str) -> str | None:
        return None if row.get(key) is None else str(get(row, where, key, str))

    def time(row: Any, where: str, key: str) -> int:
        text = get(row, where, key, str, "")
        try:
            return from_rfc3339(text) if text else 0
        except (ValueError, OverflowError) as error:
            raise TopologyError(f"{where}.{key}: not a time: {text!r}") from error

    def rows(key: str, required: bool = False) -> list[tuple[str, Any]]:
        values = get(data, "topology", key, list, ... if required else [])
        for i, row in enumerate(values):
            if not isinstance(row, Mapping):
                raise TopologyError(f"{key}[{i}]: expected an object, found {type(row).__name__}")
        return [(f"{key}[{i}]", row) for i, row in enumerate(values)]

    def end(row: Any, where: str) -> Endpoint:
        return Endpoint(
            get(row, where, "device", str, ""), get(row, where, "name", str, ""), optional(row, where, "port")
        )

    def hypernode(where: str, row: Any) -> HyperNode:
        conditions = [
            (f"{where}.conditions[{i}]", c) for i, c in enumerate(get(row, where, "conditions", list, []))
        ]
        return HyperNode(
            get(row, where, "name", str),
            get(row, where, "tier", int),
            get(row, where, "tierName", str, ""),
            optional(row, where, "parent"),
            texts(row, where, "children", []),
            texts(row, where, "nodes", []),
            texts(row, where, "switches", []),
            tuple(
                Condition(
                    get(c, w, "type", str),
                    get(c, w, "status", str),
                    get(c, w, "reason", str, ""),
                    get(c, w, "message", str, ""),
                    time(c, w, "lastTransitionTime"),
                )
                for w, c in conditions
            ),
        )

    def anomaly(where: str, row: Any) -> Anomaly:
        peer = row.get("peer")
        confidence = row.get("confidence", 0.0)
        if not isinstance(confidence, int | float):
            raise TopologyError(f"{where}.confidence: expected a number, found {type(confidence).__name__}")
        return Anomaly(
            get(row, where, "kind", str),
            end(get(row, where, "subject", Mapping), f"{where}.subject"),
            None if peer is None else end(peer, f"{where}.peer"),
            None if row.get("tier") is None else (get(row, where, "tier", int) or None),
            texts(row, where, "sources", []),
            float(confidence),
            get(row, where, "message", str, ""),
            optional(row, where, "hypernode"),
            time(row, where, "since"),
        )

    def link(where: str, row: Any) -> Link:
        a, b = (get(row, where, side, Mapping) for side in ("a", "b"))
        return Link(
            get(a, f"{where}.a", "device", str),
            get(a, f"{where}.a", "port", str, ""),
            get(b, f"{where}.b", "device", str),
            get(b, f"{where}.b", "port", str, ""),
            get(row, where, "fabric", str, ""),
            texts(row, where, "sources", []),
        )

    return Topology(
        get(data, "topology", "generation", int, 0),
        tuple(hypernode(*x) for x in rows("hypernodes", required=True)),
        tuple(
            Switch(get(r, w, "id", str), get(r, w, "name", str, ""), get(r, w, "level", int, 0))
            for w, r in rows("switches")
        ),
        tuple(
            Adapter(get(r, w, "id", str), get(r, w, "node", str), get(r, w, "name", str, ""))
            for w, r in rows("adapters")
        ),
        LinkTable.of([link(*x) for x in rows("links")]),
        tuple(anomaly(*x) for x in rows("anomalies")),
        texts(data, "topology", "nodesWithoutEvidence", []),
        texts(data, "topology", "foreignEndpoints", []),
    )
