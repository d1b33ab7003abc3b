"""Writes Slurm's topology files when they change, and makes Slurm read them.

A file is replaced as a whole, and only if its text differs. A steady state or a restart writes nothing and
runs no command. A topology that is held back is not published, so it changes no file.
"""

import asyncio
import logging
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.files import replace_file
from hyperscout_topology.topology import Topology

from hyperscout_publish.publisher.base import Publisher, PublishError
from hyperscout_publish.slurm.command import TIMEOUT_S, run
from hyperscout_publish.slurm.text import (
    DEFAULTS,
    SlurmOptions,
    is_empty,
    slurm_block,
    slurm_tree,
    slurm_yaml,
)

_log = logging.getLogger(__name__)

_MARK = ".hook-due"  # suffix of a file beside the first one: Slurm has not read the last text yet

Writer = Callable[[Topology, SlurmOptions], Iterator[str]]
WRITERS: Mapping[str, Writer] = {"tree": slurm_tree, "block": slurm_block, "yaml": slurm_yaml}


class SlurmFilesPublisher(Publisher):
    """`files`: paths by kind ("tree", "block", "yaml").

    `hook`: a command line, for example `scontrol reconfigure`. It is split as a shell does, but no shell runs
    it. `interval_s`: minimum time between two runs; changes in between are written together at its end.
    `hook_timeout_s`: its maximum run time in seconds. `timer()`: monotonic seconds.

    Raises ValueError if the hook's quotes do not match.
    """

    name = "slurm-files"

    def __init__(
        self,
        files: Mapping[str, Path],
        hook: str = "",
        options: SlurmOptions = DEFAULTS,
        *,
        interval_s: float = 0.0,
        hook_timeout_s: float = TIMEOUT_S,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.notice: str | None = None
        self._files = dict(files)
        self._hook = shlex.split(hook)
        self._options = options
        self._interval_s = interval_s
        self._hook_timeout_s = hook_timeout_s
        self._timer = timer
        self._mark = next((p.with_name(f".{p.name}{_MARK}") for p in files.values()), None)
        self._written: object = None  # what the files contain
        self._next_s = timer()  # the hook does not run before
        self._alarm: asyncio.TimerHandle | None = None
        self._in_thread = BoundedExecutor("publish-slurm")

    async def publish(self, topology: Topology) -> None:
        """Write the files that differ, and run the hook if any did. Raises PublishError."""
        self.notice = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
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
        if (wait_s := self._next_s - self._timer()) > 0:
            # The files wait, too: a change that is undone meanwhile changes nothing.
            self._alarm = asyncio.get_running_loop().call_later(wait_s, self.wake)
            return
        due = await self._in_thread(self._write, topology)
        if due and self._hook:
            await run("slurm_hook", self._hook, self._hook_timeout_s)
            self._unmark()
            self._next_s = self._timer() + self._interval_s
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


def _reads(path: Path, text: str) -> bool:
    """Return whether the file exists and contains exactly this text."""
    encoded = text.encode()
    try:
        with path.open("rb") as file:
            return file.read(len(encoded) + 1) == encoded
    except FileNotFoundError:
        return False
