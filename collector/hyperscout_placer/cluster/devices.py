"""What workers can ask for on a node with GPUs, by the names that Kubernetes knows it by."""

from collections import Counter
from collections.abc import Iterable

from hyperscout_formats.facts.facts import Gpu

GPU = "nvidia.com/gpu"
_MIG = "nvidia.com/mig-"


def devices_of(gpus: Iterable[Gpu]) -> dict[str, int]:
    """Devices by resource name, called as NVIDIA's device plugin calls them (MIG strategy "mixed"): a GPU
    that is cut up is there in parts only."""
    found: Counter[str] = Counter()
    for gpu in gpus:
        if gpu.mig_mode == "enabled":
            found.update(_MIG + part.profile.replace("+", ".") for part in gpu.mig_instances)
        else:
            found[GPU] += 1
    return dict(found)
