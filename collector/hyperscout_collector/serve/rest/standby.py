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


def left(reason: str, leader: str | None, address: str, problem: str | None = None) -> ProblemError:
    """The problem of a replica that is not the leader.

    `leader`: see `WatchEndedError`. `address`: host:port of this replica's REST. `problem`: of the election;
    None = there is none.
    """
    where = leads_at(leader or "", address)
    if where:
        hint = f"the leader is {where}"
    elif leader:
        hint = f"the leader is {leader} (gRPC), and its port of REST is not known"
    else:
        hint = f"no leader is known yet: {problem or 'try again later'}"
    detail = reason if leader is None else f"{reason}; {hint}"
    return ProblemError(503, "standby", detail, leader=where or None)


def leads_at(leader: str, address: str) -> str:
    """The leader's address of REST, host:port; "" = it is not known.

    The election has only the leader's gRPC address. Replicas on different machines have the same
    configuration, so REST has the same port everywhere. On this machine that port is this replica's own.
    """
    host, colon, _ = leader.rpartition(":")
    own_host, _, port = address.rpartition(":")
    return f"{host}:{port}" if colon and host != own_host else ""
