"""What is derived and committed is as `make manifests` would write it now."""

from pathlib import Path
from typing import Any

import pytest
from support.modules import module_of
from support.real import ROOT

render: Any = module_of(ROOT / "deploy" / "render.py", "deploy_render")


@pytest.mark.parametrize(
    "path", [p for p in render.FILES if p != render.MANIFEST], ids=lambda path: path.name
)
def test_fresh(path: Path) -> None:
    assert path.read_text() == render.FILES[path](), "stale: run `make manifests`"


def test_it_is_the_one_definition() -> None:
    source = ROOT / "deploy" / "crd" / "hypernodes.yaml"
    for link in ("deploy/chart/files/hypernodes.yaml", "collector/hyperscout_cli/hypernodes.yaml"):
        assert (ROOT / link).is_symlink()
        assert (ROOT / link).resolve() == source


def test_settings_that_the_chart_writes_exist() -> None:
    from hyperscout_agent.settings.settings import AgentSettings
    from hyperscout_collector.app.settings.settings import CollectorSettings

    for model, own in ((CollectorSettings, render.COLLECTOR_OWN), (AgentSettings, render.AGENT_OWN)):
        assert {name.split(".")[0] for name in own} - set(model.model_fields) == set()
