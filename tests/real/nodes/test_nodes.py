"""The whole story on real nodes: kubelets, cables, pods, helm. Run it with `pytest -s` to read it."""

from pathlib import Path

import pytest
from lab.plan import PLAN
from support.real import require_real
from support.wired_lab import wired_lab

pytestmark = pytest.mark.long

require_real("lab", "helm", "lldpd", "ibsim")


def test_from_install_to_uninstall(tmp_path: Path) -> None:
    with wired_lab(tmp_path / "lab", PLAN) as story:
        story.tell()
