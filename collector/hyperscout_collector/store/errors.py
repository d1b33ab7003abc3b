"""Errors of durable storage. Each message contains the next step."""


class StoreError(RuntimeError):
    """The operation failed. A retry may help.

    `may_be_stored`: a connection to PostgreSQL broke while it committed. Otherwise the store is unchanged.
    """

    may_be_stored = False


class StoreUnfitError(StoreError):
    """The database cannot be used as it is. Waiting does not help."""


class StoreFullError(StoreError):
    """The store has no space left. It works again, without a restart, once there is space."""


class StoreDamagedError(StoreError):
    """The stored data is damaged. A new start moves it aside."""
