"""One kind of fabric before all kinds are joined: what `infiniband` and `ethernet` return to `fuse`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from hyperscout_topology.topology import Anomaly

from hyperscout_inference.fabric.network import Ints, Vanished

Longs = npt.NDArray[np.int64]
Guids = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class Part:
    """Columns as in `Network`. `hosts` has the host's name, or None for switches and foreign endpoints.

    `idle_fabrics`: indexes of the InfiniBand fabrics that do not compute.
    """

    ids: Sequence[str]
    names: list[str]
    is_switch: npt.NDArray[np.bool_]
    hosts: list[str | None]
    labels: Sequence[str]
    unclaimed: npt.NDArray[np.bool_]
    sharp: npt.NDArray[np.bool_]
    a: Ints
    a_port: Ints
    b: Ints
    b_port: Ints
    rate_gbps: npt.NDArray[np.float32]
    width: npt.NDArray[np.uint8]
    fabric: Ints
    fabrics: list[str]
    sources: Ints
    source_sets: list[tuple[str, ...]]
    port_texts: list[str] = field(default_factory=list)
    vanished: list[Vanished] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    mute: npt.NDArray[np.bool_] | None = None  # None = no device
    notes: dict[int, str] = field(default_factory=dict)  # by cable
    idle_fabrics: Sequence[int] = ()


def join_port(device: Ints | Longs, port: Ints | Longs) -> Longs:
    """Return a device's port as one number. Ports of one device are adjacent in sorted order."""
    return (device.astype(np.int64) << 20) | port


def split_port(key: Longs) -> tuple[Ints, Ints]:
    """Split what `join_port` returns into devices and ports."""
    return (key >> 20).astype(np.int32), (key & 0xFFFFF).astype(np.int32)
