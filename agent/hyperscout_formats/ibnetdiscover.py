"""Reader of `ibnetdiscover` text (infiniband-diags, ibnetdiscover(8)): columns, not objects."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperscout_formats.errors import Problem

UNKNOWN, SWITCH, CA, ROUTER = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """What one text says. n devices in order of first mention, m port records in order of lines.

    A record is one port line as one end wrote it, so a cable that both ends saw is two records.
    A device that has no block of its own (`declared` False) was only mentioned as a peer.
    """

    source: str
    guid: npt.NDArray[np.uint64]  # (n,) node GUID
    kind: npt.NDArray[np.uint8]  # (n,) UNKNOWN, SWITCH, CA or ROUTER
    port_count: npt.NDArray[np.int32]  # (n,) 0 where not declared
    declared: npt.NDArray[np.bool_]  # (n,)
    system_image_guid: npt.NDArray[np.uint64]  # (n,) 0 where not given
    descriptions: Sequence[str]  # n node descriptions, "" where none
    device: npt.NDArray[np.int32]  # (m,) index of the device whose block holds the line
    port: npt.NDArray[np.int32]  # (m,)
    port_guid: npt.NDArray[np.uint64]  # (m,) of the local port of an adapter, 0 for a switch
    peer: npt.NDArray[np.int32]  # (m,) index of the device at the other end
    peer_port: npt.NDArray[np.int32]  # (m,)
    rate_gbps: npt.NDArray[np.float32]  # (m,) width x signalling rate, 0 = unknown
    width: npt.NDArray[np.uint8]  # (m,) lanes, 0 = unknown
    line: npt.NDArray[np.int32]  # (m,) from 1
    initiated_from: int = 0  # GUID of the node the sweep looked from, 0 = not said
    problems: tuple[Problem, ...] = ()


def parse(data: bytes, source: str = "ibnetdiscover") -> Sweep:
    """Read the text."""
    raise NotImplementedError
