"""Builds the error responses of REST: problem documents (RFC 9457).

REST uses the gRPC services, so one table maps each gRPC code to an HTTP status.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import grpc
from starlette.requests import Request
from starlette.responses import Response

from hyperscout_collector.identity.callers import AccessError

PROBLEM_JSON = "application/problem+json"
_TYPE = "urn:hyperscout:problem:"
_RETRY_AFTER_S = 1
_FIELD = re.compile(r"([A-Za-z_][A-Za-z0-9_.\[\]]*): ")

# last part of `type` -> title
TITLES = {
    "bad-request": "Bad request",
    "unauthenticated": "Unauthenticated",
    "not-allowed": "Forbidden",
    "wrong-host": "Host name not accepted",
    "not-found": "Not found",
    "method-not-allowed": "Method not allowed",
    "not-acceptable": "Not acceptable",
    "exists": "Already exists",
    "conflict": "Conflict",
    "too-large": "Content too large",
    "unsupported-media-type": "Unsupported media type",
    "busy": "Too many requests",
    "too-slow": "Reader too slow",
    "standby": "Not the leader",
    "unavailable": "Service unavailable",
    "unimplemented": "Not implemented",
    "timeout": "Timeout",
    "internal": "Internal server error",
}

# gRPC code -> (HTTP status, last part of `type`)
STATUS_OF: Mapping[grpc.StatusCode, tuple[int, str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (400, "bad-request"),
    grpc.StatusCode.OUT_OF_RANGE: (400, "bad-request"),
    grpc.StatusCode.UNAUTHENTICATED: (401, "unauthenticated"),
    grpc.StatusCode.PERMISSION_DENIED: (403, "not-allowed"),
    grpc.StatusCode.NOT_FOUND: (404, "not-found"),
    grpc.StatusCode.ALREADY_EXISTS: (409, "exists"),
    grpc.StatusCode.FAILED_PRECONDITION: (409, "conflict"),
    grpc.StatusCode.ABORTED: (409, "conflict"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (429, "busy"),
    grpc.StatusCode.UNIMPLEMENTED: (501, "unimplemented"),
    grpc.StatusCode.UNAVAILABLE: (503, "unavailable"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (504, "timeout"),
}


class ProblemError(Exception):
    """Ends a request with a problem document. `field`: the wrong parameter or field of the body."""

    def __init__(
        self,
        status: int,
        word: str,
        detail: str,
        *,
        field: str | None = None,
        allowed: Sequence[str] = (),
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.word = word
        self.detail = detail
        self.field = field
        self.more = more
        self.allowed = allowed

    def document(self, instance: str) -> dict[str, Any]:
        """The members in the order of RFC 9457, 3.1. `instance`: the path of the request."""
        found = {
            "type": _TYPE + self.word,
            "title": TITLES[self.word],
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "field": self.field,
            **self.more,
        }
        return {key: value for key, value in found.items() if value is not None}

    def response(self, request: Request) -> Response:
        headers = {"Cache-Control": "no-store"}
        if self.allowed:
            headers["Allow"] = ", ".join(self.allowed)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status in (429, 503):
            headers["Retry-After"] = str(_RETRY_AFTER_S)
        if self.status == 503:
            headers["Connection"] = "close"  # a new connection through a Service can reach the leader
        body = json.dumps(self.document(request.url.path)).encode()
        return Response(body, self.status, headers, PROBLEM_JSON)


def bad(field: str, detail: str) -> ProblemError:
    """The problem (400) of a wrong parameter or field of the body."""
    return ProblemError(400, "bad-request", f"{field}: {detail}", field=field)


def of_access(error: AccessError) -> ProblemError:
    """The problem of a caller without access."""
    return of_code(error.code, str(error))


def of_code(code: grpc.StatusCode, detail: str) -> ProblemError:
    """The problem for the error of a gRPC service.

    If an INVALID_ARGUMENT message begins with a field name, `field` contains that name as in JSON.
    """
    status, word = STATUS_OF.get(code, (500, "internal"))
    match = _FIELD.match(detail) if code is grpc.StatusCode.INVALID_ARGUMENT else None
    return ProblemError(status, word, detail, field=camel(match[1]) if match else None)


def camel(name: str) -> str:
    """page_size -> pageSize, the JSON name of a field in protobuf's JSON mapping."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)


class Context:
    """Replaces the context of a gRPC call. Services call only `abort`."""

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        raise of_code(code, details)
