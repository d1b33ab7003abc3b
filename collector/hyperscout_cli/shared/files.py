"""Readers of files that are named on the command line, with bounds."""

import errno
import os
import select
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hyperscout_formats.infiniband.ibnetdiscover_text import is_sweep

from hyperscout_cli.shared.errors import BadInputError, unreadable

MAX_BYTES = 1 << 30  # a fabric of 65,536 hosts is 44 MB
SILENT_S = 600.0  # a sweep of a large fabric writes its first byte after minutes
_GZIP = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20
# The files that commands read become 10 to 50 times larger when they are unpacked.
_MAX_RATIO = 100
_SMALL_BYTES = 16 << 20  # a smaller file may have any ratio
SAVED_TOPOLOGY = "what `hyperscout infer -o json` or `hyperscout tree -o json` prints"


def read_bytes(path: str, expected: str = "", *, limit: int = MAX_BYTES) -> bytes:
    """The file's bytes, `-` for stdin; gzip is unpacked. Raises BadInputError.

    `expected`: what the file must contain; "" = it may be empty.
    """
    data = _packed(path, limit)
    if data.startswith(_GZIP):
        data = _unpacked(data, path, limit)
    if len(data) > limit:
        raise BadInputError(f"{shown(path)}: larger than {limit >> 20} MiB: split the file")
    if expected and (not data or data.isspace()):
        raise BadInputError(f"{shown(path)}: empty: expected {expected}")
    return data


def read_head(path: str, size: int) -> bytes:
    """The first bytes of a file, `-` for stdin; gzip is unpacked. Raises BadInputError."""
    import zlib

    data = _packed(path, size)
    if not data.startswith(_GZIP):
        return data[:size]
    try:
        return zlib.decompressobj(wbits=31).decompress(data, size)  # 31: with the header of gzip
    except zlib.error as error:
        raise _damaged(path, error) from error


def _packed(path: str, limit: int) -> bytes:
    try:
        return _read(sys.stdin.buffer.read, limit) if path == "-" else _read_file(path, limit)
    except OSError as error:
        raise unreadable(shown(path), error) from error


def _damaged(path: str, error: Exception) -> BadInputError:
    return BadInputError(f"{shown(path)}: damaged gzip file ({error}): save it again")


def _read_file(path: str, limit: int) -> bytes:
    """The bytes of a file. A pipe without data for SILENT_S raises TimeoutError; opening it does not wait."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        is_pipe = stat.S_ISFIFO(found.st_mode)
        os.set_blocking(file.fileno(), not is_pipe)

        def read(size: int) -> bytes:
            if is_pipe and not select.select([file], [], [], SILENT_S)[0]:
                what = f"no data for {SILENT_S:g} s: see whether the program that writes into this pipe hangs"
                raise TimeoutError(errno.ETIMEDOUT, what)
            return file.read(size) or b""

        return _read(read, limit, found.st_size)


def _unpacked(data: bytes, path: str, limit: int) -> bytes:
    import gzip
    import io
    import zlib

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            most = max(_SMALL_BYTES, _MAX_RATIO * len(data))
            unpacked = _read(file.read, min(most, limit))
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    if most < limit and len(unpacked) > most:
        raise BadInputError(
            f"{shown(path)}: more than {_MAX_RATIO} times as large when unpacked: unpack it with gunzip"
        )
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
    """The JSON of a saved topology. Raises BadInputError that names the line."""
    import json

    data = read_bytes(path, SAVED_TOPOLOGY)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:  # not UTF-8, or a number with thousands of digits
        if is_sweep(data):
            raise BadInputError(
                f"{shown(path)}: this is an ibnetdiscover dump, and no saved topology: run "
                f"`hyperscout infer --ibnetdiscover {path} -o json > fabric.json` first, and give fabric.json"
            ) from error
        where, why = "", str(error)
        if isinstance(error, json.JSONDecodeError):
            where, why = f":{error.lineno}", error.msg
        raise BadInputError(f"{shown(path)}{where}: not JSON: {why}; expected {SAVED_TOPOLOGY}") from error
