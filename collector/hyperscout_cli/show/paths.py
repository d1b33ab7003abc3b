"""How two nodes of a saved topology are connected; a collector answers the same from its evidence."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from hyperscout_collector.serve.grpc.measured import sayings
from hyperscout_topology.objects import device_names, domains_of, owners
from hyperscout_topology.topology import Link, Topology

from hyperscout_cli.shared.errors import CliError


@dataclass(frozen=True, slots=True)
class Hop:
    """One cable, walked from the device `near`."""

    link: Link
    near: str

    @property
    def far(self) -> str:
        """The device that it leads to."""
        return self.link.b_device if self.near == self.link.a_device else self.link.a_device


def explained(topology: Topology, node_a: str, node_b: str) -> list[str]:
    """Sentences, one a line. Raises CliError when a node is not there."""
    domains = domains_of(topology)
    for node in (node_a, node_b):
        if node not in domains and node not in topology.nodes_without_evidence:
            raise CliError(f"no node {node!r}: `hyperscout get nodes` lists them")
    chains = [domains.get(node, []) for node in (node_a, node_b)]
    common = next((h for h in chains[0] if h in chains[1]), None)
    if node_a == node_b:
        lines = [f"{node_a} is one node."]
    elif common is None:
        lines = [f"{node_a} and {node_b} share no HyperNode."]
    else:
        where = f"both are in {common.name}, tier {common.tier}"
        lines = [f"{node_a} and {node_b} are {common.tier_name} neighbours: {where}."]
    hops = shortest_path(topology, node_a, node_b)
    if hops:
        names = device_names(topology)
        steps = " = ".join(_step(names, hop) for hop in hops)
        lines.append(f"A shortest path has {len(hops)} cable{'s'[: len(hops) > 1]}: {steps}.")
    elif node_a != node_b and (common is None or common.source == "wires"):
        lines.append("No evidence shows a way between them.")
    if node_a != node_b:
        lines += sayings(topology, common)
    touched = {d for hop in hops for d in (hop.near, hop.far)} | {node_a, node_b}
    for x in topology.anomalies:
        named = {text for e in (x.subject, x.peer) if e for text in (e.device, e.name)}
        if named & touched:
            lines.append(f"{x.kind}: {x.message}")
    return lines


def shortest_path(topology: Topology, node_a: str, node_b: str) -> list[Hop]:
    """The fewest cables, through switches only; [] when there is no way. Same links, same path."""
    switches = {s.id for s in topology.switches}
    at: dict[str, list[Hop]] = {}
    for link in sorted(topology.links):
        at.setdefault(link.a_device, []).append(Hop(link, link.a_device))
        at.setdefault(link.b_device, []).append(Hop(link, link.b_device))
    owner = owners(topology)
    start, goal = ({device for device in at if owner.get(device) == node} for node in (node_a, node_b))
    if start & goal:
        return []
    came: dict[str, Hop | None] = dict.fromkeys(sorted(start))
    queue = deque(came)
    while queue:
        here = queue.popleft()
        if here in goal:
            return _back(came, here)
        if here in switches or here in start:
            for hop in at[here]:
                if hop.far not in came:
                    came[hop.far] = hop
                    queue.append(hop.far)
    return []


def _back(came: dict[str, Hop | None], end: str) -> list[Hop]:
    hops = []
    while (hop := came[end]) is not None:
        hops.append(hop)
        end = hop.near
    return hops[::-1]


def _step(names: Mapping[str, str], hop: Hop) -> str:
    x = hop.link
    near_port, far_port = (x.a_port, x.b_port) if hop.near == x.a_device else (x.b_port, x.a_port)
    near, far = names.get(hop.near, hop.near), names.get(hop.far, hop.far)
    return f"{near} {near_port or '?'} -> {far} {far_port or '?'}"
