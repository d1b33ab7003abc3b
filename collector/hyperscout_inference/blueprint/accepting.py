"""Write the present wiring as a blueprint, for `--accept`.

A pattern without a missing cable stays as written. All other cables become lines. A blueprint without
switches continues to cover only its own ports. A blueprint with switches covers the networks that these are
part of. If nothing that it covers is present, the new blueprint covers everything.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from hyperscout_formats.text.host_list import natural_key
from hyperscout_topology.topology import Topology

from hyperscout_inference.blueprint.declared import (
    ARROW,
    Blueprint,
    DeclaredSwitch,
    End,
    Pattern,
    end_of,
)
from hyperscout_inference.blueprint.judging import Judged, judge
from hyperscout_inference.blueprint.matching import Bools, Present, match
from hyperscout_inference.blueprint.reading import MAX_END

_PLAIN = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._/:>{}()+*% ]*[-A-Za-z0-9._/})])?")
_WORD = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Accepted:
    """`text`: the new blueprint. `dropped`: names of patterns with a missing cable. `left_out`: the
    number of cables that share a port with another cable, or have names that cannot be written."""

    text: str
    links: int
    patterns: int
    dropped: tuple[str, ...]
    left_out: int


def accept(topology: Topology, old: Blueprint | None) -> Accepted:
    """Return the present wiring as a blueprint, with the patterns and names of `old` that are still
    correct."""
    if old is None:
        present = Present.of(topology)
        return _written(present, _Kept((), [], set(), np.zeros_like(present.foreign)), ~present.foreign, None)
    judged = judge(topology, old)
    present, found = judged.present, judged.found
    if old.switches:
        scope = _networks(present, {*found.resolved, *judged.whole})
    else:
        scope = found.declared | found.on_declared_port
    if not scope.any():
        scope = np.ones_like(scope)  # no link that the blueprint covers is present
    scope &= ~present.foreign | found.declared
    return _written(present, _kept(judged, old), scope, old)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What stays of the old blueprint: patterns without a missing cable, and cables that no reporter can
    observe (`unseen`). `taken`: ends of both. `links`: present links that belong to the patterns."""

    patterns: Sequence[Pattern]
    unseen: list[tuple[End, End]]
    taken: set[End]
    links: Bools


def _kept(judged: Judged, old: Blueprint) -> _Kept:
    cables, present = judged.cables, judged.present
    broken = set(cables.origin[judged.missing].tolist())
    patterns = {-1 - i: p for i, p in enumerate(old.patterns) if -1 - i not in broken}
    of_patterns = np.isin(cables.origin, list(patterns))
    links = match(cables.chosen(of_patterns), judged.found.resolved, present).declared
    taken = {end for row in np.flatnonzero(links).tolist() for end in present.ends(row)}
    unseen = []
    for row in np.flatnonzero(judged.unseen).tolist():
        taken.update(judged.ends(row))
        if not of_patterns[row]:
            unseen.append(judged.ends(row))
    unclear = judged.unclear
    unseen += [unclear.ends(i) for i, o in enumerate(unclear.origin.tolist()) if o not in patterns]
    return _Kept(tuple(patterns.values()), unseen, taken, links)


def _networks(present: Present, inside: set[str]) -> Bools:
    """Return the links of all switches that are connected with those `inside` by cables between switches."""
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


def _written(present: Present, kept: _Kept, rows: Bools, old: Blueprint | None) -> Accepted:
    taken = set(kept.taken)
    noted = present.table.notes
    links = list(kept.unseen)
    left_out = 0
    for row in sorted(np.flatnonzero(rows & ~kept.links).tolist(), key=lambda row: (row in noted, row)):
        ends = present.ends(row)
        if any(end.port and end in taken for end in ends) or not all(is_end(end, present) for end in ends):
            left_out += 1
            continue
        taken.update(ends)
        links.append(ends)
    switches = _switches(present, rows | kept.links, kept, old)
    text = "".join(_text(present, switches, kept.patterns, links, old.header if old else ""))
    dropped = tuple(p.name for p in (old.patterns if old else ()) if p not in kept.patterns)
    return Accepted(text, len(links), len(kept.patterns), dropped, left_out)


def _switches(present: Present, rows: Bools, kept: _Kept, old: Blueprint | None) -> list[DeclaredSwitch]:
    """Return the switches of `rows` and those declared already, by name; with id where one was declared."""
    found = set(present.names)
    switches: list[DeclaredSwitch] = []
    with_id: set[str] = set()
    if old is not None:
        if not old.switches:
            return []
        inside = {*present.a[rows].tolist(), *present.b[rows].tolist()}
        found &= {present.devices[i] for i in inside} | {
            ident for s in old.switches for ident in (*present.ids.get(s.name, ()), s.id)
        }
        with_id = {s.name for s in old.switches if s.id}
        unobserved = {end.device for end in kept.taken} - present.names.keys()
        switches += (s for s in old.switches if s.name in unobserved)
    for ident in found:
        name = present.called(ident)
        if _is_name(name):
            switches.append(DeclaredSwitch(name, ident if name in with_id else ""))
    return sorted(switches, key=lambda s: natural_key(s.name))


def _text(
    present: Present,
    switches: Sequence[DeclaredSwitch],
    patterns: Sequence[Pattern],
    links: Sequence[tuple[End, End]],
    header: str,
) -> Iterator[str]:
    yield header
    yield "version: 1\n"
    if switches:
        yield "switches:\n"
        for s in switches:
            if s.id:
                yield f"- {{name: {_quoted(s.name)}, id: {_quoted(s.id)}}}\n"
            elif "[" in s.name or "]" in s.name:
                yield f"- {{name: {_quoted(s.name)}}}\n"  # the brackets are part of the name, not a range
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
        texts = [present.text(end) for end in ends]
        names = [(present.called(end.device), end.port) for end in ends]
        if [end_of(text) for text in texts] == names and not any(map(ARROW.search, texts)):
            lines.append(f"- {_scalar(' -> '.join(texts))}\n")
        else:
            a, b = (f"{{device: {_quoted(d)}, port: {_quoted(p)}}}" for d, p in names)
            lines.append(f"- {{a: {a}, b: {b}}}\n")
    yield "links:\n" if lines or not (switches or patterns) else ""
    yield from sorted(lines, key=natural_key)


def is_end(end: End, present: Present) -> bool:
    """Return whether the blueprint reader accepts the names of an end. The port may be empty."""
    return _is_name(present.called(end.device)) and (not end.port or _is_name(end.port))


def _is_name(text: str) -> bool:
    """Return whether the blueprint reader accepts the name."""
    return text.isprintable() and 0 < len(text) <= MAX_END // 2 and text == text.strip()


def _scalar(text: str) -> str:
    """Return a YAML text outside of brackets: plain where that is safe, else double-quoted."""
    plain = _PLAIN.fullmatch(text) is not None and ": " not in text
    return text if plain else _quoted(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # JSON's escapes are valid YAML (YAML 1.2, 7.3.1)


def _values(texts: Sequence[str]) -> str:
    written = [t if _WORD.fullmatch(t) else _quoted(t) for t in texts]
    return written[0] if len(written) == 1 else f"[{', '.join(written)}]"
