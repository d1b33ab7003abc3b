"""The namespaces that a lab lives in, and the one process that it begins and ends with (`keeper`).

Also what a lab has outside of them: its folder, its cgroups, and a file by which another process finds it.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kube import assets

from lab import keeper, machines, needs
from lab.inside import LabError, Place
from lab.processes import alive, began, in_cgroup, kill, tail

# Inside the lab these are not what they are outside.
_TAKEN = ("/run", "/proc", "/sys", "/dev", "/var/lib", "/var/log")
_FOLDERS = ("log", "run", "bin", "images", "tmp")
_STOP_S, _DIE_S = 240.0, 90.0
_LOOK_EVERY_S = 0.02


class Sandbox:
    """See above. `attached`: it ends with this process, however that ends."""

    def __init__(self, folder: Path, *, attached: bool) -> None:
        self.folder = folder.resolve()
        self._attached = attached
        self._tag = f"hyperscout-lab-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]}"
        self.hierarchies = needs.hierarchies()
        self._keeper: subprocess.Popen[bytes] | None = None
        self.keeper_id = (0, 0)  # its process id, and when it began
        self._place: Place | None = None

    @property
    def place(self) -> Place:
        """Where the control plane is."""
        if self._place is None:
            raise LabError(f"{self.folder}: no lab runs there")
        return self._place

    def cgroups(self, name: str) -> list[str]:
        """The cgroups of a part of the lab; "": those above all parts."""
        return [str(one.folder / self._tag / name) for one in self.hierarchies]

    def place_of(self, name: str, pid: int) -> Place:
        """A part of the lab, by its first process."""
        tmp, home = self.folder / "tmp" / name, self.folder / "run"
        tmp.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{needs.PATH}",
            "TMPDIR": str(tmp),
            "KUBECONFIG": str(self.folder / "keys" / "admin.kubeconfig"),
            "KUBECACHEDIR": str(home / "kube"),
            **{
                f"HELM_{kind}_HOME": str(home / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")
            },
        }
        return Place(pid, tuple(self.cgroups(name)), environment)

    # --- its life -------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the folder ready. Raises LabError where no lab can be; says why."""
        if trouble := needs.lack():
            raise LabError(f"no lab can run here: {trouble}")
        if any(self.folder.is_relative_to(taken) for taken in _TAKEN):
            raise LabError(f"{self.folder}: a lab has its own {', '.join(_TAKEN)}; choose another folder")
        self.folder.mkdir(parents=True, exist_ok=True)
        if trouble := needs.overlay_trouble(self.folder):
            raise LabError(trouble)
        if alive(self.read_state().get("keeper")):
            raise LabError(f"{self.folder}: a lab runs there already; end it, or choose another folder")
        roots = self.cgroups("")
        if not keeper.sweep(self.folder, roots):
            raise LabError(f"{roots[0]} is left of a lab before this one, and a process is in it")
        for name in ("log", "bin", "keys"):  # another cluster trusts no key of the last one
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in _FOLDERS:
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "resolv.conf").write_text(f"nameserver {machines.GATEWAY}\n")
        for name in (*needs.PROGRAMS, *needs.OPTIONAL):
            if found := assets.find(name):
                (self.folder / "bin" / name).symlink_to(found)

    def start(self) -> None:
        """Start the keeper, and with it the sandbox."""
        spec = {
            "folder": str(self.folder),
            "cgroups": self.cgroups(""),
            "own": self.cgroups("cp"),
            "first": str(assets.find("pause")),
            "attached": self._attached,
        }
        log = self.folder / "log" / "keeper"
        with log.open("ab") as out:
            started = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, json.dumps(spec)],
                stdin=subprocess.PIPE if self._attached else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
            )
        self._keeper = started
        assert started.stdout is not None
        with started.stdout as said:
            line = said.readline()
        if not line:
            raise LabError(f"the sandbox does not start:\n{tail(log)}")
        self.keeper_id = (started.pid, began(started.pid))
        self._place = self.place_of("cp", int(line))
        self.script(self._place, machines.SANDBOX, "lab-cp", self.folder / "run")

    def attach(self) -> dict[str, Any]:
        """Find the sandbox that another process started. Returns what that one wrote down."""
        state = self.read_state()
        if not alive(state.get("keeper")):
            raise LabError(f"{self.folder}: no lab runs there")
        self.keeper_id = (state["keeper"][0], state["keeper"][1])
        self._place = self.place_of("cp", state["sandbox"])
        return state

    def stop(self) -> None:
        """End it all at once; back when nothing is left of it."""
        if alive(self.keeper_id):
            os.kill(self.keeper_id[0], signal.SIGTERM)
        code = 0
        if self._keeper is not None:
            if self._keeper.stdin is not None:
                self._keeper.stdin.close()
            try:
                code = self._keeper.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                code = self._keeper.wait()
        give_up_s = time.monotonic() + _STOP_S
        while alive(self.keeper_id) and time.monotonic() < give_up_s:
            time.sleep(_LOOK_EVERY_S)
        self._keeper, self.keeper_id, self._place = None, (0, 0), None
        if code:
            log = self.folder / "log" / "keeper"
            raise LabError(f"the lab may have left something behind: {tail(log) or 'cgroups of its nodes'}")

    def script(self, place: Place, text: str, name: str, data: Path) -> None:
        """Run one of the scripts in `machines`."""
        options = " ".join(one.options for one in self.hierarchies)
        env = {"NAME": name, "FOLDER": str(self.folder), "DATA": str(data), "HIERARCHIES": options}
        place.run(["sh", "-c", text], env=env)

    def power_off(self, name: str, first: int) -> None:
        """Kill a machine at once, by its `first` process; back when only its disk and its cables are left."""
        # The first process of a node takes all others with it; a switch's are found by their cgroup.
        cgroup = self.cgroups(name)[0]
        for pid in (first, *in_cgroup(cgroup)):
            kill(pid)
        # Its links are dark at once, though the kernel takes a second or two to clear away after it.
        self.place.run(["sh", "-c", machines.power_off(name)], check=False)
        give_up_s = time.monotonic() + _DIE_S
        while left := {*in_cgroup(cgroup), *([first] if began(first) else ())}:
            if time.monotonic() > give_up_s:
                raise LabError(f"{name}: processes {sorted(left)} do not die")
            for pid in left:
                kill(pid)
            time.sleep(_LOOK_EVERY_S)
        # A kubelet waits seconds for each cgroup of a former life.
        if not keeper.remove_cgroups(self.cgroups(name)):
            raise LabError(f"{name}: its cgroups cannot be removed")

    # --- how others find it ---------------------------------------------------------------------------------

    def read_state(self) -> dict[str, Any]:
        """What was written down; nothing where no lab runs."""
        with contextlib.suppress(FileNotFoundError):
            state: dict[str, Any] = json.loads((self.folder / keeper.STATE).read_text())
            return state
        return {}

    def write_state(self, more: dict[str, Any]) -> None:
        """Write down what another process needs to act on the lab."""
        fresh = self.folder / f"{keeper.STATE}.new"
        state = {"keeper": self.keeper_id, "sandbox": self.place.pid, **more}
        fresh.write_text(json.dumps(state, indent=1))
        fresh.replace(self.folder / keeper.STATE)
