"""Implements the operations of REST that need only the published topology and the history.

The leader serves them, and standbys serve them from the topology that they follow. Each calls the matching
gRPC service and returns its response as JSON. Work that takes long on a large topology runs in threads.
`serve.rest.responses` builds the responses.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any, TypeVar

from hyperscout.v1 import topology_pb2
from hyperscout_runtime.bounded_executor import BoundedExecutor, BusyError
from hyperscout_topology import objects
from hyperscout_topology.proto import timestamp
from hyperscout_topology.topology import Topology
from starlette.requests import Request
from starlette.responses import Response

from hyperscout_collector.history.errors import BadHistoryRequestError, HistoryError, NotKeptError
from hyperscout_collector.identity.access import Access
from hyperscout_collector.identity.callers import Caller
from hyperscout_collector.serve.grpc.topology_reads import NO_HISTORY, ReadBackend, TopologyReads
from hyperscout_collector.serve.http.problems import Context, ProblemError
from hyperscout_collector.serve.rest.kinds import Kind, keep_about, passes
from hyperscout_collector.serve.rest.operations import Operation
from hyperscout_collector.serve.rest.pages import page
from hyperscout_collector.serve.rest.rendered import OUTPUTS, Rendered, zip_of
from hyperscout_collector.serve.rest.responses import Etag, accepts, json_answer, text_answer
from hyperscout_collector.serve.rest.stream import Stream, StreamResponse

_THREADS = 2  # the threads share the interpreter lock with the event loop: more would only slow it down
_MAX_WAITING = 128
_T = TypeVar("_T")
Values = Mapping[str, Any]


class ReadHandlers:
    """Has one method per operation, named like it. All raise ProblemError."""

    def __init__(self, backend: ReadBackend, topology: TopologyReads, stream: Stream, access: Access) -> None:
        self._published = backend
        self._topology_reads = topology
        self._stream = stream
        self._access = access
        self._rendered = Rendered(Topology(0))
        self._reads = BoundedExecutor("rest", threads=_THREADS, most=_MAX_WAITING)
        self._bodies = BoundedExecutor("rest-bodies", most=_MAX_WAITING)
        backend.watchers.published.subscribe(self._forget)

    def close(self) -> None:
        self._reads.close()
        self._bodies.close()

    async def parse(self, work: Callable[[], _T]) -> _T:
        """Parse a request's body in a separate thread, so that reads of the topology do not delay it."""
        return await _in(self._bodies, work)

    async def answer(
        self, operation: Operation, request: Request, values: Values, message: Any, caller: Caller
    ) -> Response:
        """The response of an operation."""
        kind = operation.kind
        if kind is not None and kind.name in objects.OF_TOPOLOGY:
            if operation.name.startswith("list_"):
                return await self._list_of(request, values, kind)
            return await self._one_of(request, values, operation.parameters[0].name, kind)
        answer: Response = await getattr(self, operation.name)(request, values, message, caller)
        return answer

    # Topology

    async def get_topology(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        output = values.get("output") or accepts(request, {name: kind for name, (kind, _) in OUTPUTS.items()})
        links = values.get("links", True)
        if "at" in values:
            rendered = Rendered(await self._at(values["at"]))
        else:
            rendered = self._now()
            if (known := self._etag(rendered, output).known(request)) is not None:
                return known
        return await self._in_thread(
            lambda: text_answer(
                request,
                lambda zipped: rendered.text(output, links=links, zipped=zipped),
                OUTPUTS[output][0],
                None if "at" in values else self._etag(rendered, output),
            )
        )

    async def _list_of(self, request: Request, values: Values, kind: Kind) -> Response:
        """A page of the topology's objects of a kind."""
        rendered = self._now()
        etag = self._etag(rendered)
        if (known := etag.known(request)) is not None:
            return known

        def answer() -> Response:
            rows = rendered.objects(kind.name, kind.place)
            items, token = page(rows, passes(kind, values, rendered.topology), values)
            return json_answer(request, page_of(items, token, rendered.topology.generation), etag)

        return await self._in_thread(answer)

    async def _one_of(self, request: Request, values: Values, key: str, kind: Kind) -> Response:
        """The object with this name or id. `key`: the parameter, which is the kind's singular."""
        name: str = values[key]
        rendered = self._now()
        etag = self._etag(rendered)
        if (known := etag.known(request)) is not None:
            return known

        def answer() -> Response:
            found = [
                x
                for _, x in rendered.objects(kind.name, kind.place)
                if name in objects.names_of(kind.name, x)
            ]
            exact = [x for x in found if x.get("id", x["name"]) == name] or found
            if not exact:
                raise ProblemError(
                    404, "not-found", f"no {key} {name[:253]!r}: GET /v1/{kind.name} lists them"
                )
            if len(exact) > 1:
                ids = ", ".join(x["id"] for x in exact[:10])
                raise ProblemError(
                    409,
                    "conflict",
                    f"several {kind.name} have the name {name[:253]!r}: use one of the ids {ids}",
                )
            return json_answer(request, exact[0], etag)

        return await self._in_thread(answer)

    async def stream(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        if request.method == "HEAD":  # a HEAD request must not join the stream
            return Response(headers={"Cache-Control": "no-store"}, media_type="text/event-stream")
        since = request.headers.get("last-event-id") or values.get("since", "")
        if len(since) > 100:
            since = ""
        reader = self._stream.join(since)
        return StreamResponse(self._stream, reader, self._access, caller)  # type: ignore[return-value] # ASGI

    # History and the description

    async def list_history(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        return await self._history(request, values, ("flaps", "oldest"))

    async def list_differences(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        return await self._history(request, {**values, "net": True}, ("oldest",))

    async def _history(self, request: Request, values: Values, more: Sequence[str]) -> Response:
        """A page of events. `more`: the other fields of the gRPC response that it has."""
        asked = topology_pb2.ListHistoryRequest(
            since=timestamp(values.get("since", 0)),
            until=timestamp(values.get("until", 0)),
            about=values.get("about", ""),
            kinds=values.get("kind", ()),
            net=values.get("net", False),
            page_token=values.get("pageToken", ""),
            page_size=values.get("pageSize", 0),
        )
        found = await self._topology_reads.list_history(asked, Context())
        topology = self._now().topology

        def answer() -> Response:
            if "cluster" in values:
                keep_about(found, topology, values["cluster"])
            data = objects.plain(found)
            return json_answer(
                request,
                page_of(data["events"], found.next_page_token, topology.generation)
                | {key: data[key] for key in more if key in data},
            )

        return await self._in_thread(answer)

    async def openapi(self, request: Request, values: Values, _: Any, caller: Caller) -> Response:
        etag = Etag(version("hyperscout"))
        if (known := etag.known(request)) is not None:
            return known
        text = await self._in_thread((files(__package__) / "openapi.json").read_bytes)
        return text_answer(request, lambda zipped: zip_of(text) if zipped else text, "application/json", etag)

    # Helpers

    def _forget(self) -> None:
        """Drop the texts and lists of the earlier generation."""
        self._rendered = Rendered(Topology(0))

    def _now(self) -> Rendered:
        current = self._published.watchers.current.topology
        if self._rendered.topology is not current:
            self._rendered = Rendered(current)
        return self._rendered

    def _etag(self, rendered: Rendered, output: str = "") -> Etag:
        return Etag(f"{rendered.topology.generation}-{self._stream.epoch}{output and '-'}{output}")

    async def _at(self, at_ns: int) -> Topology:
        if (history := self._published.history) is None:
            raise ProblemError(404, "not-found", NO_HISTORY, field="at")
        try:
            return await self._in_thread(lambda: history.topology_at(at_ns))
        except BadHistoryRequestError as error:
            raise ProblemError(400, "bad-request", str(error), field="at") from error
        except NotKeptError as error:
            raise ProblemError(404, "not-found", str(error)) from error
        except HistoryError as error:
            raise ProblemError(503, "unavailable", str(error)) from error

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await _in(self._reads, work)


async def _in(executor: BoundedExecutor, work: Callable[[], _T]) -> _T:
    try:
        return await executor(work)
    except BusyError as error:
        raise ProblemError(429, "busy", str(error)) from error


def page_of(items: Sequence[objects.Object], token: str, generation: int) -> objects.Object:
    return {"items": items, "nextPageToken": token, "generation": generation}
