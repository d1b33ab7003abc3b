"""Random faults on real nodes with Ethernet and InfiniBand: nothing false is said of healthy parts."""

from pathlib import Path
from random import Random

import pytest
from lab.cluster import Lab
from lab.images import images
from lab.infiniband import InfinibandFabric
from lab.story import Story
from lab.trouble import PLAN, Trouble
from lab.wires import Wires
from support.real import require_real
from support.soak import IS_SOAK, soak_s, soak_seed
from support.waiting import TIMEOUT_S

require_real("lab", "helm", "lldpd", "ibsim")

SECONDS, SEED = soak_s(120), soak_seed()
# `make soak` runs it alone. In `make test-real` other tests take the cores, so these limits are wide.
FALSE_S, BACK_S = (3.0, 15.0) if IS_SOAK else (TIMEOUT_S / 8, TIMEOUT_S)


def say(line: str) -> None:
    print(line, flush=True)


@pytest.mark.soak
def test_faults_at_random(tmp_path: Path) -> None:
    say(f"trouble: seed {SEED}, {SECONDS:.0f} s")
    found = images(say)
    with Lab(tmp_path / "lab", images=[found.agent, found.collector], say=say) as lab:
        lab.add_nodes(PLAN.names)
        wires, infiniband = Wires(lab, PLAN), InfinibandFabric(lab, PLAN)
        wires.up()
        infiniband.up()
        lab.await_ready(PLAN.names, TIMEOUT_S)
        story = Story(lab, wires, infiniband, say, hold_down_s=10.0)
        trouble = Trouble(story, Random(SEED), FALSE_S, BACK_S)
        try:
            trouble.tell(SECONDS)
        except Exception:
            story.show_logs()
            raise
        finally:
            story.close()
            wires.down()
            infiniband.down()
    assert trouble.looks["anomalies"] > trouble.looks["no leader"]
