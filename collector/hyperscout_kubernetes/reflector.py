"""In-memory copy of a collection of an API server: list, then watch, and list again if the watch fails.

A broken watch loses no objects. They remain until the next complete list arrives.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from operator import itemgetter
from random import Random
from typing import Any

from hyperscout_runtime.backoff import Backoff

from hyperscout_kubernetes.client import Kube, Object
from hyperscout_kubernetes.errors import GoneError, KubeError, NotFoundError

_log = logging.getLogger(__name__)

_RETRY_BASE_S = 0.25
_RETRY_CAP_S = 5.0


def by_namespace(metadata: Object) -> str:
    """Return "namespace/name", a key that is unique across namespaces."""
    return f"{metadata['namespace']}/{metadata['name']}"


class Reflector:
    """Keeps the objects of one collection by name and reports each change.

    `path`: the collection, for example "/api/v1/nodes".
    `keep`: returns the part of an object to keep (default: all of it).
    `changed(name, before, after)`: called for each object that appears, changes or disappears. `before` is
    None for a new object, `after` is None for a removed one. It runs on the event loop and must not block.
    After an interruption, it is called for the differences only.
    `followed`: called when the server is reachable again after a problem.
    `key`: returns the name of an object from its metadata.
    """

    def __init__(
        self,
        kube: Kube,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        keep: Callable[[Object], Object] = lambda found: found,
        changed: Callable[[str, Object | None, Object | None], None],
        followed: Callable[[], None] = lambda: None,
        key: Callable[[Object], str] = itemgetter("name"),
        rng: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.problem: str | None = None  # why the objects may be out of date; None if they are current
        self.is_unknown = False  # whether the server has no such resource
        self.synced = asyncio.Event()  # set once a complete list has arrived
        self._kube = kube
        self._path = path
        self._query = query or {}
        self._keep = keep
        self._changed = changed
        self._on_recovery = followed
        self._key = key
        self._rng = rng
        self._sleep = sleep
        self._objects: dict[str, Object] = {}
        self._versions: dict[str, Object] = {}  # uid and resourceVersion by name; `keep` may drop them

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def get(self, name: str) -> Object | None:
        return self._objects.get(name)

    def learn(self, found: Object) -> None:
        """Store the response to the collector's own write. The watch delivers the same object later.

        A response that is not newer than the stored object is ignored.
        """
        if not self._is_known(found):
            self._set(self._key(found["metadata"]), found)

    def forget(self, name: str) -> None:
        """Remove an object that is known to be deleted."""
        self._set(name, None)

    async def run(self) -> None:
        """Follow the collection until cancelled."""
        backoff = Backoff(_RETRY_BASE_S, _RETRY_CAP_S, self._rng)
        version, idle = "", False
        while True:
            heard = False
            try:
                if not version:
                    version = await self._list()
                async for event in self._kube.watch(self._path, version, self._query):
                    heard, idle = True, False
                    backoff.reset()
                    self._recovered()
                    version = self._take(event) or version
                # The server ends a watch every few minutes. The next watch continues from there.
            except GoneError:
                version = ""
            except KubeError as error:
                if self.problem is None:
                    _log.warning("%s", error)
                self.problem, self.is_unknown = str(error), isinstance(error, NotFoundError)
                if not error.retry:
                    version = ""  # the resource may be recreated later, so list it again
                await self._sleep(max(backoff.next_s(), error.retry_after_s))
                continue
            if not heard:
                if idle:  # a server that ends each watch at once must not cause a busy loop
                    await self._sleep(backoff.next_s())
                idle = True

    async def _list(self) -> str:
        objects, version = await self._kube.list(self._path, self._query)
        fresh = {self._key(found["metadata"]): found for found in objects}
        for name in self._objects.keys() - fresh.keys():
            self._set(name, None)
        for name, found in fresh.items():
            self._set(name, found)
        self._recovered()
        self.synced.set()
        return version

    def _recovered(self) -> None:
        if self.problem is not None:
            _log.info("the watch of %s works again", self._path)
            self.problem, self.is_unknown = None, False
            self._on_recovery()

    def _take(self, event: Object) -> str | None:
        """Apply one event. Returns the resource version to continue from."""
        found = event["object"]
        metadata = found["metadata"]
        if event["type"] == "DELETED":
            if not self._is_of_a_predecessor(metadata):
                self._set(self._key(metadata), None)
        elif event["type"] in ("ADDED", "MODIFIED") and not self._is_known(found):
            self._set(self._key(metadata), found)
        version: str | None = metadata.get("resourceVersion")
        return version

    def _set(self, name: str, found: Object | None) -> None:
        """Store `found`, an object as the server sent it; None removes the object."""
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

    def _is_known(self, found: Object) -> bool:
        """Return whether `found` is the stored object with the same uid, or an earlier version of it.

        Resource versions are compared as numbers (KEP-5504).
        """
        metadata = found["metadata"]
        known = self._versions.get(self._key(metadata))
        return known is not None and metadata.get("uid") == known["uid"] and _is_not_newer(metadata, known)

    def _is_of_a_predecessor(self, metadata: Object) -> bool:
        """Return whether `metadata` is of an earlier object of the same name as the stored one."""
        known = self._versions.get(self._key(metadata))
        return known is not None and metadata.get("uid") != known["uid"] and _is_not_newer(metadata, known)


def _is_not_newer(metadata: Object, known: Object) -> bool:
    try:
        return int(metadata["resourceVersion"]) <= int(known["resourceVersion"])
    except (KeyError, TypeError, ValueError):
        return False
