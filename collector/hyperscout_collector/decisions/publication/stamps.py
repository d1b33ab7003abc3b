"""Adds to a generation what inference does not provide: lasting times, and the HyperNodes of anomalies."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from hyperscout_topology.topology import Anomaly, Condition, Endpoint, HyperNode, Topology

AnomalyKey = tuple[str, str, str, str, str]
LinkKey = tuple[tuple[str, str], ...]


def by_link(anomalies: Iterable[Anomaly]) -> dict[LinkKey, dict[AnomalyKey, Anomaly]]:
    """Groups anomalies by link (by device, where there is no other end): they flap together.

    Times are removed.
    """
    found: dict[LinkKey, dict[AnomalyKey, Anomaly]] = {}
    for x in anomalies:
        ends = (x.subject,) if x.peer is None else (x.subject, x.peer)
        link = tuple(sorted((e.device, e.port or "") for e in ends))
        found.setdefault(link, {})[x.key] = replace(x, since_ns=0) if x.since_ns else x
    return found


def moved(topology: Topology, by_ns: int) -> Topology:
    """Moves the times of conditions and anomalies."""
    return _with_times(topology, lambda since_ns: max(since_ns + by_ns, 1)) if by_ns else topology


def not_after(topology: Topology, now_ns: int) -> Topology:
    """Replaces later times of conditions and anomalies by `now_ns`: the clock that made them was ahead."""
    times = [x.since_ns for x in topology.anomalies]
    times += [c.since_ns for h in topology.hypernodes for c in h.conditions]
    return (
        _with_times(topology, lambda at_ns: min(at_ns, now_ns))
        if max(times, default=0) > now_ns
        else topology
    )


def _with_times(topology: Topology, time: Callable[[int], int]) -> Topology:
    def changed(since_ns: int) -> int:
        return time(since_ns) if since_ns else 0

    return replace(
        topology,
        anomalies=tuple(replace(x, since_ns=changed(x.since_ns)) for x in topology.anomalies),
        hypernodes=tuple(
            replace(h, conditions=tuple(replace(c, since_ns=changed(c.since_ns)) for c in h.conditions))
            for h in topology.hypernodes
        ),
    )


def stamped(hypernodes: Iterable[HyperNode], before: Topology | None, now_ns: int) -> tuple[HyperNode, ...]:
    """Sets `since_ns` of conditions by HyperNode name and type. It changes only when the status flips."""
    past: Mapping[str, Mapping[str, Condition]] = {
        h.name: {c.type: c for c in h.conditions} for h in (before.hypernodes if before else ())
    }

    def stamp(c: Condition, old: Condition | None) -> Condition:
        if old is None:
            return replace(c, since_ns=now_ns)
        since_ns = old.since_ns if old.status == c.status else max(now_ns, old.since_ns)
        return replace(c, since_ns=since_ns or now_ns)

    return tuple(
        replace(h, conditions=tuple(stamp(c, past.get(h.name, {}).get(c.type)) for c in h.conditions))
        for h in hypernodes
    )


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
            result.append(x if x.hypernode is None else replace(x, tier=tier[x.hypernode]))
            continue
        places = [h for h in (place(x.subject), place(x.peer)) if h is not None]
        lowest = min(places, key=lambda h: (h.tier, h.name), default=None)
        result.append(
            replace(x, hypernode=lowest.name if lowest else None, tier=lowest.tier if lowest else None)
        )
    return result
