"""An InfiniBand fabric without hardware: ibsim(1), run for one test, with its console.

Each has a socket name of its own (they are abstract, one namespace for the whole machine), so several
can run side by side. A client hangs for ever when its ibsim is gone: every sweep here has a time-out.
"""

import itertools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.real import tool
from support.waiting import TIMEOUT_S

DEVICE = "ibsim0"
_numbers = itertools.count(1)

# Two leaves, one spine, four hosts: for tests that need no certain shape. Port GUIDs are the node's plus one.
SMALL_NET = b"""width=3
speed=7
extspeed=7

switchguid=0x1000
Switch 8 "leaf1"  # "MF0;leaf1:MQM8700/U1" base port 0 lid 0 lmc 0
[1] "H0001"[1]
[2] "H0002"[1]
[8] "spine1"[1]

switchguid=0x2000
Switch 8 "leaf2"  # "MF0;leaf2:MQM8700/U1" base port 0 lid 0 lmc 0
[1] "H0003"[1]
[2] "H0004"[1]
[8] "spine1"[2]

switchguid=0x3000
Switch 8 "spine1"  # "MF0;spine1:MQM8700/U1" base port 0 lid 0 lmc 0
[1] "leaf1"[8]
[2] "leaf2"[8]

caguid=0x110
Hca 1 "H0001"  # "node-0001 mlx5_0"
[1] "leaf1"[1]

caguid=0x120
Hca 1 "H0002"  # "node-0002 mlx5_0"
[1] "leaf1"[2]

caguid=0x130
Hca 1 "H0003"  # "node-0003 mlx5_0"
[1] "leaf2"[1]

caguid=0x140
Hca 1 "H0004"  # "node-0004 mlx5_0"
[1] "leaf2"[2]
"""


class Ibsim:
    """A running ibsim. Names of devices are the Ids of the net file ("leaf1", "S-0000000000001000")."""

    def __init__(self, folder: Path, net: bytes, *, nodes: int, switches: int, ports: int) -> None:
        self.socket_name = f"hyperscout-{os.getpid()}-{next(_numbers)}"
        self._log = folder / f"{self.socket_name}.log"
        (folder / f"{self.socket_name}.net").write_bytes(net)
        fifo = folder / f"{self.socket_name}.console"
        os.mkfifo(fifo)
        self._console = os.open(fifo, os.O_RDWR)  # reading too, so that opening does not wait for ibsim
        self._prompts = 1
        argv = [str(tool("ibsim")), "-s", "-N", str(nodes), "-S", str(switches), "-P", str(ports)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*argv, str(folder / f"{self.socket_name}.net")],
                stdin=self._console,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "IBSIM_SOCKNAME": self.socket_name},
            )
        self._await_prompt()

    def env(self, host: str) -> dict[str, str]:
        """What a client needs to look from a host (its Id or its node description)."""
        return {**os.environ, "IBSIM_SOCKNAME": self.socket_name, "SIM_HOST": host}

    def console(self, line: str) -> None:
        """Give one console command and wait until it was carried out."""
        os.write(self._console, line.encode() + b"\n")
        self._prompts += 1
        self._await_prompt()

    def unlink(self, device: str, port: int | None = None) -> None:
        """Cut one cable, or all of a switch."""
        self.console(f'Unlink "{device}"' + ("" if port is None else f"[{port}]"))

    def relink(self, device: str, port: int | None = None) -> None:
        """Put back what `unlink` took."""
        self.console(f'ReLink "{device}"' + ("" if port is None else f"[{port}]"))

    def link(self, device: str, port: int, peer: str, peer_port: int) -> None:
        """Plug a cable into two free ports."""
        self.console(f'Link "{device}"[{port}] "{peer}"[{peer_port}]')

    def error(self, device: str, port: int, percent: int) -> None:
        """Make a port lose this share of its management packets: 100 is mute, 0 is well."""
        self.console(f'Error "{device}"[{port}] {percent}')

    def sweep(self, host: str) -> bytes:
        """What the real `ibnetdiscover` prints, looking from a host."""
        done = subprocess.run(
            [str(tool("ibsim-run")), str(tool("ibnetdiscover"))],
            env=self.env(host),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return done.stdout

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
        os.close(self._console)

    def _await_prompt(self) -> None:
        give_up_s = time.monotonic() + TIMEOUT_S
        while self._log.read_bytes().count(b"sim> ") < self._prompts:
            if self.process.poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"ibsim: {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)


@contextmanager
def running_ibsim(
    folder: Path, net: bytes = SMALL_NET, *, nodes: int = 2048, switches: int = 256, ports: int = 13_312
) -> Iterator[Ibsim]:
    """Run ibsim on a net file; always ended. The numbers are how much it makes room for."""
    ibsim = Ibsim(folder, net, nodes=nodes, switches=switches, ports=ports)
    try:
        yield ibsim
    finally:
        ibsim.stop()
