"""From a simulated fabric to what inference says of it, and how to compare that with the truth."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.fabric.faults import PlantedFault
from hyperscout_sim.readings.sweep_text import sweep_text, sweep_texts
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.topology import Anomaly, Topology

Tiers = list[set[frozenset[str]]]


def inputs_of(fabric: SimFabric) -> FabricInputs:
    """What sweeps of all parts of the fabric see."""
    texts = sweep_texts(fabric)
    return FabricInputs(sweeps=tuple(SweepSeen(parse(text, f"plane-{i}")) for i, text in enumerate(texts)))


def inferred(
    fabric: SimFabric, previous: Topology | None = None, nodes: Iterable[str] | None = None
) -> Topology:
    """Inference over those sweeps."""
    options = InferOptions(cluster_nodes=None if nodes is None else frozenset(nodes))
    return infer(inputs_of(fabric), options, previous)


def without_hosts(fabric: SimFabric, hosts: Collection[str]) -> SimFabric:
    """The fabric without these hosts and without the leaves that serve no other host."""
    adapters = {x.guid for x in fabric.adapters if x.host in hosts}
    cables = [c for c in fabric.cables if c.a not in adapters]
    serving = {c.b for c in cables if c.a in fabric.node_map()}
    bare = {s.guid for s in fabric.switches if s.level == 1 and s.guid not in serving}
    return replace(
        fabric,
        switches=tuple(s for s in fabric.switches if s.guid not in bare),
        adapters=tuple(x for x in fabric.adapters if x.host not in hosts),
        cables=tuple(c for c in cables if c.a not in bare),
    )


def tiers(topology: Topology) -> Tiers:
    """The domains of each tier as sets of nodes."""
    found: dict[int, set[frozenset[str]]] = {}
    for h in topology.hypernodes:
        found.setdefault(h.tier, set()).add(frozenset(h.nodes))
    return [found[tier] for tier in sorted(found)]


def disagreements(topology: Topology) -> list[Anomaly]:
    return [x for x in topology.anomalies if x.kind == "SourcesDisagree"]


def truth(fabric: SimFabric, without: Iterable[str] = ()) -> Tiers:
    """The domains that should come out, less some hosts."""
    gone = frozenset(without)
    return [{domain - gone for domain in tier} - {frozenset()} for tier in fabric.truth.tiers]


def cut_off(fabric: SimFabric) -> set[str]:
    """Hosts without a cable."""
    wired = {cable.a for cable in fabric.cables}
    of_host = fabric.adapters_of()
    return {host for host in fabric.hosts if not any(x.guid in wired for x in of_host[host])}


class Namer:
    """Anomalies of a healthy fabric's faulty copy, by the hosts and switches at their ends."""

    def __init__(self, fabric: SimFabric) -> None:
        self.fabric = fabric
        self.host_of = {x.guid: x.host for x in fabric.adapters}

    def ends(self, anomaly: Anomaly) -> frozenset[object]:
        found: set[object] = set()
        for end in (anomaly.subject, anomaly.peer):
            if end is not None:
                try:
                    guid = int(end.device, 16)
                    found.add(self.host_of.get(guid, guid))
                except ValueError:
                    found.add(end.device)
        return frozenset(found)

    def pairs(self, fault: PlantedFault) -> set[frozenset[object]]:
        """The ends that an anomaly about the fault may name."""
        return {frozenset(self.host_of.get(guid, guid) for guid in pair) for pair in fault.pairs()}

    def names(self, anomaly: Anomaly, fault: PlantedFault) -> bool:
        """Whether the anomaly is about the fault."""
        if anomaly.kind not in fault.kinds:
            return False
        if anomaly.kind == "MissingSwitch":
            known = {s.guid: s.name for s in self.fabric.switches}[fault.switch or 0]
            return anomaly.subject.name in (known, f"level-{self.fabric.levels()[fault.switch or 0]} switch")
        if anomaly.kind == "UnknownHost":
            return int(anomaly.subject.device, 16) in fault.adapters
        return self.ends(anomaly) in self.pairs(fault)


def without_switch(fabric: SimFabric, guid: int) -> SimFabric:
    """The fabric after a switch and its cables were removed."""
    return replace(
        fabric,
        switches=tuple(s for s in fabric.switches if s.guid != guid),
        cables=tuple(c for c in fabric.cables if guid not in (c.a, c.b)),
    )


def sweep(fabric: SimFabric, at: int = 0, source: str = "ibnetdiscover") -> SweepSeen:
    """What one sweep sees, at a time in ns."""
    return SweepSeen(parse(sweep_text(fabric)), source, observed_at_ns=at)


def without(fabric: SimFabric, *cables: Cable) -> SimFabric:
    return replace(fabric, cables=tuple(c for c in fabric.cables if c not in cables))


def own_ports(fabric: SimFabric, host: str, down: Cable | None = None) -> tuple[InfinibandPort, ...]:
    """What the agent of a host reports. `down`: its cable without a signal."""
    cable_of = {c.a: c for c in fabric.cables}
    return tuple(
        port_facts(x, None if cable_of.get(x.guid) == down else cable_of.get(x.guid))
        for x in fabric.adapters_of()[host]
    )
