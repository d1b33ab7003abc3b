"""Cables whose port is up again since the last sweep.

A sweep that was taken while a cable was out lacks it until the next sweep, which may be a minute away. The
agent of its host sees the port come up at once. Until a newer sweep shows where the port leads, the cable is
taken to be where it was. An agent can say this of the adapters of its own node alone.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from hyperscout_formats.infiniband.ibnetdiscover import CA, SWITCH, Sweep
from hyperscout_topology.topology import Endpoint, Topology

from hyperscout_inference.fabric.inputs import FabricInputs, SweepSeen

_SOURCE = "infiniband"
_SURE = 0.9  # what is missing with less confidence may never have been there
_End = tuple[int, int]  # node GUID and port


def returned_cables(
    inputs: FabricInputs, owner: Mapping[int, str], previous: Topology | None
) -> SweepSeen | None:
    """Return the missing cables that are back, as a sweep that any other one overrules; None = none is back.

    `owner`: the node of each GUID.
    """
    if previous is None or not inputs.infiniband_up_ns:
        return None
    up_ns = {
        end: at_ns
        for node, ports in inputs.infiniband_up_ns.items()
        for end, at_ns in ports.items()
        if owner.get(end[0]) == node
    }
    missing = [cable for cable in _missing(previous) if cable[0] in up_ns]
    if not missing:
        return None
    swept_ns = _swept_ns({far for _, (far, _) in missing}, inputs.sweeps)
    # A switch that no sweep contains may be a dead one, with another switch in its place.
    back = [(own, far) for own, far in missing if 0 < swept_ns[far[0]] < up_ns[own]]
    return SweepSeen(_sweep(back), _SOURCE, partial=True) if back else None


def _missing(previous: Topology) -> Iterator[tuple[_End, _End]]:
    """Yield the missing InfiniBand cables with both ports, each from either end."""
    for one in previous.anomalies:
        if one.kind == "MissingLink" and one.peer is not None and one.confidence > _SURE:
            a, b = _port(one.subject), _port(one.peer)
            if a is not None and b is not None:
                yield a, b
                yield b, a


def _port(end: Endpoint) -> _End | None:
    """Return the port; None = it is unknown, or not of an InfiniBand device."""
    try:
        return int(end.device, 16), int(end.port or "")
    except ValueError:
        return None


def _swept_ns(guids: set[int], sweeps: Iterable[SweepSeen]) -> dict[int, int]:
    """Return when each of these devices was last in a sweep, 0 = in none."""
    wanted = np.array(sorted(guids), np.uint64)
    found = dict.fromkeys(guids, 0)
    for seen in sweeps:
        for guid in wanted[np.isin(wanted, seen.sweep.guid)].tolist():
            found[guid] = max(found[guid], seen.observed_at_ns)
    return found


def _sweep(cables: Iterable[tuple[_End, _End]]) -> Sweep:
    """Return these cables, from an adapter to a switch, as both ends would report them."""
    records = [record for own, far in sorted(cables) for record in ((own, far), (far, own))]
    adapters = {own for own, _ in records[::2]}
    kinds = {end[0]: SWITCH for _, end in records[::2]} | {guid: CA for guid, _ in adapters}
    guids = sorted(kinds)
    place = {guid: i for i, guid in enumerate(guids)}
    n, m = len(guids), len(records)
    return Sweep(
        source=_SOURCE,
        guid=np.array(guids, np.uint64),
        kind=np.array([kinds[guid] for guid in guids], np.uint8),
        port_count=np.zeros(n, np.int32),
        declared=np.zeros(n, np.bool_),
        system_image_guid=np.zeros(n, np.uint64),
        descriptions=[""] * n,
        device=np.array([place[own[0]] for own, _ in records], np.int32),
        port=np.array([own[1] for own, _ in records], np.int32),
        port_guid=np.zeros(m, np.uint64),
        peer=np.array([place[far[0]] for _, far in records], np.int32),
        peer_port=np.array([far[1] for _, far in records], np.int32),
        rate_gbps=np.zeros(m, np.float32),
        width=np.zeros(m, np.uint8),
        line=np.zeros(m, np.int32),
    )
