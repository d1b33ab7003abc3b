"""Defines the meaning of NVML numbers, so that the probe and nvidia-smi's text give the same facts.

Source: NVIDIA's NVML API reference (nvml.h of the R580 driver). nvidia-ml-py repeats the values.
"""

import re
from collections.abc import Mapping
from typing import Final

# Words of `NvlinkFabric.health`.
DEGRADED_BANDWIDTH: Final = "degraded bandwidth"
ROUTE_RECOVERY: Final = "route recovery"
ROUTE_UNHEALTHY: Final = "route unhealthy"
ACCESS_TIMEOUT: Final = "access timeout"
INCORRECT_CONFIGURATION: Final = "incorrect configuration"
UNHEALTHY: Final = "unhealthy"
LIMITED_CAPACITY: Final = "limited capacity"

# nvmlGpuFabricState_t
FABRIC_STATES: Final[Mapping[int, str]] = {
    0: "not-supported",
    1: "not-started",
    2: "in-progress",
    3: "completed",
}
# nvmlGpuTopologyLevel_t
ANCESTORS: Final[Mapping[int, str]] = {
    0: "internal",
    10: "single-switch",
    20: "multiple-switches",
    30: "host-bridge",
    40: "node",
    50: "system",
}
# nvmlIntNvLinkDeviceType_t; 255 is "unknown"
REMOTE_TYPES: Final[Mapping[int, str]] = {0: "gpu", 1: "other", 2: "switch"}

BEST_BER_EXPONENT: Final = -15
"""The best exponent that is reported. Links with a lower error rate, or with no errors so far, have this
value.
"""

# Each field has two bits: 0 = not supported, 1 = true, 2 = false. (Shift, word.)
_HEALTH_FLAGS: Final = (
    (0, DEGRADED_BANDWIDTH),
    (2, ROUTE_RECOVERY),
    (4, ROUTE_UNHEALTHY),
    (6, ACCESS_TIMEOUT),
)
_CONFIGURATION_SHIFT: Final = 8  # four bits: 0 = not supported, 1 = no problem, above: the problem
_SUMMARIES: Final[Mapping[int, str]] = {2: UNHEALTHY, 3: LIMITED_CAPACITY}

_PCI: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")
_NO_DOMAIN: Final = 0xFFFFFFFF


def pci_address(text: str) -> str:
    """Convert "00000000:1B:00.0" to the form of sysfs, "0000:1b:00.0". Return "" for an invalid address."""
    found = _PCI.fullmatch(text.strip().lower())
    if found is None:
        return ""
    domain, bus, device, function = found.groups()
    if int(domain, 16) == _NO_DOMAIN or int(device, 16) > 0x1F:
        return ""
    return f"{int(domain, 16):04x}:{bus}:{device}.{function or 0}"


def cluster_uuid(raw: bytes) -> str:
    """Return the usual form of a UUID of 16 bytes, "" = all zero, which means node-local.

    Raises ValueError for other lengths.
    """
    if len(raw) != 16:
        raise ValueError(f"a UUID of {len(raw)} bytes")
    return written_uuid(raw.hex())


def written_uuid(text: str) -> str:
    """Return a UUID in its usual form, in lower case. Return "" for zeros and for text that is not a UUID."""
    digits = text.strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{32}", digits) or not digits.strip("0"):
        return ""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def health(mask: int, summary: int = 0) -> tuple[str, ...]:
    """Return words for the problems in a health mask.

    `summary` (version 3) counts only if the mask contains no problem.
    """
    words = [word for shift, word in _HEALTH_FLAGS if mask >> shift & 3 == 1]
    if mask >> _CONFIGURATION_SHIFT & 15 > 1:
        words.append(INCORRECT_CONFIGURATION)
    if not words and summary in _SUMMARIES:
        words.append(_SUMMARIES[summary])
    return tuple(words)


def ber_exponent(packed: int) -> int:
    """Return the power of ten of a bit error rate, 0 = none.

    Bits 0-7 of `packed` are the negative exponent, bits 8-11 the mantissa. The result is coarse on purpose. A
    link without errors gets the best value, because its measured rate improves with every bit that it
    carries.
    """
    exponent, mantissa = packed & 0xFF, packed >> 8 & 0xF
    if mantissa == 0:
        return 0 if exponent == 0 else BEST_BER_EXPONENT
    return min(max(BEST_BER_EXPONENT, -exponent + (mantissa >= 10)), -1)
