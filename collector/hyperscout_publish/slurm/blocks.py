"""Plans the blocks of topology/block: their order, their sizes, and the empty blocks that align them.

Slurm counts the blocks from the first one, and joins each aligned run of 2**k blocks into a larger one, whose
size is the base size times 2**k (topology.conf(5), BlockSizes). Since Slurm 25.05 blocks may have gaps: fewer
nodes than the base size, or none. Earlier versions refuse such a file.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

_MAX_DOUBLINGS = 15  # Slurm supports sizes up to 2**15 times the base
_MAX_SIZE = 1_000_000
_MAX_GROWTH = 2  # empty blocks at most double the number of blocks

Block = tuple[str, Sequence[str]]  # name, nodes


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """`blocks`: in their order; one without nodes only aligns the next one. `sizes`: the base size, then
    larger ones, ascending. `too_small`: nodes of blocks that are left out, since they are below the base."""

    blocks: tuple[Block, ...] = ()
    sizes: tuple[int, ...] = ()
    too_small: tuple[str, ...] = ()


def sizes_problem(sizes: Sequence[int]) -> str | None:
    """Return why Slurm refuses these block sizes; None if it takes them."""
    if any(not 0 < size <= _MAX_SIZE for size in sizes):
        return f"expected sizes from 1 to {_MAX_SIZE}"
    for before, size in pairwise(sizes):
        times, rest = divmod(size, sizes[0])
        if size <= before or rest or times.bit_count() != 1 or times > 1 << _MAX_DOUBLINGS:
            return f"{size}: expected ascending sizes, each {sizes[0]} times a power of two up to 2^15"
    return None


def with_gaps(blocks: Sequence[Block], parents: Mapping[str, str | None], given: Sequence[int]) -> BlockPlan:
    """Plan for Slurm 25.05 or newer: all blocks stay, and no found larger size spans two domains of its tier.

    `parents`: the domain above each domain. `given`: sizes that replace the found ones; () = find them. The
    found base is the largest block, so that it stays while one of the largest racks has all its hosts.
    """
    if not blocks:
        return BlockPlan()
    base = given[0] if given else max(len(nodes) for _, nodes in blocks)
    allowed = {(size // base).bit_length() - 1 for size in given} if given else range(_MAX_DOUBLINGS + 1)
    slots, doublings = _aligned_tiers(blocks, parents, allowed, _MAX_GROWTH * len(blocks))
    return BlockPlan(_named(slots), tuple(given) or tuple(base << k for k in doublings))


def without_gaps(
    blocks: Sequence[Block], parents: Mapping[str, str | None], given: Sequence[int]
) -> BlockPlan:
    """Plan for any Slurm with topology/block: blocks below the base size are left out.

    The found base is the smallest block of more than one host. A larger size is found for each tier: the
    largest one with blocks that never span two domains of that tier. Given sizes are ignored if each block is
    smaller than their base.
    """
    counts = [len(nodes) for _, nodes in blocks]
    if not blocks:
        return BlockPlan()
    if given and given[0] <= max(counts):
        sizes, base = tuple(given), given[0]
    else:
        sizes, base = (), min([n for n in counts if n > 1] or counts)
    kept = tuple(block for block in blocks if len(block[1]) >= base)
    small = tuple(node for _, nodes in blocks if len(nodes) < base for node in nodes)
    _, doublings = _aligned_tiers(kept, parents, range(_MAX_DOUBLINGS + 1), len(kept))
    return BlockPlan(kept, sizes or tuple(base << k for k in doublings), small)


def _aligned_tiers(
    blocks: Sequence[Block], parents: Mapping[str, str | None], allowed: Iterable[int], most: int
) -> tuple[list[Block], list[int]]:
    """Return the blocks with empty ones between them, at most `most`, and k of the sizes 2**k, ascending.

    For each tier it is the largest k of `allowed` with which each domain fills whole runs of 2**k blocks.
    """
    slots, domains, doublings = list(blocks), [name for name, _ in blocks], [0]
    while (above := [parents.get(name) or name for name in domains]) != domains:
        domains = above
        longest = max(sum(1 for _ in run) for _, run in groupby(domains))
        for k in sorted(allowed, reverse=True):
            if doublings[-1] < k <= (longest - 1).bit_length():
                padded = _aligned(slots, domains, 1 << k)
                if len(padded) <= most:
                    domains, slots = [domain for domain, _ in padded], [block for _, block in padded]
                    doublings.append(k)
                    break
    return slots, doublings


def _aligned(slots: Sequence[Block], domains: Sequence[str], run: int) -> list[tuple[str, Block]]:
    """Return (domain, block), with each domain but the last filled up to a multiple of `run` blocks."""
    found: list[tuple[str, Block]] = []
    for domain, of_domain in groupby(zip(domains, slots, strict=True), key=lambda pair: pair[0]):
        found += of_domain
        found += [(domain, ("", ()))] * (-len(found) % run)
    while not found[-1][1][1]:
        del found[-1]
    return found


def _named(slots: Iterable[Block]) -> tuple[Block, ...]:
    """Name the empty blocks after the block before them, so that a change elsewhere renames none."""
    named: list[Block] = []
    real, count = "", 0
    for name, nodes in slots:
        real, count = (name, 0) if nodes else (real, count + 1)
        named.append((name or f"{real}-empty-{count}", nodes))
    return tuple(named)
