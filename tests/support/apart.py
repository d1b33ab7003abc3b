"""Python environments for packages that conflict with `.venv`. `.ci/setup` creates them."""

import hashlib
import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def environment(name: str) -> Path | None:
    """The Python of tests/NAME/requirements.txt, if it is there; each lock has its own."""
    pin = hashlib.sha256((TESTS / name / "requirements.txt").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    python = cache / "hyperscout" / f"{name}-{pin}" / "bin" / "python"
    return python if python.is_file() else None
