"""Writes files that other processes read."""

import contextlib
import os
import tempfile
from pathlib import Path


def replace_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a temporary file and rename it to `path` (rename(2) is atomic within one file system).

    The file is on disk when the call returns. `mode`: its permissions. Raises OSError.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
