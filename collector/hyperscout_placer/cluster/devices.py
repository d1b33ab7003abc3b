"""The resource names of the devices on a node with GPUs, as Kubernetes knows them."""

from collections import Counter
from collections.abc import Iterable

from hyperscout_formats.facts.facts import Gpu

GPU = "nvidia.com/gpu"
_MIG = "nvidia.com/mig-"


def devices_of(gpus: Iterable[Gpu]) -> dict[str, int]:
    """Number of devices by resource name, as NVIDIA's device plugin names them (MIG strategy "mixed").

    A GPU in MIG mode counts only by its MIG instances.
    """
    found: Counter[str] = Counter()
    for gpu in gpus:
        if gpu.mig_mode == "enabled":
            found.update(_MIG + part.profile.replace("+", ".") for part in gpu.mig_instances)
        else:
            found[GPU] += 1
    return dict(found)
