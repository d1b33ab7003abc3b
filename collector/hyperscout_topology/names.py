"""What other programs accept as a name: YAML scalars, Kubernetes node names, Slurm names.

Names come from wires (node descriptions, LLDP system names), so any text may turn up.
"""

import json
import re
from collections.abc import Iterator, Sequence

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/,-]*(\[[0-9,-]+\][A-Za-z0-9._/,-]*)*")
# Words that a YAML 1.1 reader (its types bool, null and float) or Slurm's takes for something else.
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"])
_KUBERNETES = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SLURM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_ALL_SLURM = re.compile(rf"{_SLURM.pattern}(\n{_SLURM.pattern})*")
_MAX_NAMED = 20


def visible(text: str) -> str:
    """The text with control characters shown as escapes: names come from wires and go to terminals."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def scalar(text: str) -> str:
    """A YAML scalar that every reader takes for this text: plain where that is safe, else double-quoted."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return json.dumps(text)  # JSON's escapes are YAML's (YAML 1.2, 7.3.1)


def is_node_name(name: str) -> bool:
    """Whether a Kubernetes node may have this name (DNS-1123 subdomain, at most 253 characters)."""
    return len(name) <= 253 and _KUBERNETES.fullmatch(name) is not None


def is_slurm_name(name: str) -> bool:
    """Whether Slurm's configuration can hold this node name as it stands."""
    return _SLURM.fullmatch(name) is not None


def are_slurm_names(names: Sequence[str]) -> bool:
    """Whether all of them are: one look at the joined text, since there may be 100,000."""
    text = "\n".join(names)
    return text.count("\n") == len(names) - 1 and _ALL_SLURM.fullmatch(text) is not None


def left_out(names: Sequence[str], why: str) -> Iterator[str]:
    """Comment lines that name what a format could not hold; nothing when there is nothing."""
    if names:
        more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
        listed = ", ".join(json.dumps(name) for name in names[:_MAX_NAMED])
        yield f"# left out, {why}: {listed}{more}\n"
