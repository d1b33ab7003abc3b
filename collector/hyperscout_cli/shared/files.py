"""Readers of files that are named on the command line, with bounds."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyperscout_cli.shared.errors import CliError

MAX_BYTES = 1 << 30  # a fabric of 65,536 hosts is 44 MB
_GZIP = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20
# The files that commands read become 10 to 50 times larger when they are unpacked.
_MAX_RATIO = 100
_SMALL_BYTES = 16 << 20  # a smaller file may have any ratio
SAVED_TOPOLOGY = "what `hyperscout infer -o json` or `hyperscout tree -o json` prints"


def read_bytes(path: str, expected: str = "", *, limit: int = MAX_BYTES) -> bytes:
    """The file's bytes, `-` for stdin; gzip is unpacked. Raises CliError.

    `expected`: what the file must contain; "" = it may be empty.
    """
    try:
        if path == "-":
            data = _read(sys.stdin.buffer.read, limit)
        else:
            with Path(path).open("rb") as file:
                data = _read(file.read, limit, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}") from error
    if data.startswith(_GZIP):
        data = _unpacked(data, path, limit)
    if len(data) > limit:
        raise CliError(f"{path}: larger than {limit >> 20} MiB: split the file")
    if expected and (not data or data.isspace()):
        raise CliError(f"{shown(path)}: empty: expected {expected}")
    return data


def _unpacked(data: bytes, path: str, limit: int) -> bytes:
    import gzip
    import io
    import zlib

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            most = max(_SMALL_BYTES, _MAX_RATIO * len(data))
            unpacked = _read(file.read, min(most, limit))
    except (OSError, EOFError, zlib.error) as error:
        raise CliError(f"{path}: damaged gzip file ({error}): save it again") from error
    if most < limit and len(unpacked) > most:
        raise CliError(f"{path}: more than {_MAX_RATIO} times as large when unpacked: unpack it with gunzip")
    return unpacked


def _read(read: Callable[[int], bytes], limit: int, expected: int = 0) -> bytes:
    """Returns all bytes; more than `limit` if it is larger. `expected`: the likely size.

    A read allocates what it is asked for, so an unknown size is read in pieces.
    """
    pieces: list[bytes] = []
    size = 0
    while size <= limit and (piece := read(max(_PIECE_BYTES, min(expected, limit) + 1 - size))):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def shown(path: str) -> str:
    """The file's name in messages."""
    return "stdin" if path == "-" else path


def node_name(path: str) -> str:
    """The node of a file, from the file's stem: gpu-01 for `racks/gpu-01.json.gz`."""
    if path == "-":
        return "stdin"
    name = Path(path).name
    return Path(name.removesuffix(".gz")).stem


def read_json(path: str) -> Any:
    """The JSON of a saved topology. Raises CliError that names the line."""
    import json

    data = read_bytes(path, SAVED_TOPOLOGY)
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise CliError(
            f"{shown(path)}:{error.lineno}: not JSON: {error.msg}; expected {SAVED_TOPOLOGY}"
        ) from error
    except (ValueError, RecursionError) as error:  # not UTF-8, or a number with thousands of digits
        raise CliError(f"{shown(path)}: not JSON: {error}; expected {SAVED_TOPOLOGY}") from error
