"""Posts Kubernetes Events on workloads and pods: what a gang waits for and where it was placed.

Events are best effort and nothing waits for them. They share the API server with more important patches, so
the queue is short and drops the oldest Events.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from hyperscout_kubernetes.client import MANAGER, Kube, Object
from hyperscout_kubernetes.errors import KubeError

from hyperscout_gates.control.pods import rfc3339

_log = logging.getLogger(__name__)

_MAX_WAITING = 1000
_MAX_NAME = 200
_MAX_MESSAGE = 1024  # bytes


class Announcer:
    """`say` queues Events, `run` posts them. `kube` should be rate-limited."""

    def __init__(self, kube: Kube, *, clock_ns: Callable[[], int]) -> None:
        self._kube = kube
        self._clock_ns = clock_ns
        self._waiting: deque[tuple[str, Object]] = deque(maxlen=_MAX_WAITING)
        self._work = asyncio.Event()
        self._last_ns = 0

    def say(self, about: Object, severity: str, reason: str, message: str) -> None:
        """Queue an Event. `about`: apiVersion, kind, namespace, name and uid of a namespaced object."""
        self._last_ns = now_ns = max(self._clock_ns(), self._last_ns + 1)
        at = rfc3339(now_ns / 1e9)
        namespace = about["namespace"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about['name'][:_MAX_NAME].rstrip('-.')}.{now_ns:x}",
                "namespace": namespace,
            },
            "involvedObject": {key: value for key, value in about.items() if value},
            "type": severity,
            "reason": reason,
            "message": message.encode()[:_MAX_MESSAGE].decode(errors="ignore"),
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
        }
        self._waiting.append((f"/api/v1/namespaces/{namespace}/events", event))
        self._work.set()

    async def run(self) -> None:
        """Post queued Events until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                path, event = self._waiting.popleft()
                try:
                    await self._kube.write("POST", path, event, query={"fieldManager": MANAGER})
                except KubeError as error:
                    _log.debug("an Event is not written (%s): %s", event["message"], error)
