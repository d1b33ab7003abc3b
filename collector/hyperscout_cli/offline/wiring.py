"""Hand-written HyperNodes beside the wires: which nodes are written where they are not plugged in."""

from collections.abc import Iterator, Mapping, Sequence

from hyperscout_formats.text.host_list import fold
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_cli.offline.handwritten import Written


def disagreements(written: Sequence[Written], topology: Topology) -> Iterator[str]:
    """Lines about nodes and groupings; names do not matter. Nothing when they agree."""
    wired = {n for h in topology.hypernodes for n in h.nodes}
    named = {n for w in written for n in w.nodes}
    if unknown := named - wired:
        yield f"written, but in no fabric: {fold(unknown)}"
    if forgotten := wired - named:
        yield f"in the fabric, but not written: {fold(forgotten)}"
    places: dict[str, list[str]] = {}
    for w in written:
        if not w.children:
            for node in w.nodes:
                places.setdefault(node, []).append(w.name)
    for node in sorted(n for n, leaves in places.items() if len(leaves) > 1):
        yield f"{node} is in {len(places[node])} leaves ({', '.join(sorted(places[node]))}): used twice"
    tiers = sorted({w.tier for w in written})
    ours = sorted({h.tier for h in topology.hypernodes})
    if len(tiers) != len(ours):
        yield f"written in {len(tiers)} tiers, wired in {len(ours)}"
    for rank, tier in enumerate(tiers):
        rows = [w for w in written if w.tier == tier]
        best: tuple[float, int, Sequence[HyperNode]] | None = None
        for i, wired_tier in enumerate(ours):
            hypernodes = [h for h in topology.hypernodes if h.tier == wired_tier]
            score = (_likeness(rows, hypernodes), -abs(i - rank))
            if best is None or score > best[:2]:
                best = (*score, hypernodes)
        if best is not None:
            yield from _tier(rows, best[2])


def _likeness(rows: Sequence[Written], hypernodes: Sequence[HyperNode]) -> float:
    """How well the best partners fit: the sum over `rows` of shared nodes / nodes of either."""
    sets = {h.name: set(h.nodes) for h in hypernodes}
    owner = {n: h.name for h in hypernodes for n in h.nodes}
    total = 0.0
    for row in rows:
        best = _best(row, owner)
        if best:
            total += len(row.nodes & sets[best]) / len(row.nodes | sets[best])
    return total


def _best(row: Written, owner: Mapping[str, str]) -> str:
    counts: dict[str, int] = {}
    for node in row.nodes:
        if node in owner:
            counts[owner[node]] = counts.get(owner[node], 0) + 1
    return min(counts, key=lambda name: (-counts[name], name), default="")


def _tier(rows: Sequence[Written], hypernodes: Sequence[HyperNode]) -> Iterator[str]:
    owner = {n: h.name for h in hypernodes for n in h.nodes}
    partners: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda r: r.name):
        best = _best(row, owner)
        if not best:
            continue
        partners.setdefault(best, []).append(row.name)
        elsewhere: dict[str, list[str]] = {}
        for node in row.nodes:
            if owner.get(node, best) != best:
                elsewhere.setdefault(owner[node], []).append(node)
        for name in sorted(elsewhere):
            hosts = fold(elsewhere[name])
            yield f"{hosts}: written in {row.name} (by its wires {best}), plugged into {name}"
    for name in sorted(partners):
        if len(partners[name]) > 1:
            yield f"{', '.join(partners[name])}: written apart, one domain by the wires ({name})"
