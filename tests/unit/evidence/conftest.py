"""What tests of evidence share."""

from support.evidence_rig import rig  # noqa: F401  a fixture
