"""What a standby knows of the leader, and for how long that is worth anything."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.follower import Follower, PeerError
from hyperscout_collector.settings import load_settings


class Heard(Follower):
    """Hears one generation, and then no more."""

    calls = 0

    async def _follow(self, address: str) -> None:
        self.calls += 1
        if self.calls > 1:
            raise PeerError("the certificate has expired")
        self._snapshot, self._left_s = pb.Topology(generation=7), None


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
    async with asyncio.timeout(5):
        await went.wait()
    taken = follower.take()
    assert (taken and taken.generation) == expected
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
