"""Settings of the probes that ask a fabric's manager over its REST API, where it is and what opens it."""

import ipaddress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import NoDecode

from hyperscout_agent.settings.fabric_settings import FabricGroup
from hyperscout_agent.settings.setting_texts import split_commas


class ManagerSettings(FabricGroup):
    """A manager that is asked over https."""

    url: str = Field(
        default="",
        max_length=1024,
        description="https://HOST[:PORT] of it; http only for one on this machine. Empty: off.",
    )
    ca: Path | None = Field(
        default=None,
        description="CA certificates (PEM) that sign its; without them those of the system. Read each time.",
    )
    credentials: Path | None = Field(
        default=None,
        description="Folder with the files `username` and `password`: a mounted Secret. Read each time.",
    )
    interval_s: float = Field(
        default=60.0, ge=1, le=86_400, description="Seconds from the start of one look to the next."
    )
    timeout_s: float = Field(default=60.0, ge=0.1, le=3600, description="Seconds for the whole of one look.")
    max_answer_bytes: int = Field(
        default=256 * 1024 * 1024, ge=1024, le=4 << 30, description="Bytes of one answer."
    )

    @property
    def on(self) -> bool:
        return bool(self.url)

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if not value:
            return value
        parts = urlsplit(value)
        try:
            known = bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known or parts.username is not None or parts.query or parts.fragment:
            raise ValueError("expected https://HOST[:PORT], and no user name in it")
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_here(parts.hostname or "")):
            raise ValueError("expected https: a password does not cross a network in the clear")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_credentials(self) -> "ManagerSettings":
        if self.url and self.credentials is None:
            raise ValueError("credentials: a manager answers nobody without: name the folder")
        return self


class UfmSettings(ManagerSettings):
    """The `ufm` probe: an InfiniBand fabric as its UFM sees it."""

    max_answer_bytes: int = Field(
        default=1 << 30,
        ge=1024,
        le=4 << 30,
        description="Bytes of one answer; ports of 10,000 hosts in three tiers are 120 MB.",
    )


class NetqSettings(ManagerSettings):
    """The `netq` probe: an Ethernet fabric as NetQ sees it."""

    max_answer_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1024,
        le=64 * 1024 * 1024,
        description="Bytes of one answer; a cable is 300 of them.",
    )
    premises: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)] = Field(
        default=(), max_length=64, description="Names of the premises that are asked; empty: all."
    )


class NmxSettings(ManagerSettings):
    """The `nmx` probe: NVLink domains as their manager (NMX-M, in NetQ by now) sees them."""


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
