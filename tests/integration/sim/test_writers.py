"""What is written reads back, through the project's own readers, as exactly the fabric."""

from pathlib import Path

import pytest
from hyperscout_sim.readings.ibsim_net import ibsim_net
from hyperscout_sim.readings.sweep_text import sweep_text
from support.ibsim import running_ibsim
from support.real import require_real
from support.sweeps import SHAPES, read


@pytest.mark.parametrize("shape", SHAPES)
def test_the_real_ibnetdiscover_prints_the_same_text(shape: str, tmp_path: Path) -> None:
    """Against ibsim, loaded with the net file of the same fabric."""
    require_real("ibsim", "ibnetdiscover")
    fabric = SHAPES[shape]()
    start = fabric.adapters[-1 if not fabric.adapters[-1].foreign else 0].guid
    with running_ibsim(tmp_path, ibsim_net(fabric)) as ibsim:
        real = ibsim.sweep(f"H-{start:016x}")
    ours = sweep_text(fabric, start)
    assert read(ours) == read(real)
    dated = b"# Topology file: generated on"
    lines = [[x for x in text.splitlines() if not x.startswith(dated)] for text in (ours, real)]
    assert lines[0] == lines[1]
