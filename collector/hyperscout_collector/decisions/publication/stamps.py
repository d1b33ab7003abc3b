"""Adds to a generation what inference does not provide: lasting times, what flaps, and the HyperNodes of
anomalies."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, replace
from operator import attrgetter

from hyperscout_inference.hierarchy.conditions import UNTIMED
from hyperscout_topology.link_changes import links_at
from hyperscout_topology.topology import (
    Anomaly,
    Condition,
    Endpoint,
    HyperNode,
    Topology,
    held_back,
    undamped,
)

from hyperscout_collector.decisions.publication.damping import Flapping

AnomalyKey = tuple[str, str, str, str, str]
LinkKey = tuple[tuple[str, str], ...]
_UNCONDITIONED = attrgetter(*(x.name for x in fields(HyperNode) if x.name != "conditions"))


def by_link(anomalies: Iterable[Anomaly]) -> dict[LinkKey, dict[AnomalyKey, Anomaly]]:
    """Groups anomalies by link (by device, where there is no other end): they flap together.

    Times, and what damping added, are removed.
    """
    found: dict[LinkKey, dict[AnomalyKey, Anomaly]] = {}
    for x in map(undamped, anomalies):
        found.setdefault(_link(x), {})[x.key] = replace(x, since_ns=0) if x.since_ns else x
    return found


def flapping_of(anomalies: Iterable[Anomaly]) -> dict[LinkKey, Flapping[AnomalyKey]]:
    """Returns what published anomalies tell of the links that flap."""
    found: dict[LinkKey, Flapping[AnomalyKey]] = {}
    for x in anomalies:
        if x.flaps:
            known = found.get(_link(x), Flapping(x.flaps, x.changed_ns))
            if x.is_over:
                known = replace(known, gone=known.gone | {x.key}, clears_ns=x.clears_ns)
            found[_link(x)] = known
    return found


class Dated:
    """Sets `since_ns` of anomalies, of which none has the key of another. Of an anomaly that is the same
    object as last time, the result is the same object, too."""

    def __init__(self) -> None:
        self._last: dict[AnomalyKey, tuple[Anomaly, Anomaly]] = {}  # without and with the time

    def __call__(self, anomalies: Iterable[Anomaly], since_ns: Mapping[AnomalyKey, int]) -> list[Anomaly]:
        found: dict[AnomalyKey, tuple[Anomaly, Anomaly]] = {}
        for x in anomalies:
            key = x.key
            known = self._last.get(key)
            if known is None or known[0] is not x or known[1].since_ns != since_ns[key]:
                known = x, replace(x, since_ns=since_ns[key])
            found[key] = known
        self._last = found
        return [dated for _, dated in found.values()]


def with_flapping(
    anomalies: Iterable[tuple[Anomaly, Flapping[AnomalyKey] | None]], offered: Topology
) -> list[Anomaly]:
    """Adds to anomalies how their links flap. `offered`: the topology as it is now."""
    pairs = list(anomalies)
    over = [x for x, flapping in pairs if flapping is not None and x.key in flapping.gone]
    back = _back(over, offered)

    def told(x: Anomaly, flapping: Flapping[AnomalyKey] | None) -> Anomaly:
        if flapping is None:
            return x
        flaps, changed_ns = flapping.flaps, flapping.changed_ns
        if x.key in flapping.gone:
            x = replace(x, flaps=flaps, changed_ns=changed_ns, clears_ns=flapping.clears_ns)
            return held_back(x, is_up=x.key in back)
        # Where inference knows until when the anomaly stays, it follows the flaps itself.
        return x if x.clears_ns else replace(x, flaps=flaps, changed_ns=changed_ns)

    return [told(*pair) for pair in pairs]


def _back(over: Collection[Anomaly], topology: Topology) -> set[AnomalyKey]:
    """Returns those of the anomalies that miss a cable or a switch which the topology has."""
    if not over:
        return set()
    switches = {s.id for s in topology.switches}
    links = links_at(topology.links, {x.subject.device for x in over if x.kind == "MissingLink"})
    cables = {_ends((x.a_device, x.a_port), (x.b_device, x.b_port)) for x in links if not x.note}
    there = {"MissingLink": cables, "MissingSwitch": {_ends((id_, "")) for id_ in switches}}
    return {x.key for x in over if _link(x) in there.get(x.kind, ())}


def _link(x: Anomaly) -> LinkKey:
    ends = (x.subject,) if x.peer is None else (x.subject, x.peer)
    return _ends(*((e.device, e.port or "") for e in ends))


def _ends(*ends: tuple[str, str]) -> LinkKey:
    return tuple(sorted(ends))


def moved(topology: Topology, by_ns: int) -> Topology:
    """Moves the times of conditions and anomalies."""
    return _with_times(topology, lambda since_ns: max(since_ns + by_ns, 1)) if by_ns else topology


def not_after(topology: Topology, now_ns: int) -> Topology:
    """Replaces later times of conditions and anomalies by `now_ns`: the clock that made them was ahead."""
    times = [max(x.since_ns, x.changed_ns) for x in topology.anomalies]
    times += [c.since_ns for h in topology.hypernodes for c in h.conditions]
    return (
        _with_times(topology, lambda at_ns: min(at_ns, now_ns))
        if max(times, default=0) > now_ns
        else topology
    )


def _with_times(topology: Topology, time: Callable[[int], int]) -> Topology:
    def changed(since_ns: int) -> int:
        return time(since_ns) if since_ns else 0

    def changed_anomaly(x: Anomaly) -> Anomaly:
        at_ns = x.changed_ns or x.since_ns
        clears_ns = max(x.clears_ns + changed(at_ns) - at_ns, 1) if x.clears_ns else 0
        return replace(x, since_ns=changed(x.since_ns), changed_ns=changed(x.changed_ns), clears_ns=clears_ns)

    return replace(
        topology,
        anomalies=tuple(map(changed_anomaly, topology.anomalies)),
        hypernodes=tuple(
            replace(h, conditions=tuple(replace(c, since_ns=changed(c.since_ns)) for c in h.conditions))
            for h in topology.hypernodes
        ),
    )


def stamped(hypernodes: Iterable[HyperNode], before: Topology | None, now_ns: int) -> tuple[HyperNode, ...]:
    """Sets `since_ns` of conditions by HyperNode name and type. It changes only when the status flips.

    A HyperNode that equals that of before is the same object, so later comparisons end at its identity.
    """
    past = {h.name: h for h in (before.hypernodes if before else ())}

    def stamp(c: Condition, old: Condition | None) -> Condition:
        if old is None:
            return replace(c, since_ns=now_ns)
        if old.since_ns and UNTIMED(old) == UNTIMED(c):
            return old
        since_ns = old.since_ns if old.status == c.status else max(now_ns, old.since_ns)
        return replace(c, since_ns=since_ns or now_ns)

    def stamped_one(h: HyperNode) -> HyperNode:
        old = past.get(h.name)
        if old is h:
            return old
        if old is None:
            return replace(h, conditions=tuple(stamp(c, None) for c in h.conditions))
        known = {c.type: c for c in old.conditions}
        conditions = tuple(stamp(c, known.get(c.type)) for c in h.conditions)
        if conditions == old.conditions and _UNCONDITIONED(h) == _UNCONDITIONED(old):
            return old
        return replace(h, conditions=conditions)

    return tuple(map(stamped_one, hypernodes))


def placed(anomalies: Iterable[Anomaly], hypernodes: tuple[HyperNode, ...]) -> list[Anomaly]:
    """Assigns anomalies to HyperNodes of this tree: a damped one may name a domain of another tree."""
    tier = {h.name: h.tier for h in hypernodes}
    home: dict[str, HyperNode] = {}

    def place(end: Endpoint | None) -> HyperNode | None:
        if end is None:
            return None
        if not home:
            for h in hypernodes:  # sorted by tier: the lowest is used
                for name in (*h.switches, *(() if h.children else h.nodes)):
                    home.setdefault(name, h)
        return home.get(end.device) or home.get(end.name)

    result = []
    for x in anomalies:
        if x.hypernode is None or x.hypernode in tier:
            here = x.tier if x.hypernode is None else tier[x.hypernode]
            result.append(x if x.tier == here else replace(x, tier=here))
            continue
        places = [h for h in (place(x.subject), place(x.peer)) if h is not None]
        lowest = min(places, key=lambda h: (h.tier, h.name), default=None)
        result.append(
            replace(x, hypernode=lowest.name if lowest else None, tier=lowest.tier if lowest else None)
        )
    return result
