"""Two neighbouring ranks of the compute fabric: hosts and leaves, or switches and the switches above them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperscout_inference.audit.audit import Audit
from hyperscout_inference.audit.likeness import Kinds
from hyperscout_inference.fabric.network import Ints
from hyperscout_inference.grouping.grouping import Grouping, Longs
from hyperscout_inference.grouping.layer import Layer

Place = tuple[int, int]  # indexes of (layer, domain); (-1, -1) = in no domain
NOWHERE: Place = (-1, -1)


@dataclass(slots=True, eq=False)
class Rank:
    """The cables between two neighbouring ranks, and their audit.

    All columns have shape (cables,). `rows`: rows of the network. `grouping`: of all hosts in the lowest
    rank, else of the distinct lower switches, sorted. `kinds`: of the hosts in the lowest rank.
    """

    rows: Longs
    lower: Ints
    upper: Ints
    lower_port: Longs
    upper_port: Longs
    grouping: Grouping
    audit: Audit
    kinds: Kinds | None = None


def homes(layers: Sequence[Layer]) -> dict[int, tuple[int, int]]:
    """Return the place of each switch: the lowest domain that has it."""
    home: dict[int, tuple[int, int]] = {}
    for depth, layer in enumerate(layers):
        for domain, switches in enumerate(layer.switches):
            for switch in switches:
                home.setdefault(switch, (depth, domain))
    return home


def pick(flip: npt.NDArray[np.bool_], yes: Ints, no: Ints) -> Ints:
    """Return `yes` where `flip`, else `no`. The network stores the ends of a cable in no order of ranks."""
    return np.where(flip, yes, no).astype(np.int32)
