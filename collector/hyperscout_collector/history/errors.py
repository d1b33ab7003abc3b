"""Errors of queries of the history."""


class HistoryError(Exception):
    """The query cannot be answered. The message gives the reason. `code`: the API's word for it."""

    code = "unavailable"


class BadHistoryRequestError(HistoryError):
    """The request is invalid. The message names the field."""

    code = "invalid"


class NotKeptError(HistoryError):
    """The time is before the oldest record, or nothing is recorded."""

    code = "not_kept"
