"""The rules for remediation name conditions that exist, and never act on silence."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hyperscout_kubernetes.nodes import DEGRADED, READY

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "deploy" / "remediation").glob("*.yaml"))
PAGE = ROOT / "docs" / "publishers" / "node-conditions.md"


def conditions(found: Any) -> Iterator[dict[str, Any]]:
    """All lists of conditions of nodes in an object, one after the other."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key in {"unhealthyConditions", "unhealthyNodeConditions", "conditions"}:
                yield from value
            else:
                yield from conditions(value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_rule_names_our_conditions_and_is_described(path: Path) -> None:
    rows = list(conditions(yaml.safe_load(path.read_text())))
    ours = [row for row in rows if row["type"] in {READY, DEGRADED}]
    assert ours
    assert {row["type"] for row in rows} <= {"Ready", READY, DEGRADED}
    assert f"deploy/remediation/{path.name}" in PAGE.read_text()
    for row in ours:
        # Unknown is no reason to repair.
        assert (row.get("status"), row.get("requiredStatus")) in {("False", None), (None, "True")}


def test_there_are_rules() -> None:
    assert len(FILES) == 4
