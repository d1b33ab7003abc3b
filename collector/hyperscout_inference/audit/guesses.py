"""Leave out what is said of the place of an InfiniBand port that came up since the sweep that shows it.

Its cable may lead elsewhere now. Such a port is taken to be where it was until the next sweep, which is asked
for at once.
"""

from collections.abc import Sequence

import numpy as np
from hyperscout_topology.topology import Topology

from hyperscout_inference.audit.suspicion import Suspicion
from hyperscout_inference.fabric.inputs import FabricInputs
from hyperscout_inference.fabric.network import Network
from hyperscout_inference.fabric.returned import RETURNED, up_since_sweeps

_KINDS = ("Miswired", "MissingLink")


def without_guesses(
    net: Network, found: Sequence[Suspicion], inputs: FabricInputs, previous: Topology | None
) -> list[Suspicion]:
    """Return the suspicions without those about such ports."""
    guesses = [i for i, sources in enumerate(net.source_sets) if sources == (RETURNED,)]
    rows = np.isin(net.sources, guesses)
    devices = np.concatenate([net.a[rows], net.b[rows]])
    ports = np.concatenate([net.a_port[rows], net.b_port[rows]])
    ends: set[tuple[str, str | None]] = {
        (net.ids[device], net.port_text(port))
        for device, port in zip(devices.tolist(), ports.tolist(), strict=True)
    }
    ends |= up_since_sweeps(inputs, previous)
    if not ends:
        return list(found)
    # A missing link may name the host and the label of its adapter.
    ids = {device for device, _ in ends}
    adapters = [i for i, host in enumerate(net.host.tolist()) if host >= 0 and net.ids[i] in ids]
    ends |= {(net.hosts[net.host[i]], net.labels[i]) for i in adapters}
    return [x for x in found if x.kind not in _KINDS or ends.isdisjoint(x.ends)]
