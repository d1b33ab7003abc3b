"""Parses the texts of sweeps and managers, once per digest."""

import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping

import numpy as np
from hyperscout_formats.infiniband.ibnetdiscover import CA, Sweep, parse
from hyperscout_formats.managers import nmx
from hyperscout_formats.text.errors import FormatError

from hyperscout_collector.evidence.store import EvidenceStore

# Parsers of texts that show a fabric, by format. UFM data arrives in the format of `ibnetdiscover`.
Shown = Sweep | nmx.Domains
_READERS: Mapping[str, Callable[[bytes, str], Shown]] = {
    "ibnetdiscover": parse,
    "ufm": parse,
    "nmx": nmx.parse,
}


class SweepTexts:
    """Parsed sweeps by the digest of their text.

    Thread-safe; keeps at most `limit`, evicts the least recently used. `keep_only` forgets others earlier.
    """

    def __init__(self, store: EvidenceStore, limit: int = 32) -> None:
        self._store = store
        self._limit = limit
        self._sweeps: OrderedDict[bytes, Shown] = OrderedDict()
        self._port_guids: dict[bytes, frozenset[int]] = {}
        self._new: set[bytes] = set()  # read since the last call of `keep_only`
        self._lock = threading.Lock()

    def read(self, sha256: bytes, text: bytes, source: str, text_format: str = "ibnetdiscover") -> Shown:
        """Parse a text that has just arrived. Raises FormatError, which names the position."""
        if (reader := _READERS.get(text_format)) is None:
            raise FormatError(source, 0, f"unknown format {text_format!r}; expected {', '.join(_READERS)}")
        sweep = reader(text, source)
        self._keep(sha256, sweep)
        return sweep

    def get(self, sha256: bytes, source: str, text_format: str = "ibnetdiscover") -> Shown:
        """Returns the parsed text. Blocks on the store and the parser. Raises FormatError and StoreError."""
        with self._lock:
            if (sweep := self._sweeps.get(sha256)) is not None:
                self._sweeps.move_to_end(sha256)
                return sweep
        return self.read(sha256, self.text(sha256, source), source, text_format)

    def text(self, sha256: bytes, source: str) -> bytes:
        """Returns the text. Blocks on the store. Raises FormatError and StoreError."""
        compressed = self._store.bulk(sha256)
        if compressed is None:
            raise FormatError(source, 0, "the store does not contain its text")
        try:
            return zlib.decompress(compressed)
        except zlib.error as error:
            raise FormatError(source, 0, f"its stored text is damaged: {error}") from error

    def port_guids(self, sha256: bytes, source: str) -> frozenset[int]:
        """Returns the GUIDs of the adapter ports in the sweep. Blocks and raises like `get`."""
        with self._lock:
            if (found := self._port_guids.get(sha256)) is not None:
                return found
        sweep = self.get(sha256, source)
        if not isinstance(sweep, Sweep):
            return frozenset()
        guids = np.unique(np.concatenate([sweep.port_guid, sweep.guid[sweep.kind == CA]]))
        found = frozenset(guids[guids != 0].tolist())
        with self._lock:
            self._port_guids[sha256] = found
            self._drop_guids()
        return found

    def keep_only(self, named: Collection[bytes]) -> None:
        """Forget the texts that are not `named`.

        Those read since the last call stay: the findings that name them may not be stored yet. Each sweep of
        a fabric that changes is another text, and `limit` alone would keep the earlier ones for minutes.
        """
        with self._lock:
            for old in self._sweeps.keys() - named - self._new:
                del self._sweeps[old]
            self._new.clear()
            self._drop_guids()

    def _drop_guids(self) -> None:
        for old in self._port_guids.keys() - self._sweeps.keys():
            del self._port_guids[old]

    def _keep(self, sha256: bytes, sweep: Shown) -> None:
        with self._lock:
            self._new.add(sha256)
            self._sweeps[sha256] = sweep
            self._sweeps.move_to_end(sha256)
            while len(self._sweeps) > self._limit:
                self._new.discard(self._sweeps.popitem(last=False)[0])
