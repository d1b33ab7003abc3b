"""Place pairs of a table in a hierarchy: one row per pair and rail, with the lowest domain of both hosts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hyperscout_inference.grouping.layer import Layer
from hyperscout_inference.latency.bursts import PairHistory
from hyperscout_inference.latency.pairs import RDMA, Floats, Longs, PairTable

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class PairRows:
    """(rows,) each. `row`: in the table; `a`, `b`: hosts; `layer`, `domain`: the lowest that contains both;
    `end_a`, `end_b`: their ports, as indices of `ports` (host, interface); `kind`: UDP or RDMA, within a rail
    or across rails. Only paths of one kind are compared."""

    row: Longs
    a: Longs
    b: Longs
    layer: Longs
    domain: Longs
    end_a: Longs
    end_b: Longs
    kind: Longs
    rail: Longs
    ports: Sequence[tuple[int, str]]

    def __len__(self) -> int:
        return len(self.row)

    def of(self, chosen: "Bools | Longs") -> "PairRows":
        """Return the selected rows."""
        return PairRows(
            self.row[chosen],
            self.a[chosen],
            self.b[chosen],
            self.layer[chosen],
            self.domain[chosen],
            self.end_a[chosen],
            self.end_b[chosen],
            self.kind[chosen],
            self.rail[chosen],
            self.ports,
        )


def common(layers: Sequence[Layer], a: Longs, b: Longs) -> tuple[Longs, Longs]:
    """Return the lowest layer with a domain of both hosts, and that domain; -1 = none."""
    layer, domain = np.full(len(a), -1, np.int64), np.full(len(a), -1, np.int64)
    for depth in range(len(layers) - 1, -1, -1):
        column = layers[depth].domain
        same = (column[a] >= 0) & (column[a] == column[b])
        layer[same], domain[same] = depth, column[a[same]]
    return layer, domain


def pair_rows(hosts: Sequence[str], layers: Sequence[Layer], pairs: PairTable) -> PairRows:
    """Return the pairs of hosts that share a domain."""
    at = {host: i for i, host in enumerate(hosts)}
    index = np.fromiter((at.get(node, -1) for node in pairs.nodes), np.int64, len(pairs.nodes))
    a, b = index[pairs.a], index[pairs.b]
    known = np.flatnonzero((a >= 0) & (b >= 0) & (a != b))
    layer, domain = common(layers, a[known], b[known])
    known, layer, domain = known[layer >= 0], layer[layer >= 0], domain[layer >= 0]
    a, b, rail = a[known], b[known], pairs.rail[known].astype(np.int64)
    # A rail is "ib0" or, where the ends have different names, "ib0~ib1": the first name is that of `a`.
    interfaces: dict[str, int] = {}
    ends = np.zeros((2, len(pairs.rails)), np.int64)
    kinds = np.zeros(len(pairs.rails), np.int64)
    for i, name in enumerate(pairs.rails):
        here, _, there = name.removesuffix(RDMA).partition("~")
        ends[:, i] = [interfaces.setdefault(x, len(interfaces)) for x in (here, there or here)]
        kinds[i] = 2 * name.endswith(RDMA) + bool(there)
    names = list(interfaces)
    keys = np.concatenate([a * len(names) + ends[0][rail], b * len(names) + ends[1][rail]])
    used, port = np.unique(keys, return_inverse=True)
    ports = [(key // len(names), names[key % len(names)]) for key in used.tolist()]
    end_a, end_b = np.split(port.astype(np.int64), 2)
    return PairRows(known, a, b, layer, domain, end_a, end_b, kinds[rail], rail, ports)


def recent(pairs: PairTable, rows: Longs) -> tuple[Floats, Floats]:
    """Return the lowest round trip of each row's last bursts, us, and the number of those bursts."""
    if pairs.history is None:
        return pairs.rtt_us[rows], np.ones(len(rows))
    return np.minimum(pairs.history.recent_us[rows], pairs.rtt_us[rows]), pairs.history.recent[rows]


def history_of(pairs: PairTable, row: int) -> tuple[float, float, int]:
    """Return the earlier (round trip, jitter, number of bursts), us; 0 bursts = unknown."""
    history: PairHistory | None = pairs.history
    if history is None or not history.usual[row]:
        return 0.0, 0.0, 0
    return float(history.usual_us[row]), float(history.usual_jitter_us[row]), int(history.usual[row])


def medians(group: Longs, values: Floats, count: int) -> tuple[Floats, Longs]:
    """(count,) the median of each group's values (NaN for an empty group), and the number of values."""
    size = np.bincount(group, minlength=count).astype(np.int64)
    found = np.full(count, np.nan)
    if not len(values):
        return found, size
    # One column that sorts by group and value is twenty times as fast as two columns.
    least = float(values.min())
    width = float(values.max()) - least + 1.0
    ordered = np.sort(group * width + (values - least))
    start = np.cumsum(size) - size
    some = np.flatnonzero(size)
    low, high = (start + (size - 1) // 2)[some], (start + size // 2)[some]
    found[some] = (ordered[low] + ordered[high]) / 2 - some * width + least
    return found, size
