"""Programs that end with the process that started them, however it ends; and ports for them to listen on."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# prctl(2) PR_SET_PDEATHSIG: the kernel kills the program when the *thread* that started it is gone. So start
# programs on the main thread. A tiny Python goes between, as code between fork and exec is not safe in a
# process with threads.
_BOOT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, int(sys.argv[2]))
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_END_S = 10.0
# Below the ports that the kernel hands out by itself: no process takes one between the look and the use.
_PORTS = range(18000, 32000)
_taken: set[int] = set()


def dying_with_us(argv: Sequence[str | Path], by: signal.Signals = signal.SIGKILL) -> list[str]:
    """The command that runs this one so that it gets a signal when the thread that starts it is gone."""
    return [sys.executable, "-I", "-S", "-c", _BOOT, str(os.getpid()), str(int(by)), *map(str, argv)]


class Program:
    """A program that runs, with all that it prints in a log file."""

    def __init__(self, argv: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = Path(argv[0]).name
        self.log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                dying_with_us(argv),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                start_new_session=True,  # Ctrl-C is for the process that started it, which then ends it
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            self._process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP, and wait until it stands still."""
        self.signal(signal.SIGSTOP)
        if self.alive:
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(_END_S)

    def terminate(self) -> None:
        """Ask it to end, and wait; kill it when it does not."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self.kill()

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def free_port() -> int:
    """A loopback port that no process listens on, given out once by this process."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            if port not in _taken:
                probe.bind(("127.0.0.1", port))
                _taken.add(port)
                return port
