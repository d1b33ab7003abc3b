"""Align what a fabric manager reports with what was swept, so that both describe the same devices.

A UFM names an adapter by its port GUID, and numbers the adapter's ports as on the card. Where an agent or a
sweep reports the node GUID of that port, the node GUID replaces the port GUID: one adapter is then one
device.
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
    """Sort key from the least to the most trusted reading: a sweep is above a manager's report, then the
    newer one wins. Ties go by content, so that the order of arrival does not matter."""
    sweep = seen.sweep
    return (
        seen.source not in MANAGERS,
        seen.observed_at_ns,
        seen.source,
        sweep.initiated_from,
        len(sweep.line),
    )


def with_node_guids(
    sweeps: Iterable[SweepSeen], agents: Mapping[str, tuple[InfinibandPort, ...]], owner: Mapping[int, str]
) -> list[SweepSeen]:
    """Return the sweeps with the managers' adapters under their node GUIDs, where those are known. `owner`:
    the node of each GUID; an agent's report counts only for GUIDs of its node."""
    sweeps = list(sweeps)
    if not any(seen.source in MANAGERS for seen in sweeps):
        return sweeps
    known: dict[int, tuple[int, int]] = {}  # port GUID -> node GUID and port number
    for seen in sorted(sweeps, key=by_authority):
        if seen.source not in MANAGERS:
            sweep = seen.sweep
            columns = sweep.port_guid, sweep.guid[sweep.device], sweep.port
            for port_guid, guid, port in zip(*(c.tolist() for c in columns), strict=True):
                if port_guid:
                    known[port_guid] = (guid, port)
    for node in sorted(agents):
        for one in agents[node]:
            if (
                owner.get(one.port_guid) == owner.get(one.node_guid) == node
                and one.link_layer == "InfiniBand"
            ):
                known[one.port_guid] = (one.node_guid, one.port)
    return [
        replace(seen, sweep=_renamed(seen.sweep, known)) if seen.source in MANAGERS else seen
        for seen in sweeps
    ]


def _renamed(sweep: Sweep, known: Mapping[int, tuple[int, int]]) -> Sweep:
    guid: _Words = sweep.guid.copy()
    number: _Ints = np.zeros(len(guid), np.int32)  # 0: keep the manager's port number
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
