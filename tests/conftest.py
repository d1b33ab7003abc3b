"""What every test shares: the marker of its tier, and the profiles of hypothesis."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TIERS = ("unit", "integration", "real")
_HERE = Path(__file__).parent

# The same examples on every run: a red test must be red for the next person too. HYPERSCOUT_FUZZ=N
# searches on: N fresh random examples for each property that does not set its own number.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_fuzz_examples = int(os.environ.get("HYPERSCOUT_FUZZ", "0"))
if _fuzz_examples > 0:
    settings.register_profile(
        "fuzz", settings.get_profile("steady"), derandomize=False, max_examples=_fuzz_examples
    )
settings.load_profile("fuzz" if _fuzz_examples > 0 else "steady")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, which is the folder that it lies in."""
    for item in items:
        tier = item.path.relative_to(_HERE).parts[0]
        if tier not in TIERS:
            raise pytest.UsageError(f"{item.path}: a test belongs in one of tests/{{{','.join(TIERS)}}}")
        item.add_marker(tier)
