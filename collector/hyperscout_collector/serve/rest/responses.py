"""Builds responses: ETag and 304 (RFC 9110, 8.8.3 and 13.1.2), content negotiation and gzip."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from hyperscout_collector.serve.http.problems import ProblemError
from hyperscout_collector.serve.rest.rendered import worth_zipping, zip_of

_VARY = "Accept, Accept-Encoding, Authorization"


@dataclass(frozen=True, slots=True)
class Etag:
    """A weak entity tag: the compressed and the plain response contain the same data."""

    value: str

    def __str__(self) -> str:
        return f'W/"{self.value}"'

    def known(self, request: Request) -> Response | None:
        """A 304 response if `If-None-Match` contains this tag or `*`, else None."""
        known = [
            one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")
        ]
        if "*" not in known and f'"{self.value}"' not in known:
            return None
        return Response(status_code=304, headers=_headers(self))


def json_answer(request: Request, data: Any, etag: Etag | None = None) -> Response:
    """A JSON response. Call it in a thread if `data` can be large."""
    body = json.dumps(data, separators=(",", ":")).encode() + b"\n"
    return text_answer(request, lambda zipped: zip_of(body) if zipped else body, "application/json", etag)


def text_answer(
    request: Request, text: Callable[[bool], bytes], media_type: str, etag: Etag | None
) -> Response:
    """A response with the body `text(zipped)`. Call it in a thread if the text can be large."""
    body, headers = text(False), _headers(etag)
    if worth_zipping(body) and _takes_gzip(request):
        body = text(True)
        headers["Content-Encoding"] = "gzip"
    return Response(body, 200, headers, media_type)


def accepts(request: Request, available: Mapping[str, str]) -> str:
    """The name in `available` (name -> media type) that `Accept` prefers; the first of equals.

    Raises ProblemError (406) if none is accepted.
    """
    wanted = _weights(request.headers.get("accept") or "*/*")

    def weight(media_type: str) -> float:
        exact = media_type.partition(";")[0]
        for name in (exact, exact.partition("/")[0] + "/*", "*/*"):
            if name in wanted:
                return wanted[name]
        return 0.0

    best = max(available, key=lambda name: weight(available[name]))
    if not weight(available[best]):
        kinds = ", ".join(dict.fromkeys(kind.partition(";")[0] for kind in available.values()))
        raise ProblemError(
            406, "not-acceptable", f"Accept: expected one of {kinds}; or set the parameter output"
        )
    return best


def _takes_gzip(request: Request) -> bool:
    wanted = _weights(request.headers.get("accept-encoding", ""))
    return wanted.get("gzip", wanted.get("*", 0.0)) > 0


def _weights(header: str) -> dict[str, float]:
    """ "gzip;q=0.5, *" as {"gzip": 0.5, "*": 1.0} (RFC 9110, 12.4.2). An invalid weight counts as 0."""
    found = {}
    for one in header.lower().split(","):
        name, *parts = (part.strip() for part in one.split(";"))
        weight = 1.0
        for part in parts:
            if part.startswith("q="):
                try:
                    weight = float(part[2:])
                except ValueError:
                    weight = 0.0
        found[name] = weight
    return found


def _headers(etag: Etag | None) -> dict[str, str]:
    if etag is None:
        return {"Cache-Control": "no-store", "Vary": _VARY}
    return {"Cache-Control": "private, no-cache", "ETag": str(etag), "Vary": _VARY}
