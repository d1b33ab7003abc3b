"""A cluster of real kubelets on one machine.

    with Lab(folder, images=[agent, collector]) as lab:
        lab.add_nodes(["node1", "node2"])
        lab.await_ready(["node1", "node2"], timeout_s=60)
        print(lab.kubectl("get", "nodes"))
        lab.kill_node("node2")                       # as by a power cut
        lab.revive_node("node2")

All of it lives in a sandbox of namespaces, begins below one process and ends with it, however its starter
ends (`sandbox`). The folder holds all it writes; nothing else of the machine is changed. What the machine
must have is in `needs`. Another process that has the folder may act on it: `attach`.
"""

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kube import assets

from lab import keeper, machines, needs, oci
from lab.control import Control, Keys
from lab.inside import LabError, Place, Program
from lab.kubelets import PLUGINS_OFF, NodePrograms
from lab.machines import Machine
from lab.processes import alive, began, tail
from lab.sandbox import Sandbox
from lab.store import ImageStore

_LOOK_EVERY_S = 0.1
_AT_ONCE = 3


class Lab:
    """See above. `images`: tars that each node gets, also those that come later. `say`: hears what goes on.
    `control`: the control plane, of a lab that this process started.

    `attached`: the lab ends with this process. Otherwise it stays until it is stopped. `two_zones`: each
    kubelet has two NUMA nodes, and places each pod in one of them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        images: Sequence[Path] = (),
        say: Callable[[str], None] = print,
        attached: bool = True,
        two_zones: bool = False,
    ) -> None:
        self._two_zones = two_zones
        self._sandbox = Sandbox(folder, attached=attached)
        self.folder, self.say = self._sandbox.folder, say
        self._images = [image.resolve() for image in images]
        self._own = [self.folder / "images" / name for name in ("pause.tar", "busybox.tar")]
        self._known: dict[str, tuple[str, str]] = {}  # kind and address, also of machines that are off
        self._machines: dict[str, Machine] = {}
        self._programs: dict[str, list[Program]] = {}
        self._keys: Keys | None = None
        self.control: Control | None = None
        self._lock = threading.RLock()

    # --- its life -------------------------------------------------------------------------------------------

    def __enter__(self) -> "Lab":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the sandbox and a control plane in it. Raises LabError where that cannot be; says why."""
        began_s = time.monotonic()
        _check_images(self._images)
        self._sandbox.prepare()
        self._make_images()
        try:
            self._keys = Keys(self.folder / "keys")
            self._keys.make()
            self._sandbox.start()
            self._write_state()
            self.control = Control(self.folder, self.place, self._keys)
            self._programs[""] = self.control.programs
            with ThreadPoolExecutor(1) as pool:
                filled = pool.submit(self._fill_store)
                self.control.start()
                filled.result()
        except BaseException:
            with contextlib.suppress(LabError):  # why it did not start says more
                self.stop()
            raise
        self.say(f"control plane ready after {time.monotonic() - began_s:.1f} s")

    @classmethod
    def attach(cls, folder: Path, say: Callable[[str], None] = print) -> "Lab":
        """A lab that another process started. Raises LabError when none runs in the folder."""
        lab = cls(folder, say=say, attached=False)
        state = lab._sandbox.attach()
        lab._keys = Keys(lab.folder / "keys")
        lab._images = [Path(image) for image in state["images"]]
        for name, (kind, address, process, inner) in state["machines"].items():
            lab._known[name] = (kind, address)
            if alive(process):
                place = lab._sandbox.place_of(name, process[0])
                lab._machines[name] = Machine(name, kind, address, inner, place)
        return lab

    def stop(self) -> None:
        """End it all at once. What its programs said stays in the folder."""
        with self._lock:
            self._machines.clear()
            self._programs.clear()
            self._known.clear()
        self._sandbox.stop()

    @property
    def keeper_pid(self) -> int:
        """The one process that it all lives and ends with; 0 when the lab does not run."""
        return self._sandbox.keeper_id[0]

    # --- inside ---------------------------------------------------------------------------------------------

    @property
    def kubeconfig(self) -> Path:
        """A cluster administrator's, for use inside the lab."""
        assert self._keys is not None, "not started"
        return self._keys.admin

    @property
    def place(self) -> Place:
        """The sandbox: the control plane's network, and all process ids."""
        return self._sandbox.place

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

    def kubectl_command(self) -> list[str]:
        """How a command line with kubectl begins, for `run` and `popen`."""
        return ["kubectl", f"--kubeconfig={self.kubeconfig}"]

    def helm(self, *words: str, timeout_s: float = 120.0, check: bool = True) -> str:
        """What helm prints."""
        return self.run(["helm", *words], timeout_s=timeout_s, check=check).stdout

    def get(self, *words: str) -> dict[str, Any]:
        """`kubectl get WORDS -o json`."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    # --- machines -------------------------------------------------------------------------------------------

    @property
    def known(self) -> dict[str, tuple[str, str]]:
        """Kind ("node", "switch") and address of every machine, also of those that are off."""
        with self._lock:
            return dict(self._known)

    @property
    def nodes(self) -> dict[str, Machine]:
        """The nodes that run, by name."""
        return self._running("node")

    @property
    def switches(self) -> dict[str, Machine]:
        """The other machines that run, by name."""
        return self._running("switch")

    def add_node(self, name: str) -> Machine:
        """A new node, named node1 to node80. Back when its kubelet runs; `await_ready` waits for it."""
        self.add_nodes([name])
        return self.nodes[name]

    def add_nodes(self, names: Sequence[str]) -> None:
        """Several new nodes, some at a time."""
        addresses = [f"{machines.NET}.{machines.NODE_ADDRESSES + machines.number_of(name)}" for name in names]
        if trouble := needs.inotify_trouble(len(names)):
            raise LabError(trouble)
        for name, address in zip(names, addresses, strict=True):
            self._register(name, "node", address)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._start_node, names))

    def machine(self, name: str) -> Machine:
        """A machine with a network, a name and mounts of its own, and nothing that runs on it: a switch."""
        with self._lock:
            number = 1 + sum(kind == "switch" for kind, _ in self._known.values())
            self._register(name, "switch", f"{machines.NET}.{machines.SWITCH_ADDRESSES + number}")
        return self._boot(name)

    def kill_node(self, name: str) -> None:
        """The machine is gone at once, as by a power cut. What is on its disk stays, and so do its cables."""
        with self._lock:
            machine = self._machines.pop(name, None)
            if machine is None:
                raise LabError(f"{name} does not run; what runs is {', '.join(self._machines) or 'nothing'}")
            self._programs.pop(name, None)
        self._sandbox.power_off(machine.name, machine.outer_pid)
        self._write_state()

    def revive_node(self, name: str) -> Machine:
        """The machine boots again, with the disk and the cables that it had."""
        with self._lock:
            if name not in self._known:
                raise LabError(f"there is no {name} that could be revived")
            if name in self._machines:
                raise LabError(f"{name} runs")
            kind, _ = self._known[name]
        return self._start_node(name) if kind == "node" else self._boot(name)

    def ready(self) -> dict[str, bool]:
        """Each node that the cluster knows, and whether it is ready."""
        listed = json.loads(self.kubectl("get", "--raw", "/api/v1/nodes"))
        return {
            node["metadata"]["name"]: ("Ready", "True")
            in [(one["type"], one["status"]) for one in node.get("status", {}).get("conditions", ())]
            for node in listed["items"]
        }

    def await_ready(self, names: Sequence[str], timeout_s: float = 60.0) -> None:
        """Wait until all these nodes are ready. Raises LabError when that takes too long."""
        give_up_s = time.monotonic() + timeout_s
        while late := [name for name, ready in self._of(names) if not ready]:
            self._check_programs()
            if time.monotonic() > give_up_s:
                log = self.folder / "log" / f"kubelet-{late[0]}"
                raise LabError(f"not ready after {timeout_s:g} s: {', '.join(late)}\n{tail(log)}")
            time.sleep(_LOOK_EVERY_S)

    def await_not_ready(self, names: Sequence[str], timeout_s: float = 60.0) -> None:
        """Wait until none of these nodes is ready. Raises LabError when that takes too long."""
        give_up_s = time.monotonic() + timeout_s
        while still := [name for name, ready in self._of(names) if ready]:
            if time.monotonic() > give_up_s:
                raise LabError(f"still ready after {timeout_s:g} s: {', '.join(still)}")
            time.sleep(_LOOK_EVERY_S)

    def import_image(self, tar: Path, nodes: Sequence[str] | None = None) -> None:
        """Give nodes an image; without `nodes` all that run, and those that come later."""
        tar, running = tar.resolve(), self.nodes
        _check_images([tar])
        if nodes is None and tar not in self._images:
            self._images.append(tar)
            self._write_state()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda name: self._import(running[name], tar), nodes or running))

    # --- how ------------------------------------------------------------------------------------------------

    def _running(self, kind: str) -> dict[str, Machine]:
        with self._lock:
            found = [one for one in self._machines.values() if one.kind == kind]
        return {one.name: one for one in sorted(found, key=lambda one: (len(one.name), one.name))}

    def _register(self, name: str, kind: str, address: str) -> None:
        machines.check_name(name)
        with self._lock:
            if name in self._known:
                raise LabError(f"{name} is there already")
            self._known[name] = (kind, address)

    def _of(self, names: Sequence[str]) -> list[tuple[str, bool]]:
        ready = self.ready()
        return [(name, ready.get(name, False)) for name in names]

    def _make_images(self) -> None:
        pause, busybox = assets.find("pause"), needs.busybox()
        assert pause is not None
        assert busybox is not None
        for make, tar, program in zip((oci.pause, oci.busybox), self._own, (pause, busybox), strict=True):
            make(tar, program)

    def _fill_store(self) -> None:
        log = self.folder / "log" / "containerd-store"
        ImageStore(self.folder / "store").fill(self.place, [*self._own, *self._images], PLUGINS_OFF, log)

    def _boot(self, name: str) -> Machine:
        """Start a machine, or start it again."""
        sandbox = self._sandbox
        kind, address = self.known[name]
        data = sandbox.folder / "nodes" / name
        data.mkdir(parents=True, exist_ok=True)
        keeper.make_cgroups(sandbox.cgroups(name))
        sandbox.place.run(["sh", "-c", machines.wire_up(name, kind, address)])
        outside = Place(sandbox.place.pid, tuple(sandbox.cgroups(name)), sandbox.place.environment)
        log = sandbox.folder / "log" / f"machine-{name}"
        first = sandbox.folder / "bin" / "pause"
        pid, inner = outside.first([first], log, f"/run/netns/{name}", machines.OWN[kind])
        machine = Machine(name, kind, address, inner, sandbox.place_of(name, pid))
        try:
            sandbox.script(machine.place, machines.SCRIPT[kind], name, data)
        except BaseException:
            self._sandbox.power_off(machine.name, machine.outer_pid)
            raise
        with self._lock:
            self._machines[name] = machine
        self._write_state()
        return machine

    def _start_node(self, name: str) -> Machine:
        machine = self._boot(name)
        assert self._keys is not None
        programs = NodePrograms(machine, self.folder, self._keys, two_zones=self._two_zones)
        with self._lock:
            self._programs[name] = programs.programs
        programs.start([*self._own, *self._images])
        return machine

    def _import(self, node: Machine, tar: Path) -> None:
        assert self._keys is not None
        NodePrograms(node, self.folder, self._keys).import_image(tar)

    def _check_programs(self) -> None:
        with self._lock:
            running = [program for programs in self._programs.values() for program in programs]
        for program in running:
            if not program.alive:
                raise LabError(f"{program.name} has ended; the end of {program.log}:\n{program.tail()}")

    def _write_state(self) -> None:
        with self._lock:
            written: dict[str, Any] = {}
            for name, (kind, address) in self._known.items():
                one = self._machines.get(name)
                process = (one.outer_pid, began(one.outer_pid)) if one else None
                written[name] = (kind, address, process, one.pid if one else 0)
            images = [str(image) for image in self._images]
            self._sandbox.write_state({"images": images, "machines": written})


def _check_images(tars: Sequence[Path]) -> None:
    if absent := [str(tar) for tar in tars if not tar.is_file()]:
        raise LabError(f"no such image: {', '.join(absent)}")
