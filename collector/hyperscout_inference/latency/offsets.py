"""Fit each host's own part of its round trips: clock speed, driver, firmware. It is no distance.

A round trip is a step of the fabric plus an own part of each host. Only sums are measured, so own parts are
fitted. The first fit assumes that most pairs of a host cross the top of the fabric. Later fits use the tier
of each pair, once domains are known. They use medians and quantiles, so that a faulty host affects only its
own values. One start and the last polish use means, without the outermost values.
"""

from typing import Final

import numpy as np

from hyperscout_inference.latency.edges import Edges, Flags, both_ways, by_row
from hyperscout_inference.latency.pairs import Floats, Longs

TOP: Final = (
    0.8  # quantile of a host's pairs that crosses the top, if fewer than a fifth of the pairs are outliers
)
CORE: Final = 32  # hosts in the first core
ROWS: Final = 12  # pairs of a host within the core that are enough for a start
FEW: Final = 6
ROUNDS: Final = 8
POLISH: Final = 60
ENOUGH_US: Final = 0.001  # the polish ends when no own part changes by this much
FAR: Final = 6.0  # limit on the distance of a value, in medians; `NEAR_US` at least
NEAR_US: Final = 0.3


def start(edges: Edges, top: bool) -> Floats:
    """(hosts,) own parts, as if there were one tier. Hosts without edges have 0.

    `top`: use the quantile that crosses the top of the fabric. Otherwise use the mean of a host's pairs: it
    is less precise for each host, but aligns two halves of a fabric.
    """
    offset_us = np.zeros(edges.hosts)
    if not len(edges):
        return offset_us
    known = _core(edges)
    inside = edges.only(known[edges.a] & known[edges.b])
    for _ in range(ROUNDS):
        above = both_ways(inside, inside.rest_us(offset_us), TOP)
        level = float(np.nanmedian(above))
        offset_us += np.where(np.isfinite(above), above - level, 0.0)
    if not top:
        for _ in range(ROUNDS):
            above = _means(inside, inside.rest_us(offset_us))
            level = float(np.nanmean(above))
            offset_us += np.where(np.isfinite(above), 0.5 * (above - level), 0.0)
    for few in (FEW, 3, 1, 1, 1, 1, 1, 1):
        # Hosts that measured known hosts are fitted by these alone, because they are the better fitted.
        row = np.concatenate((edges.a, edges.b))
        peer = np.concatenate((edges.b, edges.a))
        use = known[peer] & ~known[row]
        if not use.any():
            break
        count = np.bincount(row[use], minlength=edges.hosts)
        value = np.concatenate((edges.rtt_us, edges.rtt_us))[use] - offset_us[peer[use]]
        above = by_row(row[use], value, edges.hosts, TOP) if top else _mean_by(row[use], value, count)
        new = count >= few
        offset_us[new] = above[new] - level
        known = known | new
    return offset_us


def extended(edges: Edges, known: Flags, domain: list[Longs], offset_us: Floats) -> Floats:
    """(hosts,) own parts of all hosts, from those that are known.

    A host's pairs cross the top unless both ends are in the same part of the fabric right below it. The part
    that the host seems nearest to is therefore left out.
    """
    offset_us = offset_us.copy()
    part = domain[-2] if len(domain) > 1 else np.zeros(edges.hosts, np.int64)
    parts = max(1, int(part.max()) + 1)
    both = np.concatenate((edges.a, edges.b)), np.concatenate((edges.b, edges.a))
    rtt_us = np.concatenate((edges.rtt_us, edges.rtt_us))
    for few in (ROWS, FEW, 3, 1, 1, 1, 1):
        use = known[both[1]]
        row, peer = both[0][use], both[1][use]
        if known[row].all():
            break
        value = rtt_us[use] - offset_us[peer]
        cell, where = np.unique(row * parts + part[peer], return_inverse=True)
        middle = by_row(where, value, len(cell), 0.5)
        order = np.argsort(-middle, kind="stable")
        nearest = np.full(edges.hosts, -1)
        nearest[cell[order] // parts] = order
        cells = np.bincount(cell // parts, minlength=edges.hosts)
        beyond = (where != nearest[row]) | (cells[row] == 1)
        above = by_row(row[beyond], value[beyond], edges.hosts, 0.5)
        level = float(np.nanmedian((above - offset_us)[known]))
        new = ~known & (np.bincount(row, minlength=edges.hosts) >= few)
        offset_us[new] = above[new] - level
        if few < FEW:
            known, part = known | new, np.where(new, 0, part)
    return offset_us


def sharpened(edges: Edges, offset_us: Floats, near_us: float) -> Floats:
    """Refine own parts by the centre of the hill at the top, which `start` puts at one height for all."""
    for _ in range(3):
        rest = edges.rest_us(offset_us)
        level = float(np.nanmedian(both_ways(edges, rest, TOP)))
        near = np.abs(rest - level) < near_us
        off = both_ways(edges.only(near), rest[near], 0.5)
        if np.isnan(off).all():
            break
        offset_us = offset_us + np.where(np.isfinite(off), 0.5 * (off - float(np.nanmedian(off))), 0.0)
    return offset_us


def _means(edges: Edges, value: Floats) -> Floats:
    """(hosts,) the mean over each host's edges; the outermost values are clipped."""
    row = np.concatenate((edges.a, edges.b))
    return _mean_by(row, np.concatenate((value, value)), edges.degree())


def _mean_by(row: Longs, value: Floats, count: Longs) -> Floats:
    value = np.clip(value, *np.quantile(value, (0.02, 0.98)))
    total = np.bincount(row, value, len(count))
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _core(edges: Edges) -> Flags:
    """(hosts,) the hosts with most pairs, enough of them to have measured each other."""
    degree = edges.degree()
    order = np.argsort(-degree, kind="stable")
    size = CORE
    while True:
        core = np.zeros(edges.hosts, bool)
        core[order[:size]] = True
        core &= degree > 0
        within = core[edges.a] & core[edges.b]
        inside = (np.bincount(edges.a[within], minlength=edges.hosts)) + (
            np.bincount(edges.b[within], minlength=edges.hosts)
        )
        if size >= edges.hosts or np.median(inside[core]) >= ROWS:
            return core
        size *= 2


def refit(edges: Edges, tier: Longs, tiers: int, offset_us: Floats, rounds: int = 4) -> tuple[Floats, Floats]:
    """Return own parts and the round trip of each tier, from the tier of each edge. NaN: tier without
    edges."""
    offset_us = offset_us.copy()
    rtt_us = by_row(tier, edges.rest_us(offset_us), tiers, 0.5)
    for _ in range(rounds):
        off = both_ways(edges, edges.rest_us(offset_us) - rtt_us[tier], 0.5)
        # Half a step, because both ends of a pair move.
        offset_us += np.where(np.isfinite(off), 0.5 * off, 0.0)
        rtt_us = by_row(tier, edges.rest_us(offset_us), tiers, 0.5)
    return offset_us, rtt_us


def polished(edges: Edges, tier: Longs, tiers: int, offset_us: Floats) -> tuple[Floats, Floats]:
    """Refine `refit` by means of all values that are not far off: medians stop a little short of the best."""
    offset_us, rtt_us = refit(edges, tier, tiers, offset_us, rounds=2)
    off = np.abs(edges.rest_us(offset_us) - rtt_us[tier])
    kept = off <= max(FAR * float(np.median(off)), NEAR_US)
    edges, tier = edges.only(kept), tier[kept]
    count, many = edges.degree(), np.bincount(tier, minlength=tiers)
    for _ in range(POLISH):
        rest = edges.rest_us(offset_us)
        found = np.bincount(tier, rest, tiers) / np.maximum(many, 1)
        rtt_us = np.where(many > 0, found, rtt_us)
        off = rest - rtt_us[tier]
        total = np.bincount(edges.a, off, edges.hosts) + np.bincount(edges.b, off, edges.hosts)
        step_us = 0.5 * total / np.maximum(count, 1)
        offset_us = offset_us + step_us
        if float(np.abs(step_us).max(initial=0.0)) < ENOUGH_US:
            break
    return offset_us, rtt_us
