"""Defines the results of an SNMP request other than rows: errors, statistics and credential names."""

from dataclasses import dataclass
from typing import NamedTuple

from hyperscout_formats.snmp.rows import Row

from hyperscout_agent.snmp.access import Credential, User


class SwitchError(Exception):
    """A switch returned nothing useful. The message gives the reason and contains no secret."""


class SilentError(Exception):
    """No answer in time."""


class Answer(NamedTuple):
    """The answer to a request. `error`: the error's name in RFC 3416, "" when there is none."""

    error: str
    rows: list[Row]


@dataclass(slots=True)
class ClientStats:
    """Counts since the start of the process."""

    requests: int = 0
    silences: int = 0  # requests without an answer, after all retries
    rows: int = 0
    garbage: int = 0  # datagrams that cannot be read


def named(credential: Credential) -> str:
    """Return a description of the credential's settings entry, without its secret."""
    what = "user" if isinstance(credential, User) else "community"
    return f"the {what} of snmp.access for {credential.ranges}"
