"""The MQTT client without a broker: what ends a wait, and what never reaches a log."""

import asyncio

import pytest
from hyperscout_collector.mqtt.client import Access, BrokerError, Client, Secrets
from hyperscout_collector.mqtt.payloads import Outgoing
from hyperscout_collector.mqtt.topics import broker_of
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
    with pytest.raises(BrokerError, match="the connection is gone"):
        await waiting
    assert await client.gone() == "closed"
    with pytest.raises(BrokerError, match="the connection is gone"):
        await client.publish(Outgoing("lab/collector", b"{}"), 1)


async def test_the_first_reason_to_end_stays() -> None:
    client = made()
    client.drop("the broker does not answer")
    client.close()
    assert await client.gone() == "the broker does not answer"
