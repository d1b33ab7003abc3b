"""Builds the ASGI application of REST. One gate authorizes all operations; errors are problem documents."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from typing import Any

from google.protobuf.json_format import Parse, ParseError
from hyperscout_placer.messages.json_errors import json_error
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperscout_collector.identity.access import CALLER, Access
from hyperscout_collector.identity.callers import AccessError, NotAllowedError, Shown, verb_for
from hyperscout_collector.serve.http.counters import RestCounters
from hyperscout_collector.serve.http.hosts import Hosts
from hyperscout_collector.serve.http.problems import ProblemError, of_access
from hyperscout_collector.serve.http.protocol import shown_by
from hyperscout_collector.serve.rest.operations import OPERATIONS, Body, Operation
from hyperscout_collector.serve.rest.parameters import read
from hyperscout_collector.serve.rest.reads import ReadHandlers
from hyperscout_collector.serve.rest.static import Pages

_log = logging.getLogger(__name__)

_MAX_BODY_BYTES = 1024 * 1024
_MAX_DEPTH = 32
_METHODS = frozenset({"GET", "HEAD", *(one.http for one in OPERATIONS)})
_SECURITY = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


def application(
    handlers: ReadHandlers,
    access: Access,
    hosts: Hosts,
    counters: RestCounters,
    *,
    timer: Callable[[], float],
    elsewhere: Callable[[Operation], ProblemError | None] = lambda operation: None,
) -> ASGIApp:
    """The application with all operations, and the map at `/`.

    `timer`: monotonic seconds. `elsewhere(operation)`: the refusal of an operation that this replica does not
    have; None = `handlers` has it.
    """
    gate = _Gate(handlers, access, hosts, elsewhere)
    by_path: dict[str, dict[str, Operation]] = {}
    for one in OPERATIONS:
        by_path.setdefault(one.path, {})[one.http] = one
    # Each route accepts any method: otherwise the mount at "/" would handle the methods that a path lacks.
    routes: list[BaseRoute] = [
        Route(path, endpoint=gate.endpoint(operations)) for path, operations in by_path.items()
    ]
    app = Router([*routes, Mount("/", Pages(hosts))], redirect_slashes=False, default=_no_path)
    return secured(counted(app, counters, timer))


class _Gate:
    """Authorizes the caller before every operation. Access is denied by default."""

    def __init__(
        self,
        handlers: ReadHandlers,
        access: Access,
        hosts: Hosts,
        elsewhere: Callable[[Operation], ProblemError | None],
    ) -> None:
        self._handlers = handlers
        self._access = access
        self._hosts = hosts
        self._elsewhere = elsewhere

    def endpoint(self, operations: Mapping[str, Operation]) -> ASGIApp:
        """The ASGI endpoint of one path. HEAD runs GET; the connection sends only the head."""
        allowed = sorted({*operations, *(("HEAD",) if "GET" in operations else ())})

        async def answer(request: Request) -> Response:
            operation = operations.get("GET" if request.method == "HEAD" else request.method)
            try:
                if operation is None:
                    raise ProblemError(
                        405, "method-not-allowed", f"expected one of {', '.join(allowed)}", allowed=allowed
                    )
                if (refusal := self._elsewhere(operation)) is not None:
                    raise refusal
                return await self._answer(operation, request)
            except ProblemError as problem:
                return problem.response(request)
            except AccessError as error:
                return of_access(error).response(request)
            except ClientDisconnect:
                return Response(status_code=400)  # the client does not receive it
            except Exception:
                _log.exception("%s %s failed", request.method, request.url.path)
                return ProblemError(500, "internal", "see the log of the collector").response(request)

        return _Endpoint(answer)

    async def _answer(self, operation: Operation, request: Request) -> Response:
        self._hosts.check(request)
        found = shown_by(request)
        message, wrong = None, None
        if operation.body is not None:
            # The body determines the required right: a dry run requires less. So this code first rejects
            # callers without any right, parses the body, checks the right, and then reports a wrong body.
            await self._some(found)
            try:
                message = await self._parsed(request, operation.body)
            except ProblemError as problem:
                wrong = problem
        caller = await self._access.admit(found, verb_for(operation.rpc, message) or "update")
        CALLER.set(caller)
        if wrong is not None:
            raise wrong
        in_path = {one.name for one in operation.parameters}.intersection(request.path_params)
        values = read(request, [one for one in operation.parameters if one.name not in in_path])
        return await self._handlers.answer(
            operation, request, {**values, **request.path_params}, message, caller
        )

    async def _some(self, found: Shown) -> None:
        """Raises AccessError for a caller that has neither read nor write access."""
        try:
            await self._access.admit(found, "get")
        except NotAllowedError:
            await self._access.admit(found, "update")

    async def _parsed(self, request: Request, body: Body) -> Any:
        """The request's body, protobuf JSON, as a message. Raises ProblemError."""
        # Protects against requests of other sites: an HTML form cannot send this type, and a script needs a
        # CORS preflight for it, which this server denies.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ProblemError(415, "unsupported-media-type", "Content-Type: expected application/json")
        data = bytearray()
        async for chunk in request.stream():
            data += chunk
            if len(data) > _MAX_BODY_BYTES:
                raise ProblemError(413, "too-large", f"expected a body of at most {_MAX_BODY_BYTES} bytes")
        message: Any = body()
        if data.lstrip()[:1] != b"{":
            raise ProblemError(400, "bad-request", "body: expected a JSON object")
        try:
            await self._handlers.parse(lambda: Parse(bytes(data), message, max_recursion_depth=_MAX_DEPTH))
        except (ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            words = json_error(error) if isinstance(error, ParseError) else str(error)
            raise ProblemError(
                400, "bad-request", f"body: expected a {body.__name__}: {words[:500]}"
            ) from error
        return message


class _Endpoint:
    """An endpoint as an object: Starlette limits a function to GET."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (await self._answer(Request(scope, receive)))(scope, receive, send)


async def _no_path(scope: Scope, receive: Receive, send: Send) -> None:
    """Sends 404 for a path that no route matches, not even the mount at "/": it contains a line break."""
    problem = ProblemError(404, "not-found", "no such path: /v1/openapi.json lists the paths")
    await problem.response(Request(scope))(scope, receive, send)


def secured(app: ASGIApp) -> ASGIApp:
    """The application with the date and the security headers added to every response."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in _SECURITY if name not in present]
                date = (b"date", formatdate(usegmt=True).encode())
                message["headers"] = [*message["headers"], date, *more]
            await send(message)

        sent = {name for name, _ in scope["headers"]}
        if sent >= {b"content-length", b"transfer-encoding"}:
            # Request smuggling: a proxy in front may have used the other length (RFC 9112, 6.1).
            problem = ProblemError(
                400, "bad-request", "expected Content-Length or Transfer-Encoding, found both"
            )
            refusal = problem.response(Request(scope))
            refusal.headers["Connection"] = "close"
            await refusal(scope, receive, with_headers)
            return
        await app(scope, receive, with_headers)

    return answer


def counted(app: ASGIApp, counters: RestCounters, timer: Callable[[], float]) -> ASGIApp:
    """The application with counters: requests by route, and the time until the response begins."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        began_s = timer()

        async def with_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = _template(getattr(scope.get("route"), "path", ""))
                method = scope["method"] if scope["method"] in _METHODS else "other"
                counters.requests[method, route, f"{message['status'] // 100}xx"] += 1
                counters.seconds[route] += timer() - began_s
            await send(message)

        await app(scope, receive, with_count)

    return answer


def _template(path: str) -> str:
    """The path template in the form of OpenAPI; "other" for a path that is not an operation."""
    return path.replace(":path}", "}") if path.startswith("/v1/") else "other"
