"""Computes the node labels for the tiers of a topology, and the patches to apply them.

Readers treat nodes with equal label values as one domain, and an empty value would be one domain too. So a
value is the HyperNode's name, which is stable and unique in the cluster, and a node without a domain has no
label. One patch per node contains all tiers, so a reader never sees the leaf of one pod with the name of
another pod.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_topology.gaps import single_host_domains
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.wanted import (
    MAX_EXACT_NAME,
    NOTHING_HELD,
    TIER_LABEL_PREFIX,
    Held,
    Wanted,
    wanted,
)

# Keys with the prefix that name tiers, in this or another hierarchy. Other keys belong to other owners.
_ANY_TIER = rf"({'|'.join(KINDS)}|leaf|pod|core(-[0-9]+)?|tier-[0-9]+)"
_TIER_KEY = re.compile(re.escape(TIER_LABEL_PREFIX) + _ANY_TIER)

Labels = Mapping[str, str]
NO_LABELS: Mapping[str, Labels] = MappingProxyType({})
Patch = dict[str, str | None]  # None removes the label
KeysOf = Callable[[Wanted], Iterable[str]]  # the keys of a HyperNode's label


def own_key(h: Wanted) -> Iterable[str]:
    """Return the key of hyperscout.io for a HyperNode's label."""
    return (h.tier_label,)


def without_single_hosts(topology: Topology, keys: KeysOf) -> KeysOf:
    """Return `keys` without those of accelerator domains of one host. HyperNodes select a node with a long
    name by its label, so such a node keeps it."""
    alone = single_host_domains(topology)
    return lambda h: () if h.name in alone and not h.has_long_names else keys(h)


def tier_labels(topology: Topology, held: Held = NOTHING_HELD, keys: KeysOf = own_key) -> dict[str, Labels]:
    """Return the labels of each node in a HyperNode that is not held back. `keys`: those of a HyperNode.

    Nodes of one leaf share one mapping.
    """
    hypernodes = list(wanted(topology, held))
    above = {child: h for h in hypernodes for child in h.children}
    found: dict[str, Labels] = {}
    for leaf in hypernodes:
        if leaf.nodes:
            labels = {key: h.name for h in _chain(leaf, above) for key in keys(h)}
            found.update(dict.fromkeys(leaf.nodes, labels))
    return found


def wanted_and_kept(
    topology: Topology, held: Held, keys: KeysOf, *, keeps: bool
) -> tuple[Mapping[str, Labels], Mapping[str, Labels]]:
    """Return `tier_labels`, and those that stay where they are although their HyperNode is held back.

    `keeps`: whether any of these stay.
    """
    stay = tier_labels(topology, keys=keys) if keeps and held != NOTHING_HELD else NO_LABELS
    return tier_labels(topology, held, keys), stay


def _chain(leaf: Wanted, above: Mapping[str, Wanted]) -> list[Wanted]:
    chain = [leaf]
    while (parent := above.get(chain[-1].name)) is not None and parent.tier > chain[-1].tier:
        chain.append(parent)
    return chain


def level_keys(topology: Topology) -> list[str]:
    """Return the label keys of all tiers, the widest tier first."""
    tiers = {h.tier: h.tier_label for h in wanted(topology)}
    return [tiers[tier] for tier in sorted(tiers, reverse=True)]


def label_patch(present: Labels, labels: Labels) -> Patch:
    """Return a merge patch of a node's labels; empty if they are correct. Labels of other owners stay."""
    patch: Patch = {key: None for key in sorted(present) if _TIER_KEY.fullmatch(key) and key not in labels}
    return patch | {key: value for key, value in labels.items() if present.get(key) != value}


def labels_of(
    node: str, wanted_labels: Mapping[str, Labels], kept: Mapping[str, Labels], there: Labels
) -> Labels:
    """Return the labels that a node is to have. `kept`: labels that stay where their key is `there`."""
    nothing: Labels = {}
    stay = {key: value for key, value in kept.get(node, nothing).items() if key in there}
    return stay | {**wanted_labels.get(node, nothing)}


def label_patches(
    wanted_labels: Mapping[str, Labels],
    present: Iterable[tuple[str, Labels]],
    *,
    kept: Mapping[str, Labels] = NO_LABELS,
    long_names_only: bool,
) -> dict[str, Patch]:
    """Return the patch of each node that needs one. `present`: (name, labels) of the existing nodes.

    `kept`: labels that are not added to a node, but whose keys stay where they are, with these values.
    `long_names_only`: include only nodes with names too long for exactMatch; HyperNodes select them by label.
    """
    found: dict[str, Patch] = {}
    for name, labels in present:
        if long_names_only and len(name) <= MAX_EXACT_NAME:
            continue
        if patch := label_patch(labels, labels_of(name, wanted_labels, kept, labels)):
            found[name] = patch
    return found


def say_patch(patch: Patch, present: Labels) -> str:
    """Return a patch as text, for example `leaf: a -> b, pod: c (new), core: d (removed)`."""
    parts: list[str] = []
    for key, value in patch.items():
        before = present.get(key)
        if value is None:
            parts.append(f"{key}: {before} (removed)")
        else:
            parts.append(f"{key}: {value} (new)" if before is None else f"{key}: {before} -> {value}")
    return ", ".join(parts)
