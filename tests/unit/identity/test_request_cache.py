"""Kept answers: for how long, how many, one question at a time."""

import asyncio

import pytest
from hyperscout_collector.identity.callers import AskLaterError, BusyError
from hyperscout_collector.identity.request_cache import RequestCache


class Asked:
    """A question that can be held up; counts how often it was asked."""

    def __init__(self, answer: str = "yes", stands_s: float = 60.0) -> None:
        self.times = 0
        self.answer = answer
        self.stands_s = stands_s
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self) -> tuple[str, float]:
        self.times += 1
        await self.go.wait()
        if self.answer == "trouble":
            raise AskLaterError("not now")
        return self.answer, self.stands_s


async def test_an_answer_stands_for_its_time_and_no_longer() -> None:
    now = [0.0]
    answers: RequestCache[str] = RequestCache(10, 10, lambda: now[0])
    ask = Asked(stands_s=60.0)
    for now[0] in (0.0, 30.0, 59.9):
        assert await answers.get(b"k", ask) == "yes"
    assert ask.times == 1
    now[0] = 60.0
    await answers.get(b"k", ask)
    assert ask.times == 2


@pytest.mark.parametrize("stands_s", [0.0, -5.0])
async def test_an_answer_may_stand_for_this_once(stands_s: float) -> None:
    answers: RequestCache[str] = RequestCache(10, 10, lambda: 0.0)
    ask = Asked(stands_s=stands_s)
    assert [await answers.get(b"k", ask) for _ in range(2)] == ["yes", "yes"]
    assert (ask.times, len(answers)) == (2, 0)


async def test_concurrent_callers_share_one_request() -> None:
    answers: RequestCache[str] = RequestCache(10, 10, lambda: 0.0)
    ask = Asked()
    ask.go.clear()
    tasks = [asyncio.create_task(answers.get(b"k", ask)) for _ in range(5)]
    await asyncio.sleep(0)
    tasks[0].cancel()  # it takes the answer from no other caller
    await asyncio.sleep(0)
    ask.go.set()
    assert await asyncio.gather(*tasks[1:]) == ["yes"] * 4
    assert ask.times == 1


async def test_trouble_reaches_all_and_is_not_kept() -> None:
    answers: RequestCache[str] = RequestCache(10, 10, lambda: 0.0)
    ask = Asked("trouble")
    results = await asyncio.gather(*(answers.get(b"k", ask) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [AskLaterError] * 3
    ask.answer = "yes"
    assert await answers.get(b"k", ask) == "yes"
    assert ask.times == 2


async def test_kept_and_asked_are_bounded() -> None:
    answers: RequestCache[str] = RequestCache(2, 3, lambda: 0.0)
    ask = Asked()
    for key in (b"1", b"2", b"1", b"3"):
        await answers.get(key, ask)
    assert (ask.times, len(answers)) == (3, 2)
    await answers.get(b"1", ask)  # used more lately than 2, which went
    assert ask.times == 3
    ask.go.clear()
    tasks = [asyncio.create_task(answers.get(key, ask)) for key in (b"a", b"b", b"c")]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="3 credential checks"):
        await answers.get(b"d", ask)
    await answers.close()
    assert all(
        isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*tasks, return_exceptions=True)
    )
