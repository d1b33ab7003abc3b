"""The scheduler in fake time, with probes that behave in every bad way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Literal

import pytest
from hyperscout.v1.finding_pb2 import LldpPort, Outcome
from hyperscout_agent.findings.probe import Observation, ProbeError, data, failed, nothing
from hyperscout_agent.findings.scheduler import Scheduler
from hyperscout_agent.findings.store import FindingStore
from support.fake_time import FakeTime, settle

DATA, NOTHING, FAILED = Outcome.OUTCOME_DATA, Outcome.OUTCOME_NOTHING, Outcome.OUTCOME_FAILED


class FakeProbe:
    """Looks as its script says; the last line of the script repeats."""

    scope: Literal["node"] = "node"

    def __init__(
        self, *script: str, name: str = "lldp", interval_s: float | None = 10.0, max_findings: int = 5
    ) -> None:
        self.name = name
        self.interval_s = interval_s
        self.timeout_s = 3.0
        self.max_findings = max_findings
        self.script = list(script) or ["eth0"]
        self.started = 0
        self.let_go = asyncio.Event()
        self.triggered = asyncio.Event()

    async def observe(self) -> Observation:
        self.started += 1
        line = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        match line.split():
            case ["crash"]:
                raise KeyError("no such thing")
            case ["cannot"]:
                raise ProbeError("the tool is not installed")
            case ["hang"]:
                await asyncio.Event().wait()
            case ["hang", "on"]:
                while not self.let_go.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await self.let_go.wait()
            case ["cancel"]:
                raise asyncio.CancelledError
            case ["huge"]:
                return Observation({"eth0": data(LldpPort(interface="x" * 300_000))})
            case ["part", *subjects]:
                return Observation({s: data(LldpPort(interface=s)) for s in subjects}, complete=False)
            case ["mixed"]:
                return Observation({"eth0": nothing("no neighbour"), "eth1": failed("cannot be read")})
            case subjects:
                return Observation({s: data(LldpPort(interface=s)) for s in subjects})
        return Observation()


class Middle(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@contextlib.asynccontextmanager
async def scheduled(
    *probes: FakeProbe, rng: Random | None = None, store: FindingStore | None = None
) -> AsyncIterator[tuple[Scheduler, FindingStore, FakeTime]]:
    time = FakeTime()
    store = store if store is not None else FindingStore("n1", time.clock)
    triggers = {probe.name: probe.triggered for probe in probes}
    scheduler = Scheduler(
        probes,
        store,
        rng=rng or Middle(),
        triggers=triggers,
        clock=time.clock,
        wall_ns=time.wall_ns,
        wait=time.wait,
    )
    task = asyncio.create_task(scheduler.run())
    await settle()
    try:
        yield scheduler, store, time
        assert not task.done(), "nothing a probe does ends the scheduler"
    finally:
        for probe in probes:
            probe.let_go.set()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def outcomes(store: FindingStore, probe: str = "lldp") -> dict[str, int]:
    return {subject: store.get(probe, subject).outcome for subject in store.subjects(probe)}  # type: ignore[union-attr]


async def test_first_look_at_once_then_every_interval() -> None:
    probe = FakeProbe("eth0 eth1")
    async with scheduled(probe) as (scheduler, store, time):
        assert probe.started == 1
        assert outcomes(store) == {"eth0": DATA, "eth1": DATA}
        found = store.get("lldp", "eth0")
        assert found is not None
        assert (found.key.node, found.lldp.interface, found.observed_at.seconds) == ("n1", "eth0", 1000)
        await time.pass_s(9.9)
        assert probe.started == 1
        await time.pass_s(0.2)
        assert probe.started == 2
        await time.pass_s(50)
        assert probe.started == 7
        stats = scheduler.stats["lldp"]
        assert (stats.success, stats.runs, stats.failures, stats.last_success_s) == (True, 7, 0, 1060.0)


async def test_intervals_are_spread() -> None:
    probes = [FakeProbe(name=f"p{number}") for number in range(50)]
    async with scheduled(*probes, rng=Random(1)) as (_, _, time):
        await time.pass_s(8.9)
        assert {probe.started for probe in probes} == {1}
        await time.pass_s(1.1)
        again = sum(probe.started == 2 for probe in probes)
        assert 10 < again < 40
        await time.pass_s(1.1)
        assert {probe.started for probe in probes} == {2}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        pytest.param("crash", "crashed: KeyError: 'no such thing'", id="crashes"),
        pytest.param("cannot", "the tool is not installed", id="cannot look"),
        pytest.param("hang", "did not end in 3 s", id="hangs"),
        pytest.param("hang on", "did not end in 3 s and ignores its cancellation", id="ignores cancellation"),
        pytest.param("cancel", "cancelled itself", id="cancels itself"),
        pytest.param("huge", "lldp eth0: larger than 262144 bytes", id="a huge finding"),
    ],
)
async def test_a_bad_look_harms_no_other_probe_and_erases_nothing(script: str, reason: str) -> None:
    bad = FakeProbe("eth0", script, "eth0 eth1")
    sibling = FakeProbe("mlx5_0/1", name="infiniband", interval_s=1.0)
    async with scheduled(bad, sibling) as (scheduler, store, time):
        await time.pass_s(16.0)
        assert sibling.started >= 16
        assert outcomes(store) == {"eth0": DATA, "*": FAILED}, "what was seen stays"
        trouble = store.get("lldp", "*")
        assert trouble is not None
        assert trouble.reason == reason
        stats = scheduler.stats["lldp"]
        assert (stats.success, stats.failures, stats.last_success_s) == (False, 1, 1000.0)
        bad.let_go.set()
        await time.pass_s(10.0)
        assert outcomes(store) == {"eth0": DATA, "eth1": DATA}, "the trouble is over, and its finding is gone"
        assert scheduler.stats["lldp"].success is True


async def test_a_probe_that_ignores_cancellation_is_not_started_again_while_it_hangs() -> None:
    probe = FakeProbe("hang on", "eth0")
    async with scheduled(probe) as (scheduler, store, time):
        await time.pass_s(45.0)
        assert probe.started == 1
        assert scheduler.stats["lldp"].left_behind
        assert store.get("lldp", "*").reason.startswith("its last run still hangs")  # type: ignore[union-attr]
        probe.let_go.set()
        await time.pass_s(10.0)
        assert probe.started == 2
        assert outcomes(store) == {"eth0": DATA}
        assert not scheduler.stats["lldp"].left_behind


async def test_a_flood_is_cut_and_reported() -> None:
    probe = FakeProbe("eth0", " ".join(f"e{number}" for number in range(9)), max_findings=5)
    async with scheduled(probe) as (scheduler, store, time):
        await time.pass_s(10.5)
        assert outcomes(store) == {"eth0": DATA, **{f"e{number}": DATA for number in range(5)}, "*": FAILED}
        assert "9 findings: only the first 5 were kept" in store.get("lldp", "*").reason  # type: ignore[union-attr]
        assert scheduler.stats["lldp"].success is False


async def test_a_full_store_is_reported_by_the_probe_it_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    time = FakeTime()
    store = FindingStore("n1", time.clock, max_findings=3)
    async with scheduled(FakeProbe("eth0 eth1 eth2 eth3"), store=store) as (scheduler, store, _):
        assert outcomes(store) == {"eth0": DATA, "eth1": DATA, "eth2": DATA}
        assert scheduler.stats["lldp"].success is False
        assert "lldp eth3: not stored" in caplog.text


async def test_a_failure_is_a_warning_only_if_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with scheduled(FakeProbe("cannot")) as (_, _, time):
        await time.pass_s(45.0)
        assert [x.levelname for x in caplog.records] == ["INFO"]
        await time.pass_s(45.0)
        assert [x.levelname for x in caplog.records] == ["INFO", "WARNING"]


async def test_a_defect_is_a_warning_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async with scheduled(FakeProbe("crash")):
        assert [x.levelname for x in caplog.records] == ["WARNING"]


async def test_subjects_that_are_gone_are_removed_unless_the_look_was_a_part() -> None:
    probe = FakeProbe("eth0 eth1", "part eth2", "eth1")
    async with scheduled(probe) as (_, store, time):
        await time.pass_s(10.5)
        assert set(outcomes(store)) == {"eth0", "eth1", "eth2"}
        await time.pass_s(10.0)
        assert set(outcomes(store)) == {"eth1"}


async def test_three_outcomes() -> None:
    async with scheduled(FakeProbe("mixed")) as (scheduler, store, _):
        assert outcomes(store) == {"eth0": NOTHING, "eth1": FAILED}
        assert scheduler.stats["lldp"].success is False


async def test_looks_are_counted_by_what_came_of_them() -> None:
    probe = FakeProbe("eth0", "", "cannot", "mixed")
    async with scheduled(probe) as (scheduler, _, time):
        await time.pass_s(35)
        stats = scheduler.stats["lldp"]
        assert (probe.started, stats.runs, stats.empty, stats.failures) == (4, 4, 1, 2)


async def test_triggers_are_heard_at_once_but_bounded() -> None:
    probe = FakeProbe()
    async with scheduled(probe) as (_, _, time):
        await time.pass_s(5.0)
        probe.triggered.set()
        await settle()
        assert probe.started == 2
        for _ in range(1000):  # a cable that flaps a thousand times a second
            probe.triggered.set()
            await time.pass_s(0.001)
        assert 5 <= probe.started <= 8


async def test_asleep_until_it_has_an_interval() -> None:
    probe = FakeProbe(interval_s=None)
    async with scheduled(probe) as (_, _, time):
        await time.pass_s(100.0)
        probe.triggered.set()
        await time.pass_s(100.0)
        assert probe.started == 0
        probe.interval_s = 10.0
        probe.triggered.set()
        await time.pass_s(10.5)
        assert probe.started == 2
        probe.interval_s = None
        await time.pass_s(100.0)
        assert probe.started == 2


@pytest.mark.parametrize(
    ("interval_s", "looks"),
    [
        pytest.param(2.0, 6, id="faster"),
        pytest.param(0.000001, 51, id="bounded below"),
        pytest.param(float("nan"), 2, id="not a number"),
        pytest.param(-1.0, 2, id="negative"),
    ],
)
async def test_the_collectors_intervals(interval_s: float, looks: int) -> None:
    probe = FakeProbe()
    async with scheduled(probe) as (scheduler, _, time):
        scheduler.set_intervals({"lldp": interval_s, "of another version": 1.0})
        await time.pass_s(10.05)
        assert looks <= probe.started <= looks + 2


async def test_reasons_are_cut_to_a_kilobyte_at_a_character() -> None:
    from hyperscout_agent.findings.scheduler import _shortened

    assert _shortened("ü" * 511) == "ü" * 511
    cut = _shortened("ü" * 5000)
    assert len(cut.encode()) <= 1024
    assert cut.endswith("ü…")
    assert _shortened("\udc80") == "?"


async def test_cancelling_the_scheduler_cancels_the_look() -> None:
    cancelled: list[Callable[[], None]] = []

    class Slow(FakeProbe):
        async def observe(self) -> Observation:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(lambda: None)
                raise
            return Observation()

    async with scheduled(Slow()):
        pass
    await settle()
    assert len(cancelled) == 1
