"""The record has the published InfiniBand cables, and no others."""

from hyperscout_inference.fabric.adapter_owners import guid_of
from hyperscout_inference.sweeps.record import record_of
from hyperscout_topology.topology import Link, LinkTable
from hypothesis import given
from hypothesis import strategies as st

_DEVICES = st.one_of(
    st.text("0123456789abcdefABCDEF", min_size=16, max_size=16),
    st.text("0123456789abcdefxX_ +:", min_size=16, max_size=16),
    st.text("0123456789abcdef:", max_size=17),
)


@given(st.lists(st.tuples(_DEVICES, _DEVICES), max_size=6))
def test_the_record_has_the_cables_between_guids(ends: list[tuple[str, str]]) -> None:
    links = [Link(a, "1", b, "2", "infiniband", ("ibnetdiscover",)) for a, b in ends]
    guids = [(guid_of(a), guid_of(b)) for a, b in ends]
    record = record_of(LinkTable.of(links))
    assert [record.ends(row) for row in range(len(record.a))] == [
        ((a, 1), (b, 2)) for a, b in guids if a and b
    ]
    assert all(record.has(a, 1) and record.has(b, 2) for a, b in guids if a and b)
    assert not record.has(1 << 63, 9)


def test_a_port_of_many_digits_is_none_of_infiniband() -> None:
    links = [
        Link("a", "9" * 5000, "b", "1", "ethernet", ()),
        Link("1" * 16, "1", "2" * 16, "٣", "infiniband", ()),
    ]
    assert len(record_of(LinkTable.of(links)).a) == 1
