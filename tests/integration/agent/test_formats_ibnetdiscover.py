"""The reader on what the real ibnetdiscover prints of a simulated fabric, in each of its ways."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hyperscout_formats.infiniband.ibnetdiscover import CA, SWITCH, Sweep, parse
from hyperscout_formats.infiniband.ibnetdiscover_text import summary
from hyperscout_formats.text.errors import FormatError
from support.ibsim import Ibsim, running_ibsim
from support.real import require_real, tool
from support.waiting import TIMEOUT_S

NET = b"""width=3
speed=7
extspeed=7

switchguid=0x1000
Switch 40 "leaf1"  # "MF0;leaf1:MQM8700/U1" base port 0 lid 0 lmc 0
[1] "H0001"[1]
[2] "H0002"[1] # lid 0 lmc 0 "x" lid 0 1xEDR
[40] "spine1"[1]

switchguid=0x3000
Switch 128 "spine1"  # "spine [1] # x" base port 0 lid 0 lmc 0
[1] "leaf1"[40]
[128] "H0002"[2]

caguid=0x101
Hca 1 "H0001"  # "node-0001 mlx5_0"
[1] "leaf1"[1]

caguid=0xfedcba9876543210
Hca 2 "H0002"  # "node-0002 mlx5_0"
[1] "leaf1"[2]
[2] "spine1"[128]
"""
LEAF, SPINE, HOST, OTHER = 0x1000, 0x3000, 0x101, 0xFEDCBA9876543210
CABLES = {
    (LEAF, 1, HOST, 1),
    (LEAF, 2, OTHER, 1),
    (LEAF, 40, SPINE, 1),
    (SPINE, 128, OTHER, 2),
}
NAME_MAP = b'0x1000 "the leaf (rack 4)"\n'

Run = Callable[..., bytes]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs a tool of infiniband-diags against the fabric, looking from the first host."""
    require_real("ibsim")
    require_real("ibnetdiscover")
    folder = tmp_path_factory.mktemp("ibsim")
    (folder / "names").write_bytes(NAME_MAP)

    def output(ibsim: Ibsim, *command: str) -> bytes:
        return subprocess.run(
            [str(tool("ibsim-run")), str(tool(command[0])), *command[1:]],
            env=ibsim.env("H0001"),
            cwd=folder,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        ).stdout

    with running_ibsim(folder, NET) as ibsim:
        yield lambda *command: output(ibsim, *command)


def cables(sweep: Sweep) -> set[tuple[int, int, int, int]]:
    ends = (sweep.guid[sweep.device], sweep.port, sweep.guid[sweep.peer], sweep.peer_port)
    return set(zip(*(column.tolist() for column in ends), strict=True))


@pytest.mark.parametrize(
    "options",
    [(), ("-f",), ("-g",), ("-f", "-g"), ("-m",), ("-s",), ("--node-name-map", "names")],
    ids=lambda options: " ".join(options) or "plain",
)
def test_each_way_of_the_tool(run: Run, options: tuple[str, ...]) -> None:
    text = run("ibnetdiscover", *options)
    sweep = parse(text, "real")
    assert sweep.problems == ()
    assert cables(sweep) == CABLES | {(c, d, a, b) for a, b, c, d in CABLES}
    assert sweep.initiated_from == HOST
    kinds = dict(zip(sweep.guid.tolist(), sweep.kind.tolist(), strict=True))
    assert kinds == {LEAF: SWITCH, SPINE: SWITCH, HOST: CA, OTHER: CA}
    ports = dict(zip(sweep.guid.tolist(), sweep.port_count.tolist(), strict=True))
    assert ports == {LEAF: 40, SPINE: 128, HOST: 1, OTHER: 2}
    names = dict(zip(sweep.guid.tolist(), sweep.descriptions, strict=True))
    assert names == {
        LEAF: "the leaf (rack 4)" if "names" in options else "MF0;leaf1:MQM8700/U1",
        SPINE: "spine [1] # x",
        HOST: "node-0001 mlx5_0",
        OTHER: "node-0002 mlx5_0",
    }
    assert (sweep.rate_gbps > 0).all()
    counts = summary(text)
    assert (counts.switches, counts.adapters, counts.records) == (2, 2, len(sweep.device))
    assert (counts.initiated_from, counts.port_guid) == (HOST, HOST + 1)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("ibnetdiscover", "-p"), "`ibnetdiscover -p`"),
        (("ibnetdiscover", "-l"), "`ibnetdiscover -l`"),
        (("ibnetdiscover", "-H"), "`ibnetdiscover -l`"),
        (("iblinkinfo",), "`iblinkinfo`"),
    ],
)
def test_what_is_not_a_sweep(run: Run, command: tuple[str, ...], hint: str) -> None:
    with pytest.raises(FormatError, match="plain `ibnetdiscover`") as caught:
        parse(run(*command), "real")
    assert hint in caught.value.reason


def test_a_net_file_of_ibsim_is_not_a_sweep(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="ibsim"):
        parse(NET)
