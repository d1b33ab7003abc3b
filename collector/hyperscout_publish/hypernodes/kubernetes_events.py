"""Posts Events on HyperNodes and nodes (`kubectl describe hn`), on transitions only.

Events are best effort: one that cannot be written is dropped, and nothing waits for it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from hyperscout_kubernetes.client import MANAGER, Kube
from hyperscout_kubernetes.errors import KubeError

from hyperscout_publish.hypernodes.wanted import API_VERSION, KIND

_log = logging.getLogger(__name__)

# Events of cluster-scoped objects belong to this namespace, as in client-go's recorder.
NAMESPACE = "default"
COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/events"
_MAX_NAME = 200  # node names and Event names may have 253 characters, and an Event name also has a time
_MAX_MESSAGE = 1024  # bytes, the limit of the API
_MAX_WAITING = 1000

Severity = Literal["Normal", "Warning"]


class Events:
    """`say` queues Events, `run` posts them one after the other.

    `of`: (apiVersion, kind) of the objects that the Events are about.
    """

    def __init__(
        self, kube: Kube, *, clock_ns: Callable[[], int], of: tuple[str, str] = (API_VERSION, KIND)
    ) -> None:
        self._kube = kube
        self._of = of
        self._clock_ns = clock_ns
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MAX_WAITING)
        self._work = asyncio.Event()
        self._last_ns = 0

    def say(self, name: str, uid: str, severity: Severity, reason: str, message: str) -> None:
        """Queue an Event about the object of that name. `uid` is "" if the object does not exist."""
        self._last_ns = max(self._clock_ns(), self._last_ns + 1)  # unique, because it is part of the name
        self._waiting.append(body(self._of, name, uid, severity, reason, message, self._last_ns))
        self._work.set()

    async def run(self) -> None:
        """Post queued Events until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                event = self._waiting.popleft()
                try:
                    await self._kube.write("POST", COLLECTION, event, query={"fieldManager": MANAGER})
                except KubeError as error:
                    _log.warning("an Event is not written (%s): %s", event["message"], error)


def body(
    of: tuple[str, str], name: str, uid: str, severity: Severity, reason: str, message: str, now_ns: int
) -> dict[str, Any]:
    """Return a core/v1 Event."""
    regarding: Mapping[str, str] = {"apiVersion": of[0], "kind": of[1], "name": name, "uid": uid}
    at = datetime.fromtimestamp(now_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:_MAX_NAME].rstrip('-.')}.{now_ns:x}", "namespace": NAMESPACE},
        "involvedObject": {key: value for key, value in regarding.items() if value},
        "type": severity,
        "reason": reason,
        "message": message.encode()[:_MAX_MESSAGE].decode(errors="ignore"),
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
    }
