"""Events are valid objects and merged, the queue is bounded, and a refused Event holds up no other."""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import ForbiddenError
from hyperscout_kubernetes.event_recorder import EventRecorder, deployment_reference
from support.fake_kube import FakeKube
from support.waiting import until

NODE = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}


class Server:
    def __init__(self, refused: int = 0) -> None:
        self.written: list[tuple[str, dict[str, Any]]] = []
        self.refused = refused

    async def write(self, method: str, path: str, body: dict[str, Any], *, query: Mapping[str, str]) -> None:
        assert (method, query) == ("POST", {"fieldManager": "hyperscout"})
        self.written.append((path, body))
        if len(self.written) <= self.refused:
            raise ForbiddenError("no")


async def posted(server: Server, recorder: EventRecorder, count: int) -> list[tuple[str, dict[str, Any]]]:
    task = asyncio.create_task(recorder.run())
    await until(lambda: len(server.written) >= count)
    task.cancel()
    return server.written


def of(server: Server, clock_ns: int = 255 * 10**9) -> EventRecorder:
    return EventRecorder(cast("Kube", server), clock_ns=lambda: clock_ns)


@pytest.mark.parametrize(
    ("about", "namespace", "involved"),
    [
        (NODE, "default", NODE),
        ({**NODE, "uid": ""}, "default", {key: NODE[key] for key in ("apiVersion", "kind", "name")}),
        ({**NODE, "kind": "Pod", "namespace": "ns"}, "ns", {**NODE, "kind": "Pod", "namespace": "ns"}),
    ],
)
async def test_an_event_is_in_the_namespace_of_its_object(
    about: Mapping[str, str], namespace: str, involved: Mapping[str, str]
) -> None:
    server = Server()
    recorder = of(server)
    recorder.record(about, "Warning", "Broken", "it is broken")
    [(path, body)] = await posted(server, recorder, 1)
    assert path == f"/api/v1/namespaces/{namespace}/events"
    assert re.fullmatch(r"n1\.[0-9a-f]{16}", body["metadata"].pop("name"))
    assert body["metadata"] == {"namespace": namespace}
    assert body["involvedObject"] == involved
    assert (body["type"], body["reason"], body["message"]) == ("Warning", "Broken", "it is broken")
    assert body["firstTimestamp"] == body["lastTimestamp"] == "1970-01-01T00:04:15Z"


async def test_names_differ_and_fit_and_messages_fit() -> None:
    server = Server()
    recorder = of(server)
    for count in (1000, 1001):  # they differ only beyond the limit
        recorder.record({**NODE, "name": "n" * 199 + "-" + "x" * 53}, "Normal", "R", "\N{EURO SIGN}" * count)
    first, second = [body for _, body in await posted(server, recorder, 2)]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert len(first["metadata"]["name"]) <= 253
    assert "-." not in first["metadata"]["name"]
    assert first["message"] == "\N{EURO SIGN}" * 341


async def test_the_oldest_of_too_many_are_dropped() -> None:
    server = Server()
    recorder = of(server)
    for number in range(1002):
        recorder.record(NODE, "Normal", "R", str(number))
    assert [body["message"] for _, body in await posted(server, recorder, 1000)][:2] == ["2", "3"]


async def test_a_refused_event_is_dropped_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(refused=2)
    recorder = of(server)
    for number in range(3):
        recorder.record(NODE, "Normal", "R", str(number))
    with caplog.at_level(logging.WARNING):
        await posted(server, recorder, 3)
    assert [record.getMessage() for record in caplog.records] == ["an Event is not written (0): no"]


@pytest.mark.parametrize("may_read", [True, False])
async def test_a_deployment_is_named_with_its_uid_where_it_may_be_read(may_read: bool) -> None:
    class Reader:
        async def get(self, path: str) -> dict[str, Any]:
            assert path == "/apis/apps/v1/namespaces/ns/deployments/collector"
            if not may_read:
                raise ForbiddenError("no")
            return {"metadata": {"uid": "u1"}}

    about = {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "ns", "name": "collector"}
    found = await deployment_reference(cast("Kube", Reader()), "ns", "collector")
    assert found == about | ({"uid": "u1"} if may_read else {})


async def test_an_event_that_exists_is_counted_also_by_the_next_leader() -> None:
    fake = FakeKube()
    for seconds in (1, 2):  # a replica each
        recorder = EventRecorder(fake.kube(), clock_ns=lambda now_ns=seconds * 10**9: now_ns)
        for _ in range(2):
            recorder.record(NODE, "Warning", "Broken", "it is broken")
        for about, severity, reason, message in (
            ({**NODE, "uid": "u2"}, "Warning", "Broken", "it is broken"),
            (NODE, "Normal", "Broken", "it is broken"),
            (NODE, "Warning", "Slow", "it is broken"),
            (NODE, "Warning", "Broken", "it is broken again"),
        ):
            recorder.record(about, severity, reason, message)
        task = asyncio.create_task(recorder.run())
        recorder.record(NODE, "Normal", f"Last{seconds}", "done")
        await until(lambda last=f"Last{seconds}": any(e["reason"] == last for e in fake.objects.values()))
        task.cancel()
    found = [(e["count"], e["firstTimestamp"][-4:], e["lastTimestamp"][-4:]) for e in fake.objects.values()]
    assert found == [
        (4, ":01Z", ":02Z"),
        *[(2, ":01Z", ":02Z")] * 4,
        (1, ":01Z", ":01Z"),
        (1, ":02Z", ":02Z"),
    ]
