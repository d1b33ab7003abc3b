"""Workers in one NUMA zone: how many fit, which zone each gets, and what counts while a zone is not known."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.answer import Placement, Refusal
from hyperscout_placer.cluster.capacity import Capacity
from hyperscout_placer.cluster.forest import Forest
from hyperscout_placer.cluster.numa_zones import (
    FreeInZones,
    Zone,
    ZoneDevices,
    in_one_zone,
    in_zone,
    shares_that_overlap,
    without_share,
    zone_share,
)
from hyperscout_placer.cluster.request import Group, Request, RequestError, Workers
from hyperscout_placer.messages.placements import held_message, placement_json, placement_of
from hyperscout_placer.messages.requests import request_message, request_of, stored_request
from hyperscout_placer.repair.repair import Move
from hypothesis import given
from hypothesis import strategies as st
from support.placer_oracle import brute_place
from support.placing import request as request_in_api
from support.topologies import leaves

GPU, NIC = "nvidia.com/gpu", "rdma/hca"
ROOM: Mapping[str, int] = {"cpu": 64_000, GPU: 8}
NICS = {0: ("mlx5_0",), 1: ("mlx5_1", "mlx5_2")}


def zones(*unused: int, resource: str = GPU) -> list[ZoneDevices]:
    """The zones 0, 1, ... of a node with so many unused devices."""
    return [ZoneDevices(Zone(z, NICS.get(z, ())), {resource: count}) for z, count in enumerate(unused)]


def single(gpus: int, count: int = 1, role: str = "worker", **more: int) -> Workers:
    needs = tuple(sorted({GPU: gpus, **more}.items()))
    return Workers(count, in_one_zone(needs), role)


def gang(*parts: Workers) -> Request:
    return Request(Group(1, parts), "soft")


def book(nodes: Mapping[str, Sequence[int]], room: Mapping[str, int] = ROOM) -> Placements:
    """Nodes of one leaf, with so many unused GPUs in each zone."""
    placements = Placements(clock_ns=lambda: 1000, timer=lambda: 0.0)
    placements.set_topology(leaves(tuple(nodes)))
    placements.set_unused({node: dict(room) for node in nodes})
    for node, unused in nodes.items():
        placements.set_zones_of(node, zones(*unused))
    return placements


def where(answer: Placement | Refusal) -> list[tuple[str, int | None]]:
    assert isinstance(answer, Placement), answer
    numbers = [zone.number if zone else None for zone in answer.zones]
    return list(zip(answer.nodes, numbers, strict=True))


def packed(free: Sequence[int], need: int) -> int:
    """The most workers that fit, by trying how many are in each zone."""
    ways = product(*(range(one + 1) for one in free))
    return max(sum(way) for way in ways if all(n * need <= one for n, one in zip(way, free, strict=True)))


@given(st.lists(st.integers(0, 8), min_size=1, max_size=3), st.integers(1, 5))
def test_as_many_fit_as_can_be_packed(free: list[int], need: int) -> None:
    share = zone_share(single(need).resources)
    assert share is not None
    on_node = FreeInZones(zones(*free), {GPU: sum(free)})
    most = packed(free, need)
    assert on_node.fits(share) == most
    taken = [on_node.take(share) for _ in range(most)]
    used = Counter(zone.number for zone in taken if zone)
    assert sum(used.values()) == most, "each worker that fits finds a zone"
    assert all(used[z] * need <= one for z, one in enumerate(free))
    assert on_node.take(share) is None


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.integers(0, 6),
    st.integers(1, 4),
    st.integers(0, 4),
)
def test_devices_of_unknown_zones_never_make_more_fit(
    free: list[int], elsewhere: int, need: int, booked: int
) -> None:
    """Wherever the devices are that no report and no booking names, so many workers fit."""
    share = zone_share(single(need).resources)
    assert share is not None
    left = [max(0, free[0] - booked), *free[1:]]
    known = in_zone(in_one_zone(((GPU, booked),)), Zone(0)) if booked else ()
    on_node = FreeInZones(zones(*free), {GPU: max(0, sum(left) - elsewhere)}, dict(known))
    spread = (
        way for way in product(*(range(one + 1) for one in left)) if sum(way) == min(elsewhere, sum(left))
    )
    worst = min(packed([a - b for a, b in zip(left, way, strict=True)], need) for way in spread)
    assert on_node.fits(share) <= worst
    if elsewhere == 0:
        assert on_node.fits(share) == worst


@pytest.mark.parametrize(
    ("nodes", "asked", "expected"),
    [
        # 4 + 4 GPUs hold two workers of 4, of 3, four of 2; 6 + 2 hold one of 4.
        ({"n1": (4, 4)}, single(4, 2), [("n1", 0), ("n1", 1)]),
        ({"n1": (4, 4)}, single(3, 2), [("n1", 0), ("n1", 1)]),
        ({"n1": (2, 4)}, single(4), [("n1", 1)]),
        ({"n1": (2, 2), "n2": (4, 0)}, single(4), [("n2", 0)]),
        ({"n1": (6, 2)}, single(2, 4), [("n1", 0)] * 3 + [("n1", 1)]),
        ({"n1": (4, 4)}, single(8), None),
        ({"n1": (3, 3)}, single(4), None),
        ({"n1": ()}, single(1), None),  # no agent reports the zones
    ],
)
def test_placements(
    nodes: dict[str, tuple[int, ...]], asked: Workers, expected: list[tuple[str, int]] | None
) -> None:
    answer = book(nodes).place("a", gang(asked), holder="api")
    if expected is None:
        assert isinstance(answer, Refusal)
        assert f"NUMA zone of {dict(asked.resources)[GPU]} nvidia.com/gpu" in answer.reason
        assert ("agent.podResources.enabled" in answer.reason) is ("has any NUMA zone" in answer.reason)
    else:
        assert where(answer) == expected


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=2), min_size=4, max_size=5),
    st.integers(1, 3),
    st.integers(1, 4),
    st.sampled_from([None, 1]),
)
def test_placements_are_as_good_as_those_of_the_oracle(
    unused: list[list[int]], need: int, workers: int, tier: int | None
) -> None:
    """The oracle tries all placements. Each node takes as many workers as its zones can be packed with."""
    nodes = {f"n{i}": zone for i, zone in enumerate(unused)}
    names = tuple(nodes)
    placements = book(nodes, {GPU: 10})
    topology = leaves(names[:2], names[2:])
    placements.set_topology(topology)
    asked = Request(Group(1, (Group(1, (single(need, workers),), tier),)), "soft")
    found = placements.place("a", asked, holder="api", dry_run=True)
    free = {name: {"workers": packed(zone, need)} for name, zone in nodes.items()}
    room = Capacity(Forest.of(topology), free)
    expected = brute_place(room, Request(Group(1, (Group(1, (Workers(workers),), tier),)), "soft"))
    assert isinstance(found, Placement) == isinstance(expected, Placement)
    if isinstance(found, Placement) and isinstance(expected, Placement):
        assert found.cost == expected.cost
        in_zones = Counter(where(found))
        assert all(count * need <= nodes[node][zone or 0] for (node, zone), count in in_zones.items())


def test_a_gang_without_zones_is_placed_as_before() -> None:
    answer = book({"n1": (3, 3)}).place("a", gang(Workers(1, ((GPU, 6),))), holder="api")
    assert isinstance(answer, Placement)
    assert (answer.nodes, answer.zones) == (("n1",), ())


def test_zones_are_held_until_the_kubelet_reports_their_use() -> None:
    placements = book({"n1": (4, 4)})
    assert where(placements.place("a", gang(single(4)), holder="Job")) == [("n1", 0)]
    assert where(placements.place("b", gang(single(4)), holder="Job", dry_run=True)) == [("n1", 1)]
    # The pod of a runs. Its devices are in a zone that the agent has not reported yet.
    placements.arrive("a", [0])
    placements.set_unused_of("n1", {**ROOM, GPU: 4})
    assert isinstance(placements.place("b", gang(single(4)), holder="Job"), Refusal)
    assert isinstance(
        placements.place("b", gang(Workers(1, ((GPU, 4),))), holder="x", dry_run=True), Placement
    )
    # The kubelet chose the other zone.
    placements.set_zones_of("n1", zones(4, 0))
    assert where(placements.place("b", gang(single(4)), holder="Job")) == [("n1", 0)]
    assert isinstance(placements.place("c", gang(single(1)), holder="Job"), Refusal)
    placements.release("b")
    assert where(placements.place("c", gang(single(2, 2)), holder="Job")) == [("n1", 0), ("n1", 0)]


def test_waiting_gangs_hear_when_more_workers_fit_in_a_zone() -> None:
    placements, heard = book({"n1": ()}), []
    placements.zones_freed.subscribe(lambda: heard.append(1))

    def frees(*unused: int) -> bool:
        heard.clear()
        placements.set_zones_of("n1", zones(*unused))
        return bool(heard)

    assert isinstance(placements.place("a", gang(single(4)), holder="Job"), Refusal)
    assert frees(4, 4), "the first report"
    assert not frees(4, 4)
    assert not frees(0, 4)
    assert not frees(3, 4), "none of 4 more"
    assert not frees(4, 0), "another zone, and as many"
    assert not frees()
    # A pod runs, and its zone is not reported yet. The report says that the other zone is free.
    assert frees(4, 4)
    placements.set_unused_of("n1", {**ROOM, GPU: 5})
    assert isinstance(placements.place("a", gang(single(4)), holder="Job"), Refusal)
    assert frees(1, 4)


def test_a_gang_without_zones_beside_one_with_zones() -> None:
    placements = book({"n1": (4, 4)})
    placements.place("any", gang(Workers(1, ((GPU, 1),))), holder="api")
    # Its GPU may be in either zone.
    assert isinstance(placements.place("a", gang(single(4)), holder="api"), Refusal)
    assert where(placements.place("a", gang(single(3, 2)), holder="api")) == [("n1", 0), ("n1", 1)]


def test_moves_and_stored_plans_keep_the_zones_of_workers_that_stay() -> None:
    placements = book({"n1": (4, 4), "n2": (4, 4)})
    held = placements.place("a", gang(single(4, 3)), holder="api")
    assert where(held) == [("n1", 0), ("n1", 1), ("n2", 0)]
    assert isinstance(held, Placement)
    placements.set_zones_of("n2", zones(0, 4))
    after = Placement(("n1", "n2", "n2"), held.tier, held.hypernode, held.cost)
    placements.move("a", [Move(1, "n1", "n2")], after)
    assert where(placements.held("a").placement) == [("n1", 0), ("n2", 1), ("n2", 0)]
    back = Placement(("n1", "n1", "n2"), held.tier, held.hypernode, held.cost)
    placements.restore(type(placements.held("a"))("a", "api", gang(single(4, 3)), back, 1))
    assert where(placements.held("a").placement) == [("n1", 0), ("n1", 1), ("n2", 0)]


def test_without_a_gang_its_zones_are_free() -> None:
    placements = book({"n1": (4, 4)})
    placements.place("a", gang(single(4, 2)), holder="api")
    share = zone_share(single(4).resources)
    assert placements.capacity.free_of("n1").get(str(share), 0) == 0
    assert placements.without("a")().free_of("n1")[str(share)] == 2
    placements.arrive("a", [0, 1])
    placements.set_unused_of("n1", {**ROOM, GPU: 0})
    placements.set_zones_of("n1", zones(0, 0))
    assert placements.without("a")().free_of("n1")[str(share)] == 2


def test_more_kinds_of_workers_than_are_remembered() -> None:
    placements = book({"n1": (40, 40)}, {GPU: 80})
    for gpus in range(1, 41):
        answer = placements.place("a", gang(single(gpus)), holder="api", dry_run=True)
        assert where(answer) == [("n1", 0)], gpus
    assert len(placements.capacity.free_of("n1")) <= 33  # 32 kinds, and the GPUs
    assert where(placements.place("a", gang(single(1)), holder="api")) == [("n1", 0)]


@pytest.mark.parametrize(
    ("kinds", "device"),
    [
        ((single(4), single(4, role="leader")), None),
        ((single(4, cpu=1), single(4, cpu=2)), None),
        ((single(4), Workers(1, (("cpu", 1),))), None),
        ((single(4), single(2)), GPU),
        ((single(4), Workers(1, ((GPU, 4),))), GPU),
        ((single(4, **{NIC: 1}), Workers(1, ((NIC, 1),))), NIC),
    ],
)
def test_kinds_of_workers_that_share_devices(kinds: tuple[Workers, ...], device: str | None) -> None:
    assert shares_that_overlap(kind.resources for kind in kinds) == device
    placements = book({"n1": (4, 4), "n2": (4, 4)})
    if device:
        with pytest.raises(RequestError, match=f"different kinds of workers need {device}"):
            placements.place("a", gang(*kinds), holder="api")
    else:
        assert isinstance(placements.place("a", gang(*kinds), holder="api"), Placement)


def test_several_devices_are_in_one_zone() -> None:
    placements = book({"n1": ()}, {GPU: 8, NIC: 2})
    placements.set_zones_of(
        "n1", [ZoneDevices(Zone(0), {GPU: 4, NIC: 0}), ZoneDevices(Zone(1), {GPU: 4, NIC: 2})]
    )
    asked = single(2, **{NIC: 1})
    assert where(placements.place("a", gang(asked), holder="api")) == [("n1", 1)]
    assert where(placements.place("b", gang(asked), holder="api")) == [("n1", 1)]
    assert isinstance(placements.place("c", gang(asked), holder="api"), Refusal)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        # The licence has no zone, so the GPUs decide.
        ([ZoneDevices(Zone(0), {GPU: 2}), ZoneDevices(Zone(None), {"x.com/licence": 1})], [("n1", 0)]),
        ([ZoneDevices(Zone(0), {GPU: 2})], [("n1", 0)]),
        # No device has a zone.
        ([ZoneDevices(Zone(None), {GPU: 4, "x.com/licence": 1})], [("n1", None)]),
        ([ZoneDevices(Zone(None), {GPU: 4})], None),
    ],
)
def test_devices_without_a_zone(reported: list[ZoneDevices], expected: list[tuple[str, int | None]]) -> None:
    placements = book({"n1": ()}, {GPU: 4, "x.com/licence": 1})
    placements.set_zones_of("n1", reported)
    answer = placements.place("a", gang(single(2, **{"x.com/licence": 1})), holder="api")
    assert (None if isinstance(answer, Refusal) else where(answer)) == expected


def test_messages() -> None:
    placements = book({"n1": (4, 4)})
    message = request_in_api(2, resources={GPU: "4", "cpu": "500m"})
    message.parts[0].workers.single_numa = True
    asked = request_of(message, placements.capacity.forest)
    [part] = asked.gang.parts
    assert isinstance(part, Workers)
    assert without_share(part.resources) == (("cpu", 500), (GPU, 4))
    written = request_message(asked)
    assert dict(written.parts[0].workers.resources) == {GPU: "4", "cpu": "500m"}
    assert written.parts[0].workers.single_numa
    assert stored_request(written) == asked
    answer = placements.place("a", asked, holder="api")
    found = held_message(placements.held("a"), 1)
    assert placement_of(found) == answer
    assert placement_json(found)["assignments"] == [
        {"rank": 0, "node": "n1", "role": "worker", "numaZone": 0, "nics": ["mlx5_0"]},
        {"rank": 1, "node": "n1", "role": "worker", "numaZone": 1, "nics": ["mlx5_1", "mlx5_2"]},
    ]


def test_one_zone_of_nothing_is_refused() -> None:
    message = request_in_api(1, resources={"cpu": "1"})
    message.parts[0].workers.single_numa = True
    with pytest.raises(RequestError, match=r"parts\[0\].workers.single_numa: no device is requested"):
        request_of(message, book({"n1": (4, 4)}).capacity.forest)
