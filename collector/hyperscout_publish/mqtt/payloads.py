"""MQTT payloads of a topology: HyperNode states, events, and the queue of events. Performs no I/O."""

import hashlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hyperscout_mqtt.envelope import encoded
from hyperscout_runtime.units import rfc3339
from hyperscout_topology import objects
from hyperscout_topology.events import Event
from hyperscout_topology.topology import Topology

MAX_EVENTS = 1000  # maximum number of queued events
EVENTS_A_MESSAGE = 200
EVENT_EXPIRY_S = 3600  # an event that the broker could not deliver for this long is obsolete


@dataclass(frozen=True, slots=True)
class State:
    """A HyperNode's state. `body` lacks the generation, which is not part of the state."""

    body: dict[str, Any]
    digest: bytes

    def payload(self, generation: int) -> bytes:
        return encoded(self.body | {"generation": generation})


def states_of(topology: Topology) -> dict[str, State]:
    """Return states by name. Takes some ms for a thousand HyperNodes, so call it in a thread."""
    against: dict[str | None, list[objects.Object]] = {}
    for anomaly in objects.anomalies(topology):
        against.setdefault(anomaly["hypernode"], []).append(anomaly)
    found = {}
    for body in objects.hypernodes(topology):
        body["anomalies"] = against.get(body["name"], [])
        found[body["name"]] = State(body, hashlib.sha256(encoded(body)).digest())
    return found


class Backlog:
    """Bounded queue of events to send, oldest first. It drops the oldest events and counts them.

    `lost_total` counts all dropped events. It may include events that were being sent when dropped.
    """

    def __init__(self, most: int = MAX_EVENTS) -> None:
        self.lost = 0  # dropped and not yet reported to subscribers
        self.lost_total = 0
        self._most = most
        self._waiting: deque[tuple[int, int, Event]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, generation: int, at_ns: int, changes: Sequence[Event]) -> None:
        """Queue the events of a generation. `at_ns`: when it was published, Unix ns."""
        self._waiting.extend((generation, at_ns, event) for event in changes)
        too_many = max(0, len(self._waiting) - self._most)
        for _ in range(too_many):
            self._waiting.popleft()
        self.lost += too_many
        self.lost_total += too_many

    def next(self) -> tuple[dict[str, Any], int] | None:
        """Return the next message and its number of events; None if the queue is empty.

        The events stay queued until `sent` is called.
        """
        if not self._waiting:
            return None
        generation, at_ns, _ = self._waiting[0]
        bodies: list[dict[str, Any]] = []
        for number, _, event in self._waiting:
            if number != generation or len(bodies) == EVENTS_A_MESSAGE:
                break
            bodies.append(_event(event))
        message = {"generation": generation, "at": rfc3339(at_ns), "lost": self.lost, "events": bodies}
        return message, len(bodies)

    def sent(self, message: dict[str, Any], count: int) -> None:
        """Remove the events of a message that the broker has. Some may have been dropped in the meantime."""
        lost_meanwhile = self.lost - message["lost"]
        self.lost = max(0, lost_meanwhile - count)
        for _ in range(count - min(count, lost_meanwhile)):
            self._waiting.popleft()


def _event(event: Event) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": event.kind, "message": event.message}
    for name in ("hypernode", "node", "what", "before", "after", "reason"):
        if value := getattr(event, name):
            found[name] = value
    for name, end in (("subject", event.subject), ("peer", event.peer)):
        if end is not None:
            found[name] = objects.end(end)
    return found
