"""Which switches a crawl asks: breadth first, each once, inside its bounds, whatever the cables look like."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hyperscout_agent.snmp import crawl as snmp_crawl
from hyperscout_agent.snmp.crawl import CloneError, Crawl, Known, Limits
from hyperscout_agent.snmp.memory import CrawlMemory
from hyperscout_agent.snmp.tables import anonymous, may_switch
from hyperscout_formats.facts.facts import LldpNeighbour, SwitchPort, SwitchTable
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(switches=100, depth=10)
BRIDGE = ("Bridge", "Router")


@dataclass
class Box:
    """A switch of a little world. `hears`: names of others."""

    name: str
    addresses: tuple[str, ...]
    hears: tuple[str, ...] = ()
    chassis: str = ""
    tells: bool = True  # its own chassis id
    sysname: str = ""
    capabilities: tuple[str, ...] = BRIDGE
    own_addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.chassis = self.chassis or f"id-{self.name}"
        self.sysname = self.sysname or self.name


@dataclass
class World:
    boxes: dict[str, Box]
    dead: set[str] = field(default_factory=set)  # addresses
    asked: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, *boxes: Box) -> "World":
        return cls({box.name: box for box in boxes})

    def at(self, address: str) -> Box | None:
        return next((b for b in self.boxes.values() if address in (*b.addresses, *b.own_addresses)), None)

    def table(self, box: Box, address: str) -> SwitchTable:
        neighbours = tuple(
            LldpNeighbour(
                "mac",
                other.chassis,
                "ifname",
                "swp1",
                120,
                system_name=other.sysname,
                management_addresses=other.addresses,
                capabilities=other.capabilities,
            )
            for other in (self.boxes[name] for name in box.hears)
        )
        chassis = box.chassis if box.tells else f"{box.sysname}@{address}"
        problems = () if box.tells else (f"goes by {chassis}",)
        port = SwitchPort("swp1", "mac" if box.tells else "", chassis, neighbours, system_name=box.sysname)
        return SwitchTable((port,), (address, *box.own_addresses), problems)

    def run(self, crawl: Crawl, rng: Random | None = None, at_once: int = 4) -> Crawl:
        asking: list[str] = []
        while True:
            while len(asking) < at_once and (address := crawl.next()) is not None:
                asking.append(address)
                self.asked.append(address)
            if not asking:
                return crawl
            self.answer(crawl, asking.pop(rng.randrange(len(asking)) if rng else 0))

    def answer(self, crawl: Crawl, address: str) -> None:
        box = self.at(address)
        if box is None or address in self.dead:
            crawl.failed(address, "no answer")
            return
        try:
            if crawl.identified(address, box.chassis if box.tells else "", box.sysname):
                crawl.answered(address, self.table(box, address), announced=box.tells)
        except CloneError as error:
            crawl.failed(address, str(error))


def inside(address: str) -> bool:
    return address.startswith("10.")


def crawl_of(
    seeds: Iterable[str],
    *,
    limits: Limits = LIMITS,
    known: tuple[Known, ...] = (),
    resting: dict[str, str] | None = None,
) -> Crawl:
    return Crawl(seeds, inside, limits, known, resting or {})


RING = World.of(
    Box("a", ("10.0.0.1",), ("b", "d")),
    Box("b", ("10.0.0.2",), ("a", "c")),
    Box("c", ("10.0.0.3",), ("b", "d")),
    Box("d", ("10.0.0.4",), ("a", "c")),
)


def fresh(world: World, **more: object) -> World:
    return World(world.boxes, **more)  # type: ignore[arg-type]


def test_a_ring_is_walked_once() -> None:
    world = fresh(RING)
    crawl = world.run(crawl_of(["10.0.0.1"]))
    assert sorted(crawl.tables()) == ["id-a", "id-b", "id-c", "id-d"]
    assert world.asked == ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.3"]
    assert crawl.failures() == {}
    assert crawl.waiting == 0


def test_depth_is_counted_from_the_seeds() -> None:
    crawl = fresh(RING).run(crawl_of(["10.0.0.1"], limits=Limits(100, 1)))
    assert sorted(crawl.tables()) == ["id-a", "id-b", "id-d"]
    assert crawl.counts.too_deep == 2  # c is heard by two of them
    alone = fresh(RING).run(crawl_of(["10.0.0.1"], limits=Limits(100, 0)))
    assert sorted(alone.tables()) == ["id-a"]


def test_what_is_one_too_many_is_counted() -> None:
    crawl = fresh(RING).run(crawl_of(["10.0.0.1"], limits=Limits(2, 10)))
    assert len(crawl.tables()) == 2
    assert crawl.counts.left_out == 2
    assert crawl.counts.asked == 2


def test_nothing_outside_is_asked() -> None:
    world = World.of(Box("a", ("10.0.0.1",), ("b", "c")), Box("b", ("192.0.2.1",)), Box("c", ()))
    crawl = world.run(crawl_of(["10.0.0.1", "192.0.2.9"]))
    assert world.asked == ["10.0.0.1"]
    assert crawl.counts.outside == {"192.0.2.1", "192.0.2.9"}
    assert crawl.counts.without_address == 1


def test_a_dead_switch_is_named_by_its_chassis_id() -> None:
    crawl = fresh(RING, dead={"10.0.0.2"}).run(crawl_of(["10.0.0.2", "10.0.0.1"]))
    assert sorted(crawl.tables()) == ["id-a", "id-c", "id-d"]
    assert crawl.failures() == {"id-b": "10.0.0.2: no answer"}


def test_an_address_without_an_answer_is_reported_by_itself() -> None:
    crawl = World.of().run(crawl_of(["10.0.0.9"]))
    assert crawl.failures() == {"10.0.0.9": "10.0.0.9: no answer"}


def test_another_address_is_tried() -> None:
    world = World.of(
        Box("a", ("10.0.0.1",), ("b",)), Box("b", ("192.0.2.1", "10.0.1.1", "10.0.1.2", "10.0.1.3"), ())
    )
    world.dead = {"10.0.1.1"}
    crawl = world.run(crawl_of(["10.0.0.1"]))
    assert world.asked == ["10.0.0.1", "10.0.1.1", "10.0.1.2"]
    assert crawl.tables()["id-b"].addresses == ("10.0.1.2", "10.0.1.1", "10.0.1.3")
    assert crawl.failures() == {}


@pytest.mark.parametrize("at_once", [1, 4])
def test_several_addresses_are_one_switch(at_once: int) -> None:
    world = World.of(Box("a", ("10.0.0.1", "10.0.0.2", "10.0.0.3"), ()))
    crawl = world.run(crawl_of(["10.0.0.1", "10.0.0.2", "10.0.0.3"]), at_once=at_once)
    assert list(crawl.tables()) == ["id-a"]
    assert set(crawl.tables()["id-a"].addresses) == {"10.0.0.1", "10.0.0.2", "10.0.0.3"}
    assert crawl.failures() == {}


def test_when_the_first_address_gives_up_on_the_way_the_second_serves() -> None:
    crawl = crawl_of(["10.0.0.1", "10.0.0.2"])
    box = Box("a", ("10.0.0.1", "10.0.0.2"))
    world = World.of(box)
    assert (crawl.next(), crawl.next()) == ("10.0.0.1", "10.0.0.2")
    assert crawl.identified("10.0.0.1", "id-a", "a")
    assert not crawl.identified("10.0.0.2", "id-a", "a")
    crawl.failed("10.0.0.1", "in the middle of it")
    world.run(crawl)
    assert world.asked == ["10.0.0.2"]
    assert list(crawl.tables()) == ["id-a"]


def test_an_address_of_its_own_is_not_asked_again() -> None:
    """The switch names addresses that a neighbour heard of it under another chassis id."""
    world = World.of(
        Box("a", ("10.0.0.1",), ("b",), own_addresses=("10.0.0.7",)),
        Box("b", ("10.0.0.2",), ("ghost",)),
        Box("ghost", ("10.0.0.7",), chassis="port-mac"),
    )
    crawl = world.run(crawl_of(["10.0.0.1"]))
    assert world.asked == ["10.0.0.1", "10.0.0.2"]
    assert sorted(crawl.tables()) == ["id-a", "id-b"]


def test_one_name_on_two_switches_is_no_matter() -> None:
    world = World.of(
        Box("a", ("10.0.0.1",), ("b",), sysname="switch"), Box("b", ("10.0.0.2",), ("a",), sysname="switch")
    )
    crawl = world.run(crawl_of(["10.0.0.1"]))
    assert sorted(crawl.tables()) == ["id-a", "id-b"]
    assert crawl.failures() == {}


def test_a_cloned_chassis_id_is_told_with_both() -> None:
    world = World.of(
        Box("a", ("10.0.0.1",), chassis="same", sysname="leaf-01"),
        Box("b", ("10.0.0.2",), chassis="same", sysname="leaf-02"),
    )
    crawl = world.run(crawl_of(["10.0.0.1", "10.0.0.2"]))
    assert crawl.tables()["same"].ports[0].system_name == "leaf-01"
    (subject, reason), *others = crawl.failures().items()
    assert subject == "10.0.0.2"
    assert "announces chassis id same, which leaf-01 at 10.0.0.1 announces too" in reason
    assert not others


def test_of_two_clones_the_same_one_stays() -> None:
    """Also where the other answers first in the next crawl."""
    boxes = (
        Box("a", ("10.0.0.1",), chassis="same", sysname="leaf-01"),
        Box("b", ("10.0.0.2",), chassis="same", sysname="leaf-02"),
    )
    first = World.of(*boxes).run(crawl_of(["10.0.0.1", "10.0.0.2"]))
    known = first.remembered(0.0, 100.0)
    again = World.of(*boxes).run(crawl_of(["10.0.0.2", "10.0.0.1"], known=known))
    assert again.tables()["same"].ports[0].system_name == "leaf-01"
    assert list(again.failures()) == ["10.0.0.2"]


def test_a_clone_that_is_only_heard_is_told_with_the_other() -> None:
    world = World.of(
        Box("a", ("10.0.0.1",), ("b", "c")),
        Box("b", ("10.0.0.2",), chassis="same", sysname="leaf-01.example"),
        Box("c", ("10.0.0.3",), chassis="same", sysname="leaf-02"),
    )
    crawl = world.run(crawl_of(["10.0.0.1"]))
    (problem,) = crawl.tables()["same"].problems
    assert problem.startswith("neighbours also report chassis id same under the name leaf-02:")


def test_a_switch_that_was_renamed_is_no_clone() -> None:
    world = World.of(Box("a", ("10.0.0.1",), sysname="new"))
    known = (Known("id-a", "old", ("10.0.0.1",), 0),)
    crawl = world.run(crawl_of(["10.0.0.1"], known=known))
    assert list(crawl.tables()) == ["id-a"]
    assert crawl.tables()["id-a"].problems == ()


@pytest.mark.parametrize("seeds", [["10.0.0.1"], ["10.0.0.2"], ["10.0.0.1", "10.0.0.2"]])
def test_a_switch_that_tells_no_chassis_id_goes_by_the_one_that_others_hear(seeds: list[str]) -> None:
    world = World.of(Box("a", ("10.0.0.1",), ("b",)), Box("b", ("10.0.0.2",), ("a",), tells=False))
    crawl = world.run(crawl_of(seeds))
    table = crawl.tables()["id-b"]
    assert [(port.chassis_id_subtype, port.chassis_id) for port in table.ports] == [("mac", "id-b")]
    assert table.problems == (
        "it reports no chassis id: the id id-b is the one that its neighbours received over LLDP",
    )
    world.boxes["a"].hears = ()
    again = world.run(crawl_of(seeds, known=crawl.remembered(0.0, 100.0)))
    assert [(p.chassis_id_subtype, p.chassis_id) for p in again.tables()["id-b"].ports] == [("mac", "id-b")]


def test_a_switch_that_tells_no_chassis_id_is_one_switch_at_all_its_addresses() -> None:
    alone = World.of(Box("a", ("10.0.0.1", "10.0.0.2"), tells=False))
    crawl = alone.run(crawl_of(["10.0.0.1", "10.0.0.2"]))
    assert list(crawl.tables()) == ["a@10.0.0.1"]
    assert crawl.tables()["a@10.0.0.1"].addresses == ("10.0.0.1", "10.0.0.2")


def test_tables_are_compared_by_what_they_come_to_and_not_each_with_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a fabric of switches that tell no chassis id holds the agent up for minutes."""
    looked: list[SwitchTable] = []
    monkeypatch.setattr(snmp_crawl, "anonymous", lambda table: looked.append(table) or anonymous(table))
    names = [f"s{n}" for n in range(30)]
    boxes = [Box(name, (f"10.0.1.{n}",), (names[n - 1],), tells=False) for n, name in enumerate(names)]
    assert len(World.of(*boxes).run(crawl_of([box.addresses[0] for box in boxes])).tables()) == 30
    assert len(looked) == 30


def test_of_two_ways_to_a_switch_the_shorter_one_counts() -> None:
    """It waited at the depth at which it was known; a seed hears it now."""
    world = World.of(
        Box("a", ("10.0.0.1",), ("b",)), Box("b", ("10.0.0.2",), ("c",)), Box("c", ("10.0.0.3",))
    )
    known = (Known("id-b", "b", ("10.0.0.2",), 3),)
    crawl = world.run(crawl_of(["10.0.0.1"], limits=Limits(100, 3), known=known), at_once=1)
    assert sorted(crawl.tables()) == ["id-a", "id-b", "id-c"]


def test_addresses_outside_are_not_kept_for_the_next_time() -> None:
    own = ("192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "10.0.9.9")
    world = World.of(Box("a", ("10.0.0.1",), own_addresses=own))
    crawl = world.run(crawl_of(["10.0.0.1"]))
    assert [one.addresses for one in crawl.remembered(0.0, 1.0)] == [("10.0.0.1", "10.0.9.9")]


def test_a_switch_that_no_neighbour_hears_either_goes_by_what_the_reader_calls_it() -> None:
    crawl = World.of(Box("a", ("10.0.0.1",), tells=False)).run(crawl_of(["10.0.0.1"]))
    assert list(crawl.tables()) == ["a@10.0.0.1"]
    assert crawl.tables()["a@10.0.0.1"].problems == ("goes by a@10.0.0.1",)


@pytest.mark.parametrize(
    ("capabilities", "subtype", "name", "expected"),
    [
        (("Bridge",), "ifname", "x", True),
        (("Router",), "ifname", "x", True),
        (("Station",), "ifname", "x", False),
        ((), "ifname", "x", True),
        ((), "mac", "x", True),
        ((), "mac", "", False),
    ],
)
def test_which_neighbour_may_be_a_switch(
    capabilities: tuple[str, ...], subtype: str, name: str, expected: bool
) -> None:
    heard = LldpNeighbour("mac", "x", subtype, "p", 120, system_name=name, capabilities=capabilities)
    assert may_switch(heard) is expected


class TestMemory:
    def memory(self) -> CrawlMemory:
        return CrawlMemory(forget_after_s=3600.0, pause_s=30.0, max_pause_s=900.0)

    def crawl(self, memory: CrawlMemory, world: World, seeds: list[str], now_s: float) -> Crawl:
        crawl = world.run(crawl_of(seeds, known=memory.known, resting=dict(memory.resting(now_s))))
        memory.learn(crawl, now_s)
        return crawl

    def test_a_switch_that_answered_is_asked_until_it_is_forgotten(self) -> None:
        memory, world = self.memory(), fresh(RING)
        self.crawl(memory, world, ["10.0.0.1"], 0.0)
        world.dead, world.boxes = {"10.0.0.3"}, {n: Box(n, b.addresses) for n, b in RING.boxes.items()}
        for now_s in (10.0, 20.0, 3000.0):
            assert self.crawl(memory, world, ["10.0.0.1"], now_s).failures() == {
                "id-c": "10.0.0.3: no answer"
            }
        self.crawl(memory, world, ["10.0.0.1"], 10.0 + 3600.0)
        assert self.crawl(memory, world, ["10.0.0.1"], 4000.0).failures() == {}

    def test_a_switch_that_a_neighbour_hears_is_not_forgotten(self) -> None:
        memory, world = self.memory(), fresh(RING)
        self.crawl(memory, world, ["10.0.0.1"], 0.0)
        world.dead = {"10.0.0.3"}
        for now_s in (10.0, 5000.0, 10_000.0):
            assert list(self.crawl(memory, world, ["10.0.0.1"], now_s).failures()) == ["id-c"]

    def test_an_address_that_never_answered_is_asked_ever_less_and_told_all_the_time(self) -> None:
        memory, world = self.memory(), World.of()
        asked_at = []
        for now_s in range(0, 4000, 10):
            world.asked.clear()
            assert self.crawl(memory, world, ["10.0.0.9"], float(now_s)).failures() == {
                "10.0.0.9": "10.0.0.9: no answer"
            }
            if world.asked:
                asked_at.append(now_s)
        assert asked_at == [0, 30, 90, 210, 450, 930, 1830, 2730, 3630]

    def test_new_credentials_end_all_pauses(self) -> None:
        memory, world = self.memory(), World.of()
        self.crawl(memory, world, ["10.0.0.9"], 0.0)
        assert memory.resting(1.0) == {"10.0.0.9": "no answer"}
        memory.ask_all()
        assert memory.resting(1.0) == {}

    def test_depth_does_not_creep(self) -> None:
        """What was found at some depth is asked at that depth, however often it is known already."""
        names = [f"s{n}" for n in range(8)]
        line = World.of(
            *(Box(name, (f"10.0.0.{n}",), tuple(names[n + 1 : n + 2])) for n, name in enumerate(names))
        )
        memory = self.memory()
        for now_s in (0.0, 10.0, 20.0):
            crawl = line.run(crawl_of(["10.0.0.0"], limits=Limits(100, 3), known=memory.known))
            memory.learn(crawl, now_s)
            assert sorted(crawl.tables()) == ["id-s0", "id-s1", "id-s2", "id-s3"]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    count = draw(st.integers(1, 9))
    names = [f"s{n}" for n in range(count)]
    boxes = []
    for n, name in enumerate(names):
        addresses = tuple(f"10.0.{n}.{k}" for k in range(draw(st.integers(0, 3))))
        outside = ("192.0.2.1",) * draw(st.integers(0, 1))
        hears = tuple(draw(st.lists(st.sampled_from(names), max_size=4)))
        boxes.append(Box(name, outside + addresses, hears, tells=draw(st.booleans())))
    return World.of(*boxes)


@given(worlds(), st.data(), st.randoms(use_true_random=False), st.integers(1, 4))
def test_any_world_is_walked_as_far_as_it_can_be(
    world: World, data: st.DataObject, rng: Random, at_once: int
) -> None:
    every = sorted({a for box in world.boxes.values() for a in box.addresses if inside(a)})
    if not every:
        return
    seeds = data.draw(st.lists(st.sampled_from(every), min_size=1, max_size=3))
    world.dead = data.draw(st.sets(st.sampled_from(every)))
    crawl = world.run(crawl_of(seeds), rng, at_once)
    assert len(world.asked) == len(set(world.asked))
    assert all(map(inside, world.asked))
    # The addresses that can be reached: by hand.
    alive = {n for n, b in world.boxes.items() if any(inside(a) and a not in world.dead for a in b.addresses)}
    seeded = {
        n for n, b in world.boxes.items() if any(s in b.addresses and s not in world.dead for s in seeds)
    }
    reached = set()
    edge = seeded
    while edge:
        reached |= edge
        edge = {other for name in edge for other in world.boxes[name].hears if other in alive} - reached
    assert {table.ports[0].system_name for table in crawl.tables().values()} == reached
    assert len(crawl.tables()) == len(reached)
    assert crawl.waiting == 0
    for table in crawl.tables().values():
        assert table.ports[0].chassis_id == world.boxes[table.ports[0].system_name].chassis or (
            not world.boxes[table.ports[0].system_name].tells
        )
    # And once more, with what is known: the same.
    again = fresh(world, dead=world.dead).run(
        crawl_of(seeds, known=crawl.remembered(0.0, 10.0)), rng, at_once
    )
    assert again.tables().keys() == crawl.tables().keys()
