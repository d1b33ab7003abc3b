"""Checks that a whole tree of HyperNodes obeys its consumer's rules, before any of it is written.

Inference produces valid trees. This is a last check, because an invalid tree stops every topology job of a
cluster. Performs no I/O.
"""

import re
from collections.abc import Iterator, Sequence

from hyperscout_publish.hypernodes.wanted import Wanted

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a label value and an object name
_MAX_TIER_NAME = 253


def broken_rules(tree: Sequence[Wanted]) -> Iterator[str]:
    """Yield a description of each rule that the tree breaks; nothing if it may be published."""
    by_name = {w.name: w for w in tree}
    if len(by_name) != len(tree):
        yield "two HyperNodes have the same name"
    parent: dict[str, str] = {}
    leaf: dict[str, str] = {}
    for w in tree:
        if not _NAME.fullmatch(w.name):
            yield f"{w.name!r} is not a valid name for a HyperNode"
        if w.tier < 1:
            yield f"{w.name} has tier {w.tier}; expected 1 or more"
        length = len(w.tier_name)
        if length > _MAX_TIER_NAME:
            yield f"the tier name of {w.name} has {length} characters; expected at most {_MAX_TIER_NAME}"
        if bool(w.children) == bool(w.nodes):
            yield f"{w.name} has both nodes and children, or neither"
        for child in w.children:
            if (other := parent.setdefault(child, w.name)) != w.name:
                yield f"{child} has two parents, {other} and {w.name}"
            if child not in by_name:
                yield f"{w.name} has the child {child}, which does not exist"
            elif by_name[child].tier >= w.tier:  # this also rules out cycles
                yield f"{w.name} (tier {w.tier}) is not above {child} (tier {by_name[child].tier})"
        for node in w.nodes:
            if (other := leaf.setdefault(node, w.name)) != w.name:
                yield f"node {node} is in two HyperNodes, {other} and {w.name}"
    tier_names: dict[int, str] = {}
    for w in tree:
        if (name := tier_names.setdefault(w.tier, w.tier_name)) != w.tier_name:
            yield f"tier {w.tier} has two names, {name!r} and {w.tier_name!r}"
    depths = {_depth(w, parent) for w in tree if not w.children}
    if len(depths) > 1:
        yield f"leaves have different depths: {', '.join(map(str, sorted(depths)))}"


def _depth(w: Wanted, parent: dict[str, str]) -> int:
    """Return the number of HyperNodes above `w`. Bounded even if there is a cycle."""
    depth, name = 0, w.name
    while (above := parent.get(name)) is not None and depth <= len(parent):
        depth, name = depth + 1, above
    return depth
