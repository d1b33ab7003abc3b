"""What every test shares: hypothesis profiles, and how xdist spreads the tests over its workers."""

import os

import pytest
from hypothesis import HealthCheck, settings

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
    """Keep a file's tests on one worker, and all tests with real components on the same one.

    Real tools compete for the processor and for names of namespaces; two files of them at a time
    would fail for reasons that are not in the code.
    """
    for item in items:
        asks = hasattr(getattr(item, "module", None), "require_real")
        real = asks or item.get_closest_marker("real") is not None
        item.add_marker(pytest.mark.xdist_group("real" if real else item.location[0]))
