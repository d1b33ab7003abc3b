"""Blocks of Slurm: sizes that keep racks whole, and empty blocks that align domains."""

from collections.abc import Sequence
from itertools import chain

import pytest
from hyperscout_publish.slurm.blocks import Block, sizes_problem, with_gaps, without_gaps
from hypothesis import given
from hypothesis import strategies as st

Parents = dict[str, str | None]


def planned(*pods_of: Sequence[int]) -> tuple[list[Block], Parents]:
    """Blocks b0, b1, ... of these sizes, by pod, and the domain above each: p0, p1, ... under one core."""
    blocks: list[Block] = []
    parents: Parents = {"core": None}
    for p, sizes in enumerate(pods_of):
        parents[f"p{p}"] = "core"
        for size in sizes:
            name = f"b{len(blocks)}"
            parents[name] = f"p{p}"
            blocks.append((name, [f"{name}n{i}" for i in range(size)]))
    return blocks, parents


def counts(blocks: Sequence[Block]) -> list[int]:
    return [len(nodes) for _, nodes in blocks]


@pytest.mark.parametrize(
    ("pods_of", "sizes", "written"),
    [
        (([4],), (4,), [4]),
        (([4, 4], [4, 4]), (4, 8, 16), [4, 4, 4, 4]),
        (([18, 1, 1, 1],), (18, 72), [18, 1, 1, 1]),  # single hosts do not make the base smaller
        (([18, 17], [18, 18]), (18, 36, 72), [18, 17, 18, 18]),  # nor does a dead one
        (([4] * 3, [4] * 3), (4, 16, 32), [4, 4, 4, 0, 4, 4, 4]),  # the empty block aligns the second pod
        (([4] * 4, [4] * 3, [4] * 4), (4, 16, 64), [4] * 7 + [0] + [4] * 4),
        (([4], [4], [4] * 8), (4, 16, 64), [4, 0, 0, 0, 4, 0, 0, 0, *[4] * 8]),  # runs of 8 need 24 blocks
        (([4], [4], [4]), (4, 16), [4, 4, 4]),
    ],
)
def test_blocks_with_gaps(
    pods_of: Sequence[Sequence[int]], sizes: tuple[int, ...], written: list[int]
) -> None:
    plan = with_gaps(*planned(*pods_of), ())
    assert (plan.sizes, counts(plan.blocks), plan.too_small) == (sizes, written, ())


@pytest.mark.parametrize(
    ("pods_of", "given_sizes", "sizes", "written"),
    [
        (([18, 18, 1],), (), (18, 36), [18, 18]),
        (([18, 17, 1],), (), (17, 34), [18, 17]),
        (([1, 1],), (), (1, 2), [1, 1]),
        (([18, 17, 16],), (16, 64), (16, 64), [18, 17, 16]),
        (([18, 17, 16],), (18,), (18,), [18]),
        (([4] * 3, [4] * 3), (), (4, 32), [4] * 6),
        (([4, 4],), (18, 36), (4, 8), [4, 4]),  # no block has so many nodes
    ],
)
def test_blocks_without_gaps(
    pods_of: Sequence[Sequence[int]], given_sizes: Sequence[int], sizes: tuple[int, ...], written: list[int]
) -> None:
    blocks, parents = planned(*pods_of)
    plan = without_gaps(blocks, parents, given_sizes)
    assert (plan.sizes, counts(plan.blocks)) == (sizes, written)
    assert set(plan.too_small) == set(chain(*(n for _, n in blocks))) - set(
        chain(*(n for _, n in plan.blocks))
    )


def test_given_sizes_align_the_domains_that_they_fit() -> None:
    plan = with_gaps(*planned([4] * 3, [4] * 3), (4, 8))
    assert plan.sizes == (4, 8)
    assert counts(plan.blocks) == [4, 4, 4, 0, 4, 4, 4]
    assert with_gaps(*planned([4] * 3, [4] * 3), (18,)).blocks == tuple(planned([4] * 3, [4] * 3)[0])


def test_an_empty_block_is_named_after_the_block_before_it() -> None:
    names = [name for name, _ in with_gaps(*planned([4] * 5, [4] * 5), ()).blocks]
    assert names == [
        "b0",
        "b1",
        "b2",
        "b3",
        "b4",
        *(f"b4-empty-{i}" for i in (1, 2, 3)),
        *(f"b{i}" for i in range(5, 10)),
    ]


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=9), min_size=1, max_size=9))
def test_no_block_of_a_found_size_spans_two_domains_of_its_tier(pods_of: list[list[int]]) -> None:
    blocks, parents = planned(*pods_of)
    plan = with_gaps(blocks, parents, ())
    assert [block for block in plan.blocks if block[1]] == blocks
    assert len(plan.blocks) <= 2 * len(blocks)
    assert sizes_problem(plan.sizes) is None
    assert plan.sizes[0] == max(chain(*pods_of))
    if len(pods_of) > 1 and len(plan.sizes) == 3:  # leaf, pod, core
        run = plan.sizes[1] // plan.sizes[0]
        for start in range(0, len(plan.blocks), run):
            assert len({parents[name] for name, nodes in plan.blocks[start : start + run] if nodes}) <= 1


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [
        ((), None),
        ((18,), None),
        ((18, 36, 144), None),
        ((0,), "from 1 to 1000000"),
        ((18, 54), "54: expected ascending sizes, each 18 times a power of two"),
        ((18, 40), "40: expected"),
        ((18, 18), "18: expected"),
        ((1, 65536), "65536: expected"),
    ],
)
def test_sizes_that_slurm_refuses(sizes: tuple[int, ...], problem: str | None) -> None:
    found = sizes_problem(sizes)
    assert found is None if problem is None else problem in (found or "")
