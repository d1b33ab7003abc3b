"""Machines without a Kubernetes: as much of `lab.cluster.Lab` as wires and InfiniBand need, in half a second.

A sandbox in namespaces of its own, a bridge as management network, and machines that are a network, a host
name and mounts. All of it ends with one process, which ends with the test.
"""

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube.processes import Program

from support.waiting import TIMEOUT_S

_SANDBOX = """set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 run /run
ip link set lo up
ip link add br0 type bridge
ip address add 10.77.0.1/24 dev br0
ip link set br0 up
touch "$1"
exec sleep infinity
"""
_MACHINE = """set -e
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 run /run
hostname "$2"
ip link set lo up
echo $$ > "$1"
exec sleep infinity
"""


@dataclass(frozen=True, slots=True)
class BareMachine:
    """One machine; `pid` counts in the sandbox."""

    name: str
    ip: str
    pid: int
    lab: "BareLab" = field(repr=False)

    def run(self, argv: Sequence[str | Path], **options: Any) -> "subprocess.CompletedProcess[str]":
        return self.lab.run(self._inside(argv), **options)

    def popen(self, argv: Sequence[str | Path], log: Path) -> Program:
        return self.lab.popen(self._inside(argv), log)

    def _inside(self, argv: Sequence[str | Path]) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-m", "-n", "-u", *map(str, argv)]


class BareLab:
    """`machine` and `add_node` make the same here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.nodes: dict[str, BareMachine] = {}
        self.machines: dict[str, BareMachine] = {}
        self._sandbox: Program | None = None
        self._addresses: dict[str, str] = {}
        self._programs: list[Program] = []
        self._init = 0

    def __enter__(self) -> "BareLab":
        ready = self.folder / "ready"
        self._sandbox = Program(
            ["unshare", "-m", "-p", "-n", "-u", "-i", "--fork", "--kill-child=KILL",
             "sh", "-c", _SANDBOX, "sandbox", str(ready)],
            self.folder / "sandbox.log",
        )  # fmt: skip
        _await(ready, self._sandbox)
        children = Path(f"/proc/{self._sandbox.pid}/task/{self._sandbox.pid}/children")
        self._init = int(children.read_text().split()[0])
        return self

    def __exit__(self, *_: object) -> None:
        if self._sandbox is not None:
            self._sandbox.kill()
        for program in self._programs:
            program.kill()

    @property
    def pid(self) -> int:
        """The sandbox's first process, seen from outside."""
        return self._init

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: str | bytes | None = None,
        timeout_s: float = 60,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            self._inside(argv),
            input=stdin.encode() if isinstance(stdin, str) else stdin if stdin is not None else b"",
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        if check and done.returncode:
            raise RuntimeError(f"{argv}: exit {done.returncode}: {err.strip()}")
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def popen(self, argv: Sequence[str | Path], log: Path) -> Program:
        program = Program(self._inside(argv), log)
        self._programs.append(program)
        return program

    def _inside(self, argv: Sequence[str | Path]) -> list[str]:
        # nsenter stays between us and the program, which must not outlive it.
        enter = ["nsenter", "-t", str(self._init), "-m", "-p", "-n", "-u", "-i"]
        return [*enter, "setpriv", "--pdeathsig", "KILL", *map(str, argv)]

    def machine(self, name: str) -> BareMachine:
        """One that has a network, a host name and mounts of its own, and an address at the bridge."""
        if name in self.machines:
            return self.machines[name]
        known = self.folder / f"{name}.pid"
        known.unlink(missing_ok=True)
        holder = self.popen(
            ["unshare", "-m", "-n", "-u", "sh", "-c", _MACHINE, "machine", known, name],
            self.folder / f"{name}.log",
        )
        _await(known, holder)
        address = self._addresses.setdefault(name, f"10.77.0.{101 + len(self._addresses)}")
        machine = BareMachine(name, address, int(known.read_text()), self)
        self.run(["ip", "link", "add", "mgmt", "type", "veth", "peer", "name", f"m-{name}"[:15]])
        self.run(["ip", "link", "set", f"m-{name}"[:15], "master", "br0", "up"])
        self.run(["ip", "link", "set", "mgmt", "netns", str(machine.pid)])
        machine.run(["ip", "address", "add", f"{machine.ip}/24", "dev", "mgmt"])
        machine.run(["ip", "link", "set", "mgmt", "up"])
        machine.run(["ip", "route", "add", "default", "via", "10.77.0.1"])
        self.machines[name] = machine
        return machine

    def add_node(self, name: str) -> BareMachine:
        self.nodes[name] = self.machine(name)
        return self.nodes[name]

    def kill_node(self, name: str) -> None:
        """At once, with its network."""
        machine = self.nodes.pop(name)
        del self.machines[name]
        self.run(["kill", "-KILL", str(machine.pid)])
        self.run(["ip", "link", "delete", f"m-{name}"[:15]], check=False)


def _await(file: Path, program: Program) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    while not (file.exists() and (file.stat().st_size or file.name == "ready")):
        if not program.alive or time.monotonic() > give_up_s:
            raise RuntimeError(f"{program.name} does not start: {program.tail()}")
        time.sleep(0.01)
