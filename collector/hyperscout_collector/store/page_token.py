"""Reads and writes page tokens: the sort key of the last row of a page, as JSON in base64url."""

import base64
import json
from collections.abc import Sequence
from typing import Any


def page_token(key: Sequence[str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def key_of(token: str) -> list[Any]:
    """The reverse of `page_token`. The caller checks number and types of the parts. Raises ValueError."""
    bare = token.rstrip("=")
    try:
        found = json.loads(base64.b64decode(bare + "=" * (-len(bare) % 4), b"-_", validate=True))
        json.dumps(found, ensure_ascii=False).encode()  # databases take no lone surrogates
    except RecursionError as error:
        raise ValueError("the token is nested too deeply") from error
    if not isinstance(found, list):
        raise ValueError("the token is no list")  # noqa: TRY004 - it is the value that is wrong
    return found
