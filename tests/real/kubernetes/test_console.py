"""The pages show what kubectl prints: each block that needs an API server is run on one, and compared."""

import difflib
import os
from pathlib import Path
from typing import Any

import pytest
from kube.assets import find
from support.kubernetes import Cluster
from support.modules import module_of
from support.real import ROOT, require_real

require_real("kubernetes")

console: Any = module_of(ROOT / "deploy" / "console.py", "deploy_console")
PAGES = list(console.documents(kubernetes=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_shows_what_kubectl_prints(kube: Cluster, monkeypatch: pytest.MonkeyPatch, page: Path) -> None:
    kubectl = find("kubectl")
    assert kubectl is not None
    monkeypatch.setenv("PATH", f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig))
    text = page.read_text("utf-8")
    old, new = console.masked(text), console.masked(console.fresh(text, kubernetes=True))
    assert list(difflib.unified_diff(old.splitlines(), new.splitlines())) == [], "run `make docs-assets`"
