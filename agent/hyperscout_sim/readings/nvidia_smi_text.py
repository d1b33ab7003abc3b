"""Writes the output of `nvidia-smi -q -x` for simulated GPUs, as far as the NVLink domain needs it."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from hyperscout_formats.facts.facts import Gpu, NvlinkFabric
from hyperscout_formats.nvidia import nvml_values

_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
_HEALTH = (
    ("bandwidth", nvml_values.DEGRADED_BANDWIDTH, "Degraded", "Full"),
    ("route_recovery_in_progress", nvml_values.ROUTE_RECOVERY, "True", "False"),
    ("route_unhealthy", nvml_values.ROUTE_UNHEALTHY, "True", "False"),
    ("access_timeout_recovery", nvml_values.ACCESS_TIMEOUT, "True", "False"),
    ("incorrect_configuration", nvml_values.INCORRECT_CONFIGURATION, "Insufficient Nvlinks", "None"),
)


def nvidia_smi_text(gpus: Sequence[Gpu]) -> bytes:
    """Return the file of one node. nvidia-smi does not print links, peers, NUMA nodes and NICs."""
    driver = gpus[0].driver_version if gpus else "N/A"
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">',
        "<nvidia_smi_log>",
        "\t<timestamp>Sat Nov 21 12:00:00 2026</timestamp>",
        f"\t<driver_version>{escape(driver)}</driver_version>",
        f"\t<attached_gpus>{len(gpus)}</attached_gpus>",
        *(line for gpu in gpus for line in _gpu(gpu)),
        "</nvidia_smi_log>",
        "",
    ]
    return "\n".join(lines).encode()


def _gpu(gpu: Gpu) -> list[str]:
    domain, _, rest = gpu.pci_address.partition(":")
    bus_id = f"{domain:0>8}:{rest}".upper()
    mode = {"enabled": "Enabled", "disabled": "Disabled"}.get(gpu.mig_mode, "N/A")
    lines = [
        f'\t<gpu id="{bus_id}">',
        f"\t\t<product_name>{escape(gpu.model)}</product_name>",
        "\t\t<mig_mode>",
        f"\t\t\t<current_mig>{mode}</current_mig>",
        f"\t\t\t<pending_mig>{mode}</pending_mig>",
        "\t\t</mig_mode>",
    ]
    if gpu.mig_instances:
        lines.append("\t\t<mig_devices>")
        for index, one in enumerate(gpu.mig_instances):
            lines += [
                "\t\t\t<mig_device>",
                f"\t\t\t\t<index>{index}</index>",
                f"\t\t\t\t<gpu_instance_id>{one.gpu_instance}</gpu_instance_id>",
                f"\t\t\t\t<compute_instance_id>{one.compute_instance}</compute_instance_id>",
                "\t\t\t</mig_device>",
            ]
        lines.append("\t\t</mig_devices>")
    else:
        lines.append("\t\t<mig_devices>\n\t\t\tNone\n\t\t</mig_devices>")
    lines += [
        f"\t\t<uuid>{gpu.uuid}</uuid>",
        f"\t\t<pci>\n\t\t\t<pci_bus_id>{bus_id}</pci_bus_id>\n\t\t</pci>",
        "\t\t<processes>\n\t\t</processes>",
        *_fabric(gpu.fabric),
        "\t</gpu>",
    ]
    return lines


def _fabric(fabric: NvlinkFabric | None) -> list[str]:
    """Return the lines of a fabric. A GPU without one has "N/A" in all fields."""
    if fabric is None:
        fields = dict.fromkeys(("state", "status", "cliqueId", "clusterUuid"), "N/A")
        health = [f"\t\t\t\t<{name}>N/A</{name}>" for name, *_ in _HEALTH]
    else:
        completed = fabric.state == "completed"
        fields = {
            "state": fabric.state.replace("-", " ").title(),
            "status": (fabric.status or "Success") if completed else "N/A",
            "cliqueId": str(fabric.clique_id) if completed else "N/A",
            "clusterUuid": (fabric.cluster_uuid or _NO_CLUSTER) if completed else "N/A",
        }
        health = [
            f"\t\t\t\t<{name}>{ill if word in fabric.health else well}</{name}>"
            for name, word, ill, well in _HEALTH
        ]
    return [
        "\t\t<fabric>",
        *(f"\t\t\t<{name}>{escape(value)}</{name}>" for name, value in fields.items()),
        "\t\t\t<health>",
        *health,
        "\t\t\t</health>",
        "\t\t</fabric>",
    ]
