"""The part of a network that the hierarchy and the audits of its cables depend on."""

from dataclasses import replace

import numpy as np
from hyperscout_topology.kept import kept

from hyperscout_inference.fabric.network import Network

_COLUMNS = (
    "ids",
    "names",
    "is_switch",
    "host",
    "labels",
    "hosts",
    "unclaimed",
    "a",
    "a_port",
    "b",
    "b_port",
    "shapes",
    "fabric",
    "fabrics",
    "port_texts",
    "claimed",
    "sharp",
    "mute",
)
_OF_CABLES = ("a", "a_port", "b", "b_port", "rate_gbps", "width", "shapes", "fabric", "sources")


def shaping_cables(net: Network) -> Network:
    """Return the network with the cables of the compute fabric alone, without notes on them."""
    return replace(net, notes={}, **{name: getattr(net, name)[net.shapes] for name in _OF_CABLES})


def wiring(net: Network) -> Network:
    """Return the network without rates, sources of cables, port states and anomalies.

    While devices and cables stay the same, the result is the same object. Steps that take it can be `kept`.
    """
    return _wiring(net.all_sources, *(getattr(net, name) for name in _COLUMNS))


@kept
def _wiring(sources: tuple[str, ...], *columns: object) -> Network:
    none = np.zeros(0)
    nothing = {"rate_gbps": none, "width": none, "sources": none}
    given = dict(zip(_COLUMNS, columns, strict=True))
    return Network(**given, **nothing, source_sets=[sources])  # type: ignore[arg-type]
