"""What tests of the command line share."""

from support.command_line import run  # noqa: F401  a fixture
