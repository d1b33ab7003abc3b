"""Reads NetQ's topology graph: switches, each with the neighbours on its ports.

NetQ draws its topology from this graph (`POST /api/netq/telemetry/v1/object/topologygraph/fetch-topology`):
nodes in tiers, and the cables between each two nodes with the interfaces at their ends. NetQ identifies
devices by host name only. The reader therefore uses the host name as chassis id. A caller that knows the
chassis ids can replace the names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort, SwitchTable
from hyperscout_formats.text import json_document
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.json_document import listed, name_in
from hyperscout_formats.text.problems import Problems

MAX_BYTES: Final = 64 << 20
"""A cable takes about 300 bytes."""
MAX_CABLES: Final = 1_000_000
MAX_NEIGHBOURS: Final = 64
"""Neighbours of one port. A cable gives one."""
_TTL_S: Final = 120  # IEEE 802.1AB-2016, 8.5.4: NetQ does not report it
_EXPECTED: Final = "expected the JSON that NetQ returns for topologygraph/fetch-topology"


class _Node(NamedTuple):
    name: str
    switches: bool


class _End(NamedTuple):
    node: str
    interface: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Tables by the name of the switch, which is also its chassis id."""

    tables: Mapping[str, SwitchTable]
    problems: tuple[Problem, ...]


def parse(data: bytes, source: str = "netq") -> Graph:
    """Return the tables of all switches, and the parts that were left out.

    Raises FormatError for other text.
    """
    document = json_document.document(data, source, MAX_BYTES, _EXPECTED)
    graphs = [graph for graph in listed(document) if isinstance(graph, Mapping) and "nodes" in graph]
    if not graphs:
        raise FormatError(source, 0, f'no graph with the key "nodes"; {_EXPECTED}')
    problems = Problems(source)
    heard: dict[str, dict[str, dict[_End, LldpNeighbour]]] = {}
    for graph in graphs:
        nodes = _nodes(graph, problems)
        for node in nodes.values():
            if node.switches:
                heard.setdefault(node.name, {})
        for count, (one, other) in enumerate(_cables(graph, nodes, problems)):
            if count == MAX_CABLES:
                raise FormatError(source, 0, f"more than {MAX_CABLES} cables")
            for near, far in ((one, other), (other, one)):
                if nodes[near.node].switches:
                    peer = _End(nodes[far.node].name, far.interface)
                    ports = heard[nodes[near.node].name]
                    ports.setdefault(near.interface, {})[peer] = _neighbour(peer, nodes[far.node].switches)
    tables = {name: SwitchTable(tuple(_ports(name, ports, problems))) for name, ports in heard.items()}
    return Graph(dict(sorted(tables.items())), problems.listed())


def _nodes(graph: Mapping[str, Any], problems: Problems) -> dict[str, _Node]:
    """Return nodes by NetQ's id.

    A node is a switch if NetQ calls it one or puts it in a tier above the hosts.
    """
    found: dict[str, _Node] = {}
    names: set[str] = set()
    for item in _nested(graph.get("nodes"), "compounded_nodes"):
        ident, name = name_in(item.get("id")), name_in(item.get("name"))
        tier = item.get("tier")
        switches = item.get("device_type") == "switch" or (type(tier) is int and tier > 0)
        if not ident or not name:
            problems.add(0, f"a node without an id or a name: {(ident or name)[:60]!a}")
        elif ident in found or name in names:
            problems.add(0, f"a second node {name[:60]!a}; the first is used")
        else:
            names.add(name)
            found[ident] = _Node(name, switches)
    return found


def _cables(
    graph: Mapping[str, Any], nodes: Mapping[str, _Node], problems: Problems
) -> Iterator[tuple[_End, _End]]:
    for item in _nested(graph.get("links"), "compounded_links"):
        ends = [
            _End(name_in(end.get("node")), name_in(end.get("interface")))
            for end in listed(item.get("interfaces"))
            if isinstance(end, Mapping)
        ]
        if len(ends) != 2 or not all(end.node in nodes and end.interface for end in ends):
            problems.add(0, f"a link without two known ends: {name_in(item.get('id'))[:80]!a}")
        else:
            yield ends[0], ends[1]


def _neighbour(peer: _End, switches: bool) -> LldpNeighbour:
    return LldpNeighbour(
        chassis_id_subtype="local",
        chassis_id=peer.node,
        port_id_subtype="ifname",
        port_id=peer.interface,
        ttl_s=_TTL_S,
        system_name=peer.node,
        capabilities=("Bridge", "Router") if switches else ("Station",),
    )


def _ports(
    name: str, ports: Mapping[str, Mapping[_End, LldpNeighbour]], problems: Problems
) -> Iterator[SwitchPort]:
    for interface in sorted(ports):
        neighbours = [neighbour for _, neighbour in sorted(ports[interface].items())]
        if len(neighbours) > MAX_NEIGHBOURS:
            problems.add(
                0, f"{name} {interface}: {len(neighbours)} neighbours; only {MAX_NEIGHBOURS} are kept"
            )
        yield SwitchPort(
            interface=interface,
            chassis_id_subtype="local",
            chassis_id=name,
            neighbours=tuple(neighbours[:MAX_NEIGHBOURS]),
            system_name=name,
            port_id_subtype="ifname",
            port_id=interface,
        )


def _nested(groups: Any, key: str) -> Iterator[Mapping[str, Any]]:
    for group in listed(groups):
        if isinstance(group, Mapping):
            for item in listed(group.get(key)):
                if isinstance(item, Mapping):
                    yield item
