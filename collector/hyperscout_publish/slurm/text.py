"""Slurm's topology formats: topology.conf (tree and block) and topology.yaml (Slurm 25.05).

Formats: topology.conf(5) and topology.yaml(5). Switch and block names are HyperNode names.
A host that only a GUID identifies is no Slurm node: it is left out, unless `unnamed` is set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from hyperscout_formats.text.host_list import fold
from hyperscout_topology.gaps import named_only, unnamed_hosts
from hyperscout_topology.names import are_slurm_names, is_slurm_name, left_out, scalar
from hyperscout_topology.topology import HyperNode, Topology

_MAX_DOUBLINGS = 15  # Slurm supports block sizes up to 2**15 times the base
_WHY = "because these are not valid names in Slurm"
_UNNAMED = "because no source names these hosts"


def slurm_tree(topology: Topology, *, unnamed: bool = False) -> Iterator[str]:
    """Yield topology.conf for topology/tree: one line per HyperNode, leaves first."""
    topology, notes = _writable(topology, unnamed=unnamed)
    yield from notes
    for hypernode, nodes, children in _switches(topology):
        below = f"Switches={fold(children)}" if children else f"Nodes={fold(nodes)}"
        yield f"SwitchName={hypernode.name} {below}\n"


def slurm_block(topology: Topology, *, unnamed: bool = False) -> Iterator[str]:
    """Yield topology.conf for topology/block: one line per tier-1 HyperNode, siblings together."""
    topology, notes = _writable(topology, unnamed=unnamed)
    yield from notes
    blocks = list(_blocks(topology))
    for hypernode, nodes in blocks:
        yield f"BlockName={hypernode.name} Nodes={fold(nodes)}\n"
    if blocks:
        yield f"BlockSizes={','.join(str(size) for size in block_sizes(topology))}\n"


def slurm_yaml(topology: Topology, *, unnamed: bool = False) -> Iterator[str]:
    """Yield topology.yaml: the tree as the cluster's default, and the blocks for partitions that use them."""
    topology, notes = _writable(topology, unnamed=unnamed)
    yield from notes
    blocks = list(_blocks(topology))
    if not blocks:
        yield "[]\n"
        return
    yield "- topology: tree\n  cluster_default: true\n  tree:\n    switches:\n"
    for hypernode, nodes, children in _switches(topology):
        yield f"    - switch: {scalar(hypernode.name)}\n"
        yield f"      children: {scalar(fold(children))}\n" if children else _nodes(nodes)
    yield "- topology: block\n  cluster_default: false\n  block:\n    block_sizes:\n"
    for size in block_sizes(topology):
        yield f"    - {size}\n"
    yield "    blocks:\n"
    for hypernode, nodes in blocks:
        yield f"    - block: {scalar(hypernode.name)}\n{_nodes(nodes)}"


def is_empty(topology: Topology, *, unnamed: bool = False) -> bool:
    """Return whether these files would contain no node."""
    return next(_blocks(topology if unnamed else named_only(topology)), None) is None


def _writable(topology: Topology, *, unnamed: bool) -> tuple[Topology, list[str]]:
    """Return what is written, and comment lines that name the hosts that are left out."""
    out = () if unnamed else unnamed_hosts(topology)
    topology = named_only(topology) if out else topology
    odd = _unholdable(topology)
    if odd:
        hypernodes = (h if h.children else replace(h, nodes=_holdable(h)) for h in topology.hypernodes)
        topology = replace(topology, hypernodes=tuple(hypernodes))
    return topology, [*left_out(out, _UNNAMED), *left_out(odd, _WHY)]


def block_sizes(topology: Topology) -> tuple[int, ...]:
    """Return the base size, which every block reaches, then larger sizes: the base times powers of two.

    Slurm builds a larger block from 2**k consecutive blocks. The size for a tier is the largest one with
    blocks that never cross the boundary of a domain of that tier; 2**k blocks need not fill the last domain.
    """
    blocks = list(_blocks(topology))
    if not blocks:
        return ()
    base = min(len(nodes) for _, nodes in blocks)
    parent = {h.name: h.parent for h in topology.hypernodes}
    lineage: list[str | None] = [h.name for h, _ in blocks]
    sizes = [base]
    while any(lineage):
        lineage = [parent.get(name) if name else None for name in lineage]
        if any(lineage):
            doublings = _doublings(lineage)
            if base << doublings > sizes[-1]:
                sizes.append(base << doublings)
    return tuple(sizes)


def _doublings(domains: Sequence[str | None]) -> int:
    """Return the largest needed k such that no aligned run of 2**k blocks spans two domains."""
    longest = best = 0
    start = 0
    edges = []
    for i in range(1, len(domains) + 1):
        if i == len(domains) or domains[i] != domains[start] or domains[i] is None:
            longest = max(longest, i - start)
            start = i
            edges.append(i)
    inner = edges[:-1]
    while best < _MAX_DOUBLINGS and 1 << best < longest and not any(e % (2 << best) for e in inner):
        best += 1
    return best


def _nodes(nodes: Sequence[str]) -> str:
    return f"      nodes: {scalar(fold(nodes))}\n"


def _unholdable(topology: Topology) -> list[str]:
    nodes = list(chain.from_iterable(h.nodes for h in topology.hypernodes if not h.children))
    return [] if are_slurm_names(nodes) else sorted({n for n in nodes if not is_slurm_name(n)})


def _holdable(hypernode: HyperNode) -> tuple[str, ...]:
    if are_slurm_names(hypernode.nodes):
        return hypernode.nodes
    return tuple(n for n in hypernode.nodes if is_slurm_name(n))


def _switches(topology: Topology) -> Iterator[tuple[HyperNode, Sequence[str], Sequence[str]]]:
    """Yield (HyperNode, its nodes, its children) of what is written, leaves first, without empty ones."""
    written: set[str] = set()
    for hypernode in sorted(topology.hypernodes, key=lambda h: (h.tier, h.name)):
        nodes = () if hypernode.children else hypernode.nodes
        children = [child for child in hypernode.children if child in written]
        if nodes or children:
            written.add(hypernode.name)
            yield hypernode, nodes, children


def _blocks(topology: Topology) -> Iterator[tuple[HyperNode, Sequence[str]]]:
    """Yield the HyperNodes without children and their nodes, in the order of a walk through the tree."""
    by_name = {h.name: h for h in topology.hypernodes}
    stack = sorted((h for h in topology.hypernodes if h.parent is None), key=lambda h: h.name, reverse=True)
    while stack:
        hypernode = stack.pop()
        if not hypernode.children:
            if nodes := _holdable(hypernode):
                yield hypernode, nodes
            continue
        stack.extend(by_name[c] for c in sorted(hypernode.children, reverse=True) if c in by_name)
