"""A collector in a process of its own, to be killed, and what it holds."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
from hyperscout.v1 import topology_pb2 as pb
from hyperscout.v1.topology_pb2_grpc import TopologyServiceStub

from support.waiting import TIMEOUT_S

_LISTENING = re.compile(rb"listens on (127\.0\.0\.\d+:\d+)")
_MAIN = "import sys; from hyperscout_cli.main import main; sys.exit(main(sys.argv[1:]))"
# A machine whose clock is ahead by what a file says, in seconds. The monotonic clocks are the real ones.
_STEPPED = """
import sys, time
real, real_ns, path = time.time, time.time_ns, sys.argv.pop(1)
def ahead_s():
    with open(path) as file:
        return int(file.read() or 0)
time.time = lambda: real() + ahead_s()
time.time_ns = lambda: real_ns() + ahead_s() * 10**9
"""
# The kernel counts what a process may write to: heaps, stacks and anonymous maps (setrlimit(2), RLIMIT_DATA).
_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv.pop(1)) << 20,) * 2)
"""
CHANNEL_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0))


class CollectorProcess:
    """`address` is where it listens, `said` the end of what it logged, `lines` how many lines it logged."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.address = ""
        self.said = b""
        self.lines = 0
        self._process = process
        self._log = asyncio.create_task(self._read_log())
        self._listens = asyncio.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    async def listening(self) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await self._listens.wait()
        if not self.address:
            raise AssertionError(f"the collector ended: {self.said.decode()}")

    def kill(self) -> None:
        """kill -9, this instant."""
        os.kill(self._process.pid, signal.SIGKILL)

    async def ended(self) -> int:
        async with asyncio.timeout(TIMEOUT_S):
            await self._log
            return await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        return await self.ended()

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.readline():
            self.said = (self.said + line)[-20_000:]
            self.lines += 1
            if match := _LISTENING.search(line):
                self.address = match[1].decode()
                self._listens.set()
        self._listens.set()


@asynccontextmanager
async def collector_process(
    data_dir: Path,
    *flags: str,
    listen: str = "127.0.0.1:0",
    clock: Path | None = None,
    memory_mib: int | None = None,
) -> AsyncIterator[CollectorProcess]:
    """Start one and wait until it listens; it is killed in the end if it still lives.

    `clock`: a file with the seconds by which its machine's clock is ahead. `memory_mib`: limit of its memory.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HYPERSCOUT_COLLECTOR_")}
    command = (
        "collector",
        "--listen",
        listen,
        "--data-dir",
        str(data_dir),
        "--http-listen",
        "",
        "--rest-listen",
        "",
        *flags,
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        ("" if clock is None else _STEPPED) + ("" if memory_mib is None else _LIMITED) + _MAIN,
        *(() if clock is None else (str(clock),)),
        *(() if memory_mib is None else (str(memory_mib),)),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    found = CollectorProcess(process)
    try:
        await found.listening()
        yield found
    except BaseException:  # pytest shows it with the failure of the test
        sys.stderr.write(f"collector with {data_dir} logged:\n{found.said.decode(errors='replace')}")
        raise
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                found.kill()
        await found.ended()


def channel_to(address: str, credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
    return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)


async def listed(
    address: str, page_size: int = 500, credentials: grpc.ChannelCredentials | None = None
) -> list[pb.StoredFinding]:
    """All findings that a collector holds, page by page."""
    found: list[pb.StoredFinding] = []
    async with channel_to(address, credentials) as channel:
        service = TopologyServiceStub(channel)
        token = ""
        while True:
            request = pb.ListFindingsRequest(page_token=token, page_size=page_size)
            page = await service.ListFindings(request, timeout=TIMEOUT_S)
            found += page.findings
            token = page.next_page_token
            if not token:
                return found
