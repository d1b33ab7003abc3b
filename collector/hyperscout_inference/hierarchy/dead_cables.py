"""Keep the place of hosts and switches while cables are out.

A cable that is out counts for the hierarchy where it led before, until one of its ports is in another cable.
So no set of dead cables moves a host, and none makes a healthy cable look miswired.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from hyperscout_formats.text.host_list import natural_key
from hyperscout_topology.memo import memoized, positions, switches_by_id
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_inference.fabric.network import PORT_TEXTS, Ints, Network
from hyperscout_inference.fabric.part import Mask, join_port
from hyperscout_inference.hierarchy.history import LostCable, hosts_of

_Domains = Mapping[str, Sequence[HyperNode]]  # of each switch
_Scalar = TypeVar("_Scalar", bound=np.generic)


def with_dead_cables(
    net: Network, lost: Sequence[LostCable], previous: Topology, former: tuple[HyperNode, ...]
) -> Network:
    """Return the network with the cables that are out and that lead into the published hierarchy.
    `former`: see `former_domains`.

    A cable does not count if its lower end has others now, and all of these lead out of the domain: then it
    was moved. Nor does it count if the end then had more cables to one switch than it has to any now.
    """
    if not lost:
        return net
    at = positions(net.ids)
    if absent := {device for x in lost for device in x.devices if device not in at}:
        first, net = len(net.ids), _with_adapters(net, absent, previous)
        at = {**at, **{ident: i for i, ident in enumerate(net.ids[first:], first)}}
    known = [x for x in lost if at.keys() >= {*x.devices}]
    if not known:
        return net
    by_name = {domain.name: domain for domain in former}
    domains = _by_switch(former)
    up = {at[low] for x in known for low, high in permutations(x.devices) if high in domains}
    above = _cables_up(net, up, domains)

    @cache
    def nodes_of(domain: str) -> frozenset[str]:
        return frozenset(by_name[domain].nodes)

    @cache
    def is_in(low: str, domain: str) -> bool:
        """Return whether all nodes below a device are in the domain, and a cable of it leads there or
        nowhere."""
        below, tops = _nodes_below(net, at[low], domains), above[_child(net, at[low])]
        mine = by_name[domain]
        is_moved = tops and tops.keys().isdisjoint(mine.switches)
        return bool(below) and low not in mine.switches and not is_moved and below <= nodes_of(domain)

    rows = []
    again: dict[int, Counter[str]] = {}  # as `above`, with the cables that count again
    for a, a_port, b, b_port, _ in known:
        if a in domains and b in domains and _tier(domains[a]) == _tier(domains[b]):
            rows.append((at[a], a_port, at[b], b_port))
            continue
        for low, low_port, high, high_port in ((a, a_port, b, b_port), (b, b_port, a, a_port)):
            if any(is_in(low, domain.name) for domain in domains.get(high, ())):
                child = _child(net, at[low])
                live, mine = above[child], again.setdefault(child, above[child].copy())
                if not live or mine[high] < max(live.values()):
                    mine[high] += 1
                    rows.append((at[low], low_port, at[high], high_port))
                break
    return _with_rows(net, rows) if rows else net


@memoized
def _by_switch(former: tuple[HyperNode, ...]) -> _Domains:
    """Return the domains of each switch."""
    domains: dict[str, list[HyperNode]] = {}
    for domain in former:
        for switch in domain.switches:
            domains.setdefault(switch, []).append(domain)
    return domains


def hosts_without_live_cables(net: Network, present: Network) -> frozenset[str]:
    """Return the hosts that only dead cables place. `present`: the network without these."""
    if net is present:
        return frozenset()
    dead = ~_linked(present)
    if dead[:-1].any():
        dead &= _linked(net)
    return frozenset(net.hosts[host] for host in np.flatnonzero(dead[:-1]).tolist())


def _linked(net: Network) -> Mask:
    """Return (hosts + 1,) which hosts have a cable of the compute fabric. The last one: no host."""
    found = np.zeros(len(net.hosts) + 1, np.bool_)
    for end in (net.a, net.b):
        found[net.host.take(end[net.shapes])] = True
    return found


def _with_adapters(net: Network, absent: Collection[str], previous: Topology) -> Network:
    """Return the network with those of its absent devices that are adapters of hosts that it shows."""
    host = {name: i for i, name in enumerate(net.hosts)}
    owner = hosts_of(previous)
    switches = switches_by_id(previous.switches)
    more = [x for x in sorted(absent) if x not in switches and owner.get(x, x) in host]
    if not more:
        return net
    none = np.zeros(len(more), np.bool_)
    mine = np.array([host[owner.get(device, device)] for device in more], np.int32)
    return replace(
        net,
        ids=[*net.ids, *more],
        names=[*net.names, *(owner.get(device, device) for device in more)],
        is_switch=np.concatenate([net.is_switch, none]),
        host=np.concatenate([net.host, mine]),
        labels=[*net.labels, *([""] * len(more))],
        sharp=None if net.sharp is None else np.concatenate([net.sharp, none]),
        mute=None if net.mute is None else np.concatenate([net.mute, none]),
    )


def _child(net: Network, device: int) -> int:
    """Return a number of the host of an adapter, or of the switch."""
    host = int(net.host[device])
    return ~host if host >= 0 else device


def _tier(domains: Sequence[HyperNode]) -> int:
    return min(x.tier for x in domains)


def _nodes_below(net: Network, device: int, domains: _Domains) -> frozenset[str]:
    """Return the host of an adapter, or the nodes below a switch."""
    if (host := int(net.host[device])) >= 0:
        return frozenset([net.hosts[host]])
    mine = domains.get(net.ids[device], ())
    return frozenset(node for x in mine if x.tier == _tier(mine) for node in x.nodes)


def _cables_up(net: Network, devices: Collection[int], domains: _Domains) -> dict[int, Counter[str]]:
    """Return the numbers of cables of the compute fabric that lead up from these devices, by `_child` and
    switch."""
    wanted = {_child(net, device) for device in devices}
    hosts = np.zeros(len(net.hosts) + 1, np.bool_)  # the last one: no host
    hosts[[~child for child in wanted if child < 0]] = True
    chosen = hosts.take(net.host)
    chosen[[child for child in wanted if child >= 0]] = True
    found: dict[int, Counter[str]] = {child: Counter() for child in wanted}

    def height(device: int) -> float:
        if net.host[device] >= 0:
            return 0
        mine = domains.get(net.ids[device])
        return math.inf if mine is None else _tier(mine)

    for near, far in ((net.a, net.b), (net.b, net.a)):
        rows = np.flatnonzero(net.shapes & chosen.take(near))
        for low, high in zip(near[rows].tolist(), far[rows].tolist(), strict=True):
            if net.is_switch[high] and height(low) < height(high):
                found[_child(net, low)][net.ids[high]] += 1
    return found


def _with_rows(net: Network, rows: Sequence[tuple[int, str, int, str]]) -> Network:
    """Return the network with more cables of the compute fabric: lower and upper device, each with its
    port."""
    concerned = np.zeros(len(net.ids), np.bool_)
    concerned[[device for row in rows for device in (row[0], row[2])]] = True
    mine = np.flatnonzero(concerned.take(net.a) | concerned.take(net.b))
    named = np.zeros(len(net.ids), np.bool_)  # devices whose ports have names
    for device, port in ((net.a[mine], net.a_port[mine]), (net.b[mine], net.b_port[mine])):
        named[device[port >= PORT_TEXTS]] = True
    fabric = np.full(len(net.ids), -1, np.int32)  # of each device, that of one of its cables
    fabric[net.a[mine]] = fabric[net.b[mine]] = net.fabric[mine]

    def is_number(row: tuple[int, str, int, str]) -> bool:
        return not (named[row[0]] or named[row[2]]) and all(
            port.isdecimal() and int(port) < PORT_TEXTS for port in (row[1], row[3])
        )

    texts = {port for row in rows if not is_number(row) for port in (row[1], row[3])}
    ordered = net.port_texts
    if texts.difference(ordered):
        ordered = sorted(texts.union(ordered), key=natural_key)
    place = {text: PORT_TEXTS + i for i, text in enumerate(ordered)}
    moved = np.array([place[text] for text in net.port_texts], np.int32)

    def renumbered(ports: Ints) -> Ints:
        if ordered is net.port_texts:
            return ports
        found = ports.copy()
        has_name = ports >= PORT_TEXTS
        found[has_name] = moved[ports[has_name] - PORT_TEXTS]
        return found

    ends = [
        (low, int(low_port), high, int(high_port))
        if is_number((low, low_port, high, high_port))
        else (low, place[low_port], high, place[high_port])
        for low, low_port, high, high_port in rows
    ]
    more = np.array([x if x[0] < x[2] else (*x[2:], *x[:2]) for x in ends], np.int32)
    none = np.zeros(len(rows), np.int32)
    a, a_port = np.concatenate([net.a, more[:, 0]]), np.concatenate([renumbered(net.a_port), more[:, 1]])
    order = np.argsort(join_port(a, a_port), kind="stable")  # nearly sorted: linear
    noted = np.zeros(len(order), np.bool_)
    noted[list(net.notes)] = True

    def joined(old: npt.NDArray[_Scalar], new: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
        return np.concatenate([old, new]).take(order)

    return replace(
        net,
        a=a.take(order),
        a_port=a_port.take(order),
        b=joined(net.b, more[:, 2]),
        b_port=joined(renumbered(net.b_port), more[:, 3]),
        rate_gbps=joined(net.rate_gbps, none.astype(np.float32)),
        width=joined(net.width, none.astype(np.uint8)),
        shapes=joined(net.shapes, none == 0),
        fabric=joined(net.fabric, fabric[more[:, ::2]].max(axis=1).clip(0)),
        sources=joined(net.sources, none),
        port_texts=ordered,
        notes={row: net.notes[int(order[row])] for row in np.flatnonzero(noted.take(order)).tolist()},
    )
