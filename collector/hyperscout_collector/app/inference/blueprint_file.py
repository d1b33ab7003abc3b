"""Reads the blueprint file again whenever an operator or a ConfigMap changes it.

The collector checks the file every `CHECK_S` seconds and reads it if its stamp changed. If the file is
missing or invalid, the last valid blueprint stays in force and `status` shows the problem. The collector also
starts without a valid blueprint: an error in the file must not prevent discovery.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

from hyperscout_formats.text.errors import FormatError
from hyperscout_inference.blueprint.comparing import compare
from hyperscout_inference.blueprint.declared import Blueprint
from hyperscout_inference.blueprint.drift import with_drift
from hyperscout_inference.blueprint.reading import parse
from hyperscout_inference.blueprint.yaml_tree import MAX_BYTES
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.errors import described
from hyperscout_topology.topology import Topology

_log = logging.getLogger(__name__)

CHECK_S = 5.0

_Stamp = tuple[int, int, int]


class BlueprintFile:
    """The blueprint in force. `run` calls `changed`, on the event loop, when it loads another blueprint.

    `problem`: why the present content of the file is not in force; None = it is.
    """

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self.problem: str | None = None
        self._path = path
        self._changed = changed
        self._stamp: _Stamp | None = None
        self._digest = b""
        self._blueprint: Blueprint | None = None
        self._unseen = 0
        self._in_thread = BoundedExecutor("blueprint")

    async def run(self) -> None:
        """Check the file every `CHECK_S` seconds until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            if await self._in_thread(self.read):
                self._changed()

    def read(self) -> bool:
        """Check the file once. Returns whether another blueprint is in force now. Blocks."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            if stamp == self._stamp:
                return False
            with self._path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
            digest = hashlib.sha256(data).digest()
            if digest != self._digest or self.problem is not None:
                found = parse(data, str(self._path))
                self._blueprint, self._digest, self.problem = found, digest, None
                self._stamp = stamp
                _log.info("%s: a blueprint of %d cables", self._path, len(found.cables))
                if found.omission:
                    _log.warning("%s: %s", self._path, found.omission)
                return True
            self._stamp = stamp
        except OSError as error:
            self._stamp = None
            self._failed(f"{self._path}: {error.strerror or error}: check the setting `blueprint`")
        except FormatError as error:
            self._stamp = stamp
            self._failed(str(error))
        except Exception as error:  # of a reader: a file must not end the collector
            self._stamp = stamp
            self._failed(f"{self._path}: a defect of its reader, please report it: {described(error)}")
        return False

    def drifted(self, topology: Topology) -> Topology:
        """The topology with an anomaly for each difference from the blueprint.

        Inference calls it in its thread.
        """
        blueprint = self._blueprint
        if blueprint is None:
            return topology
        found = compare(topology, blueprint)
        if found.unseen != self._unseen:
            _log.info(
                "%d of %d cables of the blueprint have no evidence source", found.unseen, found.declared
            )
            self._unseen = found.unseen
        return with_drift(topology, found)

    def _failed(self, error: str) -> None:
        stays = "the previous one stays in force" if self._blueprint is not None else "there is none"
        problem = f"the blueprint is not in force, {stays}: {error}"
        if problem != self.problem:
            _log.error("%s", problem)
        self.problem = problem
