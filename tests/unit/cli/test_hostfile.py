"""Hostfiles: the nodes of a gang in the order of ranks, in the format of each MPI."""

import pytest
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_cli.place.hostfile import Host, hosts_of, lines
from hyperscout_cli.shared.errors import CliError
from hypothesis import given
from hypothesis import strategies as st
from support.placement_service import placed


def with_roles(*ranks: tuple[str, str]) -> pb.Placement:
    found = [pb.Assignment(rank=i, node=node, role=role) for i, (node, role) in enumerate(ranks)]
    return pb.Placement(gang="g", assignments=found)


@pytest.mark.parametrize(
    ("output", "slots", "text"),
    [
        ("openmpi", 1, "n2 slots=2\nn1 slots=1\n"),
        ("openmpi", 8, "n2 slots=16\nn1 slots=8\n"),
        ("mpich", 1, "n2:2\nn1:1\n"),
        ("mpich", 4, "n2:8\nn1:4\n"),
        ("plain", 1, "n2\nn2\nn1\n"),
        ("plain", 2, "n2\nn2\nn2\nn2\nn1\nn1\n"),
    ],
)
def test_each_format(output: str, slots: int, text: str) -> None:
    assert "".join(lines("g", hosts_of(placed("g", "n2", "n2", "n1")), slots, output)) == text


def test_a_node_between_whose_ranks_are_others() -> None:
    hosts = hosts_of(placed("g", "n1", "n1", "n2", "n1"))
    assert hosts == [Host("n1", (0, 1)), Host("n2", (2,)), Host("n1", (3,))]
    assert "".join(lines("g", hosts, 1, "mpich")) == "n1:2\nn2:1\nn1:1\n"
    assert "".join(lines("g", hosts, 1, "plain")) == "n1\nn1\nn2\nn1\n"
    with pytest.raises(CliError, match=r"^g: n1 has ranks 0-1 and 3 .*: use -o plain with `mpirun --map-by"):
        list(lines("g", hosts, 1, "openmpi"))


def started_by(output: str, text: str) -> list[str]:
    """The node of each rank as a launcher reads the file. Open MPI adds up the lines of a node."""
    if output == "plain":
        return text.split()
    slots: dict[str, int] = {}
    ranks: list[str] = []
    for line in text.splitlines():
        name, _, number = line.replace(" slots=", ":").partition(":")
        slots[name] = slots.get(name, 0) + int(number)
        ranks += [name] * int(number)
    return ranks if output == "mpich" else [name for name, number in slots.items() for _ in range(number)]


@given(
    st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=12),
    st.integers(1, 3),
    st.sampled_from(["openmpi", "mpich", "plain"]),
)
def test_the_launcher_starts_each_rank_on_its_node(nodes: list[str], slots: int, output: str) -> None:
    try:
        text = "".join(lines("g", hosts_of(placed("g", *nodes)), slots, output))
    except CliError:
        assert output == "openmpi"
        assert len(hosts_of(placed("g", *nodes))) > len(set(nodes))
        return
    assert started_by(output, text) == [node for node in nodes for _ in range(slots)]


def test_only_the_ranks_of_a_role() -> None:
    found = with_roles(("n1", "worker"), ("n1", "worker"), ("n2", "launcher"))
    assert hosts_of(found, "worker") == [Host("n1", (0, 1))]
    with pytest.raises(CliError, match=r"^g: no rank has the role 'boss': write one of launcher, worker$"):
        hosts_of(found, "boss")


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("", "g: rank 1 has no node yet: try again when it is placed"),
        ("a b", "g: node 'a b': a hostfile takes only"),
        ("a:2", "g: node 'a:2': a hostfile takes only"),
        ("a\nb", r"g: node 'a\\nb': a hostfile takes only"),
    ],
)
def test_a_node_that_no_hostfile_can_have(node: str, says: str) -> None:
    with pytest.raises(CliError, match=f"^{says}"):
        hosts_of(placed("g", "n1", node))
