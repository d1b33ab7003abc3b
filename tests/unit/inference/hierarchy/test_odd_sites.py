"""Sites of several designs below the same spines: what is healthy, and what is missed beside it."""

from dataclasses import replace

from hyperscout_sim.fabric.build import Builder
from hyperscout_sim.fabric.fabric import SimFabric
from support.inference import inferred


def dead(fabric: SimFabric, switch: str) -> SimFabric:
    """The fabric without a switch."""
    guid = fabric.find(switch)
    return replace(
        fabric,
        switches=tuple(s for s in fabric.switches if s.guid != guid),
        cables=tuple(c for c in fabric.cables if guid not in (c.a, c.b)),
    )


def test_a_missing_rail_is_found_beside_more_racks_of_single_rail_hosts() -> None:
    build = Builder("gpu-and-cpu", 0)
    spines = build.switches("spine", 2, 2)
    for unit in range(2):
        rails = [build.switch(f"gpu-{unit}-rail-{n}", 1) for n in range(8)]
        build.mesh(rails, spines)
        for n in range(6):
            build.host(f"gpu-{unit}{n}", rails)
    for rack in range(3):
        leaf = build.switch(f"cpu-{rack}", 1)
        build.mesh([leaf], spines)
        for n in range(8):
            build.host(f"cpu-{rack}{n}", [leaf])
    fabric = build.finish()
    assert inferred(fabric).anomalies == ()
    (found,) = inferred(dead(fabric, "gpu-1-rail-7")).anomalies
    assert (found.kind, found.confidence) == ("MissingSwitch", 0.9)
    assert found.message.partition(": ")[2].startswith("all 6 hosts of the domain, such as gpu-10,")
