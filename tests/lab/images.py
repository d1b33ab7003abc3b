"""The images of this checkout, built by `deploy/images.py` if they are not in the cache."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "images.py"


class ImagesError(Exception):
    """They could not be built; what `say` heard tells why."""


@dataclass(frozen=True, slots=True)
class Images:
    """Archives that `ctr images import` takes. `seconds`: what finding or building them took."""

    agent: Path
    collector: Path
    seconds: float
    built: bool


def images(say: Callable[[str], None] = print) -> Images:
    """Find or build both; some minutes the first time, half a one after a change of our code.

    Raises:
        ImagesError: that failed.
    """
    # Ended with us, whatever our end: a build goes on for minutes.
    command = ["setpriv", "--pdeathsig", "TERM", sys.executable, str(_SCRIPT), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            say(line.rstrip())
        answer = process.stdout.read()
    if process.returncode:
        raise ImagesError(f"{_SCRIPT.name} failed ({process.returncode})")
    found = json.loads(answer)
    return Images(Path(found["agent"]), Path(found["collector"]), found["seconds"], found["built"])
