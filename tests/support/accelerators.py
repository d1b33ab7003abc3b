"""AMD GPUs and Ascend NPUs in the documented formats: trees of sysfs, and the output of tools.

The names and values of KFD's files are those of a host with eight MI300X (Linux 6.8, ROCm 6): kfd_topology.c
of Linux prints them. The texts of npu-smi and hccn_tool are those of Huawei's references (Ascend HDK) for an
Atlas 900 A3, and of examples in the documentation of CANN and MindCluster.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from support.nvml import named, pci_device

AMD, HUAWEI = "0x1002", "0x19e5"
HIVE = 10631624818852212319
BUSES = (0x0C, 0x22, 0x38, 0x5C, 0x9F, 0xAF, 0xBF, 0xDF)


def address(gpu: int) -> str:
    return f"0000:{BUSES[gpu]:02x}:00.0"


def kfd_properties(
    gpu: int, *, hive: int = HIVE, unique_id: int | None = None, location: int | None = None
) -> str:
    unique_id = 4376936076086227261 + gpu if unique_id is None else unique_id
    location = BUSES[gpu] << 8 if location is None else location
    return (
        "cpu_cores_count 0\nsimd_count 1216\nmem_banks_count 1\ncaches_count 626\nio_links_count 8\n"
        "p2p_links_count 1\ncpu_core_id_base 0\nsimd_id_base 2147487784\nmax_waves_per_simd 8\n"
        "lds_size_in_kb 64\ngds_size_in_kb 0\nnum_gws 64\nwave_front_size 64\narray_count 32\n"
        "simd_arrays_per_engine 1\ncu_per_simd_array 10\nsimd_per_cu 4\nmax_slots_scratch_cu 32\n"
        f"gfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\nlocation_id {location}\ndomain 0\n"
        f"drm_render_minor {128 + 8 * gpu}\nhive_id {hive}\nnum_sdma_engines 2\nnum_sdma_xgmi_engines 14\n"
        "num_sdma_queues_per_engine 8\nnum_cp_queues 24\nmax_engine_clk_fcompute 2100\nlocal_mem_size 0\n"
        "fw_version 166\ncapability 746037888\ndebug_prop 1511\nsdma_fw_version 22\n"
        f"unique_id {unique_id}\nnum_xcc 8\nmax_engine_clk_ccompute 2400\n"
    )


def kfd_link(node_from: int, node_to: int, kind: int = 11) -> str:
    return (
        f"type {kind}\nversion_major 0\nversion_minor 0\nnode_from {node_from}\n"
        f"node_to {node_to}\nweight 15\n"
        "min_latency 0\nmax_latency 0\nmin_bandwidth 50000\nmax_bandwidth 50000\n"
        "recommended_transfer_size 0\nrecommended_sdma_engine_id_mask 0\nflags 1\n"
    )


def kfd_tree(gpus: int = 8, apart: Collection[int] = ()) -> dict[str, bytes]:
    """The files of two processors and `gpus` GPUs. Those `apart` have no hive and no xGMI link."""
    files = {}
    for cpu in (0, 1):
        files[f"{cpu}/gpu_id"] = b"0\n"
        files[f"{cpu}/properties"] = b"cpu_cores_count 96\nsimd_count 0\nhive_id 0\n"
    for gpu in range(gpus):
        node = gpu + 2
        files[f"{node}/gpu_id"] = f"{28851 + gpu}\n".encode()
        files[f"{node}/properties"] = kfd_properties(gpu, hive=0 if gpu in apart else HIVE).encode()
        links = [kfd_link(node, gpu // 4, 2)]  # PCIe to its processor
        links += [kfd_link(node, n + 2) for n in range(gpus) if n != gpu and not {n, gpu} & {*apart}]
        for n, link in enumerate(links):
            files[f"{node}/io_links/{n}/properties"] = link.encode()
    return files


def amd_host(sysfs: Path, files: dict[str, bytes], errors: Sequence[str] = ()) -> None:
    """Write KFD's files, the PCI devices, and `xgmi_error` of the first cards."""
    for path, content in files.items():
        file = sysfs / "class/kfd/kfd/topology/nodes" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    for gpu in range(8):
        place = sysfs / f"devices/pci0000:{BUSES[gpu] - 1:02x}/{address(gpu)}"
        if not place.exists():
            pci_device(sysfs, place, AMD, "0x120000", gpu // 4, "amdgpu")
            named(sysfs, "drm", f"card{gpu}", place)
        if gpu < len(errors):
            (place / "xgmi_error").write_text(errors[gpu])


NPU_MAP = """\
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Phy-ID\
                    Chip Name
\t0                              0                              0                              0\
                              Ascend910
\t0                              1                              1                              1\
                              Ascend910
\t0                              2                              -                              -\
                              Mcu
\t1                              0                              2                              2\
                              Ascend910
\t1                              1                              3                              3\
                              Ascend910
\t1                              2                              -                              -\
                              Mcu
"""
OLD_NPU_MAP = """\
NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
8                              0                              0                              Ascend310P3
8                              1                              -                              Mcu
"""


def super_pod(ident: int = 3, server_index: int = 4, sdid: int = 16777216) -> str:
    return (
        f"\tSDID                           : {sdid}\n\tSuper Pod Size                 : 384\n"
        f"\tSuper Pod ID                   : {ident}\n\tServer Index                   : {server_index}\n"
    )


NO_SUPER_POD = "This device does not support querying spod-info.\n"
