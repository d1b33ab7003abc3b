"""Reads the files of /sys/class/infiniband that `hyperscout_formats.infiniband.sysfs` parses."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hyperscout_formats.facts.pci import pci_slot
from hyperscout_formats.infiniband.sysfs import (
    COUNTER_FILES,
    DEVICE_FILES,
    DEVICE_LINK,
    MAX_FILE_BYTES,
    MAX_PORTS,
    PORT_FILES,
)

MAX_FILES: Final = MAX_PORTS * (len(DEVICE_FILES) + 1 + len(PORT_FILES))


def read_counters(root: Path) -> dict[str, bytes]:
    """Return the counter files by path. Each file is a query to the adapter, so call this rarely."""
    return read_tree(root, (), COUNTER_FILES)


def read_tree(
    root: Path, device_files: Sequence[str] = DEVICE_FILES, port_files: Sequence[str] = PORT_FILES
) -> dict[str, bytes]:
    """Return the content of files by path below `root`, which is /sys/class/infiniband or a tree like it.

    The result is empty where the folder does not exist: a host without RDMA. Files that are missing, or that
    the driver refuses to read, are left out. At most `MAX_FILES` files are read, each up to `MAX_FILE_BYTES`.
    Raises OSError where the folder itself cannot be read.
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
        except OSError:  # not an RDMA device, or it was just unplugged
            continue
        link = device / DEVICE_LINK
        path = os.path.realpath(link) if device_files else ""
        if pci_slot(path).address and not (link / "physfn").exists():  # not of a virtual function
            files[f"{device.name}/{DEVICE_LINK}"] = os.fsencode(path)
        names += [f"ports/{port}/{name}" for port in ports for name in port_files]
        for name in names:
            if len(files) >= MAX_FILES:
                return files
            try:
                with (device / name).open("rb") as file:
                    files[f"{device.name}/{name}"] = file.read(MAX_FILE_BYTES)
            except OSError:  # EINVAL for an unset GID, EIO for a faulty adapter, or no such counter
                continue
    return files
