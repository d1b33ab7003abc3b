"""Determine the level of each switch (step 2 of inference).

A leaf has a large share of its used ports connected to endpoints. The level of other switches is the distance
from the leaves. A single miswired cable does not shorten the distance.
"""

import numpy as np
import numpy.typing as npt

from hyperscout_inference.fabric.network import Ints, Network

# A switch with this many endpoints, on this share of its used ports, is a leaf. A spine may have one or two
# endpoints (a login node, a fabric manager). A quarter of the ports is far less than leaves have, and far
# more than a spine has for management.
_SURE_ENDPOINTS = 3
_SURE_SHARE = 0.25


def switch_levels(net: Network) -> Ints:
    """Return (devices,) levels: 1 = leaf, 2 = above a leaf, ...; 0 for endpoints and for switches without a
    path to a leaf."""
    count = len(net.ids)
    shaping = net.shapes & (net.a != net.b)
    a, b = net.a[shaping], net.b[shaping]
    sharp = net.sharp if net.sharp is not None else np.zeros(count, np.bool_)
    endpoint = ~net.is_switch & ~sharp
    used = np.zeros(count, np.int64)
    endpoints = np.zeros(count, np.int64)
    for here, there in ((a, b), (b, a)):
        used += np.bincount(here[~sharp[there]], minlength=count)
        endpoints += np.bincount(here[endpoint[there]], minlength=count)
    between = net.is_switch[a] & net.is_switch[b]
    here = np.concatenate([a[between], b[between]])
    there = np.concatenate([b[between], a[between]])
    level = np.zeros(count, np.int32)
    level[_leaves(net.is_switch, used, endpoints, here, there)] = 1
    mute = net.mute if net.mute is not None else np.zeros(count, np.bool_)
    _climb(level, here, there, mute)
    return level


def _leaves(
    is_switch: npt.NDArray[np.bool_],
    used: npt.NDArray[np.int64],
    endpoints: npt.NDArray[np.int64],
    here: Ints,
    there: Ints,
) -> npt.NDArray[np.bool_]:
    some = is_switch & (endpoints > 0)
    share = endpoints / np.maximum(used, 1)
    sure = some & (((endpoints >= _SURE_ENDPOINTS) & (share >= _SURE_SHARE)) | (endpoints == used))
    if not sure.any():
        # Leaves with one or two hosts: the switches with the largest share of endpoints.
        sure = some & (share * 2 > share.max(initial=0))
    leaf: npt.NDArray[np.bool_] = sure.copy()
    neighbours: dict[int, set[int]] = {}

    def around(switch: int) -> set[int]:
        if switch not in neighbours:
            neighbours[switch] = set(there[here == switch].tolist())
        return neighbours[switch]

    for switch in np.flatnonzero(some & ~sure).tolist():
        cables = there[here == switch]
        if np.count_nonzero(sure[cables]) * 2 > len(cables):
            continue  # most cables lead to leaves: a spine with a login node
        # A leaf with few hosts is connected to the same switches as other leaves; a core switch is not.
        mine = around(switch)
        rivals = {int(leaf_) for s in mine for leaf_ in there[(here == s) & sure[there]].tolist()}
        alike = any(
            2 * len(mine & around(rival)) > max(len(mine), len(around(rival))) for rival in sorted(rivals)
        )
        # Without a leaf at its neighbours, it is a leaf if no neighbour has a larger share of endpoints.
        fullest = not rivals and share[switch] >= max(share[list(mine)], default=0)
        leaf[switch] = alike or bool(fullest and share[switch] >= _SURE_SHARE)
    return leaf


def _climb(level: Ints, here: Ints, there: Ints, mute: npt.NDArray[np.bool_]) -> None:
    """Set the level of each switch above the leaves, level by level.

    `mute`: switches that do not report their cables. Only some of their cables are known, so few cables down
    do not mean that these are miswired.
    """
    count = len(level)
    degree = np.bincount(here, minlength=count)
    reached = 1
    while True:
        up = (level[here] == 0) & (level[there] == reached)
        cables = np.bincount(here[up], minlength=count)
        candidates = cables > 0
        if not candidates.any():
            return
        # A switch with far fewer cables down than its peers, and most of its other cables to those peers, is
        # one level higher: the few cables down are miswired.
        few = (cables * 3 <= np.median(cables[candidates])) & (cables < degree)
        weak = candidates & few & ~mute
        strong = candidates & ~weak
        to_strong = np.bincount(here[strong[there]], minlength=count)
        candidates &= ~(weak & (to_strong * 2 > degree - cables))
        reached += 1
        level[candidates] = reached
