"""Bulk texts (a sweep's output): hashed and compressed while they are read.

A sweep of a large fabric is tens of MiB of text. Compressing piece by piece keeps the agent's memory
at the compressed size, about a tenth.
"""

import hashlib
import zlib
from dataclasses import dataclass

# 1: a sweep's text shrinks about tenfold even so, and the agent's CPU belongs to the node's jobs.
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Bulk:
    """One text, compressed as a single zlib stream (RFC 1950); `sha256` and `size_bytes` are the text's."""

    sha256: bytes
    size_bytes: int
    compressed: bytes


class BulkBuilder:
    """Takes a text in pieces, gives a `Bulk`."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._compressor = zlib.compressobj(_LEVEL)
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def write(self, piece: bytes) -> None:
        self._hash.update(piece)
        self._size_bytes += len(piece)
        if packed := self._compressor.compress(piece):
            self._pieces.append(packed)

    def finish(self) -> Bulk:
        """End the text. The builder is of no use afterwards."""
        self._pieces.append(self._compressor.flush())
        return Bulk(self._hash.digest(), self._size_bytes, b"".join(self._pieces))


def compress(text: bytes) -> Bulk:
    """Return the `Bulk` of a text that is in memory anyway."""
    builder = BulkBuilder()
    builder.write(text)
    return builder.finish()
