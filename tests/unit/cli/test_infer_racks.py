"""`hyperscout infer --nvlink` on a row of racks: what the architecture page shows is what it prints."""

import textwrap
from pathlib import Path

from hyperscout_sim.nvidia_smi_text import nvidia_smi_text
from hyperscout_sim.racks import racks
from hyperscout_sim.sweep_text import sweep_texts
from support.command_line import CommandLine
from support.real import ROOT

ROW = racks(2, 2, hgx=2, cpu_nodes=1, split={3: 9})


def example() -> str:
    """The page's tree of a row of racks."""
    page = (ROOT / "docs" / "architecture.md").read_text()
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
