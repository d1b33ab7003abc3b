"""What comes of asking a switch, besides its rows."""

from dataclasses import dataclass
from typing import NamedTuple

from hyperscout_formats.snmp.rows import Row

from hyperscout_agent.snmp.access import Credential, User


class SwitchError(Exception):
    """A switch gave nothing that is of use; says why, in words that hold no secret."""


class SilentError(Exception):
    """No answer in time."""


class Answer(NamedTuple):
    """`error`: its name in RFC 3416; "" = none."""

    error: str
    rows: list[Row]


@dataclass(slots=True)
class ClientStats:
    """Since the start of the process."""

    requests: int = 0
    silences: int = 0  # requests without an answer, after all retries
    rows: int = 0
    garbage: int = 0  # datagrams that cannot be read


def named(credential: Credential) -> str:
    """The entry of the settings, in words without its secret."""
    what = "user" if isinstance(credential, User) else "community"
    return f"the {what} of snmp.access for {credential.ranges}"
