"""A proxy before a real API server that refuses some requests, as a loaded server or a busy object would."""

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from random import Random

import aiohttp
from aiohttp import web
from kube import kubeconfig

from support.kubernetes import Cluster

_WRITES = frozenset({"PATCH", "POST", "PUT", "DELETE"})
_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "host", "content-encoding"})
_REASONS = {409: "Conflict", 429: "TooManyRequests", 500: "InternalError"}


class FlakyApi:
    """Plain HTTP on loopback, TLS to the server. `share`: of the writes that are refused, 0 to 1."""

    def __init__(self, kube: Cluster, rng: Random) -> None:
        self.share = 0.0
        self.refused: Counter[int] = Counter()
        self.kubeconfig = Path()
        self._kube = kube
        self._rng = rng
        self._tls = ssl.create_default_context(cafile=str(kube.ca))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method in _WRITES and self._rng.random() < self.share:
            status = self._rng.choice(sorted(_REASONS))
            self.refused[status] += 1
            after = {"Retry-After": "1"} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
            # An answer of 500 may come after the write was done: the worst case, and a common one.
            if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                await self._forward(request, web.StreamResponse())
            body = {"kind": "Status", "code": status, "reason": _REASONS[status], "message": "made up"}
            return web.json_response(body, status=status, headers=after)
        return await self._forward(request, None)

    async def _forward(self, request: web.Request, dropped: web.StreamResponse | None) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        try:
            async with self._session.request(
                request.method,
                self._kube.url + request.raw_path,
                data=await request.read() or None,
                headers=headers,
                ssl=self._tls,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            ) as answer:
                if dropped is not None:
                    await answer.read()
                    return dropped
                passed = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
                response = web.StreamResponse(status=answer.status, headers=passed)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, OSError) as error:
            if request.transport is not None:
                request.transport.abort()  # as the dead server itself would
            raise web.HTTPBadGateway(text=str(error)) from error

    @asynccontextmanager
    async def running(self, token: str, folder: Path) -> AsyncIterator["FlakyApi"]:
        """Listen; `kubeconfig` then says how to reach it with this token."""
        async with aiohttp.ClientSession(auto_decompress=False) as self._session:
            app = web.Application(client_max_size=64 << 20)
            app.router.add_route("*", "/{path:.*}", self.handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.kubeconfig = kubeconfig.write(
                folder / "flaky.kubeconfig", f"http://{host}:{port}", self._kube.ca, token
            )
            try:
                yield self
            finally:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(runner.cleanup(), 10)
