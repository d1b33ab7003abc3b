"""AMD GPUs in the files of the driver amdkfd."""

import pytest
from hyperscout_formats.amd.kfd import MAX_GPUS, error_count, parse
from hyperscout_formats.facts.facts import NvlinkFabric
from hypothesis import given
from hypothesis import strategies as st
from support.accelerators import BUSES, HIVE, address, kfd_link, kfd_properties, kfd_tree
from support.examples import examples


def test_a_host_with_one_hive() -> None:
    gpus, problems = parse(kfd_tree())
    assert problems == ()
    assert [gpu.pci_address for gpu in gpus] == [address(n) for n in range(8)]
    one = gpus[0]
    assert (one.kind, one.uuid, one.model) == ("xgmi", "GPU-3cbe002bd3b6313d", "AMD 0x74a1")
    assert one.fabric == NvlinkFabric("completed", domain=f"{HIVE:x}")
    assert [(x.link, x.active, x.remote_pci_address, x.gbytes_per_s) for x in one.links] == [
        (n, True, address(n), 50.0) for n in range(1, 8)
    ]


def test_a_gpu_without_a_hive_has_no_link() -> None:
    gpus, _ = parse(kfd_tree(apart={7}))
    assert gpus[7].fabric is None
    assert [link.active for link in gpus[7].links] == [False] * 7
    assert [link.active for link in gpus[0].links] == [True] * 6 + [False]


def test_partitions_of_a_gpu_are_one_gpu() -> None:
    """As in mode CPX: the second node of a GPU has the same unique_id, and its number in bits 28 to 31."""
    tree = kfd_tree(2)
    tree["4/gpu_id"] = b"9\n"
    tree["4/properties"] = kfd_properties(0, location=BUSES[0] << 8 | 1 << 28).encode()
    tree["4/io_links/0/properties"] = kfd_link(4, 3).encode()
    gpus, problems = parse(tree)
    assert problems == ()
    assert [(gpu.pci_address, len(gpu.links)) for gpu in gpus] == [(address(0), 1), (address(1), 1)]


def test_links_to_processors_are_no_links_of_gpus() -> None:
    tree = kfd_tree(1)
    tree["2/io_links/1/properties"] = kfd_link(2, 0).encode()  # as in an APU
    assert parse(tree)[0][0].links == ()


DAMAGED = {
    "no properties": ({"3/properties": None}, "node 3: its properties cannot be read"),
    "no gpu_id": ({"3/gpu_id": b""}, "node 3: its gpu_id cannot be read"),
    "a link": ({"3/io_links/1/properties": b""}, "node 3: its io_links/1/properties cannot be read"),
    "no location": ({"3/properties": b"hive_id 1\n"}, "node 3: its properties have no location_id"),
    "an impossible domain": (
        {"3/properties": b"location_id 256\ndomain 99999\n"},
        "node 3: its properties have no location_id, or an impossible domain",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_nodes_are_named_and_hide_no_others(name: str) -> None:
    changes, why = DAMAGED[name]
    tree = {k: v for k, v in (kfd_tree() | changes).items() if v is not None}
    gpus, (problem,) = parse(tree)
    assert len(gpus) == 7
    assert why in str(problem)


def test_gpus_with_one_address_are_no_gpus() -> None:
    tree = kfd_tree(3)
    tree["4/properties"] = tree["2/properties"].replace(b"unique_id", b"unique_id 77\nformer_id")
    gpus, (problem,) = parse(tree)
    assert [gpu.pci_address for gpu in gpus] == [address(1)]
    assert f"2 GPUs have the PCI address {address(0)}" in str(problem)


def test_more_gpus_than_a_host_has() -> None:
    tree = {}
    for n in range(MAX_GPUS + 3):
        tree[f"{n}/gpu_id"] = b"7"
        tree[f"{n}/properties"] = f"location_id {n + 1 << 8}\nunique_id {n + 1}\n".encode()
    gpus, (problem,) = parse(tree)
    assert len(gpus) == MAX_GPUS
    assert f"{MAX_GPUS + 3} GPUs" in str(problem)


@pytest.mark.parametrize(
    ("text", "errors"), [(b"0\n", 0), (b"1\n", 1), (b"2\n", 2), (b"3\n", 0), (b"", 0), (b"\xff", 0)]
)
def test_xgmi_error(text: bytes, errors: int) -> None:
    assert error_count(text) == errors


PATHS = [f"{n}/{name}" for n in range(3) for name in ("gpu_id", "properties", "io_links/0/properties")]
LINES = [b"type 11\n", b"node_to 1\n", b"node_to 99999999999999999999\n", b"location_id 256\n", b"1\n"]
LINES += [b"max_bandwidth 18446744073709551615\n", b"hive_id 99999999999999999999\n", b"unique_id 7\n"]


@examples(3)
@given(
    st.dictionaries(
        st.sampled_from(PATHS) | st.text(max_size=20),
        st.lists(st.sampled_from(LINES), max_size=6).map(b"".join) | st.binary(max_size=60),
        max_size=9,
    )
)
def test_any_files_give_facts(tree: dict[str, bytes]) -> None:
    gpus, problems = parse(tree)
    assert len({gpu.pci_address for gpu in gpus}) == len(gpus) <= 3
    assert all(str(problem).isprintable() for problem in problems)
