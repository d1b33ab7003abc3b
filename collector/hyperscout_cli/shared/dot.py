"""Draws a topology as a graph for Graphviz, in the DOT language (https://graphviz.org/doc/info/lang.html).

Each domain is a cluster within that of its parent. A large graph is simplified: Graphviz would not end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hyperscout_formats.text.counts import count
from hyperscout_formats.text.host_list import fold, natural_key
from hyperscout_topology import objects
from hyperscout_topology.names import visible
from hyperscout_topology.objects import Object
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_cli.shared.columns import shortened

MAX_HOSTS = 1000  # with more, the hosts of a domain are one box
MAX_CLUSTERS = 5000
MAX_BOXES = 10_000
MAX_EDGES = 10_000
_MAX_LABEL = 200  # columns


def dot(topology: Topology, links: Sequence[Object] | None = None) -> Iterator[str]:
    """The graph in lines. `links`: only these, each with its ports, as `objects.links` makes them.

    Without them all domains are drawn, with one edge for all links between the same two devices.
    """
    shown = topology if links is None else _around(topology, links)
    drawing = _Drawing(shown)
    yield "graph hyperscout {\n"
    yield '  graph [rankdir="BT"];\n  node [shape="box"];\n'
    yield from drawing.clusters()
    edges = list(_merged(topology, drawing) if links is None else _each(links, drawing))
    yield from drawing.loose(edges)
    yield from (_edge(*edge) for edge in edges[:MAX_EDGES])
    if left_out := drawing.left_out(len(edges)):
        yield f"  label={_label('left out: ' + left_out)};\n"
    yield "}\n"


Edge = tuple[str, str, Mapping[str, str]]


def _around(topology: Topology, links: Sequence[Object]) -> Topology:
    """The topology with only the devices and domains at these links."""
    ends = [link[side] for link in links for side in ("a", "b")]
    nodes, devices = {end["node"] for end in ends}, {end["device"] for end in ends}
    kept = [
        replace(
            h,
            nodes=tuple(node for node in h.nodes if node in nodes),
            switches=tuple(switch for switch in h.switches if switch in devices),
        )
        for h in topology.hypernodes
    ]
    return replace(topology, hypernodes=tuple(h for h in kept if h.nodes or h.switches), links=())


class _Drawing:
    """The boxes of devices, each in the cluster of its lowest domain."""

    def __init__(self, topology: Topology) -> None:
        self._by_name = {h.name: h for h in topology.hypernodes}
        self._names = objects.device_names(topology)
        self._owner = objects.owners(topology)
        self._box: dict[str, str] = {}  # box by node's name
        self._drawn: set[str] = set()
        self._clusters = 0
        self._left_out = Counter[str]()
        hosts = {node for h in topology.hypernodes for node in h.nodes}
        self._each_host = len(hosts) <= MAX_HOSTS
        self._lowest: dict[str, str] = {}  # domain by switch
        for h in sorted(topology.hypernodes, key=lambda h: (h.tier, natural_key(h.name))):
            for switch in h.switches:
                self._lowest.setdefault(switch, h.name)

    def clusters(self) -> Iterator[str]:
        """The domains, from the roots down, with their devices."""
        roots = [h for h in self._by_name.values() if h.parent not in self._by_name]
        stack: list[tuple[HyperNode | None, int]] = [(h, 1) for h in _in_order(roots)[::-1]]
        while stack:
            domain, depth = stack.pop()
            if domain is None:
                yield "  " * depth + "}\n"
                continue
            if self._clusters == MAX_CLUSTERS:
                self._left_out["domain"] += 1
                continue
            self._clusters += 1
            indent = "  " * depth
            level = f"tier {domain.tier} {domain.tier_name}".strip()
            yield f'{indent}subgraph "cluster_{self._clusters}" {{\n'
            yield f"{indent}  label={_label(f'{domain.name} ({level})')};\n"
            children = [self._by_name[c] for c in domain.children if c in self._by_name]
            yield from (f"{indent}  {line}" for line in self._devices(domain, leaf=not children))
            stack.append((None, depth))
            stack += [(h, depth + 1) for h in _in_order(children)[::-1]]

    def _devices(self, domain: HyperNode, *, leaf: bool) -> Iterator[str]:
        switches = [s for s in domain.switches if self._lowest[s] == domain.name]
        boxes = [(f"device:{s}", self._names.get(s, s), ', style="filled"') for s in switches]
        if leaf and self._each_host:
            self._box.update((node, f"node:{node}") for node in domain.nodes)
            boxes += [(self._box[node], node, "") for node in domain.nodes]
        elif leaf and domain.nodes:
            box = f"nodes:{domain.name}"
            self._box.update(dict.fromkeys(domain.nodes, box))
            boxes.append((box, f"{count(len(domain.nodes), 'node')}: {fold(domain.nodes)}", ""))
        for ident, label, style in sorted(boxes, key=lambda x: (not x[2], natural_key(x[1]))):
            if len(self._drawn) == MAX_BOXES:
                self._left_out["device"] += 1
            else:
                yield self._made(ident, label, style)

    def _made(self, ident: str, label: str, style: str = "") -> str:
        self._drawn.add(ident)
        return f"{_quoted(ident)} [label={_label(label)}{style}];\n"

    def box(self, device: str) -> str:
        """The box of a device: that of its node, or its own."""
        node = self._owner.get(device)
        return self._box.get(node, f"node:{node}") if node is not None else f"device:{device}"

    def loose(self, edges: Sequence[Edge]) -> Iterator[str]:
        """The boxes at the ends of the edges that are in no drawn domain."""
        for a, b, _ in edges[:MAX_EDGES]:
            for ident in (a, b):
                if ident not in self._drawn:
                    name = ident.partition(":")[2]
                    yield "  " + self._made(ident, self._names.get(name, name))

    def left_out(self, edges: int) -> str:
        """What the graph lacks because of its limits; "" = nothing."""
        found = self._left_out + Counter(connection=max(0, edges - MAX_EDGES))
        return ", ".join(count(number, what) for what, number in found.items())


def _merged(topology: Topology, drawing: _Drawing) -> Iterator[Edge]:
    """One edge for all links between two boxes."""
    boxes = ((drawing.box(x.a_device), drawing.box(x.b_device)) for x in topology.links)
    pairs = Counter((min(a, b), max(a, b)) for a, b in boxes)
    for (a, b), links in sorted(pairs.items(), key=lambda x: tuple(map(natural_key, x[0]))):
        yield a, b, {"label": f"{links}x"} if links > 1 else {}


def _each(links: Sequence[Object], drawing: _Drawing) -> Iterator[Edge]:
    for link in links:
        a, b = link["a"], link["b"]
        yield (
            drawing.box(a["device"]),
            drawing.box(b["device"]),
            {"taillabel": a["port"], "headlabel": b["port"]},
        )


def _edge(a: str, b: str, labels: Mapping[str, str]) -> str:
    attributes = ", ".join(f"{name}={_label(text)}" for name, text in labels.items())
    return f"  {_quoted(a)} -- {_quoted(b)}" + (f" [{attributes}];\n" if attributes else ";\n")


def _in_order(domains: Sequence[HyperNode]) -> list[HyperNode]:
    return sorted(domains, key=lambda h: (-h.tier, natural_key(h.name)))


def _quoted(text: str) -> str:
    """A quoted ID. A backslash is doubled: in labels it begins an escape (escString)."""
    return '"' + visible(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _label(text: str) -> str:
    return _quoted(shortened(visible(text), _MAX_LABEL))
