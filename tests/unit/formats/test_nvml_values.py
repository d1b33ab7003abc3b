"""What NVML's numbers mean, as tables."""

import pytest
from hyperscout_formats.nvidia import nvml_values

PCI = {
    "00000000:1B:00.0": "0000:1b:00.0",
    "0000:1b:00.0": "0000:1b:00.0",
    "00000008:01:00.0": "0008:01:00.0",
    " 00010000:E1:00.0\n": "10000:e1:00.0",  # a domain of Intel's VMD
    "0000:1b:00": "0000:1b:00.0",
    "FFFFFFFF:FF:1F.0": "",  # what stands for no device
    "0000:1b:20.0": "",
    "": "",
    "N/A": "",
    "\xb2000:1b:00.0": "",
}
HEALTH = {
    (0, 0): (),  # nothing is supported
    (0b10_10_10_10, 1): (),
    (0b01, 0): ("degraded bandwidth",),
    (0b01_00, 0): ("route recovery",),
    (0b01_00_00, 0): ("route unhealthy",),
    (0b01_00_00_00, 0): ("access timeout",),
    (1 << 8, 0): (),
    (5 << 8, 0): ("incorrect configuration",),
    (0b01_10_01 | 2 << 8, 2): ("degraded bandwidth", "route unhealthy", "incorrect configuration"),
    (0b10, 2): ("unhealthy",),
    (0b10, 3): ("limited capacity",),
    (0b10, 9): (),
}
BER = {
    0: 0,
    5 << 8 | 12: -12,
    1 << 8 | 15: -15,
    9 << 8 | 30: -15,
    15 << 8 | 255: -15,  # no errors so far
    12 << 8 | 7: -6,  # 12e-7
    3 << 8 | 0: -1,
    0 << 8 | 200: -15,
}


@pytest.mark.parametrize("text", PCI)
def test_pci_addresses(text: str) -> None:
    assert nvml_values.pci_address(text) == PCI[text]


@pytest.mark.parametrize("given", HEALTH)
def test_health(given: tuple[int, int]) -> None:
    assert nvml_values.health(*given) == HEALTH[given]


@pytest.mark.parametrize("packed", BER)
def test_bit_error_rates(packed: int) -> None:
    assert nvml_values.ber_exponent(packed) == BER[packed]


def test_cluster_uuids() -> None:
    assert nvml_values.cluster_uuid(bytes(16)) == ""
    assert nvml_values.cluster_uuid(bytes(range(1, 17))) == "01020304-0506-0708-090a-0b0c0d0e0f10"
    assert nvml_values.written_uuid("00000000-0000-0000-0000-000000000000") == ""
    assert nvml_values.written_uuid("N/A") == ""
    with pytest.raises(ValueError, match="UUID of 3 bytes"):
        nvml_values.cluster_uuid(b"abc")
