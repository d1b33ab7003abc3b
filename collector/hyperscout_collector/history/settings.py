"""Defines the settings of the history."""

from pydantic import BaseModel, Field


class HistorySettings(BaseModel):
    """The settings of the history; `CollectorSettings` inherits them."""

    history_max_days: float = Field(
        30.0,
        ge=0,
        description="days that generations and changes are kept; 0 = no history. Raise it to compare with "
        "older states",
    )
    history_max_mib: int = Field(
        256,
        ge=1,
        description="maximum MiB of the history; the oldest entries are deleted first. Raise it if the "
        "history goes back less far than history_max_days",
    )
