"""Reads a device's JSON message as a FindingBatch. Any bytes give a batch or one error. Pure.

The message is a FindingBatch in protobuf's JSON mapping (protobuf.dev, "ProtoJSON Format"), which
docs/schemas/mqtt/findings.schema.json describes. Its sizes are checked before protobuf reads it.
"""

import json
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from hyperscout.v1.discovery_pb2 import FindingBatch

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_FINDINGS = 4096  # and removed keys
MAX_ITEMS = 256  # of any other list
MAX_TEXT_CHARS = 1024
MAX_RATE_GBPS = 1e9
_MAX_DEPTH = 16  # the deepest message of the contract has 7 levels
_MAX_ERROR_CHARS = 200


class BadMessageError(ValueError):
    """The whole message is refused. The message of the error names the place and the problem."""


def read(payload: bytes) -> FindingBatch:
    """Read one message of at most `MAX_MESSAGE_BYTES`. Raises BadMessageError."""
    if len(payload) > MAX_MESSAGE_BYTES:
        raise BadMessageError(f"{len(payload)} bytes; a message has at most {MAX_MESSAGE_BYTES}")
    value = _json(payload)
    if not isinstance(value, dict) or not isinstance(value.get("findings"), list):
        raise BadMessageError("expected an object with a list `findings`")
    _check_sizes(value, "", 0)
    findings = value.pop("findings")
    batch = FindingBatch()
    _parse(value, batch, "")
    if batch.unchanged:
        raise BadMessageError("unchanged: only the stream of an agent has this field; send `findings`")
    for i, finding in enumerate(findings):
        place = f"findings[{i}]"
        if not isinstance(finding, dict):
            raise BadMessageError(f"{place}: expected an object")
        found = batch.findings.add()
        _parse(finding, found, f"{place}: ")
        if found.HasField("infiniband") and not 0 <= found.infiniband.rate_gbps <= MAX_RATE_GBPS:
            raise BadMessageError(f"{place}.infiniband.rateGbps: expected 0 to {MAX_RATE_GBPS:g}")
    return batch


def _json(payload: bytes) -> Any:
    try:
        return json.loads(
            payload.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_without_repeats
        )
    except UnicodeDecodeError as error:
        raise BadMessageError(f"the message is not UTF-8: byte {error.start}") from error
    except RecursionError as error:
        raise BadMessageError("the message is nested too deeply") from error
    except BadMessageError:
        raise
    except ValueError as error:
        raise BadMessageError(f"the message is not JSON: {_printable(error)}") from error


def _check_sizes(value: Any, place: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise BadMessageError("the message is nested too deeply")
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        raise BadMessageError(f"{place}: {len(value)} characters; expected at most {MAX_TEXT_CHARS}")
    if isinstance(value, list):
        most = MAX_FINDINGS if depth == 1 else MAX_ITEMS
        if len(value) > most:
            raise BadMessageError(f"{place}: {len(value)} elements; expected at most {most}")
        for i, inner in enumerate(value):
            _check_sizes(inner, f"{place}[{i}]", depth + 1)
    elif isinstance(value, dict):
        for name, inner in value.items():
            short = _printable(name)
            if not name.isascii():  # protobuf raises SystemError for half of a surrogate pair
                raise BadMessageError(f"{place or 'the message'}: no field has the name '{short}'")
            _check_sizes(inner, f"{place}.{short}" if place else short, depth + 1)


def _parse(value: dict[str, Any], message: Message, place: str) -> None:
    try:
        json_format.ParseDict(value, message)
    except (json_format.Error, ValueError, TypeError, OverflowError) as error:
        raise BadMessageError(place + _printable(str(error).partition("\n Available Fields")[0])) from error


def _printable(text: object) -> str:
    return ascii(str(text)[:_MAX_ERROR_CHARS])[1:-1]


def _refuse_constant(word: str) -> None:
    raise BadMessageError(f"the message is not JSON: {word} is not a number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadMessageError("an object contains a field twice")
    return found
