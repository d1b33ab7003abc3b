"""What programs use: memory and processor time of all their processes, and bytes of TCP connections."""

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from hyperscout_cli.loadtest.child import cpu_s

from support.real import tool

_KIB_PER_MIB = 1024
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
_FRAME_BYTES = 66  # headers of a segment: Ethernet 14, IPv4 20, TCP with time stamps 32


class Traffic(NamedTuple):
    """Bytes of connections, from and to their client: payload, and with the headers of all segments."""

    sent: int = 0
    received: int = 0
    sent_with_headers: int = 0
    received_with_headers: int = 0


def family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def memory_mib(pids: Iterable[int]) -> float:
    """Memory of processes; what several share counts once (Pss, proc(5))."""
    found = (_PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text()) for pid in pids)
    return sum(int(match[1]) for match in found if match) / _KIB_PER_MIB


def cpu_with_children_s(pid: int) -> float:
    """Processor time of a process, its children, and those of them that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(cpu_s, family(pid))) + (int(fields[13]) + int(fields[14])) / _TICKS_PER_S


def traffic(ports: Iterable[int]) -> Traffic:
    """Of all connections of this machine to some ports, since they exist (ss(8), tcp_info)."""
    wanted = " or ".join(f"dport = :{port}" for port in ports)
    command = [str(tool("ss")), "-Htin", "state", "established", f"( {wanted} )"]
    return traffic_in(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def traffic_in(text: str) -> Traffic:
    """Add up the output of `ss -i`."""
    sums: Mapping[str, int] = {
        name: sum(map(int, re.findall(rf"\b{name}:(\d+)", text)))
        for name in ("bytes_sent", "bytes_received", "segs_out", "segs_in")
    }
    sent, received = sums["bytes_sent"], sums["bytes_received"]
    return Traffic(
        sent, received, sent + _FRAME_BYTES * sums["segs_out"], received + _FRAME_BYTES * sums["segs_in"]
    )
