"""Audit hosts against their leaves, and name the cables that are missing or in a wrong port."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_topology.memo import memoized, positions_of_hosts
from hyperscout_topology.topology import Endpoint, say

from hyperscout_inference.audit.audit import EITHER, INFERRED, Cables, audit
from hyperscout_inference.audit.likeness import Kinds
from hyperscout_inference.audit.ranks import Rank, pick
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.network import PORT_TEXTS, Ints, Network, distinct_places
from hyperscout_inference.grouping.grouping import Longs
from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.grouping.tiers import host_cable_rows

_NUMBER = re.compile(r"(.*?)(\d+)")
_FEW_SHARE = 0.01  # more hosts than this share above the leaves are there on purpose
_MAX_CODES = 62  # adapter names of all hosts; with more, kinds are not told apart


@dataclass(frozen=True, slots=True, eq=False)
class HostRank:
    """The rank of hosts and leaves. `labels`: names of the ports of its hosts. `placed`: the rows of `rank`
    that are audited."""

    rank: Rank
    labels: "_Labels"
    placed: npt.NDArray[np.intp]


def host_rank(net: Network, wires: Network, leaves: Layer) -> HostRank:
    """Return the rank of hosts and leaves with its audit. `wires`: the wiring of `net`."""
    return _host_rank(wires, leaves, _ports_down(net))


def _ports_down(net: Network) -> Longs:
    """Return (hosts,) the number of ports that a host reports as down and that have no cable in the network.
    A cable that is out may still be in it."""
    found = np.zeros(len(net.hosts), np.int64)
    if not net.down_ports:
        return found
    known = positions_of_hosts(net.hosts)
    at = {host: known[host] for host, _, _ in net.down_ports if host in known}
    mine = np.zeros(len(net.hosts) + 1, np.bool_)  # the last one: no host
    mine[list(at.values())] = True
    near, cabled = mine.take(net.host), set()
    for end, port in ((net.a, net.a_port), (net.b, net.b_port)):
        rows = np.flatnonzero(near.take(end))
        for i, number in zip(end[rows].tolist(), port[rows].tolist(), strict=True):
            cabled.add((net.hosts[net.host[i]], net.labels[i], number))
    for down in net.down_ports - cabled:
        if down[0] in at:
            found[at[down[0]]] += 1
    return found


@memoized
def _host_rank(net: Network, leaves: Layer, down: Longs) -> HostRank:
    rows = host_cable_rows(net)
    flip = net.is_switch[net.a[rows]]
    adapter, adapter_port = (
        pick(flip, net.b[rows], net.a[rows]),
        pick(flip, net.b_port[rows], net.a_port[rows]),
    )
    leaf, leaf_port = pick(flip, net.a[rows], net.b[rows]), pick(flip, net.a_port[rows], net.b_port[rows])
    labels = _Labels(net, adapter, adapter_port)
    hosts = net.host[adapter].astype(np.int64)
    grouping = leaves.grouping
    where = np.flatnonzero(grouping.group[hosts] >= 0)
    cables = Cables(
        hosts[where], leaf[where].astype(np.int64), labels.code[where], leaf_port[where].astype(np.int64)
    )
    kinds = _kinds(len(net.hosts), cables, down)
    rank = Rank(
        rows,
        adapter,
        leaf,
        labels.code,
        leaf_port.astype(np.int64),
        grouping,
        audit(len(net.hosts), cables, grouping, net.unclaimed, kinds),
        kinds,
    )
    return HostRank(rank, labels, where)


def host_suspicions(net: Network, level: Ints, layers: Sequence[Layer], mine: HostRank) -> list[Suspicion]:
    """Return the missing and miswired cables of hosts."""
    rank, labels, where = mine.rank, mine.labels, mine.placed
    adapter, leaf, adapter_port, leaf_port = rank.lower, rank.upper, labels.port, rank.upper_port
    hosts, grouping = net.host[adapter].astype(np.int64), rank.grouping
    found: list[Suspicion] = []
    unclaimed = _Unclaimed(net, hosts, leaf, leaf_port)

    def suspect(
        kind: str, host: int, subject: Endpoint, peer: Endpoint, confidence: float, text: str
    ) -> None:
        found.append(
            Suspicion(kind, subject, peer, 0, int(layers[0].domain[host]), confidence, text, net.all_sources)
        )

    down = _down_names(net, mine, hosts)
    for i, m in enumerate(rank.audit.missing):
        if unclaimed.take(m.item, m.item_port):
            continue  # an unclaimed adapter is on this port: most likely it belongs to this host
        if m.confidence <= EITHER and net.whole.get(net.hosts[m.child]) and not grouping.tie[m.child]:
            continue  # the host is built that way: all its adapters are up
        subject = labels.end(m.child, labels.text.get(m.child_port) or down.get(i, ""))
        peer = net.end(m.item, m.item_port)
        why = "its peers have one" + (
            "" if m.confidence > EITHER else ", but the host may be built without it"
        )
        suspect(
            "MissingLink",
            m.child,
            subject,
            peer,
            m.confidence,
            f"no link from {say(subject)} to {say(peer)}; {why}",
        )
    for s in rank.audit.stray:
        row = int(where[s.row])
        subject, peer = (
            net.end(int(adapter[row]), int(adapter_port[row])),
            net.end(int(leaf[row]), int(leaf_port[row])),
        )
        goal = net.end(s.item, s.item_port) if s.item >= 0 else None
        text = f"{say(subject)} is plugged into {say(peer)}, " + (
            f"expected {say(goal)}" if goal else "unlike the rest of its host's cables"
        )
        suspect("Miswired", int(hosts[row]), subject, peer, s.confidence, text)
    found += _ties(net, layers, hosts, adapter, adapter_port, leaf, leaf_port, found)
    for row in _on_switches_above(net, level, layers[0], hosts, leaf):
        subject = net.end(int(adapter[row]), int(adapter_port[row]))
        peer = net.end(int(leaf[row]), int(leaf_port[row]))
        text = f"{say(subject)} is plugged into {say(peer)}, a switch above the leaves of its peers"
        suspect("Miswired", int(hosts[row]), subject, peer, INFERRED, text)
    return found


def _on_switches_above(net: Network, level: Ints, leaves: Layer, hosts: Longs, switch: Ints) -> list[int]:
    """Return the cables of very few hosts that are connected to switches above leaves only, although they
    have as many cables as several hosts on leaves, and other switches of that level have no hosts."""
    above = (leaves.domain >= 0) & (leaves.grouping.group < 0)
    few = max(1, _FEW_SHARE * np.count_nonzero(leaves.domain >= 0))
    if not 0 < np.count_nonzero(above) <= few:
        return []
    cables = np.bincount(hosts, minlength=len(net.hosts))
    usual = np.bincount(cables[(leaves.domain >= 0) & ~above], minlength=int(cables.max()) + 1) > 1
    rows = np.flatnonzero(above[hosts] & usual[cables[hosts]])
    hosted = np.zeros(len(net.ids), np.bool_)
    hosted[switch] = True
    bare = set(level[net.is_switch & ~hosted].tolist())
    return [row for row in rows.tolist() if int(level[switch[row]]) in bare]


def _kinds(children: int, cables: Cables, down: Longs) -> Kinds:
    """Return the kinds of hosts by the names of their adapters. A host is of the kind of another that has all
    of its names and more."""
    codes, bit = distinct_places(cables.child_port)
    if len(codes) > _MAX_CODES or not len(codes) or codes[0] < 0:
        return Kinds(np.zeros(children, np.int64), np.zeros(children, np.bool_), down, (0,), are_hosts=True)
    mask = np.zeros(children, np.int64)
    np.bitwise_or.at(mask, cables.child, np.int64(1) << bit)
    masks, of_child, hosts = np.unique(mask, return_inverse=True, return_counts=True)
    kind_of: dict[int, int] = {}
    models: list[int] = []
    known: list[int] = []
    for one, count_of in sorted(
        zip(masks.tolist(), hosts.tolist(), strict=True), key=lambda x: -x[0].bit_count()
    ):
        kind_of[one] = next((k for k, model in enumerate(models) if one & model == one), len(models))
        if kind_of[one] == len(models):
            models.append(one)
            known.append(one.bit_count() if count_of > 1 else 0)
    kind = np.array([kind_of[m] for m in masks.tolist()], np.int64)[of_child]
    return Kinds(kind, (hosts > 1)[of_child], down, known, are_hosts=True)


def _down_names(net: Network, mine: HostRank, hosts: Longs) -> dict[int, str]:
    """Return names of host ports for missing cables whose port is unknown, by index: the one port that the
    host reports as down and whose name a like host's cable to the same leaf has. A port that would be the
    one of several missing cables is not named. `hosts`: of each row of the rank."""
    rank, labels, where, kinds = mine.rank, mine.labels, mine.placed, mine.rank.kinds
    missing = [(i, m) for i, m in enumerate(rank.audit.missing) if m.child_port < 0]
    if not missing or kinds is None:
        return {}
    down: dict[str, set[str]] = {}
    for host, name in {x[:2] for x in net.down_ports} | net.dark_ports:
        down.setdefault(host, set()).add(name)
    child, item, child_port = hosts[where], rank.upper[where], labels.code[where]
    found: dict[tuple[int, str], list[int]] = {}
    for i, m in missing:
        if not (own := down.get(net.hosts[m.child])):
            continue
        like = (item == m.item) & (kinds.of_child[child] == kinds.of_child[m.child])
        codes = {*child_port[like].tolist()} - {*child_port[child == m.child].tolist()}
        names = own & {labels.text[code] for code in codes if code in labels.text}
        if len(names) == 1:
            found.setdefault((m.child, names.pop()), []).append(i)
    return {rows[0]: name for (_, name), rows in found.items() if len(rows) == 1}


def _ties(
    net: Network,
    layers: Sequence[Layer],
    hosts: Longs,
    adapter: Ints,
    adapter_port: Ints,
    leaf: Ints,
    leaf_port: Longs,
    known: Iterable[Suspicion],
) -> list[Suspicion]:
    """Return the cables of hosts whose cables are split evenly between two domains: each may be wrong."""
    grouping = layers[0].grouping
    already = {s.ends for s in known}
    found = []
    for host in np.flatnonzero(grouping.tie).tolist():
        for row in np.flatnonzero(hosts == host).tolist():
            subject, peer = (
                net.end(int(adapter[row]), int(adapter_port[row])),
                net.end(int(leaf[row]), int(leaf_port[row])),
            )
            suspicion = Suspicion(
                "Miswired",
                subject,
                peer,
                0,
                int(layers[0].domain[host]),
                EITHER,
                f"{net.hosts[host]} has equally many cables to two domains: "
                f"the cable from {say(subject)} to {say(peer)} may be wrong",
                net.all_sources,
            )
            if suspicion.ends not in already:
                found.append(suspicion)
    return found


class _Labels:
    """Numbers for the names of ports on their hosts ("mlx5_3", "ens2f0np0"), in the order of the rails.

    `code`: (cables,) the number, -1 = unknown; `text`: the name of each number; `port`: (cables,) of the
    adapter."""

    def __init__(self, net: Network, adapter: Ints, adapter_port: Ints) -> None:
        self.net = net
        self.port = adapter_port
        texts = [net.labels[i] for i in adapter.tolist()]
        for row in np.flatnonzero(adapter_port >= PORT_TEXTS).tolist():
            texts[row] = net.rail(int(adapter[row]), int(adapter_port[row]))
        parsed = {t: _NUMBER.fullmatch(t) for t in set(texts)}
        prefixes = {m[1] for m in parsed.values() if m}
        if len(prefixes) == 1:
            number = {t: int(m[2]) if m else -1 for t, m in parsed.items()}
        else:
            number = {t: i if t else -1 for i, t in enumerate(sorted(parsed))}
        wide = 1 + int(adapter_port.max(initial=1) > 1 and adapter_port.max() < 8) * 7
        code = np.array([number[t] for t in texts], np.int64) * wide
        second = np.where(adapter_port > 1, adapter_port - 1, 0) if wide > 1 else 0
        self.code: Longs = np.where(code >= 0, code + second, -1)
        self.text = {number[t] * wide + k: t for t in number if number[t] >= 0 for k in range(wide)}
        self._devices: dict[tuple[int, str], int] | None = None

    def end(self, host: int, label: str) -> Endpoint:
        """Return the host's end of a missing cable, with its adapter. "" = unknown."""
        name = self.net.hosts[host]
        if self._devices is None:
            endpoints = np.flatnonzero(self.net.host >= 0).tolist()
            self._devices = {(int(self.net.host[i]), self.net.labels[i]): i for i in endpoints}
        device = self._devices.get((host, label)) if label else None
        return Endpoint(name, name, label or None) if device is None else self.net.end(device, 1)


class _Unclaimed:
    """Leaf ports with an adapter of an unknown host. The missing cable of a host may be one of them."""

    def __init__(self, net: Network, hosts: Longs, leaf: Ints, leaf_port: Longs) -> None:
        self._left: dict[int, set[int]] = {}
        for row in np.flatnonzero(net.unclaimed[hosts]).tolist():
            self._left.setdefault(int(leaf[row]), set()).add(int(leaf_port[row]))

    def take(self, leaf: int, port: int) -> bool:
        """Remove the port, or any of the leaf if `port` is -1. Returns whether there was one."""
        ports = self._left.get(leaf)
        if not ports or (port >= 0 and port not in ports):
            return False
        ports.remove(port if port >= 0 else min(ports))
        return True
