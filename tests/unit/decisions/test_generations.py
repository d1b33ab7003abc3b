"""Generations by script: what is offered at which second, and what is then published."""

from dataclasses import replace

import pytest
from hyperscout_collector.decisions.publication.generations import (
    Decision,
    GenerationNotHeldError,
    Generations,
    GenerationSettings,
)
from hyperscout_inference.hierarchy.conditions import NO_FACTS, ConditionFacts
from hyperscout_runtime.units import NS, rfc3339
from hyperscout_topology.json_reader import from_json
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Anomaly, Condition, Topology
from support.builders import hypernode

from .trees import leaves_of, lost_uplink, tree, uplink

START = 1_767_225_600  # s; 2026-01-01T00:00:00Z
SETTINGS = GenerationSettings()
TEN = leaves_of(10)
HALF = {k: v for k, v in TEN.items() if k < "l05"}


class Player:
    """A collector's shell in small: the clock, and wake-ups when they are asked for."""

    def __init__(
        self, published: Topology | None = None, at: float = 0, settings: GenerationSettings = SETTINGS
    ) -> None:
        self.generations = Generations(settings, published, self.ns(at))
        self.log: list[tuple[float, Topology]] = []
        self.decision = Decision()

    @staticmethod
    def ns(at: float) -> int:
        return round((START + at) * NS)

    def offer(
        self,
        at: float,
        topology: Topology,
        facts: ConditionFacts | None = None,
        *,
        is_inferred: bool = True,
    ) -> Topology | None:
        self.run(at)
        decision = self.generations.offer(
            topology, self.ns(at), facts or ConditionFacts(), is_inferred=is_inferred
        )
        return self._took(at, decision)

    def run(self, until: float) -> None:
        """Tick whenever asked to, up to (not at) this second."""
        for _ in range(1000):
            if self.decision.wake_at_ns is None or self.decision.wake_at_ns >= self.ns(until):
                return
            at = self.decision.wake_at_ns / NS - START
            self._took(at, self.generations.tick(self.decision.wake_at_ns))
        raise AssertionError("wakes for nothing")

    def approve(self, at: float, generation: int) -> Topology | None:
        self.run(at)
        return self._took(at, self.generations.approve(generation, self.ns(at)))

    def _took(self, at: float, decision: Decision) -> Topology | None:
        self.decision = decision
        if decision.publish is not None:
            self.log.append((round(at, 3), decision.publish))
        return decision.publish

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.log]

    @property
    def last(self) -> Topology:
        return self.log[-1][1]


def running(topology: Topology) -> Player:
    """A player that published this in second 2, its first."""
    player = Player()
    player.offer(0, topology)
    player.run(100)
    assert player.times == [2]
    return player


def condition(topology: Topology, hypernode: str, kind: str) -> Condition:
    return next(c for h in topology.hypernodes if h.name == hypernode for c in h.conditions if c.type == kind)


def test_the_first_tree_goes_out_when_it_stood_still_for_a_moment() -> None:
    player = Player()
    assert player.offer(0, tree({})) is None
    player.run(1000)
    assert player.times == [], "nothing seen, nothing to say"
    for second in (1000, 1001, 1002):
        player.offer(second, tree(leaves_of(second - 999)))
    player.run(2000)
    assert player.times == [1004]
    assert player.last.generation == 1
    assert len(player.last.hypernodes) == 4
    assert {c.since_ns for h in player.last.hypernodes for c in h.conditions} == {player.ns(1004)}


@pytest.mark.slow
def test_a_tree_that_never_stands_still_is_published_all_the_same() -> None:
    player = Player()
    for second in range(200):
        player.offer(second, tree(leaves_of(second + 1)))
    sizes = {len(t.hypernodes): at for at, t in reversed(player.log)}
    assert sorted(sizes.values()) == [60, 121, 182]


def test_a_steady_state_publishes_nothing() -> None:
    topology = tree(TEN, [lost_uplink(1)], links=[uplink(2)])
    player = running(topology)
    for second in range(100, 10_000, 60):
        again = from_json(to_json(topology))  # the same, in other objects
        assert player.offer(second, again, ConditionFacts()) is None
    assert player.decision == Decision()


def test_a_cut_cable_shows_at_once_with_its_time_and_mends_at_once_after_a_minute() -> None:
    player = running(tree(TEN, links=[uplink(1), uplink(2)]))
    cut = player.offer(200, tree(TEN, [lost_uplink(1)], links=[uplink(2)]))
    assert cut is not None
    assert cut.generation == 2
    (missing,) = cut.anomalies
    assert missing == replace(lost_uplink(1), since_ns=player.ns(200))
    degraded = condition(cut, "l00", "Degraded")
    assert (degraded.status, degraded.since_ns) == ("True", player.ns(200))
    assert degraded.message == (
        f"1 of 2 uplinks down: sw-l00/p1 -> sw-top/p1, seen by ibnetdiscover, since {rfc3339(player.ns(200))}"
    )
    assert (
        condition(cut, "l00", "Ready").since_ns == condition(cut, "l01", "Degraded").since_ns == player.ns(2)
    )
    mended = player.offer(300, tree(TEN, links=[uplink(1), uplink(2)]))
    assert mended is not None
    assert mended.anomalies == ()
    assert condition(mended, "l00", "Degraded").since_ns == player.ns(300)
    player.run(10_000)
    assert player.times == [2, 200, 300]
    again = player.offer(10_000, tree(TEN, [lost_uplink(1)], links=[uplink(2)]))
    assert again is not None
    assert again.anomalies[0].since_ns == player.ns(10_000)


def test_a_flapping_cable_is_down_until_it_stands() -> None:
    player = running(tree(TEN))
    for second in range(200, 260):
        player.offer(second, tree(TEN, [lost_uplink(1)] if second % 2 == 0 else []))
        player.offer(second, tree(TEN, [lost_uplink(1)] if second % 2 == 0 else [], links=[uplink(7)]))
    player.run(10_000)
    down = [(at, bool(t.anomalies)) for at, t in player.log[1:]]
    assert down[0] == (200, True)
    assert [at for at, is_down in down if not is_down] == [559], "5 minutes after the last flap"
    assert all(is_down for at, is_down in down if at < 559)
    assert {x.since_ns for _, t in player.log for x in t.anomalies} == {player.ns(200)}


def test_one_cable_does_not_wait_for_another() -> None:
    player = running(tree(TEN))
    player.offer(200, tree(TEN, [lost_uplink(1)]))
    player.offer(201, tree(TEN, [lost_uplink(1), lost_uplink(2)]))
    player.offer(202, tree(TEN, [lost_uplink(2), lost_uplink(3, hypernode="l01")]))
    assert [len(t.anomalies) for _, t in player.log[1:]] == [1, 2, 3]
    player.run(1000)
    assert player.times[1:] == [200, 201, 202, 203, 212]


def test_a_counter_in_a_message_moves_once_a_minute() -> None:
    player = running(tree(TEN))
    for second in range(200, 500, 5):
        player.offer(second, tree(TEN, [lost_uplink(1, "ErroringLink", message=f"{second} errors")]))
    assert player.times[1:] == [200, 260, 320, 380, 440]
    assert player.last.anomalies[0].since_ns == player.ns(200)


def test_membership_waits_longer_than_conditions() -> None:
    player = running(tree(TEN))
    grown = {**TEN, "l10": ["n9999"]}
    first = player.offer(200, tree(grown, [lost_uplink(1), lost_uplink(2, hypernode="l10")]))
    assert first is not None
    assert [h.name for h in first.hypernodes] == [h.name for h in tree(TEN).hypernodes]
    assert [x.hypernode for x in first.anomalies] == ["l00", "top"], "of the tree that is published"
    player.run(1000)
    assert player.times[1:] == [200, 210]
    assert [x.hypernode for x in player.last.anomalies] == ["l00", "l10"]
    assert "l10" in [h.name for h in player.last.hypernodes]
    assert condition(player.last, "l10", "Ready").since_ns == player.ns(210)
    assert condition(player.last, "l00", "Ready").since_ns == player.ns(2)


def test_membership_that_comes_and_goes_within_the_wait_is_not_published() -> None:
    player = running(tree(TEN))
    for second in range(200, 400, 8):
        player.offer(second, tree({**TEN, "l10": ["n9999"]}))
        player.offer(second + 4, tree(TEN))
    assert player.times == [2]


def test_cables_alone_go_out_a_little_later() -> None:
    player = running(tree(TEN, links=[uplink(1)]))
    player.offer(200, tree(TEN, links=[uplink(1), uplink(2)]))
    player.offer(210, tree(TEN, links=[uplink(1), uplink(2), uplink(3)]))
    player.run(1000)
    assert player.times == [2, 230]
    assert len(player.last.links) == 3
    # A cable that came back before it was missed is no news.
    player.offer(1000, tree(TEN, links=[uplink(1)]))
    player.offer(1001, tree(TEN, links=[uplink(k) for k in (1, 2, 3)]))
    player.run(2000)
    assert player.times == [2, 230]


def test_the_first_cables_of_a_fabric_go_out_at_once() -> None:
    """A collector that read HyperNodes has published none. Until then inference remembers none."""
    player = running(tree(TEN))
    links = [uplink(1)]
    for at, fabric in ((200, "ib"), (205, "ib"), (210, "ethernet")):
        links.append(replace(uplink(at), fabric=fabric))
        player.offer(at, tree(TEN, links=links))
    player.run(1000)
    assert player.times == [2, 200, 210]
    assert len(player.last.links) == 4


def test_a_cable_is_not_forgotten_before_its_loss_is_shown() -> None:
    """Inference knows a lost cable from what is published: it must be there until the loss is."""
    cables = [uplink(1), uplink(2)]
    player = running(tree(TEN, links=cables))
    player.offer(200, tree(TEN, [lost_uplink(1)], links=cables[1:]))
    player.offer(201, tree(TEN, links=cables))
    player.run(212)
    assert player.times[-1] == 211
    assert player.last.anomalies == ()
    player.offer(212, tree(TEN, [lost_uplink(1)], links=cables[1:]))  # waits until 221
    other = player.offer(213, tree(TEN, [lost_uplink(1), lost_uplink(5)], links=cables[1:]))
    assert other is not None
    assert [x.subject.port for x in other.anomalies] == ["5"]
    assert sorted(other.links) == cables
    player.run(1000)
    assert player.times[-1] == 221
    assert list(player.last.links) == cables[1:]


def test_a_node_that_goes_down_shows_at_once_and_flaps_damped() -> None:
    player = running(tree(TEN))
    down = ConditionFacts(down_nodes={"n0001": "kubelet stopped"})
    for second in range(200, 220, 2):
        player.offer(second, tree(TEN), down)
        player.offer(second + 1, tree(TEN))
    player.run(2000)
    ready = [(at, condition(t, "l00", "Ready").status) for at, t in player.log[1:]]
    assert ready == [(200, "False"), (229, "False"), (519, "True")]
    message = condition(next(t for at, t in player.log if at == 229), "l00", "Ready").message
    assert "n0001 (kubelet stopped; over since " in message
    assert "; flapped 10 times; clears at " in message
    player.offer(3000, tree(TEN), ConditionFacts(stale={"n0001": player.ns(1)}))
    assert condition(player.last, "l00", "Stale").status == "True"
    switch = player.last.hypernodes[0].switches[0]
    player.offer(3500, tree(TEN), ConditionFacts(stale_switches={switch: player.ns(2)}))
    assert "evidence of 1 of 1 switches" in condition(player.last, "l00", "Stale").message
    player.offer(4000, tree(TEN, absent=["n0002", "spare"]))
    assert condition(player.last, "l00", "Ready").status == "False"
    assert player.last.nodes_without_evidence == ("n0002", "spare")


def test_a_node_that_joins_the_tree_is_not_without_evidence_any_more() -> None:
    """Damping would show for a hold-down that it was without evidence a moment ago."""
    player = Player(settings=replace(SETTINGS, settle_s=1))
    player.offer(0, tree({**TEN, "l09": TEN["l09"][:3]}, absent=["n0039", "spare"]))
    player.offer(4, tree(TEN, absent=["spare"]))
    player.run(1000)
    assert [(at, t.nodes_without_evidence) for at, t in player.log] == [
        (2, ("n0039", "spare")),
        (5, ("spare",)),
    ]


@pytest.mark.parametrize("absent", [(), ("n0001", "spare")], ids=["HyperNodes alone", "a saved topology"])
def test_the_first_evidence_of_a_member_since_the_start_shows_at_once(absent: tuple[str, ...]) -> None:
    """A start may infer before a member's evidence arrives. Later its evidence flaps, and is damped."""
    player = Player(tree(TEN, absent=absent))
    player.offer(1, tree(TEN, absent=absent), is_inferred=False)
    for at, missing in ((2, True), (5, False), (20, True), (22, False)):
        player.offer(at, tree(TEN, absent=["n0001", "spare"] if missing else ["spare"]))
    player.run(1000)
    ready = [(at, condition(t, "l00", "Ready").message) for at, t in player.log]
    not_ready = "3 of 4 nodes ready; not ready: n0001 (no fabric shows it)"
    changes = [x for i, x in enumerate(ready) if i == 0 or x[1] != ready[i - 1][1]]
    over = "; over since 2026-01-01T00:00:22Z; flapped once; clears at 2026-01-01T00:00:32Z)"
    told = not_ready.removesuffix(")") + over
    after = [(5, "4 of 4 nodes ready"), (20, not_ready), (23, told), (32, "4 of 4 nodes ready")]
    assert changes == (after if absent else [(2, not_ready), *after])
    assert player.last.nodes_without_evidence == ("spare",)


def test_the_first_evidence_of_a_member_that_was_gone_shows_at_once() -> None:
    """It is a new one."""
    player = Player(tree(TEN))
    player.offer(1, tree(TEN))
    player.offer(100, tree({**TEN, "l09": TEN["l09"][:3]}))
    player.offer(1000, tree({**TEN, "l09": TEN["l09"][:3]}))
    player.offer(2000, tree(TEN, absent=["n0039"]))
    player.offer(2015, tree(TEN))
    player.run(3000)
    shown = [(at, t.nodes_without_evidence) for at, t in player.log if at >= 2000]
    assert shown == [(2000, ("n0039",)), (2010, ("n0039",)), (2015, ())]


def test_mass_removal_is_held_while_conditions_go_on() -> None:
    player = running(tree(TEN))
    assert player.offer(200, tree(HALF)) is not None, "what is no longer backed is stale, at once"
    held = player.decision.held
    assert held is not None
    assert held.generation == 2
    assert held.reason == "removes 5 of 11 HyperNodes and 20 of 40 nodes (more than 20% need an approval)"
    assert (held.since_ns, held.applies_at_ns) == (player.ns(200), player.ns(800))
    assert held.removes_hypernodes == ("l05", "l06", "l07", "l08", "l09")
    assert held.removes_nodes == tuple(f"n{i:04}" for i in range(20, 40))
    assert [h.name for h in player.last.hypernodes] == [h.name for h in tree(TEN).hypernodes]
    assert [condition(player.last, leaf, "Stale").status for leaf in ("l04", "l05")] == ["False", "True"]
    cut = player.offer(300, tree(HALF, [lost_uplink(1), lost_uplink(2, hypernode="l07")]))
    assert cut is not None
    assert condition(cut, "l00", "Degraded").status == condition(cut, "l07", "Degraded").status == "True"
    player.run(800)
    assert player.times == [2, 200, 300]
    assert [t.generation for _, t in player.log] == [1, 3, 4], "2 is the number of what is held"
    player.run(1000)
    assert player.times[-1] == 800
    assert player.last.generation == 5
    assert player.last.hypernodes[:5] == tuple(
        replace(h, conditions=player.last.hypernodes[k].conditions)
        for k, h in enumerate(tree(HALF).hypernodes[:5])
    )
    assert player.decision.held is None


def test_a_removal_that_was_held_alone_keeps_its_number_and_goes_out_when_approved() -> None:
    player = running(tree(leaves_of(10)))
    player.offer(200, tree(leaves_of(10), top=False))
    held = player.decision.held
    assert held is not None
    assert held.reason == (
        "changes the number of tiers from 2 to 1 and removes 1 of 11 HyperNodes and 0 of 40 nodes"
        " (more than 20% need an approval)"
    )
    for wrong in (1, 3):
        with pytest.raises(GenerationNotHeldError, match=f"{wrong} is not held: generation 2 is held"):
            player.approve(210, wrong)
    published = player.approve(220, 2)
    assert published is not None
    assert published.generation == 2
    assert [h.tier for h in published.hypernodes] == [1] * 10
    assert (player.decision.held, player.decision.wake_at_ns) == (None, None)
    with pytest.raises(GenerationNotHeldError, match="no generation is held"):
        player.approve(230, 2)


def test_another_number_of_tiers_is_held_anew() -> None:
    over = hypernode("core", tree(TEN).hypernodes[-1].nodes, tier=3, children=("top",))
    lower = tree(TEN).hypernodes
    player = running(Topology(1, (*lower[:-1], replace(lower[-1], parent="core"), over)))
    player.offer(200, tree(TEN))
    first = player.decision.held
    player.offer(300, tree(TEN, top=False))
    second = player.decision.held
    assert first is not None
    assert second is not None
    assert second.generation > first.generation
    assert second.reason.startswith("changes the number of tiers from 3 to 1")


def racks(leaves: Topology, each: int) -> Topology:
    """The same tree with NVLink domains inside its leaves."""
    inner, outer = [], []
    for h in leaves.hypernodes:
        if h.children:
            outer.append(replace(h, tier=h.tier + 1))
            continue
        parts = [h.nodes[i : i + each] for i in range(0, len(h.nodes), each)]
        names = tuple(f"{h.name}-r{i}" for i in range(len(parts)))
        inner += [
            hypernode(n, part, parent=h.name, tier_name="nvlink")
            for n, part in zip(names, parts, strict=True)
        ]
        outer.append(replace(h, tier=2, children=names))
    return replace(leaves, hypernodes=(*inner, *outer))


@pytest.mark.parametrize(("after", "held"), [(5, False), (100, False), (130, True)])
def test_nvlink_that_comes_a_moment_after_the_cables_is_not_held(after: float, held: bool) -> None:
    player = Player()
    player.offer(0, tree(TEN))
    player.run(4)
    assert player.times == [2]
    player.offer(after, racks(tree(TEN), 1))
    player.run(after + 60)
    assert (player.decision.held is not None) == held
    assert player.last.hypernodes[0].tier_name == ("leaf" if held else "nvlink")


@pytest.mark.parametrize(("after", "held"), [(5, False), (100, False), (130, True)])
def test_nvlink_of_the_nodes_that_came_last_joins_them(after: float, held: bool) -> None:
    """At first some trays are known by their cables alone: each is a domain of its own."""
    player = Player()
    player.offer(0, racks(tree(TEN), 1))
    player.run(4)
    alone = len(player.last.hypernodes)
    player.offer(after, racks(tree(TEN), 4))
    player.run(after + 60)
    assert (player.decision.held is not None) == held
    assert (len(player.last.hypernodes) < alone) == (not held)


def test_leaves_that_a_new_tree_joins_are_held_all_the_same() -> None:
    player = Player()
    player.offer(0, racks(tree(TEN), 1))
    player.run(4)
    player.offer(5, racks(tree({"l00": [node for nodes in TEN.values() for node in nodes]}), 1))
    assert player.decision.held is not None


def test_a_new_tree_that_loses_a_tier_is_held_all_the_same() -> None:
    player = Player()
    player.offer(0, racks(tree(TEN), 4))
    player.run(4)
    player.offer(5, tree(TEN))
    assert player.decision.held is not None


def test_nodes_that_a_new_tree_loses_are_held_all_the_same() -> None:
    player = Player()
    player.offer(0, tree(TEN))
    player.run(4)
    player.offer(5, tree(HALF))
    assert player.decision.held is not None


def test_after_a_restart_no_tree_is_new() -> None:
    player = Player(tree(TEN))
    player.offer(5, racks(tree(TEN), 1))
    assert player.decision.held is not None


def test_what_comes_back_is_no_longer_held() -> None:
    player = running(tree(TEN))
    player.offer(200, tree(HALF))
    player.offer(500, tree(TEN))
    assert player.decision.held is None
    player.offer(600, tree(HALF))
    held = player.decision.held
    assert held is not None
    assert held.generation not in (2, player.last.generation)
    assert held.applies_at_ns == player.ns(1200)
    # It comes back in steps: the step within the limit must stand still, too.
    player.offer(700, tree({k: v for k, v in TEN.items() if k < "l09"}))
    assert player.decision.held is None
    player.offer(705, tree(TEN))
    player.run(5000)
    assert len(player.last.hypernodes) == 11


def test_a_loss_that_grows_by_another_share_is_held_anew() -> None:
    player = running(tree(TEN))
    player.offer(200, tree(HALF))
    first = player.decision.held
    fewer = {k: v[:-1] if k == "l00" else v for k, v in HALF.items()}
    player.offer(300, tree(fewer))
    second = player.decision.held
    assert first is not None
    assert second is not None
    assert (second.generation, second.applies_at_ns) == (first.generation, first.applies_at_ns)
    assert len(second.removes_nodes) == 21
    player.offer(400, tree({"l00": TEN["l00"]}))
    third = player.decision.held
    assert third is not None
    assert third.generation > first.generation
    assert third.applies_at_ns == player.ns(1000)


def test_a_fabric_that_fades_away_in_small_steps_is_held_too() -> None:
    player = running(tree(TEN))
    for step in range(1, 5):
        player.offer(200 + 20 * step, tree({k: v for k, v in TEN.items() if int(k[1:]) >= step}))
    player.run(400)
    assert len(player.last.hypernodes) == 9
    assert player.decision.held is not None


def test_after_a_removal_was_agreed_to_the_next_small_one_is_not_held() -> None:
    player = running(tree(TEN))
    player.offer(200, tree({k: v for k, v in TEN.items() if k != "l09"}))
    player.offer(300, tree(HALF))
    assert player.decision.held is not None
    player.approve(301, player.decision.held.generation)
    player.offer(310, tree({k: v[1:] if k == "l00" else v for k, v in HALF.items()}))
    assert player.decision.held is None
    player.run(400)
    assert player.times[-1] == 320


def test_a_restart_goes_on_where_it_was() -> None:
    player = running(tree(TEN))
    player.offer(200, tree(TEN, [lost_uplink(1)]))
    saved = from_json(to_json(player.last))
    again = Player(saved, at=500)
    assert again.offer(501, tree(TEN, [lost_uplink(1)])) is None
    grown = again.offer(502, tree(TEN, [lost_uplink(1), lost_uplink(2)]))
    assert grown is not None
    assert grown.generation == 3
    assert [x.since_ns for x in grown.anomalies] == [player.ns(200), player.ns(502)]
    assert condition(grown, "l00", "Degraded").since_ns == player.ns(200)
    assert condition(grown, "l00", "Ready").since_ns == player.ns(2)
    # All-clears are not believed before they stood for a moment: agents are still coming back.
    again.offer(503, tree(TEN))
    again.run(600)
    assert again.times == [502, 504, 513]
    assert Player(saved, at=500).offer(501, tree(HALF)) is not None, "stale, and the tree held"


def test_cables_in_another_order_are_no_news() -> None:
    """As a replica has them that followed the leader by what changed."""
    links = [uplink(k) for k in (1, 2, 3)]
    player = running(tree(TEN, links=links))
    again = Player(replace(player.last, links=links[::-1]), at=500)
    again.offer(501, tree(TEN, links=links))
    again.run(1000)
    assert again.times == []


def test_a_generation_shares_the_parts_that_did_not_change() -> None:
    player = running(tree(TEN, links=[uplink(1)]))
    first = player.last
    second = player.offer(200, tree(TEN, [lost_uplink(2)], links=[uplink(1)]))
    assert second is not None
    assert (second.links, second.switches, second.adapters) == (first.links, first.switches, first.adapters)
    assert second.links is first.links
    assert second.switches is first.switches


def test_a_tree_saved_without_times_gets_them() -> None:
    saved = replace(tree(TEN, [lost_uplink(1)]), generation=7)
    player = Player(saved, at=500)
    player.offer(501, tree(TEN, [lost_uplink(1), lost_uplink(2)]))
    assert player.last.generation == 8
    assert [x.since_ns for x in player.last.anomalies] == [player.ns(500), player.ns(501)]
    assert {c.since_ns for h in player.last.hypernodes for c in h.conditions} == {player.ns(501)}


def test_a_clock_that_steps_back_moves_no_time_back() -> None:
    player = running(tree(TEN))
    player.offer(4000, tree(TEN, [lost_uplink(1)]))
    decision = player.generations.offer(tree(TEN, [lost_uplink(1), lost_uplink(2)]), player.ns(400))
    assert decision.publish is not None
    assert [x.since_ns for x in decision.publish.anomalies] == [player.ns(4000)] * 2
    assert condition(decision.publish, "l00", "Degraded").since_ns == player.ns(4000)


def test_an_anomaly_of_a_domain_that_is_not_published_counts_where_its_ends_are() -> None:
    player = running(tree(TEN))
    lone = Anomaly(
        "UnknownHost", replace(lost_uplink(1).subject, device="x", name="x"), None, 1, (), 1.0, "", "new"
    )
    player.offer(200, tree({**TEN, "new": ["x"]}, [lone, lost_uplink(1, hypernode="l00")]))
    assert [(x.kind, x.hypernode, x.tier) for x in player.last.anomalies] == [
        ("MissingLink", "l00", 1),
        ("UnknownHost", None, None),
    ]


def test_of_two_reasons_the_one_that_is_true_is_shown() -> None:
    """A node is back in the cluster, and in no fabric; then in the fabric, too."""
    player = running(tree(TEN))
    down, absent = ConditionFacts(down_nodes={"n0001": "kubelet stopped"}), tree(TEN, absent=["n0001"])
    for at, offered, facts in ((200, absent, down), (220, absent, NO_FACTS), (230, tree(TEN), NO_FACTS)):
        player.offer(at, offered, facts)
        player.run(at + 4)
    player.run(1000)
    texts = [condition(t, "l00", "Ready").message for at, t in player.log[1:]]
    reasons = [x.partition("n0001 (")[2].partition(";")[0].partition(")")[0] for x in texts]
    assert [x for i, x in enumerate(reasons) if i == 0 or x != reasons[i - 1]] == [
        "kubelet stopped",
        "no fabric shows it",
        "",
    ]


def test_a_link_of_a_missing_switch_does_not_flap() -> None:
    """It is missing first, then as a part of its switch, and again until the switch hears its neighbours."""
    link = lost_uplink(1)
    assert link.peer is not None
    switch = replace(link, kind="MissingSwitch", subject=replace(link.peer, port=None), peer=None)
    player = running(tree(TEN))
    for at, found in ((200, [link]), (201, [switch]), (210, [link]), (211, [])):
        player.offer(at, tree(TEN, found))
    player.run(1000)
    shown = [(at, [(x.kind, x.is_over) for x in t.anomalies]) for at, t in player.log[1:]]
    of_link = [(at, [is_over for kind, is_over in found if kind == "MissingLink"]) for at, found in shown]
    changes = [x for i, x in enumerate(of_link) if i == 0 or x[1] != of_link[i - 1][1]]
    assert changes == [(200, [False]), (201, []), (210, [False]), (212, [True]), (221, [])]
