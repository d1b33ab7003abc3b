"""An Ethernet fabric of two tiers, and what one reporter can report of it falsely over LLDP."""

from collections.abc import Iterable

from hyperscout_formats.facts.facts import LldpNeighbour, LldpPort
from hyperscout_inference.fabric.inputs import InferOptions
from hypothesis import strategies as st

from support.switched import Wiring, chassis, clos, mac

NAMES = st.sampled_from(["leaf-1a", "leaf-2a", "spine-1", "spine-2", "zzz", ""])
WIRING = clos(units=3, hosts=4, spines=2, rails=1)
HOSTS = [f"h{unit}{i}" for unit in (1, 2, 3) for i in (1, 2, 3, 4)]
SWITCHES = ["leaf-1a", "leaf-2a", "leaf-3a", "spine-1", "spine-2"]
INVENTED = "02:00:00:00:00:77"
ALL = Wiring(WIRING)
NODES = InferOptions(cluster_nodes=frozenset(HOSTS))
PORTS = st.sampled_from([f"swp{i}" for i in (1, 2, 3, 9, 31, 32)])
# A chassis id is any text: it can be the name of a host.
CHASSIS = st.sampled_from([*(chassis(name) for name in SWITCHES), INVENTED, *HOSTS[::5]])
NAMESAKES = {f"{host} (2)" for host in HOSTS}


@st.composite
def any_neighbour(draw: st.DrawFn) -> LldpNeighbour:
    return LldpNeighbour(
        "mac",
        draw(CHASSIS),
        "ifname",
        draw(PORTS),
        120,
        system_name=draw(NAMES),
        capabilities=draw(st.sampled_from([("Bridge", "Router"), ("Station",), ()])),
    )


def free_port(switch: str) -> LldpNeighbour:
    """What a port hears that is plugged into a free port of a switch; `switch` may be invented."""
    names = {"system_name": switch, "capabilities": ("Bridge", "Router")}
    return LldpNeighbour("mac", chassis(switch), "ifname", "swp99", 120, **names)


def at_port(end: str) -> LldpNeighbour:
    """What a port hears that is plugged into a switch port: "leaf-1a/swp77"."""
    switch, port = end.split("/")
    return LldpNeighbour("mac", chassis(switch), "ifname", port, 120, capabilities=("Bridge",))


def evil_ports(host: str, heard: Iterable[LldpNeighbour]) -> tuple[LldpPort, ...]:
    """Ports of a host that hear these neighbours, one each."""
    names = enumerate(heard)
    return tuple(LldpPort(f"evil{i}", (x,), mac((host, f"evil{i}")), True, 100_000) for i, x in names)
