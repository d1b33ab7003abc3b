"""What every test shares: hypothesis profiles, a real API server, and who runs them with xdist."""

import functools
import os
from pathlib import Path
from typing import Any

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


@pytest.hookimpl(optionalhook=True)  # of xdist, where that takes part
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file's tests on one worker, those with real components on one, those with an API server on one.

    Real tools compete for the processor and for names of namespaces; two files of them at a time
    would fail for reasons that are not in the code. An API server takes seconds to start and 300 MiB:
    one serves all tests that want one. (xdist's own groups by marker do nothing with pytest 9.2, since
    they are written into a private field of the test that it no longer has.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(config.rootpath / nodeid.partition("::")[0])

    return ByGroup(config, log)


@functools.cache
def group_of(path: Path) -> str:
    """The group of a test file: it imports what it asks for. Whole stories share no server with the rest."""
    text = path.read_text()
    if "from support.kubernetes import" in text:
        return "kube-e2e" if "e2e" in path.parts else "kube"
    asks = "require_real" in text or "pytest.mark.real" in text
    return "real" if asks else str(path)
