"""A cluster of real kubelets on one machine.

    with Lab(folder, images=[agent, collector]) as lab:
        lab.add_nodes(["node1", "node2"])
        lab.await_ready(["node1", "node2"], timeout_s=60)
        print(lab.kubectl("get", "nodes"))
        lab.kill_node("node2")                       # as by a power cut
        lab.revive_node("node2")

All of it lives in a sandbox of namespaces, begins below one process (`keeper`) and ends with it, however whoever
started it ends. The folder holds all it writes; nothing else of the machine is changed. What the machine must have
is in `needs`. Whoever else has the folder may act on it: `attach`.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kube import assets

from lab import keeper, machines, needs, oci
from lab.control import Control, Keys
from lab.inside import CommandError, LabError, Place, Program
from lab.kubelets import NodePrograms, import_image
from lab.machines import Machine

# Inside the lab these are not what they are outside.
_TAKEN = ("/run", "/proc", "/sys", "/dev", "/var/lib", "/var/log")
_START_S, _STOP_S = 20.0, 40.0
_LOOK_EVERY_S = 0.1
_AT_ONCE = 3


class Lab:
    """See above. `images`: tars that each node gets, also those that come later. `say`: hears what goes on.

    `attached`: the lab ends with this process. Otherwise it stays until it is stopped.
    """

    def __init__(
        self,
        folder: Path,
        *,
        images: Sequence[Path] = (),
        say: Callable[[str], None] = print,
        attached: bool = True,
    ) -> None:
        self.folder = folder.resolve()
        self.say, self._attached = say, attached
        self._given = [image.resolve() for image in images]
        self._tag = f"hyperscout-lab-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]}"
        self._hierarchies = needs.hierarchies()
        self._machines: dict[str, Machine] = {}
        self._addresses: dict[str, tuple[str, str]] = {}  # of every machine that was: kind, address
        self._programs: dict[str, list[Program]] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        self._keeper_id = (0, 0)
        self._place: Place | None = None
        self._keys: Keys | None = None
        self._lock = threading.RLock()

    # --- its life -------------------------------------------------------------------------------------------

    def __enter__(self) -> "Lab":
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the sandbox and a control plane in it. Raises LabError where that cannot be; says why."""
        if trouble := needs.lack():
            raise LabError(f"no lab can run here: {trouble}")
        if any(self.folder.is_relative_to(taken) for taken in _TAKEN):
            raise LabError(f"{self.folder}: the lab has its own {', '.join(_TAKEN)}; choose another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        if trouble := needs.overlay_trouble(self.folder):
            raise LabError(trouble)
        if _alive(_read_state(self.folder).get("keeper")):
            raise LabError(f"{self.folder}: a lab runs there already; end it first, or choose another folder")
        began_s = time.monotonic()
        roots = self._cgroups("")
        if not keeper.sweep(self.folder, roots):
            raise LabError(f"{roots[0]} is left of a lab before this one, and somebody is in it")
        for name in ("log", "run", "bin", "images", "tmp", "keys"):
            (self.folder / name).mkdir(exist_ok=True)
        for log in (self.folder / "log").iterdir():
            log.unlink()
        self._link_programs()
        self._make_images()
        (self.folder / "resolv.conf").write_text(f"nameserver {machines.GATEWAY}\n")
        shutil.rmtree(self.folder / "keys")  # another cluster trusts nobody of the last one
        self._keys = Keys(self.folder / "keys")
        self._keys.make()
        self._start_sandbox()
        control = Control(self.folder, self.place, self.keys)
        control.start()
        self._programs[""] = control.programs
        self._write_state()
        self.say(f"control plane ready after {time.monotonic() - began_s:.1f} s")

    @classmethod
    def attach(cls, folder: Path, say: Callable[[str], None] = print) -> "Lab":
        """A lab that another process started. Raises LabError when none runs in the folder."""
        lab = cls(folder, say=say, attached=False)
        state = _read_state(lab.folder)
        if not _alive(state.get("keeper")):
            raise LabError(f"{lab.folder}: no lab runs there")
        lab._keeper_id = tuple(state["keeper"])
        lab._given = [Path(image) for image in state["images"]]
        lab._place = lab._place_of("cp", state["sandbox"])
        lab._keys = Keys(lab.folder / "keys")
        for name, one in state["machines"].items():
            lab._addresses[name] = (one["kind"], one["ip"])
            if _alive(one["outer"]):
                lab._machines[name] = Machine(
                    name, one["kind"], one["ip"], one["inner"], lab._place_of(name, one["outer"][0])
                )
        return lab

    def stop(self) -> None:
        """End it all at once. What its programs said stays in the folder."""
        pid, began = self._keeper_id
        if _alive([pid, began]):
            os.kill(pid, signal.SIGTERM)
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()
            try:
                code = self._keeper.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                self._keeper.wait()
                code = -1
            self._keeper = None
            if code:
                raise LabError(f"the lab left something behind; see {self.folder / 'log' / 'keeper'}")
        else:
            give_up_s = time.monotonic() + _STOP_S
            while _alive([pid, began]) and time.monotonic() < give_up_s:
                time.sleep(_LOOK_EVERY_S)
        self._keeper_id = (0, 0)
        self._place = None
        self._machines.clear()
        self._programs.clear()

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """A cluster administrator's, for use inside the lab."""
        return self.keys.admin

    @property
    def keys(self) -> Keys:
        assert self._keys is not None, "not started"
        return self._keys

    @property
    def place(self) -> Place:
        """The sandbox: the control plane's network, and all process ids."""
        if self._place is None:
            raise LabError("the lab is not started")
        return self._place

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: str | bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in the sandbox. Raises CommandError when it fails (`check`) or is too slow."""
        return self.place.run(argv, stdin=stdin, timeout_s=timeout_s, check=check)

    def popen(self, argv: Sequence[str | Path], log: Path) -> Program:
        """Start a program in the sandbox, which runs until it is killed or the lab ends."""
        return self.place.popen(argv, log)

    def kubectl(
        self, *words: str, stdin: str | bytes | None = None, timeout_s: float = 60.0, check: bool = True
    ) -> str:
        """What kubectl prints."""
        return self.run(["kubectl", *words], stdin=stdin, timeout_s=timeout_s, check=check).stdout

    def helm(self, *words: str, timeout_s: float = 120.0, check: bool = True) -> str:
        """What helm prints."""
        return self.run(["helm", *words], timeout_s=timeout_s, check=check).stdout

    def get(self, *words: str) -> dict[str, Any]:
        """`kubectl get WORDS -o json`."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    # --- machines -------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> dict[str, Machine]:
        """The nodes that run, by name."""
        with self._lock:
            found = [one for one in self._machines.values() if one.kind == "node"]
        return {one.name: one for one in sorted(found, key=lambda one: machines.number_of(one.name))}

    @property
    def switches(self) -> dict[str, Machine]:
        """The other machines that run, by name."""
        with self._lock:
            return {one.name: one for one in self._machines.values() if one.kind != "node"}

    def add_node(self, name: str) -> Machine:
        """A new node, named node1 to node80. Back when its kubelet runs; `await_ready` waits for it."""
        address = f"{machines.NET}.{machines.NODE_ADDRESSES + machines.number_of(name)}"
        with self._lock:
            if name in self._addresses:
                raise LabError(f"{name} is there already")
            self._addresses[name] = ("node", address)
        return self._start_node(name)

    def add_nodes(self, names: Sequence[str]) -> None:
        """Several new nodes, some at a time."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.add_node, names))

    def kill_node(self, name: str) -> None:
        """The machine is gone at once, as by a power cut. What is on its disk stays, and so do its cables."""
        with self._lock:
            machine = self._machines.pop(name, None)
            if machine is None:
                raise LabError(f"{name} does not run; what runs is {', '.join(self._machines) or 'nothing'}")
            self._programs.pop(name, None)
        self._kill(machine)
        self._write_state()

    def revive_node(self, name: str) -> Machine:
        """The machine boots again, with the disk and the cables that it had."""
        with self._lock:
            if name not in self._addresses:
                raise LabError(f"{name} never was")
            if name in self._machines:
                raise LabError(f"{name} runs")
            kind, _ = self._addresses[name]
        return self._start_node(name) if kind == "node" else self._boot(name)

    def machine(self, name: str) -> Machine:
        """A machine with a network, a name and mounts of its own, and nothing that runs on it: a switch."""
        with self._lock:
            if name in self._addresses:
                raise LabError(f"{name} is there already")
            number = 1 + sum(kind != "node" for kind, _ in self._addresses.values())
            self._addresses[name] = ("switch", f"{machines.NET}.{machines.SWITCH_ADDRESSES + number}")
        return self._boot(name)

    def await_ready(self, names: Sequence[str], timeout_s: float = 60.0) -> None:
        """Wait until all these nodes are ready."""
        give_up_s = time.monotonic() + timeout_s
        while late := [name for name in names if not self._ready().get(name)]:
            self._check_programs()
            if time.monotonic() > give_up_s:
                tails = "\n".join(_tail(self.folder / "log" / f"kubelet-{name}") for name in late[:1])
                raise LabError(f"not ready after {timeout_s:g} s: {', '.join(late)}\n{tails}")
            time.sleep(_LOOK_EVERY_S)

    def await_not_ready(self, names: Sequence[str], timeout_s: float = 60.0) -> None:
        """Wait until the cluster knows that these nodes are not ready."""
        give_up_s = time.monotonic() + timeout_s
        while still := [name for name in names if self._ready().get(name, True)]:
            if time.monotonic() > give_up_s:
                raise LabError(f"still ready after {timeout_s:g} s: {', '.join(still)}")
            time.sleep(_LOOK_EVERY_S)

    def import_image(self, tar: Path, nodes: Sequence[str] | None = None) -> None:
        """Give nodes an image; without `nodes` all that run, and those that come later."""
        tar = tar.resolve()
        if nodes is None and tar not in self._given:
            self._given.append(tar)
            self._write_state()
        running = self.nodes
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            wanted = running if nodes is None else nodes
            list(pool.map(lambda name: import_image(running[name], tar), wanted))

    # --- how ------------------------------------------------------------------------------------------------

    def _link_programs(self) -> None:
        bin_folder = self.folder / "bin"
        shutil.rmtree(bin_folder)
        bin_folder.mkdir()
        for name in (*needs.PROGRAMS, *needs.OPTIONAL):
            if found := assets.find(name):
                (bin_folder / name).symlink_to(found)

    def _make_images(self) -> None:
        pause, busybox = assets.find("pause"), needs.busybox()
        assert pause is not None
        assert busybox is not None
        folder = self.folder / "images"
        self._own = [oci.pause(folder / "pause.tar", pause), oci.busybox(folder / "busybox.tar", busybox)]

    def _cgroups(self, name: str) -> list[str]:
        """The cgroups of a part of the lab; "": those above all parts."""
        return [str(one.folder / self._tag / name) for one in self._hierarchies]

    def _place_of(self, name: str, pid: int) -> Place:
        tmp = self.folder / "tmp" / name
        tmp.mkdir(parents=True, exist_ok=True)
        home = self.folder / "run"
        environment: Mapping[str, str] = os.environ | {
            "PATH": f"{self.folder / 'bin'}:{needs.PATH}",
            "TMPDIR": str(tmp),
            "KUBECONFIG": str(self.folder / "keys" / "admin.kubeconfig"),
            "KUBECACHEDIR": str(home / "kube"),
            **{f"HELM_{kind}_HOME": str(home / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
        }
        return Place(pid, tuple(self._cgroups(name)), environment)

    def _start_sandbox(self) -> None:
        first = assets.find("pause")
        roots, own = self._cgroups(""), self._cgroups("cp")
        spec = {
            "folder": str(self.folder),
            "cgroups": [root.rstrip("/") for root in roots],
            "own": own,
            "first": str(first),
            "attached": self._attached,
        }
        with (self.folder / "log" / "keeper").open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, json.dumps(spec)],
                stdin=subprocess.PIPE if self._attached else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._keeper.stdout is not None
        with self._keeper.stdout as said:
            line = said.readline()
        if not line:
            raise LabError(f"the sandbox does not start:\n{_tail(self.folder / 'log' / 'keeper')}")
        self._keeper_id = (self._keeper.pid, _began(self._keeper.pid))
        if not self._attached:
            self._keeper = None  # it is nobody's child from here on
        self._place = self._place_of("cp", int(line))
        self._write_state()
        self._script(self._place, machines.SANDBOX, "lab-cp", self.folder / "run")

    def _script(self, place: Place, text: str, name: str, data: Path) -> None:
        env = machines.environment(name, self.folder, data, self._hierarchies)
        place.run(["sh", "-c", text], env=env)

    def _boot(self, name: str) -> Machine:
        """Start a machine, or start it again."""
        if not name or len(name) > machines.MAX_NAME or not name.replace("-", "").isalnum():
            raise ValueError(f"{name!r}: letters, digits and hyphens, {machines.MAX_NAME} at most")
        with self._lock:
            kind, address = self._addresses[name]
        data = self.folder / "nodes" / name
        (data / "run").mkdir(parents=True, exist_ok=True)
        keeper.make_cgroups(self._cgroups(name))
        self.place.run(["sh", "-c", machines.wire_up(name, kind, address)])
        outside = Place(self.place.pid, tuple(self._cgroups(name)), self.place.environment)
        pause = self.folder / "bin" / "pause"
        log = self.folder / "log" / f"machine-{name}"
        pid, inner = outside.first([pause], log, f"/run/netns/{name}", machines.OWN[kind])
        machine = Machine(name, kind, address, inner, self._place_of(name, pid))
        try:
            self._script(machine.place, machines.SCRIPT[kind], name, data)
        except CommandError:
            self._kill(machine)
            raise
        with self._lock:
            self._machines[name] = machine
        self._write_state()
        return machine

    def _start_node(self, name: str) -> Machine:
        machine = self._boot(name)
        runc, plugins = needs.runc(), needs.plugins()
        assert runc is not None
        assert plugins is not None
        data = self.folder / "nodes" / name
        programs = NodePrograms(machine, data, self.folder / "log", self.keys, runc, plugins)
        have = data / "images"  # what its disk holds already
        held = set(have.read_text().splitlines()) if have.exists() else set()
        wanted = [*self._own_images(), *self._given]
        programs.start([image for image in wanted if str(image) not in held])
        have.write_text("\n".join(sorted({str(image) for image in wanted} | held)))
        with self._lock:
            self._programs[name] = programs.programs
        return machine

    def _own_images(self) -> list[Path]:
        return [self.folder / "images" / name for name in ("pause.tar", "busybox.tar")]

    def _kill(self, machine: Machine) -> None:
        # The first process of a node takes all others with it; a switch's are found by their cgroup.
        give_up_s = time.monotonic() + _START_S
        while True:
            found = {machine.outer_pid} if Path(f"/proc/{machine.outer_pid}").exists() else set()
            found = set(_processes(self._cgroups(machine.name)[:1])) | found
            if not found:
                break
            if time.monotonic() > give_up_s:
                raise LabError(f"{machine.name}: processes {sorted(found)} do not die")
            for pid in found:
                _kill(pid)
            time.sleep(_LOOK_EVERY_S / 10)
        self.place.run(["sh", "-c", machines.power_off(machine.name)], check=False)
        # cadvisor waits seconds for each cgroup of a former life.
        if not keeper.remove_cgroups(self._cgroups(machine.name)):
            raise LabError(f"{machine.name}: its cgroups cannot be removed")

    def _ready(self) -> dict[str, bool]:
        listed = json.loads(self.kubectl("get", "--raw", "/api/v1/nodes"))
        return {
            node["metadata"]["name"]: any(
                one["type"] == "Ready" and one["status"] == "True"
                for one in node.get("status", {}).get("conditions", ())
            )
            for node in listed["items"]
        }

    def _check_programs(self) -> None:
        with self._lock:
            running = [program for programs in self._programs.values() for program in programs]
        for program in running:
            if not program.alive:
                raise LabError(f"{program.name} has ended; the end of {program.log}:\n{program.tail()}")

    def _write_state(self) -> None:
        with self._lock:
            state = {
                "keeper": list(self._keeper_id),
                "sandbox": self.place.pid,
                "images": [str(image) for image in self._given],
                "machines": {
                    name: {
                        "kind": kind,
                        "ip": ip,
                        **(
                            {"outer": [one.outer_pid, _began(one.outer_pid)], "inner": one.pid}
                            if (one := self._machines.get(name))
                            else {"outer": None, "inner": 0}
                        ),
                    }
                    for name, (kind, ip) in self._addresses.items()
                },
            }
            path = self.folder / keeper.STATE
            fresh = path.with_suffix(".new")
            fresh.write_text(json.dumps(state, indent=1))
            fresh.replace(path)


@contextmanager
def lab_at(folder: Path, nodes: int, images: Sequence[Path] = ()) -> Iterator[Lab]:
    """A lab of so many ready nodes."""
    with Lab(folder, images=images) as lab:
        names = [f"node{number}" for number in range(1, nodes + 1)]
        lab.add_nodes(names)
        lab.await_ready(names)
        yield lab


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((folder / keeper.STATE).read_text())
    except FileNotFoundError:
        return {}
    return state


def _began(pid: int) -> int:
    """When a process began, in clock ticks since boot (proc(5), field 22): tells it from another of its number."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def _alive(process: Sequence[int] | None) -> bool:
    return bool(process and process[0] and process[1] and _began(process[0]) == process[1])


def _processes(cgroups: Sequence[str]) -> Iterator[int]:
    for root in cgroups:
        for procs in Path(root).rglob("cgroup.procs"):
            try:
                yield from map(int, procs.read_text().split())
            except OSError:
                continue


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _tail(log: Path, lines: int = 15) -> str:
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
