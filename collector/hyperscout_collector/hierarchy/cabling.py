"""Audit every rank of the compute fabric and name the cables that are missing or plugged astray."""

import re

import numpy as np

from hyperscout_collector.fabric.network import Ints, Network
from hyperscout_collector.hierarchy.audit import Audit, Cables, audit
from hyperscout_collector.hierarchy.grouping import Grouping, Longs, group_children
from hyperscout_collector.hierarchy.lateral import lateral_suspicions
from hyperscout_collector.hierarchy.suspicion import Suspicion, say
from hyperscout_collector.hierarchy.tiers import WOVEN, Layer, host_cable_rows, switch_cable_rows
from hyperscout_collector.topology import Endpoint

_NUMBER = re.compile(r"(.*?)(\d+)")


class Rank:
    """Two neighbouring ranks as `audit` takes them, and the way back to devices and ports."""

    def __init__(self, net: Network, rows: Longs, lower: Ints, upper: Ints, lower_port: Longs, upper_port: Longs) -> None:
        self.net, self.rows = net, rows
        self.lower, self.upper, self.lower_port, self.upper_port = lower, upper, lower_port, upper_port
        self.audit = Audit((), (), (), ())
        self.grouping: Grouping | None = None


def homes(layers: list[Layer]) -> dict[int, tuple[int, int]]:
    """The domain (layer, index) of each switch: the lowest that has it."""
    home: dict[int, tuple[int, int]] = {}
    for depth, layer in enumerate(layers):
        for domain, switches in enumerate(layer.switches):
            for switch in switches:
                home.setdefault(switch, (depth, domain))
    return home


def host_rank(net: Network, level: Ints, layers: list[Layer]) -> tuple[Rank, list[Suspicion]]:
    """Hosts and their leaves."""
    rows = host_cable_rows(net)
    flip = net.is_switch[net.a[rows]]
    adapter, adapter_port = _pick(flip, net.b[rows], net.a[rows]), _pick(flip, net.b_port[rows], net.a_port[rows])
    leaf, leaf_port = _pick(flip, net.a[rows], net.b[rows]), _pick(flip, net.a_port[rows], net.b_port[rows])
    labels = _Labels(net, adapter, adapter_port)
    rank = Rank(net, rows.astype(np.int64), adapter, leaf, labels.code, leaf_port.astype(np.int64))
    hosts = net.host[adapter].astype(np.int64)
    grouping = layers[0].grouping
    rank.grouping = grouping
    placed = grouping.group[hosts] >= 0
    where = np.flatnonzero(placed)
    cables = Cables(hosts[where], leaf[where].astype(np.int64), labels.code[where], leaf_port[where].astype(np.int64))
    rank.audit = audit(len(net.hosts), cables, grouping, net.unclaimed)
    found: list[Suspicion] = []
    strangers = _Strangers(net, hosts, leaf, leaf_port)

    def suspect(kind: str, host: int, subject: Endpoint, peer: Endpoint, confidence: float, text: str) -> None:
        found.append(Suspicion(kind, subject, peer, 0, int(layers[0].domain[host]), confidence, text, _sources(net)))

    for m in rank.audit.missing:
        if strangers.may_be(m.item, m.item_port):
            continue  # an adapter that nobody claims sits there: most likely this host's
        subject = labels.end(m.child, m.child_port)
        peer = net.end(m.item, m.item_port)
        why = "as its peers have" if m.confidence > 0.5 else "as its peers have, unless it was built so"
        suspect("MissingLink", m.child, subject, peer, m.confidence, f"no link from {say(subject)} to {say(peer)}, {why}")
    for s in rank.audit.stray:
        row = int(where[s.row])
        subject, peer = net.end(int(adapter[row]), int(adapter_port[row])), net.end(int(leaf[row]), int(leaf_port[row]))
        goal = net.end(s.item, s.item_port) if s.item >= 0 else None
        text = f"{say(subject)} is plugged into {say(peer)}, " + (
            f"expected {say(goal)}" if goal else "unlike the rest of its host's cables"
        )
        suspect("Miswired", int(hosts[row]), subject, peer, s.confidence, text)
    found += _ties(net, layers, hosts, adapter, adapter_port, leaf, leaf_port, found)
    return rank, found


def _ties(
    net: Network, layers: list[Layer], hosts: Longs, adapter: Ints, adapter_port: Ints, leaf: Ints, leaf_port: Ints,
    known: list[Suspicion],
) -> list[Suspicion]:  # fmt: skip
    """A host whose cables are split evenly: both candidate cables are named, since either may be the wrong one."""
    grouping = layers[0].grouping
    already = {s.ends for s in known}
    found = []
    for host in np.flatnonzero(grouping.tie).tolist():
        for row in np.flatnonzero(hosts == host).tolist():
            subject, peer = net.end(int(adapter[row]), int(adapter_port[row])), net.end(int(leaf[row]), int(leaf_port[row]))
            suspicion = Suspicion(
                "Miswired", subject, peer, 0, int(layers[0].domain[host]), 0.5,
                f"{net.hosts[host]} hangs on two domains evenly; {say(subject)} to {say(peer)} may be the wrong cable",
                _sources(net),
            )  # fmt: skip
            if suspicion.ends not in already:
                found.append(suspicion)
    return found


def switch_ranks(
    net: Network, level: Ints, layers: list[Layer], home: dict[int, tuple[int, int]], hosts: Rank
) -> tuple[dict[int, Rank], list[Suspicion]]:
    """Switches and the switches one level above, rank by rank (key: the lower level); then cables that skip a rank."""
    rail = np.full(len(net.ids), -1, np.int64)
    _majority(rail, hosts.upper.astype(np.int64), hosts.lower_port)
    rows = switch_cable_rows(net)
    flip = level[net.a[rows]] > level[net.b[rows]]
    lower, lower_port = _pick(flip, net.b[rows], net.a[rows]), _pick(flip, net.b_port[rows], net.a_port[rows])
    upper, upper_port = _pick(flip, net.a[rows], net.b[rows]), _pick(flip, net.a_port[rows], net.b_port[rows])
    step = level[upper] - level[lower]
    ranks: dict[int, Rank] = {}
    found: list[Suspicion] = []
    for low in range(1, int(level.max(initial=0))):
        mine = np.flatnonzero((level[lower] == low) & (step == 1))
        rank = Rank(
            net, rows[mine], lower[mine], upper[mine], lower_port[mine].astype(np.int64), upper_port[mine].astype(np.int64)
        )
        below, child = np.unique(rank.lower, return_inverse=True)
        above, item = np.unique(rank.upper, return_inverse=True)
        rank.grouping = group_children(len(below), child, item, kin=rail[below], merge_share=WOVEN)
        _hand_up(rail, rank.lower, rank.upper)
        rank.audit = audit(len(below), Cables(child, item, rank.lower_port, rank.upper_port), rank.grouping)
        ranks[low] = rank
        found += _switch_verdicts(net, rank, below, above, home)
    found += _astray_switch_cables(net, level, rows, home, lower, lower_port, upper, upper_port, step)
    return ranks, found


def _majority(label: Longs, device: Longs, value: Longs) -> None:
    """Label each device with the value that most of its rows carry (-1 = none)."""
    known = value >= 0
    if not known.any():
        return
    width = int(value.max()) + 1
    key, votes = np.unique(device[known] * width + value[known], return_counts=True)
    owner = key // width
    total = np.bincount(owner, weights=votes)
    firm = votes * 2 > total[owner]
    label[owner[firm]] = key[firm] % width


def _hand_up(rail: Longs, lower: Ints, upper: Ints) -> None:
    """A switch belongs to the rail of most switches below it; shared ones belong to none."""
    _majority(rail, upper.astype(np.int64), rail[lower])


def _switch_verdicts(net: Network, rank: Rank, below: Ints, above: Ints, home: dict[int, tuple[int, int]]) -> list[Suspicion]:
    found = []
    for m in rank.audit.missing:
        device = int(below[m.child])
        subject, peer = net.end(device, m.child_port), net.end(int(above[m.item]), m.item_port)
        text = f"no link from {say(subject)} to {say(peer)}, as its peers have"
        found.append(Suspicion("MissingLink", subject, peer, *home.get(device, (-1, -1)), m.confidence, text, _sources(net)))
    assert rank.grouping is not None
    for s in rank.audit.stray:
        device, port = int(rank.lower[s.row]), int(rank.lower_port[s.row])
        subject, peer = net.end(device, port), net.end(int(rank.upper[s.row]), int(rank.upper_port[s.row]))
        goal = f", expected {say(net.end(int(above[s.item]), s.item_port))}" if s.item >= 0 else ", unlike its peers"
        text = f"{say(subject)} is plugged into {say(peer)}{goal}"
        found.append(Suspicion("Miswired", subject, peer, *home.get(device, (-1, -1)), s.confidence, text, _sources(net)))
    already = {s.ends for s in found}
    tied = np.flatnonzero(rank.grouping.tie[np.searchsorted(below, rank.lower)])
    for row in tied.tolist():
        device = int(rank.lower[row])
        subject, peer = net.end(device, int(rank.lower_port[row])), net.end(int(rank.upper[row]), int(rank.upper_port[row]))
        text = f"{net.names[device]} hangs on two groups evenly; {say(subject)} to {say(peer)} may be the wrong cable"
        maybe = Suspicion("Miswired", subject, peer, *home.get(device, (-1, -1)), 0.5, text, _sources(net))
        if maybe.ends not in already:
            found.append(maybe)
    return found


def _astray_switch_cables(
    net: Network, level: Ints, rows: "np.ndarray[tuple[int], np.dtype[np.intp]]", home: dict[int, tuple[int, int]],
    lower: Ints, lower_port: Ints, upper: Ints, upper_port: Ints, step: Ints,
) -> list[Suspicion]:  # fmt: skip
    """Cables that skip a rank, or join two switches of one rank where that is not the habit."""
    known = (level[lower] > 0) & (level[upper] > 0)
    peers = known & (step == 0)
    owners = np.full((len(net.ids), 2), -1, np.int64)
    for switch, place in home.items():
        owners[switch] = place
    together = (owners[lower] == owners[upper]).all(axis=1) & (owners[lower][:, 0] >= 0)
    suspect = known & (step > 1)
    habit = peers & together
    for rank in np.unique(level[lower[peers]]).tolist():
        here = peers & (level[lower] == rank) & ~together
        wired = len(np.unique(np.concatenate([lower[here], upper[here]])))
        # Half of a rank cabled to each other is how it was built (dragonfly+, a ring of peer links).
        if wired * 2 < np.count_nonzero(level == rank):
            suspect |= here
        else:
            habit |= here
    found = lateral_suspicions(net, level, rows[habit], home)
    for row in np.flatnonzero(suspect).tolist():
        subject, peer = net.end(int(lower[row]), int(lower_port[row])), net.end(int(upper[row]), int(upper_port[row]))
        what = "skips a rank" if step[row] > 1 else "joins two switches of one rank"
        place = home.get(int(lower[row]), (-1, -1))
        text = f"the cable {say(subject)} to {say(peer)} {what}"
        found.append(Suspicion("Miswired", subject, peer, *place, 0.7, text, _sources(net)))
    return found


class _Labels:
    """Adapters' names on their hosts ("mlx5_3") as numbers that order like the rails."""

    def __init__(self, net: Network, adapter: Ints, adapter_port: Ints) -> None:
        self.net = net
        texts = [net.labels[i] for i in adapter.tolist()]
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
        self.text = dict(zip(self.code.tolist(), texts, strict=True))
        self._devices: dict[tuple[int, str], int] | None = None
        self._interfaces = not any(texts)
        self._down: dict[str, list[str]] = {}
        for host, label in sorted(net.down_ports):
            self._down.setdefault(host, []).append(label)

    def end(self, host: int, code: int) -> Endpoint:
        """The host's end of a cable that is not there: its adapter where that is known."""
        name = self.net.hosts[host]
        label = self.text.get(code, "") if code >= 0 else ""
        if not label and len(down := self._down.get(name, ())) == 1:
            label = down[0]
        if self._devices is None:
            endpoints = np.flatnonzero(self.net.host >= 0).tolist()
            self._devices = {(int(self.net.host[i]), self.net.labels[i]): i for i in endpoints}
        device = self._devices.get((host, label)) if label else None
        return Endpoint(name, name, label or None) if device is None else self.net.end(device, 1)


class _Strangers:
    """Adapters that nobody claims, by leaf and port: where one sits, a host's cable is not missing but unnamed."""

    def __init__(self, net: Network, hosts: Longs, leaf: Ints, leaf_port: Ints) -> None:
        self._left: dict[int, set[int]] = {}
        for row in np.flatnonzero(net.unclaimed[hosts]).tolist():
            self._left.setdefault(int(leaf[row]), set()).add(int(leaf_port[row]))

    def may_be(self, leaf: int, port: int) -> bool:
        ports = self._left.get(leaf)
        if not ports or (port >= 0 and port not in ports):
            return False
        ports.remove(port if port >= 0 else min(ports))
        return True


def _pick(flip: "np.ndarray[tuple[int], np.dtype[np.bool_]]", yes: Ints, no: Ints) -> Ints:
    return np.where(flip, yes, no).astype(np.int32)


def _sources(net: Network) -> tuple[str, ...]:
    return tuple(sorted({name for names in net.source_sets for name in names}))


