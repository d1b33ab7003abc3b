"""What a pod was found to be able to do is judged rightly, and the program that finds it out runs."""

import json
import subprocess
import sys
from typing import Any

from lab.rights import PROGRAM
from support.real import require_real
from support.rights import CONFINED
from support.waiting import TIMEOUT_S


def test_the_program_needs_nothing_but_python(tmp_path: Any) -> None:
    """The program as sent, without site-packages. No API server answers, and the user has most rights."""
    require_real("linux")
    # No attempt that would change this machine: only what it says of itself.
    program = PROGRAM.replace("FOLDERS = (", f"FOLDERS = ({str(tmp_path)!r},) and (")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path / "none"), ""],
        env={"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found.keys() == CONFINED.keys()
    assert found["process"].keys() == CONFINED["process"].keys()
    assert set(found["asked"]["no token"].values()) == {"ConnectionRefusedError"}
    assert found["token"] is None
