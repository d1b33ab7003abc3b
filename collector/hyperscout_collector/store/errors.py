"""Errors of durable storage. Each message contains the next step."""


class StoreError(RuntimeError):
    """The operation failed and the store is unchanged. A retry may help."""


class StoreFullError(StoreError):
    """The store has no space left. It works again, without a restart, once there is space."""


class StoreDamagedError(StoreError):
    """The stored data is damaged. A new start moves it aside."""
