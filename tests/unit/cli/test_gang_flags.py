"""From flags to a request: what each makes of the message, and what does not go together."""

from typing import Any

import click
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from hyperscout.v1 import placement_pb2 as pb
from hyperscout_cli.place.gang_flags import Gang
from hyperscout_cli.place.placement_text import nodes_text
from hypothesis import given
from hypothesis import strategies as st

GPU = {"nvidia.com/gpu": "8"}


def made(**flags: Any) -> dict[str, Any]:
    """The request as JSON; without the mode, which is always there."""
    data: dict[str, Any] = MessageToDict(Gang(**flags).message())
    assert data.pop("mode") == "PLACEMENT_MODE_HARD"
    return data


def workers(count: int, **more: Any) -> dict[str, Any]:
    return {"workers": {"count": count, **more}}


def group(count: int, tier: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"group": {"count": count, "tier": tier, "parts": list(parts), **more}}


FOURS = {"group": {"count": 2, "parts": [workers(4)], "preferred": "node"}}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param({"workers": 4}, {"parts": [workers(4)]}, id="workers"),
        pytest.param(
            {"workers": 4, "gpus_per_worker": 8}, {"parts": [workers(4, resources=GPU)]}, id="with GPUs"
        ),
        pytest.param(
            {"workers": 4, "gpus_per_worker": 8, "gpu_resource": "amd.com/gpu"},
            {"parts": [workers(4, resources={"amd.com/gpu": "8"})]},
            id="with GPUs of AMD",
        ),
        pytest.param({"workers": 4, "min_workers": 2}, {"parts": [workers(4, minCount=2)]}, id="elastic"),
        pytest.param(
            {"workers": 8, "min_workers": 4, "group_sizes": (2, 4), "group_tiers": ("node", "leaf")},
            {"parts": [group(2, "leaf", group(2, "node", workers(2)), minCount=1)]},
            id="elastic in its outermost groups",
        ),
        pytest.param({"workers": 4, "even": "leaf"}, {"parts": [workers(4)], "even": "leaf"}, id="even"),
        pytest.param(
            {"workers": 4, "highest_tier_allowed": "pod", "avoid": ("n1", "leaf-2"), "use_down": True},
            {
                "parts": [workers(4)],
                "highestTierAllowed": "pod",
                "avoid": ["n1", "leaf-2"],
                "useDown": True,
            },
            id="where it may go",
        ),
        pytest.param(
            {"workers": 128, "group_sizes": (8, 64), "group_tiers": ("1", "pod")},
            {"parts": [group(2, "pod", group(8, "1", workers(8)))]},
            id="groups within groups, in any order",
        ),
        pytest.param(
            {"workers": 8, "group_sizes": (8,), "group_tiers": ("leaf",)},
            {"parts": [group(1, "leaf", workers(8))]},
            id="one group of all",
        ),
        pytest.param(
            {"workers": 16, "spread": ("4:leaf",)},
            {"parts": [workers(16)], "spread": {"most": 4, "tier": "leaf"}},
            id="spread",
        ),
        pytest.param(
            {
                "workers": 16,
                "group_sizes": (8,),
                "group_tiers": ("2",),
                "spread": ("1:node:8",),
                "prefer_spread": ("8:2",),
            },
            {
                "parts": [group(2, "2", workers(8), spread={"most": 1, "tier": "node"})],
                "spread": {"most": 8, "tier": "2", "preferred": True},
            },
            id="spread of groups, and one that is preferred",
        ),
        pytest.param(
            {
                "workers": 16,
                "group_sizes": (8,),
                "group_tiers": ("2",),
                "prefer_groups": ("8:leaf", "4:node"),
            },
            {
                "parts": [
                    group(2, "2", FOURS, preferred="leaf"),
                ]
            },
            id="preferred tiers",
        ),
    ],
)
def test_message(flags: dict[str, Any], expected: dict[str, Any]) -> None:
    assert made(**flags) == expected


def test_mode() -> None:
    assert Gang(workers=1).message().mode == pb.PLACEMENT_MODE_HARD
    assert Gang(workers=1, mode="hard").message().mode == pb.PLACEMENT_MODE_HARD
    assert Gang(workers=1, mode="soft").message().mode == pb.PLACEMENT_MODE_SOFT


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, "give --workers N, or --request FILE"),
        ({"group_sizes": (8,), "group_tiers": ("1",)}, "give --workers N"),
        ({"request": "r.json", "workers": 3}, "--request and --workers: give one of them"),
        ({"request": "r.json", "mode": "hard"}, "--request and --mode: give one of them"),
        ({"request": "r.json", "group_tiers": ("1",)}, "--request and --group-tier: give one of them"),
        ({"request": "r.json", "use_down": True}, "--request and --use-down: give one of them"),
        ({"workers": 8, "min_workers": 9}, "--min-workers 9: expected at most --workers 8"),
        (
            {"workers": 8, "min_workers": 6, "group_sizes": (4,), "group_tiers": ("1",)},
            "--min-workers 6: expected a multiple of the groups of 4, which stay whole",
        ),
        ({"workers": 8, "prefer_groups": ("8",)}, "--prefer-group 8: expected SIZE:TIER"),
        ({"workers": 8, "prefer_groups": ("3:leaf",)}, "--prefer-group 3: --workers 8 is not a multiple"),
        ({"workers": 8, "prefer_groups": ("4:1", "4:2")}, "--prefer-group 4:2: a second one"),
        ({"workers": 8, "group_sizes": (8,)}, "give as many of each (1 and 0 were given)"),
        ({"workers": 8, "group_sizes": (4, 2), "group_tiers": ("1",)}, "give as many of each (2 and 1"),
        (
            {"workers": 9, "group_sizes": (8,), "group_tiers": ("1",)},
            "--group-size 8: --workers 9 is not a multiple of it",
        ),
        ({"workers": 4, "group_sizes": (8,), "group_tiers": ("1",)}, "--workers 4 is not a multiple of it"),
        (
            {"workers": 24, "group_sizes": (8, 12), "group_tiers": ("1", "2")},
            "--group-size 8: --group-size 12 is not a multiple of it",
        ),
        (
            {"workers": 24, "group_sizes": (8, 8), "group_tiers": ("1", "2")},
            "--group-size 8 is given twice",
        ),
        (
            {"workers": 2**17, "group_sizes": tuple(2**i for i in range(17)), "group_tiers": ("1",) * 17},
            "at most 16 nested groups",
        ),
        ({"workers": 8, "spread": ("leaf:4",)}, "--spread leaf:4: expected MOST:TIER or MOST:TIER:SIZE"),
        ({"workers": 8, "spread": ("0:leaf",)}, "--spread 0:leaf: expected"),
        ({"workers": 8, "spread": ("4",)}, "--spread 4: expected"),
        ({"workers": 8, "spread": ("4:",)}, "--spread 4:: expected"),
        ({"workers": 8, "spread": ("-4:leaf",)}, "--spread -4:leaf: expected"),
        ({"workers": 8, "spread": ("4:leaf:x",)}, "--spread 4:leaf:x: expected"),
        ({"workers": 8, "prefer_spread": ("٤:leaf",)}, "--prefer-spread ٤:leaf: expected"),
        ({"workers": 8, "spread": ("4:leaf:4",)}, "--spread 4:leaf:4: there is no --group-size 4"),
        ({"workers": 8, "spread": ("4:leaf", "2:node")}, "--spread 2:node: a second spread for the gang"),
        (
            {"workers": 8, "spread": ("4:leaf",), "prefer_spread": ("2:node",)},
            "--prefer-spread 2:node: a second spread for the gang",
        ),
        (
            {
                "workers": 8,
                "group_sizes": (4,),
                "group_tiers": ("1",),
                "spread": ("4:leaf:4",),
                "prefer_spread": ("2:node:4",),
            },
            "a second spread for the groups of 4",
        ),
    ],
)
def test_what_does_not_go_together(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        Gang(**flags).message()
    assert words in caught.value.message


FLAGS = Gang(
    workers=64,
    gpus_per_worker=8,
    group_sizes=(32, 8),
    group_tiers=("pod", "leaf"),
    spread=("1:node:8",),
    prefer_spread=("16:pod",),
    prefer_groups=("8:node",),
)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("highest_tier_allowed: no tier 'x'", "--highest-tier-allowed: no tier 'x'"),
        ("parts[0].group.tier: 9: too high", "--group-tier of --group-size 32: 9: too high"),
        ("parts[0].group.parts[0].group.tier: 9", "--group-tier of --group-size 8: 9"),
        ("parts[0].group.parts[0].group.preferred: 9", "--prefer-group 8: 9"),
        ("even: 9", "--even: 9"),
        ("spread.most: 0: expected", "--prefer-spread: 0: expected"),
        ("parts[0].group.parts[0].group.spread.tier: x", "--spread of --group-size 8: x"),
        (
            "parts[0].group.parts[0].group.parts[0].workers.resources['nvidia.com/gpu']: x",
            "--gpus-per-worker: x",
        ),
        ("avoid[3]: 'n9': neither", "--avoid: 'n9': neither"),
        ("gang: 9 workers: at most 8", "gang: 9 workers: at most 8"),
        ("no colon", "no colon"),
    ],
)
def test_errors_are_said_of_flags(error: str, expected: str) -> None:
    assert FLAGS.in_flags(error) == expected
    assert Gang(request="r.json").in_flags(error) == f"r.json: {error}"


def test_a_request_in_a_file_is_the_message(tmp_path: Any) -> None:
    data = {
        "gang": "t",
        "parts": [group(2, "leaf", workers(1, role="leader"), workers(7, resources=GPU))],
        "expiresIn": "60s",
    }
    file = tmp_path / "r.json"
    import json

    file.write_text(json.dumps(data))
    assert Gang(request=str(file)).message() == ParseDict(data, pb.PlaceRequest())


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n1", "n1"], "n1:2"),
        (["n1", "n2", "n3", "m1"], "n[1-3] m1"),
        (["n1", "n1", "n2", "n2", "n3"], "n[1-2]:2 n3"),
        (["n9", "n10"], "n9 n10"),
        (["n10", "n9"], "n10 n9"),
        (["n2", "n1"], "n2 n1"),
        (["n1", "n2", "n1"], "n[1-2] n1"),
        (["n01", "n02", "n04"], "n[01-02,04]"),
        (["0000000000000001", "0000000000000002"], "0000000000000001,0000000000000002"),
        (["a", "b"], "a b"),
    ],
)
def test_nodes_in_the_order_of_their_ranks(nodes: list[str], expected: str) -> None:
    assert nodes_text(nodes) == expected


def expanded(text: str) -> list[str]:
    """What `nodes_text` wrote, read again with nothing of the project."""
    import re

    found: list[str] = []
    for word in text.split():
        names, _, times = word.partition(":")
        for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", names):
            prefix, _, ranges = part.partition("[")
            for piece in ranges.rstrip("]").split(",") if ranges else [""]:
                first, _, last = piece.partition("-")
                numbers = (
                    [f"{n:0{len(first)}}" for n in range(int(first), int(last) + 1)] if last else [first]
                )
                found += [f"{prefix}{n}" for n in numbers for _ in range(int(times or 1))]
    return found


@given(
    st.lists(
        st.tuples(st.sampled_from(["n", "m", "gpu-"]), st.sampled_from(["", "1", "2", "3", "01", "02", "10"]))
    )
)
def test_nodes_say_which_rank_is_where(names: list[tuple[str, str]]) -> None:
    nodes = [prefix + number for prefix, number in names]
    assert expanded(nodes_text(nodes)) == nodes
