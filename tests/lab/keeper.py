"""The one process that a lab lives and ends with.

    keeper.py '{"folder": F, "cgroups": [...], "own": [...], "first": PROGRAM, "attached": true}'

It starts the first process of the sandbox (mount, pid, net, uts and ipc namespaces of its own), writes that
one's process id to standard output, and waits: for SIGTERM; for the sandbox to end; and, when attached, for
the end of its starter, which closes our standard input, also when that one is killed by SIGKILL. Then
it ends the sandbox, and takes away what would outlive it: cgroups, and the data of nodes. When this process
is itself killed, the kernel ends the sandbox, and the next start in the same folder sweeps.

It runs by itself (`python -I -S`), so it imports nothing but the standard library.
"""

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

STATE = "lab.json"
# Of a lab's folder: what belongs to its nodes and its control plane, of no use without them.
DATA = ("nodes", "store", "etcd", "tmp", "run")
_SWEEP_S = 90.0


def make_cgroups(folders: list[str]) -> None:
    """Make cgroups, with the processors of their parents where they are of that kind."""
    for folder in map(Path, folders):
        if not folder.is_dir():
            folder.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (folder / name).exists() and not (folder / name).read_text().strip():
                (folder / name).write_text((folder.parent / name).read_text())


def remove_cgroups(folders: list[str], patience_s: float = _SWEEP_S) -> bool:
    """Remove cgroups with all below them; processes in them must be on their way out. False: some stay."""
    give_up_s = time.monotonic() + patience_s
    while True:
        left = [folder for folder in folders if not _remove(Path(folder))]
        if not left:
            return True
        if time.monotonic() > give_up_s:
            return False
        time.sleep(0.02)


def _remove(folder: Path) -> bool:
    for here, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(here).rmdir()
    return not folder.exists()


def sweep(folder: Path, cgroups: list[str]) -> bool:
    """Take away what a lab leaves behind whose processes are gone. False when that is not so."""
    gone = remove_cgroups(cgroups)
    for name in DATA:
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / STATE).unlink(missing_ok=True)
    return gone


def main(spec: dict[str, Any]) -> int:
    from enter import die_with_parent, join_cgroups, unshare

    folder, cgroups = Path(spec["folder"]), spec["cgroups"]
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    make_cgroups([*cgroups, *spec["own"]])
    unshare("pid")
    alive, alive_end = os.pipe()
    inside, outside = os.pipe()  # closed when the first process has its namespaces, by its exec, or has ended
    first = os.fork()
    if first == 0:
        os.close(alive_end)
        os.close(inside)
        die_with_parent()
        if select.select([alive], [], [], 0)[0]:  # it died before we asked to die with it
            os._exit(1)
        join_cgroups(spec["own"])
        unshare("mnt", "net", "uts", "ipc")
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1):
            os.dup2(null, fd)
        os.execv(spec["first"], [spec["first"]])
    os.close(outside)
    os.read(inside, 1)  # before that it has the mounts of this machine
    print(first, flush=True)
    os.close(1)
    watched = [woken] + ([0] if spec["attached"] else [])
    while True:
        ready = select.select(watched, [], [])[0]
        if 0 in ready:
            break
        got = os.read(woken, 64)
        if any(number != signal.SIGCHLD for number in got):
            break
        if os.waitid(os.P_PID, first, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
    with contextlib.suppress(ProcessLookupError):
        os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)  # returns when all in the namespace are gone
    return 0 if sweep(folder, cgroups) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(json.loads(sys.argv[1])))
