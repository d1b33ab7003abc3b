"""A stub of NVIDIA's library (nvml_stub.c): built once by gcc, and told by a file which GPUs it plays.

The file is written from the same facts that must come out at the other end.
"""

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hyperscout_formats.facts.facts import Gpu
from hyperscout_formats.nvidia import nvml_values

from support.real import require_real, tool
from support.waiting import TIMEOUT_S

SOURCE: Final = Path(__file__).with_name("nvml_stub.c")
VARIABLE: Final = "HYPERSCOUT_NVML_STUB"
_STATES = {word: number for number, word in nvml_values.FABRIC_STATES.items()}
_REMOTE_TYPES = {word: number for number, word in nvml_values.REMOTE_TYPES.items()}
_HEALTH_BITS = {
    nvml_values.DEGRADED_BANDWIDTH: 1,
    nvml_values.ROUTE_RECOVERY: 1 << 2,
    nvml_values.ROUTE_UNHEALTHY: 1 << 4,
    nvml_values.ACCESS_TIMEOUT: 1 << 6,
    nvml_values.INCORRECT_CONFIGURATION: 5 << 8,
}
STATUS: Final = {"": 0, "Unknown Error": 999, "Invalid Argument": 2}


def build(folder: Path, *defines: str) -> Path:
    """The stub as a shared library; `defines` leave functions out (OLD, ANCIENT, NO_PCI)."""
    require_real("gcc")
    library = folder / "-".join(["stub", *defines]) / "libnvidia-ml.so.1"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        command = [str(tool("gcc")), "-shared", "-fPIC", "-O1", "-w", *(f"-D{name}" for name in defines)]
        command += ["-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return library


def scenario(gpus: Sequence[Gpu], *more: str) -> str:
    """Text for the stub: these GPUs, and whatever lines ("2 lost 1", "- init 18") are added."""
    driver = gpus[0].driver_version if gpus else "580.95.05"
    lines = [f"- count {len(gpus)}", f"- driver {driver}"]
    for place, gpu in enumerate(gpus):
        lines += (f"{place} {line}" for line in _gpu(gpu))
    return "\n".join([*lines, *more, ""])


def _gpu(gpu: Gpu) -> list[str]:
    domain, _, rest = gpu.pci_address.partition(":")
    first = gpu.links[0] if gpu.links else None
    lines = [
        f"uuid {gpu.uuid}",
        f"name {gpu.model}",
        f"bus {f'{domain:0>8}:{rest}'.upper()}",
        f"numa {gpu.numa_node or 0}",
        f"mig_mode {({'disabled': 0, 'enabled': 1}).get(gpu.mig_mode, 2)}",
        f"migs {len(gpu.mig_instances)}",
        f"links {len(gpu.links)}",
    ]
    if first is not None:
        lines += [
            f"version {max(x.version for x in gpu.links)}",
            f"speed {round(max(x.gbytes_per_s for x in gpu.links) * 1000)}",
            f"remote_type {_REMOTE_TYPES.get(max(x.remote_type for x in gpu.links), 255)}",
        ]
    for one in gpu.links:
        lines += [f"link {one.link} 0"] * (not one.active)
        lines += [f"remote {one.link} {one.remote_pci_address}"] * bool(one.remote_pci_address)
        lines += [f"replay {one.link} {one.replay_errors}", f"recovery {one.link} {one.recovery_errors}"]
        lines += [f"crc {one.link} {one.crc_errors}"]
        lines += [f"ber {one.link} {3 << 8 | -one.ber_exponent if one.ber_exponent else 0}"]
    if gpu.fabric is not None:
        lines += [
            "fabric 3",
            f"state {_STATES[gpu.fabric.state]}",
            f"status {STATUS[gpu.fabric.status]}",
            f"cluster {gpu.fabric.cluster_uuid.replace('-', '') or '0' * 32}",
            f"clique {gpu.fabric.clique_id}",
            f"mask {sum(_HEALTH_BITS[word] for word in gpu.fabric.health)}",
        ]
    return lines


class Counters:
    """What was asked of a stub that this process has loaded."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def reset(self) -> None:
        self._library.hyperscout_stub_reset()

    @property
    def calls(self) -> int:
        return int(self._library.hyperscout_stub_calls())

    @property
    def field_calls(self) -> int:
        return int(self._library.hyperscout_stub_field_calls())


def pci_tree(sysfs: Path, gpus: Sequence[Gpu], *, driver: str = "nvidia") -> None:
    """A sysfs in which each GPU shares a switch with its NIC, as the facts of `gpus` say."""
    for gpu in gpus:
        switch = sysfs / f"devices/pci{gpu.pci_address[:4]}:{gpu.numa_node or 0:02x}/{gpu.nearest_nics[0]}"
        pci_device(sysfs, switch / gpu.pci_address, "0x10de", "0x030200", gpu.numa_node, driver)
        for nic in gpu.nearest_nics:
            number = int(nic.removeprefix("mlx5_"))
            function = switch / f"00aa:{number:02x}:00.0"
            pci_device(sysfs, function, "0x15b3", "0x020700", gpu.numa_node, "mlx5_core")
            named(sysfs, "infiniband", nic, function)


def pci_device(sysfs: Path, at: Path, vendor: str, kind: str, numa: int | None, driver: str) -> Path:
    """One PCI function at a place of the tree."""
    at.mkdir(parents=True, exist_ok=True)
    (at / "vendor").write_text(vendor + "\n")
    (at / "class").write_text(kind + "\n")
    (at / "numa_node").write_text(f"{-1 if numa is None else numa}\n")
    if driver and not (at / "driver").exists():
        (sysfs / "bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (at / "driver").symlink_to(sysfs / "bus/pci/drivers" / driver)
    link = sysfs / "bus/pci/devices" / at.name
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(at)
    return at


def named(sysfs: Path, kind: str, name: str, device: Path) -> None:
    """A name in /sys/class for what a PCI function drives."""
    entry = sysfs / "class" / kind / name
    if not entry.exists():
        entry.mkdir(parents=True)
        (entry / "device").symlink_to(device)
