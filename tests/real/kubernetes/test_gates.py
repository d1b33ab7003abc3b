"""Gangs behind their gates in a real cluster: API server, kube-scheduler, Job controller, kwok's kubelets."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hyperscout_gates.state.gang_state import GateSettings
from hyperscout_kubernetes.client import Fence
from hyperscout_kubernetes.errors import NotLeaderError
from kube.api import MERGE
from kube.control_plane import ControlPlane, Options
from support.gates import (
    OWN,
    PLANS,
    PODS,
    Dying,
    Seen,
    clear,
    collectors_account,
    controller,
    gang_pod,
    make_namespace,
    pins,
    post_gang,
    post_job,
    post_replicas,
)
from support.kubernetes import Cluster
from support.real import require_real
from support.topologies import leaves
from support.waiting import TIMEOUT_S

require_real("kubernetes")

LEAVES = (("a1", "a2", "a3", "a4"), ("b1", "b2", "b3", "b4"))
TOPOLOGY = leaves(*LEAVES)
A, B = map(sorted, LEAVES)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    options = Options(scheduler="", kwok=True, controller_manager=True)
    with ControlPlane(tmp_path_factory.mktemp("gates"), options) as found:
        make_namespace(Cluster(found))
        yield found


@pytest.fixture(scope="module")
def me(plane: ControlPlane) -> Path:
    """The collector's account, with what the chart gives it and nothing else."""
    return collectors_account(Cluster(plane), admissionPolicy=True)


_DENIED = re.compile(r'^authorization_attempts_total\{result="(?!allowed).+"\} (\S+)', re.MULTILINE)


def denied(kube: Cluster) -> float:
    """How many requests the server has refused for lack of rights, of all clients."""
    return sum(map(float, _DENIED.findall(kube.api.text("GET", "/metrics"))))


@pytest.fixture
def kube(plane: ControlPlane, me: Path) -> Iterator[Cluster]:
    """Eight nodes of 8 GPUs in two leaves, without a pod, a Job or a plan."""
    found = Cluster(plane)
    clear(found)
    found.nodes([name for leaf in LEAVES for name in leaf])
    before = denied(found)
    yield found
    assert denied(found) == before, "the chart's rights are not enough"


async def test_a_gang_is_bound_on_one_leaf_and_the_next_waits_whole(kube: Cluster, me: Path) -> None:
    seen = Seen(kube)
    async with controller(me, TOPOLOGY) as ours:
        post_gang(kube, "first", 3, "1")
        nodes = await seen.until("it is bound", lambda: seen.nodes("first", 3))
        assert set(nodes) <= set(A) or set(nodes) <= set(B)
        assert sorted(pins(seen.live("first")).values()) == nodes
        ranks = [p["metadata"]["annotations"]["hyperscout.io/rank"] for p in seen.live("first")]
        assert sorted(ranks) == ["0", "1", "2"]

        # In order of ranks the nodes follow each other.
        by_rank = sorted(zip(ranks, (p["spec"]["nodeName"] for p in seen.live("first")), strict=True))
        assert [node for _, node in by_rank] == nodes

        post_gang(kube, "large", 5, "1")
        await seen.until(
            "an Event says why it waits", lambda: [x for x in seen.events("large") if "waits" in x]
        )
        post_gang(kube, "small", 2, "1")
        await seen.until("one that fits passes", lambda: seen.nodes("small", 2))
        assert seen.gated("large") == 5
        assert len(seen.plans()) == 2

        for found in seen.live("large"):
            seen.delete(found)
        seen.finish("first")
        await seen.until("it is released", lambda: len(seen.plans()) == 1)
        post_gang(kube, "next", 4, "1")
        await seen.until("the next takes its place", lambda: seen.nodes("next", 4))
        assert {held.gang for held in ours.placements} == {"default/Gang/small", "default/Gang/next"}


async def test_a_leaf_is_kept_for_the_first_that_waits_long_also_by_the_next_leader(
    kube: Cluster, me: Path
) -> None:
    """A gang runs on three nodes of each leaf, and one of four waits for a leaf."""
    seen, settings = Seen(kube), GateSettings(drain_after_s=0.5)
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    kube.api.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
    async with controller(me, TOPOLOGY, settings=settings) as ours:
        for gang in ("first", "second"):
            post_gang(kube, gang, 3, "1")
            await seen.until("it is bound", lambda gang=gang: seen.nodes(gang, 3))
        post_gang(kube, "large", 4, "1")
        await seen.until("a leaf is kept", lambda: [x for x in seen.events("large") if "Drains: " in x])
        kept = ours.gates.queue.draining.kept()
        assert kept is not None
        leaf = A if kept.hypernode == "l1" else B
        post_gang(kube, "small", 1)
        (other,) = await seen.until("a smaller one is outside", lambda: seen.nodes("small", 1))
        assert other not in leaf
        post_gang(kube, "next", 1)
        text = "kept for gang default/Gang/large"
        await seen.until("the next waits", lambda: [x for x in seen.events("next") if text in x])
        post_gang(kube, "vip", 5, "1", priorityClassName="urgent")
        await seen.until("it waits", lambda: seen.events("vip"))
        waiting = [(one.gang.rpartition("/")[2], one.priority) for one in ours.gates.queue.turns.waiting()]
        assert waiting == [("vip", 1000), ("large", 0), ("next", 0)]
    async with controller(me, TOPOLOGY, settings=settings) as ours:

        def kept_again() -> bool:
            found = ours.gates.queue.draining.kept()
            return found is not None and (found.hypernode, found.fits) == (kept.hypernode, 1)

        await seen.until("the same leaf is kept", kept_again)
        assert seen.gated("next") == 1
        seen.finish("first" if set(seen.nodes("first", 3)) <= set(leaf) else "second")
        assert await seen.until("it gets the leaf", lambda: seen.nodes("large", 4)) == leaf
        assert seen.gated("next") == 1


async def test_a_jobs_pods_are_held_together_with_what_they_demand(kube: Cluster, me: Path) -> None:
    seen = Seen(kube)
    for name in ("a1", "a2", "b1", "b2", "b3"):
        kube.label(name, disk="fast")
    terms = [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]},
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["faster"]}]},
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    async with controller(me, TOPOLOGY):
        post_job(kube, "train", 3, "leaf", affinity={"nodeAffinity": required})
        assert await seen.until("it is bound", lambda: seen.nodes("train", 3)) == ["b1", "b2", "b3"]
        for found in seen.live("train"):
            index = found["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
            assert found["metadata"]["annotations"]["hyperscout.io/rank"] == index
            affinity = found["spec"]["affinity"]["nodeAffinity"]
            kept = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            assert [t["matchExpressions"] for t in kept] == [t["matchExpressions"] for t in terms]
        pins(seen.live("train"))
        seen.finish("train")
        await seen.until("the Job ends, and its plan goes", lambda: not seen.plans())


async def test_free_capacity_that_other_pods_leave_is_used(kube: Cluster, me: Path) -> None:
    """Pods that hyperscout has nothing to do with."""
    seen = Seen(kube)
    for name in ("a1", "b1"):
        other = gang_pod(f"other-{name}", nodeName=name)
        del other["spec"]["schedulingGates"]
        kube.api.ask("POST", PODS, other)
    async with controller(me, TOPOLOGY) as ours:
        # The first look at the topology is a reason to ask again, too.
        await seen.until("it has begun", lambda: ours.gates._forest)
        post_gang(kube, "gang", 4, "1")
        await seen.until("it waits", lambda: any("waits" in x for x in seen.events("gang")))
        seen.delete(next(x for x in seen.pods("other") if x["spec"]["nodeName"] == "a1"))
        assert await seen.until("it is bound", lambda: seen.nodes("gang", 4)) == A


async def test_other_gates_stay_shut(kube: Cluster, me: Path) -> None:
    seen = Seen(kube)
    both = [{"name": "hyperscout.io/topology"}, {"name": "example.com/quota"}]
    async with controller(me, TOPOLOGY):
        post_gang(kube, "two", 2, schedulingGates=both)
        await seen.until("ours is gone", lambda: len(pins(seen.live("two"))) == 2)
        for found in seen.live("two"):
            assert found["spec"]["schedulingGates"] == [{"name": "example.com/quota"}]
            path = f"/api/v1/namespaces/default/pods/{found['metadata']['name']}"
            away = [{"$patch": "delete", "name": "example.com/quota"}]
            content = "application/strategic-merge-patch+json"
            kube.api.ask("PATCH", path, {"spec": {"schedulingGates": away}}, content=content)
        await seen.until("they run", lambda: seen.nodes("two", 2))


@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_killed_while_gates_open_the_next_one_finishes_the_same_plan(
    kube: Cluster, me: Path, writes: int
) -> None:
    """The first write stores the plan, each of the others opens a gate."""
    seen = Seen(kube)
    post_gang(kube, "gang", 3, "1")
    dying = Dying(writes)
    async with controller(me, TOPOLOGY, dying=dying):
        await asyncio.wait_for(dying.spent.wait(), TIMEOUT_S)
    before = seen.plans()
    assert len(before) == 1
    opened = pins(seen.live("gang"))
    assert len(opened) == writes - 1
    # Were it placed anew now, it would be on the other leaf.
    other = B if set(opened.values()) & set(A) or "a1" in str(before) else A
    for name in set(A + B) - set(other) - set(opened.values()):
        post_gang(kube, f"in-the-way-{name}", 1, nodeSelector={"kubernetes.io/hostname": name})
    seen_before = {x["metadata"]["uid"] for x in before}
    async with controller(me, TOPOLOGY):
        nodes = await seen.until("it is bound", lambda: seen.nodes("gang", 3))
    assert not (set(nodes) & set(A) and set(nodes) & set(B)), "half a gang on two plans"
    if opened:
        assert opened.items() <= pins(seen.live("gang")).items()
        assert seen_before & {x["metadata"]["uid"] for x in seen.plans()}, "the plan was made anew"


async def test_a_failed_nodes_pod_goes_next_to_its_gang(kube: Cluster, me: Path) -> None:
    seen = Seen(kube)
    async with controller(me, TOPOLOGY, settings=GateSettings(gather_s=0.5)):
        post_job(kube, "train", 3, "1")
        nodes = await seen.until("it is bound", lambda: seen.nodes("train", 3))
        leaf = A if nodes[0] in A else B
        spare = next(iter(set(leaf) - set(nodes)))
        uids = {p["metadata"]["uid"] for p in seen.live("train")}
        victim = next(p for p in seen.live("train") if p["spec"]["nodeName"] == nodes[1])
        kube.set_ready(nodes[1], False)
        seen.delete(victim)
        wanted = sorted({*nodes, spare} - {nodes[1]})
        await seen.until("it is whole again", lambda: seen.nodes("train", 3) == wanted)
        assert len(uids & {p["metadata"]["uid"] for p in seen.live("train")}) == 2
        await seen.until("it is said", lambda: [x for x in seen.events("train") if f"-> {spare}" in x])


async def test_pods_that_cannot_be_scheduled_are_made_again_elsewhere(kube: Cluster, me: Path) -> None:
    """Something that the placer does not see keeps the scheduler from a node: a port that is taken."""
    seen = Seen(kube)
    port = [{"containerPort": 1, "hostPort": 7777}]
    for name in A:
        taken = gang_pod(f"taken-{name}", gpus=0, nodeName=name)
        taken["spec"]["containers"][0]["ports"] = port
        del taken["spec"]["schedulingGates"]
        kube.api.ask("POST", "/api/v1/namespaces/default/pods", taken)
    settings = GateSettings(replace_after_s=1.0)
    container = gang_pod("x")["spec"]["containers"][0] | {"ports": port}
    async with controller(me, TOPOLOGY, settings=settings):
        post_replicas(kube, "train", 4, "1", containers=[container])
        assert await seen.until("it is bound", lambda: seen.nodes("train", 4)) == B
        assert [x for x in seen.events("train") if x.startswith("Replaces")]
        assert len(seen.plans()) == 1


async def test_of_two_replicas_one_opens(kube: Cluster, me: Path) -> None:
    """The other is not the leader: its fence lets nothing out."""
    seen = Seen(kube)
    async with (
        controller(me, TOPOLOGY, fence=Shut()),
        controller(me, TOPOLOGY),
    ):
        post_gang(kube, "gang", 4, "1")
        assert await seen.until("it is bound", lambda: seen.nodes("gang", 4)) in (A, B)
        assert len(seen.plans()) == 1


async def test_a_dry_run_says_where_and_writes_nothing(kube: Cluster, me: Path) -> None:
    seen = Seen(kube)
    writes = kube.writes("pods") + kube.writes("configmaps")
    async with controller(me, TOPOLOGY, "dry-run") as ours:
        post_gang(kube, "gang", 2, "1")
        await seen.until("it is said", lambda: ours.said)
        assert ours.said == ["would place default/Gang/gang: 0 on a1, 1 on a2\n"]
        assert list(ours.placements) == []
    assert seen.gated("gang") == 2
    assert seen.plans() == []
    assert kube.writes("pods") + kube.writes("configmaps") == writes + 2


async def test_junk_among_the_plans_is_passed_over(kube: Cluster, me: Path) -> None:
    seen = Seen(kube)
    labels = {"app.kubernetes.io/managed-by": "hyperscout", "app.kubernetes.io/component": "gang-plan"}
    junk: Any = {"metadata": {"name": "hyperscout-gang-x", "labels": labels}, "data": {"plan.json": "{"}}
    kube.api.ask("POST", f"/api/v1/namespaces/{OWN}/configmaps", junk)
    async with controller(me, TOPOLOGY):
        post_gang(kube, "gang", 2, "1")
        await seen.until("it is bound", lambda: seen.nodes("gang", 2))


async def test_gangs_of_a_version_with_plans_elsewhere_keep_their_nodes(kube: Cluster, me: Path) -> None:
    """An upgrade: no plan is where this version looks."""
    seen = Seen(kube)
    async with controller(me, TOPOLOGY):
        post_job(kube, "train", 3, "1")
        nodes = await seen.until("it is bound", lambda: seen.nodes("train", 3))
    before = {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in seen.live("train")}
    kube.api.ask("DELETE", PLANS, {})
    async with controller(me, TOPOLOGY):
        post_gang(kube, "next", 2, "1")  # another gang takes no node of it
        assert not set(await seen.until("the next", lambda: seen.nodes("next", 2))) & set(nodes)
        gone = seen.live("train")[0]
        seen.delete(gone)  # the Job makes it again
        again = await seen.until("it is bound again", lambda: seen.nodes("train", 3))
        after = {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in seen.live("train")}
        del before[gone["metadata"]["uid"]]
        assert before.items() <= after.items(), "a pod that ran is elsewhere"
        assert set(again) <= set(A if set(nodes) <= set(A) else B)
        assert [x for x in seen.events("train") if x.startswith("PlanLost")]
        assert len(seen.plans()) == 2


# --- the admission policy -----------------------------------------------------------------------------------

GANG = {"hyperscout.io/gang": "g", "hyperscout.io/gang-size": "1"}
MODE = {"hyperscout.io/mode": "soft"}
OURS = [{"name": "hyperscout.io/topology"}]
OTHER = [{"name": "example.com/quota"}]
POLICY: dict[str, tuple[dict[str, Any], dict[str, Any], list[Any] | None]] = {
    "a label": ({"labels": GANG}, {}, OURS),
    "an annotation": ({"annotations": MODE}, {}, OURS),
    "the gate is there": ({"labels": GANG}, {"schedulingGates": OURS}, OURS),
    "another gate is there": ({"labels": GANG}, {"schedulingGates": OTHER}, [*OTHER, *OURS]),
    "its node is chosen": ({"labels": GANG}, {"nodeName": "a1"}, None),
    "neither": ({"labels": {"app": "web"}}, {}, None),
}


def _plain(name: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    body = gang_pod(name)
    del body["spec"]["schedulingGates"]
    return {"metadata": {**metadata, "name": name}, "spec": {**body["spec"], **spec}}


async def test_the_policy_adds_the_gate_where_it_is_asked_for(kube: Cluster, me: Path) -> None:
    labels = {"hyperscout.io/gates": "enabled"}
    spaces = "/api/v1/namespaces"
    kube.api.ask("POST", spaces, {"metadata": {"name": "gangs", "labels": labels}})
    seen = Seen(kube)

    def is_in_force() -> bool:
        probe = _plain("probe", {"labels": GANG}, {})
        made = kube.api.ask("POST", f"{spaces}/gangs/pods?dryRun=All", probe)
        return made["spec"].get("schedulingGates") == OURS

    await seen.until("the policy is in force", is_in_force)
    for number, (metadata, spec, expected) in enumerate(POLICY.values()):
        body = _plain(f"p{number}", metadata, spec)
        made = kube.api.ask("POST", f"{spaces}/gangs/pods?dryRun=All", body)
        found = made["spec"].get("schedulingGates")
        key = lambda gate: gate["name"]  # noqa: E731
        assert found == expected or sorted(found, key=key) == sorted(expected or (), key=key), metadata
        made = kube.api.ask("POST", f"{spaces}/default/pods?dryRun=All", body)
        assert made["spec"].get("schedulingGates") == spec.get("schedulingGates"), (
            "no client asked for it there"
        )


async def test_pods_that_the_policy_gated_are_placed(kube: Cluster, me: Path) -> None:
    """The template says nothing of a gate."""
    label = {"metadata": {"labels": {"hyperscout.io/gates": "enabled"}}}
    kube.api.ask("PATCH", "/api/v1/namespaces/default", label, content=MERGE)
    seen = Seen(kube)
    try:
        async with controller(me, TOPOLOGY):
            post_job(kube, "train", 3, "1", annotations=MODE, schedulingGates=None)
            nodes = await seen.until("it is bound", lambda: seen.nodes("train", 3))
            assert set(nodes) <= set(A) or set(nodes) <= set(B)
            assert len(pins(seen.live("train"))) == 3
    finally:
        label["metadata"]["labels"]["hyperscout.io/gates"] = "off"
        kube.api.ask("PATCH", "/api/v1/namespaces/default", label, content=MERGE)


class Shut(Fence):
    """Of one that does not lead."""

    def remaining_s(self) -> float:
        raise NotLeaderError("another replica leads")
