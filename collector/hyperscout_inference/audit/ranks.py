"""Two neighbouring ranks of the compute fabric: hosts and leaves, or switches and those above."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperscout_inference.audit.audit import Audit
from hyperscout_inference.fabric.network import Ints, Network
from hyperscout_inference.grouping.grouping import Grouping, Longs
from hyperscout_inference.grouping.layer import Layer

Place = tuple[int, int]  # (layer, domain); (-1, -1) = in no domain
NOWHERE: Place = (-1, -1)


@dataclass(slots=True, eq=False)
class Rank:
    """Two neighbouring ranks as `audit` takes them, and the way back to devices and ports.

    All columns have shape (cables,); `rows` are the cables' rows in the network. `grouping` is over hosts in
    the lowest rank, else over the sorted distinct lower switches.
    """

    rows: Longs
    lower: Ints
    upper: Ints
    lower_port: Longs
    upper_port: Longs
    grouping: Grouping
    audit: Audit


def homes(layers: list[Layer]) -> dict[int, tuple[int, int]]:
    """The domain (layer, index) of each switch: the lowest that has it."""
    home: dict[int, tuple[int, int]] = {}
    for depth, layer in enumerate(layers):
        for domain, switches in enumerate(layer.switches):
            for switch in switches:
                home.setdefault(switch, (depth, domain))
    return home


def pick(flip: npt.NDArray[np.bool_], yes: Ints, no: Ints) -> Ints:
    """`yes` where `flip`, else `no`: cables are stored by device, not by rank."""
    return np.where(flip, yes, no).astype(np.int32)


def witnesses(net: Network) -> tuple[str, ...]:
    """All sources of the network: who bears out that a cable is not there."""
    return tuple(sorted({name for names in net.source_sets for name in names}))
