"""From a simulated cluster of racks to what inference is given, and what it says of NVLink."""

from collections.abc import Mapping, Sequence

from hyperscout_formats.facts.facts import Gpu
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.hierarchy import infer
from hyperscout_sim.fabric.racks import RackCluster
from hyperscout_sim.readings.sysfs import port_facts
from hyperscout_topology.topology import Condition, HyperNode, Topology

from support.inference import Tiers, inputs_of

Told = Mapping[str, Sequence[Gpu]]


def seen(cluster: RackCluster, gpus: Told | None = None, *, wires: bool = True) -> FabricInputs:
    """Sweeps and what the agents of all hosts say. `gpus`: in place of the cluster's."""
    told = {host: tuple(mine) for host, mine in (cluster.gpus if gpus is None else gpus).items()}
    if not wires:
        return FabricInputs(gpus=told)
    cables = {cable.a: cable for cable in cluster.fabric.cables}
    ports = {
        host: tuple(port_facts(adapter, cables.get(adapter.guid)) for adapter in adapters)
        for host, adapters in cluster.fabric.adapters_of().items()
    }
    return FabricInputs(inputs_of(cluster.fabric).sweeps, infiniband=ports, gpus=told)


def inferred_racks(
    cluster: RackCluster,
    gpus: Told | None = None,
    previous: Topology | None = None,
    *,
    nodes: frozenset[str] | None = None,
) -> Topology:
    """Inference over those."""
    return infer(seen(cluster, gpus), InferOptions(cluster_nodes=nodes), previous)


def true_tiers(cluster: RackCluster) -> Tiers:
    return [set(tier) for tier in cluster.tiers]


def changed(cluster: RackCluster, **gpus: Sequence[Gpu]) -> dict[str, Sequence[Gpu]]:
    """What is told when some hosts tell something else."""
    return {**cluster.gpus, **gpus}


def domain_of(topology: Topology, node: str, tier_name: str = "nvlink") -> HyperNode:
    return next(h for h in topology.hypernodes if h.tier_name == tier_name and node in h.nodes)


def condition(hypernode: HyperNode, kind: str) -> Condition:
    return next(c for c in hypernode.conditions if c.type == kind)


def degraded(topology: Topology) -> dict[str, str]:
    """Name -> message of what is Degraded."""
    found = {h.name: condition(h, "Degraded") for h in topology.hypernodes}
    return {name: c.message for name, c in found.items() if c.status == "True"}
