"""Errors of an API server, named by what the caller does next."""

from http import HTTPStatus
from typing import Any


class KubeError(RuntimeError):
    """A request failed. `retry`: whether the same request may succeed later. `word`: label for /metrics."""

    word = "failed"
    retry = False

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class KubeconfigError(KubeError):
    """There is no usable kubeconfig and no service account. The message names the file."""


class UnreachableError(KubeError):
    """No response, or a temporary failure (408, 429, 5xx). Try again after `retry_after_s` seconds."""

    word = "unreachable"
    retry = True


class ConflictError(KubeError):
    """The object has changed or already exists (409). Read it again, then decide."""

    word = "conflict"
    retry = True


class GoneError(KubeError):
    """The resource version is too old (410). List again."""

    word = "gone"
    retry = True


class NotFoundError(KubeError):
    """The object or the resource does not exist (404)."""

    word = "not_found"


class ForbiddenError(KubeError):
    """Access is denied (401, 403). An operator has to change roles or credentials."""

    word = "forbidden"


class RejectedError(KubeError):
    """The server rejects this object (400, 413, 422 and similar). The message gives the reason."""

    word = "rejected"


class NotLeaderError(KubeError):
    """Another replica leads or may lead. Nothing was sent."""

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
    """Return the error for an HTTP status. `body` is the response's `Status` object, if there is one."""
    kind = _BY_STATUS.get(status, UnreachableError if status >= 500 else RejectedError)
    said = body.get("message") if isinstance(body, dict) else None
    wait_s = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
    return kind(f"{what}: {said or f'HTTP status {status}'}", wait_s)
