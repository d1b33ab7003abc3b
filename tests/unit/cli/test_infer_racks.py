"""The command on a row of racks: what the architecture page shows is what it prints."""

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperscout_sim.fabric.racks import racks
from hyperscout_sim.readings.nvidia_smi_text import nvidia_smi_text
from hyperscout_sim.readings.sweep_text import sweep_texts
from hyperscout_topology.objects import to_json
from support.command_line import CommandLine
from support.rack_inputs import inferred_racks
from support.real import ROOT

ROW = racks(2, 2, hgx=2, cpu_nodes=1, split={3: 9})


def example() -> str:
    """The page's tree of a row of racks."""
    page = (ROOT / "docs" / "inference.md").read_text()
    shown = page.partition("    $ hyperscout infer --nvlink smi/*.xml --ibnetdiscover fabric.txt\n")[2]
    return textwrap.dedent(shown.partition("\n\n")[0]) + "\n"


def test_the_example_of_the_architecture_page(run: CommandLine, tmp_path: Path) -> None:
    files = []
    for host, gpus in ROW.gpus.items():
        files.append(tmp_path / f"{host}.xml")
        files[-1].write_bytes(nvidia_smi_text(gpus))
    (text,) = sweep_texts(ROW.fabric)
    (tmp_path / "fabric.txt").write_bytes(text)
    ran = run("infer", "--nvlink", *files, "--ibnetdiscover", tmp_path / "fabric.txt")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == example()


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (ROW.racks[0].trays[:2], ["are nvlink neighbours", "NVLink connects its hosts"]),
        (ROW.racks[3].trays[8:10], ["are leaf neighbours"]),
    ],
    ids=["one domain", "two cliques"],
)
def test_explain_says_where_nvlink_leads(
    run: CommandLine, tmp_path: Path, nodes: Sequence[str], says: Sequence[str]
) -> None:
    saved = tmp_path / "topology.json"
    saved.write_text(json.dumps(to_json(inferred_racks(ROW))))
    ran = run("explain", *nodes, "--topology", saved)
    assert ran.code == 0, ran.err
    assert all(text in ran.out for text in says)
    assert ("NVLink connects" in ran.out) == ("NVLink connects its hosts" in says)
