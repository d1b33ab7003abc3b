"""What the HyperNode publisher does when the world changes under its hands, or does not do as it is told.

The publisher at work on a real API server is tested elsewhere; here each moment is chosen.
"""

import asyncio
import contextlib
import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hyperscout_kubernetes.client import APPLY
from hyperscout_kubernetes.errors import (
    ConflictError,
    ForbiddenError,
    KubeError,
    NotFoundError,
    RejectedError,
)
from hyperscout_publish.hypernodes import kubernetes
from hyperscout_publish.hypernodes.kubernetes import KubernetesPublisher
from hyperscout_publish.hypernodes.objects import COLLECTION, path_of
from hyperscout_publish.hypernodes.overlap import NO_OVERLAPS, Overlaps
from hyperscout_publish.hypernodes.wanted import NOTHING_HELD, Held
from hyperscout_publish.publisher.base import PublishError
from hyperscout_topology.topology import Measured, Topology
from support.fake_kube import FakeKube, Object, failing, merge
from support.topologies import leaves, measured, two_leaves
from support.waiting import until


class ApplyKube(FakeKube):
    """Server-side apply by a manager that owns all fields, finalizers, and an admission webhook."""

    def __init__(self) -> None:
        super().__init__()
        self.admit: Callable[[Object], None] = lambda found: None

    async def write(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "",
        query: Mapping[str, Any] | None = None,
    ) -> Object:
        if content == APPLY:
            return await self._apply(path, copy.deepcopy(body))
        found = self.objects.get(path)
        if method == "DELETE" and found is not None and found["metadata"].get("finalizers"):
            self.before(method, path)
            self.writes.append((method, path, body))
            if "deletionTimestamp" not in found["metadata"]:
                found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self.put(path, found)
            return copy.deepcopy(found)
        return await super().write(method, path, body, content=content, query=query)

    async def _apply(self, path: str, body: Object) -> Object:
        self.before("PATCH", path)
        self.writes.append(("PATCH", path, body))
        of, status, _ = path.partition("/status")
        found = self.objects.get(of)
        for key in ("uid", "resourceVersion"):
            wanted = body["metadata"].pop(key, None)
            if wanted is not None and (found is None or found["metadata"][key] != wanted):
                raise ConflictError(f"PATCH {path}: the object has been modified")
        new = merge(found or {}, {"metadata": body["metadata"]} if status else body)
        if not status and found is not None:  # what was applied before and is left out now goes
            new["metadata"]["annotations"] = body["metadata"].get("annotations", {})
        if status:
            new["status"] = body["status"]
        else:
            new["spec"] = body["spec"]
        self.admit(new)
        return copy.deepcopy(found if new == found else self.put(of, new)) or {}

    def hypernodes(self) -> dict[str, Object]:
        return {p.rpartition("/")[2]: x for p, x in self.objects.items() if p.startswith(COLLECTION)}


def publisher(fake: ApplyKube, **options: Any) -> KubernetesPublisher:
    """As its watch has it now."""

    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(0)

    made = KubernetesPublisher(
        fake.kube(),
        fake.nodes(),
        rng=Random(1),
        clock_ns=lambda: 1,
        timer=lambda: 1.0,
        sleep=sleep,
        **options,
    )
    follow(made, fake)
    made.hypernodes.synced.set()
    return made


def follow(made: KubernetesPublisher, fake: ApplyKube) -> None:
    """Let the watch catch up."""
    there = fake.hypernodes()
    for found in made.hypernodes:
        if found["metadata"]["name"] not in there:
            made.hypernodes.forget(found["metadata"]["name"])
    for found in there.values():
        made.hypernodes.learn(copy.deepcopy(found))


def said(made: KubernetesPublisher) -> list[str]:
    return [event["reason"] for event in made.events._waiting]


def stranger(name: str, member: str = "elsewhere", kind: str = "Node") -> Object:
    spec = {"tier": 3, "members": [{"type": kind, "selector": {"exactMatch": {"name": member}}}]}
    return {"metadata": {"name": name, "labels": {"whose": "mine"}}, "spec": spec}


@pytest.mark.parametrize("what", ["spec", "status", "all"])
async def test_what_becomes_a_stranger_s_between_plan_and_write_is_not_touched(what: str) -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(two_leaves())
    for name in ("leaf-a", "leaf-b"):
        fake.objects[path_of(name)].pop(what, None)
        fake.put(path_of(name), fake.objects[path_of(name)])
    follow(made, fake)
    theirs: list[Object] = []

    def before(method: str, path: str) -> None:
        """While one is written, the other goes, a stranger's comes, and the watch tells."""
        if not theirs and path.startswith(path_of("leaf-a")):
            theirs.append(copy.deepcopy(fake.put(path_of("leaf-b"), stranger("leaf-b"))))
            follow(made, fake)

    fake.before = before
    with contextlib.suppress(PublishError):
        await made.publish(two_leaves() if what != "all" else Topology(8))
    assert fake.hypernodes()["leaf-b"] == theirs[0]


async def test_what_a_finalizer_keeps_is_there_still_for_its_children() -> None:
    """A reader may crash on a child that goes before its parent has."""
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(two_leaves())
    fake.objects[path_of("core")]["metadata"]["finalizers"] = ["example.com/slow"]
    fake.put(path_of("core"), fake.objects[path_of("core")])
    follow(made, fake)
    fake.writes.clear()
    for _ in range(2):
        with pytest.raises(PublishError, match=r"core: .* finalizer"):
            await made.publish(Topology(8))
        follow(made, fake)
    assert fake.hypernodes().keys() == {"core", "leaf-a", "leaf-b"}
    assert [method for method, _, _ in fake.writes] == ["DELETE"]
    del fake.objects[path_of("core")]
    follow(made, fake)
    await made.publish(Topology(8))
    assert fake.hypernodes() == {}


async def test_one_that_is_refused_for_ever_holds_up_no_other() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(two_leaves())
    fake.objects[path_of("leaf-b")]["spec"]["members"] = []
    fake.put(path_of("leaf-b"), fake.objects[path_of("leaf-b")])
    old = copy.deepcopy(fake.objects[path_of("leaf-a")])
    old["metadata"] |= {"name": "old", "uid": "old"}
    old["spec"]["members"] = [{"type": "Node", "selector": {"exactMatch": {"name": "n99"}}}]
    fake.put(path_of("old"), old)
    follow(made, fake)

    def admit(found: Object) -> None:
        if found["metadata"]["name"] == "leaf-b":
            raise RejectedError("admission webhook says no")

    fake.admit = admit
    with pytest.raises(PublishError, match="leaf-b: admission webhook says no"):
        await made.publish(two_leaves())
    assert "old" not in fake.hypernodes()


async def test_a_hypernode_that_was_never_written_causes_no_reverted_event() -> None:
    """A parent that waits for a child which is refused."""
    fake = ApplyKube()
    made = publisher(fake)

    def admit(found: Object) -> None:
        if found["metadata"]["name"] == "leaf-b":
            raise RejectedError("admission webhook says no")

    fake.admit = admit
    for _ in range(5):
        with pytest.raises(PublishError, match="leaf-b: admission webhook says no"):
            await made.publish(two_leaves())
    fake.admit = lambda found: None
    await made.publish(two_leaves())
    assert fake.hypernodes().keys() == {"core", "leaf-a", "leaf-b"}
    assert "Reverted" not in said(made)


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("PATCH /x: HTTP status 404"),
        ForbiddenError("create not allowed while custom resource definition is terminating"),
    ],
    ids=["gone", "terminating"],
)
async def test_a_deleted_crd_is_no_edit_of_another_client(error: KubeError) -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(two_leaves())
    for name in ("leaf-b", "core", "leaf-a"):
        del fake.objects[path_of(name)]
        follow(made, fake)
        fake.before = failing(error)
        with pytest.raises(
            PublishError, match=r"^the API server takes no HyperNodes; is the CRD installed\?"
        ):
            await made.publish(two_leaves())
    fake.before = lambda method, path: None
    await made.publish(two_leaves())
    assert fake.hypernodes().keys() == {"core", "leaf-a", "leaf-b"}
    assert "Reverted" not in said(made)


async def test_a_correction_is_reported_when_it_is_written() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(two_leaves())
    del fake.objects[path_of("leaf-b")]
    follow(made, fake)
    fake.before = failing(ForbiddenError("no right to patch"))
    for _ in range(5):
        with pytest.raises(PublishError, match="leaf-b: no right to patch"):
            await made.publish(two_leaves())
        assert "Reverted" not in said(made)
    fake.before = lambda method, path: None
    await made.publish(two_leaves())
    assert said(made).count("Reverted") == 1


async def test_what_the_server_changes_each_time_is_not_written_for_ever() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    writes = 0

    def admit(found: Object) -> None:
        nonlocal writes
        writes += 1
        assert writes < 100, "for ever"
        found["spec"]["tierName"] = f"theirs-{writes}"

    fake.admit = admit
    with pytest.raises(PublishError, match="repeated writes did not persist"):
        await made.publish(two_leaves())


async def test_selectors_of_strangers_do_not_stop_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is renewed by the same loop."""
    looked = threading.Event()
    went_on = threading.Event()

    def slowly(*_: object) -> Overlaps:
        looked.set()
        assert went_on.wait(10)
        return NO_OVERLAPS

    monkeypatch.setattr(kubernetes, "overlaps", slowly)
    made = publisher(ApplyKube())
    work = asyncio.create_task(made.publish(two_leaves()))
    await until(looked.is_set)
    went_on.set()
    await work


async def test_another_owner_s_hypernode_removes_nothing_also_after_a_restart() -> None:
    fake = ApplyKube()
    await publisher(fake).publish(two_leaves())
    fake.put(path_of("theirs"), stranger("theirs", "n03"))
    before = copy.deepcopy(fake.objects)
    fake.writes.clear()
    for _ in range(2):
        made = publisher(fake)
        await made.publish(two_leaves())
        await made.publish(two_leaves())
        assert (fake.objects, fake.writes) == (before, [])
        # The condition of leaf-b says it too; the generations bring that one.
        events = [(e["involvedObject"]["name"], e["reason"]) for e in made.events._waiting]
        assert events == [("theirs", "Overlap")]


async def test_a_renamed_domain_comes_back_after_a_failed_write() -> None:
    """Between the write that removes its nodes from the old name and that of the new one they are nowhere."""
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(two_leaves())
    fake.put(path_of("theirs"), stranger("theirs", "n03"))
    follow(made, fake)
    old = two_leaves()
    renamed = replace(
        old,
        hypernodes=tuple(
            replace(
                h,
                name=h.name.replace("leaf-b", "leaf-x"),
                children=tuple(c.replace("leaf-b", "leaf-x") for c in h.children),
            )
            for h in old.hypernodes
        ),
    )

    def refuse(method: str, path: str) -> None:
        if "leaf-x" in path:
            raise KubeError("status 500: try again")

    fake.before = refuse
    with pytest.raises(PublishError):
        await made.publish(renamed)
    follow(made, fake)
    assert "leaf-x" not in fake.hypernodes()
    fake.before = lambda method, path: None
    for _ in range(3):
        await made.publish(renamed)
        follow(made, fake)
    assert {"leaf-x"} <= fake.hypernodes().keys()
    assert "leaf-b" not in fake.hypernodes()
    assert [m["selector"]["exactMatch"]["name"] for m in fake.hypernodes()["leaf-x"]["spec"]["members"]] == [
        "n03",
        "n04",
    ]


async def test_a_domain_that_is_not_published_waits_and_its_published_parent_stays() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(leaves(("n01", "n02")))
    fake.put(path_of("theirs"), stranger("theirs", "n03"))
    follow(made, fake)
    grown = leaves(("n01", "n02", "n05"), ("n03", "n04"))
    await made.publish(grown)
    assert fake.hypernodes().keys() == {"core", "l1", "theirs"}
    assert [e["involvedObject"]["name"] for e in made.events._waiting] == ["l2", "theirs"]
    core = fake.hypernodes()["core"]
    assert core["metadata"]["annotations"] == {"hyperscout.io/nodes": "3"}
    assert [m["selector"]["exactMatch"]["name"] for m in core["spec"]["members"]] == ["l1"]
    del fake.objects[path_of("theirs")]
    follow(made, fake)
    await made.publish(grown)
    assert fake.hypernodes().keys() == {"core", "l1", "l2"}
    assert fake.hypernodes()["core"]["metadata"]["annotations"] == {"hyperscout.io/nodes": "5"}


async def test_yield_removes_what_another_owner_s_hypernode_contains() -> None:
    fake = ApplyKube()
    made = publisher(fake, overlap="yield")
    await made.publish(two_leaves())
    fake.put(path_of("theirs"), stranger("theirs", "n03"))
    follow(made, fake)
    await made.publish(two_leaves())
    assert fake.hypernodes().keys() == {"leaf-a", "theirs"}


async def test_a_member_of_another_owner_s_hypernode_leaves_its_parent_once() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(two_leaves())
    fake.put(path_of("theirs"), stranger("theirs", "leaf-b", "HyperNode"))
    follow(made, fake)
    fake.writes.clear()
    for _ in range(2):
        await made.publish(two_leaves())
    assert fake.hypernodes().keys() == {"core", "leaf-a", "leaf-b", "theirs"}
    ((_, path, body),) = fake.writes
    assert path == path_of("core")
    assert [m["selector"]["exactMatch"]["name"] for m in body["spec"]["members"]] == ["leaf-a"]


async def test_each_change_of_what_may_be_held_back_is_reported() -> None:
    fake = ApplyKube()
    heard: list[str] = []
    made = publisher(fake, foreign=lambda: heard.append("foreign"))
    await made.publish(two_leaves())
    assert heard == [], "there is no HyperNode of another owner"
    assert await made.held(two_leaves()) == NOTHING_HELD
    fake.put(path_of("theirs"), stranger("theirs", "n09"))
    follow(made, fake)
    assert len(heard) == 1
    later = leaves(("n01", "n02"), ("n09",))
    assert await made.held(later) == Held(frozenset({"l2"}), frozenset({"n09"}))
    await made.publish(later)
    assert len(heard) > 1, "members of this collector's HyperNodes decide what is published"
    heard.clear()
    await made.publish(later)
    assert heard == []


async def test_without_the_crd_nothing_is_held_back() -> None:
    made = publisher(ApplyKube())
    made.hypernodes.synced.clear()
    made.hypernodes.is_unknown = True
    assert await made.held(two_leaves()) == NOTHING_HELD


async def test_a_condition_that_came_meanwhile_is_merged_and_not_lost() -> None:
    """The status was written by another client after the watch told: refused, looked at, merged anew."""
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(two_leaves())
    follow(made, fake)
    at = path_of("leaf-b")
    theirs = {"type": "Checked", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "x"}
    fake.objects[at]["status"]["conditions"] = [theirs]  # ours are gone with it
    fake.put(at, fake.objects[at])
    before = copy.deepcopy(made.hypernodes.get("leaf-b"))
    assert before is not None
    before["status"]["conditions"] = []  # what the watch has told: older, and without ours too
    made.hypernodes.forget("leaf-b")
    made.hypernodes.learn(before)
    await made.publish(two_leaves())
    found = {c["type"] for c in fake.hypernodes()["leaf-b"]["status"]["conditions"]}
    assert found == {"Checked", "Ready", "Degraded", "Consistent"}


def with_latency(median: float | None) -> Topology:
    topology = measured()
    figure = None if median is None else Measured(median, median, 12, 7)
    leaf, *others = topology.hypernodes
    return replace(topology, hypernodes=(replace(leaf, latency_us=figure), *others))


def latency_of(fake: ApplyKube) -> str | None:
    return fake.hypernodes()["leaf-a"]["metadata"]["annotations"].get("hyperscout.io/latency-us")


async def test_measured_figures_are_written_when_they_moved_and_left_alone_else() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(with_latency(10.0))
    assert latency_of(fake) == "10"
    before = len(fake.writes)
    for step in range(20):
        await made.publish(with_latency(10.0 + step / 10))
    again = publisher(fake)  # it remembers nothing but what is there
    await again.publish(with_latency(8.1))
    assert len(fake.writes) == before
    assert latency_of(fake) == "10"
    await again.publish(with_latency(12.6))
    assert (latency_of(fake), len(fake.writes)) == ("13", before + 1)
    await again.publish(with_latency(10.8))
    assert (latency_of(fake), len(fake.writes)) == ("13", before + 1)
    assert "Reverted" not in [*said(made), *said(again)]


async def test_a_figure_that_is_no_more_goes_from_the_cluster() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(with_latency(10.0))
    await made.publish(with_latency(None))
    assert latency_of(fake) is None
    before = len(fake.writes)
    await made.publish(with_latency(None))
    assert len(fake.writes) == before


async def test_a_figure_that_another_client_edits_is_put_right_and_said() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(with_latency(10.0))
    fake.hypernodes()["leaf-a"]["metadata"]["annotations"]["hyperscout.io/latency-us"] = "1"
    fake.put(path_of("leaf-a"), fake.hypernodes()["leaf-a"])
    follow(made, fake)
    await made.publish(with_latency(10.0))
    assert latency_of(fake) == "10"
    assert "Reverted" in said(made)


async def test_an_edit_is_known_as_one_although_figures_breathe() -> None:
    fake = ApplyKube()
    made = publisher(fake)
    await made.publish(with_latency(10.0))
    await made.publish(with_latency(11.4))
    fake.hypernodes()["leaf-a"]["spec"]["tier"] = 3
    fake.put(path_of("leaf-a"), fake.hypernodes()["leaf-a"])
    follow(made, fake)
    await made.publish(with_latency(11.4))
    assert "Reverted" in said(made)
    assert latency_of(fake) == "10"
