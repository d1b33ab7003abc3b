"""The MQTT client against brokers that stay silent, close, or send what is no MQTT: it ends, and says why."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from hyperscout_mqtt.client import Access, BrokerError, Client, Secrets
from hyperscout_mqtt.connection import Session
from hyperscout_mqtt.counters import MqttCounters
from hyperscout_mqtt.envelope import Outgoing
from hyperscout_mqtt.topics import Broker
from support.waiting import TIMEOUT_S

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CONNACK = bytes.fromhex("2003000000")
ACCESS = Access(Broker("127.0.0.1", 1883, False), "one", 1)


@asynccontextmanager
async def client_of(behaviour: Behaviour) -> AsyncIterator[Client]:
    """A client of a broker that reads CONNECT and then does this."""
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await reader.read(1)
            await behaviour(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    access = replace(ACCESS, broker=Broker("127.0.0.1", port, False))
    client = Client(access, Secrets(None, None), Outgoing("lab/collector", b"{}"), lambda *_: None)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield client
    finally:
        client.close()
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    while await reader.read(1 << 16):
        pass


async def closing(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    return


def saying(*pieces: bytes) -> Behaviour:
    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
        await silence(reader, writer)

    return behaviour


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (closing, "the connection was lost"),
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "."),
        (saying(bytes.fromhex("20ffffffffffff")), "."),
        (saying(bytes.fromhex("200300ff00")), "."),  # a reason code that does not exist
        (saying(bytes.fromhex("2003008700")), "Not authorized; check mqtt_user"),
        (saying(CONNACK[:3]), "no answer in time"),
        (silence, "no answer in time"),
    ],
    ids=["closes", "HTTP", "endless length", "unknown reason", "refuses", "half an answer", "silent"],
)
async def test_a_failed_connect_says_why(
    monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, words: str
) -> None:
    if words == "no answer in time":
        monkeypatch.setattr("hyperscout_mqtt.client.TIMEOUT_S", 0.2)
    async with client_of(behaviour) as client:
        with pytest.raises(BrokerError, match=words):
            await client.connect()


async def test_a_packet_that_cannot_be_read_ends_the_connection() -> None:
    async with client_of(saying(CONNACK, bytes.fromhex("3003ffff41"))) as client:  # a PUBLISH cut short
        await client.connect()
        assert await client.gone()
        with pytest.raises(BrokerError, match="the connection is lost"):
            await client.publish(Outgoing("lab/collector", b"{}"), 1)


async def test_a_wait_fails_when_the_connection_ends() -> None:
    async def dies_at_the_first_packet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connect_bytes = (await reader.readexactly(1))[0]
        await reader.readexactly(connect_bytes)
        writer.write(CONNACK)
        await reader.read(1)

    async with client_of(dies_at_the_first_packet) as client:
        await client.connect()
        session = Session(client, ACCESS, MqttCounters())
        with pytest.raises(BrokerError, match=r"^lab/#: the connection is lost$"):
            await session.subscribe("lab/#")
        with pytest.raises(BrokerError, match=r"^lab/#: the connection is lost$"):
            await session.unsubscribe("lab/#")
        assert "the connection was lost" in await client.gone()


async def test_leave_and_close_do_not_wait_for_the_broker() -> None:
    async with client_of(saying(CONNACK)) as client:
        await client.connect()
        waiting = asyncio.create_task(client.subscribe("lab/#", 1, 60.0))
        await asyncio.sleep(0)
        await client.leave()
        client.close()
        with pytest.raises(BrokerError):
            await waiting


async def test_a_cancelled_connect_closes_its_socket() -> None:
    ended = asyncio.Event()

    async def told(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silence(reader, writer)
        ended.set()

    async with client_of(told) as client:
        connecting = asyncio.create_task(client.connect())
        await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await ended.wait()
