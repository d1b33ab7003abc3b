"""Authenticates callers and decides which of them may report findings or use a method.

A client certificate identifies its holder; otherwise a token identifies the caller. Without configured
authentication every caller is admitted, which suits only the loopback interface or a trusted network.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.reporters import cluster_of

from hyperscout_collector.identity.callers import (
    AccessError,
    AskLaterError,
    Caller,
    Shown,
    UnknownCallerError,
    Verb,
    agent_of,
    certificate_may,
    claims_of,
    may_report,
    of_certificate,
    shown,
    spread_s,
    verb_for,
)
from hyperscout_collector.identity.reviews import Reviews
from hyperscout_collector.identity.x509 import not_after_s

_RECHECK_S = 60.0  # interval at which a streaming reader is authorized again
_LATER_S = 30.0  # validity extension for admitted callers while the API server is unreachable
_RECHECK_AGENT_S = 3600.0  # an agent's token is checked again after this plus `spread_s`

# The caller of the current request, for methods that record the author of a change.
CALLER: ContextVar[Caller] = ContextVar("caller", default=Caller("anonymous"))  # noqa: B039 - a frozen value


class Access:
    """Checks credentials. `reviews`: None = callers without a certificate are admitted as "anonymous".

    `agents`: the service account of the node agents, as "namespace:name". `fabric`: the service account of
    the agent that reports whole fabrics. `clusters`: the reviews of each other cluster, for the tokens of its
    agents; all other tokens are those of the collector's own API server. `now_s`: the process's time, in
    which `until_s` of callers is; `wall_s`: the machine's clock, for the times in tokens and certificates.
    Both are Unix seconds.
    """

    def __init__(
        self,
        reviews: Reviews | None = None,
        agents: str = "",
        fabric: str = "",
        *,
        clusters: Mapping[str, Reviews] | None = None,
        now_s: Callable[[], float] = time.time,
        wall_s: Callable[[], float] | None = None,
    ) -> None:
        self._reviews = reviews
        self._agents = agents
        self._fabric = fabric
        self._clusters = clusters or {}
        self._now_s = now_s
        self._wall_s = wall_s or now_s

    # Agents

    async def reporter(self, context: Any, name: str) -> Caller:
        """Returns the caller that wants to report findings. Raises AccessError.

        `name`: the reporter that it says it is. It only decides which API server reviews the caller's token:
        that of another cluster does not know the token.
        """
        found = _shown(context)
        if found.certificate:
            caller = self._certified(found)
            may_report(caller)
            return caller
        if self._reviews is None:
            return Caller("anonymous")
        return await self._agent(self._reviews, _token(found), cluster_of(name))

    async def still_reports(self, caller: Caller) -> Caller:
        """Checks a caller again after its `until_s`. Returns it with a new `until_s`. Raises AccessError."""
        cluster = cluster_of(caller.name) if caller.kind == "node" else ""
        again = await self._again(caller, lambda reviews, token: self._agent(reviews, token, cluster))
        return replace(again, until_s=max(again.until_s, self._now_s() + _LATER_S))

    async def _agent(self, own: Reviews, token: str, cluster: str) -> Caller:
        reviews = self._clusters[cluster] if cluster else own
        fabric = "" if cluster else self._fabric  # fabrics belong to no cluster
        caller = agent_of(await reviews.user(token), self._agents, fabric, cluster)
        until_s = self._until_s(token) + spread_s(caller.name)
        return replace(caller, until_s=until_s, token=token)

    # Readers and administrators

    async def admit(self, found: Shown, verb: Verb) -> Caller:
        """Returns the caller that wants to read or change something by gRPC or HTTP. Raises AccessError."""
        if found.certificate:
            caller = self._certified(found)
            if self.over(caller):  # the certificate was valid when the connection began
                raise UnknownCallerError(f"the certificate of {caller} has expired: connect with a new one")
            certificate_may(caller, verb)
            return caller
        if self._reviews is None:
            return Caller("anonymous")
        return await self._user(self._reviews, _token(found), verb)

    async def still_admitted(self, caller: Caller, verb: Verb) -> Caller:
        """Checks a caller again after its `until_s`, while its call continues. Raises AccessError."""
        return await self._again(caller, lambda reviews, token: self._user(reviews, token, verb))

    async def _user(self, reviews: Reviews, token: str, verb: Verb) -> Caller:
        user = await reviews.user(token)
        await reviews.allow(user, token, verb)
        return Caller("user", cleaned(user.name), self._now_s() + _RECHECK_S, token)

    async def _again(self, caller: Caller, check: Callable[[Reviews, str], Awaitable[Caller]]) -> Caller:
        if self._reviews is None or not caller.token:
            raise AskLaterError(f"the certificate of {caller} has expired: present a new one")
        try:
            return await check(self._reviews, caller.token)
        except UnknownCallerError as error:
            raise AskLaterError(f"the token of {caller} has expired: present a new one") from error
        except AskLaterError:
            # While the API server is unreachable, the caller cannot get a new token either.
            return replace(caller, until_s=self._now_s() + _LATER_S)

    def _certified(self, found: Shown) -> Caller:
        try:
            until_s = self._in_process(not_after_s(found.certificate))
        except ValueError as error:
            raise UnknownCallerError(f"the client certificate cannot be read: {error}") from error
        return replace(of_certificate(found.uris), until_s=until_s)

    def _until_s(self, token: str) -> float:
        expires_s = claims_of(token).expires_s
        most_s = self._now_s() + _RECHECK_AGENT_S
        return most_s if expires_s is None else min(self._in_process(expires_s), most_s)

    def _in_process(self, at_s: float) -> float:
        """Returns a time of another system in the process's time."""
        return at_s - self._wall_s() + self._now_s()

    def over(self, caller: Caller) -> bool:
        """Whether the caller's `until_s` has passed and the caller must be checked again."""
        return self._now_s() >= caller.until_s


class Gate(grpc.aio.ServerInterceptor):
    """Authorizes every method of a gRPC server. A method without a rule requires the verb "update"."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        return self.guarded(await continuation(handler_call_details), handler_call_details.method)

    def guarded(self, handler: Any, method: str) -> Any:
        """The handler of a method, which first authorizes the caller."""
        verb = verb_for(method)
        if handler is None or verb is None:
            return handler
        codecs = handler.request_deserializer, handler.response_serializer
        match handler.request_streaming, handler.response_streaming:
            case False, False:
                return grpc.unary_unary_rpc_method_handler(
                    self._once(handler.unary_unary, verb, method), *codecs
                )
            case True, False:
                return grpc.stream_unary_rpc_method_handler(self._once(handler.stream_unary, verb), *codecs)
            case False, True:
                return grpc.unary_stream_rpc_method_handler(self._many(handler.unary_stream, verb), *codecs)
            case _:
                return grpc.stream_stream_rpc_method_handler(self._many(handler.stream_stream, verb), *codecs)

    def _once(self, call: Callable[[Any, Any], Awaitable[Any]], verb: Verb, method: str = "") -> Any:
        """`method`: set where the request message can change the verb that the method requires."""

        async def guarded(request: Any, context: Any) -> Any:
            wanted = (verb_for(method, request) if method else None) or verb
            CALLER.set(await self._admit(context, wanted))
            return await call(request, context)

        return guarded

    def _many(self, method: Callable[[Any, Any], Any], verb: Verb) -> Any:
        async def guarded(request: Any, context: Any) -> AsyncIterator[Any]:
            caller = await self._admit(context, verb)
            async with contextlib.aclosing(method(request, context)) as answers:
                async for answer in answers:
                    if self._access.over(caller):
                        try:
                            caller = await self._access.still_admitted(caller, verb)
                        except AccessError as error:
                            await context.abort(error.code, str(error))
                    yield answer

        return guarded

    async def _admit(self, context: Any, verb: Verb) -> Caller:
        try:
            return await self._access.admit(_shown(context), verb)
        except AccessError as error:
            await context.abort(error.code, str(error))
            raise  # unreachable: `abort` raises


def _shown(context: Any) -> Shown:
    return shown(context.auth_context(), context.invocation_metadata() or ())


def _token(found: Shown) -> str:
    if not found.token:
        raise UnknownCallerError(
            "no credentials: send `authorization: Bearer TOKEN`, or use a client certificate"
        )
    return found.token
