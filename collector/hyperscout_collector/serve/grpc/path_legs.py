"""The legs of a path between two nodes, with their speeds: cables, accelerator fabrics and PCIe."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hyperscout.v1 import topology_pb2 as pb
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.text.counts import count
from hyperscout_topology.figures import digits
from hyperscout_topology.topology import Endpoint, HyperNode, Link, Rate, Topology

from hyperscout_collector.serve.grpc.measured import NodeReport

CABLE, PCIE = "cable", "pcie"  # or a kind of accelerator fabric
_GBITS = 8  # bits per byte


@dataclass(frozen=True, slots=True)
class Hop:
    """One link of a path, in the direction from `near` to `far`."""

    link: Link
    near: Endpoint
    far: Endpoint
    is_up: bool = True


@dataclass(frozen=True, slots=True)
class Path:
    """Hops from one node to another; () = there is no path.

    `is_in_tree`: all links are up, and all switches are in HyperNodes.
    """

    hops: tuple[Hop, ...] = ()
    is_in_tree: bool = False

    def turned(self) -> "Path":
        """The path in the other direction."""
        hops = (replace(hop, near=hop.far, far=hop.near) for hop in reversed(self.hops))
        return replace(self, hops=tuple(hops))


def path_legs(
    topology: Topology,
    chains: Mapping[str, Sequence[HyperNode]],
    common: HyperNode | None,
    path: Path,
    measured_us: Mapping[int, float],
    reports: Sequence[NodeReport],
) -> list[pb.PathLeg]:
    """The legs from a GPU of the first node to one of the second.

    `chains`: the HyperNodes of both nodes, tier 1 first. `measured_us`: the measured one-way latencies by
    tier.

    An accelerator fabric between the nodes is the first leg. The other legs are another way, over one rail.
    Those within a node are of its GPU that is nearest to the adapter of the path, of several the one with the
    lowest address.
    """
    if len(chains) != 2:
        return []
    (node_a, chain_a), (node_b, chain_b) = chains.items()
    gpus_a, gpus_b = (_gpus(node, reports) for node in (node_a, node_b))
    legs: list[pb.PathLeg] = []
    if common is not None and common.source in KINDS:
        legs += _accelerators((node_a, gpus_a), (node_b, gpus_b))
    hops = path.hops
    if not hops:
        return legs
    legs += _within(topology, node_a, hops[0].near, gpus_a)
    top = 0 if common is None else common.tier
    up_us, down_us = (_latencies(chain, top, measured_us) for chain in (chain_a, chain_b))
    shares_us = [*up_us, *reversed(down_us)]
    if len(shares_us) != len(hops) or not path.is_in_tree:
        shares_us = [None] * len(hops)  # the path does not follow the tiers
    for hop, share_us in zip(hops, shares_us, strict=True):
        rate = Rate(hop.link.speed_gbps, hop.link.width) if hop.is_up else Rate()
        leg = _leg(CABLE, hop.near, hop.far, rate.data_gbps)
        leg.speed_gbps, leg.width = rate
        if share_us is not None:
            leg.latency_us = share_us
        legs.append(leg)
    return [*legs, *map(_turned, reversed(_within(topology, node_b, hops[-1].far, gpus_b)))]


def leg_text(leg: pb.PathLeg) -> str:
    """A leg as text: "n01 mlx5_0 1 -> leaf-a 1: 40 Gbit/s, 4 lanes, 32 Gbit/s of data, 1.5 us"."""
    parts = []
    if leg.kind == CABLE:
        near, far = (f"{end.name} {end.port or '?'}" for end in (leg.near, leg.far))
        if leg.speed_gbps:
            parts.append(f"{digits(leg.speed_gbps, 3)} Gbit/s")
        if leg.width:
            parts.append(count(leg.width, "lane"))
        if leg.bandwidth_gbps != leg.speed_gbps:
            parts.append(f"{digits(leg.bandwidth_gbps, 3)} Gbit/s of data")
        if leg.HasField("latency_us"):
            parts.append(f"{digits(leg.latency_us, 3)} us")
    else:
        near, far = (f"{end.name} {end.port}" for end in (leg.near, leg.far))
        parts.append(KINDS[leg.kind].fabric if leg.kind in KINDS else "PCIe")
        if leg.HasField("bandwidth_gbps"):
            parts.append(f"{digits(leg.bandwidth_gbps, 3)} Gbit/s")
    return f"{near} -> {far}" + (f": {', '.join(parts)}" if parts else "")


def _latencies(chain: Sequence[HyperNode], top: int, measured_us: Mapping[int, float]) -> list[float | None]:
    """The share of each cable on the way up to tier `top` in the measured one-way latencies, in us.

    [] = unknown. Over a tier a message crosses two cables more than over the tier below. So the shares of all
    cables of a path add up to the latency of the tier of the lowest common HyperNode.
    """
    tiers = [h.tier for h in chain if h.switches and h.tier <= top]
    one_way_us = [0.0, *(measured_us[tier] for tier in tiers if tier in measured_us)]
    shares = [(high - low) / 2 for low, high in pairwise(one_way_us)]
    return [*shares] if len(shares) == len(tiers) and all(share > 0 for share in shares) else []


def _within(topology: Topology, node: str, end: Endpoint, gpus: Sequence[Gpu]) -> list[pb.PathLeg]:
    """The legs from another GPU over the GPU nearest to the adapter of `end` to that adapter."""
    adapter = {end.port, *(x.name for x in topology.adapters if x.id == end.device)}
    near = next((gpu for gpu in gpus if adapter.intersection(gpu.nearest_nics)), None)
    if near is None:
        return []
    others = [gpu for gpu in gpus if gpu is not near]
    return [*_accelerators((node, others), (node, [near])), _leg(PCIE, _end(node, near), end, near.pcie_gbps)]


def _accelerators(a: tuple[str, Sequence[Gpu]], b: tuple[str, Sequence[Gpu]]) -> Iterator[pb.PathLeg]:
    """The leg between the first GPUs of two nodes, or of one, that links join directly or over a switch."""
    for one in a[1]:
        for other in b[1]:
            direct = [x for x in one.links if x.active and x.remote_pci_address == other.pci_address]
            by_switch = [
                [x for x in gpu.links if x.active and x.remote_type == "switch"] for gpu in (one, other)
            ]
            ways = [direct] if direct and a[0] == b[0] else by_switch
            if all(ways):
                gbps = min(_GBITS * sum(x.gbytes_per_s for x in links) for links in ways)
                yield _leg(one.kind, _end(a[0], one), _end(b[0], other), gbps)
                return


def _gpus(node: str, reports: Sequence[NodeReport]) -> list[Gpu]:
    found = (fact for reporter, fact in reports if reporter == node and isinstance(fact, Gpu))
    return sorted(found, key=lambda gpu: gpu.pci_address)


def _end(node: str, gpu: Gpu) -> Endpoint:
    return Endpoint(node, node, gpu.pci_address)


def _turned(leg: pb.PathLeg) -> pb.PathLeg:
    found = pb.PathLeg(kind=leg.kind, near=leg.far, far=leg.near)
    if leg.HasField("bandwidth_gbps"):
        found.bandwidth_gbps = leg.bandwidth_gbps
    return found


def _leg(kind: str, near: Endpoint, far: Endpoint, gbps: float) -> pb.PathLeg:
    ends = (pb.Endpoint(device=x.device, name=x.name, port=x.port) for x in (near, far))
    return pb.PathLeg(kind=kind, near=next(ends), far=next(ends), bandwidth_gbps=gbps or None)
