"""The stream's ring: what a reader that was away can go on from, and what stays bounded."""

from dataclasses import replace

import pytest
from hyperscout_collector.serve.fanout.ring import Ring, Snapshot
from hyperscout_collector.serve.rest.stream import encoded_delta, encoded_snapshot, generation_of
from hyperscout_topology.diff import Diff
from hyperscout_topology.topology import Topology
from support.topologies import two_leaves

EPOCH = "e1"


def generation(number: int) -> Topology:
    return replace(two_leaves(), generation=number)


def ring(max_deltas: int = 100, max_bytes: int = 1 << 20) -> Ring:
    found = Ring(max_deltas, max_bytes, replay=0.5)
    found.begin(generation(1))
    return found


def resumed(found: Ring, ident: str) -> int | None:
    """Where a reader goes on that has the event with this id."""
    number = generation_of(ident, EPOCH)
    return None if number is None else found.after(number)


def grown(found: Ring, *numbers: int, size: int = 10) -> Ring:
    for number in numbers:
        found.add(generation(number), bytes(size))
    return found


def test_a_reader_goes_on_after_the_event_that_it_saw() -> None:
    found = grown(ring(), 2, 3, 5)
    assert [resumed(found, f"{g}-{EPOCH}") for g in (1, 2, 3, 5)] == [
        found.next - 3,
        found.next - 2,
        found.next - 1,
        found.next,
    ]
    assert resumed(found, "3") == found.next - 1, "a bare generation is this collector's"
    assert resumed(found, f"4-{EPOCH}") is None, "two generations were told as one"


@pytest.mark.parametrize("ident", ["9", f"9-{EPOCH}", "3-e2", "", "-", "x", "3-", "-e1", "３"])
def test_what_it_cannot_go_on_from_takes_a_snapshot(ident: str) -> None:
    assert resumed(grown(ring(), 2, 3), ident) is None


def test_no_more_deltas_than_allowed_are_kept() -> None:
    found = grown(ring(max_deltas=3), 2, 3, 4, 5, 6)
    assert len(found.since(0)) == 3
    assert resumed(found, f"2-{EPOCH}") is None
    assert resumed(found, f"3-{EPOCH}") is not None
    assert not found.covers(found.next - 4)


def test_no_more_bytes_than_allowed_are_kept() -> None:
    found = grown(ring(max_bytes=100), 2, 3, 4, 5, size=40)
    assert sum(len(delta.data) for delta in found.since(0)) <= 100


def test_a_snapshot_serves_newcomers_until_the_deltas_weigh_half_of_it() -> None:
    found = ring()
    found.keep(Snapshot(found.next, (bytes(100),), 100))
    for number in range(2, 7):
        assert found.snapshot is not None, number
        grown(found, number)
    grown(found, 7)
    assert found.snapshot is None


def test_a_snapshot_that_came_too_late_is_not_kept() -> None:
    found = ring(max_deltas=2)
    late = Snapshot(found.next, (bytes(10_000),), 10_000)
    grown(found, 2, 3, 4)
    found.keep(late)
    assert found.snapshot is None


def test_without_readers_nothing_is_kept_and_no_position_is_taken_for_another() -> None:
    found = grown(ring(), 2, 3)
    reader = found.next
    found.clear()
    assert found.topology is None
    assert resumed(found, f"3-{EPOCH}") is None
    found.begin(generation(3))
    assert not found.covers(reader)


def test_no_line_of_an_event_is_mistaken_for_another() -> None:
    """A name with a line break stays within its string."""
    nasty = replace(two_leaves(), nodes_without_evidence=("a\nevent: error\ndata: {}\n\n", "b\r\n\u2028"))
    snapshot = b"".join(encoded_snapshot(nasty, EPOCH)).decode()
    *lines, ident, event, end, last = snapshot.split("\n")
    assert all(line.startswith("data: ") for line in lines)
    assert (ident, event, end, last) == (f"id: 7-{EPOCH}", "event: snapshot", "", "")
    delta = encoded_delta(Diff(two_leaves(), replace(nasty, generation=8)), EPOCH).decode()
    assert [line.partition(":")[0] for line in delta.split("\n")] == ["id", "event", "data", "", ""]
    assert "\r" not in snapshot + delta
