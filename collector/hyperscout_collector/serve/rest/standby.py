"""REST at a replica that does not lead: one problem document for everything, which says who leads."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.app import secured


def refusing(leader: Callable[[], str], address: Callable[[], str]) -> ASGIApp:
    """`leader()`: host:port of the leader's gRPC, "" = none is known; `address()`: that of our own REST."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        problem = left("this replica does not lead", leader(), address())
        await problem.response(request)(scope, receive, send)

    return secured(answer)


def left(reason: str, leader: str | None, address: str) -> ProblemError:
    """Nothing is to be had here (any more). `leader`: see `WatchEndedError`; `address`: our own of REST."""
    where = leads_at(leader or "", address)
    say = f"{reason}; {where} leads" if where else f"{reason}; no leader is known yet: try again"
    return ProblemError(503, "standby", reason if leader is None else say, leader=where or None)


def leads_at(leader: str, address: str) -> str:
    """Where the leader's REST is: at the same port as ours, since replicas are set up alike.

    A lease holds one address, the one for gRPC. "" = no leader is known.
    """
    host, colon, _ = leader.rpartition(":")
    return f"{host}:{address.rpartition(':')[2]}" if colon else ""
