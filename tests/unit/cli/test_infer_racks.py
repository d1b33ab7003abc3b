"""The command on a row of racks: one dump of the fabric, and one output of nvidia-smi for each node."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hyperscout_sim.fabric.racks import racks
from hyperscout_sim.readings.nvidia_smi_text import nvidia_smi_text
from hyperscout_sim.readings.sweep_text import sweep_texts
from hyperscout_topology.objects import to_json
from support.command_line import CommandLine
from support.rack_inputs import inferred_racks

ROW = racks(2, 2, hgx=2, cpu_nodes=1, split={3: 9})


TREE = """\
spine-20d78420  tier 3 pod  75 nodes, 4 switches
├─ leaf-cpu-r0-85189c00  tier 2 leaf  1 node, 1 switch
│  └─ uk-london1-dc01-row00-cpu01-3fc9cb32  tier 1 nvlink  1 node
│        uk-london1-dc01-row00-cpu01
├─ leaf-hgx-r-a297854a  tier 2 leaf  2 nodes, 8 switches
│  ├─ uk-london1-dc01-row00-hgx01-81689a46  tier 1 nvlink  1 node
│  │     uk-london1-dc01-row00-hgx01
│  └─ uk-london1-dc01-row00-hgx02-d8d4d53a  tier 1 nvlink  1 node
│        uk-london1-dc01-row00-hgx02
├─ leaf-u01-r-170d0a18  tier 2 leaf  36 nodes, 4 switches
│  ├─ uk-london1-dc01-row01-rack01-f1124da8  tier 1 nvlink  18 nodes
│  │     uk-london1-dc01-row01-rack01-tray[01-18]
│  └─ uk-london1-dc01-row01-rack02-08b64299  tier 1 nvlink  18 nodes
│        uk-london1-dc01-row01-rack02-tray[01-18]
└─ leaf-u02-r-237712d8  tier 2 leaf  36 nodes, 4 switches
   ├─ uk-london1-dc01-row02-rack01-8e74ff3e  tier 1 nvlink  18 nodes
   │     uk-london1-dc01-row02-rack01-tray[01-18]
   ├─ uk-london1-dc01-row02-rack02-e9f8919a  tier 1 nvlink  9 nodes
   │     uk-london1-dc01-row02-rack02-tray[01-09]
   └─ uk-london1-dc01-row02-rack02-fa82b737  tier 1 nvlink  9 nodes
         uk-london1-dc01-row02-rack02-tray[10-18]
"""


def test_a_row_of_racks(run: CommandLine, tmp_path: Path) -> None:
    files = []
    for host, gpus in ROW.gpus.items():
        files.append(tmp_path / f"{host}.xml")
        files[-1].write_bytes(nvidia_smi_text(gpus))
    (text,) = sweep_texts(ROW.fabric)
    (tmp_path / "fabric.txt").write_bytes(text)
    ran = run("infer", "--nvlink", *files, "--ibnetdiscover", tmp_path / "fabric.txt")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == TREE


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
