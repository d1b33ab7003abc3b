"""Host lists: `gpu-[01-16],login` for many names in few characters, out and in.

Slurm's bracket notation (slurm.conf(5), NodeName), as ClusterShell and pdsh read it, too. Names come from
wires, so one may hold a comma, a bracket or a control character: such a name stands in double quotes, with
a backslash before quotes and backslashes of its own and escapes as Python writes them.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

MAX_NAMES: Final = 100_000  # of one list
MAX_CHARACTERS: Final = 4 << 20
_MAX_DIGITS = 9  # a host list's numbers are machine integers
_MAX_RANGE = 65536  # Slurm takes more hosts in one range for a mistake
_MAX_ITEM = 1000  # characters of what is written out once for each number
_MAX_SHOWN = 60  # characters of a text in an error
_DIGITS = "0123456789"
_GUID = re.compile(r"[0-9a-f]+")
_GUID_LENGTH = 16
_ODD = re.compile(r'[\[\],"]|^ | $|^$')
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
# What stands between two commas: a name in quotes, or one with brackets in which a comma separates no names.
_ITEM = re.compile(
    r'\s*+(?:(?P<quoted>"(?:[^"\\]|\\.)*+")\s*+|(?!")(?P<plain>(?:[^\[\],]++|\[[^\[\]]*+\])*+))(?:,|$)',
    re.DOTALL,
)
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_HINT = " (a name with brackets of its own goes in double quotes)"


class HostListError(ValueError):
    """A text that is no host list; says where, and what to write instead."""


def fold(names: Iterable[str]) -> str:
    """The names as a host list, each once, by name and number: `gpu-[01-04,07],login`.

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
            parts.append(quoted(prefix))
            del digits[0]
        if len(digits) == 1:
            parts.append(quoted(prefix + digits[0]))
        elif digits and (_ODD.search(prefix + digits[0]) or not prefix.isprintable()):
            parts += [quoted(prefix + text) for text in digits]
        elif digits:
            parts.append(f"{prefix}[{','.join(_ranges(digits))}]")
    return ",".join(parts)


def quoted(name: str) -> str:
    """One name as a host list has it: in quotes where it would be read as something else."""
    if name.isprintable() and not _ODD.search(name):
        return name
    text = name.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) + '"'


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


def expand(text: str, most: int = MAX_NAMES) -> list[str]:
    """The names of a host list in its order, each once. Raises HostListError; also for over `most` names.

    Brackets may stand anywhere and more than once: `r[1-2]n[01-16]-ib` is 32 names.
    """
    if len(text) > MAX_CHARACTERS:
        raise HostListError(f"a host list of {len(text)} characters: at most {MAX_CHARACTERS} are read")
    if not text.strip():
        raise HostListError("an empty host list: expected names such as gpu-[01-16],login")
    found: dict[str, None] = {}
    at = 0
    while at <= len(text):
        match = _ITEM.match(text, at)
        if match is None:
            raise HostListError(f"{_shown(text[at:])}: {_why_not(text[at:])}")
        names = [_unquoted(match["quoted"])] if match["quoted"] else _item(match["plain"].strip(), most)
        found.update(dict.fromkeys(names))
        if len(found) > most:
            raise HostListError(f"{_shown(text)}: more than {most} names")
        at = match.end() + (match.end() == len(text) and text[-1] != ",")
    return list(found)


def spread(text: str, most: int = MAX_NAMES, what: str = "names") -> list[str]:
    """The names of one item: `leaf-[01-32]`; commas outside of brackets are its own. Raises HostListError."""
    if not text:
        raise HostListError("a comma too many: there is no name between two of them")
    if len(text) > _MAX_ITEM and "[" in text:
        raise HostListError(f"{_shown(text)}: brackets in a text of over {_MAX_ITEM} characters")
    names = [""]
    at = 0
    try:
        for match in _BRACKETS.finditer(text):
            numbers = _numbers(match[1], most // len(names), f"more than {most} {what}")
            before = _plain(text[at : match.start()])
            names = [f"{name}{before}{number}" for name in names for number in numbers]
            at = match.end()
        rest = _plain(text[at:])
    except HostListError as error:
        raise HostListError(f"{_shown(text)}: {error}") from error
    return [name + rest for name in names] if rest else names


def _item(text: str, most: int) -> list[str]:
    try:
        return spread(text, most)
    except HostListError as error:
        hint = _HINT if "[" in text else ""
        raise HostListError(f"{error}{hint}") from error


def _plain(text: str) -> str:
    if "[" in text or "]" in text:
        raise HostListError("a bracket without its other, or within another")
    return text


def _numbers(text: str, most: int, too_many: str) -> list[str]:
    """What stands in one pair of brackets."""
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise HostListError("expected numbers in brackets, as in [1-8,12]")
        first, last = match[1], match[2] or match[1]
        if max(len(first), len(last)) > _MAX_DIGITS:
            raise HostListError(f"a number in brackets has at most {_MAX_DIGITS} digits")
        low, high = int(first), int(last)
        if high < low:
            raise HostListError(f"{last} is less than {first}")
        if high - low + 1 + len(found) > most:
            raise HostListError(too_many)
        found += [str(number).zfill(len(first)) for number in range(low, high + 1)]
    return found


def _unquoted(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code is None:
            return _SHORT.get(match[4], match[4])
        if int(code, 16) > sys.maxunicode:
            raise HostListError(f"{_shown(text)}: \\U{code} is no character")
        return chr(int(code, 16))

    return _ESCAPE.sub(character, text[1:-1])


def _why_not(text: str) -> str:
    """Of a text that begins with no item."""
    if text.lstrip().startswith('"'):
        return "a quote without its other, or no comma behind that"
    return f"a bracket without its other, or within another{_HINT}"


def _shown(text: str) -> str:
    """The text in quotes, escaped, with at most _MAX_SHOWN characters between the quotes."""
    shown = ascii(text[: _MAX_SHOWN + 1])
    return shown if len(shown) <= _MAX_SHOWN + 2 else shown[: _MAX_SHOWN - 2] + "..." + shown[0]
