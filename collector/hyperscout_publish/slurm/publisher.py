"""Writes Slurm's topology files when they change, and makes Slurm read them.

A file is replaced as a whole, and only if its text differs. A steady state or a restart writes nothing and
runs no command. A topology that is held back is not published, so it changes no file.
"""

import asyncio
import logging
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.files import replace_file
from hyperscout_topology.topology import Topology

from hyperscout_publish.publisher.base import Publisher, PublishError
from hyperscout_publish.slurm.command import TIMEOUT_S, run
from hyperscout_publish.slurm.live import Layout, layout_of, updated, updates
from hyperscout_publish.slurm.text import (
    DEFAULTS,
    SlurmOptions,
    is_empty,
    slurm_block,
    slurm_tree,
    slurm_yaml,
)

_log = logging.getLogger(__name__)

_WAITS = "the newest change is written slurm_hook_interval_s after the last run of slurm_hook"
_LONG_S = 300.0  # a shorter wait is no problem to report
_MARK = ".hook-due"  # suffix of a file beside the first one: Slurm has not read the last text yet

Writer = Callable[[Topology, SlurmOptions], Iterator[str]]
WRITERS: Mapping[str, Writer] = {"tree": slurm_tree, "block": slurm_block, "yaml": slurm_yaml}


class SlurmFilesPublisher(Publisher):
    """`files`: paths by kind ("tree", "block", "yaml").

    `hook`: a command line, for example `scontrol reconfigure`. It is split as a shell does, but no shell runs
    it. `interval_s`: minimum time between two runs; changes in between are written together at its end.
    `hook_timeout_s`: its maximum run time in seconds. `timer()`: monotonic seconds.

    `live`: a command line, for example `scontrol`, that gets `update NodeName=... Topology=...` as arguments
    instead of a run of the hook, if that is enough. It needs the hook, and one file.

    Raises ValueError if the quotes of a command do not match.
    """

    name = "slurm-files"

    def __init__(
        self,
        files: Mapping[str, Path],
        hook: str = "",
        options: SlurmOptions = DEFAULTS,
        *,
        live: str = "",
        interval_s: float = 0.0,
        hook_timeout_s: float = TIMEOUT_S,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.notice: str | None = None
        self._files = dict(files)
        self._hook = shlex.split(hook)
        self._options = options
        self._live = shlex.split(live)
        self._interval_s = interval_s
        self._hook_timeout_s = hook_timeout_s
        self._timer = timer
        self._mark = next((p.with_name(f".{p.name}{_MARK}") for p in files.values()), None)
        self._written: object = None  # what the files contain and Slurm has read; None = unknown
        self._layout: Layout | None = None  # what Slurm has; None = unknown
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
        written = (members, topology.nodes_without_evidence, topology.adapters)  # these may name hosts
        if written == self._written:
            return
        if is_empty(topology, self._options):
            self.notice = "no host has a name that Slurm accepts: the files are unchanged (set node_map)"
            return
        layout, changes = await self._in_thread(self._compare, topology)
        wait_s = self._next_s - self._timer()
        if changes is None and wait_s > 0 and self._written is not None:
            # The files wait, too: a change that is undone meanwhile changes nothing.
            self._alarm = asyncio.get_running_loop().call_later(wait_s, self.wake)
            if wait_s > _LONG_S:
                self.notice = _WAITS
            return
        self._written = None  # if something fails, the next call does not wait, and compares the files
        due = await self._in_thread(self._write, topology)
        if due and self._hook:
            self._layout = None  # if this fails, Slurm may have a part of it: then the hook runs
            await self._tell(changes)
            self._unmark()
        elif layout is not None and self._layout is None:
            layout = replace(layout, may_have_more=True)  # an earlier process may have moved nodes
        self._written, self._layout = written, layout

    def _compare(self, topology: Topology) -> tuple[Layout | None, Sequence[Sequence[str]] | None]:
        """Return the layout of Slurm afterwards, and the updates that lead to it; None = the hook does."""
        if not self._live:
            return None, None
        (kind,) = self._files
        layout = layout_of(topology, kind, self._options)
        if self._layout is None or (changes := updates(self._layout, layout)) is None:
            return layout, None
        return updated(self._layout, layout), changes

    async def _tell(self, changes: Sequence[Sequence[str]] | None) -> None:
        """Run the updates, or the hook. Raises PublishError."""
        if changes is None:
            await run("slurm_hook", self._hook, self._hook_timeout_s)
            self._next_s = self._timer() + self._interval_s
            return
        for arguments in changes:
            await run("slurm_live", [*self._live, *arguments], self._hook_timeout_s)

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
