"""snmpsim plays recorded switches, each at an address of its own: real answers to real questions.

In a network namespace where all of 10.0.0.0/8 is the machine's own, so that switches answer at the very
addresses that their neighbours hear.
"""

import os
import re
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from kube.processes import Program

from support.apart import environment
from support.lldpd import Lab, ip
from support.real import tool
from support.waiting import TIMEOUT_S

PORT = 161


def whole_net(lab: Lab, name: str) -> str:
    """A namespace whose loopback has all addresses of 10.0.0.0/8; its full name."""
    full = lab.namespace(name)
    ip("-n", full, "link", "set", "lo", "up")
    ip("-n", full, "route", "add", "local", "10.0.0.0/8", "dev", "lo")
    return full


@contextmanager
def running_snmpsim(
    folder: Path,
    switches: Mapping[str, bytes],
    *,
    namespace: str = "",
    community: str = "public",
    user: Sequence[str] = (),
) -> Iterator[Program]:
    """`switches`: what they answer, by address, as `.snmprec`. All answer by the end of the start.

    `namespace`: "" = our own. `user`: flags of snmpsim for a user of SNMPv3, whose context the community is.
    """
    python = environment("snmpsim")
    assert python is not None, "ask require_real for it first"
    flags: list[str] = []
    for address, recording in switches.items():
        home = folder / address
        home.mkdir(parents=True)
        (home / f"{community}.snmprec").write_bytes(recording)
        # An engine each; what follows an engine's id is its own. The endpoint ends it.
        flags += ["--v3-engine-id=auto", *user, f"--data-dir={home}"]
        flags.append(f"--agent-udpv4-endpoint={address}:{PORT}")
    arguments = folder / "arguments"
    arguments.write_text("\n".join(flags))
    inside = [tool("ip") or "ip", "netns", "exec", namespace] if namespace else []
    program = Program(
        [
            *inside,
            *(python, "-I", "-m", "snmpsim.commands.responder", "--log-level=error"),
            *("--process-user=root", "--process-group=root", f"--cache-dir={folder / 'cache'}"),
            f"--args-from-file={arguments}",
        ],
        folder / "snmpsim.log",
        env=os.environ | {"HOME": str(folder)},
    )
    try:
        give_up_s = time.monotonic() + TIMEOUT_S
        while not switches.keys() <= _listening(namespace):
            if not program.alive or time.monotonic() > give_up_s:
                raise RuntimeError(f"snmpsim does not start: {program.tail()}")
            time.sleep(0.05)
        yield program
    finally:
        program.terminate()


def _listening(namespace: str) -> set[str]:
    """Addresses where a process listens on the port, by the kernel's table of UDP sockets."""
    if namespace:
        shown = ip("netns", "exec", namespace, "cat", "/proc/net/udp")
    else:
        shown = Path("/proc/net/udp").read_text(encoding="ascii")
    found = re.findall(rf": ([0-9A-F]{{8}}):{PORT:04X} ", shown)
    return {socket.inet_ntoa(int(address, 16).to_bytes(4, sys.byteorder)) for address in found}
