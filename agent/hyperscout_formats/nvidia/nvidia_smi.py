"""Reads `nvidia-smi -q -x` (nvidia-smi(1), XML): the GPUs of one node and their NVLink domain.

NVIDIA does not keep this format stable between drivers. Elements are therefore found by name, new elements
are ignored, and missing elements keep their defaults. The format has no NVLinks, no NUMA nodes and no NICs.
The document names a DTD, which is not fetched. A document that declares entities is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat  # entities are refused below, and nothing is fetched

from hyperscout_formats.facts.facts import Gpu, MigInstance, NvlinkFabric
from hyperscout_formats.nvidia import nvml_values
from hyperscout_formats.text.clean_text import cleaned
from hyperscout_formats.text.errors import FormatError, Problem
from hyperscout_formats.text.problems import Problems

MAX_BYTES: Final = 16 << 20
"""Eight GPUs with all their clocks and processes take half a megabyte."""
MAX_GPUS: Final = 128
MAX_MIG_INSTANCES: Final = 64
"""Instances of one GPU. Hardware supports seven or eight."""
MAX_DEPTH: Final = 32
MAX_TEXT: Final = 256
"""Characters of one value."""

_EXPECTED: Final = "expected the output of `nvidia-smi -q -x`"
_ROOT: Final = "nvidiasmilog"
_UUID: Final = re.compile(r"GPU-[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_UNKNOWN: Final = ("", "n/a", "none", "not supported")
_MIG_MODES: Final = {"enabled": "enabled", "disabled": "disabled"}
# Element below "health", its texts when the problem exists, and the word for the problem.
_HEALTH: Final = (
    ("bandwidth", ("degraded",), nvml_values.DEGRADED_BANDWIDTH),
    ("routerecoveryinprogress", ("true",), nvml_values.ROUTE_RECOVERY),
    ("routeunhealthy", ("true",), nvml_values.ROUTE_UNHEALTHY),
    ("accesstimeoutrecovery", ("true",), nvml_values.ACCESS_TIMEOUT),
)
_SUMMARIES: Final = {"unhealthy": nvml_values.UNHEALTHY, "limited capacity": nvml_values.LIMITED_CAPACITY}


def parse(data: bytes, source: str = "nvidia-smi") -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    """Return GPUs in the order of the text, and the parts that were left out.

    Raises FormatError for other text.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(source, 0, f"{len(data)} bytes; expected at most {MAX_BYTES} bytes")
    log = _Log(source)
    parser = expat.ParserCreate("UTF-8")  # overrides the declared encoding
    parser.buffer_text = True
    parser.StartElementHandler = log.start
    parser.EndElementHandler = log.end
    parser.CharacterDataHandler = log.text
    parser.EntityDeclHandler = log.refuse_entity
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        reason = f"not XML: {expat.ErrorString(error.code)}; {_EXPECTED}{_said(data)}"
        raise FormatError(source, error.lineno, reason) from error
    return _gpus(log, Problems(source))


@dataclass(slots=True)
class _RawGpu:
    """Texts of one GPU, keyed by the path of the element below the GPU ("fabric/state")."""

    line: int
    values: dict[str, str] = field(default_factory=dict)
    mig: list[dict[str, str]] = field(default_factory=list)
    too_many_mig: bool = False


class _Log:
    """Collects the events of the XML parser. Names are stored in lower case and without underscores."""

    def __init__(self, source: str) -> None:
        self.gpus: list[_RawGpu] = []
        self.too_many_gpus = False
        self.driver_version = ""
        self._source = source
        self._path: list[str] = []
        self._text = ""

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        name = tag.replace("_", "").lower()
        if not self._path and name != _ROOT:
            raise FormatError(self._source, 0, f"the root element is <{cleaned(tag)[:60]}>; {_EXPECTED}")
        if len(self._path) >= MAX_DEPTH:
            raise FormatError(self._source, 0, f"elements more than {MAX_DEPTH} deep; {_EXPECTED}")
        self._path.append(name[:MAX_TEXT])
        self._text = ""
        match self._path[1:]:
            case ["gpu"] if len(self.gpus) < MAX_GPUS:
                self.gpus.append(_RawGpu(len(self.gpus) + 1, {"id": attributes.get("id", "")[:MAX_TEXT]}))
            case ["gpu"]:
                self.too_many_gpus = True
            case ["gpu", "migdevices", "migdevice"]:
                gpu = self.gpus[-1]
                if len(gpu.mig) < MAX_MIG_INSTANCES:
                    gpu.mig.append({})
                else:
                    gpu.too_many_mig = True

    def text(self, piece: str) -> None:
        if len(self._text) < MAX_TEXT:
            self._text += piece[:MAX_TEXT]

    def end(self, _tag: str) -> None:
        value = cleaned(self._text.strip())[:MAX_TEXT]
        self._text = ""
        match self._path[1:]:
            case ["driverversion"]:
                self.driver_version = value
            case ["gpu", *_] if self.too_many_gpus:
                pass
            case ["gpu", "migdevices", "migdevice", name] if not self.gpus[-1].too_many_mig:
                self.gpus[-1].mig[-1].setdefault(name, value)
            case ["gpu", name]:
                self._keep(name, value)
            case ["gpu", ("pci" | "fabric" | "migmode") as group, name]:
                self._keep(f"{group}/{name}", value)
            case ["gpu", "fabric", "health", name]:
                self._keep(f"health/{name}", value)
        self._path.pop()

    def refuse_entity(self, name: str, *_rest: object) -> None:
        raise FormatError(self._source, 0, f"declares an entity {cleaned(name)[:60]!a}; {_EXPECTED}")

    def _keep(self, name: str, value: str) -> None:
        if name in _WANTED:
            self.gpus[-1].values.setdefault(name, value)


_WANTED: Final = frozenset(
    {
        "uuid",
        "productname",
        "pci/pcibusid",
        "migmode/currentmig",
        *(f"fabric/{name}" for name in ("state", "status", "cliqueid", "clusteruuid", "health")),
        *(f"health/{name}" for name, _, _ in _HEALTH),
        "health/incorrectconfiguration",
        "health/summary",
    }
)


def _gpus(log: _Log, problems: Problems) -> tuple[tuple[Gpu, ...], tuple[Problem, ...]]:
    found: dict[str, Gpu] = {}
    for raw in log.gpus:
        address = nvml_values.pci_address(raw.values.get("pci/pcibusid", "")) or nvml_values.pci_address(
            raw.values["id"]
        )
        name = f"GPU {raw.line}" + (f" at {address}" if address else "")
        uuid = raw.values.get("uuid", "")
        if not address:
            problems.add(0, f"{name}: no PCI address")
        elif not _UUID.fullmatch(uuid):
            problems.add(0, f"{name}: expected a UUID, found {uuid[:60]!a}: the GPU or its driver has failed")
        elif address in found:
            problems.add(0, f"{name}: another GPU has the same PCI address; the first is used")
        else:
            if raw.too_many_mig:
                problems.add(0, f"{name}: more than {MAX_MIG_INSTANCES} MIG instances")
            found[address] = _gpu(raw, uuid, address, log.driver_version, problems)
    if log.too_many_gpus:
        problems.add(0, f"more than {MAX_GPUS} GPUs")
    return tuple(found.values()), problems.listed()


def _gpu(raw: _RawGpu, uuid: str, address: str, driver: str, problems: Problems) -> Gpu:
    return Gpu(
        uuid=f"GPU-{uuid[4:].lower()}",
        model=raw.values.get("productname", ""),
        pci_address=address,
        driver_version="" if driver.lower() in _UNKNOWN else driver,
        mig_mode=_MIG_MODES.get(raw.values.get("migmode/currentmig", "").lower(), ""),
        mig_instances=tuple(
            MigInstance(
                uuid=one.get("uuid", ""),
                profile=one.get("profile", ""),
                gpu_instance=_number(one.get("gpuinstanceid", "")) or 0,
                compute_instance=_number(one.get("computeinstanceid", "")) or 0,
            )
            for one in raw.mig
        ),
        fabric=_fabric(raw.values, address, problems),
    )


def _fabric(values: Mapping[str, str], address: str, problems: Problems) -> NvlinkFabric | None:
    """Return None where the driver prints no fabric, or "N/A" as its state."""
    state_text = values.get("fabric/state", "").lower()
    if state_text in ("", "n/a", "none"):
        return None
    state = state_text.replace(" ", "-")
    if state not in nvml_values.FABRIC_STATES.values():
        problems.add(0, f"{address}: unknown fabric state {state_text[:60]!a}")
        return None
    if state != "completed":
        return NvlinkFabric(state, health=_health(values))
    status = values.get("fabric/status", "")
    clique = _number(values.get("fabric/cliqueid", ""))
    cluster = nvml_values.written_uuid(values.get("fabric/clusteruuid", ""))
    if cluster and clique is None:
        problems.add(
            0, f"{address}: a cluster UUID without a clique; the NVLink domain is read as local to this node"
        )
        cluster = ""
    return NvlinkFabric(
        state,
        "" if status.lower() in ("success", *_UNKNOWN) else status,
        cluster,
        clique or 0,
        _health(values),
    )


def _health(values: Mapping[str, str]) -> tuple[str, ...]:
    words = [word for name, so, word in _HEALTH if values.get(f"health/{name}", "").lower() in so]
    if values.get("health/incorrectconfiguration", "").lower() not in _UNKNOWN:
        words.append(nvml_values.INCORRECT_CONFIGURATION)
    summary = _SUMMARIES.get(values.get("health/summary", "").lower())
    return tuple(words) or ((summary,) if summary else ())


def _number(text: str) -> int | None:
    """Return a 32-bit number, None = not a number. All numbers of this format have 32 bits."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    return int(text) if int(text) < 1 << 32 else None


def _said(data: bytes) -> str:
    """Return the first line of text that is not XML: nvidia-smi prints its error messages there."""
    line = data[:2000].lstrip().split(b"\n", 1)[0].decode("ascii", "replace").strip()
    return "" if not line or line.startswith("<") else f"; it begins with {cleaned(line)[:120]!a}"
