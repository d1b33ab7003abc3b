"""Decides when the measured figures of a generation are renewed.

The figures differ slightly in every offered topology.

All figures are renewed together, so that one generation contains all changes. They are renewed when a median
moved (see `figures`), appeared or disappeared, when the source of a domain changes, or when the published
figures are too old.
"""

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from hyperscout_topology.figures import MAX_AGE_NS, has_moved, have_moved
from hyperscout_topology.topology import Anomaly, HyperNode, Tier, Topology, is_measured, undamped

_FIGURES = attrgetter("name", "tier", "tier_name", "source", "confidence", "latency_us", "bandwidth_gbps")


def renewed(tree: Topology, offered: Topology, published: Topology | None) -> Topology:
    """Returns `tree` with the figures of `offered`, where it has them. The HyperNodes of `tree` are those of
    one of `offered` and `published`.

    Confidence stays as published unless it moved: the conditions contain it.
    """
    now = {(h.name, h.tier): h for h in offered.hypernodes}
    before = {h.name: h for h in published.hypernodes} if published is not None else {}
    told = {(h.tier, h.tier_name) for h in offered.hypernodes}
    tiers = {(t.tier, t.tier_name): t for t in offered.tiers}
    for t in published.tiers if published is not None else ():
        if (key := (t.tier, t.tier_name)) not in told:
            tiers.setdefault(key, t)  # its HyperNodes may still be there, if their removal waits for approval
    there = {(h.tier, h.tier_name) for h in tree.hypernodes}
    return replace(
        tree,
        hypernodes=tuple(
            _with_figures(h, now.get((h.name, h.tier), h), before.get(h.name)) for h in tree.hypernodes
        ),
        tiers=tuple(tiers[key] for key in sorted(there & tiers.keys())),
    )


def _with_figures(h: HyperNode, now: HyperNode, before: HyperNode | None) -> HyperNode:
    confidence = now.confidence
    if before is not None and before.source == now.source and not has_moved(before.confidence, confidence):
        confidence = before.confidence
    own = (h.source, h.confidence, h.latency_us, h.bandwidth_gbps)
    if own == (now.source, confidence, now.latency_us, now.bandwidth_gbps):
        return h
    return replace(
        h,
        source=now.source,
        confidence=confidence,
        latency_us=now.latency_us,
        bandwidth_gbps=now.bandwidth_gbps,
    )


def _figures(topology: Topology) -> list[tuple[object, ...]]:
    return list(map(_FIGURES, topology.hypernodes))


def is_due(published: Topology, offered: Topology) -> bool:
    """Whether the figures of `offered` differ significantly from those of `published`."""
    if not (published.tiers or offered.tiers) and _figures(published) == _figures(offered):
        return False  # a fast test: mostly no figure has changed
    fresh = renewed(published, offered, published)
    if any(_differs(*pair) for pair in zip(published.hypernodes, fresh.hypernodes, strict=True)):
        return True
    if len(published.tiers) != len(fresh.tiers):
        return True
    if any(_moved(*pair) for pair in zip(published.tiers, fresh.tiers, strict=True)):
        return True
    return _newest_ns(fresh) - _newest_ns(published) > MAX_AGE_NS


def _differs(old: HyperNode, new: HyperNode) -> bool:
    return old is not new and (
        old.source != new.source or old.confidence != new.confidence or _moved(old, new)
    )


def _moved(old: HyperNode | Tier, new: HyperNode | Tier) -> bool:
    return have_moved(old.latency_us, new.latency_us) or have_moved(old.bandwidth_gbps, new.bandwidth_gbps)


def _newest_ns(topology: Topology) -> int:
    both: Iterable[HyperNode | Tier] = (*topology.hypernodes, *topology.tiers)
    return max((m.at_ns for x in both for m in (x.latency_us, x.bandwidth_gbps) if m is not None), default=0)


def calmed(offered: Topology, published: Topology | None) -> Topology:
    """Returns `offered` with the published messages of measured anomalies, where no figure in them moved."""
    measured = (
        {x.key: undamped(x) for x in published.anomalies if is_measured(x)} if published is not None else {}
    )
    if not measured:
        return offered

    def calm(x: Anomaly) -> Anomaly:
        old = measured.get(x.key)
        if old is None or not is_measured(x) or not _say_the_same(old, x):
            return x
        return replace(
            x, message=old.message, figures=old.figures, confidence=old.confidence, sources=old.sources
        )

    return replace(offered, anomalies=tuple(map(calm, offered.anomalies)))


def _say_the_same(old: Anomaly, new: Anomaly) -> bool:
    """Whether two messages have the same figures, and none of them moved. A pair that a message names as an
    example may differ."""
    if not new.figures:
        return old.message == new.message
    if [x.name for x in old.figures] != [x.name for x in new.figures]:
        return False
    return not any(has_moved(a.value, b.value) for a, b in zip(old.figures, new.figures, strict=True))
