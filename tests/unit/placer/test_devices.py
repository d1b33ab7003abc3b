"""Which resources the GPUs of a node are, and that all parts agree on their names."""

import re
from pathlib import Path

from hyperscout_formats.amd.kfd import parse
from hyperscout_formats.facts.accelerators import KINDS
from hyperscout_formats.facts.facts import Gpu, MigInstance
from hyperscout_placer.cluster.devices import devices_of
from support.accelerators import kfd_tree

MAP = Path(__file__).parents[3] / "collector/map/src/model/accelerators.ts"


def test_each_vendor_has_its_own_resource() -> None:
    npus = [Gpu("", "Ascend910", f"npu{n}/0", kind="ascend") for n in range(2)]
    mig = Gpu(
        "u", "H100", "0000:01:00.0", mig_mode="enabled", mig_instances=(MigInstance("m", "1g.10gb", 1, 0),)
    )
    assert devices_of([*parse(kfd_tree())[0], *npus, mig, Gpu("v", "H100", "0000:02:00.0")]) == {
        "amd.com/gpu": 8,
        "huawei.com/Ascend910": 2,
        "nvidia.com/mig-1g.10gb": 1,
        "nvidia.com/gpu": 1,
    }


def test_the_map_has_the_same_kinds() -> None:
    rows = re.findall(r'^  (\w+): \{ domain: "(.*)", resource: "(.*)" \},$', MAP.read_text(), re.MULTILINE)
    assert rows == [(kind.name, kind.domain, kind.resource) for kind in KINDS.values()]
