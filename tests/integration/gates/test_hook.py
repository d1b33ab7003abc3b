"""Checkpoint hooks against a real server on loopback."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hyperscout_gates.degradation.hook import call

BODY = {"gang": "ns/Job/train", "ranks": [3], "withinSeconds": 1.0}
_LARGE = 64 << 20


class Pods:
    """`got`: path, body and headers of each request."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any, dict[str, str]]] = []
        self.at_once = self.most_at_once = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.got.append((request.path, await request.json(), dict(request.headers)))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._answer(request)
        finally:
            self.at_once -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/moved":
                raise web.HTTPTemporaryRedirect("/saved")
            case "/slow":
                await asyncio.Event().wait()
            case "/large":
                response = web.StreamResponse()
                await response.prepare(request)
                await response.write(bytes(_LARGE))
                return response
            case "/broken":
                return web.Response(status=503)
        return web.Response(status=204)


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Pods, str]]:
    pods = Pods()
    app = web.Application()
    app.router.add_post("/{path:.*}", pods.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield pods, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_each_pod_is_called_once() -> None:
    async with served() as (pods, at):
        assert await call({f"w-{n}": f"{at}/saved/{n}" for n in range(200)}, BODY, 60.0) == []
    assert sorted(path for path, _, _ in pods.got) == sorted(f"/saved/{n}" for n in range(200))
    assert all(body == BODY for _, body, _ in pods.got)
    assert not any("Authorization" in headers or "Cookie" in headers for _, _, headers in pods.got)
    assert pods.most_at_once <= 64


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/moved", "w-1 answers 307"),
        ("/broken", "w-1 answers 503"),
        ("/slow", "w-1 does not answer within 0.2 s"),
    ],
)
async def test_one_that_fails_is_named(path: str, problem: str) -> None:
    async with served() as (pods, at):
        assert await call({"w-0": f"{at}/saved", "w-1": f"{at}{path}"}, BODY, 0.2) == [problem]
        assert sorted(path for path, _, _ in pods.got) == sorted(["/saved", path]), "no redirect is followed"


async def test_the_content_of_an_answer_is_not_read() -> None:
    async with served() as (_, at):
        assert await call({"w-0": f"{at}/large"}, BODY, 60.0) == []


async def test_a_pod_that_does_not_listen() -> None:
    async with served() as (_, at):
        pass
    (problem,) = await call({"w-0": f"{at}/saved"}, BODY, 60.0)
    assert problem.startswith("w-0: ")
