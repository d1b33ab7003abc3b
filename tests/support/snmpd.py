"""A real Ethernet fabric that answers SNMP: the lab's wires, with snmpd on every switch and lldpd on all.

On a switch lldpd is snmpd's AgentX subagent, so LLDP-MIB, IF-MIB and the system group come from the programs
that Linux switches run. What may be read is no more than docs/switch-access.md tells operators to allow.
"""

import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.daemons import Daemon
from lab.lldpd import configuration, wait_for
from lab.panel import Machine, Panel
from lab.plan import Plan, Switch, device_of, make_plan
from lab.switches import TX_HOLD, TX_INTERVAL_S, LabSwitch, lldpd
from lab.wires import PANEL, Wires

from support.bare_lab import BareLab
from support.real import ROOT

# Two units of two hosts on two rails: four leaves under two spines.
PLAN = make_plan({"a": ("node1", "node2"), "b": ("node3", "node4")}, {})
MANAGEMENT = "10.77.0.0/24"
PORT = 161
PAGE = ROOT / "docs" / "switch-access.md"
# The very lines that operators are told to write.
VIEW = tuple(re.findall(r"^(view hyperscout included \.[\d.]+)$", PAGE.read_text(), re.MULTILINE))
assert VIEW, f"{PAGE} shows no view of snmpd"


def _secret(what: str) -> str:
    """A text that stands nowhere else, so that finding it means that it leaked."""
    return f"{what}-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class Access:
    """What opens the switches of one fabric. The user's name is no secret, all others are."""

    community: str = field(default_factory=lambda: _secret("community"))
    user: str = "hyperscout"
    auth_key: str = field(default_factory=lambda: _secret("auth"))
    priv_key: str = field(default_factory=lambda: _secret("priv"))

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.community, self.auth_key, self.priv_key


class _Speaker(LabSwitch):
    """Whatever speaks LLDP here."""

    def systems(self) -> dict[str, str]:
        """Port -> system name of the neighbour that is heard there."""
        return {port: said.partition("/")[0] for port, said in self.heard().items()}

    def await_systems(self, wanted: dict[str, str]) -> None:
        """Until exactly these are heard."""
        self._until(
            lambda: self.systems() == wanted,
            lambda: f"hears {self.systems()}, not {wanted}",
        )


class SnmpSwitch(_Speaker):
    """A switch of the lab that can be asked. `announced`: its system name, where that is another one."""

    def __init__(
        self, plan: Switch, machine: Machine, panel: Panel, folder: Path, access: Access, announced: str = ""
    ) -> None:
        super().__init__(plan, machine, panel, folder)
        self._access = access
        self._announced = announced or plan.name
        self._home = folder / f"{plan.name}.snmp"
        self._snmpd: Daemon | None = None

    @property
    def address(self) -> str:
        return str(self.machine.ip)

    @property
    def user_file(self) -> Path:
        """Where snmpd keeps its users."""
        return self._home / "persistent" / "snmpd.conf"

    def start_lldpd(self) -> None:
        """snmpd first: lldpd looks for it when it starts."""
        self.start_snmpd()
        flags = ["-x", "-X", str(self._home / "agentx"), "-C", self.plan.ports[0], "-I", "swp*"]
        own = ("configure lldp portidsubtype ifname", "configure system capabilities enabled bridge,router")
        self._lldpd = _lldpd(self.machine, self._announced, own, flags, self._folder)

    def start_snmpd(self) -> None:
        """Returns when subagents can come."""
        if self._snmpd is not None:
            return
        self._home.mkdir(exist_ok=True)
        access, socket = self._access, self._home / "agentx"
        view = "\n".join(VIEW)
        (self._home / "snmpd.conf").write_text(
            f"agentaddress udp:{self.address}:{PORT}\n"
            f"master agentx\nagentXSocket {socket}\nagentXPerms 0777 0711\n"
            f"sysName {self._announced}\n{view}\n"
            f"rocommunity {access.community} {MANAGEMENT} -V hyperscout\n"
            f"rouser {access.user} authpriv -V hyperscout\n"
        )
        if not self.user_file.exists():
            self.user_file.parent.mkdir()
            user = f'createUser {access.user} SHA-256 "{access.auth_key}" AES "{access.priv_key}"\n'
            self.user_file.write_text(user)
        users = self.user_file.parent
        argv = ["env", f"SNMPCONFPATH={self._home}:{users}", f"SNMP_PERSISTENT_DIR={users}", "MIBS="]
        argv += ["snmpd", "-f", "-Lo"]
        log = self._folder / f"{self.plan.name}.snmpd.log"
        snmpd = self._snmpd = Daemon(self.machine, "snmpd", argv, log)
        wait_for(socket.exists, lambda: snmpd.alive, lambda: f"snmpd does not start: {snmpd.tail()}")

    def stop_snmpd(self) -> None:
        """It goes silent, and forwards and speaks LLDP as before."""
        if self._snmpd is not None:
            self._snmpd.stop()
            self._snmpd = None
            (self._home / "agentx").unlink(missing_ok=True)

    def stop_lldpd(self) -> None:
        super().stop_lldpd()
        self.stop_snmpd()


class SnmpHost(_Speaker):
    """lldpd of a host, as it is out of the box: its ports are announced by their addresses."""

    def __init__(self, name: str, machine: Machine, panel: Panel, folder: Path) -> None:
        self.machine, self._panel, self._folder, self._name = machine, panel, folder, name
        # lldpd looks its own name up, and waits ten seconds for a name server that is not there.
        hosts = folder / f"{name}.hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{machine.ip} {name}\n")
        machine.run(["mount", "--bind", hosts, "/etc/hosts"])
        own = ("configure system capabilities enabled station",)
        self._lldpd = _lldpd(machine, name, own, ["-C", "rail0", "-I", "rail*"], folder)

    @property
    def ports(self) -> tuple[str, ...]:
        return self._panel.ports_of(self._name)


class SnmpWires(Wires):
    """`up` first. `names`: system names that switches announce in place of their own."""

    def __init__(
        self, lab: BareLab, access: Access, plan: Plan = PLAN, names: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(lab, plan)
        self.access = access
        self.hosts: dict[str, SnmpHost] = {}
        self._names = names or {}

    def up(self) -> None:
        """All switches and hosts; each hears those at the other ends of its cables by then."""
        self._folder.mkdir(exist_ok=True)
        panel = self._panel = Panel(self._lab.machine(PANEL))
        for one in self.plan.switches:
            machine, said = self._lab.machine(one.name), self._names.get(one.name, "")
            self.switches[one.name] = SnmpSwitch(one, machine, panel, self._folder, self.access, said)
        panel.add(*(switch.prepare() for switch in self.switches.values()))
        panel.connect(*(cable.ends for cable in self.plan.cables if device_of(cable.a) in self.switches))
        self.connect(*self._lab.nodes)
        for switch in self.switches.values():
            switch.start_lldpd()
        for name, node in self._lab.nodes.items():
            self.hosts[name] = SnmpHost(name, node, panel, self._folder)
        for one in self._speakers().values():
            one.await_lldpd()
        self.await_lldp()

    def await_lldp(self) -> None:
        """Until each hears the devices that it is cabled to, and no other."""
        for name, one in self._speakers().items():
            far = {port: device_of(self.far_end(f"{name}/{port}")) for port in one.ports}
            wanted = {port: self._names.get(device, device) for port, device in far.items() if device}
            one.await_systems(wanted)

    def snmp(self, name: str) -> SnmpSwitch:
        switch = self.switches[name]
        assert isinstance(switch, SnmpSwitch)
        return switch

    def up_switch(self, name: str) -> None:
        """The switch and its neighbours hear each other by the end."""
        super().up_switch(name)
        self.await_lldp()

    def trouble(self) -> list[str]:
        """Daemons of switches and hosts that are dead, with their last words."""
        return [
            f"{name}: {daemon.tail()}"
            for name, one in self._speakers().items()
            for daemon in (one._lldpd, getattr(one, "_snmpd", None))
            if daemon is not None and not daemon.alive
        ]

    def _speakers(self) -> "dict[str, SnmpSwitch | SnmpHost]":
        return {name: self.snmp(name) for name in self.switches} | self.hosts


def _lldpd(machine: Machine, name: str, own: Sequence[str], flags: list[str], folder: Path) -> Daemon:
    """Start lldpd; do not wait for it. `own`: lines of its configuration file."""
    common = (
        'configure system description "hyperscout"',
        f"configure system ip management pattern {machine.ip}",
    )
    return lldpd(machine, configuration(name, TX_INTERVAL_S, TX_HOLD, *own, *common), flags, folder)


@contextmanager
def snmp_fabric(
    access: Access, plan: Plan = PLAN, names: Mapping[str, str] | None = None
) -> Iterator[SnmpWires]:
    """A whole fabric that runs, in a sandbox of its own; taken away at the end."""
    # pytest's own folders are closed to lldpd, most of which runs as a user without rights.
    with tempfile.TemporaryDirectory(prefix="hyperscout-snmp-") as folder:
        Path(folder).chmod(0o711)
        with BareLab(Path(folder)) as lab:
            for name in plan.names:
                lab.add_node(name)
            wires = SnmpWires(lab, access, plan, names)
            wires.up()
            yield wires
