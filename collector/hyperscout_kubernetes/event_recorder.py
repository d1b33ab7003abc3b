"""Posts Kubernetes Events about objects (`kubectl describe`, `kubectl get events`).

Events are best effort: they wait in a short queue that drops the oldest, an Event that cannot be written is
dropped, and nothing waits for them. No library is used: the official Python client has no recorder.

The name of an Event follows from its object, reason and message. If the API server has an Event of that name,
its count is raised instead, also if another replica or an earlier process posted it.
"""

import asyncio
import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping

from hyperscout_runtime.units import rfc3339

from hyperscout_kubernetes.client import MANAGER, MERGE, Kube, Object
from hyperscout_kubernetes.errors import ConflictError, KubeError
from hyperscout_kubernetes.paths import api_path

_log = logging.getLogger(__name__)

# Events of cluster-scoped objects belong to this namespace, as in client-go's recorder.
_NAMESPACE = "default"
_MAX_NAME = 200  # node names and Event names may have 253 characters, and an Event name also has a digest
_MAX_MESSAGE = 1024  # bytes, the limit of the API
_MAX_WAITING = 1000


class EventRecorder:
    """`record` queues Events, `run` posts them one after the other. `kube` should be rate-limited."""

    def __init__(self, kube: Kube, *, clock_ns: Callable[[], int]) -> None:
        self._kube = kube
        self._clock_ns = clock_ns
        self._waiting: deque[Object] = deque(maxlen=_MAX_WAITING)
        self._work = asyncio.Event()
        self._failing = False

    def record(self, about: Mapping[str, str], severity: str, reason: str, message: str) -> None:
        """Queue an Event. `about`: apiVersion, kind, name, uid and namespace of an object.

        `uid` is "" if the object does not exist. A cluster-scoped object has no namespace.
        `severity`: "Normal" or "Warning".
        """
        self._waiting.append(_event(about, severity, reason, message, self._clock_ns()))
        self._work.set()

    async def run(self) -> None:
        """Post queued Events until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                event = self._waiting.popleft()
                try:
                    await self._post(event)
                    self._failing = False
                except KubeError as error:
                    level = logging.DEBUG if self._failing else logging.WARNING
                    self._failing = True
                    _log.log(level, "an Event is not written (%s): %s", event["message"], error)

    async def _post(self, event: Object) -> None:
        """Create an Event, or raise the count of the one that exists. Raises KubeError."""
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        query = {"fieldManager": MANAGER}
        try:
            await self._kube.write("POST", api_path("v1", "events", namespace=namespace), event, query=query)
        except ConflictError:
            path = api_path("v1", "events", name, namespace=namespace)
            before = await self._kube.get(path)
            repeated = {"count": (before.get("count") or 1) + 1, "lastTimestamp": event["lastTimestamp"]}
            await self._kube.write("PATCH", path, repeated, content=MERGE, query=query)


async def deployment_reference(kube: Kube, namespace: str, name: str) -> dict[str, str]:
    """Return a reference to a Deployment for an Event.

    Without the right to read it, the uid is missing: `kubectl get events` lists the Event, `kubectl describe`
    does not.
    """
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": namespace, "name": name}
    try:
        found = await kube.get(api_path("apps/v1", "deployments", name, namespace=namespace))
    except KubeError as error:
        _log.warning("an Event does not name the uid of the Deployment %s/%s: %s", namespace, name, error)
        return about
    return about | {"uid": found["metadata"]["uid"]}


def _event(about: Mapping[str, str], severity: str, reason: str, message: str, now_ns: int) -> Object:
    """Return a core/v1 Event."""
    at = rfc3339(now_ns)
    involved = {key: value for key, value in about.items() if value}
    what = json.dumps([involved, severity, reason, message], sort_keys=True)
    digest = hashlib.blake2b(what.encode(), digest_size=8).hexdigest()
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about['name'][:_MAX_NAME].rstrip('-.')}.{digest}",
            "namespace": about.get("namespace") or _NAMESPACE,
        },
        "involvedObject": involved,
        "type": severity,
        "reason": reason,
        "message": message.encode()[:_MAX_MESSAGE].decode(errors="ignore"),
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": MANAGER},
        "reportingComponent": MANAGER,
    }
