"""Programs of nccl-tests under the agent: what they write is read, and nothing of them is left."""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperscout_agent.nccl.ends_with_agent import bound
from hyperscout_agent.nccl.tool import Chain, chains, run_operation
from hyperscout_agent.probes.nccl import DEFAULT_SIZES
from hyperscout_agent.runtime.subprocesses import ToolError, ToolMissingError, run_tool
from support.nccl_agents import gone
from support.nccl_stubs import alive, calls, programs
from support.waiting import TIMEOUT_S, eventually


@pytest.fixture
def perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return programs(tmp_path)


def left_over(tmp_path: Path) -> list[str]:
    return [path.name for path in (tmp_path / "scratch").iterdir()]


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        (DEFAULT_SIZES, [(8, 1024), (64 << 20, 1 << 30)]),
        ((8,), [(8, 8)]),
        ((64, 8, 16, 8), [(8, 16), (64, 64)]),
        ((8, 12, 16, 24), [(8, 16), (12, 24)]),
        # What is small is measured more often than what is large: never both by one start.
        (tuple(1 << n for n in range(18, 23)), [(1 << 18, 1 << 19), (1 << 20, 1 << 22)]),
        ((), []),
    ],
)
def test_chains(sizes: Sequence[int], found: list[tuple[int, int]]) -> None:
    assert chains(sizes) == [Chain(*pair) for pair in found]


async def test_both_chains_are_measured_and_nothing_is_left(
    perf: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_PERF", f"calls:{tmp_path / 'calls'}")
    told = await run_operation(perf, "all_reduce", (8, 16, 1 << 26, 1 << 27), 8, timeout_s=TIMEOUT_S)
    assert [(x.operation, x.size_bytes) for x in told.results] == [
        ("all_reduce", size) for size in (8, 16, 1 << 26, 1 << 27)
    ]
    assert told.results[0].time_us == pytest.approx(10.0008)
    assert (told.nccl_version, told.ranks) == ("2.29.3", 8)
    small, large = calls(tmp_path / "calls")
    assert (small["-b"], small["-e"], small["-f"], small["-g"], small["-T"]) == ("8", "16", "2", "8", "240")
    assert (large["-b"], large["-e"]) == (str(1 << 26), str(1 << 27))
    assert int(small["-n"]) > int(large["-n"])
    assert small["-J"] != large["-J"]
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("fails", "exit 3: .*Test NCCL failure"),
        ("silent", "wrote no JSON"),
        ("junk", "not JSON"),
        ("wrong", "9 elements are wrong"),
        ("nan", "time is not a number"),
        ("flood", "larger than"),
        ("link", "cannot be read"),
    ],
)
async def test_what_goes_wrong_is_said_and_nothing_is_left(
    perf: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, words: str
) -> None:
    monkeypatch.setenv("STUB_PERF", mode)
    with pytest.raises(ToolError, match=words) as caught:
        await run_operation(perf, "sendrecv", (8, 16), 8, timeout_s=TIMEOUT_S)
    assert not isinstance(caught.value, ToolMissingError)
    assert left_over(tmp_path) == []


async def test_no_such_program(perf: tuple[str, ...]) -> None:
    with pytest.raises(ToolMissingError, match="no-such-perf is not installed"):
        await run_operation(("no-such-perf",), "sendrecv", (8,), 8, timeout_s=TIMEOUT_S)


async def hanging(pids: Path) -> list[int]:
    """The processes of a program that hangs, once they run."""
    await eventually(pids.exists)
    found = [int(word) for word in pids.read_text().split()]
    assert all(map(alive, found))
    return found


async def test_a_program_that_hangs_is_killed_with_its_child(
    perf: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_PERF", f"hang:{tmp_path / 'pids'}")
    pids, timeout_s = tmp_path / "pids", 1.0
    while not pids.exists():  # the program may not start so soon on a busy machine
        timeout_s *= 2
        with pytest.raises(ToolError, match=f"still running after {timeout_s:g} s"):
            await run_operation(perf, "sendrecv", (8,), 8, timeout_s=timeout_s)
        assert left_over(tmp_path) == []
    await gone([int(word) for word in pids.read_text().split()])


async def test_a_cancelled_run_takes_its_processes_with_it(
    perf: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_PERF", f"hang:{tmp_path / 'pids'}")
    running = asyncio.create_task(run_operation(perf, "sendrecv", (8,), 8, timeout_s=TIMEOUT_S))
    pids = await hanging(tmp_path / "pids")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await gone(pids)
    assert left_over(tmp_path) == []


async def test_a_process_ends_with_the_agent_that_is_killed(tmp_path: Path) -> None:
    """The one in between plays the agent: it starts a bound process, says its id, and is killed."""
    script = (
        "import asyncio, os\n"
        "from hyperscout_agent.nccl.ends_with_agent import bound\n"
        "async def main():\n"
        "    p = await asyncio.create_subprocess_exec(*bound(('sleep', '600')))\n"
        f"    open({str(tmp_path / 'new')!r}, 'w').write(str(p.pid))\n"
        f"    os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pids')!r})\n"
        "    await p.wait()\n"
        "asyncio.run(main())\n"
    )
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, start_new_session=True)
    try:
        (pid,) = await hanging(tmp_path / "pids")
        await eventually(lambda: b"sleep\0" in Path(f"/proc/{pid}/cmdline").read_bytes())
    finally:
        agent.kill()
        await agent.wait()
    await gone([pid])


async def test_a_program_ends_with_the_agent_that_is_killed(
    perf: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STUB_PERF", f"hang:{tmp_path / 'pids'}")
    script = (
        "import asyncio\nfrom hyperscout_agent.nccl.tool import run_operation\n"
        f"asyncio.run(run_operation({perf!r}, 'sendrecv', (8,), 8, timeout_s=600))\n"
    )
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script),
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
    )
    try:
        program, child = await hanging(tmp_path / "pids")
    finally:
        agent.kill()
        await agent.wait()
    await gone([program])
    left, other = (tmp_path / "scratch").iterdir(), tmp_path / "scratch" / f"hyperscout-nccl-{os.getpid()}-x"
    assert [path.name.split("-")[2] for path in left] == [str(agent.pid)]
    other.mkdir()  # of an agent that lives
    monkeypatch.delenv("STUB_PERF")
    await run_operation(perf, "sendrecv", (8,), 8, timeout_s=TIMEOUT_S)
    assert left_over(tmp_path) == [other.name]
    os.kill(child, signal.SIGKILL)  # what the program itself starts is its own affair


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("0", "true"), 126, b"the agent 0 is gone"),
        ((str(os.getpid()), "no-such-program"), 127, b"no-such-program"),
        ((str(os.getpid()), "/"), 126, b"/"),
    ],
)
async def test_what_cannot_be_bound(arguments: tuple[str, ...], code: int, words: bytes) -> None:
    python, dash_m, module, _ = bound(())
    result = await run_tool(
        (python, dash_m, module, *arguments), take=lambda _: None, timeout_s=TIMEOUT_S, max_output_bytes=1000
    )
    assert result.exit_code == code
    assert words in result.stderr
