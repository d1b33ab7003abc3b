"""Errors of queries of the history."""


class HistoryError(Exception):
    """The query cannot be answered. The message gives the reason."""


class BadHistoryRequestError(HistoryError):
    """The request is invalid. The message names the field."""


class NotKeptError(HistoryError):
    """The time is before the oldest record, or nothing is recorded."""
