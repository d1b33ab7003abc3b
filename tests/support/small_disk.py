"""A file system that a test can fill."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.real import go_without, require_real


@contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """Mount a tmpfs of `mib` MiB below `folder`. Where none can be mounted, see `go_without`."""
    require_real("root")
    mount = folder / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(mount)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        go_without({"tmpfs": f"none can be mounted here: {done.stderr.decode().strip()}"})
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)
