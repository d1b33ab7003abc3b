"""The real mosquitto, with a configuration of the test's own, to be killed and started again."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiomqtt
from kube.processes import free_port

from support.real import tool
from support.waiting import TIMEOUT_S


class Mosquitto:
    """A broker on one port, whatever becomes of its process. `lines`: of its configuration."""

    def __init__(self, folder: Path, lines: Sequence[str] = ("allow_anonymous true",)) -> None:
        self.folder = folder
        self.port = free_port()
        self.lines = list(lines)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """And wait until it listens."""
        program = tool("mosquitto")
        assert program is not None
        path = self.folder / "mosquitto.conf"
        # It would change to a user that may not read what the test wrote.
        user = ["user root"] if os.geteuid() == 0 else []
        path.write_text("\n".join([f"listener {self.port} 127.0.0.1", *user, *self.lines, ""]))
        log = (self.folder / "mosquitto.log").open("ab")
        with log:
            self._process = subprocess.Popen([program, "-c", path, "-v"], stdout=log, stderr=log)
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                assert self._process.poll() is None, self.said()
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                    return
                await asyncio.sleep(0.02)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(TIMEOUT_S)
            self._process = None

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def said(self) -> str:
        return (self.folder / "mosquitto.log").read_text()

    def passwords(self, **of: str) -> Path:
        """A password file; users and their passwords."""
        path = self.folder / "passwords"
        path.touch(0o600)
        program = tool("mosquitto_passwd")
        assert program is not None
        for user, password in of.items():
            subprocess.run(
                [program, "-b", path, user, password], check=True, timeout=TIMEOUT_S, capture_output=True
            )
        return path


@contextlib.contextmanager
def _ended(broker: Mosquitto) -> Iterator[None]:
    try:
        yield
    finally:
        broker.kill()


@asynccontextmanager
async def mosquitto(folder: Path, *lines: str) -> AsyncIterator[Mosquitto]:
    folder.mkdir(parents=True, exist_ok=True)
    broker = Mosquitto(folder, lines or ("allow_anonymous true",))
    with _ended(broker):
        await broker.start()
        yield broker


@dataclass(frozen=True, slots=True)
class Heard:
    topic: str
    payload: bytes
    retained: bool
    properties: Any


@dataclass(slots=True)
class Listener:
    """The messages that a client has received: `heard` has all, `standing` the last payload of each topic.

    An empty payload, which clears a retained message, removes its topic from `standing`.
    """

    heard: list[Heard] = field(default_factory=list)
    standing: dict[str, bytes] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, message: aiomqtt.Message) -> None:
        assert isinstance(message.payload, bytes)
        topic = str(message.topic)
        self.heard.append(Heard(topic, message.payload, message.retain, message.properties))
        self.standing[topic] = message.payload
        if not message.payload:
            del self.standing[topic]
        self._news.set()

    async def until(self, is_true: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
        async with asyncio.timeout(timeout_s):
            while not is_true():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def listening(
    broker: Mosquitto, topic: str = "#", *, qos: int = 1, **client: Any
) -> AsyncIterator[Listener]:
    """A client of the test's own."""
    found = Listener()
    async with aiomqtt.Client(
        "127.0.0.1", broker.port, protocol=aiomqtt.ProtocolVersion.V5, **client
    ) as connected:
        await connected.subscribe(topic, qos=qos)

        async def hear() -> None:
            with contextlib.suppress(aiomqtt.MqttError):
                async for message in connected.messages:
                    found.take(message)

        task = asyncio.create_task(hear())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
