"""What every test shares: hypothesis profiles, a real API server, and who runs them with xdist."""

import os

import pytest
from hypothesis import HealthCheck, settings
from support.kubernetes import _untouched, kube, own_kube, shared_plane  # noqa: F401  fixtures

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


KUBE_FIXTURES = frozenset({"kube", "own_kube"})


def pytest_configure(config: pytest.Config) -> None:
    """Know xdist's marker also in a run without it."""
    config.addinivalue_line("markers", "xdist_group(name): tests of one group run on one worker")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests on one worker, those with real components on one, those with an API server on one.

    Real tools compete for the processor and for names of namespaces; two files of them at a time
    would fail for reasons that are not in the code. An API server takes seconds to start and 300 MiB:
    one serves all tests that want one. A test may name its group itself.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    if KUBE_FIXTURES & set(getattr(item, "fixturenames", ())):
        return "kube"
    asks = hasattr(getattr(item, "module", None), "require_real")
    return "real" if asks or item.get_closest_marker("real") is not None else item.location[0]
