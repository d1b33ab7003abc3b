"""Name missing links and switches by the previous topology, which has their ports and ids."""

import math
from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_topology.link_changes import (
    DENIED,
    links_at,
    lost_links,
    ports_in_use,
    wired_devices,
)
from hyperscout_topology.memo import (
    memoized,
    names_of_adapters,
    nodes_of_adapters,
    positions,
    switches_by_id,
)
from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode, Link, Topology, say

from hyperscout_inference.audit.audit import EITHER
from hyperscout_inference.fabric.inputs import SURE
from hyperscout_inference.fabric.network import Network

Key = tuple[str, str, str, str, str]  # of an anomaly


class LostCable(NamedTuple):
    """A cable that was published, and of which no port is in a present cable."""

    a_device: str
    a_port: str
    b_device: str
    b_port: str
    sources: tuple[str, ...]

    @property
    def devices(self) -> tuple[str, str]:
        return self.a_device, self.b_device

    @property
    def ends(self) -> frozenset[tuple[str, str | None]]:
        """Both ports, as `Anomaly.ends` has them."""
        return frozenset([(self.a_device, self.a_port), (self.b_device, self.b_port)])


def recall(
    net: Network,
    found: list[Anomaly],
    lost: Sequence[LostCable],
    previous: Topology,
    former: tuple[HyperNode, ...],
    published: set[str],
    tiers: dict[str, int],
    unreported: Collection[LostCable],
) -> list[Anomaly]:
    """Return `found` with missing links and switches of the previous topology, which replace inferred ones.

    `former`: see `former_domains`. `published`: names of the present HyperNodes; `tiers`: the tier of each.
    `unreported`: cables whose switches are not missing.
    """
    ids, home, switches = positions(net.ids), _homes(former), switches_by_id(previous.switches)
    there = {device for x in unreported for device in x.devices}
    gone = [x for x in _gone_switches(previous, ids, lost) if x not in there]
    result = _named_switches(found, gone, previous, home, tiers)
    missing = {s.subject.device for s in result if s.kind == "MissingSwitch"}
    host_of = hosts_of(previous)
    adapter_of = ChainMap(
        names_of_adapters(previous.adapters),
        {e.device: e.adapter for x in previous.anomalies for e in (x.subject, x.peer) if e and e.adapter},
    )
    guesses: dict[frozenset[str], list[int]] = {}
    known_ends: set[frozenset[tuple[str, str | None]]] = set()  # of the others; a guess with them is replaced
    for i, x in enumerate(result):
        if x.kind == "MissingLink" and x.peer is not None and x.confidence < 0.95:
            guesses.setdefault(_pair(x.subject.device, x.peer), []).append(i)
        else:
            known_ends.add(x.ends)

    def end(device: str, port: str | None) -> Endpoint:
        if device in ids:
            name, adapter = net.names[ids[device]], net.labels[ids[device]]
        else:
            known = switches.get(device)
            name = (known.name if known else "") or host_of.get(device, device)
            adapter = adapter_of.get(device, "")
        return Endpoint(device, name, port or None, adapter)

    def owner(a: str, b: str) -> str | None:
        for device in (a, b):
            if device in switches:
                continue
            host = end(device, None).name
            if host in t1_of:
                return t1_of[host].name
        lower = min((d for d in (a, b) if d in switches), key=lambda d: switches[d].level, default=None)
        domain = home.get(lower) if lower else None
        return domain.name if domain and domain.name in published else None

    def height(device: str) -> float:
        """Return the level; 0 for no switch, infinity for a switch of unknown level."""
        return 0 if device not in switches else switches[device].level or math.inf

    t1_of = _former_keepers(tuple(h for h in former if h.name in published)) if lost else {}
    for cable in lost:
        if not missing.isdisjoint(cable.devices):
            continue
        a, b = end(cable.a_device, cable.a_port), end(cable.b_device, cable.b_port)
        if height(a.device) > height(b.device):
            a, b = b, a
        domain = owner(a.device, b.device)
        gone_link = Anomaly(
            "MissingLink",
            a,
            b,
            tiers.get(domain or ""),
            cable.sources,
            0.95,
            f"the link from {say(a)} to {say(b)} is gone",
            domain,
        )
        if cable.ends in known_ends:
            continue
        known_ends.add(cable.ends)
        # The former link replaces an inferred one, which may lack the adapter or the ports.
        pair = next((p for p in (_pair(a.device, b), _pair(a.name, b)) if p in guesses), None)
        if pair is None:
            result.append(gone_link)
            continue
        same = (i for i, at in enumerate(guesses[pair]) if result[at].ends == cable.ends)
        at = guesses[pair].pop(next(same, -1))
        if not guesses[pair]:
            del guesses[pair]
        result[at] = gone_link
    return result


@memoized
def _homes(former: tuple[HyperNode, ...]) -> dict[str, HyperNode]:
    """Return the lowest domain of each switch."""
    return {s: h for h in sorted(former, key=lambda h: -h.tier) for s in h.switches}


def keepers(hypernodes: Iterable[HyperNode]) -> dict[str, HyperNode]:
    """Return the domain that each host's cables count against: the lowest one with switches, else the
    innermost. Where any domain of tier 1 has switches, it is tier 1 for all hosts, also for those whose own
    domain there has none."""
    found: dict[str, HyperNode] = {}
    ranked = list(hypernodes)
    lowest = 1 if any(h.tier == 1 and h.switches for h in ranked) else 0
    for h in sorted(ranked, key=lambda h: (bool(h.switches) or h.tier == lowest, -h.tier)):
        found |= dict.fromkeys(h.nodes, h)
    return found


_former_keepers = memoized(keepers)


def named_since(net: Network, absent: Collection[str]) -> frozenset[str]:
    """Return those of the absent nodes that were published under the GUID of an adapter whose host is known
    now."""
    at = positions(net.ids)
    hosts = ((ident, int(net.host[at[ident]])) for ident in absent if ident in at)
    return frozenset(ident for ident, host in hosts if host >= 0 and net.hosts[host] != ident)


def forget(previous: Topology, nodes: Collection[str], anomalies: Collection[Key]) -> Topology:
    """Return the previous topology without nodes and anomalies that an operator has removed."""
    # A host without GPUs leaves its accelerator domain, and stays in the domains of its cables.
    mute = {key[1] for key in anomalies if key[0] == "MissingLink" and not any(key[2:])}

    def lost(h: HyperNode) -> set[str]:
        return {*nodes, *mute} if h.source in KINDS else set(nodes)

    kept = tuple(
        replace(h, nodes=tuple(n for n in h.nodes if n not in lost(h)))
        for h in previous.hypernodes
        if not set(h.nodes) <= lost(h)
    )
    names = {h.name for h in kept}
    return replace(
        previous,
        hypernodes=tuple(replace(h, children=tuple(c for c in h.children if c in names)) for h in kept),
        anomalies=tuple(x for x in previous.anomalies if x.key not in anomalies),
    )


def lost_cables(previous: Topology, links: Sequence[Link]) -> list[LostCable]:
    """Return the cables of the previous topology, and its missing ones, that are not in `links` and of which
    no port is in another one.

    A cable that was surely miswired is not lost when it is gone. One that others deny was none, and takes no
    port.
    """
    strays = {x.ends for x in previous.anomalies if x.kind == "Miswired" and x.confidence > EITHER}
    found = {
        LostCable(x.a_device, x.a_port, x.b_device, x.b_port, x.sources)
        for x in lost_links(previous.links, links)
        if not x.note.startswith(DENIED)
    }
    found = {x for x in found if x.ends not in strays}
    found |= {
        LostCable(x.subject.device, x.subject.port, x.peer.device, x.peer.port, x.sources)
        for x in previous.anomalies
        if x.kind == "MissingLink" and x.peer and x.subject.port and x.peer.port and x.confidence > SURE
    }
    ends = {x: ((x.a_device, x.a_port), (x.b_device, x.b_port)) for x in found}
    in_use = ports_in_use(links, {*chain.from_iterable(ends.values())}) if found else set()
    return sorted(x for x in found if in_use.isdisjoint(ends[x]))


def _gone_switches(previous: Topology, present: Collection[str], lost: Sequence[LostCable]) -> list[str]:
    """Return the switches that are missing. Where other cables hold all ports that led to a switch, it was
    replaced or has another id now, and is not missing."""
    ends = {device for x in lost for device in x.devices}
    switches = switches_by_id(previous.switches)
    gone = {device for device in ends if device in switches and device not in present}
    if gone:
        gone &= wired_devices(previous.links)
    still = {x.subject.device for x in previous.anomalies if x.kind == "MissingSwitch" and x.subject.device}
    return sorted(gone | {device for device in still if device not in present})


def _named_switches(
    found: list[Anomaly],
    gone: Sequence[str],
    previous: Topology,
    home: dict[str, HyperNode],
    tiers: dict[str, int],
) -> list[Anomaly]:
    """Return `found` with the switches `gone`, which have ids, in place of inferred missing switches."""
    if not gone:
        return found
    switches = switches_by_id(previous.switches)
    earlier = {x.subject.device: x for x in previous.anomalies if x.kind == "MissingSwitch"}
    result = [x for x in found if x.kind != "MissingSwitch"]
    result += sorted((x for x in found if x.kind == "MissingSwitch"), key=lambda x: x.message)[len(gone) :]
    sources: dict[str, set[str]] = {}  # of the links of each switch
    for link in links_at(previous.links, set(gone).difference(earlier)):
        for device in (link.a_device, link.b_device):
            sources.setdefault(device, set()).update(link.sources)
    for device in gone:
        if device in earlier:
            old = earlier[device]
            here = old.hypernode if old.hypernode in tiers else None
            result.append(replace(old, hypernode=here, tier=tiers.get(here or ""), since_ns=0))
            continue
        owner = home.get(device)
        name = switches[device].name if device in switches else device
        text = f"{name} is gone with all its links"
        here = owner.name if owner and owner.name in tiers else None
        result.append(
            Anomaly(
                "MissingSwitch",
                Endpoint(device, name),
                None,
                tiers.get(here or ""),
                tuple(sorted(sources.get(device, ()))),
                0.95,
                text,
                here,
            )
        )
    return result


def hosts_of(previous: Topology) -> Mapping[str, str]:
    """Return the host of each former adapter, and the name of each device in former anomalies, by id."""
    named = {e.device: e.name for x in previous.anomalies for e in (x.subject, x.peer) if e is not None}
    return ChainMap(nodes_of_adapters(previous.adapters), named)


def _pair(device: str, peer: Endpoint) -> frozenset[str]:
    return frozenset((device, peer.device))
