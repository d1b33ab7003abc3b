"""How high is each switch? (step 2 of inference)

A leaf has a real share of its used ports on endpoints. The others are levelled by distance from the leaves,
where a lone cable that leads astray does not count as distance.
"""

import numpy as np
import numpy.typing as npt

from hyperscout_inference.fabric.network import Ints, Network

# A switch with this many endpoints, on this share of its used ports, is a leaf beyond doubt. One or two
# endpoints (a login node, a fabric manager) make no leaf of a spine; a quarter of the ports is far below any
# leaf that was built to be one and far above what management hangs on a spine.
_SURE_ENDPOINTS = 3
_SURE_SHARE = 0.25


def switch_levels(net: Network) -> Ints:
    """Level of each device, shape (n,): 1 = leaf, 2 = above a leaf, ...; 0 for endpoints and for
    switches that no leaf reaches."""
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
        # Leaves of one or two hosts: those with the largest share of endpoints, if any switch has one.
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
            continue  # hangs above the leaves: a spine with a login node
        # A thinly filled leaf hangs below the same switches as other leaves do; a core switch does not.
        mine = around(switch)
        rivals = {int(leaf_) for s in mine for leaf_ in there[(here == s) & sure[there]].tolist()}
        alike = any(
            2 * len(mine & around(rival)) > max(len(mine), len(around(rival))) for rival in sorted(rivals)
        )
        # A switch without a leaf nearby is a leaf if none of its neighbours has a larger share on endpoints.
        fullest = not rivals and share[switch] >= max(share[list(mine)], default=0)
        leaf[switch] = alike or bool(fullest and share[switch] >= _SURE_SHARE)
    return leaf


def _climb(level: Ints, here: Ints, there: Ints, mute: npt.NDArray[np.bool_]) -> None:
    """Give each switch above the leaves its distance, level by level.

    `mute`: switches that report no cable. Few cables down prove nothing there: only some are seen.
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
        # A switch with far fewer cables down than its peers, and most of the others to those peers,
        # is one level higher: those few are miswired.
        few = (cables * 3 <= np.median(cables[candidates])) & (cables < degree)
        weak = candidates & few & ~mute
        strong = candidates & ~weak
        to_strong = np.bincount(here[strong[there]], minlength=count)
        candidates &= ~(weak & (to_strong * 2 > degree - cables))
        reached += 1
        level[candidates] = reached
