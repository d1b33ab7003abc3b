"""Every request of a gang is answered with an event, whatever the API server makes of it."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest
from hyperscout_gates.control.controller import GangRecord
from hyperscout_gates.control.pods import keep
from hyperscout_gates.control.writer import GangWriter
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang_plan import GangPlan, name_of, to_object
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_gates.state.machine import GangMachine
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.errors import (
    ForbiddenError,
    KubeError,
    NotLeaderError,
    RejectedError,
    UnreachableError,
)
from hyperscout_placer.book.placements import Placements
from hyperscout_placer.cluster.answer import Cost, Placement
from hyperscout_placer.cluster.request import Group, Request, Workers
from support.fake_kube import FakeKube, failing
from support.waiting import until

PLANS = "/api/v1/namespaces/own/configmaps"
POD = "/api/v1/namespaces/ns/pods/p"


class Server(FakeKube):
    """Its answers take no time."""

    async def write(  # type: ignore[override]
        self, method: str, path: str, body: Any = None, *, timeout_s: float = 0.0, **rest: Any
    ) -> dict[str, Any]:
        return await super().write(method, path, body, **rest)

    async def list(self, path: str, query: Mapping[str, Any] | None = None) -> tuple[list[Any], str]:
        assert query is not None
        assert "gang-plan" in query["labelSelector"]
        return await super().list(path, query)


class Desk:
    def __init__(self, labelled_by: Placements | None = None) -> None:
        self.server = Server()
        self.answers: list[e.Event] = []
        self.learned: list[Any] = []
        kube = cast("Kube", self.server)
        self.writer = GangWriter(
            kube,
            "own",
            lambda _, event: self.answers.append(event),
            self.learned.append,
            lambda: 0,
            labelled_by,
        )
        self.entry = GangRecord(GangMachine("ns/Job/a", "u", GateSettings()))

    async def write(self, *asked: e.Instruction) -> list[e.Event]:
        """What came of it."""
        self.answers.clear()
        for one in asked:
            self.writer.put(self.entry, one)
        task = asyncio.create_task(self.writer.run())
        await until(lambda: len(self.answers) >= len(asked))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return list(self.answers)


def plan(*nodes: str) -> GangPlan:
    request = Request(Group(1, (Workers(len(nodes)),)))
    return GangPlan("ns/Job/a", "u", "Job", request, Placement(nodes, None, None, Cost(1, (), 1, 0, (0,))))


NAME = name_of("ns/Job/a", "u")
POD_SEEN = e.Pod("u1", "ns", "p", version="3")
OPEN = e.Open(POD_SEEN, 0, "n1", 1, "", None)


def with_pod(desk: Desk) -> None:
    spec = {"schedulingGates": [{"name": "hyperscout.io/topology"}], "containers": []}
    found = desk.server.put(POD, {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}, "spec": spec})
    desk.entry.pods["u1"] = keep(found)


async def test_a_gate_opens_without_labels_while_no_topology_is_known() -> None:
    desk = Desk(Placements(clock_ns=lambda: 0, timer=lambda: 0.0))
    with_pod(desk)
    assert await desk.write(OPEN) == [e.Opened("u1")]
    assert "labels" not in desk.server.writes[-1][2]["metadata"]


async def test_a_plan_is_made_then_changed_then_deleted() -> None:
    desk = Desk()
    one, other = plan("n1"), plan("n2")
    assert await desk.write(e.StorePlan(one)) == [e.PlanStored(one)]
    assert await desk.write(e.StorePlan(other)) == [e.PlanStored(other)]
    assert [(method, path) for method, path, _ in desk.server.writes] == [
        ("POST", PLANS),
        ("PUT", f"{PLANS}/{NAME}"),
    ]
    assert await desk.writer.plans() == [other]
    assert await desk.write(e.DeletePlan()) == [e.PlanDeleted()]
    assert await desk.write(e.DeletePlan()) == [e.PlanDeleted()], "it is gone already"
    assert await desk.write(e.StorePlan(one)) == [e.PlanStored(one)]
    assert desk.server.writes[-1][0] == "POST"


async def test_one_that_is_there_unheard_of_is_overwritten() -> None:
    desk = Desk()
    desk.server.put(f"{PLANS}/{NAME}", to_object(plan("n1"), "own"))
    assert await desk.write(e.StorePlan(plan("n2"))) == [e.PlanStored(plan("n2"))]
    assert await desk.writer.plans() == [plan("n2")]


async def test_a_deleted_plan_is_made_anew_at_the_next_try() -> None:
    desk = Desk()
    await desk.write(e.StorePlan(plan("n1")))
    del desk.server.objects[f"{PLANS}/{NAME}"]
    (failed,) = await desk.write(e.StorePlan(plan("n2")))
    assert isinstance(failed, e.PlanNotStored)
    assert not failed.rejected
    assert await desk.write(e.StorePlan(plan("n2"))) == [e.PlanStored(plan("n2"))]


async def test_junk_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.server.put(f"{PLANS}/{NAME}", to_object(plan("n1"), "own"))
    for number in range(9):
        desk.server.put(
            f"{PLANS}/x{number}", {"metadata": {"name": f"x{number}"}, "data": {"plan.json": "["}}
        )
    assert await desk.writer.plans() == [plan("n1")]
    assert len(caplog.records) == 6, "five of them, and how many more"


@pytest.mark.parametrize(
    ("error", "rejected", "refused"),
    [
        (UnreachableError("no answer"), False, False),
        (NotLeaderError("another leads"), False, False),
        (RejectedError("not like this"), True, True),
        (ForbiddenError("an admission policy denied it"), False, True),
    ],
)
async def test_what_fails_is_answered_too(error: KubeError, rejected: bool, refused: bool) -> None:
    desk = Desk()
    with_pod(desk)

    def fails(method: str, path: str) -> None:
        if method != "GET":
            raise error

    desk.server.before = fails
    said = str(error)
    asked = (e.StorePlan(plan("n1")), e.DeletePlan(), OPEN, e.DeletePod(POD_SEEN))
    answers = await desk.write(*asked)
    assert set(map(str, answers)) == {
        str(e.PlanNotStored(said, rejected)),
        str(e.PlanNotDeleted(said)),
        str(e.NotOpened("u1", said, refused)),
        str(e.PodNotDeleted("u1", said)),
    }


async def test_what_the_patch_answered_is_learnt_unless_the_pod_has_gone() -> None:
    desk = Desk()
    with_pod(desk)
    assert await desk.write(OPEN) == [e.Opened("u1")]
    assert len(desk.learned) == 1

    def goes(method: str, path: str) -> None:
        desk.entry.pods.clear()

    desk.server.before = goes
    await desk.write(OPEN)
    assert len(desk.learned) == 1
    assert await desk.write(OPEN) == [e.NotOpened("u1", "it is gone")]


async def test_a_pod_that_is_gone_is_deleted() -> None:
    desk = Desk()
    assert await desk.write(e.DeletePod(POD_SEEN)) == [e.PodDeleted("u1")]


async def test_one_refusal_delays_no_other_write() -> None:
    desk = Desk()
    desk.server.before = failing(UnreachableError("no answer"), method="DELETE", times=1)
    answers = await desk.write(e.DeletePlan(), *[e.StorePlan(plan(f"n{i}")) for i in range(100)])
    assert sum(isinstance(answer, e.PlanStored) for answer in answers) == 100


async def test_an_exception_that_is_no_answer_of_the_server_is_an_answer_too() -> None:
    """A defect in one write must not end the writer."""
    desk = Desk()

    def planted(method: str, path: str) -> None:
        raise ZeroDivisionError("planted")

    desk.server.before = planted
    (answer,) = await desk.write(e.StorePlan(plan("n1")))
    assert answer == e.PlanNotStored("planted")
    desk.server.before = lambda method, path: None
    assert await desk.write(e.StorePlan(plan("n1"))) == [e.PlanStored(plan("n1"))]
