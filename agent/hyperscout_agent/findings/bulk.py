"""Hashes and compresses bulk texts (the output of a sweep) while they are read.

A sweep of a large fabric is tens of MiB of text. Compressing piece by piece limits the agent's memory to
the compressed size, about a tenth of the text.
"""

import hashlib
import zlib
from dataclasses import dataclass

# The lowest level still compresses a sweep's text about tenfold, and it leaves the CPU to the node's jobs.
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Bulk:
    """A text, compressed as one zlib stream (RFC 1950).

    `sha256` and `size_bytes` describe the uncompressed text.
    """

    sha256: bytes
    size_bytes: int
    compressed: bytes


class BulkBuilder:
    """Builds a `Bulk` from a text that arrives in pieces."""

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
        """End the text and return its `Bulk`. The builder cannot be used afterwards."""
        self._pieces.append(self._compressor.flush())
        return Bulk(self._hash.digest(), self._size_bytes, b"".join(self._pieces))


def compress(text: bytes) -> Bulk:
    """Return the `Bulk` of a text that is already in memory."""
    builder = BulkBuilder()
    builder.write(text)
    return builder.finish()
