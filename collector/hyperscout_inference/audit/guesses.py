"""Leave out what is said of the place of an InfiniBand port that came up since the sweep that shows it.

Its cable may lead elsewhere now. Such a port is taken to be where it was until the next sweep, which is asked
for at once.
"""

from collections.abc import Sequence

import numpy as np
from hyperscout_topology.topology import Topology

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.fabric.network import RETURNED, Network
from hyperscout_inference.fabric.returned import CONFIRMED_NS, up_since_sweeps

_KINDS = ("Miswired", "MissingLink")


def without_guesses(
    net: Network, found: Sequence[Suspicion], inputs: FabricInputs, previous: Topology | None
) -> list[Suspicion]:
    """Return the suspicions without those about such ports.

    What was published for a minute when the port came up stays: perhaps only its agent was started.
    """
    asked = {end for x in found if x.kind in _KINDS for end in x.ends}
    if not asked or previous is None:
        return list(found)
    devices = {device for device, _ in asked}
    # A missing link may name the host and the label of its adapter.
    hosts = devices & inputs.infiniband.keys()
    labels = {(host, x.device): f"{x.node_guid:016x}" for host in hosts for x in inputs.infiniband[host]}
    devices.update(labels.values())
    up_ns = dict.fromkeys(_returned(net), 0) | up_since_sweeps(inputs, previous, devices)
    of_device = {device: at_ns for (device, _), at_ns in up_ns.items()}
    up_ns |= {end: of_device[device] for end, device in labels.items() if device in of_device}
    since_ns = {(x.kind, x.ends): x.since_ns for x in previous.anomalies if x.kind in _KINDS}

    def stands(x: Suspicion) -> bool:
        if x.kind not in _KINDS or up_ns.keys().isdisjoint(x.ends):
            return True
        published_ns = since_ns.get((x.kind, x.ends), 0)
        return 0 < published_ns < max(up_ns.get(end, 0) for end in x.ends) - CONFIRMED_NS

    return [x for x in found if stands(x)]


def _returned(net: Network) -> set[tuple[str, str | None]]:
    """Return the ports of cables that no sweep shows."""
    guesses = [i for i, sources in enumerate(net.source_sets) if sources == (RETURNED,)]
    if not guesses:
        return set()
    rows = np.isin(net.sources, guesses)
    devices = np.concatenate([net.a[rows], net.b[rows]])
    ports = np.concatenate([net.a_port[rows], net.b_port[rows]])
    return {
        (net.ids[device], net.port_text(port))
        for device, port in zip(devices.tolist(), ports.tolist(), strict=True)
    }
