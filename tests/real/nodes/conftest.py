"""One lab at a time: two labs need more inotify instances than Linux allows a user (128)."""

import fcntl
from collections.abc import Iterator

import pytest
from kube.assets import cache_root


@pytest.fixture(scope="module", autouse=True)
def lab_lock() -> Iterator[None]:
    """Wait until no other test run of this user has a lab."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with (cache_root() / "lab.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
