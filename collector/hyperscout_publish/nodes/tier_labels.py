"""Which labels nodes should carry for the tiers of a topology, and what is to be changed about them.

Equality of a label's value is the domain to all who read these labels, and an empty value would be one
domain too. So a value is the HyperNode's name, unique in the cluster and stable, and a node without a domain
has no label. One patch a node carries all its tiers: nobody ever reads the leaf of one pod beside the name
of another.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.wanted import MAX_EXACT_NAME, TIER_LABEL_PREFIX, Wanted, wanted

# Keys under our prefix that are tiers', now or in another hierarchy; all others are somebody else's.
_TIER_KEY = re.compile(re.escape(TIER_LABEL_PREFIX) + r"(nvlink|leaf|pod|core(-[0-9]+)?|tier-[0-9]+)")

Labels = Mapping[str, str]
Patch = dict[str, str | None]  # None: the label goes


def tier_labels(topology: Topology) -> dict[str, Labels]:
    """The labels of each node that is in a HyperNode. Nodes of one leaf share one mapping."""
    hypernodes = list(wanted(topology))
    above = {child: h for h in hypernodes for child in h.children}
    found: dict[str, Labels] = {}
    for leaf in hypernodes:
        if leaf.nodes:
            found.update(dict.fromkeys(leaf.nodes, _chain(leaf, above)))
    return found


def _chain(leaf: Wanted, above: Mapping[str, Wanted]) -> Labels:
    labels: dict[str, str] = {}
    at: Wanted | None = leaf
    while at is not None and at.tier_label not in labels:
        labels[at.tier_label] = at.name
        at = above.get(at.name)
    return labels


def level_keys(topology: Topology) -> list[str]:
    """The label keys of all tiers, the widest tier first."""
    tiers = {h.tier: h.tier_label for h in wanted(topology)}
    return [tiers[tier] for tier in sorted(tiers, reverse=True)]


def label_patch(present: Labels, labels: Labels) -> Patch:
    """What a merge patch of a node's labels must say; empty where they are right. Foreign labels stay."""
    patch: Patch = {key: None for key in sorted(present) if _TIER_KEY.fullmatch(key) and key not in labels}
    return patch | {key: value for key, value in labels.items() if present.get(key) != value}


def label_patches(
    wanted_labels: Mapping[str, Labels], present: Iterable[tuple[str, Labels]], *, long_names_only: bool
) -> dict[str, Patch]:
    """The patch of each node that needs one. `present`: (name, labels) of the nodes that there are.

    `long_names_only`: those alone whose names are too long for a HyperNode to name them: it finds them by
    their label.
    """
    nothing: Labels = {}
    found: dict[str, Patch] = {}
    for name, labels in present:
        if long_names_only and len(name) <= MAX_EXACT_NAME:
            continue
        if patch := label_patch(labels, wanted_labels.get(name, nothing)):
            found[name] = patch
    return found


def say_patch(patch: Patch, present: Labels) -> str:
    """A patch as people read it: `leaf: a -> b, pod: c (new), core: d (removed)`."""
    parts: list[str] = []
    for key, value in patch.items():
        before = present.get(key)
        if value is None:
            parts.append(f"{key}: {before} (removed)")
        else:
            parts.append(f"{key}: {value} (new)" if before is None else f"{key}: {before} -> {value}")
    return ", ".join(parts)


def some(names: Sequence[str], limit: int = 5) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
