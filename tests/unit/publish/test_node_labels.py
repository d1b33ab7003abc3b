"""The node label publisher over an API server in memory: few writes, many nodes, every kind of failure."""

import pytest
from hyperscout_kubernetes.errors import (
    ForbiddenError,
    KubeError,
    NotFoundError,
    NotLeaderError,
    RejectedError,
    UnreachableError,
)
from hyperscout_kubernetes.nodes import LABELS_SET
from hyperscout_publish.hypernodes.overlap import OverlapPolicy
from hyperscout_publish.hypernodes.wanted import NOTHING_HELD, Held
from hyperscout_publish.nodes.label_keys import KeyTemplate, key_templates
from hyperscout_publish.nodes.node_labels import NodeLabelsPublisher
from hyperscout_publish.nodes.node_writes import Mode, nodes_known
from hyperscout_publish.publisher.base import PublishError
from hyperscout_topology.topology import Topology
from support.examples import slow_after
from support.fake_kube import FakeKube, failing
from support.topologies import leaves, pods, two_leaves

LEAF, CORE = "hyperscout.io/leaf", "hyperscout.io/core"


@pytest.fixture
def fake() -> FakeKube:
    fake = FakeKube()
    for name in ("n01", "n02", "n03", "n04"):
        fake.add_node(name, {"mine": name})
    return fake


async def test_labels_are_written_once_in_one_patch_a_node(fake: FakeKube) -> None:
    publisher = NodeLabelsPublisher(fake.kube(), fake.nodes(), "on", print)
    await publisher.publish(two_leaves())
    assert fake.labels("n03") == {"mine": "n03", LEAF: "leaf-b", CORE: "core"}
    assert [path for _, path, _ in fake.writes] == [f"/api/v1/nodes/n0{i}" for i in (1, 2, 3, 4)]
    await publisher.publish(two_leaves())
    assert len(fake.writes) == 4, "what the answers told is known: a steady state writes nothing"


async def test_what_another_client_changed_is_put_right_for_that_node_alone(fake: FakeKube) -> None:
    nodes = fake.nodes()
    publisher = NodeLabelsPublisher(fake.kube(), nodes, "on", print)
    topology = two_leaves()
    await publisher.publish(topology)
    await fake.write("PATCH", "/api/v1/nodes/n02", {"metadata": {"labels": {LEAF: "x", "mine": "other"}}})
    fake.follow(nodes)
    fake.writes.clear()
    await publisher.publish(topology)
    assert fake.writes == [("PATCH", "/api/v1/nodes/n02", {"metadata": {"labels": {LEAF: "leaf-a"}}})]
    assert fake.labels("n02")["mine"] == "other"


async def test_a_node_that_comes_later_gets_its_labels_and_one_without_a_domain_loses_them(
    fake: FakeKube,
) -> None:
    nodes = fake.nodes()
    publisher = NodeLabelsPublisher(fake.kube(), nodes, "on", print)
    topology = leaves(("n01", "n02"), ("n03", "n09"))
    fake.add_node("gone", {LEAF: "l7"})
    fake.follow(nodes)
    await publisher.publish(topology)
    assert fake.labels("n04") == {"mine": "n04"}
    assert fake.labels("gone") == {}
    fake.add_node("n09")
    fake.follow(nodes)
    await publisher.publish(topology)
    assert fake.labels("n09") == {LEAF: "l2", CORE: "core"}


@pytest.mark.parametrize(
    ("mode", "dry_run", "written"),
    [
        ("on", False, {"short", "long"}),
        ("off", False, {"long"}),
        ("dry-run", False, {"long"}),
        ("on", True, set()),
        ("off", True, set()),
    ],
)
async def test_modes(mode: Mode, dry_run: bool, written: set[str]) -> None:
    names = {"short": "n1", "long": "n" * 64}
    fake = FakeKube()
    for name in names.values():
        fake.add_node(name)
    said: list[str] = []
    publisher = NodeLabelsPublisher(fake.kube(), fake.nodes(), mode, said.append, dry_run=dry_run)
    topology = leaves(tuple(names.values()))
    await publisher.publish(topology)
    await publisher.publish(topology)
    assert {which for which, name in names.items() if fake.labels(name)} == written
    change = "hyperscout.io/leaf: l1 (new), hyperscout.io/core: core (new)"
    shown = {"on": names.values(), "off": [names["long"]]}[mode] if dry_run else [names["short"]]
    if dry_run or mode == "dry-run":
        lines = "".join(f"{name}: {change}\n" for name in shown)
        assert said == [f"would change labels of nodes: {len(shown)}\n{lines}"]
    else:
        assert said == []


async def test_a_dry_run_is_bounded() -> None:
    fake = FakeKube()
    for i in range(50):
        fake.add_node(f"n{i:04}")
    said: list[str] = []
    await NodeLabelsPublisher(fake.kube(), fake.nodes(), "dry-run", said.append).publish(pods(5, nodes=10))
    assert len(said[0].splitlines()) == 22
    assert said[0].endswith("... and 30 more\n")


@pytest.mark.parametrize(
    ("error", "writes_tried"),
    [
        (RejectedError("422 is not valid"), 4),
        (UnreachableError("no answer"), 1),
        (ForbiddenError("403: may not patch nodes"), 1),
        (NotLeaderError("another replica leads"), 1),
    ],
)
async def test_a_refused_node_holds_up_no_other_and_no_answer_stops_at_once(
    fake: FakeKube, error: KubeError, writes_tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperscout_publish.nodes.node_writes._AT_ONCE", 1)
    tried: list[str] = []

    def before(method: str, path: str) -> None:
        if method == "PATCH":
            tried.append(path)
            if path.endswith("n01"):
                raise error

    fake.before = before
    publisher = NodeLabelsPublisher(fake.kube(), fake.nodes(), "on", print)
    with pytest.raises(PublishError, match=str(error)) as caught:
        await publisher.publish(two_leaves())
    assert caught.value.retry
    assert len(tried) == writes_tried
    fake.before = lambda method, path: None
    await publisher.publish(two_leaves())
    assert all(fake.labels(name)[CORE] == "core" for name in ("n01", "n02", "n03", "n04"))


async def test_a_node_that_is_gone_meanwhile_is_no_trouble(fake: FakeKube) -> None:
    fake.before = failing(NotFoundError("no such node"), times=1)
    await NodeLabelsPublisher(fake.kube(), fake.nodes(), "on", print).publish(two_leaves())
    assert len(fake.writes) == 3


async def test_nothing_is_written_before_the_nodes_are_known(
    fake: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = fake.nodes()
    nodes.reflector.synced.clear()
    nodes.reflector.problem = "GET /api/v1/nodes: connection refused"
    with pytest.raises(PublishError, match=r"the cluster's nodes are not known: .*refused"):
        await nodes_known(nodes, 0.0)
    monkeypatch.setattr("hyperscout_publish.nodes.node_writes._FIRST_LIST_S", 0.0)
    with pytest.raises(PublishError):
        await NodeLabelsPublisher(fake.kube(), nodes, "on", print).publish(two_leaves())
    assert fake.writes == []


@pytest.mark.parametrize("leaves", slow_after(1, [1, 25]))
async def test_thousands_of_nodes_are_several_at_a_time(leaves: int) -> None:
    topology = pods(*[leaves] * 10, nodes=40)
    fake = FakeKube()
    for h in topology.hypernodes:
        if not h.children:
            for node in h.nodes:
                fake.add_node(node)
    nodes = fake.nodes()
    publisher = NodeLabelsPublisher(fake.kube(), nodes, "on", print)
    await publisher.publish(topology)
    assert len(fake.writes) == 400 * leaves
    await publisher.publish(topology)
    assert len(fake.writes) == 400 * leaves


@pytest.mark.parametrize(
    ("overlap", "after"),
    [("keep", {LEAF: "leaf-b", CORE: "core"}), ("yield", {})],
)
async def test_labels_follow_the_hypernodes_that_are_held_back(
    fake: FakeKube, overlap: OverlapPolicy, after: dict[str, str]
) -> None:
    held = [Held(frozenset({"leaf-b", "core"}), frozenset({"n03"}))]

    async def held_back(topology: Topology) -> Held:
        return held[0]

    nodes = fake.nodes()
    publisher = NodeLabelsPublisher(fake.kube(), nodes, "on", print, held=held_back, overlap=overlap)
    topology = two_leaves()
    await publisher.publish(topology)
    assert fake.labels("n01") == {"mine": "n01", LEAF: "leaf-a"}
    assert fake.labels("n03") == {"mine": "n03"}
    before, held[0] = held[0], NOTHING_HELD
    await publisher.publish(topology)
    assert fake.labels("n03") == {"mine": "n03", LEAF: "leaf-b", CORE: "core"}
    held[0] = before
    await publisher.publish(topology)
    assert fake.labels("n03") == {"mine": "n03", **after}


async def test_an_empty_hierarchy_takes_labels_away(fake: FakeKube) -> None:
    publisher = NodeLabelsPublisher(fake.kube(), fake.nodes(), "on", print)
    await publisher.publish(two_leaves())
    await publisher.publish(Topology(9))
    assert fake.labels("n01") == {"mine": "n01"}


RACK, TOP = "example.com/rack", "example.com/tier-1"
TEMPLATES = key_templates([f"{RACK}=leaf", "example.com/tier-{fabric_tier}"])
BOTH = {RACK: "leaf-a", "example.com/tier-0": "leaf-a", TOP: "core"}
OWN = {LEAF: "leaf-a", CORE: "core"}


async def test_other_keys_are_in_the_same_patch(fake: FakeKube) -> None:
    publisher = NodeLabelsPublisher(fake.kube(), fake.nodes(), "on", print, templates=TEMPLATES)
    await publisher.publish(two_leaves())
    record = {LABELS_SET: f"{RACK}=leaf-a,example.com/tier-0=leaf-a,{TOP}=core"}
    assert fake.writes[0] == (
        "PATCH",
        "/api/v1/nodes/n01",
        {"metadata": {"labels": OWN | BOTH, "annotations": record}},
    )
    await publisher.publish(two_leaves())
    assert len(fake.writes) == 4
    assert publisher.notice is None


async def test_labels_of_other_owners_stay_and_are_reported(fake: FakeKube) -> None:
    fake.add_node("n01", {RACK: "row-7"})
    publisher = NodeLabelsPublisher(fake.kube(), fake.nodes(), "on", print, templates=TEMPLATES)
    await publisher.publish(two_leaves())
    assert fake.labels("n01") == OWN | BOTH | {RACK: "row-7"}
    assert publisher.notice is not None
    assert f"{RACK} on 1 node" in publisher.notice
    nodes = fake.nodes()
    await NodeLabelsPublisher(fake.kube(), nodes, "off", print, templates=TEMPLATES).publish(two_leaves())
    assert fake.labels("n01") == OWN | {RACK: "row-7"}


@pytest.mark.parametrize(("mode", "templates"), [("on", ()), ("off", TEMPLATES), ("off", ())])
async def test_switched_off_the_labels_go_and_those_of_hyperscout_stay(
    fake: FakeKube, mode: Mode, templates: tuple[KeyTemplate, ...]
) -> None:
    nodes = fake.nodes()
    await NodeLabelsPublisher(fake.kube(), nodes, "on", print, templates=TEMPLATES).publish(two_leaves())
    fake.writes.clear()
    said: list[str] = []
    dry = NodeLabelsPublisher(fake.kube(), nodes, mode, said.append, templates=templates, dry_run=True)
    await dry.publish(two_leaves())
    assert fake.writes == []
    assert f"n01: {RACK}: leaf-a (removed), " in said[0]
    publisher = NodeLabelsPublisher(fake.kube(), nodes, mode, print, templates=templates)
    await publisher.publish(two_leaves())
    assert fake.labels("n01") == OWN | {"mine": "n01"}
    assert fake.annotations("n01") == {}
    await publisher.publish(two_leaves())
    assert len(fake.writes) == 4


async def test_a_dry_run_shows_other_keys_and_leaves_them(fake: FakeKube) -> None:
    nodes = fake.nodes()
    await NodeLabelsPublisher(fake.kube(), nodes, "on", print, templates=TEMPLATES[:1]).publish(two_leaves())
    fake.writes.clear()
    said: list[str] = []
    publisher = NodeLabelsPublisher(fake.kube(), nodes, "dry-run", said.append, templates=TEMPLATES[1:])
    await publisher.publish(two_leaves())
    assert fake.writes == []
    assert f"n01: {RACK}: leaf-a (removed), example.com/tier-0: leaf-a (new), {TOP}: core (new)\n" in said[0]


@pytest.mark.parametrize(("overlap", "far"), [("keep", {CORE: "core", TOP: "core"}), ("yield", {})])
async def test_a_far_domain_that_is_held_back_takes_no_near_label_away(
    fake: FakeKube, overlap: OverlapPolicy, far: dict[str, str]
) -> None:
    held = [NOTHING_HELD]

    async def held_back(topology: Topology) -> Held:
        return held[0]

    publisher = NodeLabelsPublisher(
        fake.kube(), fake.nodes(), "on", print, templates=TEMPLATES, held=held_back, overlap=overlap
    )
    topology = two_leaves()
    await publisher.publish(topology)
    held[0] = Held(frozenset({"core"}))
    await publisher.publish(topology)
    near = {LEAF: "leaf-a", RACK: "leaf-a", "example.com/tier-0": "leaf-a"}
    assert fake.labels("n01") == {"mine": "n01"} | near | far
