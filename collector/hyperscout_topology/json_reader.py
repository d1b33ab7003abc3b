"""Reads a topology from the JSON objects that `objects.to_json` makes, with errors that name the field."""

from collections.abc import Mapping
from typing import Any

from hyperscout_runtime.units import from_rfc3339

from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Condition,
    Endpoint,
    Figure,
    HyperNode,
    Link,
    LinkTable,
    Measured,
    Rate,
    Switch,
    Tier,
    Topology,
)

_MAX_GBPS = 1_000_000
_MAX_LANES = 255


class TopologyError(ValueError):
    """The data is no saved topology. The message names the field."""


def from_json(data: Any) -> Topology:
    """Read what `to_json` wrote (and what the API sends). Raises TopologyError that names the field.

    Only `hypernodes` is required, so that a hand-made file of names can serve as `--previous`.
    """

    def get(row: Any, where: str, key: str, kind: type, default: Any = ...) -> Any:
        if not isinstance(row, Mapping):
            raise TopologyError(f"{where}: expected an object, found {type(row).__name__}")
        value = row.get(key, default)
        if value is ...:
            raise TopologyError(f"{where}.{key}: missing")
        if value is default:
            return value
        if kind is int and isinstance(value, str) and value.isdecimal() and len(value) < 20:
            value = int(value)  # protobuf's JSON writes 64-bit integers as strings
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TopologyError(f"{where}.{key}: expected {kind.__name__}, found {type(value).__name__}")
        if kind is str and isinstance(value, str):
            _check_text(value, f"{where}.{key}")
        return value

    def texts(row: Any, where: str, key: str, default: Any = ...) -> tuple[str, ...]:
        values = get(row, where, key, list, default)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise TopologyError(f"{where}.{key}[{i}]: expected a text, found {type(value).__name__}")
            _check_text(value, f"{where}.{key}[{i}]")
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
        device, name, adapter = (get(row, where, key, str, "") for key in ("device", "name", "adapter"))
        return Endpoint(device, name, optional(row, where, "port"), adapter)

    def number(row: Any, where: str, key: str, default: Any = ...) -> float:
        value = get(row, where, key, object, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TopologyError(f"{where}.{key}: expected a number, found {type(value).__name__}")
        if not -1e300 < value < 1e300:  # an int may exceed the range of a float
            raise TopologyError(f"{where}.{key}: expected a number below 1e300")
        return float(value)

    def measured(row: Any, where: str, key: str) -> Measured | None:
        found = row.get(key)
        if found is None:
            return None
        at = f"{where}.{key}"
        return Measured(
            number(found, at, "median"),
            number(found, at, "p99", 0.0),
            get(found, at, "samples", int, 0),
            time(found, at, "measuredAt"),
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
                    texts(c, w, "nodes", []),
                    texts(c, w, "switches", []),
                    texts(c, w, "details", []),
                )
                for w, c in conditions
            ),
            get(row, where, "source", str, "") or "wires",
            number(row, where, "confidence", 1.0),
            measured(row, where, "latencyUs"),
            measured(row, where, "bandwidthGbps"),
        )

    def anomaly(where: str, row: Any) -> Anomaly:
        peer = row.get("peer")
        return Anomaly(
            get(row, where, "kind", str),
            end(get(row, where, "subject", Mapping), f"{where}.subject"),
            None if peer is None else end(peer, f"{where}.peer"),
            None if row.get("tier") is None else (get(row, where, "tier", int) or None),
            texts(row, where, "sources", []),
            number(row, where, "confidence", 0.0),
            get(row, where, "message", str, ""),
            optional(row, where, "hypernode"),
            time(row, where, "since"),
            texts(row, where, "nodes", []),
            tuple(
                Figure(get(f, w, "name", str), number(f, w, "value", 0.0))
                for i, f in enumerate(get(row, where, "figures", list, []))
                for w in (f"{where}.figures[{i}]",)
            ),
            get(row, where, "flaps", int, 0),
            time(row, where, "changedAt"),
            time(row, where, "clearsAt"),
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
            get(row, where, "note", str, ""),
            *rate(where, row),
        )

    def rate(where: str, row: Any) -> Rate:
        found = Rate(number(row, where, "speedGbps", 0.0), get(row, where, "width", int, 0))
        if not 0 <= found.speed_gbps <= _MAX_GBPS:
            raise TopologyError(f"{where}.speedGbps: expected a number from 0 to {_MAX_GBPS}")
        if not 0 <= found.width <= _MAX_LANES:
            raise TopologyError(f"{where}.width: expected a number from 0 to {_MAX_LANES}")
        return found

    devices = get(data, "topology", "devices", Mapping, {})
    for node, mine in devices.items():
        for name in (node, *(mine if isinstance(mine, Mapping) else ())):
            _check_text(name, "devices")
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
        tuple(
            Tier(
                get(r, w, "tier", int),
                get(r, w, "tierName", str, ""),
                measured(r, w, "latencyUs"),
                measured(r, w, "bandwidthGbps"),
            )
            for w, r in rows("tiers")
        ),
        {
            node: {name: get(mine, f"devices.{node}", name, int) for name in mine}
            for node in devices
            for mine in [get(devices, "devices", node, Mapping)]
        },
    )


def _check_text(text: str, where: str) -> None:
    """Raise TopologyError if the text contains half of a surrogate pair: JSON permits it, UTF-8 does not."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TopologyError(f"{where}: {text!r} contains half of a surrogate pair") from error
