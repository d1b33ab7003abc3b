"""What folders of the integration tier share: certificates of two authorities, and stand-ins for NCCL."""

from support.identities import family, strangers  # noqa: F401  fixtures
from support.nccl_stubs import stubs  # noqa: F401  a fixture
