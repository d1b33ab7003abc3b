"""Receives findings that devices send by MQTT. The topic identifies the reporter.

After that the findings take the same path as an agent's. A device has no stream, so its end cannot be
observed. It counts as present while it sends messages, and its evidence goes stale like any other. Each
message stands alone: it can be sent again, and losing one loses nothing else.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hyperscout.v1.discovery_pb2 import FindingBatch
from hyperscout_formats.text.reporters import DEVICE_PROBE, SWITCH_PROBE, is_switch
from hyperscout_mqtt.counters import MqttCounters
from hyperscout_mqtt.envelope import Outgoing, encoded
from hyperscout_mqtt.topics import Topics
from hyperscout_runtime.bounded_executor import BoundedExecutor
from hyperscout_runtime.rate_limit import TokenBucket
from hyperscout_runtime.units import rfc3339

from hyperscout_collector.evidence.committer import Committer, OverloadedError, Refused, Submission
from hyperscout_collector.evidence.rows import Key
from hyperscout_collector.evidence.state import EvidenceState
from hyperscout_collector.ingest.device_messages import MAX_MESSAGE_BYTES, BadMessageError, read
from hyperscout_collector.ingest.intake import Intake, SweepGate
from hyperscout_collector.ingest.refusals import Refusals
from hyperscout_collector.ingest.streams import Streams
from hyperscout_collector.store.errors import StoreError

_MAX_WAITING = 256
_MAX_WAITING_BYTES = 16 * 1024 * 1024
_COST_BYTES = 64 * 1024  # a longer message costs one token for each further part of this size
_BURST_S = 10.0  # a device that was silent may send what it saved up over this time
_MAX_LISTED = 100  # refused findings listed in one answer
_MAX_TEXT_CHARS = 200


@dataclass(slots=True)
class Device:
    """A device that is allowed to report."""

    topic: str
    intake: Intake
    bucket: TokenBucket
    is_too_fast: bool = False

    @property
    def reporter(self) -> str:
        return self.intake.reporter


@dataclass(frozen=True, slots=True)
class _Message:
    device: Device
    payload: bytes
    came_ns: int


class MqttOutput(Protocol):
    """The connection to the broker."""

    topics: Topics
    counters: MqttCounters

    async def say(self, message: Outgoing) -> None:
        """Publish a message."""


class Devices:
    """Handles device messages. The MQTT client calls `take`; `run` is a task. `devices`: reporters by topic.

    `heard(reporter, at_ns, offset_ns)` is called for each readable message with its arrival time (Unix ns)
    and the device's clock minus the collector's (ns). `full_state(reporter)` is called when a device has
    reported its full state. `per_s`: messages per second that one device may send. `timer`: monotonic
    seconds.
    """

    def __init__(
        self,
        devices: Mapping[str, str],
        mqtt: MqttOutput,
        state: EvidenceState,
        streams: Streams,
        committer: Committer,
        gate: SweepGate,
        *,
        per_s: float,
        heard: Callable[[str, int, int], None],
        full_state: Callable[[str], None],
        clock_ns: Callable[[], int],
        timer: Callable[[], float],
    ) -> None:
        most = max(per_s * _BURST_S, 2.0 * MAX_MESSAGE_BYTES / _COST_BYTES)
        self._devices = {
            topic: Device(
                topic,
                Intake(reporter, state, gate, streams.counters, streams.refused_findings, is_device=True),
                TokenBucket(per_s, most),
            )
            for topic, reporter in devices.items()
        }
        self._mqtt = mqtt
        self._topics = mqtt.topics
        self._state = state
        self._streams = streams
        self._committer = committer
        self._counters = mqtt.counters
        self._refusals = Refusals(Counter(), timer)
        self._per_s = per_s
        self._heard = heard
        self._full_state = full_state
        self._clock_ns = clock_ns
        self._timer = timer
        self._waiting: deque[_Message] = deque()
        self._waiting_bytes = 0
        self._answers: deque[Outgoing] = deque(maxlen=_MAX_WAITING)
        self._work = asyncio.Event()
        self._in_thread = BoundedExecutor("mqtt-devices")

    def take(self, topic: str, payload: bytes, retained: bool) -> None:
        """Queue a message that arrived. Never blocks; the queue is bounded."""
        name = self._topics.device_in(topic)
        if name is None or not payload:
            return  # An empty payload deletes the broker's retained message.
        device = self._devices.get(name)
        if device is None:
            self._counters.inbound["unknown_device"] += 1
            why = "no device of mqtt_devices has this topic"
            self._refusals.note("unknown_device", f"mqtt:{topic[:_MAX_TEXT_CHARS]}", name, why)
            return
        if retained:
            self._counters.inbound["invalid"] += 1
            self._answer(
                device,
                "the broker retained the message, so its age is unknown: send it without the retain flag",
            )
            return
        if not device.bucket.take(1 + len(payload) // _COST_BYTES, self._timer()):
            self._too_fast(
                device, f"more than {self._per_s:g} messages a second, of {_COST_BYTES} bytes each"
            )
        elif len(self._waiting) >= _MAX_WAITING or self._waiting_bytes + len(payload) > _MAX_WAITING_BYTES:
            self._too_fast(device, f"{len(self._waiting)} messages of devices wait; send it again")
        else:
            device.is_too_fast = False
            self._waiting.append(_Message(device, payload, self._clock_ns()))
            self._waiting_bytes += len(payload)
            self._work.set()

    async def run(self) -> None:
        """Process queued messages one after the other, until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting or self._answers:
                if self._waiting:
                    message = self._waiting.popleft()
                    self._waiting_bytes -= len(message.payload)
                    await self._take_in(message)
                while self._answers:
                    await self._mqtt.say(self._answers.popleft())

    async def _take_in(self, message: _Message) -> None:
        device = message.device
        try:
            batch = await self._in_thread(read, message.payload)
        except BadMessageError as error:
            self._counters.inbound["invalid"] += 1
            self._answer(device, str(error))
            return
        if is_switch(device.reporter) and self._streams.get(device.reporter) is not None:
            self._counters.inbound["refused"] += 1
            self._answer(
                device,
                f"an agent of {device.reporter} is connected: only one of the two can report the switch",
            )
            return
        checked = await device.intake.check(batch, message.came_ns)
        self._heard(device.reporter, message.came_ns, checked.offset_ns)
        removed = [*checked.removed, *self._gone(device, batch, checked.named)]
        submission = Submission(checked.rows, removed=removed, cost_bytes=len(message.payload))
        try:
            stored = await (await self._committer.submit(submission))
        except (StoreError, OverloadedError) as error:
            self._counters.inbound["refused"] += 1
            self._answer(device, f"not stored, send it again: {error}")
            return
        refused = [*checked.refused, *stored]
        self._streams.counters.refused += len(refused)
        self._counters.inbound["refused" if refused else "taken"] += 1
        if refused:
            self._answer(device, "", refused)
        if batch.full_state_ends and (
            is_switch(device.reporter) or device.reporter not in self._state.agents
        ):
            self._full_state(device.reporter)

    def _gone(self, device: Device, batch: FindingBatch, named: set[Key]) -> list[Key]:
        """Returns the keys that a full state no longer names; empty if the message is no full state."""
        if not batch.full_state_ends:
            return []
        probe = SWITCH_PROBE if is_switch(device.reporter) else DEVICE_PROBE
        held = self._state.keys_of(device.reporter)
        return sorted(key for key in held if key.probe == probe and key not in named)

    def _too_fast(self, device: Device, why: str) -> None:
        """Count each dropped message, but answer only the first: answering each would double the traffic."""
        self._counters.inbound["too_fast"] += 1
        if not device.is_too_fast:
            device.is_too_fast = True
            self._answer(device, f"too fast, dropped: {why}")

    def _answer(self, device: Device, reason: str, refused: Sequence[Refused] = ()) -> None:
        why = reason or f"{refused[0].key.subject[:_MAX_TEXT_CHARS]!a}: {refused[0].reason}"
        where = f"mqtt:{self._topics.prefix}/findings/{device.topic}"
        self._refusals.note("device", where, device.reporter, why, device.topic)
        listed = [
            {
                "node": one.key.node[:_MAX_TEXT_CHARS],
                "probe": one.key.probe[:_MAX_TEXT_CHARS],
                "subject": one.key.subject[:_MAX_TEXT_CHARS],
                "reason": one.reason[:_MAX_TEXT_CHARS],
            }
            for one in refused[:_MAX_LISTED]
        ]
        body = {
            "at": rfc3339(self._clock_ns()),
            "reason": reason[: 2 * _MAX_TEXT_CHARS],
            "refused": listed,
            "more": len(refused) - len(listed),
        }
        self._answers.append(Outgoing(self._topics.refusals(device.topic), encoded(body)))
        self._work.set()
