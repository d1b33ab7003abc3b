"""Reads the files that nccl-tests write with `-J FILE.json`: one operation at several sizes.

The format is that of NVIDIA's nccl-tests 2.19 (`src/util.cu`, file version 3): an object with `nccl_version`,
`config` and `results`. Each result has `size` and `count`. For each of the two buffer modes (`out_of_place`,
`in_place`) it has an object with `time` (microseconds), `alg_bw`, `bus_bw` (1e9 bytes per second) and
`nwrong` (number of wrong elements, null if the data was not checked). A NaN is the text "nan". The file also
contains the complete environment of the program, which is not kept.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Final

from hyperscout_formats.facts.facts import NcclResult
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.problems import Problems

MAX_BYTES: Final = 8 * 1024 * 1024  # a thousand sizes take half a megabyte
MAX_RESULTS: Final = 1024
_MAX_RANKS = 1 << 20
_MAX_SIZE_BYTES = 1 << 50
_MAX_TIME_US = 1e12  # a week and a half
_MAX_GBYTES_PER_S = 1e9
_MAX_VERSION = 1_000_000
# NCCL_VERSION(X,Y,Z) of nccl.h: up to 2.8 X*1000 + Y*100 + Z, from 2.9 on X*10000 + Y*100 + Z.
_NEW_CODES_FROM = 10_000


@dataclass(frozen=True, slots=True)
class NcclTests:
    """One run of one program. `nccl_version` is "" and `ranks` is 0 where the file does not contain them.

    `wrong` lists the sizes at which data was wrong. They are not in `results`.
    """

    nccl_version: str
    ranks: int
    results: tuple[NcclResult, ...]
    wrong: tuple[int, ...] = ()


class _UnusableError(Exception):
    """A result lacks a value or has an invalid one."""


def parse(
    data: bytes, operation: str = "all_reduce", source: str = "nccl-tests"
) -> tuple[NcclTests, tuple[Problem, ...]]:
    """Read a file. `operation` is the operation that was measured, because the file does not contain it.

    Times are those of separate buffers (`out_of_place`). If there are none, those of shared buffers are used.
    Raises FormatError if the text is not such a file. An invalid result is reported as a problem.
    """
    document = _document(data, source)
    rows = document.get("results")
    if not isinstance(rows, list):
        raise FormatError(source, 0, "no list of results: the program ended before it measured")
    problems = Problems(source)
    if len(rows) > MAX_RESULTS:
        problems.add(0, f"{len(rows)} results; only {MAX_RESULTS} are read")
    found: dict[int, NcclResult] = {}
    wrong: list[int] = []
    for number, row in enumerate(rows[:MAX_RESULTS], 1):
        try:
            result, errors = _result(row, operation)
        except _UnusableError as error:
            problems.add(0, f"result {number}: {error}")
            continue
        if errors:
            wrong.append(result.size_bytes)
            problems.add(0, f"result {number}: {errors:g} elements are wrong")
        elif result.size_bytes in found:
            problems.add(0, f"result {number}: {result.size_bytes} bytes: a result of this size precedes it")
        else:
            found[result.size_bytes] = result
    results = tuple(found[size] for size in sorted(found))
    told = NcclTests(
        nccl_version(document.get("nccl_version")), _ranks(document.get("config")), results, tuple(wrong)
    )
    return told, problems.listed()


def nccl_version(code: object) -> str:
    """Return "2.29.3" for 22903, the code that `ncclGetVersion` returns. Return "" for an invalid code."""
    if not isinstance(code, int) or isinstance(code, bool) or not 1000 <= code < _MAX_VERSION:
        return ""
    major = 10_000 if code >= _NEW_CODES_FROM else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"


def _document(data: bytes, source: str) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes; expected at most {MAX_BYTES} bytes")
    try:
        document = json.loads(data.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise FormatError(source, error.lineno, f"not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(source, 0, f"not JSON of nccl-tests: {str(error)[:200]}") from error
    if not isinstance(document, dict):
        raise FormatError(source, 0, "not an object: is this the output of nccl-tests with -J FILE.json?")
    return document


def _result(row: object, operation: str) -> tuple[NcclResult, float]:
    """Return a result and its number of wrong elements. Raises _UnusableError."""
    if not isinstance(row, dict):
        raise _UnusableError("not an object")
    size = row.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _MAX_SIZE_BYTES:
        raise _UnusableError("no size in bytes")
    body = row.get("out_of_place")
    if body is None:
        body = row.get("in_place")
    if not isinstance(body, dict):
        raise _UnusableError("expected out_of_place or in_place, found neither")
    if "time" not in body and "cpu_time" in body:
        raise _UnusableError("CPU time only: run nccl-tests without -C 1 to measure GPU time")
    errors = 0.0
    for way in ("out_of_place", "in_place"):
        other = row.get(way)
        if isinstance(other, dict) and other.get("nwrong") is not None:
            errors = max(errors, _number(other, "nwrong", 0.0, math.inf))
    result = NcclResult(
        operation,
        size,
        _number(body, "time", 1e-6, _MAX_TIME_US),
        _number(body, "alg_bw", 0.0, _MAX_GBYTES_PER_S),
        _number(body, "bus_bw", 0.0, _MAX_GBYTES_PER_S),
    )
    return result, errors


def _number(body: dict[str, Any], name: str, low: float, high: float) -> float:
    value = body.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _UnusableError(f"{name} is not a number")
    if not low <= value <= high:  # also excludes NaN
        raise _UnusableError(f"{name} is out of range")
    return float(value) if value < 1e300 else math.inf


def _ranks(config: object) -> int:
    if not isinstance(config, dict):
        return 0
    threads, gpus, devices = (config.get(name) for name in ("nthreads", "ngpus", "devices"))
    counted = len(devices) if isinstance(devices, list) else 0  # lists the devices of all ranks only with MPI
    if all(isinstance(x, int) and 0 < x <= _MAX_RANKS for x in (threads, gpus)):
        counted = max(counted, int(threads) * int(gpus))  # type: ignore[arg-type]  # checked above
    return min(counted, _MAX_RANKS)
