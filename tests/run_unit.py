"""Run the unit tests in one process for each core: `python tests/run_unit.py [options of pytest]`.

Each process collects and runs files of its own, and nothing passes between them. Under xdist every process
collects all files and sends several messages for each test, which takes as long as a third of the tests.

The output of the first process appears as it runs, that of the others when they have ended. The exit status
is 0 when all tests passed.
"""

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "unit"


def main(options: list[str]) -> int:
    """Run all files; the exit status is the first one of a process that is not 0."""
    files = sorted(str(path) for path in FOLDER.rglob("test_*.py"))
    # Neighbours take equally long: dealing them out one by one makes equal shares.
    count = min(len(os.sched_getaffinity(0)), 8)
    shares = [share for n in range(count) if (share := files[n::count])]
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", *options]
    first, *others = (
        subprocess.Popen(
            [*command, *share],
            stdout=None if share is shares[0] else subprocess.PIPE,
            stderr=None if share is shares[0] else subprocess.STDOUT,
        )
        for share in shares
    )
    failed = first.wait()
    for process in others:
        output, _ = process.communicate()
        sys.stdout.buffer.write(output)
        sys.stdout.flush()
        failed = failed or process.returncode
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
