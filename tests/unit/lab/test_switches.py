"""A lab switch waits for its lldpd without changing it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.panel import Equipment, Jack, Panel
from lab.plan import PLAN
from lab.switches import CONFIGURATION, LabSwitch

SWITCH = PLAN.switch("leaf-a1")
LISTED = ", ".join(f'{{"name": "{port}"}}' for port in SWITCH.ports)


class Machine:
    """Records the arguments of every lldpcli, and configuration files. Its lldpd lists all ports."""

    name, ip, pid = SWITCH.name, "10.0.0.1", 1

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.written: list[str] = []

    def run(self, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        shown = "[]"
        if argv[-1] == CONFIGURATION:
            self.written.append(options["stdin"])
        if argv[0] == "lldpcli":
            self.asked.append(list(argv[3:]))
            shown = f'{{"lldp": [{{"interface": [{LISTED}]}}]}}'
        return subprocess.CompletedProcess(argv, 0, shown, "")

    def popen(self, argv: Sequence[str], log: Path) -> Any:
        log.touch()
        return self

    alive = True


def test_only_show_commands_reach_a_running_lldpd(tmp_path: Path) -> None:
    """lldpd 1.0.16 pauses for ever when a "configure" or an "update" overlaps its own "resume"."""
    machine = Machine()
    panel = Panel(machine)
    panel.add(
        Equipment(machine, [Jack(f"{SWITCH.name}/{port}", "02:00:00:00:00:01") for port in SWITCH.ports])
    )
    switch = LabSwitch(SWITCH, machine, panel, tmp_path)
    switch.start_lldpd()
    switch.await_lldpd()
    assert [words[2] for words in machine.asked] == ["show"]
    (configuration,) = machine.written
    assert "configure lldp portidsubtype ifname\n" in configuration
