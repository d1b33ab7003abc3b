"""A thread that hangs does not hold up the end of the collector's process."""

import asyncio
import contextlib
import re
import sys
from pathlib import Path

from support.waiting import TIMEOUT_S

_HANGS = """
import asyncio, sys, threading
from concurrent.futures import ThreadPoolExecutor
from hyperscout_collector.app.replica.process import run
from hyperscout_collector.app.settings.settings import CollectorSettings

ThreadPoolExecutor(1, "hanging-disk").submit(threading.Event().wait)
settings = CollectorSettings(data_dir=sys.argv[1], listen="127.0.0.1:0", http_listen="", rest_listen="")
sys.exit(asyncio.run(run(settings, exit_s=1.0)))
"""


async def test_the_process_ends_although_a_thread_hangs(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HANGS, tmp_path, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = ""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while not re.search(r"listens on", said):
                line = await process.stderr.readline()
                assert line, said
                said += line.decode()
            process.terminate()
            said += (await process.stderr.read()).decode()
            assert await process.wait() == 1
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert "these threads have not ended: MainThread, hanging-disk_0" in said
