"""What the gRPC services share: method handlers, exceptions as status codes, and the ends of watches."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from hyperscout_formats.facts.clean_message import clean
from hyperscout_formats.text.leader import refusal

from hyperscout_collector.serve.fanout.channel import WatchEndedError
from hyperscout_collector.serve.fanout.hub import Hub
from hyperscout_collector.serve.grpc.placement_watchers import PlacementWatchers

Call = Callable[[Any, Any], Awaitable[Any]]


def unary(call: Call, request: Any) -> Any:
    """The handler of a method with one response."""
    return grpc.unary_unary_rpc_method_handler(
        call, request_deserializer=request.FromString, response_serializer=encode
    )


def streaming(call: Callable[[Any, Any], AsyncIterator[Any]], request: Any) -> Any:
    """The handler of a method with a stream of responses."""
    return grpc.unary_stream_rpc_method_handler(
        call, request_deserializer=request.FromString, response_serializer=encode
    )


@asynccontextmanager
async def watching(watchers: Hub | PlacementWatchers, context: Any) -> AsyncIterator[None]:
    """Refuse a watch above the limit. Tell a watch that the collector ends why, and where the leader is."""
    if watchers.full:
        await context.abort(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"{len(watchers)} watches are open, which is the limit: try again later",
        )
    try:
        yield
    except WatchEndedError as error:
        hint = () if error.leader is None else refusal(error.leader)[1]
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error), hint)


def encode(message: Any) -> bytes:
    """Serialize an answer, unless it is encoded already."""
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


def with_codes(call: Call, codes: Sequence[tuple[type[Exception], grpc.StatusCode]]) -> Call:
    """`call` with a cleaned request. An exception aborts it with the code of the first type that fits."""

    async def guarded(request: Any, context: Any) -> Any:
        clean(request)
        try:
            return await call(request, context)
        except tuple(kind for kind, _ in codes) as error:
            code = next(code for kind, code in codes if isinstance(error, kind))
            await context.abort(code, str(error))
            raise  # never reached: abort raises

    return guarded
