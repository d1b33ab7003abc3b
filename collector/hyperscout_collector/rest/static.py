"""The map at `/`: files that were built beforehand, the same for everybody, with no data in them.

So nobody is asked who they are. What the pages may do is said in one strict policy (CSP): nothing of any
other host, no script or style but the files, and nothing that makes HTML of a text.
"""

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from hyperscout_collector.rest.hosts import Hosts
from hyperscout_collector.rest.problems import ProblemError

FOLDER = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HASHED = "/assets/"  # names there change with their content
_NOT_BUILT = (
    "The map is not built: run `make map` (Node.js and npm are needed for that), and load this page again.\n"
    "The API is there without it: GET /v1/topology, described by /v1/openapi.json.\n"
)


class Pages:
    """An ASGI application. `folder`: what `make map` built."""

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
            if path == "/" and scope["method"] in ("GET", "HEAD") and not self._index.is_file():
                await PlainTextResponse(_NOT_BUILT, 404)(scope, receive, with_policy)
                return
            await self._files(scope, receive, with_policy)
        except ProblemError as problem:
            await problem.response(request)(scope, receive, send)
        except HTTPException as error:
            found = (
                ProblemError(405, "method-not-allowed", "files are only read", allowed=("GET", "HEAD"))
                if error.status_code == 405
                else ProblemError(
                    404, "not-found", f"no {path[:253]!r} here: /v1/openapi.json says what there is"
                )
            )
            await found.response(request)(scope, receive, send)
