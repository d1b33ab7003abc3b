"""Which interface measures which, and between which addresses: a table of quirks, and any junk at all."""

import pytest
from hyperscout_collector.decisions.measuring.pair_routes import MAX_RAILS, routes
from hyperscout_formats.facts.facts import LatencyPort
from hypothesis import given
from hypothesis import strategies as st


def port(interface: str, *addresses: str, udp_port: int = 4711, rdma: str = "") -> LatencyPort:
    return LatencyPort(interface, addresses, udp_port, rdma)


def found(a: list[LatencyPort], b: list[LatencyPort]) -> list[tuple[str, str, str, str]]:
    return [(r.a.interface, r.a.address, r.b.interface, r.b.address) for r in routes(a, b)]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # Rails by name, the rest in order, what is left over alone.
        (
            [port("ib1", "10.1.0.1"), port("ib0", "10.0.0.1")],
            [port("ib0", "10.0.0.2"), port("ib1", "10.1.0.2")],
            [("ib0", "10.0.0.1", "ib0", "10.0.0.2"), ("ib1", "10.1.0.1", "ib1", "10.1.0.2")],
        ),
        (
            [port("eth0", "10.0.0.1"), port("eth1", "10.1.0.1"), port("ib9", "10.9.0.1")],
            [
                port("ib9", "10.9.0.2"),
                port("ens1", "10.0.0.2"),
                port("ens2", "10.1.0.2"),
                port("x", "10.2.0.2"),
            ],
            [
                ("eth0", "10.0.0.1", "ens1", "10.0.0.2"),
                ("eth1", "10.1.0.1", "ens2", "10.1.0.2"),
                ("ib9", "10.9.0.1", "ib9", "10.9.0.2"),
            ],
        ),
        # Families.
        ([port("i", "fd00::1")], [port("i", "fd00::2")], [("i", "fd00::1", "i", "fd00::2")]),
        (
            [port("i", "fd00::1", "10.0.0.1")],
            [port("i", "fd00::2", "10.0.0.2")],
            [("i", "10.0.0.1", "i", "10.0.0.2")],
        ),
        ([port("i", "fd00::1", "10.0.0.1")], [port("i", "fd00::2")], [("i", "fd00::1", "i", "fd00::2")]),
        ([port("i", "fd00::1")], [port("i", "10.0.0.2")], []),
        ([port("i", "::ffff:10.0.0.1")], [port("i", "10.0.0.2")], [("i", "10.0.0.1", "i", "10.0.0.2")]),
        # Of several, those of one subnet.
        (
            [port("i", "172.16.0.1", "10.0.7.1")],
            [port("i", "10.0.7.2", "172.31.0.1")],
            [("i", "10.0.7.1", "i", "10.0.7.2")],
        ),
        # Addresses that no host can have, or that both ends have.
        ([port("i", "127.0.0.1")], [port("i", "10.0.0.2")], []),
        ([port("i", "10.0.0.1")], [port("i", "224.0.0.1", "0.0.0.0", "255.255.255.255", "169.254.3.4")], []),
        ([port("i", "fe80::1", "ff02::1", "::", "::1")], [port("i", "fd00::2")], []),
        ([port("i", "10.0.0.1")], [port("i", "10.0.0.1")], []),
        ([port("i", "no address")], [port("i", "10.0.0.1")], []),
        # No process answers.
        ([port("i", "10.0.0.1", udp_port=0)], [port("i", "10.0.0.2")], []),
        ([port("i", "10.0.0.1", udp_port=70_000)], [port("i", "10.0.0.2")], []),
        ([port("i")], [port("i", "10.0.0.2")], []),
        ([], [port("i", "10.0.0.2")], []),
    ],
)
def test_routes(
    a: list[LatencyPort], b: list[LatencyPort], expected: list[tuple[str, str, str, str]]
) -> None:
    assert found(a, b) == expected
    assert found(b, a) == sorted((y, y_at, x, x_at) for x, x_at, y, y_at in expected)


def test_rdma_needs_both_ends() -> None:
    with_it, without = port("i", "10.0.0.1", rdma="mlx5_0/1"), port("i", "10.0.0.2")
    assert [r.rdma for r in routes([with_it], [without])] == [False]
    assert [r.rdma for r in routes([with_it], [port("i", "10.0.0.2", rdma="mlx5_3/1")])] == [True]


words = st.one_of(
    st.text(max_size=20), st.ip_addresses().map(str), st.sampled_from(["i", "10.0.0.1", "1" * 5000])
)
ports = st.lists(
    st.builds(
        LatencyPort,
        words,
        st.lists(words, max_size=12).map(tuple),
        st.integers(0, 2**32 - 1),
        words,
    ),
    max_size=20,
)


@given(a=ports, b=ports)
def test_any_junk_makes_bounded_routes_with_different_ends(
    a: list[LatencyPort], b: list[LatencyPort]
) -> None:
    some = routes(a, b)
    assert len(some) <= MAX_RAILS
    for route in some:
        assert route.a.address != route.b.address
        assert (":" in route.a.address) == (":" in route.b.address)
        assert 0 < route.a.udp_port < 65536
    assert len({route.a.interface for route in some}) == len(some)
