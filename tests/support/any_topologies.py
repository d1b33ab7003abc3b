"""Topologies of any kind, for hypothesis: small, and much alike."""

from dataclasses import replace

from hyperscout_topology.topology import Adapter, Anomaly, Endpoint, Link, LinkTable, Topology
from hypothesis import strategies as st

from support.builders import anomaly
from support.topologies import SINCE_NS, leaves, measured, two_leaves


def same(topology: Topology) -> Topology:
    """In one order: links and adapters have none of their own."""
    return replace(topology, links=tuple(sorted(topology.links)), adapters=tuple(sorted(topology.adapters)))


def lost_cable(i: int, message: str = "gone") -> Anomaly:
    """The cable of host `i` to leaf-a is missing."""
    ends = Endpoint(f"a{i:02}", f"n{i:02}", "1"), Endpoint("s1", "leaf-a", str(i))
    return anomaly(
        "MissingLink", *ends, sources=("lldp",), message=message, hypernode="leaf-a", since_ns=SINCE_NS
    )


ENDS = st.tuples(st.sampled_from(["a", "b", "s1", "s2"]), st.sampled_from(["1", "2"]))
LINKS = st.builds(
    lambda a, b, fabric, sources, note, rate: Link(*a, *b, fabric, sources, note, *rate),
    ENDS,
    ENDS,
    st.sampled_from(["ib", "eth"]),
    st.sampled_from([("lldp",), ("lldp", "snmp")]),
    st.sampled_from(["", "?"]),
    st.sampled_from([(), (200.0, 4), (2.5, 1)]),
)
TOPOLOGIES = st.builds(
    Topology,
    st.integers(1, 9),
    st.sampled_from([h.hypernodes for h in (two_leaves(), measured(), leaves(("n1",)), leaves())]),
    st.sampled_from([two_leaves().switches, two_leaves().switches[:1], ()]),
    st.lists(
        st.builds(Adapter, st.sampled_from("abc"), st.sampled_from(["n1", "n2"]), st.just("x")),
        max_size=3,
        unique=True,
    ),
    st.lists(LINKS, max_size=6, unique=True).map(LinkTable.of),
    st.lists(st.integers(0, 9), max_size=5, unique=True).flatmap(
        lambda many: st.tuples(
            *(st.builds(lost_cable, st.just(i), st.sampled_from(["gone", "away"])) for i in many)
        )
    ),
    st.sampled_from([(), ("n8",), ("n8", "n9")]),
    st.sampled_from([(), ("storage",)]),
    st.sampled_from([(), measured().tiers]),
)
