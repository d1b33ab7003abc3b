"""The lab's InfiniBand: ibsim plays the fabric, and real `ibnetdiscover` in the agents' pods sweeps it.

ibsim stands on a machine of its own in the management network and is asked by UDP, so that any agent can take
the sweep's lease; that agent looks from its own adapter. What a node itself shows of its adapter is a
tree of files like /sys/class/infiniband in its /run/lab/sys. In a pod all this is one volume:

    /run/lab/sys/class/infiniband      the adapter's files
    /run/lab/umad2sim/                 ibsim's client library, and a program that runs `ibnetdiscover` with it

That program and not the pod's environment carries the library: loaded into the agent itself, it would catch
the agent's own file accesses and hang wherever no ibsim answers.
"""

import io
import os
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hyperscout_sim.fabric.fabric import Cable, SimAdapter, SimFabric, SimSwitch, Truth
from hyperscout_sim.readings.ibsim_net import ibsim_net
from hyperscout_sim.readings.sysfs import tree

from lab.daemons import Daemon
from lab.panel import Machine
from lab.plan import IB_DEVICE, IB_RATE, IB_SWITCH_PORTS, IB_UPLINKS, PLAN, IbSwitch, Node, Plan
from lab.wires import Machines

MACHINE = "ibsim"
FOLDER = "/run/lab"  # on every node, and in the agent's pod
SYSFS = f"{FOLDER}/sys/class/infiniband"
LIBRARY = f"{FOLDER}/umad2sim/libumad2sim.so"
SWEEP = f"{FOLDER}/umad2sim/ibnetdiscover.py"
_VOLUME = "lab"
_MODEL = "MQM8700"
_PROMPT = b"sim> "
WAIT_S = 240.0
_LOOK_S = 0.01
_TRAINS_S = 2.0  # an agent looks at its ports each second

# What the agent runs in place of ibnetdiscover. ibsim's client calls its only device ibsim0, and makes a
# folder of files where it stands; it would wait for ever for an ibsim that is not there.
_SWEEP_PROGRAM = """\
import os, sys

arguments = ["ibsim0" if word == {device!r} else word for word in sys.argv[1:]]
node = os.environ.get("HYPERSCOUT_AGENT_NODE") or os.uname().nodename
os.environ.update(
    LD_PRELOAD={library!r}, IBSIM_SERVER_NAME={server!r}, SIM_HOST="H-%016x" % {guids!r}.get(node, 0)
)
os.chdir(os.environ.get("TMPDIR", "/tmp"))
os.execvp("ibnetdiscover", ["ibnetdiscover", *arguments])
"""


class InfinibandError(RuntimeError):
    """ibsim did not do what it was told, or is not there; says what it printed."""


class InfinibandFabric:
    """`up` first. Nodes are called by name, switches as in the plan."""

    def __init__(self, lab: Machines, plan: Plan = PLAN) -> None:
        self._lab = lab
        self.plan = plan
        self._ibsim: Daemon | None = None
        self._machine: Machine | None = None
        self._prompts = 0
        self._folder = lab.folder / "infiniband"
        # Which port of which switch a node's cable is in, and those whose cable gives no light.
        self._home = {node.name: (plan.ib_leaf(node.unit), node.place) for node in (*plan.nodes, *plan.later)}
        self._linked: set[str] = set()

    # --- the fabric -----------------------------------------------------------------------------------------

    def up(self) -> None:
        """ibsim, with all switches, and the nodes that are there."""
        self._folder.mkdir(exist_ok=True)
        self._machine = self._lab.machine(MACHINE)
        net, console = self._folder / "fabric.net", self._folder / "console"
        net.write_bytes(ibsim_net(self.fabric()))
        if not console.exists():
            os.mkfifo(console)
        # -r: by UDP; the only network there is here is the lab's own. The console stays open for writers to
        # come.
        play = 'exec ibsim -r -s -N 256 -S 64 -P 4096 "$1" 0<>"$2"'
        argv = ["sh", "-c", play, "sh", str(net), str(console)]
        log = self._folder / "ibsim.log"
        log.unlink(missing_ok=True)
        self._ibsim, self._prompts = Daemon(self._machine, "ibsim", argv, log), 1
        self._await_prompt()
        for node in self._lab.nodes:
            self.connect(node)

    def down(self) -> None:
        if self._ibsim is not None:
            self._ibsim.stop()
            self._ibsim = None

    def fabric(self) -> SimFabric:
        """The net as it starts: switches cabled, adapters not yet."""
        switches = tuple(
            SimSwitch(one.guid, one.name, f"MF0;{one.name}:{_MODEL}/U1", one.level, IB_SWITCH_PORTS)
            for one in self.plan.ib_switches
        )
        cables: list[Cable] = []
        for above in self.plan.ib_switches:
            below = [one for one in self.plan.ib_switches if one.above == above.name]
            ends = [(one.guid, port) for one in below for port in IB_UPLINKS]
            cables += [Cable(*end, above.guid, number, IB_RATE) for number, end in enumerate(ends, 1)]
        adapters = tuple(_adapter(node) for node in (*self.plan.nodes, *self.plan.later))
        return SimFabric("lab", switches, adapters, tuple(cables), Truth(()))

    # --- nodes and their cables -----------------------------------------------------------------------------

    def connect(self, name: str) -> None:
        """A node that has just been started, for the first time or again: its files, and its cable."""
        node, machine = self.plan.node(name), self._lab.nodes[name]
        library = Path("/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so")
        machine.run(["mkdir", "-p", SYSFS, str(Path(LIBRARY).parent)])
        machine.run(["cp", str(library), LIBRARY])
        assert self._machine is not None, "call up() first"
        guids = {one.name: one.ib_guid for one in (*self.plan.nodes, *self.plan.later)}
        program = _SWEEP_PROGRAM.format(
            device=IB_DEVICE, library=LIBRARY, server=self._machine.ip, guids=guids
        )
        _write(machine, str(Path(SWEEP).parent), {Path(SWEEP).name: program.encode()})
        self._link(node)

    def disconnect(self, name: str) -> None:
        """A node has lost its power."""
        if name in self._linked:
            self._unlink(self.plan.node(name))

    def far_end(self, name: str) -> str:
        """The switch and the port that a node's cable is in, plugged or not."""
        switch, port = self._home[name]
        return f"{switch.name}/{port}"

    def unplug(self, name: str) -> None:
        """The cable of a node's adapter is pulled out."""
        self._unlink(self.plan.node(name))
        self._show(name)

    def plug(self, name: str) -> None:
        self._link(self.plan.node(name))

    def move(self, name: str, to: str) -> None:
        """The cable's other end goes into the first free port of that switch, or home if it is that one.

        The port is down for a moment, as it is when hands move a cable and the link is trained again.
        """
        node, switch = self.plan.node(name), next(one for one in self.plan.ib_switches if one.name == to)
        if name in self._linked:
            self._unlink(node)
            self._show(name)
            time.sleep(_TRAINS_S)
        own = self.plan.ib_leaf(node.unit)
        self._home[name] = (own, node.place) if switch == own else (switch, self._free_port(switch))
        self._link(node)

    def down_switch(self, name: str) -> None:
        """All its cables give no light. What nodes show of their own ports is left as it is."""
        self.console(f'Unlink "S-{self._switch(name).guid:016x}"')

    def up_switch(self, name: str) -> None:
        self.console(f'ReLink "S-{self._switch(name).guid:016x}"')

    def _link(self, node: Node) -> None:
        switch, port = self._home[node.name]
        if node.name not in self._linked:
            self.console(f'Link "H-{node.ib_guid:016x}"[1] "S-{switch.guid:016x}"[{port}]')
            self._linked.add(node.name)
        self._show(node.name)

    def _unlink(self, node: Node) -> None:
        self.console(f'Unlink "H-{node.ib_guid:016x}"[1]')
        self._linked.discard(node.name)

    def _show(self, name: str) -> None:
        """Bring what a node shows of its own adapter up to date."""
        node = self.plan.node(name)
        switch, port = self._home[name]
        cable = Cable(node.ib_guid, 1, switch.guid, port, IB_RATE) if name in self._linked else None
        _write(self._lab.nodes[name], SYSFS, tree({_adapter(node): cable}))

    def _switch(self, name: str) -> IbSwitch:
        return next(one for one in self.plan.ib_switches if one.name == name)

    def _free_port(self, switch: IbSwitch) -> int:
        taken = {port for one, port in self._home.values() if one == switch}
        return next(port for port in range(1, IB_SWITCH_PORTS) if port not in taken)

    # --- ibsim ----------------------------------------------------------------------------------------------

    def console(self, line: str) -> None:
        """Give ibsim one command, and wait until it was carried out. Raises InfinibandError when refused."""
        ibsim = self._running()
        said = ibsim.log.stat().st_size
        with (self._folder / "console").open("wb", buffering=0) as console:
            console.write(line.encode() + b"\n")
        self._prompts += 1
        self._await_prompt()
        answer = ibsim.log.read_bytes()[said:].decode(errors="replace")
        if "# " in answer:
            raise InfinibandError(f"ibsim: {line}: {answer.strip()}")

    def _await_prompt(self) -> None:
        ibsim = self._running()
        give_up_s = time.monotonic() + WAIT_S
        while not ibsim.log.exists() or ibsim.log.read_bytes().count(_PROMPT) < self._prompts:
            if not ibsim.alive or time.monotonic() > give_up_s:
                raise InfinibandError(f"ibsim: {ibsim.tail()}")
            time.sleep(_LOOK_S)

    def _running(self) -> Daemon:
        if self._ibsim is None:
            raise InfinibandError("ibsim is not running: call up() first")
        return self._ibsim

    def values(self) -> dict[str, Any]:
        """What the chart needs so that agents see and sweep all this: nothing but settings and a volume."""
        return {
            "agent": {
                "settings": {
                    "infiniband": {"root": SYSFS},
                    "ibnetdiscover": {
                        "enabled": True,
                        "command": ["python3", "-I", "-S", SWEEP],
                        "timeout_s": 20,
                    },
                },
                "extraVolumes": [{"name": _VOLUME, "hostPath": {"path": FOLDER, "type": "Directory"}}],
                "extraVolumeMounts": [{"name": _VOLUME, "mountPath": FOLDER, "readOnly": True}],
            }
        }


def _adapter(node: Node) -> SimAdapter:
    return SimAdapter(node.ib_guid, node.ib_guid + 1, node.name, IB_DEVICE, f"{node.name} {IB_DEVICE}")


def _write(machine: Machine, folder: str, files: Mapping[str, bytes]) -> None:
    """Files in a machine's own file system, written over those that are there."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    machine.run(["mkdir", "-p", folder])
    machine.run(
        ["tar", "-x", "--overwrite", "--no-same-owner", "-f", "-", "-C", folder], stdin=packed.getvalue()
    )
