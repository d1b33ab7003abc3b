"""A real pseudo-terminal of a given width, and what a program wrote to it."""

import fcntl
import os
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence

from support.waiting import TIMEOUT_S


def on_screen(
    arguments: Sequence[str], columns: int, environment: Mapping[str, str], rows: int = 40
) -> tuple[int, str]:
    """Run the command line on a terminal: its exit code, and what it wrote there."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    chunks: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:  # EIO: the last one hung up
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "hyperscout_cli.main", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={"TERM": "xterm-256color", **environment},
        )
        os.close(theirs)
        code = process.wait(TIMEOUT_S)
        reader.join(TIMEOUT_S)
    finally:
        os.close(ours)
    return code, b"".join(chunks).decode().replace("\r\n", "\n")
