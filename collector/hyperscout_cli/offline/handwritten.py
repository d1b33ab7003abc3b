"""HyperNode YAML as people write it: read, checked against the rules its consumer relies on, expanded.

Format: topology.volcano.sh/v1alpha1. What breaks a rule is named, never an error: the point is to show it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from hyperscout_publish.hypernodes.wanted import TIER_LABEL_PREFIX
from hyperscout_topology.topology import Topology

from hyperscout_cli.shared.errors import CliError
from hyperscout_cli.shared.files import read_bytes, shown

MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """One HyperNode as written; `nodes` are all those below it once `expand` has run."""

    name: str
    tier: int
    children: tuple[str, ...]
    nodes: frozenset[str]
    patterns: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    oddities: tuple[str, ...] = ()


def read(path: str) -> list[Written]:
    """All HyperNodes of a YAML file: documents, a List, or both. Raises CliError with file and line."""
    import yaml

    data = read_bytes(path, MAX_BYTES)
    try:
        documents = list(yaml.load_all(data, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{shown(path)}:{mark.line + 1}" if mark else shown(path)
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise CliError(f"{where}: not YAML: {reason}") from error
    except (RecursionError, ValueError) as error:
        raise CliError(f"{shown(path)}: not YAML: {error}") from error
    found: list[Written] = []
    for i, document in enumerate(documents, 1):
        items = document.get("items") if isinstance(document, Mapping) else None
        found += [
            _one(item, f"{shown(path)}: document {i}")
            for item in (items if isinstance(items, list) else [document])
            if isinstance(item, Mapping) and item.get("kind") == "HyperNode"
        ]
    if not found:
        raise CliError(f"{shown(path)}: no HyperNode in it (kind: HyperNode)")
    return found


def in_cluster(found: Sequence[Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]]) -> list[Written]:
    """Those that are not ours; what their patterns and labels select is known here. `labels`: by node."""
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
        raise CliError(f"{where}: metadata.name is missing or no text")
    if not isinstance(tier, int) or isinstance(tier, bool):
        raise CliError(f"{where}: HyperNode {name!r}: spec.tier is missing or no number")
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
    """Broken rules, worst first: the first two stop every topology job of the cluster."""
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
        yield f"{name} is written twice: the last one wins"
    for w in written:
        for child in w.children:
            if child not in by_name:
                yield f"{w.name} names {child}, which is not there"
            elif by_name[child].tier >= w.tier:
                yield f"{w.name} (tier {w.tier}) is not above {child} (tier {by_name[child].tier})"
        yield from (f"{w.name}: {odd}" for odd in w.oddities)
        for key, value in w.labels:
            if not key.startswith(TIER_LABEL_PREFIX):
                yield f"{w.name} selects nodes by label {key}={value}: not compared, a file knows no labels"


def _cycle(written: list[Written]) -> list[str]:
    try:
        TopologicalSorter({w.name: w.children for w in written}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def expand(written: list[Written], topology: Topology) -> list[Written]:
    """The same with every `nodes` filled in: patterns over the topology's nodes, children added up."""
    known = sorted({n for h in topology.hypernodes for n in h.nodes})
    ours = {h.name: h.nodes for h in topology.hypernodes}
    full: dict[str, frozenset[str]] = {}
    for w in sorted(written, key=lambda w: w.tier):
        nodes = set(w.nodes)
        for pattern in w.patterns:
            try:
                matches = re.compile(pattern).search
            except re.error as error:
                raise CliError(f"HyperNode {w.name!r}: bad pattern {pattern!r}: {error}") from error
            nodes.update(n for n in known if matches(n))
        for key, value in w.labels:
            if key.startswith(TIER_LABEL_PREFIX):
                nodes.update(n for n in ours.get(value, ()) if len(n) > 63)
        for child in w.children:
            nodes |= full.get(child, frozenset())
        full[w.name] = frozenset(nodes)
    return [replace(w, nodes=full[w.name]) for w in written]
