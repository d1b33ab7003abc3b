"""Reads SNMP credentials by address range from files, and decides which addresses may be queried.

The agent does not query addresses outside the ranges, whatever a neighbour announces. If several ranges
contain an address, the narrowest applies, and no other credential is tried. Trying all credentials would
disclose secrets to switches that they are not for, and would raise an alarm on each switch.

Files are read for each crawl, so a renewed file takes effect at the next crawl.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hyperscout_runtime.credentials import read_secret

from hyperscout_agent.settings.fabric_settings import SnmpAccess

_MAX_BYTES = 1024
# RFC 3414, 11.2: shorter passwords are open to dictionary attacks, and switches reject them.
_LEAST_PASSWORD_CHARS = 8


class Secret:
    """A text that is hidden in logs and traces. Only `reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written anywhere")


@dataclass(frozen=True, slots=True)
class Community:
    """The credential for SNMPv2c."""

    community: Secret
    ranges: str  # the entry's ranges, for messages


@dataclass(frozen=True, slots=True)
class User:
    """The credential for SNMPv3. `auth`, `priv`: names of the protocols. `ranges`: for messages."""

    name: str
    auth: str
    auth_password: Secret
    priv: str
    priv_password: Secret
    ranges: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry without a usable credential, because a file is missing or invalid."""

    reason: str


Credential = Community | User
Entry = Credential | Unreadable


class Credentials:
    """All entries, as read at one time."""

    def __init__(self, by_range: Mapping[tuple[int, int, int], Entry]) -> None:
        self._by_range = by_range
        self._lengths = {
            version: sorted({length for v, length, _ in by_range if v == version}, reverse=True)
            for version in (4, 6)
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Credentials) and other._by_range == self._by_range

    __hash__ = None  # type: ignore[assignment]

    def of(self, address: str) -> Entry | None:
        """Return the entry of the narrowest range that contains an address. None: it must not be queried."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return None
        if getattr(parsed, "scope_id", None):
            return None
        number = int(parsed)
        for length in self._lengths[parsed.version]:
            shift = parsed.max_prefixlen - length
            entry = self._by_range.get((parsed.version, length, number >> shift << shift))
            if entry is not None:
                return entry
        return None


def read_credentials(entries: Iterable[SnmpAccess]) -> Credentials:
    """Read all files. Blocks. Does not raise: an entry with an invalid file becomes `Unreadable`."""
    by_range: dict[tuple[int, int, int], Entry] = {}
    for settings in entries:
        entry = _entry(settings)
        for network in settings.ranges:
            key = (network.version, network.prefixlen, int(network.network_address))
            by_range.setdefault(key, entry)
    return Credentials(by_range)


def _entry(settings: SnmpAccess) -> Entry:
    some = [str(network) for network in settings.ranges[:2]]
    ranges = ", ".join(some + ["..."] * (len(settings.ranges) > len(some)))
    try:
        if settings.community_file is not None:
            return Community(_secret(settings.community_file), ranges)
        assert settings.auth_password_file is not None  # noqa: S101 - the settings' own rule
        assert settings.priv_password_file is not None  # noqa: S101
        auth_password = _secret(settings.auth_password_file, _LEAST_PASSWORD_CHARS)
        priv_password = _secret(settings.priv_password_file, _LEAST_PASSWORD_CHARS)
        return User(settings.user, settings.auth, auth_password, settings.priv, priv_password, ranges)
    except OSError as error:
        return Unreadable(f"its credentials ({ranges}): {error.filename}: {error.strerror}")
    except ValueError as error:
        return Unreadable(f"its credentials ({ranges}): {error}")


def _secret(path: Path, least: int = 1) -> Secret:
    """Read a secret. Raises OSError and ValueError, without content of the file in the message."""
    text = read_secret(path, _MAX_BYTES)
    if len(text) < least:
        raise ValueError(f"{path}: under the {least} characters that SNMPv3 demands")
    return Secret(text)
