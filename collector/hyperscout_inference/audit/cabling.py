"""Audit all cables of the compute fabric against those of their peers, and add those reported as down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from hyperscout_topology.memo import memoized
from hyperscout_topology.topology import say

from hyperscout_inference.audit.host_cabling import HostRank, host_rank, host_suspicions
from hyperscout_inference.audit.missing_switches import missing_switches
from hyperscout_inference.audit.ranks import NOWHERE, Place, Rank, homes
from hyperscout_inference.audit.rates import slow_links
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.audit.switch_cabling import loops, ranks_beside, switch_ranks
from hyperscout_inference.fabric.inputs import SweepSeen
from hyperscout_inference.fabric.network import Network
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.tiers import Tree


@dataclass(frozen=True, slots=True, eq=False)
class _SwitchAudit:
    """`home`: see `homes`. `ranks`: by the lower level. `beside`: see `ranks_beside`."""

    home: dict[int, Place]
    ranks: dict[int, Rank]
    beside: Sequence[Rank]
    found: Sequence[Suspicion]


def audit_cables(
    net: Network, shaping: Network, wires: Network, tree: Tree, sweeps: Sequence[SweepSeen]
) -> list[Suspicion]:
    """Return missing, miswired and slow cables, and missing switches. `shaping`: the cables of the compute
    fabric; `wires`: the wiring of these."""
    level, layers = tree.level, tree.layers
    if not len(net.a):
        return _known_to_be_down(net, layers, homes(layers), [])
    hosts = host_rank(shaping, wires, layers[0])
    switches = _audit_switches(wires, tree, hosts)
    home = switches.home
    found = [*host_suspicions(shaping, level, layers, hosts), *switches.found, *loops(net, home)]
    found += missing_switches(net, wires, level, hosts.rank, switches.ranks, home)
    sources = net.all_sources
    domain = layers[0].domain
    found += slow_links(
        shaping, hosts.rank, domain, lambda adapter: (0, int(domain[net.host[adapter]])), sources, sweeps
    )
    for rank in (*switches.ranks.values(), *switches.beside):
        groups = rank.grouping.group
        found += slow_links(shaping, rank, groups, lambda switch: home.get(switch, NOWHERE), sources, sweeps)
    return _known_to_be_down(net, layers, home, _without_mute_pairs(net, found))


@memoized
def _audit_switches(net: Network, tree: Tree, hosts: HostRank) -> _SwitchAudit:
    home = homes(tree.layers)
    ranks, found = switch_ranks(net, tree.level, tree.layers, home, hosts.rank)
    return _SwitchAudit(home, ranks, ranks_beside(net, tree.level), found)


def _without_mute_pairs(net: Network, found: list[Suspicion]) -> list[Suspicion]:
    """Remove missing cables between two devices that report no cables."""
    if net.mute is None or not any(s.kind == "MissingLink" for s in found):
        return found
    mute = {net.ids[i] for i in np.flatnonzero(net.mute).tolist()}
    return [
        s
        for s in found
        if s.kind != "MissingLink" or s.peer is None or not {s.subject.device, s.peer.device} <= mute
    ]


def _known_to_be_down(
    net: Network, layers: Sequence[Layer], home: Mapping[int, Place], found: list[Suspicion]
) -> list[Suspicion]:
    """Add the links that a source reports as down, which replace inferred missing links of the same ends."""
    guesses = {
        (s.subject.device, s.peer.device): s for s in found if s.kind == "MissingLink" and s.peer is not None
    }
    known: list[Suspicion] = []
    replaced: set[int] = set()
    for lost in net.vanished:
        a, b = (lost.a, lost.a_port), (lost.b, lost.b_port)
        if net.is_switch[a[0]]:
            a, b = b, a
        subject, peer = net.end(*a), net.end(*b)
        host = int(net.host[a[0]])
        place = (0, int(layers[0].domain[host])) if host >= 0 else home.get(a[0], NOWHERE)
        if place[1] < 0:
            place = home.get(b[0], NOWHERE)  # a host without other cables: the domain of its leaf
        own = (subject.device, net.hosts[host] if host >= 0 else "")  # an inferred link may lack the adapter
        replaced |= {id(guesses[end, peer.device]) for end in own if (end, peer.device) in guesses}
        text = f"the link from {say(subject)} to {say(peer)} is down"
        known.append(Suspicion("MissingLink", subject, peer, *place, 1.0, text, (lost.source,)))
    return [s for s in found if id(s) not in replaced] + known
