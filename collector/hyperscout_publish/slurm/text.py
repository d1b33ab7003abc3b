"""Slurm's topology formats: topology.conf (tree and block) and topology.yaml (Slurm 25.05).

Formats: topology.conf(5) and topology.yaml(5). Switch and block names are HyperNode names.
A host that only a GUID identifies is no Slurm node: it is left out, unless `unnamed` is set.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from hyperscout_formats.text.host_list import fold, natural_key
from hyperscout_topology.gaps import named_only, single_host_domains, unnamed_hosts
from hyperscout_topology.names import are_slurm_names, is_slurm_name, left_out, scalar
from hyperscout_topology.topology import Topology

from hyperscout_publish.slurm.blocks import Block, BlockPlan, with_gaps, without_gaps

_NO_TOPOLOGY = "no-topology"  # no HyperNode is called so: their names end with a hash
_WHY = "because these are not valid names in Slurm"
_UNNAMED = "because no source names these hosts"
_NO_BLOCK = "because no accelerator fabric joins them to another host"


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """`unnamed`: keep hosts that only a GUID identifies. `block_sizes`: as in BlockSizes; () = find them.

    `single_hosts`: keep accelerator domains of one host as switches and blocks. `dynamic`: topology.yaml
    names no node, because each node says itself where it belongs.
    """

    unnamed: bool = False
    block_sizes: tuple[int, ...] = ()
    single_hosts: bool = True
    dynamic: bool = False


DEFAULTS = SlurmOptions()


@dataclass(frozen=True, slots=True)
class Switch:
    """A line of topology/tree: a switch above nodes, or above other switches."""

    name: str
    nodes: Sequence[str] = ()
    children: Sequence[str] = ()


def slurm_tree(topology: Topology, options: SlurmOptions = DEFAULTS) -> Iterator[str]:
    """Yield topology.conf for topology/tree: one line per HyperNode, leaves first."""
    topology, notes = writable(topology, options)
    yield from notes
    for switch in switches(topology, options):
        below = f"Switches={fold(switch.children)}" if switch.children else f"Nodes={fold(switch.nodes)}"
        yield f"SwitchName={switch.name} {below}\n"


def slurm_block(topology: Topology, options: SlurmOptions = DEFAULTS) -> Iterator[str]:
    """Yield topology.conf for topology/block: one line per tier-1 HyperNode, siblings together."""
    topology, notes = writable(topology, options)
    yield from notes
    plan = block_plan(topology, options, gaps=False)
    if plan.blocks and options.block_sizes and plan.sizes != options.block_sizes:
        yield f"# The given sizes are not used: all blocks have fewer than {options.block_sizes[0]} nodes\n"
    if alone := _alone(topology, options):
        yield from left_out(sorted(alone.values(), key=natural_key), _NO_BLOCK)
    if plan.too_small:
        yield from left_out(plan.too_small, f"because their blocks have fewer than {plan.sizes[0]} nodes")
    for name, nodes in plan.blocks:
        yield f"BlockName={name} Nodes={fold(nodes)}\n"
    if plan.blocks:
        yield f"BlockSizes={','.join(map(str, plan.sizes))}\n"


def slurm_yaml(topology: Topology, options: SlurmOptions = DEFAULTS) -> Iterator[str]:
    """Yield topology.yaml: the tree as the cluster's default; blocks and flat for partitions that ask."""
    topology, notes = writable(topology, options)
    yield from () if options.dynamic else notes
    plan = block_plan(topology, options, gaps=True)
    if not plan.blocks:
        yield "[]\n"
        return
    yield "- topology: tree\n  cluster_default: true\n  tree:\n    switches:\n"
    for switch in switches(topology, options):
        yield f"    - switch: {scalar(switch.name)}\n"
        if switch.children:
            yield f"      children: {scalar(fold(switch.children))}\n"
        elif not options.dynamic:
            yield _nodes(switch.nodes)
    yield "- topology: block\n  cluster_default: false\n  block:\n    block_sizes:\n"
    for size in plan.sizes:
        yield f"    - {size}\n"
    yield "    blocks:\n"
    for name, nodes in plan.blocks:
        yield f"    - block: {scalar(name)}\n{_nodes(nodes) if nodes and not options.dynamic else ''}"
    yield "- topology: flat\n  cluster_default: false\n  flat: true\n"


def is_empty(topology: Topology, options: SlurmOptions = DEFAULTS) -> bool:
    """Return whether these files would contain no node of the hierarchy."""
    return not _blocks(writable(topology, options)[0], ())


def writable(topology: Topology, options: SlurmOptions) -> tuple[Topology, list[str]]:
    """Return what is written, and comment lines that name the hosts that are left out."""
    out = () if options.unnamed else unnamed_hosts(topology)
    topology = named_only(topology) if out else topology
    odd = _other_names(topology)
    if odd:
        hypernodes = (
            h if h.children else replace(h, nodes=_slurm_names(h.nodes)) for h in topology.hypernodes
        )
        unseen = _slurm_names(topology.nodes_without_evidence)
        topology = replace(topology, hypernodes=tuple(hypernodes), nodes_without_evidence=unseen)
    return topology, [*left_out(out, _UNNAMED), *left_out(odd, _WHY)]


def block_plan(topology: Topology, options: SlurmOptions, *, gaps: bool) -> BlockPlan:
    """Return the blocks of `writable`. `gaps`: whether Slurm accepts blocks below the base size."""
    plan = with_gaps if gaps else without_gaps
    blocks = _blocks(topology, _alone(topology, options))
    return plan(blocks, {h.name: h.parent for h in topology.hypernodes}, options.block_sizes)


def switches(topology: Topology, options: SlurmOptions = DEFAULTS) -> Iterator[Switch]:
    """Yield the lines of topology/tree, leaves first, without empty ones.

    Slurm refuses a switch above nodes and switches. So without `single_hosts`, the hosts of such domains are
    under a switch of their own, NAME-hosts, if the domain above has other switches too.

    Nodes without evidence that are in no domain are under a switch of their own, without a parent: Slurm puts
    no job on a node below no switch, and none on nodes below switches that no switch connects.
    """
    written: set[str] = set()
    alone = _alone(topology, options)
    names = {h.name for h in topology.hypernodes}
    for hypernode in sorted(topology.hypernodes, key=lambda h: (h.tier, natural_key(h.name))):
        if hypernode.name in alone:
            continue
        nodes: Sequence[str] = () if hypernode.children else hypernode.nodes
        children = [child for child in hypernode.children if child in written]
        if direct := [alone[child] for child in hypernode.children if child in alone]:
            if children:
                children.append(_hosts_of(hypernode.name, names))
                yield Switch(children[-1], direct)
            else:
                nodes = direct
        if nodes or children:
            written.add(hypernode.name)
            yield Switch(hypernode.name, nodes, children)
    if topology.nodes_without_evidence:
        placed = set(chain.from_iterable(h.nodes for h in topology.hypernodes if not h.children))
        if apart := [n for n in topology.nodes_without_evidence if n not in placed]:
            yield Switch(_NO_TOPOLOGY, apart)


def _hosts_of(name: str, taken: Collection[str]) -> str:
    found = f"{name}-hosts"
    while found in taken:
        found += "-"
    return found


def _nodes(nodes: Sequence[str]) -> str:
    return f"      nodes: {scalar(fold(nodes))}\n"


def _other_names(topology: Topology) -> list[str]:
    nodes = list(chain.from_iterable(h.nodes for h in topology.hypernodes if not h.children))
    nodes += topology.nodes_without_evidence
    return [] if are_slurm_names(nodes) else sorted({n for n in nodes if not is_slurm_name(n)})


def _slurm_names(nodes: tuple[str, ...]) -> tuple[str, ...]:
    return nodes if are_slurm_names(nodes) else tuple(n for n in nodes if is_slurm_name(n))


def _alone(topology: Topology, options: SlurmOptions) -> dict[str, str]:
    """Return the host of each domain that is left out, by name. `topology`: of `writable`."""
    out = {} if options.single_hosts else single_host_domains(topology)
    return {h.name: h.nodes[0] for h in topology.hypernodes if h.name in out}


def _blocks(topology: Topology, without: Collection[str]) -> list[Block]:
    """Return the HyperNodes without children and their nodes, in the order of a walk through the tree.

    `topology`: of `writable`. `without`: names of those that are left out.
    """
    by_name = {h.name: h for h in topology.hypernodes}
    found: list[Block] = []
    stack = sorted((h.name for h in topology.hypernodes if h.parent is None), key=natural_key, reverse=True)
    while stack:
        hypernode = by_name.get(stack.pop())
        if hypernode is None:
            continue
        if hypernode.children:
            stack += sorted(hypernode.children, key=natural_key, reverse=True)
        elif hypernode.nodes and hypernode.name not in without:
            found.append((hypernode.name, hypernode.nodes))
    return found
