"""How the rest of the kit gets into the lab: run a command there, or start a program, by `enter`."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lab.processes import tail

ENTER = Path(__file__).with_name("enter.py")
_END_S = 10.0
_START_S = 240.0


class LabError(RuntimeError):
    """The lab cannot do what it was asked for; the message says why."""


class CommandError(LabError):
    """A command in the lab failed: `returncode`, `stdout`, `stderr`."""

    def __init__(self, argv: Sequence[str], done: "subprocess.CompletedProcess[str]") -> None:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        super().__init__(f"{' '.join(argv)[:300]}: exit status {done.returncode}: {said}")
        self.returncode, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr


@dataclass(frozen=True, slots=True)
class Place:
    """Where to go in: the namespaces of a process (`pid`, as this machine counts), and these cgroups."""

    pid: int
    cgroups: tuple[str, ...]
    environment: Mapping[str, str]

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        stdin: str | bytes | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end. Raises CommandError when it fails (`check`) or is too slow."""
        words = list(map(str, argv))
        command = _command({"do": "wait", "pid": self.pid, "cgroups": self.cgroups}, words)
        try:
            done = subprocess.run(
                command,
                input=stdin.encode() if isinstance(stdin, str) else (stdin or b""),
                capture_output=True,
                timeout=timeout_s,
                env={**self.environment, **(env or {})},
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = ((error.stderr or b"") + (error.stdout or b"")).decode(errors="replace")
            late = subprocess.CompletedProcess(words, 124, "", f"no end within {timeout_s:g} s\n{said}")
            raise CommandError(words, late) from error
        texts = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        answer = subprocess.CompletedProcess(words, done.returncode, *texts)
        if check and answer.returncode:
            raise CommandError(words, answer)
        return answer

    def popen(self, argv: Sequence[str | Path], log: Path, env: Mapping[str, str] | None = None) -> "Program":
        """Start a program that runs until it is killed or the lab ends; what it prints goes to `log`."""
        told = self._start({"do": "start"}, argv, log, env)
        return Program(Path(argv[0]).name, told["pid"], log)

    def become(self, argv: Sequence[str | Path]) -> NoReturn:
        """Become a command in the lab, with this process' terminal."""
        command = _command({"do": "wait", "pid": self.pid, "cgroups": self.cgroups}, argv)
        os.execve(command[0], command, dict(self.environment))

    def first(self, argv: Sequence[str | Path], log: Path, netns: str, own: Sequence[str]) -> tuple[int, int]:
        """Start the first process of a machine. Returns its process id here, and the one in the lab."""
        told = self._start({"do": "machine", "netns": netns, "own": list(own)}, argv, log, None)
        return told["pid"], told["inner"]

    def _start(
        self,
        spec: dict[str, Any],
        argv: Sequence[str | Path],
        log: Path,
        env: Mapping[str, str] | None,
    ) -> dict[str, int]:
        heard, tell = os.pipe()
        try:
            with log.open("ab") as out:
                done = subprocess.run(
                    _command(spec | {"pid": self.pid, "cgroups": self.cgroups, "tell": tell}, argv),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    pass_fds=[tell],
                    env={**self.environment, **(env or {})},
                    timeout=_START_S,
                    check=False,
                )
            os.close(tell)
            tell = -1
            told = os.read(heard, 256)
        finally:
            os.close(heard)
            if tell >= 0:
                os.close(tell)
        if done.returncode or not told:
            raise LabError(f"{argv[0]} cannot be started in the lab; the end of {log}:\n{tail(log)}")
        answer: dict[str, int] = json.loads(told)
        return answer


class Program:
    """A program that runs in the lab, whatever its parent is; as kube.processes.Program otherwise."""

    def __init__(self, name: str, pid: int, log: Path) -> None:
        self.name, self.pid, self.log = name, pid, log
        self._fd: int | None = None
        with contextlib.suppress(ProcessLookupError):
            self._fd = os.pidfd_open(pid)

    @property
    def alive(self) -> bool:
        # A pidfd is readable once its process has ended, whether or not its parent has waited for it.
        return self._fd is not None and not self._wait(0)

    def signal(self, number: signal.Signals) -> None:
        if self._fd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def pause(self) -> None:
        """SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        if self._fd is not None and not self._wait(_END_S):
            raise LabError(f"{self.name} ({self.pid}) does not die")

    def terminate(self) -> None:
        """Ask it to end, and wait; kill it when it does not."""
        self.signal(signal.SIGTERM)
        if self._fd is not None and not self._wait(_END_S):
            self.kill()

    def tail(self, lines: int = 15) -> str:
        """The end of its log."""
        return tail(self.log, lines)

    def _wait(self, timeout_s: float) -> bool:
        assert self._fd is not None
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def __del__(self) -> None:
        if self._fd is not None:
            os.close(self._fd)


def _command(spec: dict[str, Any], argv: Sequence[str | Path]) -> list[str]:
    return [sys.executable, "-I", "-S", str(ENTER), json.dumps(spec), *map(str, argv)]
