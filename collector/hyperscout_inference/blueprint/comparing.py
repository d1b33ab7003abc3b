"""Compare the wiring with the blueprint: one `Drift` for each place that an operator has to check.

A cable in a wrong port is reported once, with the declared cables of both its ends. A device without any of
its cables is reported once, not once per cable. A cable between two switches that only hosts
report is no drift, because no reporter can observe it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from hyperscout_formats.text.counts import first_few
from hyperscout_topology.topology import Anomaly, Endpoint, Topology

from hyperscout_inference.blueprint.declared import Blueprint, End
from hyperscout_inference.blueprint.judging import Judged, judge
from hyperscout_inference.blueprint.matching import Bools, Present

KIND = "BlueprintDrift"
MAX_DRIFTS = 10_000  # reported one by one; the rest is a count
_NAMED = 3
_NOTE_MAX = 120  # characters


class Drift(NamedTuple):
    """`sign`: "-" missing, "+" not declared, "~" different. `near`: ids of the devices at the far ends of the
    cables; they give the domain if the ends of the anomaly do not."""

    sign: str
    anomaly: Anomaly
    near: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """`more`: drifts beyond MAX_DRIFTS. `declared`: cables of the blueprint; `unseen`: the number of them
    that no reporter can observe."""

    drifts: tuple[Drift, ...]
    more: int
    declared: int
    unseen: int


def compare(topology: Topology, blueprint: Blueprint) -> Comparison:
    """Return what is missing first, then what is different, then what is not declared."""
    judged = judge(topology, blueprint)
    found = _Comparing(blueprint, judged)
    drifts = [
        *_switches(blueprint, judged.present, found.sources),
        *map(_twice, judged.ambiguous),
        *found.drifts(),
    ]
    drifts.sort(key=lambda x: ("-~+".index(x.sign), x.anomaly.message, x.anomaly.key))
    return Comparison(
        tuple(drifts[:MAX_DRIFTS]),
        max(0, len(drifts) - MAX_DRIFTS),
        len(blueprint.cables),
        len(judged.unclear) + int(judged.unseen.sum()),
    )


def _anomaly(
    subject: Endpoint, peer: Endpoint | None, message: str, sources: tuple[str, ...], confidence: float = 1.0
) -> Anomaly:
    return Anomaly(KIND, subject, peer, None, sources, confidence, message)


def _switches(blueprint: Blueprint, present: Present, sources: tuple[str, ...]) -> Iterator[Drift]:
    """Yield one drift per switch with another id than the declared one."""
    for switch in blueprint.switches:
        if switch.id and switch.id not in present.names:
            for ident in present.ids.get(switch.name, ()):
                text = f"{switch.name} is {ident}; the blueprint has {switch.id}"
                yield Drift("~", _anomaly(Endpoint(ident, switch.name), None, text, sources))


def _twice(name: str) -> Drift:
    text = f"more than one switch is called {name}: the blueprint must name them by id"
    return Drift("~", _anomaly(Endpoint(name, name), None, text, ()))


class _Comparing:
    def __init__(self, blueprint: Blueprint, judged: Judged) -> None:
        self._blueprint = blueprint
        self._judged = judged
        self._cables = judged.cables
        self._present = judged.present
        self._match = judged.found
        self.sources = tuple(sorted({s for names in self._present.table.source_sets for s in names}))
        self._wrong = self._wrong_links()

    def drifts(self) -> Iterator[Drift]:
        found = self._match
        reported = np.concatenate([found.have_a[self._wrong], found.have_b[self._wrong]])
        left = self._judged.missing & ~np.isin(found.a, reported) & ~np.isin(found.b, reported)
        absent, rest = self._absent(np.flatnonzero(left).tolist())
        yield from absent
        for row in rest:
            yield self._missing_cable(row)
        yield from self._wrong_cables()

    def _wrong_links(self) -> Bools:
        """(links,) present links that are not declared, on a declared port or on a declared switch."""
        present, found = self._present, self._match
        on_port = found.on_declared_port
        wrong = on_port & ~present.unknown  # the adapter's host is unknown; the cable may be the declared one
        whole = np.array([device in self._judged.whole for device in present.devices], np.bool_)
        if whole.any():
            wrong |= (whole[present.a] | whole[present.b]) & ~on_port & ~present.foreign
        wrong &= ~found.declared
        if present.table.notes:
            noted = np.zeros(len(wrong), np.bool_)
            noted[list(present.table.notes)] = True
            wrong &= ~(
                noted & found.on_right_port
            )  # of several cables that claim one port, the declared one is right
        return wrong

    def _absent(self, rows: Sequence[int]) -> tuple[list[Drift], list[int]]:
        """Return devices without any present cable as drifts, and the missing cables of other devices."""
        by_device: dict[int, list[int]] = {}
        for row in rows:
            for device in {int(self._cables.a[row]), int(self._cables.b[row])}:
                if not self._match.known[device]:
                    by_device.setdefault(device, []).append(row)
        reported: set[int] = set()
        found = []
        for device, mine in sorted(by_device.items(), key=lambda x: (-len(x[1]), self._match.resolved[x[0]])):
            left = [row for row in mine if row not in reported]
            if len(left) < 2:
                continue  # a missing cable is the better report: it names both ends
            reported.update(left)
            found.append(self._absent_device(device, left))
        for name in self._switches_without_cables():
            text = f"{name} is in the blueprint, and none of its cables is present"
            found.append(Drift("-", _anomaly(Endpoint(name, name), None, text, self.sources, 0.9)))
        return found, [row for row in rows if row not in reported]

    def _switches_without_cables(self) -> list[str]:
        """Return declared switches without any cable, present or declared."""
        with_cable = {*self._present.devices, *self._match.resolved}
        return sorted(
            s.name
            for s in self._blueprint.switches
            if s.name not in with_cable
            and s.id not in with_cable
            and with_cable.isdisjoint(self._present.ids.get(s.name, ()))
        )

    def _absent_device(self, device: int, rows: Sequence[int]) -> Drift:
        name = self._match.resolved[device]
        cables = []
        near = []
        for row in rows:
            mine, other = self._judged.ends(row)
            if self._cables.a[row] != device:
                mine, other = other, mine
            near.append(other.device)
            port = f"p{mine.port}" if mine.port.isdecimal() else mine.port or "any port"
            cables.append(f"{port} -> {self._present.text(other)}")
        called = self._present.names.get(name, name)
        text = (
            f"{called} has {len(rows)} cables in the blueprint, and none of them is present: "
            f"{first_few(sorted(cables), _NAMED)}"
        )
        anomaly = _anomaly(Endpoint(name, called), None, text, self.sources, 0.9)
        return Drift("-", anomaly, tuple(sorted(set(near))))

    def _missing_cable(self, row: int) -> Drift:
        a, b = sorted(self._judged.ends(row), key=self._present.height)
        ends = f"from {self._present.text(a)} to {self._present.text(b)}"
        text = f"no cable {ends}; the blueprint has one"
        return Drift("-", _anomaly(self._endpoint(a), self._endpoint(b), text, self.sources, 0.9))

    def _endpoint(self, end: End) -> Endpoint:
        return Endpoint(end.device, self._present.names.get(end.device, end.device), end.port or None)

    def _wrong_cables(self) -> Iterator[Drift]:
        present, found = self._present, self._match
        rows = np.flatnonzero(self._wrong).tolist()
        ends = np.concatenate([found.have_a[rows], found.have_b[rows]])
        expected: dict[End, str] = {}  # the declared cable on each port
        elsewhere = ~found.there & (np.isin(found.a, ends) | np.isin(found.b, ends))
        for cable in np.flatnonzero(elsewhere).tolist():
            a, b = self._judged.ends(cable)
            expected[a] = f"{present.text(a)} -> {present.text(b)}"
            expected[b] = f"{present.text(b)} -> {present.text(a)}"
        table = present.table
        for row in rows:
            a, b = present.ends(row)
            where = [expected[end] for end in (a, b) if end.port and end in expected]
            text = (
                f"{present.text(a)} is plugged into {present.text(b)}; "
                f"the blueprint has {' and '.join(where) or 'no such cable'}"
            )
            confidence = 1.0
            if note := table.notes.get(row):
                text, confidence = f"{text} ({note[:_NOTE_MAX]})", 0.5
            sources = tuple(table.source_sets[table.sources[row]])
            yield Drift("~" if where else "+", _anomaly(*present.endpoints(row), text, sources, confidence))
