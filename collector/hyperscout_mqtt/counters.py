"""Counters of MQTT since the start of the process, for /metrics."""

from collections import Counter
from dataclasses import dataclass, field

INBOUND_OUTCOMES = ("taken", "refused", "invalid", "unknown_device", "too_fast")


@dataclass(slots=True)
class MqttCounters:
    """`waiting`: messages queued for the broker. `inbound`: messages of devices, by INBOUND_OUTCOMES."""

    connected: bool = False
    connects_total: int = 0
    published_total: int = 0  # accepted by the broker
    dropped_total: int = 0  # dropped because a queue was full or the message was obsolete
    waiting: int = 0
    inbound: Counter[str] = field(default_factory=Counter)
