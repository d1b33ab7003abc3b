"""The resource names of the devices on a node with GPUs, as Kubernetes knows them."""

from collections import Counter
from collections.abc import Iterable

from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.facts.facts import Gpu

_MIG = "nvidia.com/mig-"


def devices_of(gpus: Iterable[Gpu]) -> dict[str, int]:
    """Number of devices by resource name, as the vendors' device plugins name them.

    A GPU in MIG mode counts only by its MIG instances (MIG strategy "mixed").
    """
    found: Counter[str] = Counter()
    for gpu in gpus:
        if gpu.mig_mode == "enabled":
            found.update(_MIG + part.profile.replace("+", ".") for part in gpu.mig_instances)
        else:
            found[KINDS[gpu.kind].resource] += 1
    return dict(found)
