"""Settings of the probes that query a fabric manager: its REST API and the files of the credentials."""

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from hyperscout_runtime.connections import is_loopback
from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from hyperscout_agent.settings.fabric_settings import FabricGroup
from hyperscout_agent.settings.probe_settings import SPLIT_COMMAS


class ManagerSettings(FabricGroup):
    """A fabric manager with a REST API."""

    url: str = Field(
        default="",
        max_length=1024,
        description="https://HOST[:PORT] of the manager; http only on this machine. Empty: off.",
    )
    ca: Path | None = Field(
        default=None,
        description="CA certificates (PEM) for the manager. Default: those of the system. Read at each run.",
    )
    credentials: Path | None = Field(
        default=None,
        description="Folder with the files `username` and `password`, as a mounted Secret. Read at each run.",
    )
    timeout_s: float = Field(
        default=60.0, ge=0.1, le=3600, description="Maximum seconds of a run; raise it for a large fabric."
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
            raise ValueError("expected https://HOST[:PORT] without a user name")
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise ValueError("expected https: a password needs an encrypted connection")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_credentials(self) -> "ManagerSettings":
        if self.url and self.credentials is None:
            raise ValueError("credentials: expected the folder of the user name and password")
        return self


class UfmSettings(ManagerSettings):
    """The `ufm` probe: an InfiniBand fabric as reported by UFM."""


class NetqSettings(ManagerSettings):
    """The `netq` probe: an Ethernet fabric as reported by NetQ."""

    premises: Annotated[tuple[str, ...], NoDecode, SPLIT_COMMAS] = Field(
        default=(), max_length=64, description="Names of the premises to query. Empty: all."
    )


class NmxSettings(ManagerSettings):
    """The `nmx` probe: NVLink domains as reported by their manager (NMX-M, now a part of NetQ)."""
