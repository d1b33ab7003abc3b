"""The fused graph: every cable once, in columns. The order of evidence does not change the order of rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import Anomaly, Endpoint

Ints = npt.NDArray[np.int32]

RETURNED: Final = "infiniband"  # the only source of a cable that is taken to be back until the next sweep
# Lower port numbers are InfiniBand's own. From here on a port number indexes the table of texts (Ethernet).
PORT_TEXTS = 1 << 16


_Integer = TypeVar("_Integer", bound=np.integer[Any])


_FEW = 4  # so many distinct values are found one by one: that is faster than to sort
_DIGIT = 16  # bits; NumPy sorts numbers of 16 bits by counting, which takes linear time


def order_of(values: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.intp]:
    """Return what `np.argsort(values, kind="stable")` does, in a third of the time for many numbers >= 0.

    A radix sort: it sorts by the lowest 16 bits first.
    """
    if not len(values) or values.min() < 0:
        return np.argsort(values, kind="stable")
    order = np.argsort(values.astype(np.uint16), kind="stable")
    most, shift = int(values.max()), _DIGIT
    while most >> shift:
        order = order[np.argsort((values >> shift).astype(np.uint16)[order], kind="stable")]
        shift += _DIGIT
    return order


def distinct(values: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """Return the sorted distinct values. `np.unique` would import all of numpy.ma to check for masks."""
    few: list[_Integer] = []
    left = values
    while len(left) and len(few) < _FEW:
        few.append(left[0])
        left = left[left != left[0]]
    if not len(left):
        return np.array(sorted(few), values.dtype)
    ordered = values[order_of(values)]
    return ordered[_changes(ordered)]


def distinct_counts(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], npt.NDArray[np.intp]]:
    """Return the sorted distinct values, and how often each occurs."""
    ordered = values[order_of(values)]
    first = np.flatnonzero(_changes(ordered))
    return ordered[first], np.diff(first, append=len(ordered))


def distinct_places(values: npt.NDArray[_Integer]) -> tuple[npt.NDArray[_Integer], npt.NDArray[np.intp]]:
    """Return the sorted distinct values, and (values,) the place of each value among them."""
    order = order_of(values)
    ordered = values[order]
    is_new = _changes(ordered)
    place = np.empty(len(values), np.intp)
    place[order] = np.cumsum(is_new) - 1
    return ordered[is_new], place


def _changes(ordered: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """Return which values differ from the one before them."""
    changes = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=changes[1:])
    return changes


def unused(name: str, used: Collection[str]) -> str:
    """Return the name, with a number behind it if it is `used`: `NAME (2)`."""
    numbered = (f"{name} ({number})" for number in count(2))
    return name if name not in used else next(x for x in numbered if x not in used)


def with_id(name: str, ident: str) -> str:
    """Return the name of a switch that other switches have, too, so that it identifies the switch."""
    return f"{name} (0x{ident})"


@dataclass(frozen=True, slots=True)
class Vanished:
    """A cable that both ends reported and that newer evidence of one end reports as down."""

    a: int  # device index
    a_port: int
    b: int
    b_port: int
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """All fabrics as one graph of n devices, h hosts and m cables.

    Devices are switches and endpoints (an adapter, or a host's whole Ethernet side), sorted by id;
    cables are sorted by (a, a_port). An endpoint with host -1 is foreign: it does not shape the hierarchy.
    """

    ids: Sequence[str]  # n: GUID as 16 hex digits, chassis id, or node name
    names: Sequence[str]  # n: the name for display
    is_switch: npt.NDArray[np.bool_]  # (n,)
    host: Ints  # (n,) index into `hosts`; -1 for switches and foreign endpoints
    labels: Sequence[str]  # n: adapter's device name on its host ("mlx5_0"), "" where unknown
    hosts: Sequence[str]  # h, sorted
    unclaimed: npt.NDArray[np.bool_]  # (h,) named by GUID because no source names its host
    a: Ints  # (m,)
    a_port: Ints  # (m,)
    b: Ints  # (m,)
    b_port: Ints  # (m,)
    rate_gbps: npt.NDArray[np.float32]  # (m,) 0 = unknown
    width: npt.NDArray[np.uint8]  # (m,) lanes, 0 = unknown
    shapes: npt.NDArray[np.bool_]  # (m,) False: shown, but not part of the compute fabric
    fabric: Ints  # (m,) index into `fabrics`
    sources: Ints  # (m,) index into `source_sets`
    fabrics: Sequence[str]
    source_sets: Sequence[tuple[str, ...]]
    port_texts: Sequence[str] = ()
    vanished: tuple[Vanished, ...] = ()
    down_ports: frozenset[tuple[str, str, int]] = frozenset()  # (host, adapter label, port) reported as down
    dark_ports: frozenset[tuple[str, str]] = frozenset()  # (host, Ethernet interface) without carrier
    whole: Mapping[str, bool] = field(default_factory=dict)  # by host, whether it reports all its ports as up
    claimed: frozenset[str] = frozenset()  # hosts that an agent or a map names, not only a description
    sharp: npt.NDArray[np.bool_] | None = None  # (n,) SHARP aggregation nodes: not counted as a used port
    anomalies: tuple[Anomaly, ...] = ()  # found while fusing
    mute: npt.NDArray[np.bool_] | None = None  # (n,) only others report its cables; None = no device
    notes: Mapping[int, str] = field(default_factory=dict)  # by cable: what is uncertain about it

    @property
    def all_sources(self) -> tuple[str, ...]:
        """All sources of the network: the sources of a missing cable. A cable that is only taken to be back
        adds none."""
        shown = (names for names in self.source_sets if names != (RETURNED,))
        return tuple(sorted({name for names in shown for name in names}))

    def port_text(self, port: int) -> str | None:
        """Return a port as text, or None where the port is unknown."""
        if port < 0:
            return None
        return str(port) if port < PORT_TEXTS else self.port_texts[port - PORT_TEXTS]

    def own_name(self, device: int) -> str:
        """Return the name that the device has itself, without what `with_id` adds."""
        return self.names[device].removesuffix(with_id("", self.ids[device]))

    def rail(self, device: int, port: int) -> str:
        """Return the name of a host's port on its host: the adapter's name, or the interface's name on
        Ethernet. "" if it is unknown: a switch may report a host's port by its MAC address only."""
        if self.labels[device] or port < PORT_TEXTS:
            return self.labels[device]
        text = self.port_texts[port - PORT_TEXTS]
        return "" if ":" in text else text

    def end(self, device: int, port: int = -1) -> Endpoint:
        """Return the endpoint of a device and one of its ports, for an anomaly."""
        return Endpoint(self.ids[device], self.names[device], self.port_text(port), self.labels[device])
