"""Match declared cables with present links, in both directions.

Both sides are columns, so that a large fabric is compared within the debounce interval of an inference. An
end is a number for its device and port, a cable is a pair of ends. Objects are built only for differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hyperscout_topology.link_changes import table_of
from hyperscout_topology.topology import Adapter, Endpoint, LinkTable, Topology

from hyperscout_inference.blueprint.declared import Cables, DeclaredSwitch, End, Ints, plain_port

Bools = npt.NDArray[np.bool_]

_ALONE = ("", "1")  # most adapters have one port, which is usually not written


@dataclass(frozen=True, slots=True, eq=False)
class Present:
    """The present links, with ends named as in a blueprint. `a`, `b`: (links,) indexes into `devices`, which
    are ids of switches, names of hosts, or other ids; `a_port`, `b_port` into `ports`."""

    table: LinkTable
    devices: Sequence[str]
    ports: Sequence[str]
    a: Ints
    a_port: Ints
    b: Ints
    b_port: Ints
    names: Mapping[str, str]  # of switches, by id
    ids: Mapping[str, Sequence[str]]  # of switches, by name
    levels: Mapping[str, int]  # of switches, by id
    adapters: Mapping[str, Adapter]  # by id
    foreign: Bools  # (links,) with an end that is neither switch nor host: storage, a manager, a SHARP node
    unknown: Bools  # (links,) with an end at an adapter of an unknown host

    @classmethod
    def of(cls, topology: Topology) -> "Present":
        table = table_of(topology.links)
        names = {s.id: s.name or s.id for s in topology.switches}
        ids: dict[str, list[str]] = {}
        for ident, name in names.items():
            ids.setdefault(name, []).append(ident)
        adapters = {x.id: x for x in topology.adapters}
        ports: dict[str, int] = {}
        devices: dict[str, int] = {}
        device = np.empty(len(table.devices), np.int64)
        label = np.full(len(table.devices), -1)
        for i, ident in enumerate(table.devices):
            called = ident
            if (adapter := adapters.get(ident)) is not None and adapter.name:
                called = adapter.node
                label[i] = ports.setdefault(adapter.name, len(ports))
            device[i] = devices.setdefault(called, len(devices))
        port = np.array([ports.setdefault(plain_port(x), len(ports)) for x in table.ports], np.int64)
        alone = np.array([x in _ALONE for x in table.ports], np.bool_)
        texts = list(ports)

        def columns(at: npt.NDArray[np.int32], of: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
            if not len(at):
                return np.zeros(0, np.int64), np.zeros(0, np.int64)
            found = np.where((label[at] >= 0) & alone[of], label[at], port[of])
            for row in np.flatnonzero((label[at] >= 0) & ~alone[of]).tolist():
                text = f"{texts[label[at[row]]]}/{texts[port[of[row]]]}"
                found[row] = ports.setdefault(text, len(ports))
            return device[at], found

        a, a_port = columns(table.a, table.a_port)
        b, b_port = columns(table.b, table.b_port)
        known = adapters.keys() | names.keys() if adapters else set(table.devices)
        unknown = {x.subject.device for x in topology.anomalies if x.kind == "UnknownHost"}
        return cls(
            table,
            tuple(devices),
            tuple(ports),
            *(a, a_port, b, b_port),
            names,
            ids,
            {s.id: s.level for s in topology.switches},
            adapters,
            _links_at(table, set(table.devices) - known),
            _links_at(table, unknown),
        )

    def ends(self, row: int) -> tuple[End, End]:
        """Return both ends of a link, the lower one first."""
        a = End(self.devices[self.a[row]], self.ports[self.a_port[row]])
        b = End(self.devices[self.b[row]], self.ports[self.b_port[row]])
        return (a, b) if self.height(a) <= self.height(b) else (b, a)

    def endpoints(self, row: int) -> tuple[Endpoint, Endpoint]:
        """Return both ends of a link as an anomaly names them, the lower one first."""
        table = self.table
        found = []
        for at, of in ((table.a[row], table.a_port[row]), (table.b[row], table.b_port[row])):
            ident = table.devices[at]
            host = self.adapters.get(ident)
            name = self.names.get(ident) or (ident if host is None else host.node)
            found.append(Endpoint(ident, name, table.ports[of] or None))
        a, b = found
        a_end = End(self.devices[self.a[row]], self.ports[self.a_port[row]])
        return (a, b) if self.ends(row)[0] == a_end else (b, a)

    def height(self, end: End) -> tuple[int, End]:
        """Sort key of an end, the lowest first: hosts, leaves, higher switches, switches of unknown level."""
        level = self.levels.get(end.device)
        return (0 if level is None else level or 1 << 30, end)

    def called(self, device: str) -> str:
        """Return what a blueprint calls a device: its name if it is printable and unique, else its id."""
        name = self.names.get(device, device)
        return name if len(self.ids.get(name, ())) < 2 and name.isprintable() else device

    def text(self, end: End) -> str:
        """Return an end as a blueprint writes it."""
        return str(End(self.called(end.device), end.port))


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """`there`: (declared,) whether a cable is present. `declared`: (links,) whether a link is declared.

    `a`, `b`: (declared,) a number of each end, -1 = any port; `have_a`, `have_b`: (links,) those of the
    present ends. `known`: (declared devices,) whether the device has a present link; `resolved`: its name in
    `Present`.
    """

    there: Bools
    declared: Bools
    a: Ints
    b: Ints
    have_a: Ints
    have_b: Ints
    known: Bools
    resolved: Sequence[str]

    @property
    def on_declared_port(self) -> Bools:
        """(links,) those with an end on which the blueprint has a cable."""
        ends = np.concatenate([self.a, self.b])
        return np.isin(self.have_a, ends) | np.isin(self.have_b, ends)

    @property
    def on_right_port(self) -> Bools:
        """(links,) those with an end on which the declared cable is present."""
        ends = np.concatenate([self.have_a[self.declared], self.have_b[self.declared]])
        return np.isin(self.have_a, ends) | np.isin(self.have_b, ends)


def resolved(
    switches: Sequence[DeclaredSwitch], cables: Cables, present: Present
) -> tuple[list[str], list[str]]:
    """Return the name in `present` of each device of `cables`, and the names that several switches share."""
    pinned = {s.name: s.id for s in switches if s.id and s.id in present.names}
    names: list[str] = []
    ambiguous: list[str] = []
    for name in cables.devices:
        found = present.ids.get(name, ())
        if name in pinned:
            names.append(pinned[name])
        elif name in present.names or not found:
            names.append(name)
        else:
            names.append(found[0] if len(found) == 1 else name)
            if len(found) > 1:
                ambiguous.append(name)
    return names, ambiguous


def by_label(cables: Cables, present: Present) -> Cables:
    """Return the same cables, with adapters that are given by id named as on their hosts."""
    labelled = {i for i, d in enumerate(cables.devices) if d in present.adapters and present.adapters[d].name}
    if not labelled:
        return cables
    devices = {device: i for i, device in enumerate(cables.devices)}
    ports = {port: i for i, port in enumerate(cables.ports)}
    columns = [cables.a.copy(), cables.a_port.copy(), cables.b.copy(), cables.b_port.copy()]
    for device, port in ((columns[0], columns[1]), (columns[2], columns[3])):
        for row in np.flatnonzero(np.isin(device, list(labelled))).tolist():
            adapter = present.adapters[cables.devices[device[row]]]
            text = cables.ports[port[row]]
            label = adapter.name if text in _ALONE else f"{adapter.name}/{text}"
            device[row] = devices.setdefault(adapter.node, len(devices))
            port[row] = ports.setdefault(label, len(ports))
    a, a_port, b, b_port = columns
    return Cables(tuple(devices), tuple(ports), a, a_port, b, b_port, cables.origin)


def match(cables: Cables, names: Sequence[str], present: Present) -> Match:
    """Match declared cables with present links. `names`: of `cables.devices`, as in `present`.

    A cable with both ports is matched by both. A cable with one open port is matched by the other port and
    the device. Cables with two open ports are matched by number with what is left between the two devices.
    """
    numbers = {device: i for i, device in enumerate(present.devices)}
    count = len(numbers)
    device = np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
    texts = {port: i for i, port in enumerate(present.ports)}
    port = np.array([texts.setdefault(text, len(texts)) for text in cables.ports], np.int64)
    width, wide = len(numbers), len(texts)
    far_a, far_b = (device[x] if len(x) else x for x in (cables.a, cables.b))
    ends = np.concatenate(
        [
            present.a * wide + present.a_port,
            present.b * wide + present.b_port,
            far_a * wide + port[cables.a_port],
            far_b * wide + port[cables.b_port],
        ]
    )
    dense = np.unique(ends, return_inverse=True)[1]
    links, size = len(present.table), len(ends)
    have_a, have_b, a, b = np.split(dense, [links, 2 * links, 2 * links + len(cables)])
    a, b = np.where(cables.a_port > 0, a, -1), np.where(cables.b_port > 0, b, -1)
    there, declared = np.zeros(len(cables), np.bool_), np.zeros(links, np.bool_)

    full = (a >= 0) & (b >= 0)
    have, want = _pair(have_a, have_b, size), _pair(a, b, size)
    there[full] = np.isin(want[full], have)
    declared |= np.isin(have, want[full])

    half = (a >= 0) ^ (b >= 0)
    if half.any():
        want = np.where(a >= 0, a * width + far_b, b * width + far_a)[half]
        left = np.flatnonzero(~declared)
        forth, back = have_a[left] * width + present.b[left], have_b[left] * width + present.a[left]
        there[half] = np.isin(want, np.concatenate([forth, back]))
        declared[left] |= np.isin(forth, want) | np.isin(back, want)

    loose = np.flatnonzero((a < 0) & (b < 0))
    if len(loose):
        left = np.flatnonzero(~declared)
        have = _pair(present.a[left], present.b[left], width)
        want = _pair(far_a[loose], far_b[loose], width)
        there[loose] = _rank(want) < _count(have, want)
        declared[left] |= _rank(have) < _count(want, have)
    return Match(there, declared, a, b, have_a, have_b, device < count, names)


def _links_at(table: LinkTable, devices: set[str]) -> Bools:
    chosen = np.fromiter((d in devices for d in table.devices), np.bool_, len(table.devices))
    return chosen[table.a] | chosen[table.b]


def _pair(a: Ints, b: Ints, size: int) -> Ints:
    return np.minimum(a, b) * size + np.maximum(a, b)


def _rank(keys: Ints) -> Ints:
    """(keys,) the position of each key among equal keys, from 0."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(keys) else order
    starts = np.repeat(first, np.diff(np.r_[first, len(keys)]))
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys)) - starts
    return rank


def _count(keys: Ints, of: Ints) -> Ints:
    """(of,) how often each of `of` occurs in `keys`."""
    ordered = np.sort(keys)
    return np.searchsorted(ordered, of, "right") - np.searchsorted(ordered, of, "left")
