"""Measured figures differ in every offer; what is published of them moves only when it means something."""

from dataclasses import replace

import pytest
from hyperscout_collector.decisions.publication.renewal import is_due, renewed
from hyperscout_topology.figures import figures
from hyperscout_topology.topology import Endpoint, Figure, Measured, Tier, Topology
from support.builders import anomaly, hypernode

from .test_generations import Player, condition, running
from .trees import leaves_of, lost_uplink, tree, uplink

HOUR = 3600


def measured(median: float | None, at: float = 0, gbps: float | None = 100.0, **leaf: object) -> Topology:
    """Ten leaves; figures of the first leaf and its tier, as measured at that second."""

    def figure(value: float | None) -> Measured | None:
        return None if value is None else Measured(value, value * 1.5, 12, Player.ns(at))

    topology = tree(leaves_of(10), links=[uplink(1)])
    first, *others = topology.hypernodes
    first = replace(first, latency_us=figure(median), bandwidth_gbps=figure(gbps), **leaf)  # type: ignore[arg-type]
    tiers = (Tier(1, "leaf", figure(median)), Tier(2, "pod"))
    return replace(topology, hypernodes=(first, *others), tiers=tiers)


def latency(topology: Topology) -> Measured | None:
    return topology.hypernodes[0].latency_us


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (measured(10.0), False),
        (measured(11.9), False),
        (measured(8.1), False),
        (measured(12.1), True),
        (measured(7.9), True),
        (measured(None), True),
        (measured(10.0, gbps=81.0), False),
        (measured(10.0, gbps=79.0), True),
        (measured(10.0, gbps=None), True),
        (measured(10.0, at=HOUR), False),
        (measured(10.0, at=HOUR + 1), True),
        (measured(10.0, source="latency"), True),
        (measured(10.0, confidence=0.81), False),
        (measured(10.0, confidence=0.79), True),
        (replace(measured(10.0), tiers=(Tier(1, "leaf", Measured(12.1, 13.0, 2)), Tier(2, "pod"))), True),
        (replace(measured(10.0), tiers=()), True),
        (tree({}), False),  # another tree is not a matter of figures
    ],
)
def test_what_is_news(now: Topology, due: bool) -> None:
    assert is_due(measured(10.0), now) is due


def test_what_appears_is_news() -> None:
    assert is_due(measured(None, gbps=None), measured(10.0, gbps=None))
    assert is_due(replace(measured(10.0), tiers=()), measured(10.0))


def test_a_network_that_breathes_publishes_nothing_but_once_an_hour() -> None:
    player = running(measured(10.0))
    for minute in range(2, 181):
        player.offer(60 * minute, measured(10.0 + (minute % 5) * 0.4, at=60 * minute))
    assert len(player.log) == 1 + 2
    assert player.times[1] == 61 * 60 + 30


def test_a_median_that_moved_is_out_after_a_moment_with_all_the_others() -> None:
    player = running(measured(10.0))
    player.offer(200, measured(13.0, at=200, gbps=101.0))
    player.run(1000)
    assert player.times == [2, 230]
    (h, *_) = player.last.hypernodes
    assert (h.latency_us, h.bandwidth_gbps) == (
        Measured(13.0, 19.5, 12, Player.ns(200)),
        Measured(101.0, 151.5, 12, Player.ns(200)),
    )
    assert player.last.tiers[0].latency_us == h.latency_us


def test_a_slow_drift_is_compared_with_what_is_published() -> None:
    player = running(measured(10.0))
    for step in range(30):  # one per cent at a time
        player.offer(100 + 40 * step, measured(10.0 * 1.01**step))
    assert len(player.log) == 2
    now = latency(player.last)
    assert now is not None
    assert now.median == pytest.approx(12.1, rel=0.02)


def test_an_excursion_that_is_over_at_once_is_not_told() -> None:
    player = running(measured(10.0))
    player.offer(200, measured(30.0))
    player.offer(210, measured(10.0))
    player.run(1000)
    assert player.times == [2]


def test_a_cable_that_is_cut_takes_no_figures_along() -> None:
    player = running(measured(10.0))
    cut = player.offer(200, replace(measured(10.5, at=200), anomalies=(lost_uplink(1),), links=()))
    assert cut is not None
    assert latency(cut) == Measured(10.0, 15.0, 12, Player.ns(0))
    assert cut.tiers == measured(10.0).tiers


def test_what_comes_from_latency_alone_says_so_and_its_confidence_stands_still() -> None:
    player = running(measured(10.0, source="latency", confidence=0.93))
    consistent = condition(player.last, "l00", "Consistent")
    assert (consistent.status, consistent.reason) == ("True", "Inferred")
    assert "0.93" in consistent.message
    assert player.offer(300, measured(10.0, source="latency", confidence=0.91)) is None
    player.run(1000)
    assert player.times == [2]
    player.offer(2000, measured(10.0, source="latency", confidence=0.5))
    player.run(3000)
    assert "0.5" in condition(player.last, "l00", "Consistent").message
    player.offer(4000, measured(10.0))
    player.run(5000)
    assert condition(player.last, "l00", "Consistent").reason == "WiringMatches"


def test_a_tree_that_is_held_keeps_its_figures_up_to_date() -> None:
    player = running(measured(10.0))
    small = tree({k: v for k, v in leaves_of(10).items() if k < "l05"}, top=False)
    first = replace(small.hypernodes[0], latency_us=Measured(20.0, 21.0, 12))
    player.offer(200, replace(small, hypernodes=(first, *small.hypernodes[1:]), tiers=()))
    player.run(300)
    assert player.decision.held is not None
    assert len(player.last.hypernodes) == 11
    assert latency(player.last) == first.latency_us
    assert [t.tier for t in player.last.tiers] == [2]  # no measurement gives one in its place


def test_figures_of_another_tier_are_not_taken() -> None:
    h = hypernode("a", ("n",))
    offered = replace(h, tier=2, tier_name="pod", latency_us=Measured(1.0, 1.0, 1))
    assert renewed(Topology(1, (h,)), Topology(1, (offered,)), None).hypernodes == (h,)


def test_a_tier_whose_figures_alone_moved_is_told() -> None:
    player = running(measured(10.0))
    player.offer(
        200, replace(measured(10.0), tiers=(Tier(1, "leaf", Measured(13.0, 14.0, 2)), Tier(2, "pod")))
    )
    player.run(1000)
    assert player.times == [2, 230]


NODES = ("n0001", "n0014")


def slow(
    message: str,
    found: tuple[Figure, ...] = (),
    *,
    nodes: tuple[str, str] = NODES,
    sources: tuple[str, ...] = ("latency",),
) -> Topology:
    """The tree with one path that was measured to be slow."""
    subject, peer = (Endpoint(node, node, "eth0") for node in nodes)
    return replace(
        tree(leaves_of(10)),
        anomalies=(
            anomaly(
                "SlowLink",
                subject,
                peer,
                sources=sources,
                confidence=0.5,
                message=message,
                hypernode="l00",
                figures=found,
            ),
        ),
    )


def path(
    us: float, median: float, pairs: int, *more: str, nodes: tuple[str, str] = NODES, without: bool = False
) -> Topology:
    """As inference reports it. `without`: as an earlier version did, without figures."""
    a, b = nodes
    message = f"{a} -> {b}: {us} us where this tier's median is {median} us ({pairs} pairs)"
    found = figures(round_trip_us=us, tier_median_us=median, tier_pairs=pairs, **dict.fromkeys(more, 1.0))
    return slow("; ".join((message, *more)), () if without else found, nodes=nodes)


def said(topology: Topology) -> tuple[str, tuple[Figure, ...]]:
    (x,) = topology.anomalies
    return x.message, x.figures


@pytest.mark.parametrize(
    ("now", "news"),
    [
        (path(14.2, 6.1, 128), False),
        (path(15.9, 6.4, 131), False),
        (path(11.9, 5.2, 110), False),
        (path(21.0, 6.1, 128), True),
        (path(14.2, 6.1, 228), True),
        (path(14.2, 6.1, 128, "jitter_us"), True),
        (path(15.9, 6.4, 131, without=True), True),
    ],
)
def test_words_of_what_was_measured_change_when_a_figure_moved(now: Topology, news: bool) -> None:
    player = running(tree(leaves_of(10)))
    first = path(14.2, 6.1, 128)
    assert player.offer(200, first) is not None
    player.offer(400, now)
    player.run(600)
    assert said(player.last) == said(now if news else first)
    assert len(player.log) == 2 + news


def test_a_node_whose_name_is_a_number_is_no_figure() -> None:
    nodes = ("7", "1014")
    player = running(tree(leaves_of(10)))
    assert player.offer(200, path(14.2, 6.1, 128, nodes=nodes)) is not None
    assert player.offer(400, path(14.9, 6.1, 128, nodes=nodes)) is None
    player.run(600)
    assert len(player.log) == 2
    message = "{}: ways out: 14.2 us in 9 of 10 pairs"  # the node is an example: no figure has its name
    assert player.offer(800, slow(message.format(1014), figures(round_trip_us=14.2))) is not None
    assert player.offer(1000, slow(message.format(2000), figures(round_trip_us=14.2))) is None


def test_figures_of_an_earlier_version_are_taken_up_once() -> None:
    player = running(tree(leaves_of(10)))
    player.offer(200, path(14.2, 6.1, 128, without=True))
    player.offer(400, path(14.3, 6.1, 128))
    player.offer(600, path(14.4, 6.1, 128))
    player.run(800)
    assert len(player.log) == 3
    assert said(player.last) == said(path(14.3, 6.1, 128))


def test_words_of_wires_are_taken_as_they_are() -> None:
    player = running(tree(leaves_of(10)))
    player.offer(200, slow("runs at 200 Gb/s", sources=("ibnetdiscover",)))
    player.offer(400, slow("runs at 201 Gb/s", sources=("ibnetdiscover",)))
    player.run(600)
    assert player.last.anomalies[0].message == "runs at 201 Gb/s"
