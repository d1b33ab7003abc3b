"""What the kit asks of processes that are not its children."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path


def began(pid: int) -> int:
    """When a process began, in clock ticks since boot (proc(5), field 22); 0: there is none, or it has ended.

    Tells a process from a later one of the same number.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def alive(process: Sequence[int] | None) -> bool:
    """Whether the process (its number, when it began) is there still."""
    return bool(process and process[0] and process[1] and began(process[0]) == process[1])


def in_cgroup(folder: str) -> Iterator[int]:
    """The processes in a cgroup and in those below it."""
    for procs in Path(folder).rglob("cgroup.procs"):
        with contextlib.suppress(OSError):  # it was removed meanwhile
            yield from map(int, procs.read_text().split())


def kill(pid: int) -> None:
    """kill -9, if it is there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log; "" where there is none."""
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    return ""
