"""Runs the LLDP listener as a child process, for an agent that has CAP_NET_RAW itself."""

import asyncio
import socket
import sys
from pathlib import Path

from hyperscout_agent.runtime.subprocesses import end_process


def may_listen() -> bool:
    """Whether this process has CAP_NET_RAW."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


async def run_listener(socket_path: Path, *, sysfs: Path, pattern: str | None) -> None:
    """Run the listener until cancelled, with the agent's stderr. Raises OSError when it ends by itself."""
    arguments = ["--socket", str(socket_path), "--sysfs", str(sysfs)]
    if pattern is not None:
        arguments += ["--ports", pattern]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hyperscout_agent.lldp.listener",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        raise OSError(f"the listener ended with exit code {await process.wait()}")
    finally:
        await end_process(process)
