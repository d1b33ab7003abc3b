"""What MQTT did since the start of the process, for /metrics."""

from collections import Counter
from dataclasses import dataclass, field

INBOUND_OUTCOMES = ("taken", "refused", "invalid", "unknown_device", "too_fast")


@dataclass(slots=True)
class MqttCounters:
    """`waiting`: messages that wait for the broker. `inbound`: messages of devices, by one of
    INBOUND_OUTCOMES."""

    connected: bool = False
    connects_total: int = 0
    published_total: int = 0  # that the broker has
    dropped_total: int = 0  # that found no room, or are of no use any more
    waiting: int = 0
    inbound: Counter[str] = field(default_factory=Counter)
