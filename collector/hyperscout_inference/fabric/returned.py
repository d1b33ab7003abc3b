"""Cables whose port went down, or is up again, since the last sweep.

A sweep that was taken while a cable was out lacks it until the next sweep, which may be a minute away. The
agent of its host sees the port come up at once. Until a newer sweep shows where the port leads, the cable is
taken to be where it was last. Only the agent of the node under which the adapter was published can say so.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import CA, MAX_PORT, SWITCH, Sweep
from hyperscout_runtime.units import NS
from hyperscout_topology.link_changes import contains, joined_hashes, links_at
from hyperscout_topology.memo import MemoByNode
from hyperscout_topology.topology import Endpoint, Topology

from hyperscout_inference.fabric.adapter_owners import adapters_by_id
from hyperscout_inference.fabric.inputs import SURE, TAKES_NS, FabricInputs, SweepSeen
from hyperscout_inference.fabric.manager_sweeps import MANAGERS
from hyperscout_inference.fabric.network import RETURNED, Vanished
from hyperscout_inference.fabric.part import Guids, Longs, Part, join_port, split_port

_NEVER_OLD_NS: Final = 2**63 - 1  # evidence without a timestamp counts as the newest
CONFIRMED_NS: Final = 60 * NS  # by then another sweep has confirmed a change, or has not
_MAX_GUID, _MAX_PORT = 2**64 - 1, 2**20 - 1
_End = tuple[int, int]  # node GUID and port


class Cable(NamedTuple):
    """`own`: the port of the adapter."""

    own: _End
    far: _End


def returned_cables(inputs: FabricInputs, previous: Topology | None) -> list[Cable]:
    """Return the cables that are back. No sweep of an agent shows one of their ports."""
    sweeps = [seen for seen in inputs.sweeps if seen.source not in MANAGERS]
    if previous is None:
        return []
    up_ns = _owned(_not_shown(_came_up_after(inputs, sweeps, TAKES_NS), sweeps), previous)
    if not up_ns:
        return []
    found = _not_swept_since(up_ns, sweeps, _last_known(up_ns, previous))
    used = Counter(end for cable in found for end in cable)
    return [cable for cable in found if max(used[cable.own], used[cable.far]) == 1]


def as_sweeps(cables: Sequence[Cable]) -> list[SweepSeen]:
    """Return each cable as a sweep of its own, so that none joins two fabrics."""
    return [SweepSeen(_sweep(cable), RETURNED, partial=True) for cable in cables]


def _sweep(cable: Cable) -> Sweep:
    """Return a cable as both ends would report it."""
    none = np.zeros(2, np.int32)
    return Sweep(
        source=RETURNED,
        guid=np.array([cable.own[0], cable.far[0]], np.uint64),
        kind=np.array([CA, SWITCH], np.uint8),
        port_count=none,
        declared=np.zeros(2, np.bool_),
        system_image_guid=np.zeros(2, np.uint64),
        descriptions=["", ""],
        device=np.array([0, 1], np.int32),
        port=np.array([cable.own[1], cable.far[1]], np.int32),
        port_guid=np.zeros(2, np.uint64),
        peer=np.array([1, 0], np.int32),
        peer_port=np.array([cable.far[1], cable.own[1]], np.int32),
        rate_gbps=np.zeros(2, np.float32),
        width=np.zeros(2, np.uint8),
        line=none,
    )


def with_guids(adapters: Guids, more: Sequence[int]) -> Guids:
    """Return the GUIDs with more of them; the same object if it has them all."""
    wanted = np.array(sorted(set(more)), np.uint64)
    lacking = wanted[~contains(adapters[contains(wanted, adapters)], wanted)]
    return np.concatenate([adapters, lacking]) if len(lacking) else adapters


def add_returned(part: Part, guids: Guids, seen_at_ns: Longs, cables: Sequence[Cable]) -> Longs:
    """Add these cables, of which no port is in another one, to the part.

    `guids`: of the devices. `seen_at_ns`: when each cable of the part was last reported. Returns it with 0
    for the new ones.
    """
    wanted = np.array([[own[0], far[0]] for own, far in cables], np.uint64).reshape(-1, 2)
    place = np.minimum(np.searchsorted(guids, wanted), len(guids) - 1)
    ports = np.array([[own[1], far[1]] for own, far in cables], np.int64).reshape(-1, 2)
    ends = np.sort(join_port(place, ports)[(guids[place] == wanted).all(axis=1)], axis=1)
    if not len(ends):
        return seen_at_ns
    ends = ends[np.argsort(ends[:, 0])]
    fabric_of = np.zeros(len(guids), np.int32)
    fabric_of[part.a] = fabric_of[part.b] = part.fabric
    (a, a_port), (b, b_port) = split_port(ends[:, 0]), split_port(ends[:, 1])
    new: dict[str, Any] = {
        "a": a,
        "a_port": a_port,
        "b": b,
        "b_port": b_port,
        "rate_gbps": 0,
        "width": 0,
        "fabric": np.maximum(fabric_of[a], fabric_of[b]),
        "sources": len(part.source_sets),
    }
    at = np.searchsorted(join_port(part.a, part.a_port), ends[:, 0])
    for column, values in new.items():
        setattr(part, column, np.insert(getattr(part, column), at, values))
    part.source_sets = [*part.source_sets, (RETURNED,)]
    return np.insert(seen_at_ns, at, 0)


def up_since_sweeps(
    inputs: FabricInputs, previous: Topology, devices: Collection[str]
) -> dict[tuple[str, str | None], int]:
    """Return the ports of these devices that came up after the newest sweep that tells where they lead, by
    device and port, and since when they are up.

    That is a whole sweep of their fabric, or a partial one that shows their cable. It counts a minute earlier
    if it disputes that cable.
    """
    sweeps = [seen for seen in inputs.sweeps if seen.source not in MANAGERS]
    later = _came_up_after(inputs, sweeps, CONFIRMED_NS)
    up_ns = _owned([one for one in later if f"{one.end[0]:016x}" in devices], previous)
    if not up_ns:
        return {}
    far = {cable.own: cable.far for cable in _last_known(up_ns, previous)}
    wanted = np.array(sorted({guid for guid, _ in (*up_ns, *far.values())}), np.uint64)
    swept = dict.fromkeys(up_ns, 0)
    for seen in sorted(sweeps, key=lambda seen: seen.observed_at_ns):  # the newest one counts
        guids = set(wanted[np.isin(wanted, seen.sweep.guid)].tolist())
        shown = _shown(seen.sweep, set(up_ns)) if seen.partial else set()
        for end in up_ns:
            if end in shown if seen.partial else far.get(end, end)[0] in guids:
                swept[end] = seen.observed_at_ns - (CONFIRMED_NS if end in seen.disputed else 0)
    return {(f"{end[0]:016x}", str(end[1])): at for end, at in up_ns.items() if at > swept[end]}


class _Up(NamedTuple):
    """A port that is up. `node`: whose agent says so."""

    node: str
    end: _End
    at_ns: int


def _came_up_after(inputs: FabricInputs, sweeps: Sequence[SweepSeen], margin_ns: int) -> list[_Up]:
    """Return the ports that came up later than so long before the oldest whole sweep; none without one."""
    after_ns = min((seen.observed_at_ns for seen in sweeps if not seen.partial), default=inf) - margin_ns
    return [
        _Up(node, end, at_ns)
        for node, latest_ns in _latest_ns(inputs.infiniband_up_ns).items()
        if latest_ns > after_ns
        for end, at_ns in inputs.infiniband_up_ns[node].items()
        if at_ns > after_ns
    ]


def _latest_of(node: str, up_ns: Mapping[_End, int]) -> int:
    return max(up_ns.values(), default=0)


_latest_ns = MemoByNode(_latest_of)


def _not_shown(ports: Sequence[_Up], sweeps: Sequence[SweepSeen]) -> list[_Up]:
    """Return the ports that have no cable in any of the sweeps.

    After a start of all agents these are few of many, so they are found by a hash of GUID and port.
    """
    if not ports:
        return []
    guids = np.fromiter((one.end[0] for one in ports), np.uint64, len(ports))
    found = joined_hashes(guids, np.fromiter((one.end[1] for one in ports), np.uint64, len(ports)))
    ordered = np.sort(guids)
    is_shown = np.zeros(len(ports), np.bool_)
    for sweep in (seen.sweep for seen in sweeps):
        mine = contains(ordered, sweep.guid)
        for device, port in ((sweep.device, sweep.port), (sweep.peer, sweep.peer_port)):
            rows = mine[device]
            is_shown |= np.isin(found, joined_hashes(sweep.guid[device[rows]], port[rows].astype(np.uint64)))
    return [ports[i] for i in np.flatnonzero(~is_shown).tolist()]


def _owned(ports: Sequence[_Up], previous: Topology) -> dict[_End, int]:
    """Return since when the ports are up of adapters that were published under the reporting node."""
    if not ports:  # the common case
        return {}
    named = {end.device: end.name for x in previous.anomalies for end in (x.subject, x.peer) if end}
    adapters = adapters_by_id(previous.adapters)

    def node_of(guid: int) -> str | None:
        adapter = adapters.get(f"{guid:016x}")
        return named.get(f"{guid:016x}") if adapter is None else adapter.node

    return {one.end: one.at_ns for one in ports if node_of(one.end[0]) == one.node}


def _last_known(up_ns: Mapping[_End, int], previous: Topology) -> list[Cable]:
    """Return the published cables at these ports, and of the others the missing ones.

    One that was missing for a minute when its port came up waits for the next sweep, which is asked for at
    once: perhaps only its agent was started.
    """
    published: dict[_End, Cable] = {}
    devices = {f"{guid:016x}" for guid, _ in up_ns}
    for x in links_at(previous.links, devices):
        for cable in _cables(Endpoint(x.a_device, "", x.a_port), Endpoint(x.b_device, "", x.b_port)):
            if cable.own in up_ns:
                published[cable.own] = cable
    missing = [
        cable
        for x in previous.anomalies
        if x.kind == "MissingLink" and x.peer is not None and x.confidence > SURE
        for cable in _cables(x.subject, x.peer)
        if cable.own in up_ns and cable.own not in published
        if not 0 < x.since_ns < up_ns[cable.own] - CONFIRMED_NS
    ]
    return [*published.values(), *missing]


def _cables(one: Endpoint, other: Endpoint) -> Iterator[Cable]:
    """Yield the cable from either end; nothing if it is no InfiniBand cable with known ports."""
    a, b = _port(one), _port(other)
    if a is not None and b is not None:
        yield Cable(a, b)
        yield Cable(b, a)


def _port(end: Endpoint) -> _End | None:
    try:
        guid, port = int(end.device, 16), int(end.port or "")
    except ValueError:
        return None
    return (guid, port) if 0 < guid <= _MAX_GUID and 0 < port <= _MAX_PORT else None


def _not_swept_since(
    up_ns: Mapping[_End, int], sweeps: Sequence[SweepSeen], cables: Sequence[Cable]
) -> list[Cable]:
    """Return the cables of which no sweep shows the port of the switch, and the own port came up since the
    newest whole sweep of the switch.

    A switch that no sweep contains may be a dead one, with another switch in its place.
    """
    newest_ns: dict[int, int] = {}  # by switch
    wanted = np.array(sorted({cable.far[0] for cable in cables}), np.uint64)
    ends = {cable.far for cable in cables}
    shown: set[_End] = set()
    for seen in sweeps:
        shown |= _shown(seen.sweep, ends)
        for guid in [] if seen.partial else wanted[np.isin(wanted, seen.sweep.guid)].tolist():
            newest_ns[guid] = max(newest_ns.get(guid, 0), seen.observed_at_ns)
    return [
        cable
        for cable in cables
        if newest_ns.get(cable.far[0], inf) - TAKES_NS < up_ns[cable.own] and cable.far not in shown
    ]


def _shown(sweep: Sweep, ends: set[_End]) -> set[_End]:
    """Return those of the ports that have a cable in the sweep."""
    guids = np.array(sorted({guid for guid, _ in ends}), np.uint64)
    found: set[_End] = set()
    for device, port in ((sweep.device, sweep.port), (sweep.peer, sweep.peer_port)):
        rows = np.isin(sweep.guid[device], guids)
        found.update(zip(sweep.guid[device[rows]].tolist(), port[rows].tolist(), strict=True))
    return found & ends


def _down(node: str, ports: Iterable[InfinibandPort]) -> tuple[_End, ...] | None:
    """Return the ports that an agent reports as down, None = none."""
    found = tuple(
        (port.node_guid, port.port)
        for port in ports
        if port.state == "DOWN" and port.link_layer == "InfiniBand" and port.port <= MAX_PORT
    )
    return found or None


_ports_down = MemoByNode(_down)  # few of all nodes have one


def _down_since(part: Part, guids: Guids, inputs: FabricInputs) -> dict[tuple[int, int], int]:
    """Return when the ports that are down were reported so by the hosts of their devices, by the index of the
    device and the port."""
    ends = [(node, end) for node, mine in _ports_down(inputs.infiniband).items() for end in mine]
    wanted = np.fromiter((guid for _, (guid, _) in ends), np.uint64, len(ends))
    places = np.searchsorted(guids, wanted).tolist()
    return {
        (place, port): inputs.infiniband_at_ns.get(node, _NEVER_OLD_NS)
        for (node, (_, port)), place, is_device in zip(
            ends, places, contains(guids, wanted).tolist(), strict=True
        )
        if is_device and part.hosts[place] == node
    }


def drop_cables_reported_down(
    part: Part,
    guids: Guids,
    seen_at_ns: Longs,
    inputs: FabricInputs,
) -> None:
    """Drop a cable if the host of its adapter reports the port as down, and that report is newer than the
    cable's.

    A host detects at once that its port is down. The next sweep may be a minute away. The report of another
    node about the port does not count.
    """
    down = _down_since(part, guids, inputs)
    if not down:
        return
    is_near = np.zeros(len(guids), np.bool_)
    is_near[[device for device, _ in down]] = True
    drop: set[int] = set()
    for device, port in ((part.a, part.a_port), (part.b, part.b_port)):
        rows = np.flatnonzero(is_near[device])
        ends = zip(device[rows].tolist(), port[rows].tolist(), strict=True)
        drop |= {
            row for row, end in zip(rows.tolist(), ends, strict=True) if down.get(end, 0) > seen_at_ns[row]
        }
    if not drop:  # newer sweeps lack these cables
        return
    for i in sorted(drop):
        part.vanished.append(
            Vanished(int(part.a[i]), int(part.a_port[i]), int(part.b[i]), int(part.b_port[i]), "infiniband")
        )
    for column in ("a", "a_port", "b", "b_port", "rate_gbps", "width", "fabric", "sources"):
        setattr(part, column, np.delete(getattr(part, column), list(drop)))
