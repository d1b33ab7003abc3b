"""Defines the lists of REST: the order and the filters of each kind of object.

Objects are sorted by an identity that does not change. An object that exists during all requests is on
exactly one page, also if other objects appear or disappear between two requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyperscout.v1.topology_pb2 import ListHistoryResponse
from hyperscout_formats.text.reporters import cluster_of
from hyperscout_publish.clusters.about import about, change_about, domains_in, not_found
from hyperscout_topology.objects import Object, names_of
from hyperscout_topology.topology import ANOMALY_KINDS, Topology

from hyperscout_collector.serve.http.problems import bad
from hyperscout_collector.serve.rest.parameters import Parameter

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of a list. `holds(object, value)`: whether the object matches a value of the parameter.

    `within(topology, value)`: what `holds` gets in place of the value, if that depends on the topology.
    """

    parameter: Parameter
    holds: Callable[[Object, Any], bool]
    within: Callable[[Topology, Any], Any] = lambda topology, value: value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object. `place`: the unique sort key of an object. `message`: its schema, in proto/."""

    name: str
    message: str
    place: Callable[[Object], Place]
    filters: tuple[Filter, ...]


def _name(kind: str, which: str, example: str) -> Filter:
    description = f"Only {which}."
    return Filter(
        Parameter("name", description, example=example, repeated=True), lambda x, v: v in names_of(kind, x)
    )


def _has_condition(x: Object, value: str) -> bool:
    kind, _, status = value.partition("=")
    return any(c["type"] == kind and c["status"] == (status or "True") for c in x["conditions"])


def _ends(x: Object) -> list[Object]:
    return [x[side] for side in ("a", "b", "subject", "peer") if x.get(side)]


def _in_cluster(which: str, names: Callable[[Object], Iterable[str]]) -> Filter:
    """A filter by cluster. `names(object)`: the nodes of which one must be in the cluster."""
    return Filter(cluster_parameter(which), lambda x, v: any(cluster_of(node) == v for node in names(x)))


def cluster_parameter(which: str) -> Parameter:
    description = f'Only {which} this one of several clusters; "" = the collector\'s own.'
    return Parameter("cluster", description, example="east", repeated=True)


_TIER = Filter(
    Parameter("tier", "Only objects of this tier; 1 = closest to the hosts.", "number", 1, repeated=True),
    lambda x, v: x["tier"] == v,
)
_HYPERNODE = Parameter("hypernode", "Only objects of this HyperNode.", example="leaf-03-1f2e", repeated=True)

HYPERNODES = Kind(
    "hypernodes",
    "HyperNode",
    lambda x: (x["name"],),
    (
        _name("hypernodes", "HyperNodes with this name", "leaf-03-1f2e"),
        _TIER,
        Filter(
            Parameter(
                "tierName", "Only HyperNodes of this performance class.", example="leaf", repeated=True
            ),
            lambda x, v: x["tierName"] == v,
        ),
        Filter(
            Parameter("parent", "Only direct children of this HyperNode.", example="pod-1-77aa"),
            lambda x, v: x["parent"] == v,
        ),
        Filter(
            Parameter("node", "Only HyperNodes that contain this node.", example="gpu-01", repeated=True),
            lambda x, v: v in x["nodes"],
        ),
        Filter(
            Parameter("switch", "Only HyperNodes of the switch with this id.", example="0x7cfe900300a5a040"),
            lambda x, v: v in x["switches"],
        ),
        _in_cluster("HyperNodes that contain nodes of", lambda x: x["nodes"]),
        Filter(
            Parameter(
                "condition",
                "Only HyperNodes with this condition: `Degraded` (means `Degraded=True`) or `Ready=False`.",
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
        _name("nodes", "nodes with this name", "gpu-01"),
        Filter(_HYPERNODE, lambda x, v: v in x["hypernodes"]),
        Filter(
            Parameter(
                "evidence",
                "Only nodes with (`true`) or without (`false`) evidence of their place.",
                "flag",
                True,
            ),
            lambda x, v: x["evidence"] is v,
        ),
        _in_cluster("nodes of", lambda x: (x["name"],)),
    ),
)
SWITCHES = Kind(
    "switches",
    "SwitchSummary",
    lambda x: (x["id"],),
    (
        _name("switches", "switches with this name or id", "leaf-03"),
        Filter(
            Parameter(
                "level", "Only switches of this level; 1 = leaf, 0 = unknown.", "number", 1, repeated=True
            ),
            lambda x, v: x["level"] == v,
        ),
        Filter(_HYPERNODE, lambda x, v: v in x["hypernodes"]),
        Filter(
            cluster_parameter("switches of HyperNodes that contain nodes of"),
            lambda x, domains: not domains.isdisjoint(x["hypernodes"]),
            domains_in,
        ),
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
        _name("links", "links with this device or node at either end", "leaf-03"),
        Filter(
            Parameter("fabric", "Only links of this fabric.", example="ib-0", repeated=True),
            lambda x, v: x["fabric"] == v,
        ),
        Filter(
            Parameter("node", "Only links of this node.", example="gpu-01", repeated=True),
            lambda x, v: any(end["node"] == v for end in _ends(x)),
        ),
        Filter(
            Parameter("device", "Only links of the device with this id.", example="0x7cfe900300a5a040"),
            lambda x, v: any(end["device"] == v for end in _ends(x)),
        ),
        Filter(
            Parameter(
                "source", "Only links that this source reports.", example="ibnetdiscover", repeated=True
            ),
            lambda x, v: v in x["sources"],
        ),
        _in_cluster("links of nodes of", lambda x: filter(None, (end["node"] for end in _ends(x)))),
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
        _name("anomalies", "anomalies of this device, kind or HyperNode", "leaf-03"),
        Filter(
            Parameter(
                "kind",
                "Only anomalies of this kind.",
                example="MissingLink",
                repeated=True,
                choices=ANOMALY_KINDS,
            ),
            lambda x, v: x["kind"] == v,
        ),
        _TIER,
        Filter(_HYPERNODE, lambda x, v: x["hypernode"] == v),
        Filter(
            Parameter("source", "Only anomalies that this source reports.", example="lldp", repeated=True),
            lambda x, v: v in x["sources"],
        ),
        Filter(
            cluster_parameter("anomalies about nodes, or else in HyperNodes that contain nodes, of"),
            lambda x, is_about: is_about(
                (*(end["name"] for end in _ends(x)), *x.get("nodes", ())), x["hypernode"]
            ),
            about,
        ),
    ),
)
PLACEMENTS = Kind(
    "placements",
    "Placement",
    lambda x: (x["gang"],),
    (
        Filter(
            Parameter("name", "Only the placement of this gang.", example="train-7", repeated=True),
            lambda x, v: x["gang"] == v,
        ),
        Filter(
            Parameter("node", "Only placements on this node.", example="gpu-01", repeated=True),
            lambda x, v: any(one["node"] == v for one in x["assignments"]),
        ),
        _in_cluster("placements in", lambda x: (one["node"] for one in x["assignments"])),
    ),
)
KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (HYPERNODES, NODES, SWITCHES, LINKS, ANOMALIES, PLACEMENTS)
}


def passes(kind: Kind, values: Mapping[str, Any], topology: Topology) -> Callable[[Object], bool]:
    """A predicate: the object matches every given filter, each with at least one of its values.

    Raises ProblemError for a cluster without nodes.
    """
    _check(values.get("cluster", ()), topology)
    asked = [
        (one.holds, [one.within(topology, x) for x in (given if isinstance(given, tuple) else (given,))])
        for one in kind.filters
        if (given := values.get(one.parameter.name)) is not None
    ]
    return lambda x: all(any(holds(x, value) for value in given) for holds, given in asked)


def keep_about(found: ListHistoryResponse, topology: Topology, clusters: Sequence[str]) -> None:
    """Remove what is about none of the clusters. Raises ProblemError for a cluster without nodes."""
    _check(clusters, topology)
    keeps = [change_about(topology, cluster) for cluster in clusters]
    for changes in (found.events, found.flaps):
        for i in reversed(range(len(changes))):
            if not any(keep(changes[i]) for keep in keeps):
                del changes[i]


def _check(clusters: Iterable[str], topology: Topology) -> None:
    for cluster in clusters:
        if (error := not_found(topology, cluster)) is not None:
            raise bad("cluster", error)
