"""Run the unit tests in one process for each core, at most 8: `python tests/run_unit.py [options of pytest]`.

Each process collects and runs files of its own, and nothing passes between them. Under xdist every process
collects all files and sends several messages for each test, which takes as long as a third of the tests.

The output of the first process appears as it runs, that of the others when they have ended. The exit status
is 0 when all tests passed.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent / "unit"


def main(options: list[str]) -> int:
    """Run all files; the exit status is that of a process whose tests did not all pass."""
    files = sorted(str(path) for path in FOLDER.rglob("test_*.py"))
    # Neighbours take equally long: dealing them out one by one makes equal shares.
    count = min(len(os.sched_getaffinity(0)), 8)
    shares = [share for n in range(count) if (share := files[n::count])]
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", *options]
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in shares[1:]]
        first = subprocess.Popen([*command, *shares[0]])
        others = [
            subprocess.Popen([*command, *share], stdout=output, stderr=output)
            for share, output in zip(shares[1:], outputs, strict=True)
        ]
        codes = [first.wait()]
        for process, output in zip(others, outputs, strict=True):
            codes.append(process.wait())
            output.seek(0)
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
    # A process whose tests are all deselected has not failed, unless all are.
    passed = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}
    return next((code for code in codes if code not in passed), min(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
