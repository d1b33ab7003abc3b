"""Assembles a bulk text from its chunks, with limits on the compressed and the uncompressed size.

The compressed size is checked as chunks arrive. The uncompressed size is counted piece by piece before the
text is unpacked as a whole. A few KiB that expand to terabytes (a zip bomb) therefore cost no memory.
"""

import hashlib
import zlib
from dataclasses import dataclass

from hyperscout_collector.evidence.state import Bulk

_PIECE_BYTES = 1 << 20


class BulkError(ValueError):
    """The text cannot be accepted. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class BulkLimits:
    """Limits in bytes. A sweep of 65,536 hosts is 44 MB of text, 4 MB compressed.

    `compressed` is also the limit of all texts of a stream that wait for their findings.
    """

    compressed: int = 32 * 1024 * 1024  # an agent holds no more
    text: int = 128 * 1024 * 1024


class BulkAssembly:
    """One text in transfer. A chunk that does not fit invalidates the text; later chunks are ignored."""

    def __init__(self, sha256: bytes, limits: BulkLimits) -> None:
        self.sha256 = sha256
        self._limits = limits
        # One buffer: an object takes 35 bytes more than its chunk, and an empty chunk counts 0.
        self._compressed = bytearray()
        self._invalid: str | None = None
        if len(sha256) != hashlib.sha256().digest_size:
            self.invalidate(f"a digest of {len(sha256)} bytes; a SHA-256 has 32")

    @property
    def size_bytes(self) -> int:
        """Compressed bytes that have arrived; 0 if the text is invalid."""
        return len(self._compressed)

    def add(self, offset: int, data: bytes) -> None:
        """Add the next chunk."""
        if self._invalid is not None:
            return
        if offset != self.size_bytes:
            self.invalidate(f"a chunk at offset {offset}; expected offset {self.size_bytes}")
        elif self.size_bytes + len(data) > self._limits.compressed:
            self.invalidate(f"more than {self._limits.compressed} bytes of compressed text")
        else:
            self._compressed += data

    def finish(self) -> tuple[Bulk, bytes]:
        """Returns the compressed and the plain text.

        Blocks for about a second on a large text. Raises BulkError.
        """
        if self._invalid is not None:
            raise BulkError(self._invalid)
        compressed = bytes(self._compressed)
        self._compressed.clear()
        text = inflate(compressed, self._limits.text)
        if hashlib.sha256(text).digest() != self.sha256:
            raise BulkError("the text does not match its SHA-256")
        return Bulk(self.sha256, len(text), compressed), text

    def invalidate(self, reason: str) -> None:
        """Drop what has arrived. `finish` raises BulkError with this reason."""
        self._invalid = reason
        self._compressed.clear()


def inflate(compressed: bytes, limit_bytes: int) -> bytes:
    """Decompress one complete zlib stream (RFC 1950) of at most `limit_bytes` of text. Raises BulkError."""
    inflater = zlib.decompressobj()
    size, rest = 0, compressed
    try:
        while not inflater.eof and (piece := inflater.decompress(rest, _PIECE_BYTES)):
            size, rest = size + len(piece), inflater.unconsumed_tail
            if size > limit_bytes:
                raise BulkError(f"more than {limit_bytes} bytes of text")
    except zlib.error as error:
        raise BulkError(f"not a zlib stream: {error}") from error
    if not inflater.eof:
        raise BulkError("the compressed stream is cut off")
    if inflater.unused_data:
        raise BulkError(f"{len(inflater.unused_data)} bytes after the end of the compressed stream")
    return zlib.decompress(compressed, bufsize=max(size, 1))
