"""Reads and writes host lists, a short form for many names: `gpu-[01-16],login`.

The notation is Slurm's bracket notation (slurm.conf(5), NodeName), which ClusterShell and pdsh also read.
Names come from devices, so a name may contain a comma, a bracket or a control character. Such a name is put
in double quotes. Its own quotes and backslashes are escaped with a backslash, and its control characters with
Python's escapes.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

MAX_NAMES: Final = 100_000  # names in one list
MAX_CHARACTERS: Final = 4 << 20
_MAX_DIGITS = 9  # numbers in a host list are machine integers
_MAX_RANGE = 65536  # Slurm treats a range of more hosts as a mistake
_MAX_ITEM = 1000  # characters of an item with brackets, which is copied for each number
_MAX_SHOWN = 60  # characters of a text in an error
_DIGITS = "0123456789"
_GUID = re.compile(r"[0-9a-f]+")
_GUID_LENGTH = 16
_ODD = re.compile(r'[\[\],"]|^ | $|^$')
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?", re.ASCII)
# One item between two commas: a quoted name, or a name in which commas in brackets do not separate names.
_ITEM = re.compile(
    r'\s*+(?:(?P<quoted>"(?:[^"\\]|\\.)*+")\s*+|(?!")(?P<plain>(?:[^\[\],]++|\[[^\[\]]*+\])*+))(?:,|$)',
    re.DOTALL,
)
_NATURAL = re.compile(r"([^0-9]*)([0-9]{0,18})")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_HINT = " (put a name that contains brackets in double quotes)"


class HostListError(ValueError):
    """A text is not a host list. The message contains the place and the correct form."""


def fold(names: Iterable[str]) -> str:
    """Return the names as a host list, each once, in order of name and number: `gpu-[01-04,07],login`.

    Only a number at the end of a name goes into brackets, because Slurm refuses text after brackets. Leading
    zeros are kept, because all numbers of a range are as wide as the first one. A GUID is not split into a
    name and a number.
    """
    names = tuple(names)
    if text := _one_range(names):
        return text
    numbers: dict[str, list[str]] = {}
    for name in names:
        prefix = name.rstrip(_DIGITS)
        if len(name) == _GUID_LENGTH and _GUID.fullmatch(name):
            prefix = name
        elif len(name) - len(prefix) > _MAX_DIGITS:
            prefix = name[:-_MAX_DIGITS]
        numbers.setdefault(prefix, []).append(name[len(prefix) :])
    parts = []
    for prefix in sorted(numbers, key=natural_key):
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


def _one_range(names: Sequence[str]) -> str:
    """Return the host list of names that differ in consecutive numbers, in their order; "" for other names.

    Most lists are of this form: it takes a fifth of the time to see that.
    """
    if not 1 < len(names) <= _MAX_RANGE:
        return ""
    first, last = names[0], names[-1]
    prefix = first.rstrip(_DIGITS)
    low, high = first[len(prefix) :], last[len(prefix) :]
    is_plain = prefix.isprintable() and not _ODD.search(prefix) and not _GUID.fullmatch(prefix)
    if not is_plain or not 0 < len(low) <= len(high) <= _MAX_DIGITS:
        return ""
    numbers = range(int(low), int(low) + len(names))
    digits = map(f"%0{len(low)}d".__mod__, numbers) if low[0] == "0" else map(str, numbers)
    # The prefix has no newline, so the texts are equal only if all names are.
    expected = prefix + f"\n{prefix}".join(digits)
    return f"{prefix}[{low}-{high}]" if "\n".join(names) == expected else ""


def natural_key(name: str) -> tuple[list[tuple[str, int]], str]:
    """Return a sort key by which w-10 follows w-9."""
    return [(text, int(digits or 0)) for text, digits in _NATURAL.findall(name)], name


def quoted(name: str) -> str:
    """Return one name in the form of a host list: in quotes if it would otherwise be read differently."""
    if name.isprintable() and not _ODD.search(name):
        return name
    text = name.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text) + '"'


def _ranges(digits: Sequence[str]) -> Iterator[str]:
    """Yield runs of consecutive numbers. `digits` are sorted by length, then value."""
    first = last = digits[0]
    start = value = int(first)
    for text in digits[1:]:
        number = int(text)
        # A number with one more digit continues the range if it has no leading zero: 99, 100.
        same_width = len(text) == len(last) or not text.startswith("0")
        if number == value + 1 and same_width and number - start < _MAX_RANGE:
            last, value = text, number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = text
        start = value = number
    yield first if first == last else f"{first}-{last}"


def expand(text: str, most: int = MAX_NAMES) -> list[str]:
    """Return the names of a host list in order, each once. Brackets may occur anywhere and more than once.

    For example, `r[1-2]n[01-16]-ib` is 32 names. Raises HostListError, also for more than `most` names.
    """
    if len(text) > MAX_CHARACTERS:
        raise HostListError(f"a host list of {len(text)} characters; expected at most {MAX_CHARACTERS}")
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
    """Return the names of one item, such as `leaf-[01-32]`. Raises HostListError.

    A comma outside brackets is part of the name.
    """
    if not text:
        raise HostListError("an empty name: remove the extra comma")
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
        raise HostListError("an unmatched or nested bracket")
    return text


def _numbers(text: str, most: int, too_many: str) -> list[str]:
    """Return the numbers in one pair of brackets."""
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
            raise HostListError(f"{_shown(text)}: \\U{code} is not a Unicode character")
        return chr(int(code, 16))

    return _ESCAPE.sub(character, text[1:-1])


def _why_not(text: str) -> str:
    """Return why a text does not begin with an item."""
    if text.lstrip().startswith('"'):
        return "an unmatched quote, or no comma after the closing quote"
    return f"an unmatched or nested bracket{_HINT}"


def _shown(text: str) -> str:
    """Return the text in quotes, escaped, with at most _MAX_SHOWN characters between the quotes."""
    shown = ascii(text[: _MAX_SHOWN + 1])
    return shown if len(shown) <= _MAX_SHOWN + 2 else shown[: _MAX_SHOWN - 2] + "..." + shown[0]
