"""The lab's Ethernet, really wired: rails of nodes, leaves and spines with lldpd, cables that can be pulled.

Works with anything that has machines: the lab with its Kubernetes, or bare network namespaces in a test.
After a node was killed tell the wires (`disconnect`), and when it is there again, or new, give it its cables
(`connect`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kube.pki import Authority

from lab.panel import CableError, Equipment, Jack, Machine, Panel
from lab.plan import PLAN, Plan, device_of, port_of
from lab.switches import LabSwitch

PANEL = "panel"


class Machines(Protocol):
    """What is needed of a lab."""

    @property
    def folder(self) -> Path: ...
    @property
    def nodes(self) -> Mapping[str, Machine]: ...
    def machine(self, name: str) -> Machine: ...


class Wires:
    """`up` first. Cables are named by a port at one of their ends, "node1/rail0" or "leaf-a1/swp15"."""

    def __init__(self, lab: Machines, plan: Plan = PLAN) -> None:
        self._lab = lab
        self.plan = plan
        self.switches: dict[str, LabSwitch] = {}
        self._panel: Panel | None = None
        self._folder = lab.folder / "wires"

    @property
    def panel(self) -> Panel:
        if self._panel is None:
            raise RuntimeError("the wires are not up: call up() first")
        return self._panel

    def up(self) -> None:
        """All switches, and the cables of all nodes that are there. Every switch hears the others by then."""
        self._folder.mkdir(exist_ok=True)
        self._panel = Panel(self._lab.machine(PANEL))
        for one in self.plan.switches:
            self.switches[one.name] = LabSwitch(one, self._lab.machine(one.name), self.panel, self._folder)
        self.panel.add(*(switch.prepare() for switch in self.switches.values()))
        self.panel.connect(*(cable.ends for cable in self.plan.cables if device_of(cable.a) in self.switches))
        self.connect(*(name for name in self._lab.nodes if name in self.plan))
        for switch in self.switches.values():
            switch.start_lldpd()
        for switch in self.switches.values():
            switch.await_lldpd()
        self.await_lldp()

    @classmethod
    def attach(cls, lab: Machines, machines: Mapping[str, Machine], plan: Plan = PLAN) -> "Wires":
        """Wires that another process has put up, to pull and plug them; `machines`: the lab's, by name."""
        if PANEL not in machines:
            raise CableError("there are no wires: put them up first")
        wires = cls(lab, plan)
        wires._panel = Panel.attach(machines[PANEL], {*lab.nodes, *machines})
        for one in plan.switches:
            wires.switches[one.name] = LabSwitch(one, machines[one.name], wires.panel, wires._folder)
        return wires

    def down(self) -> None:
        """Agents and lldpd end; the machines go with the lab."""
        self.agents_down()
        for switch in self.switches.values():
            switch.stop_lldpd()

    # --- nodes ----------------------------------------------------------------------------------------------

    def connect(self, *names: str) -> None:
        """The rails of nodes that were started just now, for the first time or again, and their cables."""
        self.panel.add(*(self._equipment(name) for name in names))
        cables = [cable.ends for name in names for cable in self.plan.cables_of(name)]
        self.panel.connect(*(ends for ends in cables if not any(map(self.panel.far_end, ends))))

    def _equipment(self, name: str) -> Equipment:
        node = self.plan.node(name)
        rails = list(enumerate(node.rails))
        jacks = [Jack(f"{name}/{port}", node.mac(rail)) for rail, port in rails]
        addresses = [f"address replace {node.address(rail)} dev {port}" for rail, port in rails]
        return Equipment(self._lab.nodes[name], jacks, addresses)

    def disconnect(self, name: str) -> None:
        """A node has lost its power: no light comes out of its cables any more."""
        self.panel.power(name, on=False)

    # --- cables ---------------------------------------------------------------------------------------------

    def far_end(self, port: str) -> str:
        """What is at the other end of the cable in this port, "" when none is."""
        return self.panel.far_end(port)

    def unplug(self, port: str) -> None:
        """The carrier goes at both ends."""
        self.panel.pull(port)

    def plug(self, port: str) -> None:
        self.panel.push(port)

    def move(self, port: str, to: str) -> None:
        """The other end of this port's cable goes into another port, of whatever switch. Where no such port
        is yet, the switch gets one."""
        switch = self.switches[device_of(to)]
        switch.ensure_port(port_of(to))
        self.panel.disconnect(port)
        self.panel.connect((port, to))

    def carrier(self, port: str) -> bool | None:
        """As the machine itself says, None where it cannot tell."""
        name = device_of(port)
        machine = self.switches[name].machine if name in self.switches else self._lab.nodes[name]
        said = machine.run(["cat", f"/sys/class/net/{port_of(port)}/carrier"], check=False).stdout.strip()
        return {"0": False, "1": True}.get(said)

    # --- switches -------------------------------------------------------------------------------------------

    def down_switch(self, name: str) -> None:
        """It loses its power: no carrier at whatever was cabled to it, and nothing of it is heard."""
        self.panel.power(name, on=False)
        self.switches[name].stop_agent()
        self.switches[name].stop_lldpd()

    def up_switch(self, name: str) -> None:
        """It has power again. Its agent has to be started anew."""
        self.panel.power(name, on=True)
        self.switches[name].start_lldpd()
        self.switches[name].await_lldpd()

    def await_lldp(self) -> None:
        """Until each switch hears those that it is cabled to, and no other device."""
        for name, switch in self.switches.items():
            far = {port: self.far_end(f"{name}/{port}") for port in switch.ports}
            switch.await_heard({port: end for port, end in far.items() if device_of(end) in self.switches})

    def agents_up(
        self,
        *,
        collectors: Sequence[str],
        ca: Path,
        server_name: str,
        certificates: Authority,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """hyperscout's agent on every switch.

        `collectors`: host:port of their mTLS port; `ca` signed their certificates, which are for
        `server_name`; `certificates` signs the agents' own. `settings` go before what is set here.
        """
        for name, switch in self.switches.items():
            pair = certificates.issue(f"switch-{name}", f"/CN={name}", san=f"URI:hyperscout://switch/{name}")
            switch.start_agent(collectors, ca, pair, server_name, dict(settings or {}))

    def agents_down(self) -> None:
        for switch in self.switches.values():
            switch.stop_agent()
