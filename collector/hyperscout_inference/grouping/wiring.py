"""The part of a network that the hierarchy and the audits of its cables depend on."""

from dataclasses import fields, replace

import numpy as np
from hyperscout_topology.memo import memoized

from hyperscout_inference.fabric.network import Network

# What may change while the wiring stays: what links carry, what reporters say of them, and states of ports.
_OF_LINKS = ("rate_gbps", "width", "sources", "source_sets", "notes")
_OTHER = frozenset((*_OF_LINKS, "vanished", "anomalies", "down_ports", "dark_ports", "whole"))
_COLUMNS = tuple(field.name for field in fields(Network) if field.name not in _OTHER)
_OF_DEVICES = ("ids", "names", "is_switch", "host", "labels", "hosts", "unclaimed")
_OF_CABLES = ("a", "a_port", "b", "b_port", "rate_gbps", "width", "shapes", "fabric", "sources")


def shaping_cables(net: Network) -> Network:
    """Return the network with the cables of the compute fabric alone, without notes on them."""
    return replace(net, notes={}, **{name: getattr(net, name)[net.shapes] for name in _OF_CABLES})


def without_cables(net: Network) -> Network:
    """Return the network without cables: the same object while its devices and hosts stay."""
    return _devices(*(getattr(net, name) for name in _OF_DEVICES))


@memoized
def _devices(*columns: object) -> Network:
    none = np.zeros(0, np.int32)
    given = {**dict.fromkeys(_OF_CABLES, none), **dict(zip(_OF_DEVICES, columns, strict=True))}
    return Network(**given, fabrics=(), source_sets=())  # type: ignore[arg-type]  # by name


def wiring(net: Network) -> Network:
    """Return the network without rates, sources of cables, port states and anomalies.

    While devices and cables stay the same, the result is the same object. Steps that take it can be `kept`.
    """
    return _wiring(net.all_sources, *(getattr(net, name) for name in _COLUMNS))


@memoized
def _wiring(sources: tuple[str, ...], *columns: object) -> Network:
    none = np.zeros(0)
    nothing = {"rate_gbps": none, "width": none, "sources": none}
    given = dict(zip(_COLUMNS, columns, strict=True))
    return Network(**given, **nothing, source_sets=[sources])  # type: ignore[arg-type]  # by name
