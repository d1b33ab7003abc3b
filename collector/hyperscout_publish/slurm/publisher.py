"""Writes Slurm's topology files when they change, and runs a command that makes Slurm read them.

A file is replaced as a whole, and only if its text differs. A steady state or a restart writes nothing and
runs no command. A topology that is held back is not published, so it changes no file.
"""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.files import replace_file
from hyperscout_topology.topology import Topology

from hyperscout_publish.publisher.base import Publisher, PublishError
from hyperscout_publish.slurm.text import (
    DEFAULTS,
    SlurmOptions,
    is_empty,
    slurm_block,
    slurm_tree,
    slurm_yaml,
)

_log = logging.getLogger(__name__)

HOOK_TIMEOUT_S = 60.0
_LAST_WORDS_S = 0.5
_TAIL_BYTES = 2000  # of the hook's stderr
_MARK = ".hook-due"  # suffix of a file beside the first one: the hook has not succeeded since the last write

Writer = Callable[[Topology, SlurmOptions], Iterator[str]]
WRITERS: Mapping[str, Writer] = {"tree": slurm_tree, "block": slurm_block, "yaml": slurm_yaml}


class SlurmFilesPublisher(Publisher):
    """`files`: paths by kind ("tree", "block", "yaml").

    `hook`: a command line, for example `scontrol reconfigure`. It is split as a shell does, but no shell runs
    it. `hook_timeout_s`: its maximum run time in seconds.

    Raises ValueError if the hook's quotes do not match.
    """

    name = "slurm-files"

    def __init__(
        self,
        files: Mapping[str, Path],
        hook: str = "",
        options: SlurmOptions = DEFAULTS,
        *,
        hook_timeout_s: float = HOOK_TIMEOUT_S,
    ) -> None:
        super().__init__()
        self.notice: str | None = None
        self._files = dict(files)
        self._hook = shlex.split(hook)
        self._options = options
        self._hook_timeout_s = hook_timeout_s
        self._mark = next((p.with_name(f".{p.name}{_MARK}") for p in files.values()), None)
        self._written: object = None  # what the files contain
        self._in_thread = BoundedExecutor("publish-slurm")

    async def publish(self, topology: Topology) -> None:
        """Write the files that differ, and run the hook if any did. Raises PublishError."""
        self.notice = None
        if not topology.hypernodes:
            self.notice = "no hierarchy is known: the files are unchanged"
            return
        members = [(h.name, h.tier, h.parent, h.children, h.nodes) for h in topology.hypernodes]
        written = (members, topology.nodes_without_evidence)
        if written == self._written:
            return
        if is_empty(topology, self._options):
            self.notice = "no host has a name that Slurm accepts: the files are unchanged (set node_map)"
            return
        due = await self._in_thread(self._write, topology)
        if due and self._hook:
            await self._run_hook()
            self._unmark()
        self._written = written

    def _write(self, topology: Topology) -> bool:
        """Write the files. Returns whether the hook is due."""
        path = self._mark or Path()
        try:
            due = self._mark is not None and self._mark.exists()
            for kind, path in self._files.items():
                text = "".join(WRITERS[kind](topology, self._options))
                if _reads(path, text):
                    continue
                if self._hook and self._mark is not None:
                    self._mark.touch()  # before the file, so that a crash in between does not lose the hook
                due = True
                replace_file(path, text)
                _log.info("wrote %s: generation %d", path, topology.generation)
        except OSError as error:
            raise PublishError(f"{path}: {error.strerror or error}") from error
        return due

    def _unmark(self) -> None:
        if self._mark is not None:
            try:
                self._mark.unlink(missing_ok=True)
            except OSError as error:
                raise PublishError(f"{self._mark}: {error.strerror or error}") from error

    async def _run_hook(self) -> None:
        """Run the hook, with a separate pipe for its stderr. Raises PublishError.

        With asyncio's own pipe, `wait` would wait for processes that the hook leaves behind.
        """
        tail = _Tail()
        reading, writing = os.pipe()
        end = os.fdopen(reading, "rb", buffering=0)
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, end)
        try:
            await self._wait_for_hook(tail, writing)
        finally:
            pipe.close()

    async def _wait_for_hook(self, tail: "_Tail", stderr: int) -> None:
        """Start the hook and wait for its end. Closes `stderr`. Raises PublishError."""
        command = shlex.join(self._hook)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._hook,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # so that a time-out also ends its child processes
            )
        except OSError as error:
            raise PublishError(f"slurm_hook `{command}`: {error.strerror or error}") from error
        finally:
            os.close(stderr)
        try:
            async with asyncio.timeout(self._hook_timeout_s):
                status = await process.wait()
                await asyncio.wait([tail.ended], timeout=_LAST_WORDS_S)
        except TimeoutError as error:
            raise PublishError(
                f"slurm_hook `{command}`: not finished within {self._hook_timeout_s:g} s{_shown(tail.data)}"
            ) from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if status:
            raise PublishError(f"slurm_hook `{command}`: exit status {status}{_shown(tail.data)}")
        _log.info("slurm_hook `%s` finished", command)


class _Tail(asyncio.Protocol):
    """The last bytes of the hook's stderr. `ended`: set when the last writer has closed the pipe."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.data += data
        del self.data[:-_TAIL_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _reads(path: Path, text: str) -> bool:
    """Return whether the file exists and contains exactly this text."""
    encoded = text.encode()
    try:
        with path.open("rb") as file:
            return file.read(len(encoded) + 1) == encoded
    except FileNotFoundError:
        return False


def _shown(tail: bytearray) -> str:
    text = tail.decode("utf-8", "replace").strip()
    return f": {text}" if text else ""
