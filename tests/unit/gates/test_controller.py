"""The controller in memory: gangs that raise are parked and begin anew, and gangs leave degraded links."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from hyperscout_gates.control import controller, mover
from hyperscout_gates.control.controller import Gates
from hyperscout_gates.control.pods import PLACED
from hyperscout_gates.degradation.hook import HOOK
from hyperscout_gates.degradation.watch import Action, DegradationSettings
from hyperscout_gates.state import events as e
from hyperscout_gates.state.gang import GANG_LABEL, GATE, SIZE_LABEL
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_gates.state.machine import GangMachine
from hyperscout_kubernetes.client import Kube
from hyperscout_kubernetes.nodes import Nodes
from hyperscout_placer.book.placements import Placements
from hyperscout_runtime.event_log import EventLog
from hyperscout_topology.topology import Endpoint
from support.fake_kube import FakeKube, Object
from support.topologies import LEAF, on_leaf_b, two_leaves
from support.waiting import until

NODES = ["n01", "n02", "n03", "n04"]
PODS = "/api/v1/namespaces/default/pods"
OWNER = {"apiVersion": "example.com/v1", "kind": "Set", "name": "set", "uid": "u", "controller": True}


class Server(FakeKube):
    """It applies the patch that opens a gate, and the watch tells of it at once."""

    told: Callable[[Object], None]

    def paced(self, limit: Any) -> "Server":
        return self

    async def list(self, path: str, query: Mapping[str, Any] | None = None) -> tuple[list[Any], str]:
        return await super().list(path, query)

    async def write(  # type: ignore[override]
        self, method: str, path: str, body: Any = None, *, timeout_s: float = 0.0, **rest: Any
    ) -> Object:
        if path.startswith(PODS) and method == "PATCH":
            self.before(method, path)
            found = copy.deepcopy(self.objects[path])
            found["spec"] |= {"schedulingGates": [], "affinity": body["spec"]["affinity"]}
            found["metadata"]["annotations"] |= body["metadata"]["annotations"]
            self.put(path, found)
            self.told(copy.deepcopy(found))
            return found
        return await super().write(method, path, body, content=rest.get("content", ""))


class World:
    """Four nodes of one worker each, and gangs of plain pods."""

    def __init__(self, action: Action = "off") -> None:
        self.now_s = 1_800_000_000.0
        self.server = Server()
        kube = cast("Kube", self.server)
        self.nodes = Nodes(kube, "", rng=Random(1))
        self.placements = Placements(clock_ns=self.clock_ns, timer=lambda: 0.0)
        degradation = DegradationSettings(action, wait_s=60.0, moves_per_hour=1)
        settings = GateSettings(patience_s=0.0, degradation=degradation)
        self.gates = Gates(
            kube,
            self.nodes,
            "own",
            "on",
            settings,
            lambda text: None,
            self.placements,
            EventLog("gang"),
            clock_ns=self.clock_ns,
            rng=Random(1),
            timer=lambda: 0.0,  # real durations would decide how long the controller pauses
        )
        self.server.told = self.gates.pods.learn
        self.nodes.changed.subscribe(self.gates.node_changed)
        self.placements.set_topology(replace(two_leaves(), anomalies=()))
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        room = {"allocatable": {"nvidia.com/gpu": "8", "pods": "110", "cpu": "64"}}
        for name in NODES:
            self.nodes.reflector.learn(
                {"metadata": {"name": name, "uid": name, "labels": {}}, "spec": {}, "status": ready | room}
            )
        self.nodes.reflector.synced.set()
        self.gates.pods.synced.set()

    def clock_ns(self) -> int:
        return int(self.now_s * 1e9)

    def submit(self, gang: str, size: int, *, hook: str = "", owned: bool = False) -> None:
        for rank in range(size):
            name = f"{gang}-{rank}"
            metadata = {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": {GANG_LABEL: gang, SIZE_LABEL: str(size)},
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {HOOK: hook} if hook else {},
                "ownerReferences": [OWNER] if owned else [],
            }
            limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
            spec = {"schedulingGates": [{"name": GATE}], "containers": [{"name": "w", **limits}]}
            pod = self.server.put(f"{PODS}/{name}", {"metadata": metadata, "spec": spec, "status": {}})
            self.gates.pods.learn(copy.deepcopy(pod))

    def opened(self, gang: str) -> list[str]:
        """Nodes of its pods whose gates are open."""
        pods = (x for path, x in self.server.objects.items() if path.startswith(f"{PODS}/{gang}-"))
        marks = [pod["metadata"].get("annotations", {}).get(PLACED) for pod in pods]
        return sorted(json.loads(mark)["node"] for mark in marks if mark)

    def bind(self) -> None:
        """The scheduler and the kubelets accept what is open."""
        for path, pod in list(self.server.objects.items()):
            mark = pod["metadata"].get("annotations", {}).get(PLACED)
            if path.startswith(PODS) and mark and not pod["spec"].get("nodeName"):
                spec = pod["spec"] | {"nodeName": json.loads(mark)["node"]}
                status = {"phase": "Running", "podIP": "10.9.9.9"}
                bound = self.server.put(path, copy.deepcopy(pod) | {"spec": spec, "status": status})
                self.gates.pods.learn(copy.deepcopy(bound))

    def degrade(self, *nodes: str) -> None:
        """One cable of each of these nodes has errors; none of the others."""
        found = [
            on_leaf_b("ErroringLink", Endpoint(f"a{n[1:]}", n, "1"), LEAF, hypernode="leaf-a") for n in nodes
        ]
        self.placements.set_topology(replace(two_leaves(), anomalies=tuple(found)))

    def messages(self, reason: str) -> list[str]:
        events = (body for _, path, body in self.server.writes if path.endswith("/events"))
        return [body["message"] for body in events if body["reason"] == reason]

    def deleted(self) -> list[str]:
        """Names of deleted pods."""
        found = (path for method, path, _ in self.server.writes if method == "DELETE")
        return [path.rpartition("/")[2] for path in found if path.startswith(PODS)]

    def told(self) -> list[str]:
        """Events, by reason."""
        return [body["reason"] for method, path, body in self.server.writes if path.endswith("/events")]

    def held(self) -> dict[str, list[str]]:
        return {one.gang: sorted(one.placement.nodes) for one in self.placements}


@asynccontextmanager
async def running(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """The controller's services but the watch. None of them may end by itself."""
    monkeypatch.setattr(controller, "_TICK_S", 0.0)
    services = {name: run for name, run in world.gates.services.items() if name != "pod-watch"}
    tasks = [asyncio.create_task(run(), name=name) for name, run in services.items()]
    try:
        yield
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()


class Planted:
    """Makes the machine of one gang raise, at events that `where` chooses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gang: str) -> None:
        self.where: Callable[[e.Event], bool] = lambda event: True
        self.raised = 0
        handle = GangMachine.handle

        def planted(
            machine: GangMachine, events: Iterable[e.Event], now_s: float
        ) -> Collection[e.Instruction]:
            events = list(events)
            if machine.key.endswith(f"/{gang}") and any(map(self.where, events)):
                self.raised += 1
                raise ValueError("planted")
            return handle(machine, events, now_s)

        monkeypatch.setattr(GangMachine, "handle", planted)


async def test_a_gang_that_raises_is_parked_and_another_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    world, planted = World(), Planted(monkeypatch, "bad")
    async with running(world, monkeypatch):
        world.submit("bad", 2)
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2)
        (problem,) = world.gates.problems
        assert problem == "gang default/Gang/bad is parked: ValueError: planted"
        await until(lambda: "Parked" in world.told())
        assert not world.opened("bad")
        for wait_s in (5, 10, 20):  # it doubles
            raised = planted.raised
            world.now_s += wait_s - 1
            for _ in range(50):
                await asyncio.sleep(0)
            assert planted.raised == raised
            world.now_s += 1
            await until(lambda raised=raised: planted.raised == raised + 1)  # type: ignore[misc]
        planted.where = lambda event: False
        world.now_s += 40
        await until(lambda: len(world.opened("bad")) == 2)
        assert not world.gates.problems
        assert sorted(world.opened("bad") + world.opened("good")) == NODES


async def test_a_gang_for_which_the_placer_raises_is_parked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    place, raises = world.placements.place, True

    def planted(gang: str, *words: Any, **options: Any) -> Any:
        if raises and gang.endswith("/bad"):
            raise ZeroDivisionError("planted")
        return place(gang, *words, **options)

    monkeypatch.setattr(world.placements, "place", planted)
    async with running(world, monkeypatch):
        world.submit("bad", 2)
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2 and world.gates.problems)
        assert "ZeroDivisionError: planted" in world.gates.problems[0]
        raises = False
        world.now_s += 5
        await until(lambda: len(world.opened("bad")) == 2)


@pytest.mark.parametrize("event", [e.PlanStored, e.Opened])
async def test_a_gang_that_is_parked_on_its_way_keeps_its_nodes(
    event: type[e.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its plan has just been stored, or its gates are open: it is never placed twice."""
    world, planted = World(), Planted(monkeypatch, "bad")
    planted.where = lambda seen: isinstance(seen, event)
    async with running(world, monkeypatch):
        world.submit("bad", 2)
        await until(lambda: world.gates.problems)
        held = world.held()
        assert [len(nodes) for nodes in held.values()] == [2]
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2)
        planted.where = lambda seen: isinstance(seen, e.Began)
        world.now_s += 5
        await until(lambda: planted.raised > 1 and world.gates.problems)
        assert held.items() <= world.held().items(), "a try that fails releases nothing"
        planted.where = lambda seen: False
        world.now_s += 10
        await until(lambda: len(world.opened("bad")) == 2 and not world.gates.problems)
        assert sorted(world.held()) == ["default/Gang/bad", "default/Gang/good"]
        assert sorted(world.opened("bad") + world.opened("good")) == NODES
        assert world.held()["default/Gang/bad"] == world.opened("bad")


async def test_what_raises_while_the_owner_is_read_parks_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    read = controller.Owners.read

    async def planted(self: Any, pods: Iterable[Object], uid: str) -> e.OwnerRead:
        pods = list(pods)
        if any("bad" in pod["metadata"]["name"] for pod in pods):
            raise ValueError("planted")
        return await read(self, pods, uid)

    monkeypatch.setattr(controller.Owners, "read", planted)
    async with running(world, monkeypatch):
        world.submit("bad", 2)
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2 and world.gates.problems)


async def test_a_pod_that_cannot_be_read_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    seen = controller.seen

    def planted(kept: Object) -> e.Pod:
        if kept["metadata"]["name"] == "bad-0":
            raise ValueError("planted")
        return seen(kept)

    monkeypatch.setattr(controller, "seen", planted)
    async with running(world, monkeypatch):
        world.submit("bad", 1)
        world.submit("good", 2)
        await until(lambda: len(world.opened("good")) == 2 and "NoGang" in world.told())


@pytest.mark.parametrize(
    ("action", "hook", "owned", "advice"),
    [
        ("move", "none", True, ""),
        ("move", "8080/save", True, ""),
        ("advise", "none", True, "the collector only advises; there is a place with no degraded link"),
        ("move", "", True, "pod a-0 has no annotation hyperscout.io/checkpoint-hook"),
        ("move", "none", False, "no controller creates pod a-0 again"),
        ("move", "8080 save", True, "'8080 save': expected PORT/PATH, or \"none\""),
        ("move", "8081/broken", True, "the checkpoint hook fails: a-0 answers 500"),
    ],
)
async def test_a_gang_on_degraded_links_moves_once_or_is_advised(
    action: Action, hook: str, owned: bool, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Mapping[str, str], Object]] = []

    async def call(urls: Mapping[str, str], body: Object, timeout_s: float) -> list[str]:
        called.append((urls, body))
        return ["a-0 answers 500"] if ":8081/" in urls["a-0"] else []

    monkeypatch.setattr(mover, "call", call)
    world = World(action)
    async with running(world, monkeypatch):
        world.submit("a", 1, hook=hook, owned=owned)
        await until(lambda: len(world.opened("a")) == 1)
        (node,) = world.opened("a")
        world.bind()
        await until(lambda: next(iter(world.placements)).arrived == {0})
        world.degrade(node)
        await settled()
        assert not world.told().count("Degraded")
        world.now_s += 61
        if advice:
            await until(lambda: world.messages("Degraded"))
            assert advice in world.messages("Degraded")[0]
            assert f"Drain and repair: {node} (1 degraded link)" in world.messages("Degraded")[0]
            assert world.held() == {"default/Gang/a": [node]}
            assert world.deleted() == []
        else:
            await until(lambda: world.deleted() == ["a-0"])
            assert world.held() != {"default/Gang/a": [node]}
            assert len(world.messages("Moves")) == 1
        if "8080/" in hook:
            ((urls, body),) = called
            assert urls == {"a-0": "http://10.9.9.9:8080/save"}
            assert body == {"gang": "default/Gang/a", "ranks": [0], "withinSeconds": 120.0}
        world.now_s += 3600
        await settled()
        assert len(world.messages("Moves") + world.messages("Degraded")) == 1, "each is handled once"


async def test_a_recovery_in_time_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("move")
    async with running(world, monkeypatch):
        world.submit("a", 1, hook="none", owned=True)
        await until(lambda: len(world.opened("a")) == 1)
        world.bind()
        for _ in range(3):
            world.degrade(*world.opened("a"))
            await settled()
            world.now_s += 59
            await settled()
            world.degrade()
            await settled()
            world.now_s += 59
            await settled()
        assert (world.deleted(), world.messages("Degraded")) == ([], [])


async def test_only_so_many_gangs_move_within_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("move")
    async with running(world, monkeypatch):
        for name in "ab":
            world.submit(name, 1, hook="none", owned=True)
        await until(lambda: len(world.opened("a") + world.opened("b")) == 2)
        world.bind()
        await until(lambda: all(x.arrived for x in world.placements))
        world.degrade(*world.opened("a"), *world.opened("b"))
        await settled()
        world.now_s += 61
        await until(lambda: world.messages("Degraded") and world.deleted())
        await settled()
        assert len(world.deleted()) == 1
        assert "1 gang moved within the last hour, which is the limit" in world.messages("Degraded")[0]


async def settled() -> None:
    for _ in range(200):
        await asyncio.sleep(0)
