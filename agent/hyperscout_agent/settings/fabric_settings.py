"""Settings of the role `fabric`: the switches to query over SNMP, and the files of their credentials.

Secrets are never settings: settings files are widely readable, the environment shows in /proc, and flags show
in `ps`. Settings name the files that hold the secrets.
"""

import ipaddress
import json
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from hyperscout_agent.settings.probe_settings import SPLIT_COMMAS, Group

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address


def _network(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        network = ipaddress.ip_network(value)
    except ValueError as error:
        raise ValueError(f"{error}: expected a range such as 10.20.0.0/16") from error
    if not network.prefixlen:
        raise ValueError(f"{value} contains every address: expected the management networks of the switches")
    return network


def _address(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return ipaddress.ip_address(value)
    except ValueError as error:
        raise ValueError(f"{value!r}: expected an IP address (names are not resolved)") from error


def _from_json(value: object) -> object:
    """Parse the JSON of a flag."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError('expected JSON: {"ranges": ["10.20.0.0/16"], "community_file": "FILE"}') from error


class FabricGroup(Group):
    """Base of the settings of a probe of the role `fabric`."""

    @property
    def on(self) -> bool:
        """Whether the probe is configured to run."""
        raise NotImplementedError


class SnmpAccess(Group):
    """Address ranges, and the credentials of their switches: a community (v2c) or a user (v3, authPriv)."""

    ranges: Annotated[tuple[Annotated[Network, BeforeValidator(_network)], ...], SPLIT_COMMAS] = Field(
        min_length=1,
        max_length=256,
        description="Address ranges to query; of several entries the narrowest range applies.",
    )
    community_file: Path | None = Field(default=None, description="File with the community, for v2c.")
    user: str = Field(default="", max_length=32, description="Name of the user, for v3.")
    auth: Literal["SHA", "SHA-224", "SHA-256", "SHA-384", "SHA-512"] = Field(
        default="SHA-256", description="Authentication protocol; SHA is SHA-1."
    )
    auth_password_file: Path | None = Field(default=None, description="File with the password.")
    priv: Literal["AES", "AES-192", "AES-256", "AES-192-C", "AES-256-C"] = Field(
        default="AES",
        description="Encryption; AES is AES-128. -C: keys are extended by Cisco's method.",
    )
    priv_password_file: Path | None = Field(default=None, description="File with the password.")

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "SnmpAccess":
        passwords = (self.auth_password_file, self.priv_password_file)
        if bool(self.user) == (self.community_file is not None):
            raise ValueError(
                "expected either community_file (SNMP v2c) or user and its two password files (v3)"
            )
        if self.user and None in passwords:
            raise ValueError(
                "a user needs auth_password_file and priv_password_file: messages must be encrypted"
            )
        if not self.user and passwords != (None, None):
            raise ValueError("auth_password_file and priv_password_file need user")
        return self


class SnmpSettings(FabricGroup):
    """The `snmp` probe, which crawls from switch to switch."""

    access: tuple[
        Annotated[SnmpAccess, BeforeValidator(_from_json, json_schema_input_type=SnmpAccess | str)], ...
    ] = Field(
        default=(),
        max_length=1024,
        description="Address ranges to query, and the files of their credentials. Empty: off.",
    )
    seeds: Annotated[tuple[Annotated[Address, BeforeValidator(_address)], ...], NoDecode, SPLIT_COMMAS] = (
        Field(
            default=(),
            max_length=4096,
            description="Addresses to start at, in addition to those that agents hear over LLDP.",
        )
    )
    port: int = Field(default=161, ge=1, le=65_535, description="UDP port of the switches.")
    max_interval_s: float = Field(
        default=120.0,
        ge=0.2,
        le=3600,
        description="Maximum seconds between crawls, reached while nothing changes, below half of the "
        "collector's stale_after_s; raise it to query switches less often.",
    )
    request_timeout_s: float = Field(
        default=2.0,
        ge=0.1,
        le=60,
        description="Seconds until a request is repeated; raise it on a slow network.",
    )
    switch_timeout_s: float = Field(
        default=60.0,
        ge=0.1,
        le=3600,
        description="Maximum seconds for one switch; raise it for a slow switch.",
    )
    concurrency: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Number of switches that are queried at the same time; raise it if a crawl takes too "
        "long, lower it to spare the management network.",
    )
    max_switches: int = Field(
        default=2000,
        ge=1,
        le=4000,
        description="Maximum number of addresses in a crawl; the agent reports how many are left out. Raise "
        "it for a larger fabric.",
    )
    max_depth: int = Field(
        default=8,
        ge=0,
        le=100,
        description="Maximum number of cables from a seed; 0 queries only seeds. Lower it to stay out of a "
        "neighbouring fabric, raise it for a long chain of switches.",
    )

    @property
    def on(self) -> bool:
        return bool(self.access)
