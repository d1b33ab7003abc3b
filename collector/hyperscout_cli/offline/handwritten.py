"""Hand-written HyperNode YAML: reads it, checks it, and compares it with the wiring.

Format: topology.volcano.sh/v1alpha1. A broken rule is a result, not an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from hyperscout_formats.text.counts import count
from hyperscout_formats.text.host_list import fold, natural_key
from hyperscout_publish.hypernodes.wanted import TIER_LABEL_PREFIX
from hyperscout_topology.topology import HyperNode, Topology

from hyperscout_cli.shared.errors import BadInputError
from hyperscout_cli.shared.files import read_bytes, shown

MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """One HyperNode of the file. After `expand`, `nodes` are all nodes below it."""

    name: str
    tier: int
    children: tuple[str, ...]
    nodes: frozenset[str]
    patterns: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    oddities: tuple[str, ...] = ()


def read(path: str) -> list[Written]:
    """All HyperNodes of a YAML file: documents, a List, or both. Raises BadInputError with file and line."""
    import yaml

    data = read_bytes(path, limit=MAX_BYTES)
    try:
        documents = list(yaml.load_all(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{shown(path)}:{mark.line + 1}" if mark else shown(path)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise BadInputError(f"{where}: not YAML: {reason}") from error
    except (RecursionError, ValueError) as error:
        raise BadInputError(f"{shown(path)}: not YAML: {error}") from error
    found: list[Written] = []
    for i, document in enumerate(documents, 1):
        items = document.get("items") if isinstance(document, Mapping) else None
        found += [
            _one(item, f"{shown(path)}: document {i}")
            for item in (items if isinstance(items, list) else [document])
            if isinstance(item, Mapping) and item.get("kind") == "HyperNode"
        ]
    if not found:
        raise BadInputError(f"{shown(path)}: no HyperNode found: expected objects of kind HyperNode")
    return found


def in_cluster(found: Sequence[Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]]) -> list[Written]:
    """HyperNodes of other owners, with the nodes that their patterns and labels select. `labels`: by node."""
    from hyperscout_publish.hypernodes.overlap import nodes_named
    from hyperscout_publish.hypernodes.plan import is_ours

    return [
        replace(
            _one(item, "cluster"),
            nodes=frozenset(nodes_named(item, sorted(labels), labels)),
            patterns=(),
            labels=(),
        )
        for item in found
        if not is_ours(item)
    ]


def _one(item: Mapping[str, Any], where: str) -> Written:
    name = _at(item, "metadata", "name")
    tier = _at(item, "spec", "tier")
    if not isinstance(name, str) or not name:
        raise BadInputError(f"{where}: metadata.name: expected a string")
    if not isinstance(tier, int) or isinstance(tier, bool):
        raise BadInputError(f"{where}: HyperNode {name!r}: spec.tier: expected an integer")
    members = _at(item, "spec", "members")
    children: list[str] = []
    nodes: set[str] = set()
    patterns: list[str] = []
    labels: list[tuple[str, str]] = []
    odd: list[str] = []
    for member in members if isinstance(members, list) else []:
        kind = _at(member, "type")
        exact = _at(member, "selector", "exactMatch", "name")
        pattern = _at(member, "selector", "regexMatch", "pattern")
        matched = _at(member, "selector", "labelMatch", "matchLabels")
        if isinstance(exact, str) and kind == "HyperNode":
            children.append(exact)
        elif isinstance(exact, str) and kind == "Node":
            nodes.add(exact)
        elif isinstance(pattern, str) and kind == "Node":
            patterns.append(pattern)
        elif isinstance(matched, Mapping) and kind == "Node":
            labels += [(str(k), str(v)) for k, v in matched.items()]
        elif kind == "HyperNode":
            odd.append("a HyperNode member without exactMatch is ignored by the scheduler")
        else:
            odd.append(f"a member selects nothing: {str(member)[:80]}")
    return Written(name, tier, tuple(children), frozenset(nodes), tuple(patterns), tuple(labels), tuple(odd))


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def problems(written: list[Written]) -> Iterator[str]:
    """Broken rules, worst first. The first two stop every topology job of the cluster."""
    names = [w.name for w in written]
    by_name = {w.name: w for w in written}
    parents: dict[str, list[str]] = {}
    for w in written:
        for child in w.children:
            parents.setdefault(child, []).append(w.name)
    for name, above in sorted(parents.items()):
        if len(above) > 1:
            yield f"{name} has several parents ({', '.join(above)}): the scheduler stops all topology jobs"
    if cycle := _cycle(written):
        yield f"{' -> '.join(cycle)} is a cycle: the scheduler stops all topology jobs"
    for name in sorted({n for n in names if names.count(n) > 1}):
        yield f"{name} is defined twice: the last definition applies"
    for w in written:
        for child in w.children:
            if child not in by_name:
                yield f"{w.name} has the child {child}, which does not exist"
            elif by_name[child].tier >= w.tier:
                yield f"{w.name} (tier {w.tier}) is not above {child} (tier {by_name[child].tier})"
        yield from (f"{w.name}: {odd}" for odd in w.oddities)
        for key, value in w.labels:
            if not key.startswith(TIER_LABEL_PREFIX):
                yield f"{w.name} selects nodes by label {key}={value}: not compared, since labels are unknown"


def _cycle(written: list[Written]) -> list[str]:
    try:
        TopologicalSorter({w.name: w.children for w in written}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def expand(written: list[Written], topology: Topology) -> list[Written]:
    """The HyperNodes with complete `nodes`: matches of patterns in the topology, and nodes of children."""
    known = sorted({n for h in topology.hypernodes for n in h.nodes})
    ours = {h.name: h.nodes for h in topology.hypernodes}
    full: dict[str, frozenset[str]] = {}
    for w in sorted(written, key=lambda w: w.tier):
        nodes = set(w.nodes)
        for pattern in w.patterns:
            try:
                matches = re.compile(pattern).search
            except re.error as error:
                raise BadInputError(f"HyperNode {w.name!r}: bad pattern {pattern!r}: {error}") from error
            nodes.update(n for n in known if matches(n))
        for key, value in w.labels:
            if key.startswith(TIER_LABEL_PREFIX):
                nodes.update(n for n in ours.get(value, ()) if len(n) > 63)
        for child in w.children:
            nodes |= full.get(child, frozenset())
        full[w.name] = frozenset(nodes)
    return [replace(w, nodes=full[w.name]) for w in written]


def disagreements(written: Sequence[Written], topology: Topology) -> Iterator[str]:
    """Lines about nodes and groupings; names do not matter. Nothing when they agree."""
    wired = {n for h in topology.hypernodes for n in h.nodes}
    named = {n for w in written for n in w.nodes}
    if unknown := named - wired:
        yield f"in the file, but in no fabric: {fold(unknown)}"
    if forgotten := wired - named:
        yield f"in the fabric, but not in the file: {fold(forgotten)}"
    places: dict[str, list[str]] = {}
    for w in written:
        if not w.children:
            for node in w.nodes:
                places.setdefault(node, []).append(w.name)
    for node in sorted((n for n, leaves in places.items() if len(leaves) > 1), key=natural_key):
        leaves = ", ".join(sorted(places[node], key=natural_key))
        yield f"{node} is in {len(places[node])} leaves ({leaves}): used twice"
    tiers = sorted({w.tier for w in written})
    ours = sorted({h.tier for h in topology.hypernodes})
    if len(tiers) != len(ours):
        yield f"written in {count(len(tiers), 'tier')}, wired in {len(ours)}"
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
    for row in sorted(rows, key=lambda r: natural_key(r.name)):
        best = _best(row, owner)
        if not best:
            continue
        partners.setdefault(best, []).append(row.name)
        elsewhere: dict[str, list[str]] = {}
        for node in row.nodes:
            if owner.get(node, best) != best:
                elsewhere.setdefault(owner[node], []).append(node)
        for name in sorted(elsewhere, key=natural_key):
            hosts = fold(elsewhere[name])
            yield f"{hosts}: written in {row.name} (by its wires {best}), plugged into {name}"
    for name in sorted(partners, key=natural_key):
        if len(partners[name]) > 1:
            yield f"{', '.join(partners[name])}: written apart, one domain by the wires ({name})"
