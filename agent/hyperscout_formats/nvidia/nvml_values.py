"""What the numbers of NVML mean, so that the probe and nvidia-smi's own text give the same facts.

Source: NVIDIA's NVML API reference (nvml.h of the R580 driver), of which nvidia-ml-py repeats the values.
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
"""Links are called good from here on: what is better (or free of errors so far) is not told apart."""

# A field of two bits in the health mask: 0 not supported, 1 it is so, 2 it is not. (Shift, word.)
_HEALTH_FLAGS: Final = (
    (0, DEGRADED_BANDWIDTH),
    (2, ROUTE_RECOVERY),
    (4, ROUTE_UNHEALTHY),
    (6, ACCESS_TIMEOUT),
)
_CONFIGURATION_SHIFT: Final = 8  # four bits: 0 not supported, 1 nothing wrong, more: what is wrong
_SUMMARIES: Final[Mapping[int, str]] = {2: UNHEALTHY, 3: LIMITED_CAPACITY}

_PCI: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")
_NO_DOMAIN: Final = 0xFFFFFFFF


def pci_address(text: str) -> str:
    """ "00000000:1B:00.0" as sysfs writes it, "0000:1b:00.0"; "" where it is no address."""
    found = _PCI.fullmatch(text.strip().lower())
    if found is None:
        return ""
    domain, bus, device, function = found.groups()
    if int(domain, 16) == _NO_DOMAIN or int(device, 16) > 0x1F:
        return ""
    return f"{int(domain, 16):04x}:{bus}:{device}.{function or 0}"


def cluster_uuid(raw: bytes) -> str:
    """The 16 bytes as people write them; all zero is node-local, "". Raises ValueError for other lengths."""
    if len(raw) != 16:
        raise ValueError(f"a UUID of {len(raw)} bytes")
    return written_uuid(raw.hex())


def written_uuid(text: str) -> str:
    """A UUID in its usual form, lower case; "" for one of zeros and for what is none."""
    digits = text.strip().lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{32}", digits) or not digits.strip("0"):
        return ""
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def health(mask: int, summary: int = 0) -> tuple[str, ...]:
    """Words for what a health mask says is wrong. `summary` (version 3) counts where it names nothing."""
    words = [word for shift, word in _HEALTH_FLAGS if mask >> shift & 3 == 1]
    if mask >> _CONFIGURATION_SHIFT & 15 > 1:
        words.append(INCORRECT_CONFIGURATION)
    if not words and summary in _SUMMARIES:
        words.append(_SUMMARIES[summary])
    return tuple(words)


def ber_exponent(packed: int) -> int:
    """Power of ten of a bit error rate: bits 0-7 are its negative exponent, 8-11 its mantissa. 0 = none.

    Coarse on purpose. A link without errors counts as the best: its rate creeps on with every bit it carries.
    """
    exponent, mantissa = packed & 0xFF, packed >> 8 & 0xF
    if mantissa == 0:
        return 0 if exponent == 0 else BEST_BER_EXPONENT
    return min(max(BEST_BER_EXPONENT, -exponent + (mantissa >= 10)), -1)
