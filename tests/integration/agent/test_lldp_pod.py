"""The two containers of the agent's pod: a root without capabilities but NET_RAW reaches a user's socket.

Such a root is, to a file of another user, just one more user (capabilities(7), CAP_DAC_OVERRIDE): what lets
it in is the group of the volume that both share.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hyperscout_agent.lldp.link import ListenerLink
from support.real import require_real
from support.waiting import TIMEOUT_S, until

require_real("root")

USER = 10001  # of the agent's container; also the volume's group (fsGroup)


def confined(*groups: int, capability: str) -> list[str]:
    """What comes before a command so that it runs as the `lldp` container does."""
    bounding = f"-all,+{capability}" if capability else "-all"
    supplementary = f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups"
    return [
        "setpriv",
        "--reuid=0",
        "--regid=0",
        supplementary,
        f"--bounding-set={bounding}",
        "--no-new-privs",
    ]


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """As a kubelet makes an emptyDir with an fsGroup."""
    folder = tmp_path / "run"
    folder.mkdir()
    os.chown(folder, 0, USER)
    folder.chmod(0o2777)
    return folder


@asynccontextmanager
async def agent(path: Path) -> AsyncIterator[tuple[ListenerLink, asyncio.Event]]:
    """The agent's end; its socket is its user's, as in the pod."""
    came = asyncio.Event()
    link = ListenerLink(path, lambda heard: None, came.set)
    task = asyncio.create_task(link.run())
    try:
        await until(path.exists)
        os.chown(path, USER, -1)
        yield link, came
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_listener_reaches_the_agent(volume: Path) -> None:
    path = volume / "lldp.sock"
    async with agent(path) as (link, came):
        command = confined(USER, capability="net_raw")
        command += [sys.executable, "-m", "hyperscout_agent.lldp.listener"]
        process = await asyncio.create_subprocess_exec(*command, "--socket", str(path), "--ports", "^lo$")
        try:
            ended = asyncio.create_task(process.wait())
            arrived = asyncio.create_task(came.wait())
            await asyncio.wait({ended, arrived}, timeout=TIMEOUT_S, return_when="FIRST_COMPLETED")
            assert link.connected == 1
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            ended.cancel()
            arrived.cancel()


async def test_without_the_capability_it_says_so(volume: Path) -> None:
    command = [*confined(USER, capability=""), sys.executable, "-m", "hyperscout_agent.lldp.listener"]
    process = await asyncio.create_subprocess_exec(
        *command, "--socket", str(volume / "none"), "--ports", "^lo$", stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(TIMEOUT_S):
        _, said = await process.communicate()
    assert process.returncode != 0
    assert b"listening needs root or CAP_NET_RAW" in said


async def test_a_process_outside_the_group_cannot_connect(volume: Path) -> None:
    path = volume / "lldp.sock"
    knock = f"import socket; socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect({str(path)!r})"
    async with agent(path) as (link, _):
        process = await asyncio.create_subprocess_exec(
            *confined(capability="net_raw"), sys.executable, "-c", knock, stderr=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(TIMEOUT_S):
            _, said = await process.communicate()
        assert b"PermissionError" in said
        assert link.connected == 0
