"""What is derived and committed is as `make manifests` would write it now."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.real import ROOT, require_real


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deploy_render", ROOT / "deploy" / "render.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["deploy_render"] = module
    spec.loader.exec_module(module)
    return module


render: Any = load()


@pytest.mark.parametrize("path", list(render.FILES), ids=lambda path: path.name)
def test_fresh(path: Path) -> None:
    if path == render.MANIFEST:
        require_real("helm")
    assert path.read_text() == render.FILES[path](), "stale: run `make manifests`"


def test_it_is_the_one_definition() -> None:
    source = ROOT / "deploy" / "crd" / "hypernodes.yaml"
    for link in ("deploy/chart/files/hypernodes.yaml", "collector/hyperscout_cli/hypernodes.yaml"):
        assert (ROOT / link).is_symlink()
        assert (ROOT / link).resolve() == source


def test_settings_that_the_chart_writes_exist() -> None:
    from hyperscout_agent.settings import AgentSettings
    from hyperscout_collector.settings import CollectorSettings

    for model, own in ((CollectorSettings, render.COLLECTOR_OWN), (AgentSettings, render.AGENT_OWN)):
        assert {name.split(".")[0] for name in own} - set(model.model_fields) == set()
