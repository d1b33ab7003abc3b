"""A program that runs in a machine and is ended there, whatever stands between it and its starter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.panel import Machine

# $1 is where its process id goes, which counts in the machine's own process namespace.
_START = 'echo $$ > "$1"; shift; exec "$@"'
# Asked to end, given five seconds, and killed.
_STOP = """
pid=$(cat "$1") || exit 0
rm -f "$1"
kill -TERM "$pid" 2>/dev/null || exit 0
n=0
while [ -d "/proc/$pid" ] && [ $n -lt 250 ]; do sleep 0.02; n=$((n + 1)); done
kill -KILL "$pid" 2>/dev/null || :
"""


class Daemon:
    """Starts at once. `name` is unique in the machine."""

    def __init__(self, machine: Machine, name: str, argv: Sequence[str], log: Path) -> None:
        self._machine = machine
        self._pid_file = f"/run/{machine.name}.{name}.pid"
        self.log = log
        self._program: Any = machine.popen(["sh", "-c", _START, "sh", self._pid_file, *argv], log)

    @property
    def alive(self) -> bool:
        return bool(self._program.alive)

    def stop(self) -> None:
        """Asks it to end, and kills it when it does not."""
        self._machine.run(["sh", "-c", _STOP, "sh", self._pid_file])
        self._program.kill()

    def tail(self, lines: int = 15) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
