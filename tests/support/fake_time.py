"""Time that passes only when a test says so."""

import asyncio

from hyperscout_runtime.clock import Clock

from support.findings import T0, S


class FakeTime:
    """A clock and a `wait` that goes with it. Starts at 1,000 s."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def clock(self) -> float:
        return self.now_s

    def wall_ns(self) -> int:
        return int(self.now_s * 1e9)

    async def wait(self, event: asyncio.Event, timeout_s: float | None) -> None:
        if event.is_set() or (timeout_s is not None and timeout_s <= 0):
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        sleeper = (self.now_s + timeout_s, woken) if timeout_s is not None else None
        if sleeper:
            self._sleepers.append(sleeper)
        tasks = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(woken.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    async def pass_s(self, seconds: float) -> None:
        """Let time pass, wake-up by wake-up, and let all tasks act on each."""
        end_s = self.now_s + seconds
        await settle()
        while due := [sleeper for sleeper in self._sleepers if sleeper[0] <= end_s]:
            self.now_s = max(self.now_s, min(at_s for at_s, _ in due))
            for sleeper in due:
                if sleeper[0] <= self.now_s:
                    self._sleepers.remove(sleeper)
                    sleeper[1].set()
            await settle()
        self.now_s = end_s


async def settle() -> None:
    """Let every task run until it waits again."""
    for _ in range(50):
        await asyncio.sleep(0)


class Steps:
    """A machine whose clock can be set, and processes that start on it."""

    def __init__(self) -> None:
        self.wall_ns = T0
        self.steady_ns = 0

    def passes(self, seconds: int) -> None:
        self.wall_ns += seconds * S
        self.steady_ns += seconds * S

    def process(self) -> Clock:
        return Clock(lambda: self.wall_ns, lambda: self.steady_ns)
