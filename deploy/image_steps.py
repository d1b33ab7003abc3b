"""Runs the programs that build images, reports steps that take long, and writes their output to a log."""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

Say = Callable[[str], None]

_LOOK_EVERY_S = 0.1
_SILENCE_S = 10.0
_STEP_S = 1.0
_STEP = re.compile(r"^(?:\[[\d/]+\] )?STEP \d+/\d+: (.*)|^#\d+ \[[^\]]*\d+/\d+\] (.*)")


class BuildError(Exception):
    """An image could not be built; the text names the step and its log."""


def follow(
    command: Sequence[str],
    what: str,
    log: Path,
    say: Say,
    *,
    timeout_s: float | None = None,
    environment: dict[str, str] | None = None,
) -> None:
    """Run a program and report steps that take long. Raises BuildError if it fails or takes too long."""
    try:
        with log.open("ab") as lines:
            mark = lines.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=subprocess.STDOUT,
                env=os.environ | (environment or {}),
            )
            try:
                _watch(process, what, log, mark, say, timeout_s)
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()
    except OSError as error:
        raise BuildError(f"{what}: {error}") from error
    if process.returncode:
        with log.open("rb") as said:
            said.seek(mark)
            tail = said.read().decode(errors="replace").splitlines()[-15:]
        raise BuildError("\n".join((f"{what} failed ({process.returncode}); the end of {log}:", *tail)))


def _watch(
    process: "subprocess.Popen[bytes]", what: str, log: Path, mark: int, say: Say, timeout_s: float | None
) -> None:
    """Wait for the end. Reports each step that took over a second, and the current step every ten seconds."""
    began = said = since = time.monotonic()
    step = rest = ""
    with log.open("rb") as lines:
        lines.seek(mark)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_EVERY_S)
            ended, now = process.returncode is not None, time.monotonic()
            *whole, rest = (rest + lines.read().decode(errors="replace")).split("\n")
            for found in filter(None, map(_STEP.match, whole)):
                if step and now - since >= _STEP_S:
                    say(f"{what}: {step}: {now - since:.0f} s")
                    said = now
                step, since = _short(found[1] or found[2]), now
            name = f"{what}: {step}" if step else what
            if ended:
                if now - since >= _STEP_S:
                    say(f"{name}: {now - since:.0f} s")
                return
            if now - said >= _SILENCE_S:
                said = now
                say(f"{name} ... {now - since:.0f} s")
            if timeout_s is not None and now - began > timeout_s:
                raise BuildError(f"{what}: not done after {timeout_s:.0f} s")


def _short(step: str) -> str:
    words = re.sub(r"--mount=\S+\s+", "", step)
    return " ".join(words.split())[:60]


def ends_with_us(command: Sequence[str]) -> list[str]:
    """The command in its own namespaces, killed when this process ends."""
    alone = ["unshare", "--mount", "--propagation", "private"]
    alone += ["--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["setpriv", "--pdeathsig", "KILL", *alone, *command]
