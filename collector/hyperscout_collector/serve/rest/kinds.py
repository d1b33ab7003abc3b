"""Defines the lists of REST: the order and the filters of each kind of object.

Objects are ordered by an identity that does not change. So an object that exists during all requests is on
exactly one page, also if other objects appear or disappear between two pages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hyperscout_topology.objects import Object, names_of
from hyperscout_topology.topology import ANOMALY_KINDS

from hyperscout_collector.serve.rest.parameters import Parameter

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of a list. `holds(object, value)`: whether the object matches a value of the parameter."""

    parameter: Parameter
    holds: Callable[[Object, Any], bool]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object. `place`: the unique sort key of an object. `message`: its schema, in proto/."""

    name: str
    message: str
    place: Callable[[Object], Place]
    filters: tuple[Filter, ...]


def _name(kind: str, what: str, example: str) -> Filter:
    about = f"Only what answers to this name: {what}."
    return Filter(
        Parameter("name", about, example=example, repeated=True), lambda x, v: v in names_of(kind, x)
    )


def _has_condition(x: Object, value: str) -> bool:
    kind, _, status = value.partition("=")
    return any(c["type"] == kind and c["status"] == (status or "True") for c in x["conditions"])


def _ends(x: Object) -> list[Object]:
    return [x[side] for side in ("a", "b", "subject", "peer") if x.get(side)]


_TIER = Filter(
    Parameter("tier", "Only those of this tier; 1 = closest to the hosts.", "number", 1, repeated=True),
    lambda x, v: x["tier"] == v,
)
_HYPERNODE = Parameter("hypernode", "Only those of this HyperNode.", example="leaf-03-1f2e", repeated=True)

HYPERNODES = Kind(
    "hypernodes",
    "HyperNode",
    lambda x: (x["name"],),
    (
        _name("hypernodes", "its own", "leaf-03-1f2e"),
        _TIER,
        Filter(
            Parameter("tierName", "Only those of this class of performance.", example="leaf", repeated=True),
            lambda x, v: x["tierName"] == v,
        ),
        Filter(
            Parameter("parent", "Only those right below this HyperNode.", example="pod-1-77aa"),
            lambda x, v: x["parent"] == v,
        ),
        Filter(
            Parameter("node", "Only those that hold this node.", example="gpu-01", repeated=True),
            lambda x, v: v in x["nodes"],
        ),
        Filter(
            Parameter(
                "switch", "Only those that this switch serves, by its id.", example="0x7cfe900300a5a040"
            ),
            lambda x, v: v in x["switches"],
        ),
        Filter(
            Parameter(
                "condition",
                "Only those with this condition: `Degraded`, which means that it is True, or `Ready=False`.",
                example="Degraded",
                repeated=True,
            ),
            _has_condition,
        ),
    ),
)
NODES = Kind(
    "nodes",
    "NodeSummary",
    lambda x: (x["name"],),
    (
        _name("nodes", "its own", "gpu-01"),
        Filter(_HYPERNODE, lambda x, v: v in x["hypernodes"]),
        Filter(
            Parameter("evidence", "Only those that evidence shows, or does not.", "flag", True),
            lambda x, v: x["evidence"] is v,
        ),
    ),
)
SWITCHES = Kind(
    "switches",
    "SwitchSummary",
    lambda x: (x["id"],),
    (
        _name("switches", "its own, or its id", "leaf-03"),
        Filter(
            Parameter(
                "level", "Only those of this level; 1 = leaf, 0 = unknown.", "number", 1, repeated=True
            ),
            lambda x, v: x["level"] == v,
        ),
        Filter(_HYPERNODE, lambda x, v: v in x["hypernodes"]),
    ),
)
LINKS = Kind(
    "links",
    "LinkSummary",
    lambda x: (
        *(x["a"]["device"], x["a"]["port"], x["b"]["device"], x["b"]["port"]),
        *(x["fabric"], ",".join(x["sources"])),
    ),
    (
        _name("links", "of a device or a node at either end", "leaf-03"),
        Filter(
            Parameter("fabric", "Only those of this fabric.", example="ib-0", repeated=True),
            lambda x, v: x["fabric"] == v,
        ),
        Filter(
            Parameter("node", "Only those of this node.", example="gpu-01", repeated=True),
            lambda x, v: any(end["node"] == v for end in _ends(x)),
        ),
        Filter(
            Parameter("device", "Only those of the device with this id.", example="0x7cfe900300a5a040"),
            lambda x, v: any(end["device"] == v for end in _ends(x)),
        ),
        Filter(
            Parameter("source", "Only those that this source saw.", example="ibnetdiscover", repeated=True),
            lambda x, v: v in x["sources"],
        ),
    ),
)
ANOMALIES = Kind(
    "anomalies",
    "Anomaly",
    lambda x: (
        x["kind"],
        *(x["subject"]["device"], x["subject"]["port"] or ""),
        *((x["peer"]["device"], x["peer"]["port"] or "") if x["peer"] else ("", "")),
        *(x["subject"]["name"], x["message"]),
    ),
    (
        _name("anomalies", "of a device at either end, its kind or its HyperNode", "leaf-03"),
        Filter(
            Parameter(
                "kind",
                "Only those of this kind.",
                example="MissingLink",
                repeated=True,
                choices=ANOMALY_KINDS,
            ),
            lambda x, v: x["kind"] == v,
        ),
        _TIER,
        Filter(_HYPERNODE, lambda x, v: x["hypernode"] == v),
        Filter(
            Parameter("source", "Only those that this source tells of.", example="lldp", repeated=True),
            lambda x, v: v in x["sources"],
        ),
    ),
)
PLACEMENTS = Kind(
    "placements",
    "Placement",
    lambda x: (x["gang"],),
    (
        Filter(
            Parameter("name", "Only that of this gang.", example="train-7", repeated=True),
            lambda x, v: x["gang"] == v,
        ),
        Filter(
            Parameter("node", "Only those that hold this node.", example="gpu-01", repeated=True),
            lambda x, v: any(one["node"] == v for one in x["assignments"]),
        ),
    ),
)
KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (HYPERNODES, NODES, SWITCHES, LINKS, ANOMALIES, PLACEMENTS)
}


def passes(kind: Kind, values: Mapping[str, Any]) -> Callable[[Object], bool]:
    """A predicate: the object matches every given filter, each with at least one of its values."""
    asked = [
        (one.holds, given if isinstance(given, tuple) else (given,))
        for one in kind.filters
        if (given := values.get(one.parameter.name)) is not None
    ]
    return lambda x: all(any(holds(x, value) for value in given) for holds, given in asked)
