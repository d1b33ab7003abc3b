"""A collection of an API server, kept in memory: list, then watch, and list again when that breaks.

What is known is never lost by a broken watch: it stands until the next list has come in whole.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from random import Random
from typing import Any

from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.errors import GoneError, KubeError

_log = logging.getLogger(__name__)

_RETRY_BASE_S = 0.25
_RETRY_CAP_S = 5.0


def by_name(metadata: Object) -> str:
    name: str = metadata["name"]
    return name


def by_namespace(metadata: Object) -> str:
    """ "namespace/name": of all namespaces together."""
    return f"{metadata['namespace']}/{metadata['name']}"


class Reflector:
    """Objects of one collection by name. `changed` is told of each one that came, changed or went.

    `path`: the collection's, as in "/api/v1/nodes". `keep`: what is kept of an object (all, by default).
    `changed(name, before, after)`: None where it was not, or is not, there; called on the loop, must not
    block. A list after an interruption tells of the differences alone. `followed` is told when the server
    is back after trouble. `key`: what stands for the name, of an object's metadata.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        keep: Callable[[Object], Object] = lambda found: found,
        changed: Callable[[str, Object | None, Object | None], None] = lambda name, before, after: None,
        followed: Callable[[], None] = lambda: None,
        key: Callable[[Object], str] = by_name,
        rng: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.problem: str | None = None  # why what is here may be old; None = it is followed
        self.synced = asyncio.Event()  # a whole list has come in
        self._kube = kube
        self._path = path
        self._query = query or {}
        self._keep = keep
        self._changed = changed
        self._followed_again = followed
        self._key = key
        self._rng = rng
        self._sleep = sleep
        self._objects: dict[str, Object] = {}
        self._versions: dict[str, Object] = {}  # metadata of each as it came: `keep` may drop its version

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def get(self, name: str) -> Object | None:
        return self._objects.get(name)

    def learn(self, found: Object) -> None:
        """Take in what a write of ours answered: the watch tells the same a moment later.

        An answer that is older than what is here is passed over.
        """
        if not self._is_older(found):
            self._set(self._key(found["metadata"]), found)

    def forget(self, name: str) -> None:
        """It is known to be gone."""
        self._set(name, None)

    async def run(self) -> None:
        """Follow until cancelled."""
        failures = 0
        version = ""
        while True:
            heard = False
            try:
                if not version:
                    version = await self._list()
                async for event in self._kube.watch(self._path, version, self._query):
                    heard, failures = True, 0
                    self._followed()
                    version = self._take(event) or version
                # The server ends a watch every few minutes; the next one goes on from there.
            except GoneError:
                version = ""
            except KubeError as error:
                failures += 1
                if self.problem is None:
                    _log.warning("%s", error)
                self.problem = str(error)
                if not error.retry:
                    version = ""  # a resource that was not there, or not allowed, may be back as another
                await self._sleep(max(self._delay_s(failures), error.retry_after_s))
                continue
            if not heard:
                failures += 1
                if failures > 1:  # a server that ends each watch at once is no reason to spin
                    await self._sleep(self._delay_s(failures - 1))

    def _delay_s(self, failures: int) -> float:
        return min(_RETRY_BASE_S * 2.0 ** min(failures - 1, 10), _RETRY_CAP_S) * self._rng.uniform(0.5, 1.0)

    async def _list(self) -> str:
        objects, version = await self._kube.list(self._path, self._query)
        fresh = {self._key(found["metadata"]): found for found in objects}
        for name in self._objects.keys() - fresh.keys():
            self._set(name, None)
        for name, found in fresh.items():
            self._set(name, found)
        self._followed()
        self.synced.set()
        return version

    def _followed(self) -> None:
        if self.problem is not None:
            _log.info("%s is followed again", self._path)
            self.problem = None
            self._followed_again()

    def _take(self, event: Object) -> str | None:
        """One event; returns the resource version to go on from."""
        found = event["object"]
        metadata = found["metadata"]
        if event["type"] == "DELETED":
            if not self._is_of_a_predecessor(metadata):
                self._set(self._key(metadata), None)
        elif event["type"] in ("ADDED", "MODIFIED") and not self._is_older(found):
            self._set(self._key(metadata), found)
        version: str | None = metadata.get("resourceVersion")
        return version

    def _set(self, name: str, found: Object | None) -> None:
        """`found` as it came, or None when it is gone."""
        before = self._objects.get(name)
        after = None if found is None else self._keep(found)
        if found is None or after is None:
            self._objects.pop(name, None)
            self._versions.pop(name, None)
        else:
            metadata = found["metadata"]
            self._objects[name] = after
            self._versions[name] = {key: metadata.get(key) for key in ("uid", "resourceVersion")}
        if before != after:
            self._changed(name, before, after)

    def _is_older(self, found: Object) -> bool:
        """Whether `found` is an earlier version of the very object that is here (numbers: KEP-5504)."""
        metadata = found["metadata"]
        known = self._versions.get(self._key(metadata))
        if known is None or metadata.get("uid") != known["uid"]:
            return False
        return _is_before(metadata, known)

    def _is_of_a_predecessor(self, metadata: Object) -> bool:
        """Whether it is of an object that had gone before the one of its name that is here came."""
        known = self._versions.get(self._key(metadata))
        return known is not None and metadata.get("uid") != known["uid"] and _is_before(metadata, known)


def _is_before(metadata: Object, known: Object) -> bool:
    try:
        return int(metadata["resourceVersion"]) < int(known["resourceVersion"])
    except (KeyError, TypeError, ValueError):
        return False
