"""Splits a list into pages: up to `pageSize` objects, and a token for the next page.

The token contains the sort key of the last object and not an offset, so objects that appear or disappear do
not shift the next page. A token is valid only for its own query.
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hyperscout_topology.objects import Object

from hyperscout_collector.serve.http.problems import bad
from hyperscout_collector.serve.rest.kinds import Place
from hyperscout_collector.serve.rest.parameters import Parameter
from hyperscout_collector.store.page_token import key_of, page_token

PAGE_SIZE = 1000
MAX_PAGE_SIZE = 10_000


def paging(size: int = PAGE_SIZE, most: int = MAX_PAGE_SIZE) -> tuple[Parameter, Parameter]:
    """The parameters of a list. `size`: default objects per page; `most`: limit of `pageSize`."""
    about = f"Maximum number of objects per page, by default {size}. A page can have fewer."
    return (
        Parameter("pageSize", about, "number", 100, least=1, most=most),
        Parameter(
            "pageToken", "`nextPageToken` of the previous page of the same query; without it the first page."
        ),
    )


PAGING = paging()


def page(
    rows: Sequence[tuple[Place, Object]], keep: Callable[[Object], bool], values: Mapping[str, Any]
) -> tuple[list[Object], str]:
    """The objects of a page, and the token of the next page ("" = last page). `rows` are sorted by place.

    Raises ProblemError.
    """
    query = _digest(values)
    start = 0
    if token := values.get("pageToken"):
        start = bisect_right(rows, _place(token, query), key=lambda row: row[0])
    size: int = values.get("pageSize", PAGE_SIZE)
    found: list[Object] = []
    last: Place = ()
    for place, one in rows[start:]:
        if not keep(one):
            continue
        if len(found) == size:
            return found, page_token([query, *last])
        found.append(one)
        last = place
    return found, ""


def _digest(values: Mapping[str, Any]) -> str:
    asked = sorted((k, v) for k, v in values.items() if k not in ("pageSize", "pageToken"))
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


def _place(token: str, query: str) -> Place:
    try:
        found = key_of(token)
    except ValueError:
        found = []
    if not found or not all(isinstance(one, str) for one in found):
        raise bad("pageToken", "expected the nextPageToken of an earlier page")
    if found[0] != query:
        raise bad(
            "pageToken",
            "the token belongs to another query: keep the filters, or omit pageToken to start again",
        )
    return tuple(found[1:])
