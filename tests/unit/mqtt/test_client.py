"""The MQTT client without a broker: what ends a wait, and what never reaches a log."""

import asyncio
from pathlib import Path

import pytest
from hyperscout_mqtt.client import Access, BrokerError, Client, Secrets, read_secrets
from hyperscout_mqtt.envelope import Outgoing
from hyperscout_mqtt.topics import Broker, broker_of
from paho.mqtt.enums import MQTTErrorCode


def made() -> Client:
    access = Access(broker_of("mqtt://127.0.0.1:1"), "one", 1)
    return Client(access, Secrets(None, None), Outgoing("lab/collector", b"{}"), lambda *_: None)


async def waiting_for_an_answer(client: Client) -> "asyncio.Task[object]":
    task = asyncio.create_task(client._answer(MQTTErrorCode.MQTT_ERR_SUCCESS, 1, 60.0))
    await asyncio.sleep(0)
    return task


async def test_a_cancellation_that_comes_with_the_answer_is_kept() -> None:
    client = made()
    waiting = await waiting_for_an_answer(client)
    client._answered(1, "taken")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_close_ends_what_waits_for_an_answer() -> None:
    client = made()
    waiting = await waiting_for_an_answer(client)
    client.close()
    with pytest.raises(BrokerError, match="the connection is lost"):
        await waiting
    assert await client.gone() == "closed"
    with pytest.raises(BrokerError, match="the connection is lost"):
        await client.publish(Outgoing("lab/collector", b"{}"), 1)


async def test_the_first_reason_to_end_stays() -> None:
    client = made()
    client.drop("the broker does not answer")
    client.close()
    assert await client.gone() == "the broker does not answer"


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_password_that_mqtt_cannot_carry_is_refused(tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "password"
    access = Access(Broker("broker", 1883, tls=False), "id", 1, user="user", password_file=file)
    file.write_bytes(b"x" * 65_535 + end)
    assert read_secrets(access).password == "x" * 65_535
    for too_long in (b"x" * 65_536, "\u00e9".encode() * 40_000):
        file.write_bytes(too_long + end)
        with pytest.raises(BrokerError, match=r"mqtt_password_file .*: more than 65535 bytes"):
            read_secrets(access)
