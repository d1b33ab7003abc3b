"""What a fabric's manager shows beside what was swept: as a second witness, not as another fabric.

A UFM names an adapter by the GUID of its port, and its ports by their numbers on the card. Where an agent or
a sweep tells the node GUID of that port, it takes its place, so that one adapter is one device.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import CA, Sweep

from hyperscout_inference.fabric.inputs import SweepSeen

MANAGERS: Final = frozenset({"ufm"})

_Ints = npt.NDArray[np.int32]
_Words = npt.NDArray[np.uint64]


def by_authority(seen: SweepSeen) -> tuple[bool, int, str, int, int]:
    """What sorts looks from the least to the most believed: who swept knows better than who was told; then
    the newer look. The order in which evidence came must not matter, so ties go by content."""
    sweep = seen.sweep
    return (
        seen.source not in MANAGERS,
        seen.observed_at_ns,
        seen.source,
        sweep.initiated_from,
        len(sweep.line),
    )


def with_node_guids(
    sweeps: Iterable[SweepSeen], agents: Mapping[str, tuple[InfinibandPort, ...]]
) -> list[SweepSeen]:
    """The same, with adapters of managers under their node GUIDs where those are known."""
    sweeps = list(sweeps)
    if not any(seen.source in MANAGERS for seen in sweeps):
        return sweeps
    known: dict[int, tuple[int, int]] = {}  # port GUID -> node GUID and number of the port
    for seen in sorted(sweeps, key=by_authority):
        if seen.source not in MANAGERS:
            sweep = seen.sweep
            columns = sweep.port_guid, sweep.guid[sweep.device], sweep.port
            for port_guid, guid, port in zip(*(c.tolist() for c in columns), strict=True):
                if port_guid:
                    known[port_guid] = (guid, port)
    for node in sorted(agents):
        for one in agents[node]:
            if one.port_guid and one.link_layer == "InfiniBand":
                known[one.port_guid] = (one.node_guid, one.port)
    return [
        replace(seen, sweep=_renamed(seen.sweep, known)) if seen.source in MANAGERS else seen
        for seen in sweeps
    ]


def _renamed(sweep: Sweep, known: Mapping[int, tuple[int, int]]) -> Sweep:
    guid: _Words = sweep.guid.copy()
    number: _Ints = np.zeros(len(guid), np.int32)  # 0: as the manager has it
    for i in np.flatnonzero(sweep.kind == CA).tolist():
        if (there := known.get(int(guid[i]))) is not None:
            guid[i], number[i] = there
    own, far = number[sweep.device], number[sweep.peer]
    return replace(
        sweep,
        guid=guid,
        port=np.where(own > 0, own, sweep.port).astype(np.int32),
        peer_port=np.where(far > 0, far, sweep.peer_port).astype(np.int32),
    )
