"""Reads the owner of a token (TokenReview) and its rights (SubjectAccessReview) from an API server.

While the API server is unreachable no new caller is admitted, and the failure is not cached. Tokens are
stored as digests only and never appear in a message.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from hyperscout_kubernetes.errors import ForbiddenError, KubeError

from hyperscout_collector.identity.callers import (
    AskLaterError,
    NotAllowedError,
    UnknownCallerError,
    User,
    Verb,
    claims_of,
    why_unknown,
)
from hyperscout_collector.identity.request_cache import RequestCache

_log = logging.getLogger(__name__)

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
GROUP, RESOURCE = "topology.volcano.sh", "hypernodes"

_KNOWN_S = 60.0  # lifetime of a positive answer: the token of a deleted pod stays valid at most this long
_UNKNOWN_S = 5.0  # lifetime of a negative answer; short, because an operator may be fixing the cause
_MAX_KEPT = 4096
_MAX_ASKED = 2048
_AT_ONCE = 8  # concurrent requests: connections are shared with the writes of HyperNodes
_TIMEOUT_S = 10.0  # of one review, including the wait for its turn
_REQUEST_TIMEOUT_S = 5.0
_FAILED = "cannot check credentials: the request to the API server failed"


class Reviewer(Protocol):
    """The part of the Kubernetes client that reviews use."""

    async def review(self, path: str, body: dict[str, Any], *, timeout_s: float) -> dict[str, Any]: ...


class Reviews:
    """Cached reviews.

    `audience`: the audience that tokens must have. `clock`: monotonic seconds; `now_s`: Unix seconds.
    """

    def __init__(
        self,
        kube: Reviewer,
        audience: str,
        *,
        clock: Callable[[], float],
        now_s: Callable[[], float],
    ) -> None:
        self.problem: str | None = None  # why reviews fail; None = they work
        self._kube = kube
        self._audience = audience
        self._now_s = now_s
        self._users: RequestCache[User | None] = RequestCache(_MAX_KEPT, _MAX_ASKED, clock)
        self._rights: RequestCache[bool] = RequestCache(_MAX_KEPT, _MAX_ASKED, clock)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def user(self, token: str) -> User:
        """Returns the owner of the token. Raises UnknownCallerError, AskLaterError."""
        user = await self._users.get(_digest(token), lambda: self._review(token))
        if user is None:
            raise UnknownCallerError(why_unknown(claims_of(token), self._audience, self._now_s()))
        return user

    async def allow(self, user: User, token: str, verb: Verb) -> None:
        """Checks that a token's user may use `verb` on HyperNodes. Raises NotAllowedError, AskLaterError."""
        if not await self._rights.get(_digest(token, verb), lambda: self._access(user, verb)):
            raise NotAllowedError(
                f"{user.name} may not {verb} {RESOURCE}.{GROUP}: bind a ClusterRole with that verb to it"
            )

    async def close(self) -> None:
        """Cancel all requests in progress."""
        await self._users.close()
        await self._rights.close()

    async def _review(self, token: str) -> tuple[User | None, float]:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        status = await self._ask(TOKEN_REVIEWS, body)
        # A server that does not support audiences returns a status without them (Kubernetes API reference).
        if status.get("authenticated") is not True or self._audience not in (status.get("audiences") or ()):
            return None, _UNKNOWN_S
        found = status.get("user") or {}
        if not (name := found.get("username")):
            return None, _UNKNOWN_S
        user = User(name, found.get("uid") or "", tuple(found.get("groups") or ()), found.get("extra") or {})
        expires_s = claims_of(token).expires_s
        left_s = _KNOWN_S if expires_s is None else expires_s - self._now_s()
        return user, min(_KNOWN_S, left_s)

    async def _access(self, user: User, verb: Verb) -> tuple[bool, float]:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "uid": user.uid,
                "groups": list(user.groups),
                "extra": {key: list(values) for key, values in user.extra.items()},
                "resourceAttributes": {"group": GROUP, "resource": RESOURCE, "verb": verb},
            },
        }
        allowed = (await self._ask(ACCESS_REVIEWS, body)).get("allowed") is True
        return allowed, _KNOWN_S if allowed else _UNKNOWN_S

    async def _ask(self, path: str, body: dict[str, Any]) -> Mapping[str, Any]:
        """Returns the status of a review. Raises AskLaterError."""
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._turns:
                answer = await self._kube.review(path, body, timeout_s=_REQUEST_TIMEOUT_S)
        except ForbiddenError as error:
            # The collector lacks the permission. The caller cannot change that, and is not admitted.
            self._trouble(
                "cannot check credentials: bind the ClusterRole system:auth-delegator to the service account "
                "of the collector",
                error,
            )
            raise AskLaterError(
                "cannot check credentials: the API server does not permit the collector to create reviews; "
                "see the log of the collector"
            ) from None
        except KubeError as error:
            self._trouble(_FAILED, error)
            raise AskLaterError(f"{_FAILED}; try again later") from None
        except TimeoutError as error:
            self._trouble(_FAILED, error)
            raise AskLaterError(
                f"cannot check credentials: no response of the API server within {_TIMEOUT_S:g} s; "
                "try again later"
            ) from None
        if self.problem is not None:
            _log.info("the API server checks credentials again")
            self.problem = None
        status = answer.get("status")
        return status if isinstance(status, dict) else {}

    def _trouble(self, what: str, error: Exception) -> None:
        if self.problem is None:
            _log.warning("%s: %s", what, str(error) or type(error).__name__)
        self.problem = f"{what}; no new callers are admitted"


def _digest(token: str, verb: str = "") -> bytes:
    return hashlib.sha256(f"{verb} {token}".encode()).digest()
