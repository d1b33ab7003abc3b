"""What `ethernet` keeps of earlier evidence does not change its results."""

from dataclasses import fields, replace
from itertools import chain
from unittest.mock import patch

import numpy as np
from hyperscout_formats.facts.facts import Gpu, LldpNeighbour, LldpPort
from hyperscout_formats.text.host_list import natural_key
from hyperscout_inference.ethernet import host_reports
from hyperscout_inference.ethernet.dpus import dpus_of
from hyperscout_inference.ethernet.fusion import EthernetPart, ethernet
from hyperscout_inference.ethernet.host_cables import Column, HostCable, HostCables, KeptCables
from hyperscout_inference.ethernet.switch_reports import SwitchReports
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions
from hyperscout_inference.fabric.part import Part
from hyperscout_inference.hierarchy import infer
from hyperscout_topology.topology import Topology
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.lldp_lies import CHASSIS, HOSTS, NAMES, SWITCHES, WIRING, any_neighbour
from support.switched import Wiring, chassis, roce

FULL = Wiring(WIRING).inputs()
ELSEWHERE = replace(
    Wiring(["leaf-9/swp1 x1/eth0"]).inputs(),
    gpus={"x1": (Gpu("GPU-0", "A100", "0000:09:00.0", nearest_nics=("mlx5_9",)),)},
    infiniband={"x1": (roce("x1", "mlx5_9", "eth0"),)},
)
HOST = st.sampled_from(HOSTS)
PUBLISHED = infer(FULL)


@st.composite
def dpu(draw: st.DrawFn) -> LldpNeighbour:
    return LldpNeighbour(
        "mac",
        draw(st.sampled_from(["0c:42:a1:00:00:01", "0c:42:a1:00:00:02", chassis(SWITCHES[0])])),
        "ifname",
        draw(st.sampled_from(["pf0hpf", "p0"])),
        120,
        system_description=draw(st.sampled_from(["", "Ubuntu 22.04 BlueField"])),
        capabilities=draw(st.sampled_from([("Bridge",), ("Bridge", "Station")])),
    )


@st.composite
def lldp_port(draw: st.DrawFn) -> LldpPort:
    heard = draw(st.lists(any_neighbour() | dpu(), max_size=2))
    interface = draw(st.sampled_from(["eth0", "eth1"]))
    speed_mbps = draw(st.sampled_from([0, 1000, 100_000, 400_000]))
    return LldpPort(interface, tuple(heard), "", draw(st.integers(0, 3)) > 0, speed_mbps)


PORTS = st.lists(lldp_port(), max_size=3).map(tuple)


@st.composite
def next_inputs(draw: st.DrawFn, now: FabricInputs) -> FabricInputs:
    """Evidence in which few reports are others than in `now`."""
    lldp, silent = dict(now.lldp), set(now.silent)
    switch_ports, gpus, infiniband = dict(now.switch_ports), dict(now.gpus), dict(now.infiniband)
    for host in draw(st.lists(HOST, max_size=3)):
        changes = ["down", "again", "returned", "gone", "renamed", "silent", "gpus", "no gpus", "roce"]
        what = draw(st.sampled_from(["any"] * 3 + changes))
        match what:
            case "down":
                lldp[host] = tuple(replace(x, neighbours=(), carrier=False) for x in lldp.get(host, ()))
            case "again":  # an equal report
                lldp[host] = (*lldp.get(host, ()),)
            case "returned":
                lldp[host] = FULL.lldp[host]
            case "any":
                lldp[host] = draw(PORTS)
            case "gone":
                lldp.pop(host, None)
            case "renamed":
                lldp[draw(st.sampled_from(["a", "zz", *HOSTS]))] = lldp.pop(host, ())
            case "silent":
                silent ^= {host}
            case "gpus":
                nics = draw(st.lists(st.sampled_from(["eth0", "eth1", "mlx5_0"]), max_size=2))
                model = draw(st.sampled_from(["H200", "B200"]))
                gpus[host] = (Gpu(f"GPU-{host}", model, "0000:01:00.0", nearest_nics=tuple(nics)),)
            case "no gpus":
                gpus.pop(host, None)
            case "roce":
                device, interface = (
                    draw(st.sampled_from(["mlx5_0", "mlx5_1"])),
                    draw(st.sampled_from(["eth0", "eth1"])),
                )
                infiniband[host] = (roce(host, device, interface),)
    if draw(st.booleans()):  # another name of a switch
        switch, name = chassis(draw(st.sampled_from(SWITCHES))), draw(NAMES)
        for host in draw(st.lists(HOST, max_size=12)):
            lldp[host] = tuple(_named(port, switch, name) for port in lldp.get(host, ()))
    if draw(st.integers(0, 4)) == 0:
        reporter = draw(st.sampled_from([*FULL.switch_ports]))
        if switch_ports.pop(reporter, None) is None:
            switch_ports[reporter] = FULL.switch_ports[reporter]
    return replace(
        now,
        lldp=lldp,
        silent=frozenset(silent),
        switch_ports=switch_ports,
        gpus=gpus,
        infiniband=infiniband,
    )


def _named(port: LldpPort, switch: str, name: str) -> LldpPort:
    heard = (replace(x, system_name=name) if x.chassis_id == switch else x for x in port.neighbours)
    return replace(port, neighbours=tuple(heard))


@st.composite
def evidence(draw: st.DrawFn) -> list[FabricInputs]:
    """One after the other; a report that stays is the same object."""
    found = [replace(FULL, switch_ports={})]
    for _ in range(draw(st.integers(1, 6))):
        found.append(draw(next_inputs(found[-1])))
    return found


def exactly(found: object) -> object:
    """All that is in a result, with types and order."""
    if isinstance(found, np.ndarray):
        return str(found.dtype), found.tolist()
    if isinstance(found, dict):
        return list(found.items())
    if isinstance(found, EthernetPart):
        return [exactly(x) for x in found]
    if isinstance(found, Part | HostCables | Column):
        return {x.name: exactly(getattr(found, x.name)) for x in fields(found)}
    return found


@examples(3)
@given(evidence(), st.sampled_from([None, PUBLISHED]), st.sampled_from([None, "eth1"]))
def test_results_are_those_of_a_new_process(
    inputs: list[FabricInputs], previous: Topology | None, pattern: str | None
) -> None:
    options = InferOptions(compute_ports=pattern)
    warm = [ethernet(one, options, previous) for one in inputs]
    for one, found in zip(inputs, warm, strict=True):
        # No report is the same object as an earlier one.
        copied = replace(one, lldp={node: (*ports,) for node, ports in one.lldp.items()})
        ethernet(ELSEWHERE, InferOptions())  # replaces what is kept
        assert exactly(found) == exactly(ethernet(copied, options, previous))


@examples(10)
@given(
    st.dictionaries(HOST, PORTS, min_size=1, max_size=4),
    st.frozensets(CHASSIS, min_size=4) | st.just(frozenset()),
)
def test_kept_cables_are_those_of_the_reports(
    lldp: dict[str, tuple[LldpPort, ...]], own: frozenset[str]
) -> None:
    """Although switches report themselves, and although there are DPUs."""
    of_nodes = host_reports.reports_of(lldp)
    dpus = dpus_of([node.dpus for node in of_nodes.values()], own)
    inputs, reports = FabricInputs(lldp=lldp), SwitchReports(own=own)
    assert host_reports.host_reports(of_nodes, inputs, reports, dpus).cables.rows == [
        cable
        for node, ports in sorted(lldp.items())
        for cable in host_reports._cables(node, ports, own, dpus)
    ]


TEXT = st.sampled_from(["p1", "p2", "p10", "a", "b", ""])
CABLE = st.builds(
    HostCable,
    TEXT,
    TEXT,
    TEXT,
    TEXT,
    st.sampled_from([0, 1000]),
    st.sampled_from([("lldp",), ("lldp", "switch")]),
    st.sampled_from(["", "doubt"]),
    st.booleans(),
    st.integers(0, 4),
    TEXT,
)


@examples(3)
@given(st.lists(CABLE, max_size=12), st.data())
def test_columns_are_those_of_the_rows(pool: list[HostCable], data: st.DataObject) -> None:
    kept = KeptCables()
    some = st.lists(st.sampled_from(pool), max_size=4) if pool else st.just([])
    of_hosts: dict[str, tuple[HostCable, ...]] = {}
    for _ in range(4):
        others = data.draw(st.lists(TEXT, max_size=2))  # other hosts
        of_hosts = {
            host: of_hosts[host] for host in of_hosts if host not in others or data.draw(st.booleans())
        }
        changed = {*others, *(host for host in of_hosts if data.draw(st.booleans()))}
        more = {host: tuple(x._replace(host=host) for x in data.draw(some)) for host in sorted(changed)}
        of_hosts = {**of_hosts, **more}
        rows = [*chain.from_iterable(of_hosts[host] for host in sorted(of_hosts))]
        found = kept(of_hosts)
        assert exactly(found) == exactly(KeptCables()(of_hosts))
        at = [found.host, found.chassis, found.sources, found.heard]
        columns = [[column.values[i] for i in column.at.tolist()] for column in at]
        assert list(zip(*columns, strict=True)) == [(x.host, x.chassis, x.sources, x.heard) for x in rows]
        texts = [found.texts.values[i] for i in found.texts.at.tolist()]
        assert texts == [*(x.interface for x in rows), *(x.port for x in rows)]
        assert found.texts.values == tuple(sorted(set(texts), key=natural_key))
        numbers = (found.speed_mbps, found.kind, found.shapes, found.noted)
        assert list(zip(*(x.tolist() for x in numbers), strict=True)) == [
            (x.speed_mbps, x.kind, x.shapes, bool(x.note)) for x in rows
        ]


def test_one_changed_report_is_worked_on() -> None:
    inputs = replace(FULL, switch_ports={})
    ethernet(inputs, InferOptions())
    host = HOSTS[0]
    first, *others = inputs.lldp[host]
    changed = replace(inputs, lldp={**inputs.lldp, host: (replace(first, speed_mbps=1), *others)})
    with patch.object(host_reports, "_switch_on", wraps=host_reports._switch_on) as seen:
        ethernet(changed, InferOptions())
    assert [call.args[0] for call in seen.call_args_list] == [*changed.lldp[host]]
