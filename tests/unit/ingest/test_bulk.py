"""Texts put together from pieces: what is too large stays cheap, what does not fit is said."""

import hashlib
import tracemalloc
import zlib
from itertools import pairwise

import pytest
from hyperscout_collector.ingest.bulk import BulkAssembly, BulkError, BulkLimits, inflate
from hypothesis import given
from hypothesis import strategies as st

MIB = 1 << 20


@given(st.binary(max_size=5000), st.lists(st.integers(0, 5000), max_size=6))
def test_any_text_in_any_pieces(text: bytes, cuts: list[int]) -> None:
    packed = zlib.compress(text)
    assembly = BulkAssembly(hashlib.sha256(text).digest(), BulkLimits())
    edges = sorted({0, len(packed), *(min(cut, len(packed)) for cut in cuts)})
    for start, end in pairwise(edges):
        assembly.add(start, packed[start:end])
    bulk, found = assembly.finish()
    assert (found, bulk.compressed, bulk.size_bytes) == (text, packed, len(text))


@given(st.binary(max_size=300))
def test_garbage_is_an_error_and_nothing_else(data: bytes) -> None:
    assembly = BulkAssembly(bytes(32), BulkLimits(compressed=200, text=1000))
    assembly.add(0, data)
    with pytest.raises(BulkError):
        assembly.finish()


@pytest.mark.slow
def test_a_bomb_costs_no_more_than_the_limit() -> None:
    bomb = zlib.compress(bytes(256 * MIB), 9)
    assert len(bomb) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(BulkError, match="bytes of text"):
            inflate(bomb, MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


@pytest.mark.parametrize(("size", "fits"), [(999, True), (1000, True), (1001, False)])
def test_the_limit_is_the_limit(size: int, fits: bool) -> None:
    packed = zlib.compress(bytes(size))
    if fits:
        assert inflate(packed, 1000) == bytes(size)
    else:
        with pytest.raises(BulkError):
            inflate(packed, 1000)


@pytest.mark.parametrize("data", [b"", b"ab"])
def test_many_small_chunks_take_the_memory_that_counts(data: bytes) -> None:
    assembly = BulkAssembly(bytes(32), BulkLimits())
    tracemalloc.start()
    try:
        for i in range(50_000):
            assembly.add(i * len(data), bytes(bytearray(data)))  # an object of its own, as from a message
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert assembly.size_bytes == 50_000 * len(data)
    assert used < 2 * assembly.size_bytes + 10_000


def test_what_is_spoilt_holds_no_memory() -> None:
    assembly = BulkAssembly(bytes(32), BulkLimits(compressed=2 * MIB))
    assembly.add(0, bytes(MIB))
    assembly.add(MIB, bytes(MIB + 1))
    assert assembly.size_bytes == 0
    assembly.add(0, bytes(MIB))
    assert assembly.size_bytes == 0
    with pytest.raises(BulkError, match="compressed"):
        assembly.finish()
