"""When a stream counts as silent."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from hyperscout.v1.discovery_pb2 import Hello
from hyperscout_collector.ingest import service
from hyperscout_collector.ingest.streams import AgentStream


class Loop:
    """The clock and the timers of an event loop. `made`: number of timers."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.made = 0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, call: Callable[[], None]) -> "Loop":
        self.made += 1
        self._due.append((at_s, call))
        return self

    def call_later(self, delay_s: float, call: Callable[[], None]) -> "Loop":
        return self.call_at(self.now_s + delay_s, call)

    def cancel(self) -> None:
        self._due.clear()

    def until(self, end_s: float) -> None:
        while due := [one for one in self._due if one[0] <= end_s]:
            first = min(due, key=lambda one: one[0])
            self._due.remove(first)
            self.now_s = first[0]
            first[1]()
        self.now_s = end_s


class Task:
    """In place of the task of a stream."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    found = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found)
    return found


def silence() -> tuple[service._SilenceLimit, AgentStream]:
    task: Any = Task()
    stream = AgentStream(Hello(node="n1"), task, 0, 0)
    return service._SilenceLimit(35.0, stream), stream


def test_a_stream_ends_when_no_message_has_come_for_its_time(loop: Loop) -> None:
    watch, stream = silence()
    for at_s in range(0, 1000, 10):
        watch.waiting()
        loop.until(at_s)
        watch.received()
    assert stream.ended is None
    assert loop.made < 1000 / 25, "no timer for each message"
    watch.waiting()
    loop.until(990 + 34.9)
    assert stream.ended is None
    loop.until(990 + 35.1)
    assert stream.ended is not None
    assert (stream.ended.code, stream.ended.reason) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "no message for 35 s",
    )


def test_the_time_that_the_collector_takes_for_a_message_is_no_silence(loop: Loop) -> None:
    watch, stream = silence()
    watch.waiting()
    loop.until(30)
    watch.received()
    loop.until(200)
    assert stream.ended is None
    watch.waiting()
    loop.until(234.9)
    assert stream.ended is None
    loop.until(240)
    assert stream.ended is not None


def test_a_stream_that_has_ended_is_not_watched(loop: Loop) -> None:
    watch, stream = silence()
    watch.waiting()
    watch.close()
    loop.until(100)
    assert stream.ended is None
