"""Serves REST on a standby: every request gets a problem document with the leader's address, if known."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.app import secured


def refusing(leader: Callable[[], str], address: Callable[[], str]) -> ASGIApp:
    """The application of a standby.

    `leader()`: host:port of the leader's gRPC, "" = none is known. `address()`: host:port of this replica's
    REST.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        problem = left("this replica is a standby", leader(), address())
        await problem.response(request)(scope, receive, send)

    return secured(answer)


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
