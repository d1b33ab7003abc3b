"""The command as process 1 of a container, for which the kernel drops signals without a handler."""

import signal
import subprocess
import sys

PROGRAM = """
import os, signal, sys

own, os.getpid = os.getpid(), lambda: 1
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as for process 1

class Import:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(own, signal.SIGTERM)

sys.meta_path.insert(0, Import())
import hyperscout_cli.main
sys.exit("not ended")
"""


def test_it_ends_at_a_signal_during_its_imports() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "")
