"""Writes Slurm's topology files when they change, and makes Slurm read them.

A file is replaced as a whole, and only if its text differs. A steady state or a restart writes nothing and
runs no command. A topology that is held back is not published, so it changes no file.
"""

import logging
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hyperscout_runtime.backoff import Backoff
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.files import replace_file
from hyperscout_topology.topology import Topology

from hyperscout_publish.publisher.base import Alarm, Publisher, PublishError, Recheck
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
_MARK = ".hook-due"  # suffix of a file beside each one: Slurm has not read the last text yet
_RETRY_BASE_S = 1.0
_RETRY_CAP_S = 60.0

Writer = Callable[[Topology, SlurmOptions], Iterator[str]]
WRITERS: Mapping[str, Writer] = {"tree": slurm_tree, "block": slurm_block, "yaml": slurm_yaml}


class SlurmFilesPublisher(Publisher):
    """`files`: paths by kind ("tree", "block", "yaml").

    `hook`: a command line, for example `scontrol reconfigure`. It is split as a shell does, but no shell runs
    it. `interval_s`: minimum time between two runs; changes in between are written together at its end.
    `hook_timeout_s`: its maximum run time in seconds. `timer()`: monotonic seconds. After a failed run,
    another topology is written at once, but the next run waits, for longer after each failure.

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
        self.recheck = Recheck(self.wake)
        self._files = dict(files)
        self._hook = shlex.split(hook)
        self._options = options
        self._live = shlex.split(live)
        self._interval_s = interval_s
        self._hook_timeout_s = hook_timeout_s
        self._timer = timer
        self._written: object = None  # what the files contain and Slurm has read; None = unknown
        self._layout: Layout | None = None  # what Slurm has; None = unknown
        self._next_s = timer()  # the hook does not run before
        self._alarm = Alarm(self.wake)
        self._backoff = Backoff(_RETRY_BASE_S, _RETRY_CAP_S)
        self._retry_s = timer()  # after a failed run, another topology causes no run before
        self._bad_paths: list[str] = []  # why files could not be written the last time
        self._failed: tuple[object, str] = (None, "")  # the topology of the last failed run, and its problem
        self._in_thread = BoundedExecutor("publish-slurm")

    async def publish(self, topology: Topology) -> None:
        """Write the files that differ, and run the hook if any did. Raises PublishError."""
        self.notice = None
        self._alarm.set(None)
        if not topology.hypernodes:
            self.notice = "no hierarchy is known: the files are unchanged"
            return
        members = [(h.name, h.tier, h.parent, h.children, h.nodes) for h in topology.hypernodes]
        written = (members, topology.nodes_without_evidence, topology.adapters)  # these may name hosts
        if written == self._written:
            if not self.recheck.is_due:
                return
            if await self._in_thread(self._are_written, topology):
                self.recheck.restart()
                return
            self._layout = None  # Slurm may have read it as it is now
        if is_empty(topology, self._options):
            self.notice = "no host has a name that Slurm accepts: the files are unchanged (set node_map)"
            return
        layout, changes = await self._in_thread(self._compare, topology)
        wait_s = self._next_s - self._timer()
        if changes is None and wait_s > 0 and not self._failed[1]:
            # The files wait, too: a change that is undone meanwhile changes nothing.
            self._alarm.set(wait_s)
            if self._bad_paths:
                raise PublishError("; ".join(self._bad_paths))
            if wait_s > _LONG_S:
                self.notice = _WAITS
            return
        self._written = None  # if something fails, the next call compares the files
        due, self._bad_paths = await self._in_thread(self._write, topology)
        problems = list(self._bad_paths)
        if due and self._hook:
            problems += await self._tell(written, changes)
        elif layout is not None and self._layout is None:
            layout = replace(layout, may_have_more=True)  # an earlier process may have moved nodes
        if problems:
            raise PublishError("; ".join(problems))
        self._written, self._layout = written, layout
        self.recheck.restart()

    def _compare(self, topology: Topology) -> tuple[Layout | None, Sequence[Sequence[str]] | None]:
        """Return the layout of Slurm afterwards, and the updates that lead to it; None = the hook does."""
        if not self._live:
            return None, None
        (kind,) = self._files
        layout = layout_of(topology, kind, self._options)
        if self._layout is None or (changes := updates(self._layout, layout)) is None:
            return layout, None
        return updated(self._layout, layout), changes

    async def _tell(self, written: object, changes: Sequence[Sequence[str]] | None) -> list[str]:
        """Make Slurm read the files, or tell it the changes. Return what failed."""
        failed, problem = self._failed
        wait_s = self._retry_s - self._timer()
        if problem and wait_s > 0 and written != failed:
            self._alarm.set(wait_s)
            return [problem]
        self._layout = None  # if this fails, Slurm may have a part of it: then the hook runs
        try:
            await self._run(changes)
            await self._in_thread(self._unmark)
        except PublishError as error:
            self._failed = written, str(error)
            self._retry_s = self._timer() + self._backoff.next_s()
            return [str(error)]
        self._failed = None, ""
        self._backoff.reset()
        return []

    async def _run(self, changes: Sequence[Sequence[str]] | None) -> None:
        """Run the updates, or the hook. Raises PublishError."""
        if changes is None:
            await run("slurm_hook", self._hook, self._hook_timeout_s)
            self._next_s = self._timer() + self._interval_s
            return
        for arguments in changes:
            await run("slurm_live", [*self._live, *arguments], self._hook_timeout_s)

    def _write(self, topology: Topology) -> tuple[bool, list[str]]:
        """Write the files. Returns whether the hook is due, and why files could not be written."""
        due, problems = False, []
        for kind, path in self._files.items():
            mark = _mark_of(path)
            try:
                was_due = mark.exists()
                due |= was_due
                text = self._text(kind, topology)
                if _reads(path, text):
                    continue
                if self._hook:
                    mark.touch()  # before the file, so that a crash in between does not lose the hook
                try:
                    replace_file(path, text)
                except OSError:
                    if not was_due:
                        mark.unlink(missing_ok=True)
                    raise
                due = True
                _log.info("wrote %s: generation %d", path, topology.generation)
            except OSError as error:
                problems.append(f"{path}: {error.strerror or error}")
        return due, problems

    def _are_written(self, topology: Topology) -> bool:
        """Return whether the files are as they were written. One that cannot be read is not."""
        try:
            return all(_reads(path, self._text(kind, topology)) for kind, path in self._files.items())
        except OSError:
            return False

    def _text(self, kind: str, topology: Topology) -> str:
        return "".join(WRITERS[kind](topology, self._options))

    def _unmark(self) -> None:
        for mark in map(_mark_of, self._files.values()):
            try:
                mark.unlink(missing_ok=True)
            except OSError as error:
                raise PublishError(f"{mark}: {error.strerror or error}") from error


def _mark_of(path: Path) -> Path:
    return path.with_name(f".{path.name}{_MARK}")


def _reads(path: Path, text: str) -> bool:
    """Return whether the file exists and contains exactly this text."""
    encoded = text.encode()
    try:
        with path.open("rb") as file:
            return file.read(len(encoded) + 1) == encoded
    except FileNotFoundError:
        return False
