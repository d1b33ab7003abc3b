"""The runner of the election, over an API server that keeps one Lease and fails on request."""

from typing import Any

import pytest
from hyperscout_kubernetes.errors import (
    ForbiddenError,
    NotLeaderError,
    UnreachableError,
)
from hyperscout_kubernetes.lease import ADDRESS, GENERATION, record_of
from support.fake_time import settle
from support.lease_world import LeaseWorld


async def test_one_leads_and_another_follows_when_it_dies() -> None:
    async with LeaseWorld() as world:
        a = world.candidate("a")
        await settle()
        b = world.candidate("b")
        await world.time.pass_s(30)
        assert (a.leading, b.leading) == (True, False)
        assert b.leader_address() == "a:50051"
        assert world.api.lease is not None
        assert world.api.lease["spec"] == {
            "holderIdentity": "a_0",
            "leaseDurationSeconds": 8,
            "leaseTransitions": 0,
            "acquireTime": "1970-01-01T00:16:40.000000Z",
            "renewTime": world.api.lease["spec"]["renewTime"],
        }
        assert world.api.lease["spec"]["renewTime"] > "1970-01-01T00:17:08"
        assert world.api.lease["metadata"]["annotations"] == {ADDRESS: "a:50051", GENERATION: "1000"}
        fence = a.fence()
        assert 3.5 < fence.remaining_s() <= 5
        await world.end(0)
        await world.time.pass_s(10.5)
        assert b.leading
        with pytest.raises(NotLeaderError, match="could not be renewed"):
            fence.remaining_s()
        assert world.api.lease["spec"]["leaseTransitions"] == 1


async def test_what_is_released_is_taken_at_once() -> None:
    async with LeaseWorld() as world:
        a = world.candidate("a")
        await settle()
        b = world.candidate("b")
        await world.time.pass_s(5)
        fence = a.fence()
        await world.end(0)
        await a.release()
        assert world.api.lease is not None
        assert world.api.lease["spec"]["holderIdentity"] == ""
        assert world.api.lease["metadata"]["annotations"] == {ADDRESS: "", GENERATION: "0"}
        with pytest.raises(NotLeaderError, match="another"):
            fence.remaining_s()
        await world.time.pass_s(1.3)
        assert b.leading
        writes = len(world.api.asked)
        await a.release()
        assert world.api.lease["spec"]["holderIdentity"] == "b_0", "only what is ours is released"
        assert world.api.asked[writes:] == ["GET"]


async def test_a_server_that_is_away_stops_writes_not_the_term(caplog: pytest.LogCaptureFixture) -> None:
    async with LeaseWorld() as world:
        a, b = world.candidate("a"), world.candidate("b")
        await world.time.pass_s(5)
        leader, other = (a, b) if a.leading else (b, a)
        term, fence = leader.own_terms, leader.fence()
        world.api.error = UnreachableError("connection refused")
        await world.time.pass_s(60)
        assert leader.leading
        assert not leader.may_write
        with pytest.raises(NotLeaderError):
            fence.remaining_s()
        assert "nothing is written until it is" in caplog.text
        assert leader.problem == "connection refused"
        world.api.error = None
        await world.time.pass_s(3)
        assert (leader.leading, leader.own_terms, leader.may_write, other.leading) == (
            True,
            term,
            True,
            False,
        )
        assert fence.remaining_s() > 0
        assert leader.problem is None


async def test_a_fence_is_of_one_term() -> None:
    async with LeaseWorld() as world:
        a = world.candidate("a")
        await world.time.pass_s(2)
        fence = a.fence()
        assert world.api.lease is not None
        taken = {**world.api.lease["spec"], "holderIdentity": "other-holder"}
        world.api.put({**world.api.lease, "spec": taken})
        await world.time.pass_s(3)
        assert not a.leading
        await world.time.pass_s(10)
        assert a.leading, "the other holder did not renew"
        assert a.own_terms == 2
        with pytest.raises(NotLeaderError, match="another"):
            fence.remaining_s()
        assert a.fence().remaining_s() > 0


async def test_what_others_put_on_the_lease_is_kept() -> None:
    async with LeaseWorld() as world:
        world.candidate("a")
        await world.time.pass_s(2)
        assert world.api.lease is not None
        metadata = {**world.api.lease["metadata"], "labels": {"team": "net"}, "managedFields": [1]}
        metadata["annotations"] = {**metadata["annotations"], "note": "hands off"}
        world.api.put({**world.api.lease, "metadata": metadata})
        await world.time.pass_s(5)
        kept = world.api.lease["metadata"]
        assert kept["labels"] == {"team": "net"}
        assert kept["annotations"] == {ADDRESS: "a:50051", GENERATION: "1000", "note": "hands off"}
        assert "managedFields" not in kept


async def test_a_lease_that_may_not_be_had_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with LeaseWorld() as world:
        world.api.error = ForbiddenError("leases is forbidden")
        a = world.candidate("a")
        await world.time.pass_s(30)
        assert not a.leading
        assert caplog.text.count("leases is forbidden") == 1
        await a.release()


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"holderIdentity": 7, "leaseDurationSeconds": "long", "leaseTransitions": None, "renewTime": []},
        {"holderIdentity": None, "leaseDurationSeconds": -5},
    ],
)
def test_garbage_is_a_lease_without_a_holder(spec: Any) -> None:
    record = record_of({"metadata": {"name": "x", "annotations": None}, "spec": spec})
    assert record.holder == ""
    assert record.duration_s <= 0


@pytest.mark.parametrize("address", ["", "nowhere", "10.0.0.1", "fd00::1:50051:x", "unix:/tmp/x", "a:b:99"])
async def test_what_is_no_address_leads_nowhere(address: str) -> None:
    async with LeaseWorld() as world:
        world.candidate("a")
        await settle()
        b = world.candidate("b")
        await world.time.pass_s(3)
        await world.end(0)
        assert world.api.lease is not None
        world.api.lease["metadata"]["annotations"][ADDRESS] = address
        world.api.lease["spec"]["renewTime"] = "later"
        await world.time.pass_s(1.5)
        assert not b.leading
        assert b.leader_address() == ""


async def test_no_two_leaders_use_one_number() -> None:
    """The Lease says how far a leader may have come, before it comes there."""
    async with LeaseWorld() as world:
        a = world.candidate("a")
        await settle()
        assert (a.used, world.reserved()) == (0, 1000), "before its first number"
        world.highest["a"] = 1
        await world.time.pass_s(2)
        assert world.reserved() == 1001
        world.highest["a"] = 1700
        await world.time.pass_s(2)
        b = world.candidate("b")
        await world.end(0)  # without a release
        await world.time.pass_s(12)
        assert (b.leading, b.used, world.reserved()) == (True, 2700, 3700)
        world.highest["b"] = 2703
        await world.time.pass_s(2)
        assert world.reserved() == 3703
        await world.end(1)
        await b.release()
        assert world.reserved() == 2703
        c = world.candidate("c")
        await settle()
        assert (c.used, world.reserved()) == (2703, 3703)


@pytest.mark.parametrize("text", ["", "x", "-1", "1" * 16, "\u0661", None, 7])
async def test_a_number_that_is_none_counts_as_none(text: Any) -> None:
    async with LeaseWorld() as world:
        world.api.put({"metadata": {"annotations": {GENERATION: text}}, "spec": {}})
        a = world.candidate("a")
        await settle()
        assert (a.leading, a.used, world.reserved()) == (True, 0, 1000)
