"""The kinds of accelerator fabrics, and what their parts are called in texts, tiers and Kubernetes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NVLINK: Final = "nvlink"
XGMI: Final = "xgmi"
ASCEND: Final = "ascend"


@dataclass(frozen=True, slots=True)
class AcceleratorKind:
    """One kind. All texts stand after the article "an".

    `fabric`: the links as a whole; `link`: one link; `domain`: the accelerators that the links join;
    `resource`: of Kubernetes, as the vendor's device plugin names it; `command`: prints the domain on a host.
    `spans_hosts`: whether hosts that report one domain are joined. `spans_leaves`: whether a healthy domain
    may have hosts below several leaves.
    """

    name: str
    fabric: str
    link: str
    domain: str
    resource: str
    command: str
    spans_hosts: bool = True
    spans_leaves: bool = False


KINDS: Final[Mapping[str, AcceleratorKind]] = {
    kind.name: kind
    for kind in (
        AcceleratorKind(NVLINK, "NVLink", "NVLink", "NVLink domain", "nvidia.com/gpu", "nvidia-smi -q"),
        # A hive is within one host today. Equal ids on two hosts are no evidence of cables between them.
        AcceleratorKind(
            XGMI, "xGMI", "xGMI link", "xGMI hive", "amd.com/gpu", "rocm-smi --showtopo", spans_hosts=False
        ),
        AcceleratorKind(
            ASCEND,
            "Ascend network",
            "Ascend network port",
            "Ascend super pod",
            "huawei.com/Ascend910",
            "npu-smi info -t spod-info",
            spans_leaves=True,
        ),
    )
}
"""By name, which is also the name of a tier and of the probe. The order decides ties."""
