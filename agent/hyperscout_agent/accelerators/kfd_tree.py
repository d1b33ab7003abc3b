"""Reads the files of the driver amdkfd that `hyperscout_formats.amd.kfd` parses."""

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hyperscout_formats.amd.kfd import MAX_FILE_BYTES, error_count
from hyperscout_formats.nvidia.nvml_values import pci_address

_MAX_FILES: Final = 65_536  # about 500 nodes (a GPU may have 8 partitions), each with links to 127 others
_MAX_CARDS: Final = 1024
_NUMBER: Final = re.compile(r"\d{1,4}", re.ASCII)
_CARD: Final = re.compile(r"card\d{1,4}", re.ASCII)


def read_nodes(root: Path) -> dict[str, bytes]:
    """Return the content of files by path below `root`; empty on a host without the driver.

    A file that cannot be read is empty: the kernel refuses those of a node to a container that may not use
    the GPU. Raises OSError where there are too many files.
    """
    files: dict[str, bytes] = {}

    def read(name: str) -> None:
        files[name] = b""
        with contextlib.suppress(OSError):
            files[name] = _content(root / name)

    for node in _numbered(root):
        read(f"{node.name}/gpu_id")
        if files[f"{node.name}/gpu_id"].strip() == b"0":
            continue
        read(f"{node.name}/properties")
        for link in _numbered(node / "io_links"):
            if len(files) >= _MAX_FILES:
                raise OSError(errno.EFBIG, f"more than {_MAX_FILES} files", str(root))
            read(f"{node.name}/io_links/{link.name}/properties")
    return files


def read_errors(sysfs: Path) -> dict[str, int]:
    """Return the number of errors by PCI address, of cards with the file `xgmi_error`. Reading clears it."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for card in sorted((sysfs / "class/drm").iterdir())[:_MAX_CARDS]:
            if _CARD.fullmatch(card.name):
                with contextlib.suppress(OSError):
                    address = pci_address((card / "device").resolve().name)
                    found[address] = error_count(_content(card / "device/xgmi_error"))
    return found


def _numbered(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from sorted(path for path in folder.iterdir() if _NUMBER.fullmatch(path.name))


def _content(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(MAX_FILE_BYTES)
