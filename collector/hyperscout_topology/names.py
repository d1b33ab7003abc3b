"""Checks and formats names for other programs: YAML scalars, Kubernetes node names, Slurm names.

Names come from the network (node descriptions, LLDP system names), so they may be any text.
"""

import json
import re
from collections.abc import Iterator, Sequence

from hyperscout_formats.facts.accelerators import KINDS, NVLINK
from hyperscout_formats.text.counts import and_more

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/,-]*(\[[0-9,-]+\][A-Za-z0-9._/,-]*)*")
# Words that a YAML 1.1 parser (types bool, null and float) or Slurm's parser reads as another type.
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"])
_KUBERNETES = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# Slurm reads "ALL" as all nodes, and "DEFAULT" as none.
_SLURM = re.compile(r"(?!(?i:all|default)(?:\n|\Z))[A-Za-z0-9_][A-Za-z0-9._-]*+")
_ALL_SLURM = re.compile(rf"{_SLURM.pattern}(?:\n{_SLURM.pattern})*+")
_MAX_NAMED = 20
_LEVELS = (NVLINK, "leaf", "pod", "core")
_LABEL_KEY = re.compile(
    rf"((?=[^/]{{1,253}}/){_KUBERNETES.pattern}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
)
_PROTECTED = ("kubernetes.io", "k8s.io")
_OWN_PREFIX = "hyperscout.io"
_HIGHER = re.compile(r"core-([1-9][0-9]{0,3})")


def tier_name(level: int) -> str:
    """The name of the tier of switches at a level."""
    return _LEVELS[level] if level < len(_LEVELS) else f"core-{level}"


def tier_level(name: str) -> int | None:
    """The level of the tier with this name, 0 = accelerators; None if no hierarchy has such a tier."""
    if name in KINDS:
        return 0
    match = _HIGHER.fullmatch(name)
    if match is not None and int(match[1]) >= len(_LEVELS):
        return int(match[1])
    return _LEVELS.index(name) if name in _LEVELS else None


def visible(text: str) -> str:
    """The text with control characters escaped, so that names from the network are safe on terminals."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def scalar(text: str) -> str:
    """A YAML scalar that every parser reads as this text: plain where that is safe, else double-quoted."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text)  # JSON's escapes are also YAML's (YAML 1.2, 7.3.1)


def is_node_name(name: str) -> bool:
    """Whether the name is a valid Kubernetes node name (DNS-1123 subdomain, at most 253 characters)."""
    return len(name) <= 253 and _KUBERNETES.fullmatch(name) is not None


def is_label_key(text: str) -> bool:
    """Whether the text is a valid key of a Kubernetes label."""
    return _LABEL_KEY.fullmatch(text) is not None


def is_hyperscout_key(key: str) -> bool:
    """Whether the prefix of the label key is hyperscout.io or a subdomain of it."""
    prefix, slash, _ = key.partition("/")
    return bool(slash) and (prefix == _OWN_PREFIX or prefix.endswith("." + _OWN_PREFIX))


def is_protected_key(key: str) -> bool:
    """Whether the prefix of the label key is one of Kubernetes: a kubelet may not set all of these."""
    prefix, slash, _ = key.partition("/")
    return bool(slash) and any(prefix == x or prefix.endswith("." + x) for x in _PROTECTED)


def is_slurm_name(name: str) -> bool:
    """Whether Slurm's configuration can contain this node name unchanged."""
    return _SLURM.fullmatch(name) is not None


def are_slurm_names(names: Sequence[str]) -> bool:
    """Whether all names are Slurm names. One match of the joined text, as there may be 100,000 names."""
    text = "\n".join(names)
    return text.count("\n") == len(names) - 1 and _ALL_SLURM.fullmatch(text) is not None


def left_out(names: Sequence[str], why: str) -> Iterator[str]:
    """Comment lines that name what a format cannot contain; no lines where there is nothing."""
    if names:
        listed = ", ".join(json.dumps(name) for name in names[:_MAX_NAMED])
        yield f"# left out, {why}: {listed}{and_more(len(names) - _MAX_NAMED)}\n"
