"""What can go wrong with an API server, named by what the caller does next."""

from http import HTTPStatus
from typing import Any


class KubeError(RuntimeError):
    """A request did not do what it should. `retry`: whether the same request, later, may help.

    `word`: for /metrics."""

    word = "failed"
    retry = False

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnreachableError(KubeError):
    """No answer, or one that says "not now" (429, 5xx): try again, after `retry_after_s` at the earliest."""

    word = "unreachable"
    retry = True


class ConflictError(KubeError):
    """The object is not what it was, or it is there already (409): look again, then decide anew."""

    word = "conflict"
    retry = True


class GoneError(KubeError):
    """The resource version is too old (410): list again."""

    word = "gone"
    retry = True


class NotFoundError(KubeError):
    """No such object, or no such resource (404)."""

    word = "not_found"


class ForbiddenError(KubeError):
    """Not allowed (401, 403): a person has to change roles or credentials."""

    word = "forbidden"


class RejectedError(KubeError):
    """The server does not take this object (400, 413, 422 and the like); the message says why."""

    word = "rejected"


class NotLeaderError(KubeError):
    """Somebody else writes now, or may: nothing was sent."""

    word = "not_leader"


WORDS = ("failed", "unreachable", "conflict", "gone", "not_found", "forbidden", "rejected", "not_leader")

_BY_STATUS: dict[int, type[KubeError]] = {
    HTTPStatus.UNAUTHORIZED: ForbiddenError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.REQUEST_TIMEOUT: UnreachableError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.GONE: GoneError,
    HTTPStatus.TOO_MANY_REQUESTS: UnreachableError,
}


def error_of(status: int, body: Any, what: str, retry_after: str | None = None) -> KubeError:
    """The error for an HTTP status. `body`: the answer's `Status` object, where it was one."""
    kind = _BY_STATUS.get(status, UnreachableError if status >= 500 else RejectedError)
    said = body.get("message") if isinstance(body, dict) else None
    wait_s = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
    return kind(f"{what}: {said or f'HTTP status {status}'}", wait_s)
