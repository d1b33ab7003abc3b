"""What other programs accept as a name: YAML scalars, Kubernetes node names, Slurm host lists.

Names come from wires (node descriptions, LLDP system names), so any text may turn up.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/,-]*(\[[0-9,-]+\][A-Za-z0-9._/,-]*)*")
# Words that a YAML 1.1 reader (its types bool, null and float) or Slurm's takes for something else.
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"])
_KUBERNETES = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SLURM = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_ALL_SLURM = re.compile(rf"{_SLURM.pattern}(\n{_SLURM.pattern})*")
_GUID = re.compile(r"[0-9a-f]+")
_GUID_LENGTH = 16
_DIGITS = "0123456789"
_MAX_DIGITS = 9  # a host list's numbers are machine integers
_MAX_RANGE = 65536  # Slurm takes more hosts in one range for a mistake
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


def host_list(names: Iterable[str]) -> str:
    """Slurm's bracket notation, `gpu-[01-04,07],login`, by name and number (slurm.conf(5), NodeName).

    Only a number at the end of a name goes into brackets: Slurm refuses text after them. Leading zeros
    are kept, since a range is printed as wide as its first number. A GUID is no number.
    """
    numbers: dict[str, list[str]] = {}
    for name in names:
        prefix = name.rstrip(_DIGITS)
        if len(name) == _GUID_LENGTH and _GUID.fullmatch(name):
            prefix = name
        elif len(name) - len(prefix) > _MAX_DIGITS:
            prefix = name[:-_MAX_DIGITS]
        numbers.setdefault(prefix, []).append(name[len(prefix) :])
    parts = []
    for prefix in sorted(numbers):
        digits = sorted(set(numbers[prefix]))
        digits.sort(key=len)
        if not digits[0]:
            parts.append(prefix)
            del digits[0]
        if len(digits) == 1:
            parts.append(prefix + digits[0])
        elif digits:
            parts.append(f"{prefix}[{','.join(_ranges(digits))}]")
    return ",".join(parts)


def _ranges(digits: Sequence[str]) -> Iterator[str]:
    """Runs of consecutive numbers; `digits` are sorted by length, then value."""
    first = last = digits[0]
    start = value = int(first)
    for text in digits[1:]:
        number = int(text)
        # One digit more is still the same range when it has no zero in front: 99, 100.
        same_width = len(text) == len(last) or not text.startswith("0")
        if number == value + 1 and same_width and number - start < _MAX_RANGE:
            last, value = text, number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = text
        start = value = number
    yield first if first == last else f"{first}-{last}"
