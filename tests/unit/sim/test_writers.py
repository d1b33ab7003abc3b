"""What is written reads back, through the project's own readers, as exactly the fabric."""

from pathlib import Path
from random import Random

import pytest
from hyperscout_agent.runtime.infiniband_tree import read_tree
from hyperscout_formats.facts.facts import LldpNeighbour
from hyperscout_formats.infiniband import ibnetdiscover
from hyperscout_formats.infiniband import sysfs as infiniband_sysfs
from hyperscout_formats.infiniband.ibnetdiscover_line import LANE_GBPS
from hyperscout_formats.lldp import frame as lldp_frame
from hyperscout_formats.lldp import lldpctl
from hyperscout_sim.fabric import shapes
from hyperscout_sim.fabric.fabric import Cable, SimFabric
from hyperscout_sim.fabric.faults import Fault, plant
from hyperscout_sim.readings import lldp, sysfs
from hyperscout_sim.readings.ibsim_net import ibsim_net
from hyperscout_sim.readings.lldp_frames import heard
from hyperscout_sim.readings.sweep_text import sweep_text, sweep_texts
from support.sweeps import SHAPES, Device, Record, read


def true_devices(fabric: SimFabric, among: set[int]) -> set[Device]:
    switches = [(x.guid, ibnetdiscover.SWITCH, x.port_count, x.description) for x in fabric.switches]
    adapters = [(x.guid, ibnetdiscover.CA, x.port_count, x.description) for x in fabric.adapters]
    return {x for x in (*switches, *adapters) if x[0] in among}


def true_records(fabric: SimFabric, among: set[int]) -> list[Record]:
    port_guid = {x.guid: x.port_guid for x in fabric.adapters}
    records = []
    for c in fabric.cables:
        for own, port, peer, peer_port in ((c.a, c.a_port, c.b, c.b_port), (c.b, c.b_port, c.a, c.a_port)):
            if own in among and (own, port) not in fabric.hidden:
                mine = port_guid[own] + port - 1 if own in port_guid else 0
                records.append((own, port, mine, peer, peer_port, 200.0))
    return sorted(records)


@pytest.mark.parametrize("shape", SHAPES)
def test_sweeps_of_all_parts_read_back_as_the_fabric(shape: str) -> None:
    fabric = SHAPES[shape]()
    texts = sweep_texts(fabric)
    parts = fabric.components()
    assert len(texts) == len(parts)
    hosts = fabric.node_map()
    for text, part in zip(texts, parts, strict=True):
        devices, records, start = read(text)
        assert devices == true_devices(fabric, part)
        assert records == true_records(fabric, part)
        assert start in part
        assert start in hosts


def test_a_hidden_record_is_missing_and_nothing_else() -> None:
    whole = shapes.clos2(2, 2, 2)
    fabric, what = plant(whole, Fault.ONE_SIDED, Random(3))
    [(guid, port)] = fabric.hidden
    _, records, _ = read(sweep_text(fabric))
    _, all_records, _ = read(sweep_text(whole))
    [hidden] = set(all_records) - set(records)
    assert hidden[:2] == (guid, port)
    assert len(records) == len(all_records) - 1
    assert {hidden[0], hidden[3]} == {what.before[0].a, what.before[0].b}


def test_a_sweep_from_an_adapter_sees_its_plane_alone() -> None:
    fabric = shapes.multi_plane(2, 2, 2, 2)
    start = fabric.find("node-0003 mlx5_1")
    assert fabric.name_of(start) == "node-0003 mlx5_1"
    with pytest.raises(KeyError, match="no device"):
        fabric.find("node-0003")
    devices, _, said = read(sweep_text(fabric, start))
    assert said == start
    names = {description for _, _, _, description in devices}
    assert "node-0001 mlx5_1" in names
    assert not any("mlx5_0" in name or "-p1-" in name for name in names)


def test_a_sweep_from_a_port_without_cable_sees_itself() -> None:
    fabric = shapes.single_rack(2)
    alone = SimFabric(fabric.name, fabric.switches, fabric.adapters, fabric.cables[1:], fabric.truth)
    devices, records, _ = read(sweep_text(alone, fabric.adapters[0].guid))
    assert [d[0] for d in devices] == [fabric.adapters[0].guid]
    assert records == []
    assert len(sweep_texts(alone)) == 1


def test_a_sweep_needs_an_adapter() -> None:
    fabric = shapes.single_rack(2)
    with pytest.raises(KeyError, match="no adapter"):
        sweep_text(fabric, fabric.switches[0].guid)
    with pytest.raises(ValueError, match="no adapter has a cable"):
        sweep_text(SimFabric("bare", fabric.switches, fabric.adapters, (), fabric.truth))


def test_equal_fabrics_give_equal_texts() -> None:
    assert sweep_text(shapes.fat_tree(4)) == sweep_text(shapes.fat_tree(4))


def test_the_storage_above_has_two_ports() -> None:
    assert max(x.port_count for x in SHAPES["storage with two ports"]().adapters) == 2


def test_the_net_file_has_both_ends_of_every_cable() -> None:
    whole = shapes.clos2(2, 2, 2)
    fabric, _ = plant(whole, Fault.ONE_SIDED, Random(3))
    assert ibsim_net(fabric) == ibsim_net(whole)


def test_the_net_file_knows_no_rate_that_ibsim_does_not() -> None:
    fabric = shapes.single_rack(2)
    fast = SimFabric(
        "fast",
        fabric.switches,
        fabric.adapters,
        tuple(c._replace(rate="4xNDR") for c in fabric.cables),
        fabric.truth,
    )
    assert b"4xNDR" in sweep_text(fast)
    assert b"NDR" not in ibsim_net(fast)
    assert ibsim_net(fast).count(b"4xHDR") == 4


# LLDP


def neighbour(fabric: SimFabric, cable: Cable) -> LldpNeighbour:
    switch = next(x for x in fabric.switches if x.guid == cable.b)
    return LldpNeighbour(
        "mac",
        lldp.mac_of(switch.guid),
        "ifname",
        f"swp{cable.b_port}",
        lldp.TTL_S,
        f"swp{cable.b_port}",
        switch.name,
        switch.description,
        (lldp.management_address(switch),),
        ("Bridge", "Router"),
    )


def test_frames_read_back_as_the_cables() -> None:
    fabric = shapes.dual_homed(2, 3, 2)
    links = [link for links in lldp.uplinks(fabric).values() for link in links]
    read_back = {(x.adapter.guid, lldp_frame.dissect(lldp.frame(x.switch, x.switch_port))) for x in links}
    hosts = fabric.node_map()
    assert read_back == {(c.a, neighbour(fabric, c)) for c in fabric.cables if c.a in hosts}


def test_a_goodbye_has_no_time_to_live() -> None:
    assert lldp_frame.dissect(lldp.frame(shapes.single_rack(1).switches[0], 1, ttl_s=0)).ttl_s == 0


def test_lldpctl_text_reads_back_as_the_cables_of_a_host() -> None:
    fabric = shapes.dual_homed(2, 3, 2)
    cables = {c.a: c for c in fabric.cables}
    for host, links in lldp.uplinks(fabric).items():
        ports, problems = lldpctl.parse(lldp.lldpctl_json0(links))
        assert problems == ()
        expected = {x.device: neighbour(fabric, cables[x.guid]) for x in fabric.adapters_of()[host]}
        assert {p.interface: p.neighbours for p in ports} == {
            "eth0": (expected["mlx5_0"],),
            "eth1": (expected["mlx5_1"],),
        }


def test_a_host_hears_its_switches_and_nothing_where_the_cable_is_out() -> None:
    fabric = shapes.dual_homed(1, 2, 1)
    [zero, one] = fabric.adapters_of()["node-0002"]
    cables = {c.a: c for c in fabric.cables}
    switches = {x.guid: x for x in fabric.switches}
    up, down = heard(switches, [(zero, cables[zero.guid]), (one, None)])
    assert (up.interface, up.carrier, up.speed_mbps) == ("eth0", True, 200_000)
    assert up.neighbours == (neighbour(fabric, cables[zero.guid]),)
    assert (down.interface, down.carrier, down.neighbours) == ("eth1", False, ())


def test_no_two_ports_have_one_mac() -> None:
    fabric = shapes.fat_tree(4)
    ends = [(c.b, c.b_port) for c in fabric.cables] + [(c.a, c.a_port) for c in fabric.cables]
    macs = {lldp.mac_of(guid, port) for guid, port in ends} | {lldp.mac_of(x.guid) for x in fabric.switches}
    assert len(macs) == len(ends) + len(fabric.switches)


# sysfs


def test_every_rate_that_a_sweep_may_contain_is_a_rate_of_a_port() -> None:
    rates = [sysfs.rate_gbps(f"4x{rate.decode()}") for rate in LANE_GBPS]
    assert rates == [10.0, 20.0, 40.0, 40.0, 56.0, 100.0, 200.0, 400.0, 800.0]


def test_the_tree_of_a_host_reads_back_as_its_ports(tmp_path: Path) -> None:
    fabric = shapes.rail_optimised(1, 2, 3, 1)
    adapters = fabric.adapters_of()["node-0002"]
    cables = {c.a: c for c in fabric.cables}
    plugged = {x: cables[x.guid] if x.device != "mlx5_1" else None for x in adapters}
    files = sysfs.tree(plugged)
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    ports, problems = infiniband_sysfs.parse(read_tree(tmp_path))
    assert problems == ()
    assert list(ports) == [sysfs.port_facts(x, cable) for x, cable in plugged.items()]
    assert [(p.state, p.rate_gbps, p.port_guid) for p in ports] == [
        ("ACTIVE", 200.0, adapters[0].port_guid),
        ("DOWN", 10.0, adapters[1].port_guid),
        ("ACTIVE", 200.0, adapters[2].port_guid),
    ]
