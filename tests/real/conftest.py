"""Fixtures of the real tier: an API server (shared or of a test's own), certificates, stand-ins for NCCL."""

from support.identities import family  # noqa: F401  a fixture
from support.kubernetes import kube, own_kube, shared_plane, untouched  # noqa: F401  fixtures
from support.nccl_stubs import stubs  # noqa: F401  a fixture
from support.postgresql import own_postgresql, shared_postgresql  # noqa: F401  fixtures
