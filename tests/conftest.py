"""What every test shares: the marker of its tier, and the profiles of hypothesis."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TIERS = ("unit", "integration", "real")
_HERE = Path(__file__).parent

# `unit`: few examples, the same on every run, so that a red test is red for the next person too. `thorough`:
# more of them (--hypothesis-profile=thorough). HYPERSCOUT_FUZZ=N: N examples that are new on every run. A
# property that needs more or fewer takes a multiple (support.examples).
settings.register_profile(
    "unit",
    derandomize=True,
    deadline=None,
    max_examples=10,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("unit"), max_examples=100)
_fuzz_examples = int(os.environ.get("HYPERSCOUT_FUZZ", "0"))
if _fuzz_examples > 0:
    settings.register_profile(
        "fuzz", settings.get_profile("unit"), derandomize=False, max_examples=_fuzz_examples
    )
settings.load_profile("fuzz" if _fuzz_examples > 0 else "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, which is the folder that it lies in, and put long tests first."""
    for item in items:
        tier = item.path.relative_to(_HERE).parts[0]
        if tier not in TIERS:
            raise pytest.UsageError(f"{item.path}: a test belongs in one of tests/{{{','.join(TIERS)}}}")
        item.add_marker(tier)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
