"""Run the steps of inference in order, and assemble the result as a `Topology`."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.text.counts import count
from hyperscout_topology.memo import memoized, positions, switches_by_id
from hyperscout_topology.topology import (
    Adapter,
    Anomaly,
    Endpoint,
    HyperNode,
    Link,
    LinkTable,
    Rate,
    Switch,
    Topology,
    undamped,
)

from hyperscout_inference.audit.cabling import audit_cables
from hyperscout_inference.audit.erroring import erroring_links
from hyperscout_inference.audit.guesses import without_guesses
from hyperscout_inference.audit.ranks import NOWHERE, homes
from hyperscout_inference.audit.rates import MAX_GBPS
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.accelerators import accelerator_domains, with_own_ids
from hyperscout_inference.fabric.foreign import reporting_nodes
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.network import Ints, Network, distinct_places
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.opaque import as_published, with_latency
from hyperscout_inference.grouping.past import former_domains, past_of
from hyperscout_inference.grouping.tiers import Tree, build_tree
from hyperscout_inference.grouping.wiring import shaping_cables, wiring, without_cables
from hyperscout_inference.hierarchy.accelerator_tier import WithAccelerators, with_accelerators
from hyperscout_inference.hierarchy.conditions import with_conditions
from hyperscout_inference.hierarchy.cut_off import with_cut_off
from hyperscout_inference.hierarchy.dead_cables import hosts_without_live_cables, with_dead_cables
from hyperscout_inference.hierarchy.fuse import fuse
from hyperscout_inference.hierarchy.history import (
    hosts_of,
    keepers,
    lost_cables,
    named_since,
    recall,
)
from hyperscout_inference.hierarchy.managed_nvlink import with_managed
from hyperscout_inference.hierarchy.names import name_domains, nodes_by_domain
from hyperscout_inference.hierarchy.unreported import unreported, with_unreported
from hyperscout_inference.labels.labelled import against_wires, with_labels
from hyperscout_inference.measured.measured import measure

_DEFAULT = InferOptions()
_PLACE_OF, _ID_OF = attrgetter("tier", "name"), attrgetter("id")


def infer(
    inputs: FabricInputs, options: InferOptions = _DEFAULT, previous: Topology | None = None
) -> Topology:
    """Infer a topology from all current evidence. Its generation is that of `previous` plus 1.

    The result depends only on the arguments, and not on the order of the evidence.
    """
    return with_conditions(infer_without_conditions(inputs, options, previous))


def infer_without_conditions(
    inputs: FabricInputs, options: InferOptions = _DEFAULT, previous: Topology | None = None
) -> Topology:
    """Infer a topology whose HyperNodes have no conditions. A collector knows more facts, and adds them."""
    damped = previous
    if previous is not None:
        current = (x for x in previous.anomalies if not x.is_over)  # the others are shown a while longer
        previous = replace(previous, anomalies=tuple(map(undamped, current)))
    gpus = with_own_ids(inputs.gpus, previous)
    gpus, disagreements = with_managed(gpus, inputs.managed_gpus, options.cluster_nodes)
    # A label may repeat what the driver reports, so it confirms no agent.
    managed = inputs.managed_gpus.keys() | (inputs.labelled_gpus.keys() - gpus.keys())
    # A label may be coarser than the cliques of the driver, so a difference is no fault.
    gpus, _ = with_managed(gpus, inputs.labelled_gpus, options.cluster_nodes, share=0.5)
    inputs = replace(inputs, gpus=gpus)
    net = present = fuse(inputs, options, previous)
    links = _links(net)
    former = former_domains(previous)
    if previous is not None:
        lost = lost_cables(previous, links)
        net = with_dead_cables(present, lost, previous, former)
    past, shaping = past_of(net.hosts, former), shaping_cables(net)
    wires = wiring(shaping)
    tree = build_tree(wires, past, options.cluster_nodes)
    level, layers = tree.level, list(tree.layers)
    suspicions = without_guesses(
        net, audit_cables(net, shaping, wires, tree, inputs.sweeps), inputs, previous
    )
    suspicions += _no_trees(net, layers, tree.side_by_side)
    suspicions += erroring_links(present, level, layers, inputs, damped)
    if inputs.labels:
        suspicions += against_wires(net, layers, inputs.labels)
        layers = with_labels(net, layers, inputs.labels)
    if not options.latency_places:
        layers = as_published(net, layers, past)
    elif len(inputs.pairs):
        layers = with_latency(net, layers, inputs.pairs, past)
    found = accelerator_domains(inputs.gpus)
    found = replace(found, faults=[*found.faults, *disagreements], managed=frozenset(managed))
    devices = without_cables(wires)
    family = with_accelerators(devices, tuple(layers), found, past, options.cluster_nodes)
    layers = list(family.layers)
    suspicions = [_moved(s, family) for s in suspicions] + [*family.suspicions]
    suspicions += [s for s in family.without_gpus if inputs.is_heard(s.subject.name)]
    measured = measure(net.hosts, layers, inputs.pairs, inputs.nccl)
    suspicions += measured.suspicions
    wanted = np.ones(len(net.hosts), np.bool_)
    if options.cluster_nodes is not None:
        wanted = np.fromiter((host in options.cluster_nodes for host in net.hosts), np.bool_, len(net.hosts))
    names, domains = _domains(devices, tuple(layers), former, wanted)
    placed = (layers[0].domain >= 0) & wanted
    hypernodes = measured.on(domains, names)
    expected = options.cluster_nodes
    if expected is None:
        seen = reporting_nodes(inputs, options), list(inputs.pairs.nodes), list(inputs.labels)
        expected = _expected(wires, tree, former, *seen)
    absent = _unplaced(expected, net.hosts, placed)
    if layers[0].name not in KINDS:
        absent |= (hosts_without_live_cables(net, present) & expected) - inputs.labels.keys()
    if absent:
        absent -= named_since(present, absent)
    if previous is not None:
        hypernodes = with_cut_off(hypernodes, previous, absent, positions(present.ids))
    published = {h.name for h in hypernodes}
    anomalies = _anomalies(net, layers, family.outer, names, published, suspicions)
    anomalies = _by_host(anomalies, hypernodes)
    switches = _switches(net.ids, net.names, net.is_switch, level)
    if previous is not None:
        unknown = unreported(lost, inputs, previous)
        lost = sorted(set(lost).difference(unknown))
        if unknown:
            # Their reporters have been silent since a take-over: these hosts are not absent. Cables of hosts
            # that left the cluster are forgotten.
            host_of, ids = hosts_of(previous), switches_by_id(previous.switches)
            hosts = {x: {host_of.get(d, d) for d in x.devices if d not in ids} for x in unknown}
            unknown = [x for x in unknown if hosts[x] <= expected]
            links, switches = with_unreported(links, switches, unknown, previous)
            absent -= frozenset().union(*(hosts[x] for x in unknown))
        tiers = {h.name: h.tier for h in hypernodes}
        anomalies = recall(present, anomalies, lost, previous, former, published, tiers, unknown)
    outside = {net.names[i] for i in np.flatnonzero(~net.is_switch & (net.host < 0)).tolist()}
    return Topology(
        generation=previous.generation + 1 if previous else 1,
        hypernodes=tuple(sorted(hypernodes, key=_PLACE_OF)),
        switches=tuple(sorted(switches, key=_ID_OF)),
        adapters=_adapters(present.ids, present.hosts, present.host, present.labels, found.adapters),
        links=links,
        anomalies=tuple(sorted(anomalies, key=lambda x: (x.key, x.message))),
        nodes_without_evidence=tuple(sorted(absent)),
        foreign_endpoints=tuple(sorted(outside | {net.hosts[h] for h in tree.foreign})),
        tiers=measured.as_tiers(layers),
    )


@memoized
def _expected(
    net: Network, tree: Tree, former: tuple[HyperNode, ...], *seen: Collection[str]
) -> frozenset[str]:
    """Return the expected nodes where no list of the cluster's nodes is given: all hosts that a source names
    or that were published, without foreign ones."""
    published = (h.nodes for h in former if h.tier == 1)
    named = _chosen(net.hosts, ~net.unclaimed)
    return frozenset().union(*published, *seen, named).difference(net.hosts[h] for h in tree.foreign)


@memoized
def _unplaced(
    expected: frozenset[str], hosts: Sequence[str], placed: npt.NDArray[np.bool_]
) -> frozenset[str]:
    """Return the expected nodes that are in no domain. `placed`: (hosts,) whether each is in one."""
    return expected.difference(_chosen(hosts, placed))


def _chosen(hosts: Sequence[str], mask: npt.NDArray[np.bool_]) -> Sequence[str]:
    return hosts if mask.all() else [hosts[h] for h in np.flatnonzero(mask).tolist()]


def _no_trees(net: Network, layers: Sequence[Layer], domains: Iterable[int]) -> list[Suspicion]:
    """Return a note on each domain of the last layer whose leaves are joined side by side."""
    found = []
    of_first = np.arange(layers[0].count)  # the domain of the last layer that each domain of tier 1 is in
    for layer in layers[1:]:
        of_first = layer.child[of_first]
    for domain in domains:
        inside = np.flatnonzero(of_first == domain).tolist()
        switches = sorted({s for d in inside for s in layers[0].switches[d]})
        between = np.isin(net.a, switches) & np.isin(net.b, switches) & (net.a != net.b)
        cables = count(int(np.count_nonzero(between)), "cable")
        text = (
            f"the switches form no tree: {len(switches)} switches with hosts are joined side by side by "
            f"{cables}, and no switch is above them; they are one domain"
        )
        last = len(layers) - 1
        found.append(
            Suspicion("NotATree", net.end(switches[0]), None, last, domain, 0.9, text, net.all_sources)
        )
    return found


def _moved(suspicion: Suspicion, family: WithAccelerators) -> Suspicion:
    """Return the suspicion with the present place of its domain."""
    layer, domain = family.moved((suspicion.layer, suspicion.domain))
    return replace(suspicion, layer=layer, domain=domain)


@memoized
def _domains(
    net: Network, layers: tuple[Layer, ...], former: tuple[HyperNode, ...], wanted: npt.NDArray[np.bool_]
) -> tuple[list[list[str]], list[HyperNode]]:
    """Return the names of all domains, by layer and index, and the domains with wanted hosts."""
    names = name_domains(net, layers, former, wanted)
    return names, _hypernodes(net, layers, names, wanted)


def _hypernodes(
    net: Network,
    layers: Sequence[Layer],
    names: list[list[str]],
    wanted: npt.NDArray[np.bool_],
) -> list[HyperNode]:
    nodes = [nodes_by_domain(net, layer, wanted) for layer in layers]
    children: list[list[list[str]]] = [[[] for _ in range(layer.count)] for layer in layers]
    parents: list[list[str | None]] = [[None] * layer.count for layer in layers]
    for depth, layer in enumerate(layers[1:], 1):
        for child, domain in enumerate(layer.child.tolist()):
            if nodes[depth - 1][child]:
                children[depth][domain].append(names[depth - 1][child])
                parents[depth - 1][child] = names[depth][domain]
    return [
        HyperNode(
            names[depth][d],
            depth + 1,
            layer.name,
            parents[depth][d],
            tuple(sorted(children[depth][d])),
            nodes[depth][d],
            tuple(net.ids[s] for s in layer.switches[d]),
            source=_source(layer, d),
            confidence=round(layer.confidence.get(d, 1.0), 2),
        )
        for depth, layer in enumerate(layers)
        for d in range(layer.count)
        if nodes[depth][d]
    ]


def _source(layer: Layer, domain: int) -> str:
    if layer.kinds:
        return layer.kinds[domain]
    if domain in layer.labelled:
        return "labels"
    return "latency" if domain in layer.confidence else "wires"


def _anomalies(
    net: Network,
    layers: list[Layer],
    outer: int,
    names: list[list[str]],
    published: set[str],
    suspicions: list[Suspicion],
) -> list[Anomaly]:
    result = []
    for s in suspicions:
        name = names[s.layer][s.domain] if s.layer >= 0 and s.domain >= 0 else None
        if name not in published:
            name = None
        tier = s.layer + 1 if name is not None else None
        result.append(
            Anomaly(
                s.kind,
                s.subject,
                s.peer,
                tier,
                s.sources,
                s.confidence,
                s.message,
                name,
                nodes=s.nodes,
                figures=s.figures,
                clears_ns=s.clears_ns,
            )
        )
    if not net.anomalies:
        return result
    at = {ident: i for i, ident in enumerate(net.ids)}
    home = homes(layers)
    nodes = frozenset(net.hosts)

    def place(end: Endpoint) -> tuple[int, int]:
        device = at.get(end.device)
        if device is None:
            return NOWHERE
        if (host := int(net.host[device])) >= 0:
            return (outer, int(layers[outer].domain[host]))
        return home.get(device, NOWHERE)

    for x in net.anomalies:
        # The report of a host that contradicts others does not count against the domain of the switch.
        ends = (x.subject,) if x.peer is None or x.subject.name in nodes else (x.subject, x.peer)
        places = [p for end in ends if (p := place(end))[1] >= 0]
        layer, domain = min(places, default=NOWHERE)
        name = names[layer][domain] if domain >= 0 and names[layer][domain] in published else None
        result.append(replace(x, hypernode=name, tier=layer + 1 if name else None))
    return result


@memoized
def _switches(
    ids: Sequence[str], names: Sequence[str], is_switch: npt.NDArray[np.bool_], level: Ints
) -> list[Switch]:
    return [Switch(ids[i], names[i], int(level[i])) for i in np.flatnonzero(is_switch).tolist()]


@memoized
def _adapters(
    ids: Sequence[str],
    hosts: Sequence[str],
    host: Ints,
    labels: Sequence[str],
    more: tuple[Adapter, ...],
) -> tuple[Adapter, ...]:
    rows = np.flatnonzero(host >= 0).tolist()
    nodes = [hosts[h] for h in host[rows].tolist()]
    columns = [ids[i] for i in rows], nodes, [labels[i] for i in rows]
    return (*map(Adapter._make, zip(*columns, strict=True)), *more)


def _by_host(anomalies: list[Anomaly], hypernodes: list[HyperNode]) -> list[Anomaly]:
    """Count anomalies without a domain against the domain of their host."""
    if all(x.hypernode is not None for x in anomalies):
        return anomalies
    keeper = keepers(hypernodes)
    return [
        replace(x, hypernode=keeper[x.subject.name].name, tier=keeper[x.subject.name].tier)
        if x.hypernode is None and x.subject.name in keeper
        else x
        for x in anomalies
    ]


def _links(net: Network) -> Sequence[Link]:
    both = np.concatenate([net.a_port, net.b_port]).astype(np.intp)
    used = np.zeros(int(both.max(initial=0)) + 1, np.bool_)
    used[both] = True
    ports = np.flatnonzero(used)
    index = (np.cumsum(used, dtype=np.int32) - 1).take(both)
    # Cables with the same rate follow each other.
    gbps, width = net.rate_gbps, net.width
    differs = (gbps[1:] != gbps[:-1]) | (width[1:] != width[:-1])
    starts = np.flatnonzero(np.concatenate([[True], differs])[: len(gbps)])
    pairs, pair = distinct_places(gbps[starts].view(np.uint32).astype(np.int64) << 8 | width[starts])
    rates = (pairs >> 8).astype(np.uint32).view(np.float32)
    mbps = np.round(np.where(rates < MAX_GBPS, rates, 0).astype(np.float64) * 1000).astype(np.int64)
    codes, code = distinct_places(mbps << 8 | (pairs & 0xFF))
    return LinkTable(
        net.ids,
        [net.port_text(p) or "" for p in ports.tolist()],
        net.fabrics,
        net.source_sets,
        [Rate((x >> 8) / 1000, x & 0xFF) for x in codes.tolist()],
        net.a,
        index[: len(net.a)],
        net.b,
        index[len(net.a) :],
        net.fabric,
        net.sources,
        np.repeat(code.astype(np.int32)[pair], np.diff(starts, append=len(net.a))),
        net.notes,
    )
