"""Labels with the tiers under the keys of other projects, and the record of those that the collector set.

An annotation of each node records the labels that the collector set under such keys, with their values. A
label that the annotation does not have, or that has another value by now, belongs to another owner: the
collector neither changes nor removes it.

A kubelet may write annotations of its node. So the record counts only for labels that a kubelet may write,
too, or that the collector sets now.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hyperscout_topology.names import is_hyperscout_key, is_label_key, is_protected_key, tier_level, tier_name
from hyperscout_topology.topology import Topology

from hyperscout_publish.hypernodes.wanted import Wanted
from hyperscout_publish.nodes.tier_labels import Labels, Patch

TIER: Final = "{tier}"
FABRIC_TIER: Final = "{fabric_tier}"
_LEAF = tier_name(1)
_NUMBERS = range(100)  # of tiers; no fabric has as many


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """A label key of one tier, or one with the number of the tier in it (`tier_name` is "")."""

    key: str
    tier_name: str = ""

    def possible_keys(self) -> Iterator[str]:
        """Yield all keys that it can give."""
        for number in _NUMBERS if not self.tier_name else range(1):
            yield self.key.replace(TIER, str(number)).replace(FABRIC_TIER, str(number))


def key_template(entry: str) -> KeyTemplate:
    """Parse an entry of the setting. Raises ValueError."""
    key, equals, name = entry.partition("=")
    template = KeyTemplate(key, name)
    if key.count(TIER) + key.count(FABRIC_TIER) != (0 if equals else 1):
        raise ValueError(f"{entry!r}: expected KEY=TIER, or a key with {TIER} or {FABRIC_TIER} in it, once")
    if equals and tier_level(name) is None:
        raise ValueError(
            f"{entry!r}: expected the name of a tier, such as nvlink, leaf, pod or core, after ="
        )
    if wrong := next((x for x in template.possible_keys() if not is_label_key(x)), None):
        raise ValueError(f"{entry!r}: {wrong!r}: expected a label key such as example.com/leaf")
    if is_hyperscout_key(key):
        raise ValueError(f"{entry!r}: node_labels sets the labels of hyperscout.io: remove it")
    return template


def key_templates(entries: Sequence[str]) -> tuple[KeyTemplate, ...]:
    """Parse the setting. Raises ValueError."""
    templates = tuple(map(key_template, entries))
    seen: set[str] = set()
    for template, entry in zip(templates, entries, strict=True):
        if twice := seen.intersection(template.possible_keys()):
            raise ValueError(f"{entry!r}: an earlier entry gives {min(twice)} too: remove one")
        seen.update(template.possible_keys())
    return templates


def keys_of_tiers(topology: Topology, templates: Sequence[KeyTemplate]) -> Callable[[Wanted], Iterable[str]]:
    """Return the keys of a HyperNode's label, as a function.

    The fabric's tiers count from 0. That of accelerators is none of them, unless it stands for the leaves
    too. An accelerator domain of one host has no key of its own: it is there only so that all hosts have as
    many tiers.
    """
    names = {h.tier: h.tier_name for h in topology.hypernodes}
    alone = {h.name for h in topology.hypernodes if tier_level(h.tier_name) == 0 and len(h.nodes) == 1}
    fabric = sorted(tier for tier, x in names.items() if tier_level(x) or _LEAF not in names.values())
    number = {tier: str(n) for n, tier in enumerate(fabric)}

    def keys(h: Wanted) -> Iterator[str]:
        for template in templates:
            if template.tier_name:
                if h.tier_name == template.tier_name and h.name not in alone:
                    yield template.key
            elif TIER in template.key:
                yield template.key.replace(TIER, str(h.tier))
            elif h.tier in number:
                yield template.key.replace(FABRIC_TIER, number[h.tier])

    return keys


@dataclass(frozen=True, slots=True)
class OtherKeys:
    """Labels of a node under keys of other projects: the patch, the record, and keys that others occupy."""

    patch: Patch
    record: str
    taken: frozenset[str]


def other_keys(present: Labels, ours: Labels, labels: Labels) -> OtherKeys:
    """Return what to change for a node to have `labels`. `ours`: of `set_by_us`."""
    taken = frozenset(key for key in labels if key in present and key not in ours)
    wanted = {key: value for key, value in labels.items() if key not in taken}
    patch: Patch = {key: None for key in sorted(ours) if key not in wanted}
    patch |= {key: value for key, value in wanted.items() if present.get(key) != value}
    return OtherKeys(patch, ",".join(f"{key}={value}" for key, value in sorted(wanted.items())), taken)


def set_by_us(present: Labels, record: str, possible: Collection[str]) -> Labels:
    """Return the labels that the collector set and no other client changed.

    `record`: "" = none. `possible`: the keys that it may set now.
    """
    return {
        key: value
        for key, value in _parsed(record)
        if present.get(key) == value
        and (key in possible or not (is_protected_key(key) or is_hyperscout_key(key)))
    }


@lru_cache(maxsize=10_000)  # the nodes of a leaf have the same record
def _parsed(record: str) -> tuple[tuple[str, str], ...]:
    pairs = (item.partition("=") for item in record.split(","))
    return tuple((key, value) for key, equals, value in pairs if equals)
