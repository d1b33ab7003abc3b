"""Reads the state of this host as the agent does, with the permissions of the calling user.

Every step has a time limit. Problems are returned as values, not raised.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.sysfs import parse

from hyperscout_agent.accelerators.pci_tree import read_pci_tree
from hyperscout_agent.doctor.facts import Device, HostSeen, Program
from hyperscout_agent.findings.probe import ProbeError
from hyperscout_agent.lldp.link import may_listen
from hyperscout_agent.lldp.lldpd import lldpd_runs, neighbours_by_port
from hyperscout_agent.nvml.library import DriverAbsentError, Nvml, NvmlUnusableError
from hyperscout_agent.runtime.infiniband_tree import read_tree
from hyperscout_agent.runtime.ports import PortState, compiled, physical_ports, read_ports
from hyperscout_agent.runtime.subprocesses import ToolError, run_tool
from hyperscout_agent.runtime.threads import in_thread
from hyperscout_agent.settings.settings import AgentSettings

T = TypeVar("T")
_Devices = tuple[tuple[PortState, ...], tuple[InfinibandPort, ...], int]
_SYSFS = Path("/sys")
_MAX_DEVICES = 64
_READ_TIMEOUT_S = 10.0  # a read from sysfs can block forever when an adapter is faulty or a driver hangs
_VERSION_TIMEOUT_S = 3.0
_MAX_VERSION_BYTES = 16 * 1024
_VERSION = re.compile(r"\d+(\.\d+)+\S*|\b\d+\b")
# The version option of each tool that the agent runs.
_ASKED = {
    "ibnetdiscover": "-V",
    "ibqueryerrors": "-V",
    "lldpctl": "-v",
    "ib_send_lat": "--version",
    "ib_send_bw": "--version",
}


async def read_host(settings: AgentSettings) -> HostSeen:
    """Return the state of this host."""
    nothing: _Devices = ((), (), 0)
    ports, infiniband, gpus = await _within(lambda: _devices(settings), nothing, "devices")
    nvml = await _within(lambda: _nvml_trouble(settings), "NVML does not return: the driver hangs", "nvml")
    lldpd = lldpd_runs()
    asks_lldpd = settings.lldp.source == "lldpctl" or (settings.lldp.source == "auto" and lldpd)
    folder = settings.lldp.socket.parent
    return HostSeen(
        user=os.geteuid(),
        raw_socket=may_listen(),
        listener=listener_connected(settings.lldp.socket),
        ports=ports,
        infiniband=infiniband,
        umad=tuple(_umad()),
        lldpd=lldpd,
        lldpctl_trouble=await _lldpctl_trouble(settings) if settings.lldp.enabled and asks_lldpd else "",
        gpus=gpus,
        nvml_trouble=nvml if gpus else "",
        programs=await _programs(settings),
        socket_folder=str(folder),
        socket_folder_writable=os.access(folder, os.W_OK | os.X_OK),
        free_bytes=_free_bytes(folder),
    )


async def _within(work: Callable[[], T], otherwise: T, name: str) -> T:
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await in_thread(work, f"doctor-{name}")
    except TimeoutError:
        return otherwise


def listener_connected(path: Path) -> bool | None:
    """Return whether an LLDP listener is connected to the agent's socket; None if the kernel does not tell.

    A socket that a server accepted has the path of the server and the state 03, SS_CONNECTED (proc(5)).
    """
    try:
        lines = Path("/proc/net/unix").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    return any(line.split(maxsplit=7)[5::2] == ["03", str(path)] for line in lines)


def _devices(settings: AgentSettings) -> _Devices:
    ports = tuple(read_ports(_SYSFS, physical_ports(_SYSFS, compiled(settings.lldp.ports))))
    infiniband, _ = parse(read_tree(settings.infiniband.root), str(settings.infiniband.root))
    return ports, infiniband, len(read_pci_tree(_SYSFS).gpus)


def _nvml_trouble(settings: AgentSettings) -> str:
    nvml = Nvml(settings.nvlink.library)
    try:
        nvml.open()
    except (DriverAbsentError, NvmlUnusableError) as error:
        return str(error)
    nvml.close()
    return ""


def _umad() -> Iterable[Device]:
    """List device files of the user-space MAD interface (Linux, Documentation/infiniband/user_mad)."""
    for path in sorted(Path("/dev/infiniband").glob("umad*"))[:_MAX_DEVICES]:
        yield Device(str(path), os.access(path, os.R_OK | os.W_OK))


async def _lldpctl_trouble(settings: AgentSettings) -> str:
    try:
        await neighbours_by_port(settings.lldp.lldpctl_command, "install lldpd")
    except ProbeError as error:
        return str(error)
    return ""


async def _programs(settings: AgentSettings) -> dict[str, Program]:
    """Return the configured tools with path and version, by tool name."""
    commands = {
        "ibnetdiscover": settings.ibnetdiscover.command,
        "ibqueryerrors": settings.ibqueryerrors.command,
        "lldpctl": settings.lldp.lldpctl_command,
        "ib_send_lat": settings.latency.ib_send_lat,
        "ib_send_bw": settings.latency.ib_send_bw,
    }
    asked = [_program(name, command) for name, command in commands.items() if command]
    return {program.name: program for program in await asyncio.gather(*asked)}


async def _program(name: str, command: Sequence[str]) -> Program:
    path = shutil.which(command[0])
    if path is None:
        return Program(name, "")
    output = bytearray()
    try:
        result = await run_tool(
            (path, *command[1:], _ASKED[name]),
            take=output.extend,
            timeout_s=_VERSION_TIMEOUT_S,
            max_output_bytes=_MAX_VERSION_BYTES,
        )
    except ToolError:
        return Program(name, path)
    found = _VERSION.search((output + result.stderr).decode(errors="replace"))
    return Program(name, path, found[0] if found else "")


def _free_bytes(folder: Path) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
