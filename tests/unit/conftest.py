"""The unit tier is pure: a unit test that starts a process, opens a socket or sleeps fails."""

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

import grpc
import grpc.aio
import pytest
import urllib3.util.connection  # noqa: F401 - it binds a socket when it is imported

PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")
FORBIDDEN = {*PROCESSES, "socket.bind", "socket.connect"}
SERVERS_AND_CHANNELS = ("server", "insecure_channel", "secure_channel")
YOUNG = 20_000  # objects that are new: the garbage collector looks at them no earlier
seen: list[str] | None = None  # forbidden events of the test that runs; None between tests


def note(event: str, *arguments: Any) -> None:
    if seen is not None:
        seen.append(f"{event}{arguments!r}"[:200])


def audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event in FORBIDDEN:
        note(event, *arguments)


def noted(module: Any, name: str, is_forbidden: Callable[..., bool] = lambda *_: True) -> None:
    """Note each call of a function that raises no audit event."""
    function = getattr(module, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if is_forbidden(*arguments):
            note(f"{module.__name__}.{name}", *arguments)
        return function(*arguments, **options)

    setattr(module, name, call)


sys.addaudithook(audit)
for module in (asyncio, time):
    noted(module, "sleep", lambda delay_s=0, *_: delay_s > 0)
for name in SERVERS_AND_CHANNELS:
    noted(grpc, name)
    noted(grpc.aio, name)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Keep the garbage collector from what collection makes: the modules and tests stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(YOUNG)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    global seen  # noqa: PLW0603 - an audit hook cannot be removed, only be made idle
    seen = []
    try:
        return (yield)
    finally:
        seen = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    if seen:
        pytest.fail(f"not a unit test: {'; '.join(seen)}. Move the test to tests/integration.", pytrace=False)
    return result
