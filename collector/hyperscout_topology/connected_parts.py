"""Connected parts of a graph."""

import numpy as np
import numpy.typing as npt

_Longs = npt.NDArray[np.int64]


def connected_parts(count: int, a: npt.NDArray[np.integer], b: npt.NDArray[np.integer]) -> _Longs:
    """Return (count,) labels, equal for vertices that the edges (a, b) connect: each part's lowest vertex.

    Each round passes the lowest label on over all edges and then jumps to the label's label, so that the
    number of rounds grows with the logarithm of the longest path (Shiloach and Vishkin 1982).
    """
    label = np.arange(count)
    while True:
        low = np.minimum(label[a], label[b])
        new = label.copy()
        for end in (a, b):
            np.minimum.at(new, label[end], low)
        new = new[new]
        if np.array_equal(new, label):
            return label
        label = new
