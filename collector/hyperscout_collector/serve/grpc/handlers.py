"""What the gRPC services share: encoded answers, and exceptions as status codes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from hyperscout_formats.facts.clean_message import clean

Call = Callable[[Any, Any], Awaitable[Any]]


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
