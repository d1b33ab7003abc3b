"""Defines the settings of REST and the map."""

from pydantic import BaseModel, Field


class RestSettings(BaseModel):
    """The settings of REST; `CollectorSettings` inherits them."""

    rest_listen: str = Field(
        "127.0.0.1:50080",
        description='host:port of REST and of the map, with the same TLS and callers as `listen`; "" = none',
    )
    rest_hosts: tuple[str, ...] = Field(
        (),
        description="names under which browsers reach it where nobody is asked who calls "
        "(default: of this machine only): a page of another site must not read along",
    )
    rest_max_streams: int = Field(
        1000, ge=1, description="readers that follow the live stream at once; one that is slow is dropped"
    )
