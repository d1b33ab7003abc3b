"""A switch of the lab: a machine that forwards in its kernel and runs a real lldpd, and hyperscout's agent if
wanted.

What it forwards is a matter of the plan (`Switch.forwards`). LLDP ends at every switch, as the standard wants
and a Linux bridge does.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kube.pki import Pair

from lab.daemons import Daemon
from lab.lldpd import by_port, configuration, wait_for
from lab.panel import Equipment, Jack, Machine, Panel
from lab.plan import Switch

ROOT = Path(__file__).resolve().parents[2]
HYPERSCOUT = ROOT / ".venv" / "bin" / "hyperscout"
SOCKET, CONFIGURATION = "/run/lldpd.socket", "/run/lldpd.conf"  # in the machine's own /run
BRIDGE = "rail"
PORTS = r"^swp\d+$"
# A neighbour that went silent is forgotten after thirty frames: on a busy machine some come late.
TX_INTERVAL_S, TX_HOLD = 1, 30

_PREPARE = """set -e
mount --bind "$1" /etc/hosts
for one in all default; do echo 1 > /proc/sys/net/ipv6/conf/$one/disable_ipv6 || :; done
ip link add "$2" type bridge mcast_snooping 0
ip link set "$2" up
"""


def lldpd(machine: Machine, text: str, flags: Sequence[str], folder: Path) -> Daemon:
    """Start lldpd; do not wait for it. `text`: its configuration file. `folder` takes its log.

    The file goes into the machine's own /run. Debian's lldpcli runs as the user _lldpd, which cannot enter a
    private folder, and lldpcli ignores a file that it cannot find.
    """
    machine.run(["sh", "-c", 'cat > "$1"', "sh", CONFIGURATION], stdin=text)
    command = ["lldpd", "-d", "-u", SOCKET, "-O", CONFIGURATION, *flags]
    return Daemon(machine, "lldpd", command, folder / f"{machine.name}.lldpd.log")


class LabSwitch:
    """One switch. `folder` takes its files; /run and /sys are the machine's own."""

    def __init__(self, plan: Switch, machine: Machine, panel: Panel, folder: Path) -> None:
        self.plan = plan
        self.machine = machine
        self._panel = panel
        self._folder = folder
        self._lldpd: Daemon | None = None
        self.agent: Daemon | None = None
        self._agent_command: list[str] = []

    @property
    def ports(self) -> tuple[str, ...]:
        """Names of all that there are, those that the plan did not foresee too."""
        return self._panel.ports_of(self.plan.name)

    def prepare(self) -> Equipment:
        """Make the machine ready for its ports, and say which these are."""
        # lldpd looks its own name up, and waits ten seconds for a name server that is not there.
        hosts = self._folder / f"{self.plan.name}.hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{self.machine.ip} {self.plan.name}\n")
        self.machine.run(["sh", "-c", _PREPARE, "sh", str(hosts), BRIDGE])
        return self._equipment(self.plan.ports)

    def ensure_port(self, port: str) -> None:
        """Make a port that the plan did not foresee, unless it is there."""
        if port not in self.ports:
            self._panel.add(self._equipment((port,)))
            self.await_lldpd()

    def _equipment(self, ports: Sequence[str]) -> Equipment:
        jacks = [Jack(f"{self.plan.name}/{port}", self.plan.mac(port)) for port in ports]
        forwarding = [f"link set {port} master {BRIDGE}" for port in ports if self.plan.forwards(port)]
        return Equipment(self.machine, jacks, forwarding)

    # --- LLDP -----------------------------------------------------------------------------------------------

    def start_lldpd(self) -> None:
        """Does not wait; `await_lldpd` does."""
        role = "leaf" if self.plan.level == 1 else "spine"
        text = configuration(
            self.plan.name,
            TX_INTERVAL_S,
            TX_HOLD,
            "configure lldp portidsubtype ifname",
            f'configure system description "hyperscout lab {role}"',
            "configure system capabilities enabled bridge,router",
            f"configure system ip management pattern {self.machine.ip}",
        )
        first = self.plan.ports[0]  # whose address is the chassis id
        self._lldpd = lldpd(self.machine, text, ["-C", first, "-I", "swp*"], self._folder)

    def stop_lldpd(self) -> None:
        """It says goodbye on ports with a carrier."""
        if self._lldpd is not None:
            self._lldpd.stop()
            self._lldpd = None

    def await_lldpd(self) -> None:
        """Wait until lldpd lists all ports."""

        def missing() -> set[str]:
            return set(self.ports) - set(by_port(self.lldpcli("-f", "json0", "show", "interfaces")))

        self._until(lambda: not missing(), lambda: f"does not list {missing()}")

    def heard(self) -> dict[str, str]:
        """Port -> "system/port" of the neighbour that is heard there."""
        return {
            port: f"{one['chassis'][0]['name'][0]['value']}/{one['port'][0]['id'][0]['value']}"
            for port, one in by_port(self.lldpcli("-f", "json0", "show", "neighbors")).items()
        }

    def await_heard(self, wanted: dict[str, str]) -> None:
        """Wait until lldpd hears exactly these."""
        self._until(lambda: self.heard() == wanted, lambda: f"hears {self.heard()}, not {wanted}")

    def lldpcli(self, *words: str) -> str:
        """What `lldpcli` prints, nothing while lldpd does not answer."""
        return str(self.machine.run(["lldpcli", "-u", SOCKET, *words], check=False).stdout)

    def _until(self, done: Callable[[], bool], trouble: Callable[[], str]) -> None:
        wait_for(
            done,
            lambda: self._lldpd is None or self._lldpd.alive,
            lambda: f"lldpd of {self.machine.name} {trouble()}: {self._lldpd.tail() if self._lldpd else ''}",
        )

    # --- the agent ------------------------------------------------------------------------------------------

    def start_agent(
        self, collectors: Sequence[str], ca: Path, pair: Pair, server_name: str, settings: dict[str, Any]
    ) -> None:
        """hyperscout's agent in its role on a switch, as an operator would set it up."""
        own = {
            "role": "switch",
            "node": self.plan.name,
            "collectors": list(collectors),
            "tls_ca": str(ca),
            "tls_cert": str(pair.cert),
            "tls_key": str(pair.key),
            "tls_server_name": server_name,
            "lldp": {"lldpctl_command": ["lldpctl", "-u", SOCKET], "ports": PORTS},
        }
        config = self._folder / f"{self.plan.name}.agent.yaml"
        config.write_text(json.dumps(own | settings, indent=1))  # JSON is YAML
        self._agent_command = [str(HYPERSCOUT), "agent", "--config", str(config)]
        self.start_agent_again()

    def start_agent_again(self) -> None:
        """As it was started before, after `stop_agent`."""
        log = self._folder / f"{self.plan.name}.agent.log"
        self.agent = Daemon(self.machine, "agent", self._agent_command, log)

    def stop_agent(self) -> None:
        if self.agent is not None:
            self.agent.stop()
            self.agent = None
