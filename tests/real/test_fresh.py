"""The committed manifest is as `make manifests` would write it now."""

from typing import Any

from support.modules import module_of
from support.real import ROOT, require_real

render: Any = module_of(ROOT / "deploy" / "render.py", "deploy_render")


def test_fresh() -> None:
    require_real("helm")
    assert render.MANIFEST.read_text() == render.FILES[render.MANIFEST](), "stale: run `make manifests`"
