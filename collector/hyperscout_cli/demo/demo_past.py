"""Prints the events of the demo with the history commands, at its end."""

import asyncio
import os
import sys
import time

from hyperscout_runtime.units import NS, rfc3339

from hyperscout_cli.demo.demo_collector import DemoError
from hyperscout_cli.shared.errors import FAILURE

_TIMEOUT_S = 120.0
_SETTLE_S = 120.0  # cables alone are published up to 30 s after the conditions that they clear
_SAME = "no difference: all faults are repaired\n"


async def looked_back(address: str, since_s: float) -> str:
    """Return what changed, and what differs from the state at `since_s` (Unix time). Raises DemoError."""
    then = rfc3339(int(since_s * NS), timespec="milliseconds")
    flips, differs = ("history", "--kind", "ConditionChanged"), ("diff", "--since", then)
    changed, different = await asyncio.gather(_said(address, *flips), _said(address, *differs))
    give_up_s = time.monotonic() + _SETTLE_S
    while different and time.monotonic() < give_up_s:
        different = await _said(address, *differs)
    return f"$ hyperscout {' '.join(flips)}\n{changed}$ hyperscout {' '.join(differs)}\n{different or _SAME}"


async def _said(address: str, *words: str) -> str:
    """The output of a hyperscout command."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "hyperscout_cli.main", *words, "--collector", address),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("HYPERSCOUT_")},
    )
    try:
        said, complaint = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError as error:
        raise DemoError(f"hyperscout {words[0]}: did not end within {_TIMEOUT_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == FAILURE:
        raise DemoError(f"hyperscout {words[0]}: {complaint.decode(errors='replace').strip()}")
    return said.decode()
