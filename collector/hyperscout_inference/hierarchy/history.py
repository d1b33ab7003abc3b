"""Name missing links and switches by the previous topology, which has their ports and ids.

Links that no reporter could show now are kept.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from hyperscout_topology.link_changes import (
    UNREPORTED,
    extended,
    links_at,
    lost_links,
    table_of,
    wired_devices,
)
from hyperscout_topology.topology import Anomaly, Endpoint, HyperNode, Link, Switch, Topology, say

from hyperscout_inference.audit.audit import EITHER
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.fabric.manager_sweeps import MANAGERS
from hyperscout_inference.fabric.network import Network
from hyperscout_inference.fabric.sweep_claims import SOURCE as SWEEP

Key = tuple[str, str, str, str, str]  # of an anomaly
_Port = tuple[str, str]  # device and port
Former = tuple[str, str, str, str, tuple[str, ...]]  # device and port of both ends, sources


def recall(
    net: Network,
    links: Sequence[Link],
    found: list[Anomaly],
    former: Sequence[Former],
    previous: Topology,
    published: set[str],
    tiers: dict[str, int],
) -> list[Anomaly]:
    """Return `found` with missing links and switches of the previous topology, which replace inferred ones.

    `links`: those that are present; `former`: see `former_links`. `published`: names of the present
    HyperNodes; `tiers`: the tier of each.
    """
    ids = {ident: i for i, ident in enumerate(net.ids)}
    holder = _ports_in_use(former, links)
    home = {s: h for h in sorted(previous.hypernodes, key=lambda h: -h.tier) for s in h.switches}
    name_of = {s.id: s.name for s in previous.switches}
    gone = _gone_switches(previous, ids, former, holder)
    result = _named_switches(found, gone, previous, home, name_of, tiers)
    missing = {s.subject.device for s in result if s.kind == "MissingSwitch"}
    host_of = hosts_of(previous)
    guesses: dict[frozenset[str], list[int]] = {}
    for i, x in enumerate(result):
        if x.kind == "MissingLink" and x.peer is not None and x.confidence < 0.95:
            guesses.setdefault(_pair(x.subject.device, x.peer), []).append(i)
    full = {_ends(x) for x in result}

    def end(device: str, port: str | None) -> Endpoint:
        name = net.names[ids[device]] if device in ids else name_of.get(device) or host_of.get(device, device)
        return Endpoint(device, name, port or None)

    def owner(a: str, b: str) -> str | None:
        for device in (a, b):
            if device in name_of:
                continue
            host = end(device, None).name
            if host in t1_of:
                return t1_of[host]
        lower = min((d for d in (a, b) if d in level), key=lambda d: level[d], default=None)
        domain = home.get(lower) if lower else None
        return domain.name if domain and domain.name in published else None

    level = {s.id: s.level for s in previous.switches}

    def height(device: str) -> float:
        """Return the level; 0 for no switch, infinity for a switch of unknown level."""
        return 0 if device not in level else level[device] or math.inf

    former_nodes = [h for h in previous.hypernodes if h.name in published] if former else []
    t1_of = {node: h.name for node, h in keepers(former_nodes).items()}
    for link in former:
        ends = ((link[0], link[1]), (link[2], link[3]))
        if any(e in holder for e in ends) or link[0] in missing or link[2] in missing:
            continue  # a present link uses one of the ports, or the whole switch is missing
        a, b = end(*ends[0]), end(*ends[1])
        if height(a.device) > height(b.device):
            a, b = b, a
        domain = owner(a.device, b.device)
        lost = Anomaly(
            "MissingLink",
            a,
            b,
            tiers.get(domain or ""),
            link[4],
            0.95,
            f"the link from {say(a)} to {say(b)} is gone",
            domain,
        )
        if _ends(lost) in full:
            continue
        full.add(_ends(lost))
        # The former link replaces an inferred one, which may lack the adapter or the ports.
        pair = next((p for p in (_pair(a.device, b), _pair(a.name, b)) if p in guesses), None)
        if pair is None:
            result.append(lost)
            continue
        at = guesses[pair].pop()
        if not guesses[pair]:
            del guesses[pair]
        result[at] = lost
    return result


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


def named_since(net: Network, absent: Collection[str]) -> frozenset[str]:
    """Return those of the absent nodes that were published under the GUID of an adapter whose host is known
    now."""
    rows = (i for i, host in enumerate(net.host.tolist()) if host >= 0 and net.ids[i] in absent)
    return frozenset(net.ids[i] for i in rows if net.hosts[net.host[i]] != net.ids[i])


def forget(previous: Topology, nodes: Collection[str], anomalies: Collection[Key]) -> Topology:
    """Return the previous topology without nodes and anomalies that an operator has removed."""
    # A host without GPUs leaves its NVLink domain, and stays in the domains of its cables.
    mute = {key[1] for key in anomalies if key[0] == "MissingLink" and not any(key[2:])}

    def lost(h: HyperNode) -> set[str]:
        return {*nodes, *mute} if h.source == "nvlink" else set(nodes)

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


def former_links(previous: Topology, links: Sequence[Link]) -> list[Former]:
    """Return links of the previous topology that are not present, and its missing links, by both ends.

    A cable that was surely miswired is not missing when it is gone.
    """
    strays = {_ends(x) for x in previous.anomalies if x.kind == "Miswired" and x.confidence > EITHER}
    lost = lost_links(previous.links, links)
    rows = [
        (x.a_device, x.a_port, x.b_device, x.b_port, x.sources)
        for x in lost
        if not strays or frozenset([(x.a_device, x.a_port), (x.b_device, x.b_port)]) not in strays
    ]
    rows += [
        (x.subject.device, x.subject.port, x.peer.device, x.peer.port, x.sources)
        for x in previous.anomalies
        if x.kind == "MissingLink" and x.peer and x.subject.port and x.peer.port and x.confidence > 0.9
    ]
    return sorted(set(rows))


def unreported(
    former: Sequence[Former], inputs: FabricInputs, previous: Topology, expected: Collection[str]
) -> list[Former]:
    """Return those former links that no reporter could show now. They are not missing, only not known, unless
    they were missing before.

    These are Ethernet links of an expected node without evidence, to a switch that does not report itself.
    """
    if not former:
        return []
    host_of = hosts_of(previous)
    ends = {host_of.get(device, device) for x in former for device in (x[0], x[2])}
    mute = (ends & set(expected)) - inputs.lldp.keys() - inputs.infiniband.keys()
    if not mute:
        return []
    reporting = {port.chassis_id for ports in inputs.switch_ports.values() for port in ports}
    reporting |= {port.chassis_id for seen in inputs.tables for port in seen.table.ports}
    swept = {SWEEP, *MANAGERS}
    missing = {_ends(x) for x in previous.anomalies if x.kind == "MissingLink"}
    return [
        x
        for x in former
        if any(host_of.get(device, device) in mute for device in (x[0], x[2]))
        and frozenset([(x[0], x[1]), (x[2], x[3])]) not in missing
        and reporting.isdisjoint((x[0], x[2]))
        and swept.isdisjoint(x[4])
    ]


def with_unreported(
    links: Sequence[Link], switches: Iterable[Switch], known: Sequence[Former], previous: Topology
) -> tuple[Sequence[Link], list[Switch]]:
    """Return links and switches with the `known` links, as they were published, and the switches at them."""
    if not known:
        return links, [*switches]
    rows = {(x[0], x[1], x[2], x[3]) for x in known}
    old = links_at(previous.links, {device for x in known for device in (x[0], x[2])})
    kept = [replace(x, note=UNREPORTED) for x in old if (x.a_device, x.a_port, x.b_device, x.b_port) in rows]
    here = {x.id: x for x in switches}
    ends = {device for x in known for device in (x[0], x[2])}
    here |= {x.id: x for x in previous.switches if x.id in ends and x.id not in here}
    return extended(table_of(links), kept), [*here.values()]


def without_ends_in_use(former: Sequence[Former], links: Sequence[Link]) -> list[Former]:
    """Return those former links that are out: no present link uses one of their ports."""
    holder = _ports_in_use(former, links)
    return [x for x in former if (x[0], x[1]) not in holder and (x[2], x[3]) not in holder]


def _ports_in_use(former: Sequence[Former], links: Sequence[Link]) -> set[_Port]:
    """Return the ports of present links at the devices of former links."""
    near = links_at(links, {device for x in former for device in (x[0], x[2])}) if former else []
    return {end for x in near for end in ((x.a_device, x.a_port), (x.b_device, x.b_port))}


def _gone_switches(
    previous: Topology,
    present: Collection[str],
    former: Sequence[Former],
    holder: Collection[_Port],
) -> list[str]:
    """Return the switches that are missing. Where other cables hold all ports that led to a switch, it was
    replaced or has another id now, and is not missing.

    `former`: see `former_links`. `holder`: the ports of present links.
    """
    ends: dict[str, list[_Port]] = defaultdict(list)  # of each device, the other ends of its former links
    for a, a_port, b, b_port, _ in former:
        ends[a].append((b, b_port))
        ends[b].append((a, a_port))
    wired = wired_devices(previous.links)
    absent = {s.id for s in previous.switches if s.id in wired and s.id not in present}
    gone = {device for device in absent if any(end not in holder for end in ends[device])}
    still = {x.subject.device for x in previous.anomalies if x.kind == "MissingSwitch" and x.subject.device}
    return sorted(gone | {device for device in still if device not in present})


def _named_switches(
    found: list[Anomaly],
    gone: Sequence[str],
    previous: Topology,
    home: dict[str, HyperNode],
    name_of: dict[str, str],
    tiers: dict[str, int],
) -> list[Anomaly]:
    """Return `found` with the switches `gone`, which have ids, in place of inferred missing switches."""
    if not gone:
        return found
    earlier = {x.subject.device: x for x in previous.anomalies if x.kind == "MissingSwitch"}
    result = [x for x in found if x.kind != "MissingSwitch"]
    result += sorted((x for x in found if x.kind == "MissingSwitch"), key=lambda x: x.message)[len(gone) :]
    for device in gone:
        if device in earlier:
            old = earlier[device]
            here = old.hypernode if old.hypernode in tiers else None
            result.append(replace(old, hypernode=here, tier=tiers.get(here or ""), since_ns=0))
            continue
        owner = home.get(device)
        text = f"{name_of.get(device, device)} is gone with all its links"
        sources = tuple(
            sorted({s for x in previous.links if device in (x.a_device, x.b_device) for s in x.sources})
        )
        here = owner.name if owner and owner.name in tiers else None
        result.append(
            Anomaly(
                "MissingSwitch",
                Endpoint(device, name_of.get(device, device)),
                None,
                tiers.get(here or ""),
                sources,
                0.95,
                text,
                here,
            )
        )
    return result


def hosts_of(previous: Topology) -> dict[str, str]:
    """Return the host of each former adapter, and the name of each device in former anomalies, by id."""
    named = {e.device: e.name for x in previous.anomalies for e in (x.subject, x.peer) if e is not None}
    return named | {x.id: x.node for x in previous.adapters}


def _pair(device: str, peer: Endpoint) -> frozenset[str]:
    return frozenset((device, peer.device))


def _ends(x: Anomaly) -> frozenset[tuple[str, str | None]]:
    return frozenset(
        [(x.subject.device, x.subject.port)] + ([(x.peer.device, x.peer.port)] if x.peer else [])
    )
