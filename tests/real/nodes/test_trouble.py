"""Random faults on real nodes with Ethernet and InfiniBand: nothing false is said of healthy parts."""

from pathlib import Path
from random import Random

import pytest
from lab.trouble import PLAN, Trouble
from support.real import require_real
from support.soak import IS_SOAK, soak_s, soak_seed
from support.waiting import TIMEOUT_S
from support.wired_lab import wired_lab

require_real("lab", "helm", "lldpd", "ibsim")

SECONDS, SEED = soak_s(120), soak_seed()
# `make soak` runs it alone. In `make test-real` other tests take the cores, so these limits are wide.
FALSE_S, BACK_S = (3.0, 15.0) if IS_SOAK else (TIMEOUT_S / 8, TIMEOUT_S)


@pytest.mark.soak
def test_faults_at_random(tmp_path: Path) -> None:
    print(f"HYPERSCOUT_SOAK_SEED={SEED}", flush=True)
    with wired_lab(tmp_path / "lab", PLAN, hold_down_s=10.0) as story:
        trouble = Trouble(story, Random(SEED), FALSE_S, BACK_S)
        trouble.tell(SECONDS)
    assert trouble.looks["anomalies"] > trouble.looks["no leader"]
