"""Reads a device's JSON message as a FindingBatch. Any bytes give a batch or one error. Pure."""

import json
from typing import Any

from google.protobuf import json_format
from hyperscout.v1.discovery_pb2 import FindingBatch

from hyperscout_collector.ingest.findings_schema import FINDINGS
from hyperscout_collector.ingest.schema_check import problem

MAX_MESSAGE_BYTES = 1024 * 1024
_MAX_SAID_CHARS = 200


class BadMessageError(ValueError):
    """The whole message is refused. The message of the error names the place and the problem."""


def read(payload: bytes) -> FindingBatch:
    """Read one message of at most `MAX_MESSAGE_BYTES`. Raises BadMessageError."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise BadMessageError(f"{len(payload)} bytes; up to {MAX_MESSAGE_BYTES} are taken")
    try:
        value = json.loads(
            payload.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_without_repeats
        )
    except UnicodeDecodeError as error:
        raise BadMessageError(f"no UTF-8: byte {error.start}") from error
    except RecursionError as error:
        raise BadMessageError("no JSON that is taken: it is nested too deeply") from error
    except BadMessageError:
        raise
    except ValueError as error:
        raise BadMessageError(f"no JSON: {str(error)[:_MAX_SAID_CHARS]}") from error
    if wrong := problem(value, FINDINGS, FINDINGS):
        raise BadMessageError(wrong)
    try:
        return json_format.ParseDict(value, FindingBatch())
    except (json_format.Error, ValueError, TypeError) as error:
        # The schema cannot express these: the 30th of February, half of a surrogate pair, 2^64.
        raise BadMessageError(
            str(error).encode("ascii", "backslashreplace").decode()[:_MAX_SAID_CHARS]
        ) from error


def _no_number(word: str) -> None:
    raise BadMessageError(f"no JSON: {word} is no number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadMessageError("no JSON that is taken: a field is there twice")
    return found
