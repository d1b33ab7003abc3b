"""A lab touches nothing of the machine and leaves nothing, however it ends: compared before and after."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab import keeper
from lab.cluster import Lab
from lab.inside import LabError
from lab.processes import began, in_cgroup
from lab.sandbox import Sandbox
from support.real import ROOT, require_real
from support.waiting import TIMEOUT_S, until_seen

require_real("lab")

# What other test runs on this machine make: namespaces (hs, a process id, x, a number), the folder that
# `ip netns` mounts for its first one, images, and the folders of lldpd.
OTHERS = re.compile(r"\bhs[a-z]*\d+x\d+| /run/netns |/hyperscout/images/|/hyperscout-lldp-")
DATA = ("lab.json", "nodes", "etcd", "run")
# The kernel writes these itself.
COUNTED = ("/proc/sys/kernel/ns_last_pid", "/proc/sys/kernel/random/", "/proc/sys/fs/dentry-state")
# Starts a lab with a node and a switch, prints its keeper, and stays until it is killed.
STARTER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lab.cluster import Lab
with Lab(Path(sys.argv[2]), say=lambda _: None) as lab:
    lab.add_node("node1")
    lab.machine("leaf-x")
    lab.await_ready(["node1"])
    print(lab.keeper_pid, flush=True)
    time.sleep(1000)
"""


def namespaces(pids: Iterable[int]) -> set[str]:
    """What these processes are in."""
    found = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/ns").glob("*"):
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found


def all_processes() -> set[int]:
    return {int(path.name) for path in Path("/proc").glob("[0-9]*")}


def sysctls() -> dict[str, str]:
    """What the kernel is set to. What cannot be written is no setting."""
    found = {}
    for path in Path("/proc/sys").rglob("*"):
        if str(path).startswith(COUNTED):
            continue
        try:
            if path.is_file() and path.stat().st_mode & 0o200:
                found[str(path)] = path.read_text()
        except OSError:
            continue
    return found


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout


def names(*folders: str) -> set[str]:
    """What lies in the folders."""
    return {str(path) for folder in folders for path in Path(folder).glob("*")}


def but_others(lines: Iterable[str]) -> set[str]:
    """The lines without what other test runs on this machine make."""
    return {line for line in lines if not OTHERS.search(line)}


@dataclass
class Machine:
    """What a lab could change of it."""

    links: set[str]
    routes: set[str]
    rules: str
    mounts: set[str]
    names: set[str]
    sysctls: dict[str, str]

    @classmethod
    def now(cls) -> "Machine":
        routes = ("route", "show", "table", "all")
        return cls(
            links=but_others(said("ip", "-o", "link").splitlines()),
            routes=but_others((said("ip", *routes) + said("ip", "-6", *routes)).splitlines()),
            rules=said("nft", "list", "ruleset"),
            mounts=but_others(Path("/proc/self/mounts").read_text().splitlines()),
            names=but_others(
                names("/opt", "/etc", "/usr/libexec", "/var/lib", "/var/log", "/run", "/run/netns")
            ),
            sysctls=sysctls(),
        )


DAEMONS = {"etcd", "kube-apiserver", "kubelet", "containerd"}


class Watched:
    """A lab in a folder, and whether anything of it is left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._cgroups = [Path(path) for path in Sandbox(folder, attached=True).cgroups("")]
        self.processes: set[int] = set()
        self._namespaces: set[str] = set()
        self._held: list[int] = []

    def look(self, *more: int) -> None:
        """Remember what the lab has now."""
        self.processes = {*more, *in_cgroup(str(self._cgroups[0]))}
        self._namespaces = namespaces(self.processes) - namespaces([os.getpid()])
        assert len(self.processes) > 8
        assert len(self._namespaces) > 8
        # The kernel gives the number of one that is gone to another: hold on to them.
        for pid in self.processes:
            with contextlib.suppress(OSError):
                self._held += [os.open(path, os.O_RDONLY) for path in Path(f"/proc/{pid}/ns").glob("*")]

    def daemons(self) -> dict[str, set[int]]:
        """The processes of the programs that run as long as the lab does. Others come and go."""
        found: dict[str, set[int]] = {}
        for pid in in_cgroup(str(self._cgroups[0])):
            with contextlib.suppress(OSError):
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name in DAEMONS:
                    found.setdefault(name, set()).add(pid)
        return found

    def lives(self) -> bool:
        return any(began(pid) for pid in self.processes)

    def assert_gone(self, *, cgroups: bool = True) -> None:
        """Nothing is left but its logs."""
        assert self.processes, "look() was not called"
        until_seen(lambda: not self.lives(), "its processes end")
        until_seen(
            lambda: not self._namespaces & namespaces(all_processes()), "nothing runs in its namespaces"
        )
        if cgroups:
            until_seen(lambda: not any(path.exists() for path in self._cgroups), "its cgroups are gone")
            until_seen(lambda: not any((self.folder / name).exists() for name in DATA), "its data is gone")
            assert (self.folder / "log" / "kubelet-node1").stat().st_size

    def let_go(self) -> None:
        for held in self._held:
            os.close(held)
        self._held.clear()


@contextmanager
def nothing_changes(folder: Path) -> Iterator[Watched]:
    before = Machine.now()
    by_itself = {name for name, value in sysctls().items() if before.sysctls.get(name) != value}
    watched = Watched(folder)
    yield watched
    watched.assert_gone()
    watched.let_go()
    after = Machine.now()
    for name in ("links", "routes", "rules", "mounts", "names"):
        assert getattr(before, name) == getattr(after, name), name
    changed = {name for name, value in before.sysctls.items() if after.sysctls.get(name, value) != value}
    assert not changed - by_itself


def test_a_lab_that_is_stopped(tmp_path: Path) -> None:
    with nothing_changes(tmp_path / "lab") as watched, Lab(watched.folder, say=lambda _: None) as lab:
        lab.add_node("node1")
        lab.machine("leaf-x")
        lab.await_ready(["node1"])
        watched.look(lab.keeper_pid)


@pytest.mark.parametrize("victim", ["its starter", "its keeper"])
def test_a_lab_that_is_killed(tmp_path: Path, victim: str) -> None:
    with nothing_changes(tmp_path / "lab") as watched:
        command = [sys.executable, "-c", STARTER, str(ROOT / "tests"), str(watched.folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
            try:
                assert starter.stdout is not None
                keeper_pid = int(starter.stdout.readline())
                watched.look(keeper_pid)
                os.kill(starter.pid if victim == "its starter" else keeper_pid, signal.SIGKILL)
                until_seen(lambda: not watched.lives(), "its end")
            finally:
                starter.kill()
        if victim == "its keeper":
            # No process was left to sweep: the next one in the folder does.
            with pytest.raises(LabError, match="no lab runs there"):
                Lab.attach(watched.folder)
            watched.assert_gone(cgroups=False)
            keeper.sweep(watched.folder, Sandbox(watched.folder, attached=True).cgroups(""))


def test_a_lab_that_is_ended_by_another_process(tmp_path: Path) -> None:
    def lab(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(ROOT / "tests" / "lab"), "--folder", str(tmp_path / "lab"), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    with nothing_changes(tmp_path / "lab") as watched:
        try:
            up = lab("up", "--nodes", "1")
            assert up.returncode == 0, up.stderr
            assert "node1\tnode\t10.77.0.11\tReady" in up.stdout
            watched.look()
            daemons = watched.daemons()
            assert daemons.keys() == DAEMONS
            assert lab("up", "--nodes", "1").returncode == 0
            assert watched.daemons() == daemons  # a second `up` restarts nothing
        finally:
            down = lab("down")
        assert down.returncode == 0, down.stderr
    down = lab("down")
    assert (down.returncode, "no lab runs there" in down.stderr) == (1, True)
