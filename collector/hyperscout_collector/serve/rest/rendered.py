"""Caches the texts and lists that REST serves of one generation. Each is made at its first use.

That takes up to a second for a large topology, so callers do it in a thread. The cache is dropped with its
generation.
"""

import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from hyperscout_publish.hypernodes.yaml_text import hypernodes_yaml
from hyperscout_publish.slurm import text as slurm
from hyperscout_topology import objects
from hyperscout_topology.objects import topology_json
from hyperscout_topology.topology import Topology

_JSON, _YAML, _TEXT = "application/json", "application/yaml", "text/plain; charset=utf-8"
_GZIP_LEVEL = 3  # shrinks JSON to a tenth; a higher level costs more time than it saves
_GZIP_FROM_BYTES = 1024

# name of the output -> media type, and the function that writes it
OUTPUTS: dict[str, tuple[str, Callable[[Topology], Iterator[str]]]] = {
    "json": (_JSON, topology_json),
    "hypernodes": (_YAML, hypernodes_yaml),
    "slurm-tree": (_TEXT, slurm.slurm_tree),
    "slurm-block": (_TEXT, slurm.slurm_block),
    "slurm-yaml": (_YAML, slurm.slurm_yaml),
}


class Rendered:
    """The texts and lists of one generation. Thread-safe."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._lock = threading.Lock()
        self._made: dict[Any, Any] = {}

    def text(self, output: str, *, links: bool, zipped: bool) -> bytes:
        """One of OUTPUTS. `links`: whether it includes links and adapters. `zipped`: in gzip format."""

        def make() -> bytes:
            shown = self.topology if links else replace(self.topology, links=(), adapters=())
            return "".join(OUTPUTS[output][1](shown)).encode()

        plain: bytes = self._once(("text", output, links), make)
        return self._once(("zipped", output, links), lambda: zip_of(plain)) if zipped else plain

    def objects(self, kind: str, order: Callable[[objects.Object], Any]) -> list[tuple[Any, objects.Object]]:
        """All objects of a kind with their sort keys, sorted."""

        def make() -> list[tuple[Any, objects.Object]]:
            return sorted(
                ((order(one), one) for one in objects.OF_TOPOLOGY[kind](self.topology)), key=lambda x: x[0]
            )

        found: list[tuple[Any, objects.Object]] = self._once(("objects", kind), make)
        return found

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]


def zip_of(data: bytes) -> bytes:
    """The data in gzip format (RFC 1952); equal data gives equal bytes."""
    return gzip.compress(data, _GZIP_LEVEL, mtime=0)


def worth_zipping(data: bytes) -> bool:
    return len(data) >= _GZIP_FROM_BYTES
