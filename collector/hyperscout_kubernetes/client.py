"""JSON client of a Kubernetes API server: one connection pool, rate-limited writes, named errors.

The official client (`kubernetes.aio`) reads kubeconfigs and in-cluster credentials, renews tokens and owns
the connections. Its model classes are not used. An object is the JSON that the server sent, so that fields
of other writers are preserved.
"""

import asyncio
import copy
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from hyperscout_runtime.rate_limit import TokenBucket

from hyperscout_kubernetes.errors import KubeconfigError, KubeError, UnreachableError, error_of

if TYPE_CHECKING:
    from kubernetes.aio.client import Configuration

Object = dict[str, Any]  # decoded JSON

JSON = "application/json"
APPLY = "application/apply-patch+yaml"  # server-side apply (the body may be JSON)
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

MANAGER = "hyperscout"  # field manager of all writes
_CONNECTIONS = 16
# Events of a watch within this time are read together: each wake-up costs more than an event.
_GATHER_S = 0.01
# aiohttp closes the TLS connection of a cancelled request in the background, and no session waits for it.
_CLOSING_S = 0.05
# Longest event. etcd limits an object to 1.5 MiB by default. JSON writes up to six bytes for one (`\u003c`).
_MAX_EVENT_BYTES = 16 << 20


class Fence:
    """Permits or forbids writes. The client asks it just before it sends each write."""

    def remaining_s(self) -> float:
        """Return the time that a write sent now may take, in seconds. Raises NotLeaderError."""
        return float("inf")


@dataclass(slots=True)
class KubeCounters:
    """Counts of writes by (method, outcome) and their durations in seconds by method.

    The outcome is "written" or the `word` of the error.
    """

    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    write_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def wrote(self, method: str, outcome: str, took_s: float) -> None:
        self.writes[method, outcome] += 1
        self.write_seconds[method] += took_s


class RateLimit:
    """Paces writes: `per_s` per second on average, at most `burst` at once. `clock`: monotonic seconds."""

    def __init__(
        self,
        per_s: float,
        burst: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bucket = TokenBucket(per_s, burst)
        self._clock = clock
        self._sleep = sleep

    async def take(self) -> None:
        """Wait for a token. Callers are served in order."""
        if wait_s := self._bucket.charge(1, self._clock()):
            await self._sleep(wait_s)


async def connect(kubeconfig: Path | None, *, writes_per_s: float = 200.0, burst: int = 400) -> "Kube":
    """Return a client for the current context of a kubeconfig file, or for the pod's cluster if it is None.

    Sends no request. Raises KubeconfigError.
    """
    # The import costs half a second and 20 MiB. Only collectors that use a cluster pay for it.
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import load_incluster_config, load_kube_config
    from kubernetes.aio.config.config_exception import ConfigException
    from yaml import YAMLError

    configuration = Configuration()
    try:
        if kubeconfig is not None:
            await load_kube_config(  # type: ignore[no-untyped-call]
                _existing(kubeconfig), client_configuration=configuration, persist_config=False
            )
        else:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, ValueError, TypeError, AttributeError, YAMLError) as error:
        what = "no credentials for a Kubernetes API server"
        if kubeconfig is None:
            raise KubeconfigError(
                f"{what}: this process is not in a pod: set the path of a kubeconfig"
            ) from error
        why = (error.strerror if isinstance(error, OSError) else "") or str(error).partition("\n")[0]
        raise KubeconfigError(f"{what}: {kubeconfig}: {why}: expected a kubeconfig") from error
    return Kube(configuration, RateLimit(writes_per_s, burst))


def _proxy_for(host: str) -> str | None:
    """Return the proxy that the environment names for a URL (HTTPS_PROXY, NO_PROXY); None = no proxy."""
    url = urlsplit(host)
    return None if proxy_bypass(url.hostname or "") else getproxies().get(url.scheme)


def _existing(kubeconfig: Path) -> str:
    """Return the path of a file that exists: the library takes a missing one for an empty one."""
    kubeconfig.stat()
    return str(kubeconfig)


class Kube:
    """A client of one API server. `limit` paces writes.

    `async with` closes the connections on exit.
    """

    def __init__(self, configuration: "Configuration", limit: RateLimit) -> None:
        configuration.connection_pool_maxsize = _CONNECTIONS
        # Otherwise aiohttp reads the environment and ~/.netrc for each request, in two threads.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy_for(configuration.host)
        from kubernetes.aio.client import ApiClient

        self.host: str = configuration.host
        self.counters = KubeCounters()  # shared by all clients on these connections
        self._configuration = configuration
        self._client = ApiClient(configuration)
        self._limit = limit
        self._fence = Fence()

    async def __aenter__(self) -> "Kube":
        return self

    async def __aexit__(self, *_: object) -> None:
        session: aiohttp.ClientSession | None = self._client.rest_client.pool_manager
        if session is not None and session.connector is not None:
            await session.connector.close(abort_ssl=True)  # otherwise transports stay open after the loop
        await self._client.close()  # type: ignore[no-untyped-call]
        await asyncio.sleep(_CLOSING_S)

    @property
    def fence(self) -> Fence:
        """The fence of this client, for components that write elsewhere during the same term."""
        return self._fence

    def fenced(self, fence: Fence) -> "Kube":
        """Return a client that shares the connections and writes only while `fence` permits it."""
        other = copy.copy(self)
        other._fence = fence
        return other

    def paced(self, limit: RateLimit) -> "Kube":
        """Return a client that shares the connections and the fence but has its own rate limit."""
        other = copy.copy(self)
        other._limit = limit
        return other

    async def get(
        self, path: str, query: Mapping[str, Any] | None = None, *, timeout_s: float = 10.0
    ) -> Object:
        return await self._ask("GET", path, query, None, JSON, timeout_s)

    async def write(
        self,
        method: str,
        path: str,
        body: Object | list[Any] | None = None,
        *,
        content: str = JSON,
        query: Mapping[str, Any] | None = None,
        timeout_s: float = 10.0,
    ) -> Object:
        """Send POST, PUT, PATCH or DELETE and return the response. Raises KubeError, also NotLeaderError."""
        await self._limit.take()
        began_s = time.perf_counter()
        try:
            timeout_s = min(timeout_s, self._fence.remaining_s())
            answer = await self._ask(method, path, query, body, content, timeout_s)
        except KubeError as error:
            self.counters.wrote(method, error.word, time.perf_counter() - began_s)
            raise
        self.counters.wrote(method, "written", time.perf_counter() - began_s)
        return answer

    async def delete(self, path: str, metadata: Object) -> Object:
        """Delete the object with this metadata, as it was read: no newer one, and no other of its name.

        Raises KubeError, also ConflictError.
        """
        exactly = {key: metadata[key] for key in ("uid", "resourceVersion")}
        return await self.write("DELETE", path, {"preconditions": exactly})

    async def review(self, path: str, body: Object, *, timeout_s: float = 5.0) -> Object:
        """Send a review by POST (TokenReview, SubjectAccessReview). It changes nothing and is not fenced."""
        return await self._ask("POST", path, None, body, JSON, timeout_s)

    async def list(self, path: str, query: Mapping[str, Any] | None = None) -> tuple[list[Object], str]:
        """Return all objects of a collection, read page by page, and the resource version to watch from."""
        items: list[Object] = []
        page: dict[str, Any] = {"limit": 2000, **(query or {})}
        while True:
            answer = await self.get(path, page, timeout_s=60.0)
            items += answer.get("items") or []
            metadata = answer.get("metadata", {})
            if not (token := metadata.get("continue")):
                return items, metadata.get("resourceVersion", "")
            page["continue"] = token

    async def watch(
        self, path: str, version: str, query: Mapping[str, Any] | None = None, *, timeout_s: int = 290
    ) -> AsyncIterator[Object]:
        """Yield events after a resource version until the server ends the stream. Raises KubeError."""
        asked = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": timeout_s,
            **(query or {}),
        }
        what = f"watch {path}"
        # A limit of each read would set a timer for each event.
        timeout = aiohttp.ClientTimeout(total=timeout_s + 30.0, sock_connect=10.0)
        response = await self._send("GET", path, asked, None, JSON, timeout)
        try:
            if response.status != 200:
                raise await _failure(response, what)
            lines = _Lines(what)
            while data := await response.content.readany():
                for line in lines.feed(data):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event.get("object", {})
                        raise error_of(int(status.get("code") or 500), status, what)
                    yield event
                await asyncio.sleep(_GATHER_S)
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
            raise _unreachable(what, error) from error
        finally:
            # An endless stream cannot be drained, so the connection is aborted.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        content: str,
        timeout_s: float,
    ) -> Object:
        what = f"{method} {path}"
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        response = await self._send(method, path, query, body, content, timeout)
        try:
            if response.status >= 400:
                raise await _failure(response, what)
            answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise _unreachable(what, error) from error
        finally:
            response.release()
        if not isinstance(answer, dict):
            raise UnreachableError(f"{what}: expected a JSON object, got {type(answer).__name__}")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        content: str,
        within: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": JSON, "Content-Type": content, "User-Agent": MANAGER}
        url = self.host + path + (f"?{urlencode(query)}" if query else "")
        try:
            if token := await self._configuration.get_api_key_with_prefix("BearerToken"):
                headers["Authorization"] = token
            answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
                method, url, headers=headers, body=body, _request_timeout=within
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unreachable(f"{method} {path}", error) from error
        response: aiohttp.ClientResponse = answer.response
        return response


class _Lines:
    """Splits the reads of a stream into lines. `what`: the request, for errors."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._pieces: list[bytes] = []  # of the line that is not complete
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now. Raises UnreachableError if one is too long."""
        first, *more = data.split(b"\n")
        self._pieces.append(first)
        self._size += len(first)
        if self._size > _MAX_EVENT_BYTES:
            raise UnreachableError(f"{self._what}: an event is longer than {_MAX_EVENT_BYTES} bytes")
        if not more:
            return []
        lines = [b"".join(self._pieces), *more[:-1]]
        self._pieces, self._size = [more[-1]], len(more[-1])
        return lines


def _unreachable(what: str, error: Exception) -> UnreachableError:
    return UnreachableError(f"{what}: {str(error) or type(error).__name__}")


async def _failure(response: aiohttp.ClientResponse, what: str) -> KubeError:
    try:
        body = await response.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError):
        body = None
    return error_of(response.status, body, what, response.headers.get("Retry-After"))
