"""The present wiring as a blueprint: what `--accept` writes.

Patterns that hold for each of their cables stay as they were written; all other cables become lines. A
blueprint without switches goes on speaking of its own ports alone; one with switches takes in the networks
that they are part of, and where there is none yet, everything.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hyperscout_collector.blueprint.declared import (
    ARROW,
    Blueprint,
    DeclaredSwitch,
    End,
    Pattern,
    end_of,
)
from hyperscout_collector.blueprint.matching import Bools, Present, match, resolved
from hyperscout_collector.blueprint.reading import MAX_END
from hyperscout_collector.topology import Topology

_PLAIN = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._/:>{}()+*% ]*[-A-Za-z0-9._/})])?")
_DIGITS = re.compile(r"([0-9]{1,18})")
_WORD = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Accepted:
    """`text`: the new blueprint. `dropped`: names of patterns that hold no more. `left_out`: cables whose
    port another one has too, of which nobody says whose they are, or whose name cannot be written."""

    text: str
    links: int
    patterns: int
    dropped: tuple[str, ...]
    left_out: int


def accept(topology: Topology, old: Blueprint | None) -> Accepted:
    """What is wired now, in the words of the blueprint before where they still fit."""
    present = Present.of(topology)
    if old is None:
        return _written(present, (), ~present.foreign, np.zeros_like(present.foreign), None, ())
    names, _ = resolved(old, present)
    found = match(old.cables, names, present)
    broken = {int(-1 - o) for o in old.cables.origin[~found.there].tolist() if o < 0}
    kept = [p for i, p in enumerate(old.patterns) if i not in broken]
    of_kept = np.isin(old.cables.origin, [-1 - i for i in range(len(old.patterns)) if i not in broken])
    by_pattern = match(old.cables.chosen(of_kept), names, present).declared
    if old.switches:
        scope = _networks(present, {*names, *(i for s in old.switches for i in _ids(s, present))})
    else:
        scope = found.declared | found.on_declared_port
    if not scope.any():
        scope = np.ones_like(scope)  # it speaks of nothing that is there
    scope &= ~present.foreign | found.declared
    dropped = tuple(p.name for i, p in enumerate(old.patterns) if i in broken)
    return _written(present, kept, scope, by_pattern, old, dropped)


def _ids(switch: DeclaredSwitch, present: Present) -> Sequence[str]:
    return (switch.id,) if switch.id in present.names else present.ids.get(switch.name, ())


def _networks(present: Present, inside: set[str]) -> Bools:
    """Links of the switches that cables between switches join to those `inside`."""
    is_switch = np.array([device in present.names for device in present.devices], np.bool_)
    reached = is_switch & np.array([device in inside for device in present.devices], np.bool_)
    if not len(reached):
        return np.zeros(len(present.table), np.bool_)
    a, b = present.a, present.b
    between = is_switch[a] & is_switch[b]
    while True:
        more = reached.copy()
        more[b[between & reached[a]]] = True
        more[a[between & reached[b]]] = True
        if (more == reached).all():
            return reached[a] | reached[b]
        reached = more


def _written(
    present: Present,
    patterns: Sequence[Pattern],
    rows: Bools,
    by_pattern: Bools,
    old: Blueprint | None,
    dropped: tuple[str, ...],
) -> Accepted:
    taken = {end for row in np.flatnonzero(by_pattern).tolist() for end in present.ends(row)}
    noted = present.table.notes
    links = []
    left_out = 0
    for row in sorted(np.flatnonzero(rows & ~by_pattern).tolist(), key=lambda row: (row in noted, row)):
        ends = present.ends(row)
        used = any(end.port and end in taken for end in ends)
        if used or present.unknown[row] or not all(_can_be_written(end, present) for end in ends):
            left_out += 1
            continue
        taken.update(ends)
        links.append(ends)
    switches = _switches(present, rows | by_pattern, old)
    text = "".join(_text(present, switches, patterns, links, old.header if old else ""))
    return Accepted(text, len(links), len(patterns), dropped, left_out)


def _switches(present: Present, rows: Bools, old: Blueprint | None) -> list[DeclaredSwitch]:
    """Of the present cables, by name; an id where one was declared, or where a name tells nothing."""
    if old is None:
        found, with_id = set(present.names), set[str]()
    elif not old.switches:
        return []
    else:
        inside = {*present.a[rows].tolist(), *present.b[rows].tolist()}
        found = {present.devices[i] for i in inside} & present.names.keys()
        found |= {i for s in old.switches for i in _ids(s, present)}
        with_id = {s.name for s in old.switches if s.id}
    switches = []
    for ident in found:
        name = present.called(ident)
        if _is_name(name):
            switches.append(DeclaredSwitch(name, ident if name in with_id else ""))
    return sorted(switches, key=lambda s: _natural(s.name))


def _natural(text: str) -> list[tuple[int, str]]:
    """Sorts leaf-2 before leaf-10: texts stand before numbers, numbers by value."""
    parts = _DIGITS.split(text)
    return [(int(part) if i % 2 else -1, part) for i, part in enumerate(parts)]


def _text(
    present: Present,
    switches: Sequence[DeclaredSwitch],
    patterns: Sequence[Pattern],
    links: Sequence[tuple[End, ...]],
    header: str,
) -> Iterator[str]:
    yield header
    yield "version: 1\n"
    if switches:
        yield "switches:\n"
        for s in switches:
            if s.id:
                yield f"- {{name: {_quoted(s.name)}, id: {_quoted(s.id)}}}\n"
            elif "[" in s.name:
                yield f"- {{name: {_quoted(s.name)}}}\n"  # brackets of its own, no range
            else:
                yield f"- {_scalar(s.name)}\n"
    if patterns:
        yield "patterns:\n"
        for p in patterns:
            yield f"- name: {_scalar(p.name)}\n"
            if p.written:
                over = (f"{name}: {_values(texts)}" for name, texts in p.written)
                yield f"  for: {{{', '.join(over)}}}\n"
            yield f"  link: {_scalar(p.link)}\n"
    lines = []
    for ends in links:
        said = [present.said(end) for end in ends]
        names = [(present.called(end.device), end.port) for end in ends]
        if [end_of(text) for text in said] == names and not any(map(ARROW.search, said)):
            lines.append(f"- {_scalar(' -> '.join(said))}\n")
        else:
            a, b = (f"{{device: {_quoted(d)}, port: {_quoted(p)}}}" for d, p in names)
            lines.append(f"- {{a: {a}, b: {b}}}\n")
    yield "links:\n" if lines or not (switches or patterns) else ""
    yield from sorted(lines, key=_natural)


def _can_be_written(end: End, present: Present) -> bool:
    return _is_name(present.called(end.device)) and (not end.port or _is_name(end.port))


def _is_name(text: str) -> bool:
    """Whether the reader takes it."""
    return text.isprintable() and 0 < len(text) <= MAX_END // 2 and text == text.strip()


def _scalar(text: str) -> str:
    """A YAML text outside of brackets: plain where that is safe, else double-quoted."""
    plain = _PLAIN.fullmatch(text) is not None and ": " not in text
    return text if plain else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # JSON's escapes are YAML's (YAML 1.2, 7.3.1)


def _values(texts: Sequence[str]) -> str:
    written = [t if _WORD.fullmatch(t) else _quoted(t) for t in texts]
    return written[0] if len(written) == 1 else f"[{', '.join(written)}]"
