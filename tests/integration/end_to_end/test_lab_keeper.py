"""The lab's first process: nothing enters the lab before it has namespaces of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import lab.enter
import lab.keeper
from support.real import require_real

require_real("root", "netns")

LAB = Path(lab.keeper.__file__).parent
# A keeper whose first process is slow to get its own mounts. Its id is printed, then the keeper waits.
SLOW = """
import enter, keeper, time
real = enter.unshare
def slow(*kinds):
    time.sleep(0.5 if "mnt" in kinds else 0)
    real(*kinds)
enter.unshare = slow
keeper.main({"folder": "/nonexistent", "cgroups": [], "own": [], "first": "/usr/bin/yes", "attached": False})
"""


def mounts_of(pid: int) -> int:
    return Path(f"/proc/{pid}/ns/mnt").stat().st_ino


def test_the_first_process_is_named_when_it_has_its_own_mounts() -> None:
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(LAB)!r})\n{SLOW}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        first = int(keeper.stdout.readline())
        try:
            assert mounts_of(first) != mounts_of(os.getpid())
        finally:
            keeper.send_signal(signal.SIGTERM)
            assert keeper.wait(30) == 0
    assert not Path(f"/proc/{first}").exists()


def test_a_process_with_the_mounts_of_this_machine_is_not_entered() -> None:
    spec = f'{{"do": "wait", "pid": {os.getpid()}, "cgroups": []}}'
    command = [sys.executable, "-I", "-S", lab.enter.__file__, spec, "true"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, "is not in the lab" in ran.stderr) == (125, True)
