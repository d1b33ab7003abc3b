"""What a standby knows of the leader, and for how long that is worth anything."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.app.replica.follower import Follower
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_runtime.credentials import CredentialsError
from hyperscout_topology.topology import Topology
from support.waiting import TIMEOUT_S


class Heard(Follower):
    """Hears one generation, and then no more."""

    calls = 0

    async def _follow(self, address: str) -> None:
        self.calls += 1
        if self.calls > 1:
            raise CredentialsError("the certificate has expired")
        self._events, self._left_s = [pb.WatchTopologyResponse(snapshot=pb.Topology(generation=7))], None


@pytest.mark.parametrize(
    ("kubernetes", "after_s", "expected"),
    [("publish", 20.0, 7), ("publish", 3600.0, None), ("off", 3600.0, 7)],
)
async def test_what_was_heard_long_ago_is_worth_less_than_what_the_cluster_says(
    tmp_path: Path, kubernetes: str, after_s: float, expected: int | None
) -> None:
    """The leader went on meanwhile: to begin from then would publish it anew."""
    settings: Any = {"data_dir": tmp_path, "kubernetes": kubernetes}
    now_s = [0.0]
    went = asyncio.Event()

    async def sleep(delay_s: float) -> None:
        now_s[0] += after_s / 5
        if now_s[0] >= after_s:
            went.set()
            await asyncio.Event().wait()

    follower = Heard(
        load_settings(flags=settings), lambda: "x:1", rng=Random(1), sleep=sleep, clock=lambda: now_s[0]
    )
    task = asyncio.create_task(follower.run())
    async with asyncio.timeout(TIMEOUT_S):
        await went.wait()
    taken = follower.take()
    assert (taken and taken.generation) == expected
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Interrupted(Follower):
    """Its first call ends as gRPC ends a call whose channel is closed; the second one lasts."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.calls = 0
        self.follows = asyncio.Event()

    async def _follow(self, address: str) -> None:
        self.calls += 1
        if self.calls == 1:
            raise asyncio.CancelledError
        self.follows.set()
        await asyncio.Event().wait()


async def no_sleep(_delay_s: float) -> None:
    await asyncio.sleep(0)


async def test_a_closed_channel_does_not_end_the_follower(tmp_path: Path) -> None:
    config = load_settings(flags={"data_dir": tmp_path})
    follower = Interrupted(config, lambda: "x:1", rng=Random(1), sleep=no_sleep)
    task = asyncio.create_task(follower.run())
    await asyncio.wait([task, asyncio.create_task(follower.follows.wait())], return_when="FIRST_COMPLETED")
    assert not task.done()
    assert follower.problem == "the leader, x:1: the call was cancelled"
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled(), "its own cancellation ends it"


class ClosedChannel:
    """A stub whose calls wait for `release`, and then end as those of a closed channel do."""

    def __init__(self) -> None:
        self.asked, self.release = asyncio.Event(), asyncio.Event()

    async def ListHistory(self, *_: object, **__: object) -> None:  # noqa: N802 - gRPC names it
        self.asked.set()
        await self.release.wait()
        raise asyncio.CancelledError


@pytest.mark.parametrize("is_own", [False, True])
async def test_the_cause_is_unknown_when_the_channel_is_closed(tmp_path: Path, is_own: bool) -> None:
    follower = Follower(load_settings(flags={"data_dir": tmp_path}), lambda: "x:1", rng=Random(1))
    follower._service = stub = ClosedChannel()
    task = asyncio.create_task(follower.cause_of(7))
    await stub.asked.wait()
    if is_own:
        task.cancel()
    stub.release.set()
    await asyncio.wait([task])
    assert task.cancelled() == is_own
    assert is_own or task.result() is None


class Deaf(Follower):
    """Never gets through to a leader."""

    async def _follow(self, address: str) -> None:
        raise CredentialsError("the certificate has expired")


@pytest.mark.parametrize(
    ("leader", "from_s"),
    [
        ("", 3.0),  # a new cluster: no replica leads, and nothing is to be learned
        ("10.0.0.7:50051", 30.0),  # an old leader that cannot be followed: the update must go on all the same
    ],
)
async def test_a_successor_is_prepared_once_it_has_heard_or_waited(
    tmp_path: Path, leader: str, from_s: float
) -> None:
    now_s, looks = 100.0, asyncio.Queue[float]()

    async def sleep(_delay_s: float) -> None:
        nonlocal now_s
        if not follower.prepared():
            now_s += 0.5
        else:
            looks.put_nowait(now_s - 100.0)
            await asyncio.Event().wait()

    follower = Deaf(
        load_settings(flags={"data_dir": tmp_path}),
        lambda: leader,
        rng=Random(1),
        sleep=sleep,
        clock=lambda: now_s,
    )
    assert not follower.prepared()
    task = asyncio.create_task(follower.run())
    async with asyncio.timeout(TIMEOUT_S):
        assert await looks.get() == from_s
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Restarting(Follower):
    """Its leader does not answer."""

    async def _follow(self, address: str) -> None:
        nothing = grpc.aio.Metadata()
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "Socket closed")


@pytest.mark.parametrize(("kind", "levels"), [(Restarting, ["INFO", "WARNING"]), (Deaf, ["WARNING"])])
async def test_a_leader_that_cannot_be_followed_is_a_warning_if_that_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[Follower], levels: list[str]
) -> None:
    caplog.set_level("INFO")
    now_s, done = 0.0, asyncio.Event()

    async def sleep(_delay_s: float) -> None:
        nonlocal now_s
        now_s += 10.0
        if now_s > 100.0:
            done.set()
            await asyncio.Event().wait()

    config = load_settings(flags={"data_dir": tmp_path})
    follower = kind(config, lambda: "x:1", rng=Random(1), sleep=sleep, clock=lambda: now_s)
    task = asyncio.create_task(follower.run())
    async with asyncio.timeout(TIMEOUT_S):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [x.levelname for x in caplog.records] == levels


# --- what readers see ---------------------------------------------------------------------------------------


class Sent(Follower):
    """Each call receives one list of events, and ends."""

    def __init__(self, *args: Any, calls: list[list[pb.WatchTopologyResponse]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._calls = iter(calls)

    async def _follow(self, address: str) -> None:
        async def events() -> AsyncIterator[pb.WatchTopologyResponse]:
            for event in next(self._calls, ()):
                yield event

        await self._follow_topology(events(), None, address)


def snapshot(generation: int) -> pb.WatchTopologyResponse:
    return pb.WatchTopologyResponse(snapshot=pb.Topology(generation=generation))


def delta(generation: int) -> pb.WatchTopologyResponse:
    return pb.WatchTopologyResponse(delta=pb.TopologyDelta(generation=generation))


async def shown_by(follower: Follower, pauses: asyncio.Queue[None]) -> list[int]:
    """The generations that readers see until the calls have ended."""
    found: list[int] = []
    hub = follower.renew()
    hub.published.subscribe(lambda: found.append(hub.current.topology.generation))
    task = asyncio.create_task(follower.run())
    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(4):
            await pauses.get()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return found


@pytest.mark.parametrize(
    ("calls", "floor", "shown", "taken", "served"),
    [
        ([[]], 0, [], None, False),
        ([[snapshot(0)]], 0, [], None, False),  # the leader has published nothing yet
        ([[snapshot(0), delta(1), delta(2)]], 0, [1, 2], 2, True),
        ([[snapshot(7)], [snapshot(7), delta(8)]], 0, [7, 8], 8, True),
        ([[snapshot(7)], [snapshot(1008)]], 0, [7, 1008], 1008, True),
        ([[snapshot(7)], [snapshot(3), delta(4)]], 0, [7], 4, False),  # another leader that knows less
        ([[snapshot(7)], [snapshot(3), delta(7), delta(8)]], 0, [7, 8], 8, True),
        ([[snapshot(7)]], 9, [], 7, False),  # this replica led before
        ([[snapshot(9)]], 9, [9], 9, True),
    ],
)
async def test_readers_see_no_earlier_generation_again(
    tmp_path: Path,
    calls: list[list[pb.WatchTopologyResponse]],
    floor: int,
    shown: list[int],
    taken: int | None,
    served: bool,
) -> None:
    pauses = asyncio.Queue[None]()

    async def sleep(_delay_s: float) -> None:
        pauses.put_nowait(None)
        await asyncio.sleep(0)

    config = load_settings(flags={"data_dir": tmp_path, "kubernetes": "off"})
    follower = Sent(config, lambda: "x:1", rng=Random(1), sleep=sleep, clock=lambda: 0.0, calls=calls)
    follower.raise_floor(floor)
    assert await shown_by(follower, pauses) == shown
    assert (follower.age_s() is not None) is served
    topology = follower.take()
    assert (topology and topology.generation) == taken
    assert follower.age_s() is None, "it was taken"


async def test_what_a_lost_leader_sent_ages(tmp_path: Path) -> None:
    now_s, pauses = 100.0, asyncio.Queue[None]()

    async def sleep(_delay_s: float) -> None:
        pauses.put_nowait(None)
        await asyncio.Event().wait()

    config = load_settings(flags={"data_dir": tmp_path, "lease_duration_s": 10})
    calls = [[snapshot(7)]]
    follower = Sent(config, lambda: "x:1", rng=Random(1), sleep=sleep, clock=lambda: now_s, calls=calls)
    assert follower.age_s() is None
    task = asyncio.create_task(follower.run())
    async with asyncio.timeout(TIMEOUT_S):
        await pauses.get()
    ages = []
    for _ in range(4):
        ages.append(follower.age_s())
        now_s += 9.0
    assert ages == [0.0, 9.0, 18.0, None]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_former_leader_serves_what_it_published_while_it_is_cut_off(tmp_path: Path) -> None:
    now_s = 100.0
    config = load_settings(flags={"data_dir": tmp_path, "lease_duration_s": 10})
    follower = Follower(config, lambda: "", rng=Random(1), clock=lambda: now_s)
    follower.keep(Topology(7))
    follower.raise_floor(7)
    assert follower.renew().current.topology.generation == 7
    now_s += 15
    assert follower.age_s() == 15.0
    now_s += 15
    assert follower.age_s() is None


async def test_the_time_without_an_election_does_not_count(tmp_path: Path) -> None:
    now_s, ages = 100.0, list[float | None]()

    async def sleep(_delay_s: float) -> None:
        nonlocal now_s
        now_s += 15.0
        ages.append(follower.age_s())
        if len(ages) == 5:
            raise EOFError

    follower = Follower(
        load_settings(flags={"data_dir": tmp_path, "lease_duration_s": 10}),
        lambda: "",
        rng=Random(1),
        sleep=sleep,
        clock=lambda: now_s,
        is_cut_off=lambda: len(ages) < 3,
    )
    follower.keep(Topology(7))
    follower.renew()
    with pytest.raises(EOFError):
        await follower.run()
    assert ages == [15.0, 30.0, 45.0, None, None]


async def test_an_event_that_is_not_built_yet_is_taken_too(tmp_path: Path) -> None:
    """A takeover cancels the follower at any moment. The history of this replica has the event already."""
    follower = Follower(load_settings(flags={"data_dir": tmp_path}), lambda: "x:1", rng=Random(1))
    follower._events = [snapshot(7), delta(8)]
    taken = follower.take()
    assert taken is not None
    assert taken.generation == 8
