"""The checks of calls to PlacementService, and the gRPC code of each error."""

import re
from typing import Final

import grpc
from hyperscout_placer.book.reservation import (
    HeldError,
    NoReservationError,
    NoRoomError,
    NotReadyError,
    PlacementsError,
    Reservation,
    TooManyError,
)
from hyperscout_placer.cluster.request import RequestError
from hyperscout_runtime.bounded_executor import BusyError

from hyperscout_collector.serve.grpc.placement_queries import OutdatedRequestError
from hyperscout_collector.store.errors import StoreError

API: Final = "api"  # holder of the reservations that the service makes

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class OtherHolderError(Exception):
    """The reservation belongs to another holder. Only that holder can release or move it."""


class NoPlanError(Exception):
    """The schedule has made no plan to defragment."""


CODES: Final[tuple[tuple[type[Exception], grpc.StatusCode], ...]] = (
    (RequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (HeldError, grpc.StatusCode.ALREADY_EXISTS),
    (NoReservationError, grpc.StatusCode.NOT_FOUND),
    (NoPlanError, grpc.StatusCode.NOT_FOUND),
    (NotReadyError, grpc.StatusCode.FAILED_PRECONDITION),
    (OutdatedRequestError, grpc.StatusCode.FAILED_PRECONDITION),
    (OtherHolderError, grpc.StatusCode.FAILED_PRECONDITION),
    (TooManyError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (BusyError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (NoRoomError, grpc.StatusCode.ABORTED),
    (StoreError, grpc.StatusCode.UNAVAILABLE),
    (PlacementsError, grpc.StatusCode.INTERNAL),
)


def check_name(gang: str) -> None:
    """Raises RequestError for a gang's name that no reservation can have."""
    if not _NAME.fullmatch(gang):
        raise RequestError(
            f"gang: {gang[:253]!r}: expected 1 to 253 letters, digits, '.', '_' and '-', starting and ending "
            "with a letter or digit"
        )


def check_holder(held: Reservation) -> None:
    """Raises OtherHolderError for the reservation of a workload: only the end of its pods releases it."""
    if held.holder != API:
        raise OtherHolderError(
            f"the reservation of gang {held.gang!r} belongs to its {held.holder}: delete its pods to "
            "release it, or create them again to move it"
        )
