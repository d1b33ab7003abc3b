"""The fused graph: every cable once, in columns. The order of evidence does not change the order of rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import Anomaly, Endpoint

Ints = npt.NDArray[np.int32]

RETURNED: Final = "infiniband"  # the only source of a cable that is taken to be back until the next sweep
# Lower port numbers are InfiniBand's own. From here on a port number indexes the table of texts (Ethernet).
PORT_TEXTS = 1 << 16


_Number = TypeVar("_Number", bound=np.generic)


def distinct(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return the sorted distinct values. `np.unique` would import all of numpy.ma to check for masks."""
    ordered = np.sort(values)
    return ordered[np.r_[True, ordered[1:] != ordered[:-1]]] if len(ordered) else ordered


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
    down_ports: frozenset[tuple[str, str]] = frozenset()  # (host, adapter label) reported as down
    dark_ports: frozenset[tuple[str, str]] = frozenset()  # (host, Ethernet interface) without carrier
    whole: frozenset[str] = frozenset()  # hosts that report all their ports as up
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
        return Endpoint(self.ids[device], self.names[device], self.port_text(port))
