"""What folders of the integration tier share: certificates, stand-ins for NCCL, and databases."""

from support.evidence_stores import evidence_of  # noqa: F401  a fixture
from support.histories import history  # noqa: F401  a fixture
from support.identities import family, strangers  # noqa: F401  fixtures
from support.nccl_stubs import stubs  # noqa: F401  a fixture
from support.postgresql import own_postgresql, shared_postgresql  # noqa: F401  fixtures
