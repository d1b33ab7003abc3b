"""What is held, as bytes: what protobuf would write, and each gang encoded once."""

from dataclasses import replace

import pytest
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_collector.serve.grpc.placement_bytes import PlacementBytes
from hyperscout_collector.serve.grpc.placement_watchers import News
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.request import Group, Request, Workers
from hyperscout_placer.messages.placements import held_message

TIERS = 2


def held(gang: str, workers: int = 1) -> Reservation:
    nodes = tuple(f"n{i}" for i in range(workers))
    placement = Placement(nodes, 1, "leaf", Cost(1, (), workers, 0, (0, 0)), exact=True, bound=None)
    return Reservation(gang, "api", Request(Group(1, (Workers(workers),))), placement, 5)


@pytest.mark.parametrize("sizes", [(), (1,), (1, 2), (7, 8, 9, 1000), (20_000,)])
def test_it_is_the_message(sizes: tuple[int, ...]) -> None:
    book = [held(f"g{i}", size) for i, size in enumerate(sizes)]
    messages = [held_message(one, TIERS) for one in book]
    found = PlacementBytes()
    assert pb.ListPlacementsResponse.FromString(
        found.list_response(book, TIERS)
    ) == pb.ListPlacementsResponse(placements=messages)
    for news in (News(tuple(book), snapshot=True), News(tuple(book), ("x", "y"))):
        told = pb.WatchPlacementsResponse.FromString(found.watch_response(news, TIERS))
        assert told == pb.WatchPlacementsResponse(
            placements=messages, released=news.released, snapshot=news.snapshot
        )


def test_each_is_made_once_until_it_changes() -> None:
    found, a, b = PlacementBytes(), held("a"), held("b")
    found.list_response([a, b], TIERS)
    found.list_response([a, b], TIERS)
    found.watch_response(News((a, b), snapshot=True), TIERS)
    assert found.made == 2
    changed = replace(a, reserved_ns=6)
    told = pb.WatchPlacementsResponse.FromString(found.watch_response(News((changed,)), TIERS))
    assert told.placements[0].reserved_at.ToNanoseconds() == 6
    assert found.made == 3
    assert pb.ListPlacementsResponse.FromString(found.list_response([changed, b], TIERS + 1)).placements[
        1
    ].domains == {1: 1, 2: 1, 3: 1}
    assert found.made == 5  # on another hierarchy


def test_what_is_gone_is_forgotten() -> None:
    found, a, b, c = PlacementBytes(), held("a"), held("b"), held("c")
    found.watch_response(News((a, b, c), snapshot=True), TIERS)
    found.watch_response(News((), ("a",)), TIERS)
    assert set(found._known) == {"b", "c"}
    found.list_response([c], TIERS)
    assert set(found._known) == {"c"}
