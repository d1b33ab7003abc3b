"""Serves the map at `/`: files that `make map` builds. They contain no data, so they need no credentials.

One strict Content-Security-Policy covers them: nothing from another host, no script or style except the
files, and no HTML made from text.
"""

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from hyperscout_collector.serve.http.hosts import Hosts
from hyperscout_collector.serve.http.problems import ProblemError

FOLDER = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HASHED = "/assets/"  # file names here change with their content, so clients can cache them
_NOT_BUILT = (
    "the map is not built: run `make map` (requires Node.js and npm) and reload this page; after "
    "`pip install .`, install again or install the wheel of `make dist`; "
    "the API works without it: see /v1/openapi.json"
)


class Pages:
    """The ASGI application of the map. `folder`: the output of `make map`."""

    def __init__(self, hosts: Hosts, folder: Path = FOLDER) -> None:
        self._hosts = hosts
        self._index = folder / "index.html"
        self._files = StaticFiles(directory=folder, html=True, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["path"]

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                hashed = path.startswith(_HASHED) and message["status"] in (200, 206, 304)
                caching = "public, max-age=31536000, immutable" if hashed else "no-cache"
                message["headers"] = [
                    *message["headers"],
                    (b"content-security-policy", _POLICY.encode()),
                    (b"cache-control", caching.encode()),
                ]
            await send(message)

        try:
            self._hosts.check(request)
            if not self._index.is_file():  # StaticFiles raises RuntimeError if its folder is missing
                raise ProblemError(404, "not-found", _NOT_BUILT) if path == "/" else _missing(path)
            await self._files(scope, receive, with_policy)
        except ProblemError as problem:
            await problem.response(request)(scope, receive, send)
        except HTTPException as error:
            found = (
                ProblemError(405, "method-not-allowed", "expected GET or HEAD", allowed=("GET", "HEAD"))
                if error.status_code == 405
                else _missing(path)
            )
            await found.response(request)(scope, receive, send)


def _missing(path: str) -> ProblemError:
    return ProblemError(
        404, "not-found", f"no such path {path[:253]!r}: /v1/openapi.json lists the paths of the API"
    )
