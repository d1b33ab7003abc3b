"""The whole story on real nodes: kubelets, cables, pods, helm. Run it with `pytest -s` to read it."""

import time
from pathlib import Path

import pytest
from lab.cluster import Lab
from lab.images import images
from lab.infiniband import InfinibandFabric
from lab.plan import PLAN
from lab.story import Story
from lab.wires import Wires
from support.real import require_real

pytestmark = pytest.mark.long

require_real("lab", "helm", "lldpd", "ibsim")


def test_from_install_to_uninstall(tmp_path: Path) -> None:
    def say(line: str) -> None:
        print(line, flush=True)

    print()
    found = images(say)
    began_s = time.monotonic()
    with Lab(tmp_path / "lab", images=[found.agent, found.collector], say=say) as lab:
        lab.add_nodes(PLAN.names)
        wires, infiniband = Wires(lab), InfinibandFabric(lab)
        wires.up()
        infiniband.up()
        lab.await_ready(PLAN.names, 300.0)
        up_s = time.monotonic() - began_s
        say(f"{len(PLAN.names)} nodes and {len(PLAN.switches)} switches up: {up_s:.0f} s")
        story = Story(lab, wires, infiniband, say)
        try:
            story.tell()
        except Exception:
            story.show_logs()
            raise
        finally:
            story.close()
            wires.down()
            infiniband.down()
    say(f"the whole story: {time.monotonic() - began_s:.0f} s")
