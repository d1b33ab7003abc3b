"""Descriptions as claims: what names a host, and what only looks like it."""

import pytest
from hyperscout_inference.fabric.foreign import is_foreign
from hyperscout_inference.fabric.identify import Claim, _claim, _short_claim, claims, switch_name
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("description", "claim"),
    [
        ("node-0001 mlx5_0", Claim("node-0001", "mlx5_0")),
        ("node-0001 HCA-1", Claim("node-0001", "HCA-1")),
        ("gpu01.example.com mlx5_bond_0", Claim("gpu01.example.com", "mlx5_bond_0")),
        ("node-0001", Claim("node-0001")),
        ("node-0001 hfi1_0", Claim("node-0001", "hfi1_0")),
        ("MT25408 ConnectX Mellanox Technologies", Claim("")),
        ("MT4129 ConnectX7   Mellanox Technologies", Claim("")),
        ("MT4129", Claim("")),
        ("ConnectX-6", Claim("")),
        ("localhost mlx5_0", Claim("", "mlx5_0")),
        ("Mellanox Technologies Aggregation Node", Claim("", sharp=True)),
        ("Quantum Aggregation Node", Claim("", sharp=True)),
        ("", Claim("")),
        ("two words", Claim("")),
        ("-rf mlx5_0", Claim("", "mlx5_0")),
        ("x" * 300, Claim("")),
        ('no"de mlx5_0', Claim("", "mlx5_0")),
    ],
)
def test_what_a_description_claims(description: str, claim: Claim) -> None:
    assert claims([description]) == [claim]


def test_a_cloned_claim_identifies_no_host() -> None:
    texts = ["node-1 mlx5_0", "node-1 mlx5_0", "node-2 mlx5_0", "node-3", "node-3"]
    assert [c.host for c in claims(texts)] == ["", "", "node-2", "node-3", "node-3"]


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("storage-01", True),
        ("ufm-1", True),
        ("ufm1", True),
        ("rack3-nas2", True),
        ("cluster.oss12", False),
        ("oss12.cluster", True),
        ("login-node-1", True),
        ("sm-001", True),
        ("gw-gpu01", False),
        ("vast-gpu-01", False),
        ("weka-client01", False),
        ("gpu-1.storage.example", False),
        ("login-1", True),
        ("node-0001", False),
        ("stormtrooper-7", False),
        ("gpu-small-3", False),
        ("r510gluster1", False),
        ("smith", False),
        ("fm", True),
    ],
)
def test_names_that_do_not_compute(name: str, foreign: bool) -> None:
    assert is_foreign(name) is foreign


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("MF0;leaf-01:MQM8700/U1", "leaf-01"),
        ("SwitchIB Mellanox Technologies", "SwitchIB Mellanox Technologies"),
        ("Voltaire 4036 # hoibp0013", "Voltaire 4036 # hoibp0013"),
        ("MF0;spine:MSB7800/U1", "spine"),
        (";:", ";:"),
    ],
)
def test_a_switch_s_own_name(description: str, name: str) -> None:
    assert switch_name(description) == name


_WORDS = st.sampled_from(
    [
        "node-1",
        "node-2",
        "gpu",
        "gpu7",
        "MT4129",
        "MT4129x1",
        "localhost",
        "localhost1",
        "ConnectX-6",
        "-rf1",
        "n.x",
    ]
)
_TAILS = st.sampled_from(["", " ", " mlx5_0", "  mlx5_0", " HCA-1", " mlx5_0 x", " Aggregation Node"])


@given(st.lists(st.builds(str.__add__, _WORDS, _TAILS) | st.text(max_size=20), unique=True))
def test_many_descriptions_claim_what_each_of_them_claims(texts: list[str]) -> None:
    assert claims(texts) == [_claim(text) for text in texts]


def test_a_long_description_names_no_host_and_is_not_kept() -> None:
    long = "node-0001 " + "x" * 400
    before = _short_claim.cache_info().currsize
    assert claims([long, f"Aggregation Node {long}"]) == [Claim(""), Claim("", sharp=True)]
    assert _short_claim.cache_info().currsize == before
