"""The dissecting process: the real one, and ones that hang, die or send invalid answers."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hyperscout_agent.lldp.dissection import Dissector, DissectorError, UnreadableError
from hyperscout_formats.facts.facts import LldpNeighbour
from support.fake_time import FakeTime, settle
from support.lldp_frames import tlv
from support.waiting import TIMEOUT_S, until

FRAME = (
    bytes.fromhex("0180c200000e020000000001")
    + b"\x88\xcc"
    + tlv(1, b"\x04" + bytes.fromhex("020000000001"))
    + tlv(2, b"\x05swp1")
    + tlv(3, b"\0\x78")
    + tlv(5, b"leaf1")
    + tlv(0, b"")
)
NEIGHBOUR = LldpNeighbour("mac", "02:00:00:00:00:01", "ifname", "swp1", 120, system_name="leaf1")

# Answers every request with `answer`, after it did `first`.
SCRIPT = """
import sys, time, os
write = sys.stdout.buffer
for line in sys.stdin:
    {first}
    write.write({answer!r} + b"\\n")
    write.flush()
"""


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[Callable[..., Dissector]]:
    made: list[Dissector] = []

    def make(answer: bytes = b"{}", first: str = "pass", **options: float) -> Dissector:
        script = tmp_path / f"dissector{len(made)}.py"
        script.write_text(SCRIPT.format(first=first, answer=answer))
        dissector = Dissector([sys.executable, str(script)], **options)  # type: ignore[arg-type]
        made.append(dissector)
        return dissector

    yield make
    for dissector in made:
        await dissector._end()


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def test_the_real_one_is_started_for_a_frame_and_gone_when_idle() -> None:
    time = FakeTime()
    dissector = Dissector(wait=time.wait)
    idle = asyncio.create_task(dissector.end_when_idle())
    assert dissector.pid is None, "nothing runs before there is a frame"
    assert await dissector.dissect(FRAME) == NEIGHBOUR
    first = dissector.pid
    assert first is not None
    with pytest.raises(UnreadableError, match="is truncated"):
        await dissector.dissect(FRAME[:40])
    assert await dissector.dissect(FRAME) == NEIGHBOUR
    assert dissector.pid == first, "one process for frames that come close together"
    await settle()
    await time.pass_s(9.0)
    assert dissector.pid == first
    await time.pass_s(2.0)
    await until(lambda: dissector.pid is None and gone(first))
    assert await dissector.dissect(FRAME) == NEIGHBOUR
    second = dissector.pid
    idle.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await idle
    assert dissector.pid is None
    assert second is not None
    assert gone(second), "nothing is left at the end"


def answer(**changes: object) -> bytes:
    neighbour: dict[str, object] = {
        "chassis_id_subtype": "mac", "chassis_id": "x", "port_id_subtype": "ifname", "port_id": "y",
        "ttl_s": 1,
        "port_description": "", "system_name": "", "system_description": "", "management_addresses": [],
        "capabilities": [], **changes,
    }  # fmt: skip
    return json.dumps({"neighbour": neighbour}).encode()


@pytest.mark.parametrize(
    ("first", "reply", "reason"),
    [
        pytest.param("time.sleep(1000)", b"", "did not answer in 0.5 s", id="hangs"),
        pytest.param("os.kill(os.getpid(), 9)", b"", "process ended: no output", id="is killed"),
        pytest.param(
            "sys.exit('No module named scapy')", b"", "process ended: No module named scapy", id="lacks scapy"
        ),
        pytest.param(
            "write.write(b'x' * 10**6); write.flush()",
            b"",
            "longer than the limit",
            id="an endless answer",
        ),
        pytest.param("sys.stderr.write('x' * 10**6)", b"{}", "invalid answer", id="floods stderr"),
        pytest.param("pass", b"no json", "invalid answer", id="no JSON"),
        pytest.param("pass", b"[" * 10_000, "invalid answer", id="nested without end"),
        pytest.param("pass", b"{}", "invalid answer", id="neither neighbour nor error"),
        pytest.param("pass", b"[]", "invalid answer", id="a list"),
        pytest.param("pass", answer(ttl_s="1"), "invalid answer", id="a TTL of text"),
        pytest.param("pass", answer(ttl_s=True), "invalid answer", id="a TTL that is true"),
        pytest.param("pass", answer(ttl_s=10**9), "invalid answer", id="a TTL of years"),
        pytest.param("pass", answer(system_name=["x"]), "invalid answer", id="a list for a text"),
        pytest.param("pass", answer(system_name="x" * 5000), "invalid answer", id="a text of pages"),
        pytest.param(
            "pass", answer(management_addresses="10.0.0.1"), "invalid answer", id="a text for a list"
        ),
        pytest.param("pass", answer(capabilities=["x"] * 100), "invalid answer", id="a list of hundreds"),
        pytest.param("pass", answer(capabilities=[None]), "invalid answer", id="a list of nothing"),
    ],
)
async def test_trouble(fake: Callable[..., Dissector], first: str, reply: bytes, reason: str) -> None:
    dissector = fake(reply, first, timeout_s=0.5 if "sleep" in first else TIMEOUT_S)
    with pytest.raises(DissectorError, match=reason):
        await dissector.dissect(FRAME)
    assert dissector.pid is None, "a process that did this is not used again"


async def test_after_trouble_the_next_frame_starts_a_new_one(fake: Callable[..., Dissector]) -> None:
    dissector = fake(b'{"error": "cut short"}', "not os.path.exists('/proc/self') and None")
    for _ in range(2):
        with pytest.raises(UnreadableError, match="cut short"):
            await dissector.dissect(FRAME)
        await dissector._end()


async def test_a_missing_program_is_trouble_too() -> None:
    with pytest.raises(DissectorError):
        await Dissector(["/no/such/program"]).dissect(FRAME)


async def test_cancelled_in_the_middle_leaves_no_half_answer(fake: Callable[..., Dissector]) -> None:
    dissector = fake(answer(), "time.sleep(1000)")
    look = asyncio.create_task(dissector.dissect(FRAME))
    await until(lambda: dissector.pid is not None)
    pid = dissector.pid
    look.cancel()
    with pytest.raises(asyncio.CancelledError):
        await look
    assert dissector.pid is None
    assert pid is not None
    assert gone(pid)
