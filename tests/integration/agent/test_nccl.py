"""The `nccl` probe with workers in processes of their own, which really meet through an id that is carried.

NCCL and CUDA are stand-ins in C (`support.nccl_stubs`); processes, sockets, time-outs and signals are real.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hyperscout.v1.discovery_pb2 import MeasureNccl, NcclId, StopMeasuring, StreamFindingsResponse
from hyperscout.v1.finding_pb2 import Finding, Outcome
from hyperscout_agent.nccl.host_lock import HostLock
from hyperscout_agent.nvml.gpu_use import GpusUnknownError, GpuUse, NoGpusError
from hyperscout_agent.probes.nccl import DEFAULT_SIZES, NcclCommands
from support.fake_collector import FakeCollector
from support.nccl_agents import NcclAgent, gone, none_left, working
from support.nccl_stubs import alive, build_library
from support.real import require_real
from support.waiting import TIMEOUT_S

require_real("gcc")

SIZES = (8, 1024, 4 << 20)


class Agent(NcclAgent):
    """On a stream to a collector of its own, which does what the test says."""

    def __init__(self, node: str, commands: NcclCommands, timeout_s: float) -> None:
        super().__init__(node, commands, timeout_s=timeout_s)
        self.collector = FakeCollector()

    async def begin(self) -> None:
        await self.collector.start()
        self.start([self.collector.target])
        await self.collector.until(lambda: self.collector.hellos)

    async def end(self) -> None:
        await self.stop()
        await self.collector.stop()

    async def say(self, **directive: Any) -> None:
        await self.collector.send(StreamFindingsResponse(**directive))

    async def measure(self, rank: int, peer: str, task_id: int = 7, **more: Any) -> None:
        task = MeasureNccl(task_id=task_id, rank=rank, ranks=2 if peer else 0, peer=peer, **more)
        await self.say(measure_nccl=task)

    async def told(self, count: int = 1) -> list[NcclId]:
        """The first messages about runs that came up."""
        await self.collector.until(lambda: len(self.collector.nccl_ids) >= count)
        return self.collector.nccl_ids

    async def finding(self, subject: str) -> Finding:
        key = (self.store.node, "nccl", subject)
        await self.collector.until(lambda: key in self.collector.evidence)
        return self.collector.evidence[key]


@asynccontextmanager
async def agents(
    commands: NcclCommands, *nodes: str, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[list[Agent]]:
    """Agents of these nodes; in the end no worker is left."""
    found = [Agent(node, commands, timeout_s) for node in nodes]
    try:
        for agent in found:
            await agent.begin()
        yield found
    finally:
        for agent in found:
            await agent.end()
        await none_left()


# --- between two nodes ----------------------------------------------------------------------------


async def test_two_workers_meet_through_an_id_that_is_carried(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a", "node-b") as (a, b):
        await a.measure(0, "node-b", sizes_bytes=SIZES)
        await b.measure(1, "node-a", sizes_bytes=SIZES)
        (nccl_id,) = await a.told()
        assert (nccl_id.task_id, len(nccl_id.unique_id), nccl_id.failure) == (7, 128, "")
        await b.say(nccl_id=nccl_id)
        finding = await a.finding("node-b")
        assert finding.outcome == Outcome.OUTCOME_DATA
        run = finding.nccl
        assert (run.peer, run.method, run.nccl_version, run.ranks) == ("node-b", "libnccl", "2.29.3", 2)
        assert [(x.operation, x.size_bytes) for x in run.results] == [
            (operation, size) for operation in ("all_reduce", "sendrecv") for size in SIZES
        ]
        for x in run.results:
            assert x.time_us > 0
            assert x.algorithm_gbytes_per_s == pytest.approx(x.size_bytes / x.time_us / 1e3)
            assert x.bus_gbytes_per_s == pytest.approx(x.algorithm_gbytes_per_s)  # of two ranks they are one
        assert run.duration_s > 0
        assert run.measured_at.ToNanoseconds() > 0
        await none_left()
        assert b.store.subjects("nccl") == set()  # rank 0 alone reports
        assert [(x.task_id, x.unique_id, x.failure) for x in (await a.told(2))[1:]] == [(7, b"", "")]
        assert [(x.task_id, x.unique_id, x.failure) for x in await b.told()] == [(7, b"", "")]


async def test_the_next_run_finds_everything_free(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a", "node-b") as (a, b):
        for task_id, (first, second) in enumerate(((a, b), (b, a), (a, b)), 1):
            await first.measure(0, second.store.node, task_id, sizes_bytes=(8,))
            await second.measure(1, first.store.node, task_id, sizes_bytes=(8,))
            first.collector.evidence.clear()
            await first.collector.until(
                lambda: any(x.task_id == task_id for x in first.collector.nccl_ids)  # noqa: B023
            )
            await second.say(nccl_id=next(x for x in first.collector.nccl_ids if x.task_id == task_id))
            finding = await first.finding(second.store.node)
            assert finding.outcome == Outcome.OUTCOME_DATA, finding.reason
            for agent in (first, second):
                await agent.collector.until(
                    lambda: any(
                        x.task_id == task_id and not x.unique_id  # noqa: B023
                        for x in agent.collector.nccl_ids  # noqa: B023
                    )
                )


@pytest.mark.parametrize(
    ("trouble", "rank", "words"),
    [
        ("init:hang", "0", "the run did not end in 3 s"),
        ("init:2", "0", "ncclCommInitRank: error 2 (unhandled system error)"),
        ("id:3", None, "ncclGetUniqueId: error 3"),
        ("reduce:6", "0", "ncclAllReduce: error 6 (remote process exited)"),
        ("reduce:crash", "0", "the worker ended early"),
        ("reduce:6", "1", "ncclAllReduce: error 6"),  # the other one left
        ("send:crash", "1", "ncclRecv: error 6"),
    ],
)
async def test_a_failed_run_says_why(
    stubs: NcclCommands, monkeypatch: pytest.MonkeyPatch, trouble: str, rank: str | None, words: str
) -> None:
    monkeypatch.setenv("STUB_NCCL", trouble)
    if rank is not None:
        monkeypatch.setenv("STUB_NCCL_RANK", rank)
    limit_s = 3.0 if "hang" in trouble else TIMEOUT_S
    async with agents(stubs, "node-a", "node-b", timeout_s=limit_s) as (a, b):
        await a.measure(0, "node-b", sizes_bytes=SIZES)
        await b.measure(1, "node-a", sizes_bytes=SIZES)
        (first, *_) = await a.told()
        if first.unique_id:
            await b.say(nccl_id=first)
        finding = await a.finding("node-b")
        assert finding.outcome == Outcome.OUTCOME_FAILED
        assert words in finding.reason
        assert not finding.HasField("nccl")
        last = (await a.told(2 if first.unique_id else 1))[-1]
        assert (last.task_id, last.unique_id) == (7, b"")
        assert last.failure == finding.reason
        if rank == "1":
            (of_b,) = await b.told()
            assert of_b.failure
        await b.say(nccl_id=last)  # as a collector would: it releases an agent that still waits for the other
        await none_left()


async def test_a_farewell_that_hangs_costs_no_result(
    stubs: NcclCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_NCCL", "leave:hang")
    monkeypatch.setattr("hyperscout_agent.nccl.pair._FAREWELL_S", 0.1)
    async with agents(stubs, "node-a", "node-b") as (a, b):
        await a.measure(0, "node-b", sizes_bytes=(8,))
        await b.measure(1, "node-a", sizes_bytes=(8,))
        await b.say(nccl_id=(await a.told())[0])
        assert (await a.finding("node-b")).outcome == Outcome.OUTCOME_DATA


async def test_what_nccl_prints_disturbs_no_run(stubs: NcclCommands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_NCCL", "init:print")
    async with agents(stubs, "node-a", "node-b") as (a, b):
        await a.measure(0, "node-b", sizes_bytes=(8,))
        await b.measure(1, "node-a", sizes_bytes=(8,))
        await b.say(nccl_id=(await a.told())[0])
        assert (await a.finding("node-b")).outcome == Outcome.OUTCOME_DATA


async def test_rank_1_never_comes(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a", timeout_s=3.0) as (a,):
        await a.measure(0, "node-b", sizes_bytes=(8,), timeout_s=60.0)
        finding = await a.finding("node-b")
        assert (finding.outcome, finding.reason) == (Outcome.OUTCOME_FAILED, "the run did not end in 3 s")


async def test_the_id_never_comes(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-b") as (b,):
        await b.measure(1, "node-a", timeout_s=1.0)
        assert [x.failure for x in await b.told()] == ["the run did not end in 1 s"]
        assert b.store.subjects("nccl") == set()


@pytest.mark.parametrize("unique_id", [b"", b"short", bytes(127)])
async def test_an_id_that_is_none_ends_the_run(stubs: NcclCommands, unique_id: bytes) -> None:
    async with agents(stubs, "node-b") as (b,):
        await b.measure(1, "node-a")
        await working(1)
        await b.say(nccl_id=NcclId(task_id=8, failure="another task"))  # not ours: passed over
        await b.say(nccl_id=NcclId(task_id=7, unique_id=unique_id))
        assert [x.failure for x in await b.told()] == ["stopped: the collector sent no id"]


async def test_an_id_of_junk(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-b") as (b,):
        await b.measure(1, "node-a")
        await b.say(nccl_id=NcclId(task_id=7, unique_id=bytes(128)))
        (failed,) = await b.told()
        assert "ncclCommInitRank: error 4" in failed.failure


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"library": "libnccl-none.so"}, "libnccl-none.so cannot be loaded"),
        ({"cuda_library": "libcudart-none.so"}, "libcudart-none.so cannot be loaded"),
        ({"library": "empty"}, "has no ncclGetErrorString"),
    ],
)
async def test_without_a_library_there_is_nothing(
    stubs: NcclCommands, change: dict[str, str], words: str
) -> None:
    empty = str(Path(stubs.library).with_name("libempty.so"))
    commands = replace(stubs, **{k: empty if v == "empty" else v for k, v in change.items()})  # type: ignore[arg-type]
    async with agents(commands, "node-a") as (a,):
        await a.measure(0, "node-b")
        finding = await a.finding("node-b")
        assert finding.outcome == Outcome.OUTCOME_NOTHING
        assert words in finding.reason
        assert (await a.told())[0].failure == finding.reason


async def test_without_a_gpu_for_cuda_there_is_nothing(
    stubs: NcclCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_GPUS", "0")
    async with agents(stubs, "node-a") as (a,):
        await a.measure(0, "node-b")
        finding = await a.finding("node-b")
        assert (finding.outcome, finding.reason) == (Outcome.OUTCOME_NOTHING, "CUDA finds no GPU")


# --- ends ------------------------------------------------------------------------------------------


async def waiting_for_rank_1(a: Agent) -> int:
    """Rank 0 of a run whose other rank does not come: the process of its worker."""
    await a.measure(0, "node-b")
    (nccl_id,) = await a.told()
    assert nccl_id.unique_id
    (pid,) = await working(1)
    return pid


async def test_told_to_stop(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a") as (a,):
        pid = await waiting_for_rank_1(a)
        await a.say(stop_measuring=StopMeasuring(reason="maintenance"))
        finding = await a.finding("node-b")
        assert not alive(pid)  # before it is said
        assert (finding.outcome, finding.reason) == (Outcome.OUTCOME_FAILED, "stopped: maintenance")
        assert (await a.told(2))[1].failure == "stopped: maintenance"


async def test_the_run_is_over_elsewhere(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a") as (a,):
        pid = await waiting_for_rank_1(a)
        await a.say(nccl_id=NcclId(task_id=7, failure="node-b: the GPUs are not idle"))
        finding = await a.finding("node-b")
        assert not alive(pid)
        assert finding.reason == "stopped: node-b: the GPUs are not idle"


async def test_the_stream_ends(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a") as (a,):
        pid = await waiting_for_rank_1(a)
        await a.collector.stop()
        await gone([pid])
        await a.collector.start()
        finding = await a.finding("node-b")  # with the full state of the next stream
        assert finding.reason == "stopped: the stream to the collector ended"


async def test_the_agent_ends(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a") as (a,):
        pid = await waiting_for_rank_1(a)
        await a.stop()
        await gone([pid])


async def test_a_worker_ends_with_its_agent_that_is_killed(stubs: NcclCommands) -> None:
    script = f"""
import asyncio
from hyperscout_agent.nccl.pair import run_worker
from hyperscout_agent.nccl.worker import WorkerOrder
order = WorkerOrder(0, (8,), {stubs.library!r}, {stubs.cuda_library!r})
asyncio.run(run_worker(order, send_id=lambda x: print("id", flush=True), take_id=None, timeout_s=600))
"""
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert agent.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        assert await agent.stdout.readline() == b"id\n"
    pids = [pid for pid in await working(2) if pid != agent.pid]  # both name the worker in their command line
    agent.kill()
    await agent.wait()
    await gone(pids)


async def test_what_was_measured_stays_when_a_later_run_fails(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a", "node-b") as (a, b):
        await a.measure(0, "node-b", sizes_bytes=(8,))
        await b.measure(1, "node-a", sizes_bytes=(8,))
        await b.say(nccl_id=(await a.told())[0])
        await a.finding("node-b")
        await a.told(2)
        await a.measure(0, "node-b", task_id=8)
        await a.told(3)
        await a.say(stop_measuring=StopMeasuring(reason="x"))
        await a.told(4)
        await a.collector.until(lambda: a.collector.evidence["node-a", "nccl", "node-b"].reason)
        kept = a.store.get("nccl", "node-b")
        assert kept is not None
        assert kept.outcome == Outcome.OUTCOME_DATA


# --- guards ----------------------------------------------------------------------------------------


async def test_a_second_run_on_one_host_is_refused(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a") as (a,):
        await waiting_for_rank_1(a)
        await a.measure(0, "node-c", task_id=9)
        second = (await a.told(2))[1]
        assert second.task_id == 9
        assert second.failure == "another run is in progress (as rank 0 with node-b)"
        await a.measure(0, "node-b", task_id=7)  # the same again is no second one
        await a.say(stop_measuring=StopMeasuring(reason="x"))
        third = (await a.told(3))[2]
        assert (third.task_id, third.failure) == (7, "stopped: x")


async def test_another_agent_of_the_host(stubs: NcclCommands) -> None:
    async with agents(stubs, "node-a") as (a,):
        with HostLock(a.lock):
            await a.measure(0, "node-b")
            finding = await a.finding("node-b")
        assert finding.reason == "another agent of this host has a run in progress"
        a.collector.evidence.clear()
        await a.measure(0, "node-b", timeout_s=0.5)
        assert (await a.finding("node-b")).reason == "the run did not end in 0.5 s"


NVML = r"""
#include <stdlib.h>
static int of(const char *name) { const char *e = getenv(name); return e ? atoi(e) : 0; }
int nvmlInitWithFlags(unsigned f) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int e) { return "GPU is lost"; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 8; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {
  *d = (void *)(size_t)(i + 1);
  return of("STUB_LOST");
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *list) {
  unsigned there = d == (void *)4 ? of("STUB_PROCESSES") : 0, room = *n;
  *n = there;
  return there > room ? 7 : 0; /* NVML_ERROR_INSUFFICIENT_SIZE */
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned *rates) {
  rates[0] = d == (void *)2 ? of("STUB_BUSY") : 0, rates[1] = 50;
  return 0;
}
"""


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "GpuUse(count=8, processes=(), busy=())"),
        ({"STUB_PROCESSES": "2"}, "GpuUse(count=8, processes=('GPU 3 runs 2 processes',), busy=())"),
        ({"STUB_BUSY": "7"}, "GpuUse(count=8, processes=(), busy=('GPU 1 is 7 % busy',))"),
        (
            {"STUB_LOST": "15"},
            (
                "it is unknown whether the GPUs are idle: "
                "the GPU is lost: see the kernel's log for an Xid, then reset it or restart the host"
            ),
        ),
    ],
)
def test_the_real_binding_says_whether_gpus_are_idle(
    tmp_path: Path, environment: dict[str, str], said: str
) -> None:
    build_library(tmp_path / "libnvidia-ml.so.1", NVML)
    script = (
        "from hyperscout_agent.nvml.gpu_use import *\n"
        "try:\n    print(gpu_use())\nexcept GpusUnknownError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert done.stdout.strip() == said


def _raise(error: Exception) -> GpuUse:
    raise error


@pytest.mark.parametrize(
    ("gpus", "outcome", "words"),
    [
        (lambda: GpuUse(8, processes=("GPU 3 runs 1 process",)), Outcome.OUTCOME_FAILED, "GPU 3 runs 1"),
        (lambda: _raise(GpusUnknownError("NVML is ill")), Outcome.OUTCOME_FAILED, "NVML is ill"),
        (lambda: _raise(NoGpusError("no GPU")), Outcome.OUTCOME_NOTHING, "no GPU"),
    ],
)
@pytest.mark.parametrize("rank", [0, 1])
async def test_gpus_that_are_not_idle_are_left_alone(
    stubs: NcclCommands, gpus: Callable[[], GpuUse], outcome: int, words: str, rank: int
) -> None:
    async with agents(stubs, "node-a") as (a,):
        a.gpus = gpus
        await a.measure(rank, "node-b")
        (failed,) = await a.told()
        assert words in failed.failure
        if rank == 0:
            finding = await a.finding("node-b")
            assert (finding.outcome, finding.reason) == (outcome, failed.failure)


@pytest.mark.parametrize(
    "task",
    [
        MeasureNccl(task_id=7, rank=0, ranks=3, peer="node-b"),
        MeasureNccl(task_id=7, rank=2, ranks=2, peer="node-b"),
        MeasureNccl(task_id=7, rank=0, ranks=2),
        MeasureNccl(task_id=7, rank=0, ranks=0, peer="node-b"),
        MeasureNccl(task_id=7, rank=1, ranks=0),
        MeasureNccl(task_id=7, sizes_bytes=[2]),
        MeasureNccl(task_id=7, sizes_bytes=[10]),
        MeasureNccl(task_id=7, sizes_bytes=[1 << 40]),
        MeasureNccl(task_id=7, sizes_bytes=[8] * 65),
    ],
)
async def test_what_no_collector_of_ours_asks_for_is_refused(stubs: NcclCommands, task: MeasureNccl) -> None:
    async with agents(stubs, "node-a") as (a,):
        await a.say(measure_nccl=task)
        (failed,) = await a.told()
        assert failed.failure
        assert a.store.subjects("nccl") == set()


# --- within one node -------------------------------------------------------------------------------


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def test_within_one_node(stubs: NcclCommands, scratch: Path) -> None:
    async with agents(stubs, "node-a") as (a,):
        await a.measure(0, "")
        finding = await a.finding("node")
        assert finding.outcome == Outcome.OUTCOME_DATA, finding.reason
        run = finding.nccl
        assert (run.peer, run.method, run.nccl_version, run.ranks) == ("", "nccl-tests", "2.29.3", 8)
        assert [(x.operation, x.size_bytes) for x in run.results] == [
            (operation, size) for operation in ("all_reduce", "sendrecv") for size in DEFAULT_SIZES
        ]
        assert json.dumps(DEFAULT_SIZES[:9]) == "[8, 16, 32, 64, 128, 256, 512, 1024, 67108864]"
        assert [x.failure for x in await a.told()] == [""]
    assert list(scratch.iterdir()) == []


async def test_one_program_alone_is_data_and_says_which_is_missing(
    stubs: NcclCommands, scratch: Path
) -> None:
    async with agents(replace(stubs, sendrecv=("no-sendrecv",)), "node-a") as (a,):
        await a.measure(0, "", sizes_bytes=(8,))
        finding = await a.finding("node")
        assert (finding.outcome, finding.reason) == (Outcome.OUTCOME_DATA, "no-sendrecv is not installed")
        assert [x.operation for x in finding.nccl.results] == ["all_reduce"]


async def test_without_programs_or_with_one_gpu_there_is_nothing(stubs: NcclCommands, scratch: Path) -> None:
    none = replace(stubs, sendrecv=("no-sendrecv",), all_reduce=("no-reduce",))
    async with agents(none, "node-a") as (a,):
        await a.measure(0, "")
        finding = await a.finding("node")
        assert finding.outcome == Outcome.OUTCOME_NOTHING
        assert (
            "no-reduce is not installed, no-sendrecv is not installed: install nccl-tests" in finding.reason
        )
        a.gpus = lambda: GpuUse(1)
        a.collector.evidence.clear()
        await a.measure(0, "", task_id=8)
        assert "one GPU" in (await a.finding("node")).reason


@pytest.mark.parametrize(
    ("mode", "words"), [("junk", "not JSON"), ("fails", "exit 3"), ("hang", "still running after")]
)
async def test_programs_that_misbehave(
    stubs: NcclCommands, scratch: Path, monkeypatch: pytest.MonkeyPatch, mode: str, words: str
) -> None:
    pids = scratch.parent / "pids"
    monkeypatch.setenv("STUB_PERF", f"{mode}:{pids}")
    async with agents(stubs, "node-a", timeout_s=4.0 if mode == "hang" else TIMEOUT_S) as (a,):
        await a.measure(0, "")
        finding = await a.finding("node")
        assert finding.outcome == Outcome.OUTCOME_FAILED
        assert words in finding.reason
    for pid in pids.read_text().split() if pids.exists() else ():
        assert not alive(int(pid))
    assert list(scratch.iterdir()) == []
