"""Fixtures of the real tier: an API server that a worker's tests share, or one of a test's own."""

from support.kubernetes import kube, own_kube, shared_plane, untouched  # noqa: F401  fixtures
