"""List, watch, go on, list again: what is known survives whatever the server does."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any, cast

import pytest
from hyperscout_kubernetes.client import Kube, RateLimit
from hyperscout_kubernetes.errors import ForbiddenError, GoneError, KubeError, NotFoundError, UnreachableError
from hyperscout_kubernetes.reflector import Reflector
from support.waiting import TIMEOUT_S

Object = dict[str, Any]
Step = list[Object] | KubeError  # events of one watch, or what it or a list ends with


def thing(name: str, version: int, value: str = "") -> Object:
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": str(version)}, "value": value}


def event(kind: str, name: str, version: int, value: str = "") -> Object:
    return {"type": kind, "object": thing(name, version, value)}


def bookmark(version: int) -> Object:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


class Script:
    """A server that answers in turn; when nothing is left, the last watch stays open."""

    def __init__(self, lists: list[tuple[list[Object], int] | KubeError], watches: list[Step]) -> None:
        self.lists = lists
        self.watches = watches
        self.asked: list[str] = []
        self.idle = asyncio.Event()

    async def list(self, path: str, query: object = None) -> tuple[list[Object], str]:
        self.asked.append("list")
        answer = self.lists.pop(0)
        if isinstance(answer, KubeError):
            raise answer
        return answer[0], str(answer[1])

    async def watch(self, path: str, version: str, query: object = None) -> AsyncIterator[Object]:
        self.asked.append(f"watch {version}")
        if not self.watches:
            self.idle.set()
            await asyncio.Event().wait()
        step = self.watches.pop(0)
        if isinstance(step, KubeError):
            raise step
        for found in step:
            if found["type"] == "BROKEN":
                raise UnreachableError("broken")
            if found["type"] == "GONE":
                raise GoneError("too old")
            yield found


async def run(script: Script) -> tuple[Reflector, list[tuple[str, str | None, str | None]], list[float]]:
    """Until the script is through: the reflector, what changed, and how long it waited in between."""
    told: list[tuple[str, str | None, str | None]] = []
    waits: list[float] = []

    async def sleep(delay_s: float) -> None:
        waits.append(delay_s)

    reflector = Reflector(
        cast("Kube", script),
        "/things",
        changed=lambda name, before, after: told.append(
            (name, before and before["value"], after and after["value"])
        ),
        rng=Random(0),
        sleep=sleep,
    )
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(TIMEOUT_S):
        await script.idle.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return reflector, told, waits


def known(reflector: Reflector) -> dict[str, str]:
    return {found["metadata"]["name"]: found["value"] for found in reflector}


async def test_a_watch_goes_on_where_the_last_one_ended() -> None:
    script = Script(
        [([thing("a", 1, "x")], 5)],
        [
            [event("ADDED", "b", 6, "y"), event("MODIFIED", "a", 7, "z")],
            [event("DELETED", "b", 9), bookmark(20)],
        ],
    )
    reflector, told, waits = await run(script)
    assert script.asked == ["list", "watch 5", "watch 7", "watch 20"]
    assert told == [("a", None, "x"), ("b", None, "y"), ("a", "x", "z"), ("b", "y", None)]
    assert known(reflector) == {"a": "z"}
    assert waits == []
    assert reflector.synced.is_set()


async def test_too_old_a_version_means_a_new_list_that_tells_of_differences_alone() -> None:
    script = Script(
        [
            ([thing("a", 1, "x"), thing("b", 2, "y"), thing("c", 3, "z")], 5),
            ([thing("a", 1, "x"), thing("c", 30, "changed"), thing("d", 31, "new")], 40),
        ],
        [[{"type": "GONE"}]],
    )
    reflector, told, _ = await run(script)
    assert script.asked == ["list", "watch 5", "list", "watch 40"]
    assert told[3:] == [("b", "y", None), ("c", "z", "changed"), ("d", None, "new")]
    assert known(reflector) == {"a": "x", "c": "changed", "d": "new"}


async def test_a_resource_that_the_server_does_not_have_is_said_until_it_is_there() -> None:
    missing = NotFoundError("status 404")
    script = Script([missing, missing, ([], 5)], [[]])
    states: list[bool] = []

    async def sleep(_: float) -> None:
        states.append(reflector.is_unknown)

    reflector = Reflector(
        cast("Kube", script), "/things", changed=lambda *_: None, rng=Random(0), sleep=sleep
    )
    task = asyncio.create_task(reflector.run())
    async with asyncio.timeout(TIMEOUT_S):
        await script.idle.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (states[:2], reflector.is_unknown) == ([True, True], False)


async def test_an_outage_loses_nothing_and_is_said() -> None:
    outage = [UnreachableError("no route") for _ in range(12)]
    script = Script([([thing("a", 1, "x")], 5)], [[event("ADDED", "b", 6), {"type": "BROKEN"}], *outage])
    reflector, _, waits = await run(script)
    assert script.asked == ["list", "watch 5", *["watch 6"] * 13]  # no new list: it goes on from there
    assert known(reflector) == {"a": "x", "b": ""}
    assert reflector.problem == "no route"
    assert waits[0] <= 0.25
    assert max(waits) <= 5.0
    assert sorted(waits[:5]) == waits[:5]


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_without_a_breath() -> None:
    """As a proxy in between may; and one whose every version is too old."""
    gone: list[Step] = [GoneError("too old") for _ in range(5)]
    nothing: list[Step] = [[] for _ in range(5)]
    script = Script([([thing("a", 1)], n) for n in range(1, 10)], [*nothing, *gone])
    _, _, waits = await run(script)
    assert len(waits) >= 8
    assert waits[-1] > waits[0]


async def test_a_server_that_asks_for_patience_gets_it() -> None:
    script = Script([UnreachableError("busy", retry_after_s=7.0), ([], 1)], [])
    _, _, waits = await run(script)
    assert waits == [7.0]


async def test_what_is_not_allowed_is_listed_anew_when_it_is() -> None:
    script = Script([ForbiddenError("no"), ([thing("a", 1)], 2)], [ForbiddenError("no more")])
    script.lists.append(([thing("a", 1)], 9))
    reflector, _, _ = await run(script)
    assert script.asked == ["list", "list", "watch 2", "list", "watch 9"]
    assert reflector.problem is None


@pytest.mark.parametrize(("per_s", "burst", "takes", "slept_s"), [(10, 5, 5, 0.0), (10, 5, 15, 1.0)])
async def test_writes_are_paced(per_s: float, burst: int, takes: int, slept_s: float) -> None:
    now_s = 0.0

    async def sleep(delay_s: float) -> None:
        nonlocal now_s
        now_s += delay_s

    limit = RateLimit(per_s, burst, clock=lambda: now_s, sleep=sleep)
    for _ in range(takes):
        await limit.take()
    assert now_s == pytest.approx(slept_s)
    now_s += 100  # tokens that are not taken do not pile up
    for _ in range(burst):
        await limit.take()
    assert now_s == pytest.approx(slept_s + 100)
    await limit.take()
    assert now_s == pytest.approx(slept_s + 100 + 1 / per_s)
