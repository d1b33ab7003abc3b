"""What both stores of the history keep, and what their readers answer."""

import threading
from dataclasses import replace

import pytest
from hyperscout.v1 import topology_pb2 as pb
from hyperscout_collector.history.causes import Cause
from hyperscout_collector.history.errors import BadHistoryRequestError, NotKeptError
from hyperscout_collector.history.store import HistorySize
from hyperscout_inference.hierarchy.conditions import ConditionFacts, with_conditions
from hyperscout_topology.events import KINDS
from hyperscout_topology.proto import timestamp
from hyperscout_topology.topology import HyperNode, Link, LinkTable, Topology
from support.any_topologies import same
from support.histories import DAY, T0, WHY, HistoryOf, S, cut, fill, told
from support.recorder import record
from support.topologies import measured, two_leaves


def test_events_are_found_by_all_their_names_and_pages_are_stable(history: HistoryOf) -> None:
    store, reader = history.opened(), None
    whole = two_leaves()
    for i in range(20):
        record(store, T0 + i * S, cut(0) if i % 2 else whole, WHY)
    reader = history.reading()
    every = told(reader)
    assert [x.id for x in every] == sorted((x.id for x in every), reverse=True)
    assert len(every) == 1 + 19 * 3  # a link, an anomaly, the generation; the first has no changes
    assert {x.cause.findings[0].node for x in every} == {"n01"}
    for name, kinds in {
        "n01": {"LinkAdded", "LinkRemoved"},
        "a01": {"LinkAdded", "LinkRemoved"},
        "n01/p1": {"LinkAdded", "LinkRemoved"},
        "n01/p1 -- leaf-a/p1": {"LinkAdded", "LinkRemoved"},
        "leaf-a/p1 -> n01/p1": {"LinkAdded", "LinkRemoved"},
        "a01:1--s1:1": {"LinkAdded", "LinkRemoved"},
        "n00": {"AnomalyAppeared", "AnomalyCleared"},
        "n00/p1 -- leaf-b/p1": set[str](),
        "absent": set[str](),
        "": set(KINDS[0:2]) | {"AnomalyAppeared", "AnomalyCleared", "GenerationPublished"},
    }.items():
        assert {x.kind for x in told(reader, about=name)} == kinds, name
        assert {
            x.kind
            for x in told(reader, about=name, net=True, since=timestamp(T0), until=timestamp(T0 + 2 * S))
        } == ({kind for kind in kinds if kind.endswith(("Removed", "Appeared"))}), name
    seen: list[int] = []
    request = pb.ListHistoryRequest(page_size=7)
    for turn in range(100):
        answer = reader.events(request)
        assert bool(answer.flaps) == (turn == 0)
        seen += [x.id for x in answer.events]
        record(store, T0 + (100 + turn) * S, cut(1) if turn % 2 else whole, WHY)  # meanwhile
        request.page_token = answer.next_page_token
        if not request.page_token:
            break
    assert seen == [x.id for x in every]
    of_link = told(reader, kinds=["LinkRemoved"], since=timestamp(T0 + 3 * S), until=timestamp(T0 + 7 * S))
    assert [x.at.ToNanoseconds() for x in of_link] == [T0 + 5 * S, T0 + 3 * S]  # since included, until not
    store.close()
    reader.close()


def test_an_event_of_many_nodes_is_found_by_each(history: HistoryOf) -> None:
    nodes = [f"n{i:02}" for i in range(20)]
    ready = with_conditions(Topology(1, (HyperNode("leaf", 1, "leaf", None, (), tuple(nodes), ()),)))
    down = with_conditions(ready, ConditionFacts(down_nodes=dict.fromkeys(nodes, "")))
    store = history.opened()
    for generation in (1, 2):
        now = replace((ready, down)[generation - 1], generation=generation)
        record(store, T0 + generation * S, now, WHY)
    reader = history.reading()
    for name in nodes:
        assert [x.hypernode for x in told(reader, about=name, kinds=["ConditionChanged"])] == ["leaf"], name
    store.close()
    reader.close()


def test_what_flaps_is_counted_most_often_first(history: HistoryOf) -> None:
    store, reader = history.opened(), None
    whole = two_leaves()
    for i in range(7):
        record(store, T0 + i * S, cut(0) if i % 2 else whole, WHY)
    record(store, T0 + 7 * S, cut(1), WHY)
    record(store, T0 + 8 * S, whole, WHY)
    reader = history.reading()
    flaps = reader.events(pb.ListHistoryRequest()).flaps
    assert [(x.what, x.changes, x.last.ToNanoseconds() - T0) for x in flaps] == [
        ("MissingLink", 6, 6 * S),
        ("Link", 6, 6 * S),
    ]
    assert [
        x.changes for x in reader.events(pb.ListHistoryRequest(about="n01", kinds=["LinkAdded"])).flaps
    ] == [3]
    late = reader.events(pb.ListHistoryRequest(since=timestamp(T0 + 5 * S)))
    assert list(late.flaps) == []
    store.close()
    reader.close()


def test_net_pages_stay_with_the_question(history: HistoryOf) -> None:
    store = history.opened()
    record(store, T0, two_leaves(), WHY)
    record(store, T0 + S, replace(two_leaves(), links=(), anomalies=()), Cause("approved"))
    reader = history.reading()
    request = pb.ListHistoryRequest(net=True, page_size=2)
    first = reader.events(request)
    record(store, T0 + 2 * S, two_leaves(), WHY)  # all is well again
    request.page_token = first.next_page_token
    second = reader.events(request)
    request.page_token = second.next_page_token
    third = reader.events(request)
    kinds = [x.kind for page in (first, second, third) for x in page.events]
    assert kinds == ["AnomalyCleared"] + ["LinkRemoved"] * 5
    assert {x.cause.kind for page in (first, second, third) for x in page.events} == {"approved"}
    assert not third.next_page_token
    assert told(reader, net=True) == []
    store.close()
    reader.close()


@pytest.mark.slow
def test_a_mass_change_is_bounded_and_what_ends_differ_is_not(
    history: HistoryOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = LinkTable.of([Link(f"a{i:04}", "1", "s1", str(i), "ib", ("lldp",)) for i in range(1500)])
    store = history.opened()
    record(store, T0, Topology(1, links=many), WHY)
    record(store, T0 + S, Topology(2, links=many[:1]), WHY)
    reader = history.reading()
    answer = reader.events(pb.ListHistoryRequest(page_size=1000, kinds=["LinkRemoved"]))
    assert len(answer.events) == 1000
    assert answer.events[0].message.startswith("500 more")
    net = pb.ListHistoryRequest(net=True, page_size=1000)
    whole = list(reader.events(net).events)
    net.page_token = reader.events(net).next_page_token
    assert len(whole) + len(reader.events(net).events) == 1499
    store.close()
    reader.close()


def test_ages_alone_make_no_event_but_are_in_the_picture(history: HistoryOf) -> None:
    store = history.opened()
    record(store, T0, measured(), WHY)
    older = replace(measured(), generation=8, tiers=())
    record(store, T0 + S, older, Cause("age"))
    reader = history.reading()
    assert [x.generation for x in told(reader)] == [7]
    assert same(reader.topology_at(T0 + S)) == same(older)
    store.close()
    reader.close()


@pytest.mark.slow
def test_what_is_too_old_goes_and_what_is_out_stays(history: HistoryOf) -> None:
    size = HistorySize()
    store = history.opened(size, days=3)
    fill(store, 240, every_ns=3600 * S)  # ten days
    end_ns = T0 + 239 * 3600 * S
    assert end_ns - 4.1 * DAY < size.oldest_ns < end_ns - 2.9 * DAY
    store.close()
    store = history.opened(size, days=3, now_ns=end_ns + 100 * DAY)
    assert store.newest is not None
    assert store.newest.generation == 239
    assert size.generations <= 25  # the last span
    store.close()


def test_a_clock_that_was_ahead_leaves_nothing_in_the_future(history: HistoryOf) -> None:
    store = history.opened()
    record(store, T0 + 100 * DAY, cut(0), WHY)
    record(store, T0 + S, cut(1), WHY)  # set back: order is kept
    store.close()
    store = history.opened(now_ns=T0 + 2 * S)
    record(store, T0 + 3 * S, cut(2), WHY)
    reader = history.reading(T0 + 3 * S)
    assert [x.at.ToNanoseconds() for x in told(reader, kinds=["GenerationPublished"])] == [
        T0 + 3 * S,
        T0 + 2 * S,
        T0 + 2 * S,
    ]
    with pytest.raises(BadHistoryRequestError, match="in the future"):
        reader.topology_at(T0 + DAY)
    store.close()
    reader.close()


@pytest.mark.slow
def test_readers_see_whole_states_while_it_is_written(history: HistoryOf) -> None:
    store = history.opened(mib=0.25)
    record(store, T0, cut(0), WHY)
    reader, stop, problems = history.reading(), threading.Event(), list[str]()

    def ask() -> None:
        while not stop.is_set():
            answer = reader.events(pb.ListHistoryRequest(page_size=50))
            ids = [x.id for x in answer.events]
            if ids != list(range(ids[0], ids[0] - len(ids), -1)) or not all(
                x.generation >= 0 for x in answer.events
            ):
                problems.append(str(ids))
            reader.topology_at(T0 + DAY * 300)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    fill(store, 300)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    store.close()
    reader.close()


def test_nothing_recorded_yet_is_said(history: HistoryOf) -> None:
    store, reader = history.opened(), history.reading()
    with pytest.raises(NotKeptError, match="no generation is recorded yet"):
        reader.topology_at(T0)
    for net in (False, True):
        answer = reader.events(pb.ListHistoryRequest(net=net, about="n"))
        assert (len(answer.events), answer.HasField("oldest")) == (0, False)
    reader.close()
    store.close()
