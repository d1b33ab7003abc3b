"""The pure parts of the load test: percentiles, which link changes when, what counts as seen, what fits."""

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter

import click
import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_cli.loadtest.agents_process import Unsettled
from hyperscout_cli.loadtest.figures import Changes, Memory, Report, States, percentile
from hyperscout_cli.loadtest.link_schedule import QUIET_S, Change, LinkSchedule, host_links
from hyperscout_cli.loadtest.progress import Progress
from hyperscout_cli.loadtest.settings import RAILS, LoadTestSettings, check, rest_s
from hyperscout_cli.loadtest.watcher import OPTIONS, links_by_port, links_down
from hyperscout_cli.remote.client import MAX_ANSWER_BYTES
from hyperscout_cli.shared.tables import lines
from hyperscout_sim.fabric.shapes import cluster
from support.command_line import CommandLine

UPDATES = States(800, 1.0, None, 0.2, 0.5)
DOWN, UP = Change(7, down=True), Change(7, down=False)


def settings(
    agents: int = 1000, processes: int = 2, changes: int = 300, per_minute: float = 100
) -> LoadTestSettings:
    return LoadTestSettings(agents, processes, changes, per_minute, refresh_interval_s=60, timeout_s=60)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 50, None),
        ([3.0], 50, 3.0),
        ([3.0], 99, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 50, 2.0),
        ([4.0, 1.0, 3.0, 2.0], 51, 3.0),
        (list(range(1, 101)), 90, 90),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 102)), 99, 100),
    ],
)
def test_percentiles_are_the_nearest_rank(values: list[float], share: float, expected: float | None) -> None:
    assert percentile(values, share) == expected


@pytest.mark.parametrize(("links", "every_s"), [(800, 0.6), (201, 0.6), (80, 12.0), (4, 0.5)])
def test_a_link_changes_at_most_once_in_two_minutes(links: int, every_s: float) -> None:
    schedule = LinkSchedule(links)
    last: dict[int, tuple[float, bool]] = {}
    counts = {True: 0, False: 0}
    for i in range(2000):
        now_s = 1000 + i * every_s
        change = schedule.next(now_s)
        if change is None:
            recent = sum(now_s - at_s < QUIET_S for at_s, _ in last.values())
            assert recent == links, "it waits only when all links changed lately"
            continue
        at_s, was_down = last.get(change.link, (float("-inf"), False))
        assert now_s - at_s >= QUIET_S
        assert change.down is not was_down
        last[change.link] = now_s, change.down
        counts[change.down] += 1
    assert counts[False] > 0
    assert counts[True] - counts[False] == sum(down for _, down in last.values())
    assert counts[True] - counts[False] <= QUIET_S / every_s + 1, "what is down returns as soon as it may"


@pytest.mark.parametrize(
    ("made", "seen", "expected"),
    [
        ([(1, DOWN)], [(3, DOWN)], [2]),
        ([(1, DOWN)], [(0, DOWN)], [None]),  # from before
        ([(1, DOWN)], [(3, UP)], [None]),
        ([(1, DOWN)], [(2, DOWN), (3, DOWN)], [1]),
        ([(1, DOWN), (10, UP), (20, DOWN)], [(2, DOWN), (13, UP), (24, DOWN)], [1, 3, 4]),
        ([(1, DOWN), (10, UP), (20, DOWN)], [(24, DOWN)], [None, None, 4]),  # not of the first
        ([(1, DOWN), (2, Change(8, down=True))], [(5, Change(8, down=True))], [None, 3]),
    ],
)
def test_what_the_watcher_sees_belongs_to_the_last_change_of_the_link(
    made: Sequence[tuple[int, Change]], seen: Sequence[tuple[int, Change]], expected: list[float | None]
) -> None:
    progress = Progress(agents=10, processes=1, say=print)
    events = [(*x, True) for x in made] + [(*x, False) for x in seen]
    late = []  # messages of a slow process of agents
    for at_s, change, is_made in sorted(events, key=itemgetter(0)):
        at_ns = at_s * 10**9
        if is_made:
            late.append({"at_ns": at_ns, "made": progress.begin(change)})
        else:
            progress.published(at_ns, 10, [change])
    for message in late:
        progress.of_agents(0, message)
    assert [progress.latencies_s.get(i) for i, _ in enumerate(made, 1)] == expected


@pytest.mark.parametrize(
    ("wanted", "files", "own", "said"),
    [
        (settings(agents=3, processes=4, changes=0), 20_000, True, "--processes 4: more than --agents 3"),
        (
            settings(agents=20),
            20_000,
            True,
            "20 agents have 80 links.*give at least --agents 201, or at most --changes-per-minute 9",
        ),
        (
            settings(agents=20_000),
            20_000,
            True,
            "the collector needs 20512 open .*most --agents 19488",
        ),
        (
            settings(agents=40_000),
            20_000,
            False,
            "each process of agents needs 20512 .*most --agents 38976",
        ),
        (settings(agents=1000), 100, True, "at most --agents 0, or raise the hard limit"),
        (
            settings(agents=28_232),
            99_000,
            True,
            "28232 for one address: give at most --agents 28231",
        ),
        (settings(agents=30_000), 99_000, False, "--agents 30000: each agent needs a local port.*28231"),
    ],
)
def test_what_does_not_fit_is_refused(wanted: LoadTestSettings, files: int, *, own: bool, said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        check(wanted, files, 28_232, own_collector=own)


@pytest.mark.parametrize(
    ("changes", "per_minute", "interval_s", "expected_s"),
    [
        (300, 100, 60, 60),
        (30, 60, 60, 60),
        (4, 120, 1, 2),
        (3, 120, 1, 2),
        (300, 100, 25, 75),
        (9, 60, 300, 300),
    ],
)
def test_the_time_at_rest_has_whole_refresh_intervals(
    changes: int, per_minute: int, interval_s: float, expected_s: float
) -> None:
    wanted = replace(settings(changes=changes, per_minute=per_minute), refresh_interval_s=interval_s)
    assert rest_s(wanted) == expected_s


@pytest.mark.parametrize(
    ("wanted", "own"),
    [
        (settings(agents=10_000), True),
        (settings(agents=38_000), False),  # and the watcher
        (settings(agents=201), True),
        (settings(agents=20, changes=5, per_minute=120), True),
        (settings(agents=1, processes=1, changes=0), True),
    ],
)
def test_what_fits_is_accepted(wanted: LoadTestSettings, *, own: bool) -> None:
    check(wanted, 20_000, 38_001, own_collector=own)


def test_agents_are_settled_when_each_was_since_the_last_command() -> None:
    unsettled = Unsettled(["a", "b"])
    unsettled.saw(["a"])
    assert unsettled.hosts == {"b"}
    unsettled.saw(["b"])  # meanwhile `a` reports again
    assert not unsettled.hosts
    unsettled.command()
    assert unsettled.hosts == {"a", "b"}


def test_the_links_that_a_topology_calls_missing_are_found_by_their_ethernet_ports() -> None:
    fabric = cluster(20)
    links = links_by_port(fabric)
    cables = host_links(fabric)
    assert len(links) == len(cables) == 20 * RAILS
    owner = fabric.node_map()
    assert all(owner[cables[i].a] == node for (node, _), i in links.items())

    def anomaly(kind: str, node: str, port: str) -> pb.Anomaly:
        end = pb.Endpoint(device=node, name=node, port=port)
        return pb.Anomaly(kind=kind, subject=end, peer=pb.Endpoint(device="02:00:00:00:00:01", port="swp1"))

    given = [
        anomaly("MissingLink", "node-0002", "eth1"),
        anomaly("SlowLink", "node-0003", "eth1"),
        anomaly("MissingLink", "98039b037c65c1f0", "1"),
    ]
    assert links_down(given, links) == {links["node-0002", "eth1"]}


def test_the_report_has_the_same_figures_as_a_table_and_as_an_object() -> None:
    states = States(800, 4.0, 5.0, 0.4, 2.0)
    changes = Changes(3, 2.0, (0.25, 0.5), 0.2, 0.5, 0.1)
    report = Report(settings(agents=100), states, changes, UPDATES, Memory(100, 150, 160), None)
    assert report.unseen == 1
    data = report.data()
    assert data["states"]["collectorCpuPerFindingUs"] == 500
    assert data["changes"]["changeToWatcherS"] == {"p50": 0.25, "p90": 0.5, "p99": 0.5, "max": 0.5}
    loads = {name: data["changes"][name] for name in ("collectorLoadAtRest", "collectorLoad", "agentsLoad")}
    assert loads == {"collectorLoadAtRest": 0.2, "collectorLoad": 0.5, "agentsLoad": 0.1}
    assert data["changes"]["collectorCpuPerChangeMs"] == 200, "0.3 cores more than at rest, in 2 s, 3 changes"
    assert data["memoryMib"] == {"empty": 100, "withAgents": 150, "peak": 160}
    text = "".join(lines(report.table()))
    of_changes = ("2 of 3", "0.250 s", "0.500 s", "0.20 cores", "0.50 cores", "200 ms")
    for figure in ("500 us", "250 us", *of_changes, "150 MiB"):
        assert figure in text


def test_figures_of_a_collector_elsewhere_are_null() -> None:
    states, updates = States(800, 4.0, 5.0, None, 2.0), replace(UPDATES, collector_cpu_s=None)
    changes = Changes(3, 2.0, (0.25, 0.5), None, None, 0.1)
    report = Report(settings(), states, changes, updates, None, None)
    data = report.data()
    assert (data["memoryMib"], data["states"]["collectorCpuPerFindingUs"]) == (None, None)
    of_changes = ("collectorLoadAtRest", "collectorLoad", "collectorCpuPerChangeMs")
    assert [data["changes"][name] for name in of_changes] == [None] * 3
    assert "collector" not in "".join(lines(report.table()))


def test_the_message_size_of_the_watcher_is_bounded() -> None:
    assert dict(OPTIONS)["grpc.max_receive_message_length"] == MAX_ANSWER_BYTES > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--duration", "1m", "--changes", "3"], "--duration and --changes: give one of them"),
        (["--collector", "127.0.0.1:1", "--restart"], "--plaintext and --restart need a new collector"),
        (["--collector", "127.0.0.1:1", "--plaintext"], "--plaintext and --restart need a new collector"),
        (["--agents", "0"], "expected a whole number from 1 to 100000"),
        (["--changes-per-minute", "0"], "--changes-per-minute"),
    ],
)
def test_contradictions_are_wrong_usage(run: CommandLine, words: list[str], said: str) -> None:
    ran = run("loadtest", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
