"""Encodes reservations in protobuf: each gang once, for all list and watch calls.

Without this cache the collector would encode all reservations again for each reader.
"""

import threading
from collections.abc import Iterable, Sequence

from hyperscout.v1 import placement_pb2 as pb
from hyperscout_placer.book.reservation import Reservation
from hyperscout_placer.messages.placements import held_message

from hyperscout_collector.serve.grpc.placement_watchers import News

_PLACEMENTS = b"\x0a"  # tag of field 1, length-delimited: `placements` in both messages


class PlacementBytes:
    """Caches the encoded message of each gang. Thread-safe."""

    def __init__(self) -> None:
        self.made = 0  # encodings since the start
        self._lock = threading.Lock()
        self._tiers = 0
        self._known: dict[str, tuple[Reservation, bytes]] = {}

    def list_response(self, book: Sequence[Reservation], tiers: int) -> bytes:
        """An encoded ListPlacementsResponse with all reservations. `tiers`: tiers of the hierarchy."""
        with self._lock:
            found = b"".join(self._each(book, tiers))
            if len(self._known) > len(book):  # some reservations were released
                self._known = {held.gang: self._known[held.gang] for held in book}
            return found

    def watch_response(self, news: News, tiers: int) -> bytes:
        """An encoded WatchPlacementsResponse. `tiers`: tiers of the hierarchy."""
        rest = pb.WatchPlacementsResponse(released=news.released, snapshot=news.snapshot)
        if news.snapshot:
            return self.list_response(news.held, tiers) + rest.SerializeToString()
        with self._lock:
            for gang in news.released:
                self._known.pop(gang, None)
            return b"".join(self._each(news.held, tiers)) + rest.SerializeToString()

    def _each(self, book: Iterable[Reservation], tiers: int) -> Iterable[bytes]:
        if tiers != self._tiers:
            self._known, self._tiers = {}, tiers
        for held in book:
            known = self._known.get(held.gang)
            if known is None or known[0] is not held:
                self.made += 1
                text = held_message(held, tiers).SerializeToString()
                known = self._known[held.gang] = held, _PLACEMENTS + _varint(len(text)) + text
            yield known[1]


def _varint(number: int) -> bytes:
    """Seven bits per byte, the lowest first (Protocol Buffers encoding, "Base 128 varints")."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
