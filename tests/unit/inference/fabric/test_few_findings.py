"""A sweep whose cables contradict each other causes few findings, however many the cables are."""

from dataclasses import replace
from itertools import permutations

import pytest
from hyperscout_formats.infiniband.ibnetdiscover import parse
from hyperscout_inference.fabric.few_findings import MOST, few_findings
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.hierarchy.fuse import fuse
from hyperscout_sim.fabric import shapes
from hyperscout_sim.readings.sweep_text import sweep_text
from hyperscout_topology.topology import Anomaly, Endpoint

PORTS = 20
HONEST = shapes.clos2(3, 4, 2)


def contradictory(switches: int, first_guid: int = 0xBAD << 32) -> bytes:
    """A sweep of switches in which port p leads to port p of the switch that is p further on, which leads on,
    too: each port is in two cables, and neither is reported by both ends."""
    lines = ["# Topology file"]
    for i in range(switches):
        guid = first_guid + i
        lines += ["", f"switchguid=0x{guid:x}({guid:x})", f'Switch\t{PORTS} "S-{guid:016x}"\t\t# "sw{i}"']
        for port in range(1, PORTS + 1):
            peer = first_guid + (i + port) % switches
            lines.append(f'[{port}]\t"S-{peer:016x}"[{port}]\t\t# "sw" lid 1 4xNDR')
    return "\n".join(lines).encode()


def findings(*sweeps: SweepSeen) -> list[Anomaly]:
    found = fuse(FabricInputs(sweeps=sweeps), InferOptions()).anomalies
    assert {x.kind for x in found} <= {"SourcesDisagree"}
    return list(found)


def test_each_contradiction_is_one_finding_where_they_are_few() -> None:
    found = findings(SweepSeen(parse(contradictory(3)), "ibnetdiscover"))
    assert len({(x.subject, x.peer) for x in found}) == len(found) > PORTS
    assert all(x.peer is not None for x in found)


@pytest.mark.parametrize("switches", [50, 200])
def test_the_findings_of_a_fabric_do_not_grow_with_its_contradictions(switches: int) -> None:
    """Each of the records is a cable that gives way or one without an answer."""
    found = findings(SweepSeen(parse(contradictory(switches))))
    assert len(found) == 2 * (MOST + 1)
    more = [x.message for x in found if x.peer is None]
    assert len(more) == 2
    left_out = sum(int(text.partition(" ")[0]) for text in more)
    assert left_out == switches * PORTS - 2 * MOST


def test_the_findings_of_other_fabrics_stay_exact() -> None:
    cable = HONEST.cables[0]
    lost = replace(HONEST, hidden=frozenset([(cable.b, cable.b_port)]))
    alone = findings(SweepSeen(parse(sweep_text(lost))))
    assert len(alone) == 1
    both = SweepSeen(parse(sweep_text(lost))), SweepSeen(parse(contradictory(50, 1)), observed_at_ns=2)
    for sweeps in permutations(both):
        assert alone[0] in findings(*sweeps)


def test_the_order_of_the_sweeps_does_not_matter() -> None:
    sweeps = [
        SweepSeen(parse(text), observed_at_ns=i)
        for i, text in enumerate((sweep_text(HONEST), contradictory(50), contradictory(60, 1)))
    ]
    first, *others = (findings(*order) for order in permutations(sweeps))
    assert all(sorted(map(repr, other)) == sorted(map(repr, first)) for other in others)


def test_a_manager_that_no_sweep_confirms_causes_few_findings() -> None:
    lonely = b"\n".join(line for line in contradictory(50).split(b"\n") if not line.startswith(b"["))
    found = findings(
        SweepSeen(parse(contradictory(50)), "ufm", observed_at_ns=2),
        SweepSeen(parse(lonely), observed_at_ns=1),
    )
    assert len(found) == MOST + 1
    assert found[-1].message.startswith("900 more cables of this fabric are reported by a manager")


def test_the_number_of_the_others_is_of_their_own_fabric() -> None:
    def finding(i: int) -> Anomaly:
        end = Endpoint(f"{i:016x}", f"sw{i}", "1")
        return Anomaly("SourcesDisagree", end, end, None, ("ibnetdiscover",), 0.9, f"cable {i}")

    fabric = [i % 2 for i in range(2 * MOST + 5)]
    found = few_findings(range(len(fabric)), fabric.__getitem__, finding, "are wrong")
    assert [x.message for x in found[: 2 * MOST]] == [f"cable {i}" for i in range(2 * MOST)]
    assert [x.message for x in found[2 * MOST :]] == [
        f"3 more cables are wrong, the first at sw{2 * MOST}/p1",
        f"2 more cables are wrong, the first at sw{2 * MOST + 1}/p1",
    ]
    assert [x.peer for x in found[2 * MOST :]] == [None, None]
