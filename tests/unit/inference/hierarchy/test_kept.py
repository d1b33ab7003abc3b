"""What inference keeps from one inference to the next changes no result."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hyperscout_collector.decisions.publication.generations import Generations, GenerationSettings
from hyperscout_formats.facts.facts import Gpu, InfinibandPort, LldpPort, NvlinkFabric
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy import infer, infer_without_conditions
from hyperscout_inference.hierarchy.conditions import ConditionFacts
from hyperscout_inference.hierarchy.fuse import fuse
from hyperscout_runtime.units import NS
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.nvlink import cluster_uuid, dead_link, in_progress, nvl72_tray, wrong_clique
from hyperscout_topology.memo import Followed
from hyperscout_topology.objects import to_json
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.ethernet import heard_by
from support.examples import examples
from support.inference import own_ports, sweep, without, without_switch

FABRIC = shapes.clos2(4, 4, 2, 2)
HOSTS = FABRIC.hosts
CABLES = [cable for cable in FABRIC.cables if cable.a in FABRIC.node_map()]
OTHER = shapes.clos2(2, 3, 1, 1)


def later(before: Followed[Any], now: dict[str, Any]) -> Followed[Any]:
    """The same values as `now`."""
    nodes = before.keys() | now.keys()
    return before.after({x: now.get(x) for x in nodes if before.get(x) is not now.get(x)})


@dataclass(slots=True)
class World:
    """The present evidence. Reports that do not change stay the same objects."""

    ports: dict[str, tuple[InfinibandPort, ...]] = field(
        default_factory=lambda: {host: own_ports(FABRIC, host) for host in HOSTS}
    )
    heard: dict[str, tuple[LldpPort, ...]] = field(default_factory=lambda: dict(heard_by(FABRIC, HOSTS)))
    sweeps: tuple[SweepSeen, ...] = (replace(sweep(FABRIC), observed_at_ns=1),)
    silent: frozenset[str] = frozenset()
    node_map: dict[int, str] = field(default_factory=dict)
    up_ns: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    cluster: frozenset[str] | None = None
    gpus: dict[str, tuple[Gpu, ...]] = field(default_factory=dict)
    followed: tuple[Followed[Any], ...] = (Followed(), Followed(), Followed(), Followed())

    def inputs(self) -> FabricInputs:
        """The evidence, which says how it differs from the last one."""
        now: tuple[dict[str, Any], ...] = self.heard, self.ports, self.up_ns, self.gpus
        self.followed = tuple(map(later, self.followed, now))
        heard, ports, up_ns, gpus = self.followed
        at_ns = dict.fromkeys(self.ports, 2)
        return FabricInputs(
            self.sweeps,
            heard,
            ports,
            at_ns,
            up_ns,
            self.node_map,
            gpus,
            silent=self.silent,
        )


def goes_down(world: World, host: str, at: int) -> None:
    mine = [cable for cable in CABLES if FABRIC.node_map()[cable.a] == host]
    world.ports[host] = own_ports(FABRIC, host, mine[at % len(mine)])


def loses_carrier(world: World, host: str, at: int) -> None:
    ports = list(world.heard.get(host, ()))
    if ports:
        ports[at % len(ports)] = replace(ports[at % len(ports)], carrier=False, neighbours=())
    world.heard[host] = tuple(ports)


def is_back(world: World, host: str, at: int) -> None:
    """Some of its ports came up since the sweep."""
    world.ports[host] = own_ports(FABRIC, host)
    world.up_ns[host] = {(x.node_guid, x.port): (at + i) % 3 * NS for i, x in enumerate(world.ports[host])}
    world.heard |= heard_by(FABRIC, [host])


def is_gone(world: World, host: str, at: int) -> None:
    world.ports.pop(host, None)
    world.heard.pop(host, None)


def is_silent(world: World, host: str, at: int) -> None:
    world.silent ^= {host}


def claims_anothers(world: World, host: str, at: int) -> None:
    world.ports[host] = (*own_ports(FABRIC, host), *own_ports(FABRIC, HOSTS[at % len(HOSTS)]))


def is_mapped(world: World, host: str, at: int) -> None:
    world.node_map = {**world.node_map, CABLES[at % len(CABLES)].a: host}


def is_swept(world: World, host: str, at: int) -> None:
    fabric = without(FABRIC, FABRIC.cables[at % len(FABRIC.cables)]) if at % 3 else FABRIC
    world.sweeps = (replace(sweep(fabric), observed_at_ns=1 + at % 3),)


def loses_a_switch(world: World, host: str, at: int) -> None:
    fabric = without_switch(FABRIC, FABRIC.switches[at % len(FABRIC.switches)].guid)
    world.sweeps = (replace(sweep(fabric), observed_at_ns=1 + at % 3),)


def is_not_swept(world: World, host: str, at: int) -> None:
    """Only the Ethernet side is known."""
    world.sweeps = ()


def is_slow(world: World, host: str, at: int) -> None:
    ports = list(world.heard.get(host, ()))
    if ports:
        ports[at % len(ports)] = replace(ports[at % len(ports)], speed_mbps=(100_000, 200_000)[at % 2])
    world.heard[host] = tuple(ports)


def has_gpus(world: World, host: str, at: int) -> None:
    """They are nearest to one or two NICs, of InfiniBand or of Ethernet, or they are gone."""
    nics = ("mlx5_0", "eth0", "mlx5_1", "eth1")[at % 4 :][: 1 + at % 2]
    uuid = f"GPU-{HOSTS.index(host):08x}-0000-0000-0000-000000000000"
    gpus = (Gpu(uuid, ("H200", "B200")[at % 7 == 0], "0000:01:00.0", nearest_nics=nics),)
    world.gpus[host] = gpus if at % 5 else ()


def all_have_gpus(world: World, host: str, at: int) -> None:
    for one in HOSTS:
        has_gpus(world, one, at)


def are_in_racks(world: World, host: str, at: int) -> None:
    """All hosts have GPUs in NVLink domains, which are those of their leaves or cross them."""
    for place, one in enumerate(HOSTS):
        world.gpus[one] = nvl72_tray(one, cluster_uuid(f"rack-{(place + at % 2) // (2 + at % 4)}"))


def is_in_another_rack(world: World, host: str, at: int) -> None:
    """Its GPUs are in another NVLink domain, or one of them is, or none is in any."""
    gpus = nvl72_tray(host, cluster_uuid(f"rack-{at % 5}"))
    world.gpus[host] = (gpus, wrong_clique(gpus, at % 4, 1), in_progress(gpus))[at % 3]


def loses_an_nvlink(world: World, host: str, at: int) -> None:
    world.gpus[host] = dead_link(world.gpus.get(host, ()), at % 4, at % 18)


def hears_others(world: World, host: str, at: int) -> None:
    """Its cables lead to the switches of another host, or to a switch with another name or a taken id."""
    ports = world.heard.get(HOSTS[at % len(HOSTS)], ())
    others = (
        {},
        {"system_name": "leaf"},
        {"chassis_id": f"{CABLES[at % len(CABLES)].a:016x}"},
        {"chassis_id": HOSTS[0]},
    )
    heard = [tuple(replace(x, **others[at % 4]) for x in port.neighbours) for port in ports]
    world.heard[host] = tuple(replace(port, neighbours=x) for port, x in zip(ports, heard, strict=True))


def is_renamed(world: World, host: str, at: int) -> None:
    """Its agent reports under another name, perhaps that of another host."""
    name = ("a", "zz", HOSTS[at % len(HOSTS)])[at % 3]
    all_reports: tuple[dict[str, Any], ...] = world.heard, world.ports, world.gpus
    for reports in all_reports:
        if host in reports:
            reports[name] = reports.pop(host)


def leaves(world: World, host: str, at: int) -> None:
    """The cluster's list of nodes is another."""
    world.cluster = None if at % 3 == 0 else frozenset(HOSTS) - {host}


CHANGES: list[Callable[[World, str, int], None]] = [
    goes_down,
    loses_carrier,
    is_back,
    is_gone,
    is_silent,
    claims_anothers,
    is_mapped,
    is_swept,
    loses_a_switch,
    is_not_swept,
    is_slow,
    has_gpus,
    all_have_gpus,
    are_in_racks,
    is_in_another_rack,
    loses_an_nvlink,
    hears_others,
    is_renamed,
    leaves,
]


def _elsewhere() -> FabricInputs:
    """The evidence of another cluster, with GPUs, from which every step infers something else."""
    fabric = NvlinkFabric("completed", cluster_uuid=cluster_uuid("elsewhere"), clique_id=1)
    gpus = {
        host: (
            Gpu(
                f"GPU-{i:08x}-0000-0000-0000-00000000000f",
                "A100",
                "0000:09:00.0",
                nearest_nics=("eth0",),
                fabric=fabric if i < 3 else None,
            ),
        )
        for i, host in enumerate(OTHER.hosts)
    }
    return FabricInputs(sweeps=(sweep(OTHER),), lldp=heard_by(OTHER, OTHER.hosts), gpus=gpus)


def replace_what_is_kept() -> Topology:
    """Infer from other evidence, also after a published topology of which links are lost."""
    inputs = _elsewhere()
    published = infer(inputs)
    host = OTHER.hosts[0]
    return infer(
        replace(inputs, lldp={x: ports for x, ports in inputs.lldp.items() if x != host}), previous=published
    )


@given(st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from(HOSTS), st.integers(0, 50)), max_size=8))
@examples(4)
def test_what_is_kept_changes_no_result(changes: list[tuple[Callable[..., None], str, int]]) -> None:
    world = World()
    before: Topology | None = None
    for change, host, at in [(is_back, HOSTS[0], 0), *changes]:
        change(world, host, at)
        options = InferOptions(world.cluster)
        after = infer(world.inputs(), options, before)
        warm = replace(after, links=tuple(after.links))
        replace_what_is_kept()
        cold = infer(world.inputs(), options, before)
        assert replace(cold, links=tuple(cold.links)) == warm
        before = after


def test_a_port_that_is_back_is_not_down() -> None:
    world, host = World(), HOSTS[0]
    goes_down(world, host, 0)
    loses_carrier(world, host, 0)
    net = fuse(world.inputs(), InferOptions())
    assert {name for name, *_ in net.down_ports} == {name for name, *_ in net.dark_ports} == {host}
    is_back(world, host, 0)
    net = fuse(world.inputs(), InferOptions())
    assert (net.down_ports, net.dark_ports) == (frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Turn:
    """A change of the evidence, what else is known then, and how long nothing happens after it."""

    change: Callable[[World, str, int], None]
    host: str
    at: int
    down: frozenset[str]
    stale: frozenset[str]
    failing: str
    is_repeat: bool
    wait_s: int

    def facts(self, published: Topology | None) -> ConditionFacts:
        switches = published.switches[self.at % 5 : self.at % 7] if published is not None else ()
        return ConditionFacts(
            dict.fromkeys(self.down, "cordoned"),
            dict.fromkeys(self.stale, self.at * NS),
            {switch.id: self.at * NS for switch in switches},
            self.failing,
        )


FEW_HOSTS = st.frozensets(st.sampled_from(HOSTS), max_size=2)
TURNS = st.builds(
    Turn,
    st.sampled_from(CHANGES),
    st.sampled_from(HOSTS),
    st.integers(0, 50),
    FEW_HOSTS,
    FEW_HOSTS,
    st.sampled_from(["", "", "inference fails"]),
    st.booleans(),
    st.sampled_from([0, 1, 7, 40, 700]),
)


@given(st.lists(TURNS, max_size=8))
@examples(1)
def test_what_is_kept_changes_nothing_that_is_published(turns: list[Turn]) -> None:
    """Nor does it matter that the offered HyperNodes have no conditions yet."""
    world = World()
    now_ns = 1_767_225_600 * NS
    warm, cold = (Generations(GenerationSettings(), None, now_ns) for _ in range(2))
    for turn in turns:
        turn.change(world, turn.host, turn.at)
        inputs, options = world.inputs(), InferOptions(world.cluster, latency_places=bool(turn.at % 2))
        facts, before = turn.facts(warm.published), warm.published
        is_inferred = before is None or not turn.is_repeat
        offered = before if before and not is_inferred else infer_without_conditions(inputs, options, before)
        found = [warm.offer(offered, now_ns, facts, is_inferred=is_inferred)]
        Generations(GenerationSettings(), None, now_ns).offer(replace_what_is_kept(), now_ns)
        before = cold.published
        offered = before if before and not is_inferred else infer(inputs, options, before)
        expected = [cold.offer(offered, now_ns, facts, is_inferred=is_inferred)]
        now_ns += turn.wait_s * NS
        found.append(warm.tick(now_ns))
        expected.append(cold.tick(now_ns))
        for one, other in zip(found, expected, strict=True):
            assert (one.held, one.wake_at_ns) == (other.held, other.wake_at_ns)
            assert [*map(to_json, filter(None, [one.publish]))] == [
                *map(to_json, filter(None, [other.publish]))
            ]
