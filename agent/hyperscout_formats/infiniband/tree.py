"""Gets the files of /sys/class/infiniband that `infiniband_sysfs` reads. All the I/O of the two."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hyperscout_formats.infiniband.sysfs import (
    COUNTER_FILES,
    DEVICE_FILES,
    MAX_FILE_BYTES,
    MAX_PORTS,
    PORT_FILES,
)

MAX_FILES: Final = MAX_PORTS * (len(DEVICE_FILES) + len(PORT_FILES))


def read_counters(root: Path) -> dict[str, bytes]:
    """The same with what ports count. Each file is a question to the adapter: to be read now and then."""
    return read_tree(root, (), COUNTER_FILES)


def read_tree(
    root: Path, device_files: Sequence[str] = DEVICE_FILES, port_files: Sequence[str] = PORT_FILES
) -> dict[str, bytes]:
    """Content by path below `root`, which is /sys/class/infiniband or a tree like it.

    Empty where there is no such folder: a host without RDMA. A file that is missing, or that its driver
    does not let read, is left out. Raises OSError where the folder itself cannot be read.
    """
    files: dict[str, bytes] = {}
    try:
        devices = sorted(root.iterdir())
    except FileNotFoundError:
        return files
    for device in devices:
        names = list(device_files)
        try:
            ports = sorted(path.name for path in (device / "ports").iterdir())
        except OSError:  # not an RDMA device, or it was unplugged just now
            continue
        names += [f"ports/{port}/{name}" for port in ports for name in port_files]
        for name in names:
            if len(files) >= MAX_FILES:
                return files
            try:
                with (device / name).open("rb") as file:
                    files[f"{device.name}/{name}"] = file.read(MAX_FILE_BYTES)
            except OSError:  # EINVAL of an unset GID, EIO of a sick adapter, no such counter
                continue
    return files
