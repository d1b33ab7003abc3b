"""NCCL between two nodes through the whole path: the command line, the collector, agents, workers, and back.

NCCL and CUDA are stand-ins in C; gRPC, the evidence on disk, processes and signals are real.
"""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from hyperscout.v1.measurement_pb2 import SetMeasuringRequest
from hyperscout.v1.measurement_pb2_grpc import MeasurementServiceStub
from hyperscout_agent.nvml.gpu_use import GpuUse
from hyperscout_agent.probes.nccl import NcclCommands
from hyperscout_collector.app.build.collector import Collector
from support.callers import refused
from support.collector_process import collector_process, listed
from support.collectors import collector_settings
from support.nccl_agents import (
    NcclAgent,
    agents,
    connected,
    gone,
    none_left,
    run,
    service,
    working,
)
from support.nccl_stubs import alive
from support.real import require_real
from support.rest_collector import status_of
from support.waiting import TIMEOUT_S, eventually

require_real("gcc")

# A shell that runs the tests in the background may have it ignored, and children inherit that.
_IN_FRONT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
_MAIN = "import sys; from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"


async def test_between_two_nodes_within_one_and_again(stubs: NcclCommands, tmp_path: Path) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        agents(stubs, collector.address, "node-a", "node-b") as (a, b),
        service(collector.address) as stub,
    ):
        found = await run(stub, "node-a", "node-b")
        assert (found.peer, found.method, found.ranks) == ("node-b", "libnccl", 2)
        assert [(x.operation, x.size_bytes) for x in found.results] == [
            (operation, size) for operation in ("all_reduce", "sendrecv") for size in (8, 1024)
        ]
        assert (await run(stub, "node-b", "node-a")).peer == "node-a"  # at once: both are free again
        within = await run(stub, "node-a")
        assert (within.peer, within.method, within.ranks) == ("", "nccl-tests", 8)
        stored = {
            (x.finding.key.node, x.finding.key.subject): x.finding.nccl
            for x in await listed(collector.address)
            if x.finding.key.probe == "nccl"
        }
        assert stored["node-a", "node-b"] == found
        assert set(stored) == {("node-a", "node-b"), ("node-b", "node-a"), ("node-a", "node")}
        # All evidence that is repeated each minute would be stale by now.
        collector.components = replace(collector.components, stale_after_ns=-(1 << 62))
        assert status_of(collector).stale_findings == 0
        # An agent that starts anew knows nothing of it; the evidence does.
        await a.stop()
        async with agents(stubs, collector.address, "node-a"):
            assert len(await listed(collector.address)) == 3
        assert b.store.subjects("nccl") == {"node-a"}


@pytest.mark.parametrize(
    ("trouble", "rank", "words"),
    [
        ("init:2", "0", "ncclCommInitRank: error 2 (unhandled system error)"),
        ("init:hang", "1", "the run did not end in 3 s"),
        ("init:crash", "1", "node-b: the worker ended early"),
    ],
)
async def test_what_goes_wrong_is_said_and_both_nodes_are_free_again(
    stubs: NcclCommands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
    rank: str,
    words: str,
) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        agents(stubs, collector.address, "node-a", "node-b"),
        service(collector.address) as stub,
    ):
        with monkeypatch.context() as patch:
            patch.setenv("STUB_NCCL", trouble)
            patch.setenv("STUB_NCCL_RANK", rank)
            limit_s = 3.0 if "hang" in trouble else TIMEOUT_S
            code, details = await refused(run(stub, "node-a", "node-b", timeout_s=limit_s))
        assert code is grpc.StatusCode.ABORTED
        # Either rank may say first what went wrong: the one that fails, or the one that is left alone.
        assert words in details or (trouble == "init:2" and "remote process exited" in details)
        await none_left()
        assert (await run(stub, "node-a", "node-b")).ranks == 2


async def test_gpus_at_work_on_rank_1_end_rank_0(stubs: NcclCommands, tmp_path: Path) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        agents(stubs, collector.address, "node-a", "node-b") as (_, b),
        service(collector.address) as stub,
    ):
        b.gpus = lambda: GpuUse(8, processes=("GPU 0 runs 1 process",))
        code, details = await refused(run(stub, "node-a", "node-b"))
        assert (code, details) == (
            grpc.StatusCode.ABORTED,
            "node-b: the GPUs are not idle: GPU 0 runs 1 process",
        )


@asynccontextmanager
async def in_the_middle(
    stubs: NcclCommands, address: str, monkeypatch: pytest.MonkeyPatch, *nodes: str
) -> AsyncIterator[tuple[list[NcclAgent], MeasurementServiceStub, Any, list[int]]]:
    """Two agents, a run of theirs whose workers hang in a collective operation, and those workers."""
    monkeypatch.setenv("STUB_NCCL", "send:hang")
    async with agents(stubs, address, *nodes) as found, service(address) as stub:
        call = asyncio.ensure_future(run(stub, *nodes, timeout_s=60.0))
        try:
            pids = await working(2)
            yield found, stub, call, pids
        finally:
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)


async def test_the_agent_of_rank_1_ends(
    stubs: NcclCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        in_the_middle(stubs, collector.address, monkeypatch, "node-a", "node-b") as (found, _, call, pids),
    ):
        await found[1].stop()
        code, details = await refused(call)
        assert (code, details) == (grpc.StatusCode.ABORTED, "node-b: its agent went away")
        await gone(pids)
        a = found[0]
        failed = await eventually(lambda: a.store.get("nccl", "node-b"))
        assert failed is not None
        assert failed.reason == "stopped: node-b: its agent went away"


async def test_the_collector_ends_and_another_begins(
    stubs: NcclCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(collector_process(tmp_path / "data"))
        found, _, call, pids = await stack.enter_async_context(
            in_the_middle(stubs, first.address, monkeypatch, "node-a", "node-b")
        )
        first.kill()
        code, _ = await refused(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        await gone(pids)
        await first.ended()
        monkeypatch.delenv("STUB_NCCL")
        async with collector_process(tmp_path / "data", listen=first.address) as second:
            await connected(found)
            async with service(second.address) as stub:
                assert (await run(stub, "node-a", "node-b")).ranks == 2


async def test_measuring_is_paused(
    stubs: NcclCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        in_the_middle(stubs, collector.address, monkeypatch, "node-a", "node-b") as (_, stub, call, pids),
    ):
        await stub.SetMeasuring(SetMeasuringRequest(paused=True, reason="acceptance"))
        code, details = await refused(call)
        assert code is grpc.StatusCode.ABORTED
        assert "measuring was paused" in details
        assert not any(map(alive, pids))  # they were gone before it was said
        code, details = await refused(run(stub, "node-a", "node-b"))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        await stub.SetMeasuring(SetMeasuringRequest(paused=False))
        monkeypatch.delenv("STUB_NCCL")
        assert (await run(stub, "node-a", "node-b")).ranks == 2


async def command(*arguments: str) -> tuple[int, str, str]:
    """`hyperscout measure nccl` in a process of its own: exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _MAIN, "measure", "nccl", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_command(stubs: NcclCommands, tmp_path: Path) -> None:
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        agents(stubs, collector.address, "node-a", "node-b", "node-c") as (_, b, _),
    ):
        where = ("--collector", collector.address, "--size", "8", "--size", "1K")
        code, out, err = await command("node-a", "node-b", *where)
        assert (code, err) == (0, "NCCL between node-a and node-b: 120 s at most\n")
        head, _, heading, *rows = out.splitlines()
        assert head.startswith("libnccl, NCCL 2.29.3, 2 ranks between node-a and node-b, ")
        assert heading.split() == ["OPERATION", "SIZE", "TIME", "DATA", "BUS"]
        assert [row.split()[:3] for row in rows] == [
            ["all_reduce", "8", "B"],
            ["all_reduce", "1", "KiB"],
            ["sendrecv", "8", "B"],
            ["sendrecv", "1", "KiB"],
        ]
        code, out, _ = await command("node-a", *where, "-o", "json")
        assert (code, json.loads(out)["method"], len(json.loads(out)["results"])) == (0, "nccl-tests", 4)
        b.gpus = lambda: GpuUse(8, processes=("GPU 0 runs 1 process",))
        code, out, err = await command("node-a", "node-b", *where)
        assert (code, out) == (1, "")
        assert "error: node-b: the GPUs are not idle" in err
        code, out, err = await command("node-a", "node-z", *where)
        assert (code, out) == (3, "")
        assert "node-z: no agent of this node is connected" in err


async def test_ctrl_c_ends_the_run(
    stubs: NcclCommands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_NCCL", "init:hang")
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        agents(stubs, collector.address, "node-a", "node-b"),
    ):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _IN_FRONT + _MAIN, "measure", "nccl", "node-a", "node-b"),
            *("--collector", collector.address),
            stderr=asyncio.subprocess.DEVNULL,
        )
        pids = await working(2)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(TIMEOUT_S):
            assert await process.wait() == 130
        await gone(pids)


async def test_in_a_cluster_only_reserved_nodes(stubs: NcclCommands, tmp_path: Path) -> None:
    """The cluster's word is the rule; the words for each case are tested in `tests/unit/app`."""
    async with (
        Collector(collector_settings(tmp_path)) as collector,
        agents(stubs, collector.address, "node-a", "node-b"),
        service(collector.address) as stub,
    ):
        collector.components.inference.nccl._why_not_free = lambda node: (
            "at work" if node == "node-b" else None
        )
        code, details = await refused(run(stub, "node-a", "node-b"))
        assert (code, details) == (grpc.StatusCode.FAILED_PRECONDITION, "node-b: at work")
