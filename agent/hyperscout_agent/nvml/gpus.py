"""Reads the GPUs that NVML lists into facts, one by one, so that a lost GPU does not hide the others."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hyperscout_formats.facts.facts import Gpu, GpuPeer, MigInstance, NvlinkFabric, NvlinkLink
from hyperscout_formats.nvidia import nvml_values
from hyperscout_formats.text.clean_text import cleaned

from hyperscout_agent.nvml.library import GpuUnreadableError, Nvml

_MAX_GPUS: Final = 128
_MAX_LINKS: Final = 36  # NVML_NVLINK_MAX_LINKS
_MAX_MIG_INSTANCES: Final = 64
_MIG_MODES: Final = {0: "disabled", 1: "enabled"}

# NVML_FI_DEV_NVLINK_...
_LINK_COUNT: Final = 91
_STATE: Final = 165
_VERSION: Final = 166
_SPEED: Final = 164  # MB/s of one direction
_REPLAYS: Final = 161
_RECOVERIES: Final = 162
_CRC_ERRORS: Final = 163
_EFFECTIVE_BER: Final = 220  # NVLink 5 and newer
# NVLink 5 has other counters: recovery events, and packets received with errors.
_RECOVERY_EVENTS: Final = 215
_RECEIVE_ERRORS: Final = 208
_PER_LINK: Final = (_STATE, _VERSION, _SPEED, _REPLAYS, _RECOVERIES, _CRC_ERRORS)
_PER_LINK_5: Final = (*_PER_LINK, _EFFECTIVE_BER, _RECOVERY_EVENTS, _RECEIVE_ERRORS)
# NVML_NVLINK_STATE_: 0 inactive, 1 active, 2 sleep (it saves power and wakes up by itself), 3 no traffic
_ACTIVE_STATES: Final = (1, 2)
# nvmlNvLinkErrorCounter_t
_COUNTER_REPLAY, _COUNTER_RECOVERY, _COUNTER_CRC_FLIT = range(3)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A GPU that NVML lists but cannot read. `pci_address`: "" when unknown."""

    index: int
    pci_address: str
    reason: str


class GpuReader:
    """Reads GPUs, and remembers their PCI addresses by NVML index.

    NVML cannot read the address of a lost GPU. The remembered addresses are valid while the number of listed
    GPUs does not change.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._addresses: dict[int, str] = {}
        self._count = 0

    def read(self) -> tuple[tuple[Gpu, ...], tuple[Unreadable, ...]]:
        """Read all GPUs, in index order. Returns the readable and the unreadable ones.

        Raises NvmlUnusableError when NVML as a whole fails.
        """
        nvml = self._nvml
        count = min(nvml.needed("nvmlDeviceGetCount"), _MAX_GPUS)
        if count != self._count:
            self._count = count
            self._addresses.clear()
        driver = cleaned(nvml.optional("nvmlSystemGetDriverVersion") or "")
        gpus: list[Gpu] = []
        handles: list[Any] = []
        unreadable: list[Unreadable] = []
        for index in range(count):
            try:
                handle = nvml.needed("nvmlDeviceGetHandleByIndex", index)
                gpus.append(self._gpu(index, handle, driver))
                handles.append(handle)
            except GpuUnreadableError as error:
                unreadable.append(Unreadable(index, self._addresses.get(index, ""), str(error)))
        peers = self._peers(gpus, handles)
        return (
            tuple(replace(gpu, peers=peers[index]) for index, gpu in enumerate(gpus)),
            tuple(unreadable),
        )

    def _gpu(self, index: int, handle: Any, driver: str) -> Gpu:
        nvml = self._nvml
        written = _bus_id(nvml.needed("nvmlDeviceGetPciInfo", handle))
        address = nvml_values.pci_address(written)
        if not address:
            raise GpuUnreadableError(f"its PCI address is {written!a}")
        self._addresses[index] = address
        mode = nvml.optional("nvmlDeviceGetMigMode", handle)
        mig_mode = _MIG_MODES.get(mode[0], "") if mode else ""
        return Gpu(
            uuid=cleaned(nvml.needed("nvmlDeviceGetUUID", handle)),
            model=cleaned(nvml.needed("nvmlDeviceGetName", handle)),
            pci_address=address,
            driver_version=driver,
            mig_mode=mig_mode,
            mig_instances=tuple(self._mig_instances(handle)) if mig_mode == "enabled" else (),
            links=self._links(handle),
            fabric=self._fabric(handle),
        )

    def _mig_instances(self, handle: Any) -> Iterator[MigInstance]:
        nvml = self._nvml
        most = nvml.optional("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
        for index in range(min(most, _MAX_MIG_INSTANCES)):
            instance = nvml.optional("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
            if instance is None:  # an unused index
                continue
            _, _, profile = (nvml.optional("nvmlDeviceGetName", instance) or "").partition(" MIG ")
            yield MigInstance(
                uuid=cleaned(nvml.optional("nvmlDeviceGetUUID", instance) or ""),
                profile=cleaned(profile),
                gpu_instance=nvml.optional("nvmlDeviceGetGpuInstanceId", instance) or 0,
                compute_instance=nvml.optional("nvmlDeviceGetComputeInstanceId", instance) or 0,
            )

    def _links(self, handle: Any) -> tuple[NvlinkLink, ...]:
        """Read all links of a GPU: state and counters in two calls if the driver supports it."""
        nvml = self._nvml
        answered = nvml.field_values(handle, [(_LINK_COUNT, 0), (_VERSION, 0)])
        count, version = answered or (None, None)
        if count is not None:
            per_link = _PER_LINK if version in (1, 2, 3, 4) else _PER_LINK_5
            numbers = range(min(int(count), _MAX_LINKS))
            wanted = [(what, link) for link in numbers for what in per_link]
            values = nvml.field_values(handle, wanted) if wanted else []
            if values is not None and (not values or values[0] is not None):
                found = dict(zip(wanted, values, strict=True))
                return tuple(
                    self._link(handle, link, {what: found[what, link] for what in per_link})
                    for link in numbers
                )
        links: list[NvlinkLink] = []
        for link in range(_MAX_LINKS):
            state = nvml.optional("nvmlDeviceGetNvLinkState", handle, link)
            if state is None:
                break
            links.append(self._old_link(handle, link, bool(state)))
        return tuple(links)

    def _link(self, handle: Any, link: int, values: Mapping[int, int | float | None]) -> NvlinkLink:
        """Build one link from its field values. Missing values become 0."""
        found = {what: int(value or 0) for what, value in values.items()}
        active = found[_STATE] in _ACTIVE_STATES
        remote_type, remote = self._remote(handle, link) if active else ("", "")
        return NvlinkLink(
            link,
            active,
            found[_VERSION],
            remote_type,
            remote,
            replay_errors=found[_REPLAYS],
            recovery_errors=found[_RECOVERIES] or found.get(_RECOVERY_EVENTS, 0),
            crc_errors=found[_CRC_ERRORS] or found.get(_RECEIVE_ERRORS, 0),
            ber_exponent=nvml_values.ber_exponent(found.get(_EFFECTIVE_BER, 0)),
            gbytes_per_s=found[_SPEED] / 1000,
        )

    def _old_link(self, handle: Any, link: int, active: bool) -> NvlinkLink:
        """Read one link from a driver without field values, with one call for each value."""

        def counter(kind: int) -> int:
            return self._nvml.optional("nvmlDeviceGetNvLinkErrorCounter", handle, link, kind) or 0

        remote_type, remote = self._remote(handle, link) if active else ("", "")
        return NvlinkLink(
            link,
            active,
            self._nvml.optional("nvmlDeviceGetNvLinkVersion", handle, link) or 0,
            remote_type,
            remote,
            replay_errors=counter(_COUNTER_REPLAY),
            recovery_errors=counter(_COUNTER_RECOVERY),
            crc_errors=counter(_COUNTER_CRC_FLIT),
        )

    def _remote(self, handle: Any, link: int) -> tuple[str, str]:
        """Return type and PCI address of the device at the link's remote end."""
        kind = self._nvml.optional("nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        pci = self._nvml.optional("nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
        address = nvml_values.pci_address(_bus_id(pci)) if pci else ""
        return nvml_values.REMOTE_TYPES.get(kind, ""), address

    def _fabric(self, handle: Any) -> NvlinkFabric | None:
        info = self._nvml.fabric_info(handle)
        if info is None:
            return None
        state = nvml_values.FABRIC_STATES.get(info.state)
        if state is None:
            raise GpuUnreadableError(f"its fabric is in state {info.state}, which is unknown here")
        # Versions 1 and 2 of the structure lack some of these fields, hence the defaults. The remaining
        # fields are valid only in state "completed".
        health = nvml_values.health(getattr(info, "healthMask", 0), getattr(info, "healthSummary", 0))
        if state != "completed":
            return NvlinkFabric(state, health=health)
        return NvlinkFabric(
            state,
            status=self._nvml.words(info.status) if info.status else "",
            cluster_uuid=nvml_values.cluster_uuid(bytes(info.clusterUuid)),
            clique_id=info.cliqueId,
            health=health,
        )

    def _peers(self, gpus: Sequence[Gpu], handles: Sequence[Any]) -> list[tuple[GpuPeer, ...]]:
        """Return for each GPU its peers and the topology level between them.

        The level is unknown when a GPU becomes unreadable during the query.
        """
        peers: list[list[GpuPeer]] = [[] for _ in gpus]
        direct = [
            [one.remote_pci_address for one in gpu.links if one.active and one.remote_type == "gpu"]
            for gpu in gpus
        ]
        for a, b in itertools.combinations(range(len(gpus)), 2):
            level = None
            with contextlib.suppress(GpuUnreadableError):
                level = self._nvml.optional("nvmlDeviceGetTopologyCommonAncestor", handles[a], handles[b])
            ancestor = nvml_values.ANCESTORS.get(level, "") if level is not None else ""
            for one, other in ((a, b), (b, a)):
                address = gpus[other].pci_address
                peers[one].append(GpuPeer(address, ancestor, direct[one].count(address)))
        return [tuple(sorted(found, key=lambda peer: peer.pci_address)) for found in peers]


def _bus_id(info: Any) -> str:
    """Return the bus id of a PCI structure, "" when the binding cannot decode it."""
    with contextlib.suppress(UnicodeDecodeError):
        return str(info.busId)
    return ""
