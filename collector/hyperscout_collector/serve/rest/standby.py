"""Serves REST on a standby: reads of the followed topology, and for other requests the leader's address."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.app import secured


def refusing(refusal: Callable[[], ProblemError]) -> ASGIApp:
    """The application of a standby that serves nothing."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await refusal().response(Request(scope, receive))(scope, receive, send)

    return secured(answer)


def aged(reads: ASGIApp, age_s: Callable[[], float | None], otherwise: ASGIApp) -> ASGIApp:
    """The application of a standby that serves reads.

    `age_s()`: the age of what `reads` serves, in seconds, which each response has as `Age` (RFC 9111, 5.1).
    None = there is nothing to serve: then `otherwise` answers.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        found_s = age_s()
        if found_s is None:
            await otherwise(scope, receive, send)
            return

        async def with_age(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"age", b"%d" % found_s)]
            await send(message)

        await reads(scope, receive, with_age)

    return answer


def left(reason: str, leader: str | None, address: str) -> ProblemError:
    """The problem of a replica that is not the leader.

    `leader`: see `WatchEndedError`. `address`: host:port of this replica's REST.
    """
    where = leads_at(leader or "", address)
    hint = f"the leader is {where}" if where else "no leader is known yet: try again later"
    detail = reason if leader is None else f"{reason}; {hint}"
    return ProblemError(503, "standby", detail, leader=where or None)


def leads_at(leader: str, address: str) -> str:
    """The leader's address of REST, host:port; "" = no leader is known.

    The Lease contains only the leader's gRPC address. All replicas have the same configuration, so REST has
    the same port everywhere.
    """
    host, colon, _ = leader.rpartition(":")
    return f"{host}:{address.rpartition(':')[2]}" if colon else ""
