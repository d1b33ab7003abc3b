"""Writes a case as the files that `hyperscout infer` reads, and as a folder with its truth.

The folder has the files, and case.json with the arguments of the command, the truth and the faults.
"""

import json
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

from hyperscout_sim.fabric.fabric import Partition, SimAdapter, SimSwitch, Truth
from hyperscout_sim.fabric.nvlink import Gpus, nvl72_tray
from hyperscout_sim.fabric.nvlink import cluster_uuid as uuid_of
from hyperscout_sim.readings.lldp import lldpctl_json0, mac_of, uplinks
from hyperscout_sim.readings.nvidia_smi_text import nvidia_smi_text
from hyperscout_sim.readings.snmp import walk_text, walks
from hyperscout_sim.readings.sweep_text import sweep_texts
from hyperscout_sim.uneven.case import Defect, Uneven

Files = dict[str, dict[str, bytes]]  # option of `infer` -> file name -> content


def files_of(case: Uneven) -> Files:
    """Return the files, by the option that reads them."""
    if case.ethernet:
        return _ethernet(case)
    texts = sweep_texts(case.fabric)
    names = ["fabric"] if len(texts) == 1 else [f"fabric-{n}" for n in range(1, len(texts) + 1)]
    found: Files = {
        "--ibnetdiscover": {f"{name}.ibnetdiscover": text for name, text in zip(names, texts, strict=True)}
    }
    if case.racks:
        found["--nvlink"] = {f"smi/{host}.xml": nvidia_smi_text(gpus_of(case, host)) for host in case.racks}
    if case.node_map:
        kept = ("", "manager") if case.node_map == "all" else ("",)
        lines = [f"{x.guid:016x} {x.host}\n" for x in case.fabric.adapters if x.foreign in kept]
        found["--node-map"] = {"hosts.txt": "".join(lines).encode()}
    return found


def gpus_of(case: Uneven, host: str) -> Gpus:
    """Return the GPUs of a tray."""
    rack, clique = case.racks[host]
    return nvl72_tray(host, uuid_of(rack), clique=clique)


def arguments(files: Files) -> list[str]:
    """Return the arguments of `hyperscout infer`, relative to the folder of the case."""
    found: list[str] = []
    for option, contents in files.items():
        folders = {PurePosixPath(name).parent for name in contents}
        if folders != {PurePosixPath()}:
            found += [option, f"{folders.pop()}/*"]
        else:
            for name in contents:
                found += [option, name]
    return found


def write_case(case: Uneven, folder: Path) -> None:
    """Write the files and case.json into a new folder. Raises FileExistsError."""
    folder.mkdir(parents=True)
    files = files_of(case)
    for contents in files.values():
        for name, data in contents.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
    described = {"note": note(case), "args": arguments(files), **truth_of(case)}
    (folder / "case.json").write_text(json.dumps(described, indent=1) + "\n")


def note(case: Uneven) -> str:
    """Return what the case is, in one line."""
    planted = "".join(f"; planted: {d.what}" for d in case.defects)
    return f"seed {case.seed}: {', '.join(case.traits) or 'regular'}{planted}"


def truth_of(case: Uneven) -> dict[str, Any]:
    """Return the part of case.json that a judge needs."""
    first = case.fabric.truth.tiers[0]
    tree: dict[str, Any] = {"truth": None, "tier1": _labels(first)}
    if case.tree:
        tree = {"truth": _tiers(case.fabric.truth), "or": [_tiers(t) for t in case.alternatives]}
    names = Names(case)
    return {
        **tree,
        "may_be_missing": sorted(case.may_be_missing),
        "foreign": sorted(case.foreign),
        "faults": [names.fault(defect) for defect in case.defects],
        "allow": [],
    }


class Names:
    """How anomalies may call the devices of a case."""

    def __init__(self, case: Uneven) -> None:
        fabric = case.fabric
        self._ethernet = case.ethernet
        self._devices: dict[int, SimSwitch | SimAdapter] = {x.guid: x for x in fabric.switches}
        self._devices |= {x.guid: x for x in fabric.adapters}
        self._times = Counter(x.name for x in fabric.switches)

    def fault(self, defect: Defect) -> dict[str, Any]:
        return {
            "kind": defect.kind,
            "ends": [self._end(guid, port) for guid, port in defect.ends],
            "what": defect.what,
        }

    def _end(self, guid: int, port: int | None) -> list[str | int | None]:
        """Return the names of a device, then its port. A name that several switches share is not one."""
        device = self._devices[guid]
        if isinstance(device, SimAdapter):
            return [device.host, None] if self._ethernet else [f"{guid:016x}", device.host, None]
        ids = [mac_of(guid) if self._ethernet else f"{guid:016x}"]
        ids += [device.name] if self._times[device.name] == 1 else []
        return [*ids, f"swp{port}" if self._ethernet and port is not None else port]


def _ethernet(case: Uneven) -> Files:
    cabled = {guid for cable in case.fabric.cables for guid in (cable.a, cable.b)}
    read = ((x, rows) for x, rows in walks(case.fabric, hearing=case.hearing) if x.guid in cabled)
    found: Files = {
        "--snmpwalk": {f"walk/{switch.name.replace('/', '-')}.txt": walk_text(rows) for switch, rows in read}
    }
    if not case.walks_only:
        found["--lldp"] = {
            f"lldp/{host}.json": lldpctl_json0(links, dpu=host in case.hearing.dpu)
            for host, links in uplinks(case.fabric).items()
        }
    return found


def _tiers(truth: Truth) -> list[dict[str, str]]:
    return [_labels(tier) for tier in truth.tiers]


def _labels(domains: Partition) -> dict[str, str]:
    return {host: str(n) for n, domain in enumerate(domains) for host in sorted(domain)}
