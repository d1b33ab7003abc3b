"""Links with a port that counts errors, discards packets or loses its carrier repeatedly.

The collector follows the counters and passes the ports in `FabricInputs.health`. This module adds the cable,
its other end and the domain.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from hyperscout_runtime.units import rfc3339
from hyperscout_topology.figures import digits
from hyperscout_topology.topology import Anomaly, Endpoint, Topology, say

from hyperscout_inference.audit.ranks import NOWHERE, Place, homes
from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.inputs import FabricInputs, PortHealth
from hyperscout_inference.fabric.network import Ints, Network
from hyperscout_inference.grouping.layer import Layer

KIND = "ErroringLink"
# Confidence of a link of the compute fabric, and of another link, for which no node is avoided.
_SURE, _UNSURE = 0.9, 0.5
_Ends = frozenset[tuple[str, str | None]]


def erroring_links(
    net: Network, level: Ints, layers: Sequence[Layer], inputs: FabricInputs, previous: Topology | None
) -> list[Suspicion]:
    """Return one suspicion for each cable with a port over a threshold. A link of the compute fabric counts
    against the domain of its lower end, another link against none. Until `inputs` has enough counters
    (`health_is_young`), the published anomalies stay; those of flaps (`flapped`) may stay longer."""
    before = _published(previous)
    if not inputs.health_is_young:
        before = {ends: x for ends, x in before.items() if ends in inputs.flapped}
    if not inputs.health and not before:
        return []
    index = {ident: i for i, ident in enumerate(net.ids)}
    health: dict[tuple[int, str], PortHealth] = {}
    for (ident, port), wrong in sorted(inputs.health.items()):
        device = index.get(ident, -1)
        if device < 0:
            device = index.get(_adapter(ident, inputs), -1)
        if device >= 0:
            known = health.get((device, port))
            health[device, port] = wrong.worse(known) if known else wrong
    devices = {device for device, _ in health}
    devices |= {index[ident] for ends in before for ident, _ in ends if ident in index}
    wanted = np.zeros(len(net.ids), np.bool_)
    wanted[sorted(devices)] = True
    home = homes(list(layers))
    found = []
    for row in np.flatnonzero(wanted[net.a] | wanted[net.b]).tolist():
        ends = _lower_first(net, level, row)
        named = [net.end(*end) for end in ends]
        wrong_at = [
            (end, here)
            for end, (device, _) in zip(named, ends, strict=True)
            if (here := health.get((device, end.port or ""))) is not None
        ]
        old = before.get(frozenset((end.device, end.port) for end in named))
        if not wrong_at and old is None:
            continue
        place = _place(net, layers, home, ends)
        if not net.shapes[row]:
            # An anomaly with a host as subject counts against the host's domain: the host is named last.
            place, named = NOWHERE, named[::-1]
        if wrong_at:
            clears_ns = _clears_ns([wrong for _, wrong in wrong_at])
            text = f"{say(named[0])} to {say(named[1])}: {_rates_text(wrong_at)}"
            text += f"; clears at {rfc3339(clears_ns)}" if clears_ns else ""
            sources = tuple(sorted({wrong.source for _, wrong in wrong_at}))
        elif old is not None:
            text, sources, clears_ns = old.message, old.sources, old.clears_ns
        sure = _SURE if net.shapes[row] else _UNSURE
        found.append(Suspicion(KIND, named[0], named[1], *place, sure, text, sources, clears_ns=clears_ns))
    return found


def _clears_ns(wrong: Sequence[PortHealth]) -> int:
    """Return until when the link is reported if it flaps no more; 0 = unknown, as for errors and discards."""
    if any(x.errors_per_s or x.discards_per_s for x in wrong):
        return 0
    return max(x.clears_ns for x in wrong)


def _published(previous: Topology | None) -> Mapping[_Ends, Anomaly]:
    """Return the published anomalies of links by both ends, without those that are over, and without NVLinks
    (they have one end)."""
    return {
        x.ends: x
        for x in (previous.anomalies if previous else ())
        if x.kind == KIND and x.peer is not None and not x.is_over
    }


def _adapter(port_guid: str, inputs: FabricInputs) -> str:
    """Return the node GUID (hex) of the adapter with this port GUID; "" = not found."""
    try:
        guid = int(port_guid, 16)
    except ValueError:
        return ""
    for seen in inputs.sweeps if 0 < guid < 1 << 64 else ():
        rows = np.flatnonzero(seen.sweep.port_guid == np.uint64(guid))
        if len(rows):
            return f"{int(seen.sweep.guid[seen.sweep.device[rows[0]]]):016x}"
    return ""


def _lower_first(net: Network, level: Ints, row: int) -> list[tuple[int, int]]:
    """Return (device, port) of both ends, a host before a switch, a leaf before a spine."""

    def height(end: tuple[int, int]) -> int:
        return 0 if not net.is_switch[end[0]] else int(level[end[0]]) or 1 << 30

    ends = (int(net.a[row]), int(net.a_port[row])), (int(net.b[row]), int(net.b_port[row]))
    return sorted(ends, key=height)


def _place(
    net: Network, layers: Sequence[Layer], home: Mapping[int, Place], ends: Sequence[tuple[int, int]]
) -> Place:
    lower, upper = ends[0][0], ends[1][0]
    if (host := int(net.host[lower])) >= 0 and (domain := int(layers[0].domain[host])) >= 0:
        return (0, domain)
    return home.get(lower) or home.get(upper, NOWHERE)


def _rates_text(wrong_at: Sequence[tuple[Endpoint, PortHealth]]) -> str:
    """Return e.g. "flaps 6 times an hour, 4.1 errors/s and 120 discards/s at leaf-01/swp3". Both ends count
    a flap, so it has no end."""
    parts = []
    if flaps := max(wrong.flaps_per_hour for _, wrong in wrong_at):
        parts.append(f"flaps {digits(flaps)} times an hour")
    for end, wrong in wrong_at:
        rates = [(wrong.errors_per_s, "errors/s"), (wrong.discards_per_s, "discards/s")]
        if counted := [f"{digits(rate)} {what}" for rate, what in rates if rate]:
            parts.append(f"{' and '.join(counted)} at {say(end)}")
    return ", ".join(parts)
