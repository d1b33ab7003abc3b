"""The unit tier is pure: a unit test that starts a process, opens a socket or sleeps fails."""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import urllib3.util.connection  # noqa: F401 - it binds a socket when it is imported

HERE = Path(__file__).parent
PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")
FORBIDDEN = {*PROCESSES, "socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg"}
# These still wait, for half a second at most, for timers of the product, which take no clock from outside.
TIMED = {
    "app/test_lifecycle.py",
    "app/test_outputs.py",
    "app/test_pipeline.py",
    "gates/test_controller.py",
    "gates/test_defragmenting.py",
    "gates/test_draining.py",
    "gates/test_mover.py",
}
# A timer below this is one that had expired when it was set.
INSTANT_S = 1e-5
SERVERS_AND_CHANNELS = ("server", "insecure_channel", "secure_channel")
YOUNG = 20_000  # objects that are new: the garbage collector looks at them no earlier
is_timed = False  # whether the test that runs may wait for timers
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
        if is_forbidden(*arguments, *options.values()):
            note(f"{module.__name__}.{name}", *arguments, *options.values())
        return function(*arguments, **options)

    setattr(module, name, call)


def watch_timers() -> None:
    """Note each timer of an event loop that fires later than at once: sleeps, expired timeouts, `call_later`.

    A timer that is cancelled in time is none: the test did not wait for it.
    """
    call_at = asyncio.BaseEventLoop.call_at

    def call(loop: Any, when: float, callback: Any, *arguments: Any, **options: Any) -> Any:
        delay_s = when - loop.time()

        def fired(*given: Any) -> Any:
            if delay_s > INSTANT_S and not is_timed:
                note("timer", round(delay_s, 3), getattr(callback, "__qualname__", callback))
            return callback(*given)

        return call_at(loop, when, fired, *arguments, **options)

    asyncio.BaseEventLoop.call_at = call  # type: ignore[method-assign]


def watch_waits() -> None:
    """Note each wait of a thread that ends by its timeout."""
    wait = threading.Condition.wait

    def call(condition: Any, timeout: float | None = None) -> bool:
        happened = wait(condition, timeout)
        if timeout is not None and timeout > 0 and not happened:
            note("threading wait", timeout)
        return happened

    threading.Condition.wait = call  # type: ignore[method-assign]


sys.addaudithook(audit)
for module in (asyncio, time):
    noted(module, "sleep", lambda delay_s=0, *_: delay_s > 0)
watch_timers()
watch_waits()
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
    global seen, is_timed  # noqa: PLW0603 - an audit hook cannot be removed, only be made idle
    # In a run of several tiers this hook is called for the tests of all of them.
    is_unit = item.path.is_relative_to(HERE)
    seen = [] if is_unit else None
    is_timed = is_unit and item.path.relative_to(HERE).as_posix() in TIMED
    try:
        return (yield)
    finally:
        seen = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    # The last teardown ends what tests of other tiers share.
    found = seen if nextitem is not None else list(seen or ())
    result = yield
    if found:
        pytest.fail(
            f"not a unit test: {'; '.join(found)}. Move the test to tests/integration.", pytrace=False
        )
    return result
