"""Settings of the history."""

from pydantic import BaseModel, Field


class HistorySettings(BaseModel):
    """Fields of `CollectorSettings`."""

    history_max_days: float = Field(
        30.0, ge=0, description="days that generations and changes are kept; 0 = no history"
    )
    history_max_mib: int = Field(
        256, ge=1, description="MiB that the history may take; the oldest goes first, whatever its age"
    )
