"""Settings of the role `fabric`: whom it asks about whole switches, and with which credentials.

Secrets are never settings: a setting is in a file that many may read, in an environment that shows in /proc,
in flags that show in `ps`. Settings name the files that hold them.
"""

import ipaddress
import json
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import NoDecode

from hyperscout_agent.settings.setting_texts import split_commas

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
        raise ValueError(f"{value} is every address there is: name the networks that switches are managed by")
    return network


def _address(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return ipaddress.ip_address(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is no IP address (names are not looked up)") from error


def _from_json(value: object) -> object:
    """In a flag it is JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError('expected JSON: {"ranges": ["10.20.0.0/16"], "community_file": "FILE"}') from error


class FabricGroup(BaseModel):
    """Settings of one probe of the role `fabric`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def on(self) -> bool:
        """Whether enough is set for the probe to run."""
        raise NotImplementedError


class SnmpAccess(BaseModel):
    """Ranges of addresses, and what opens the switches there: a community (v2c) or a user (v3, authPriv)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ranges: Annotated[
        tuple[Annotated[Network, BeforeValidator(_network)], ...], BeforeValidator(split_commas)
    ] = Field(
        min_length=1,
        max_length=256,
        description="Only addresses in these are ever asked; the narrowest counts.",
    )
    community_file: Path | None = Field(default=None, description="File with the community, for v2c.")
    user: str = Field(default="", max_length=32, description="Name of the user, for v3.")
    auth: Literal["SHA", "SHA-224", "SHA-256", "SHA-384", "SHA-512"] = Field(
        default="SHA-256", description="How messages are authenticated; SHA is SHA-1."
    )
    auth_password_file: Path | None = Field(default=None, description="File with its password.")
    priv: Literal["AES", "AES-192", "AES-256", "AES-192-C", "AES-256-C"] = Field(
        default="AES",
        description="How messages are encrypted; AES is AES-128. -C: keys are made longer as Cisco does it.",
    )
    priv_password_file: Path | None = Field(default=None, description="File with its password.")

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "SnmpAccess":
        passwords = (self.auth_password_file, self.priv_password_file)
        if bool(self.user) == (self.community_file is not None):
            raise ValueError("give either community_file (SNMP v2c) or user and its two password files (v3)")
        if self.user and None in passwords:
            raise ValueError(
                "a user needs auth_password_file and priv_password_file: nothing goes in the clear"
            )
        if not self.user and passwords != (None, None):
            raise ValueError("passwords are a user's: give user too")
        return self


class SnmpSettings(FabricGroup):
    """The `snmp` probe: a crawl from switch to switch."""

    access: tuple[Annotated[SnmpAccess, BeforeValidator(_from_json)], ...] = Field(
        default=(),
        max_length=1024,
        description="Ranges of addresses and files of their credentials; nothing else is asked. Empty: off.",
    )
    seeds: Annotated[
        tuple[Annotated[Address, BeforeValidator(_address)], ...], NoDecode, BeforeValidator(split_commas)
    ] = Field(
        default=(),
        max_length=4096,
        description="Addresses to begin at, besides those that the agents hear over LLDP.",
    )
    port: int = Field(default=161, ge=1, le=65_535, description="UDP port of the switches.")
    interval_s: float = Field(
        default=30.0,
        ge=0.2,
        le=3600,
        description="Seconds between crawls while something changes.",
    )
    max_interval_s: float = Field(
        default=120.0,
        ge=0.2,
        le=3600,
        description="Seconds between crawls when nothing does; under half of the collector's stale_after_s.",
    )
    request_timeout_s: float = Field(
        default=2.0, ge=0.1, le=60, description="Seconds until a question is asked again."
    )
    retries: int = Field(default=2, ge=0, le=10, description="How often it is, before the switch is silent.")
    switch_timeout_s: float = Field(
        default=60.0, ge=0.1, le=3600, description="Seconds for the whole of one switch."
    )
    crawl_timeout_s: float = Field(
        default=900.0, ge=0.1, le=86_400, description="Seconds for a crawl; what it saw by then counts."
    )
    concurrency: int = Field(default=16, ge=1, le=256, description="Switches that are asked at once.")
    max_switches: int = Field(
        default=2000, ge=1, le=4000, description="Addresses that one crawl asks; more are left out, and told."
    )
    max_depth: int = Field(
        default=8, ge=0, le=100, description="Switches from a seed on, along cables; 0 asks seeds alone."
    )

    @property
    def on(self) -> bool:
        return bool(self.access)

    @model_validator(mode="after")
    def _slower_when_quiet(self) -> "SnmpSettings":
        if self.max_interval_s < self.interval_s:
            raise ValueError("max_interval_s is less than interval_s")
        return self
