"""Reads what npu-smi and hccn_tool print about the Ascend NPUs of this host.

Sources: the npu-smi Command Reference and the HCCN Tool Interface Reference of Huawei (Ascend HDK), and the
examples in the documentation of CANN and MindCluster.
"""

import re
from dataclasses import dataclass
from typing import Final

from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError

MAX_CHIPS: Final = 64
_MAX_NAME_CHARS: Final = 60
_COLUMNS: Final = re.compile(r"\s{2,}")
_FIELD: Final = re.compile(r"\s*([A-Za-z][A-Za-z -]{0,60}?)\s*:\s*(.{1,200}?)\s*")
_NUMBER: Final = re.compile(r"\d{1,10}", re.ASCII)
_ABSENT: Final = 0xFFFF_FFFF  # the id that a server outside of a super pod has
_MAX_INDEX: Final = 0xFFFF
_BAD_HEALTH: Final = frozenset({"fault", "unreachable", "receive timeout", "time exceeded", "socket fail"})


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip of an NPU. `device`: its number for hccn_tool."""

    npu: int
    chip: int
    device: int
    name: str


@dataclass(frozen=True, slots=True)
class SuperPod:
    """The super pod of a chip. `id`: None = the server is in none. `server_index`: None = unknown."""

    id: int | None
    server_index: int | None


def parse_map(text: bytes, source: str = "npu-smi info -m") -> tuple[Chip, ...]:
    """Return the chips that `npu-smi info -m` lists, without control units (Mcu).

    The columns are found by their names: `NPU ID`, `Chip ID`, `Chip Phy-ID` (else `Chip Logic ID`) and `Chip
    Name`. Raises FormatError where one is missing, and for a chip without numbers.
    """
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
    start = next((n for n, line in enumerate(lines) if line.startswith("NPU ID")), None)
    if start is None:
        raise FormatError(source, 0, "no table of chips: expected a line that begins with NPU ID")
    columns = _COLUMNS.split(lines[start])
    at = {name: n for n, name in enumerate(columns)}
    device = at.get("Chip Phy-ID", at.get("Chip Logic ID"))
    if device is None or not {"NPU ID", "Chip ID", "Chip Name"} <= at.keys():
        raise FormatError(source, start + 1, f"unknown columns: {cleaned(lines[start])[:200]}")
    chips: list[Chip] = []
    for number, line in enumerate(lines[start + 1 :], start + 2):
        cells = line.split(maxsplit=len(columns) - 1)
        if not cells:
            continue
        if len(cells) != len(columns):
            raise FormatError(source, number, f"expected {len(columns)} columns: {cleaned(line)[:200]}")
        if cells[device] == "-":
            continue
        numbers = [cells[at["NPU ID"]], cells[at["Chip ID"]], cells[device]]
        if not all(map(_NUMBER.fullmatch, numbers)):
            raise FormatError(source, number, f"expected numbers: {cleaned(line)[:200]}")
        npu, chip, device_number = map(int, numbers)
        name = cleaned(cells[at["Chip Name"]])[:_MAX_NAME_CHARS]
        chips.append(Chip(npu, chip, device_number, name))
    if len(chips) > MAX_CHIPS or len({(x.npu, x.chip) for x in chips}) < len(chips):
        raise FormatError(source, 0, f"{len(chips)} chips: expected at most {MAX_CHIPS}, each of them once")
    return tuple(chips)


def parse_super_pod(text: bytes, source: str = "npu-smi info -t spod-info") -> SuperPod | None:
    """Return the super pod that `npu-smi info -t spod-info -i NPU -c CHIP` prints.

    None: the device has no such command, as all devices before Atlas A3. Raises FormatError for another text
    without the fields.
    """
    fields = _fields(text, source)
    if "Super Pod ID" not in fields:
        if b"not support" in text.lower():
            return None
        raise FormatError(source, 0, "expected a line `Super Pod ID : NUMBER`")
    ident, index = fields["Super Pod ID"], fields.get("Server Index", "")
    if not _NUMBER.fullmatch(ident) or int(ident) > _ABSENT:
        raise FormatError(source, 0, f"Super Pod ID {cleaned(ident)[:60]!a}: expected a number of 32 bits")
    if int(ident) == _ABSENT:
        return SuperPod(None, None)
    has_index = _NUMBER.fullmatch(index) is not None and int(index) <= _MAX_INDEX
    return SuperPod(int(ident), int(index) if has_index else None)


def parse_link(text: bytes, source: str = "hccn_tool -link -g") -> bool:
    """Return whether the network port is up, of `hccn_tool -i DEVICE -link -g`. Raises FormatError."""
    status = _fields(text, source).get("link status", "").upper()
    if status not in ("UP", "DOWN"):
        raise FormatError(source, 0, "expected `link status: UP` or `link status: DOWN`")
    return status == "UP"


def parse_health(text: bytes, source: str = "hccn_tool -net_health -g") -> str:
    """Return the trouble of `hccn_tool -i DEVICE -net_health -g`, "" = none.

    The device pings an address that was configured. Without one its status is Init; that and all other words
    that name no failed ping are no trouble. Raises FormatError where the status is missing.
    """
    status = _fields(text, source).get("net health status", "")
    if not status:
        raise FormatError(source, 0, "expected `net health status: STATUS`")
    return cleaned(status)[:_MAX_NAME_CHARS] if status.lower() in _BAD_HEALTH else ""


def _fields(text: bytes, source: str) -> dict[str, str]:
    """Return the values by name: each line is `name : value`. Raises FormatError for two values of a name."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        if match := _FIELD.fullmatch(line):
            name, value = match[1], match[2]
            if found.setdefault(name, value) != value:
                raise FormatError(source, number, f"{name} has two values")
    return found
