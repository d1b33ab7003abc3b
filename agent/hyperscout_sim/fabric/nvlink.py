"""Makes the GPUs of simulated hosts, as the `nvlink` probe reports them, and faults of these GPUs.

All functions are pure and map names to facts. The same name gives the same GPUs, so that a test knows the
expected result. A fault is a new value that replaces the old one.
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hyperscout_formats.facts.facts import Gpu, GpuPeer, MigInstance, NvlinkFabric, NvlinkLink

Gpus = tuple[Gpu, ...]

DRIVER = "580.95.05"
TRAYS = 18  # compute trays of an NVL72 rack
# Clique id that a fabric manager gives to a domain without partitions.
CLIQUE = 32766

_HGX_BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
_TRAY_DOMAINS = ("0008", "0009", "0018", "0019")  # two GPUs on each of two processors
_NVLINK_GBYTES_PER_S = {3: 25.0, 4: 26.562, 5: 53.125}  # one direction of one link, by generation


def hgx_host(host: str, *, model: str = "NVIDIA H100 80GB HBM3", gpus: int = 8) -> Gpus:
    """Return the GPUs of an HGX H100 or H200 host.

    Every link ends at an NVSwitch of the host itself, so the NVLink domain is node-local.
    """
    addresses = [f"0000:{bus}:00.0" for bus in _HGX_BUSES[:gpus]]
    fabric, own = NvlinkFabric("completed"), _links(18, version=4)
    return tuple(_gpu(host, place, addresses, model, fabric, own) for place in range(len(addresses)))


def nvl72_tray(host: str, cluster: str, *, clique: int = CLIQUE) -> Gpus:
    """Return the GPUs of a GB200 or GB300 tray.

    `cluster` is the UUID of the NVLink domain of the rack, see `cluster_uuid`.
    """
    fabric = NvlinkFabric("completed", cluster_uuid=cluster, clique_id=clique)
    addresses, links = [f"{domain}:01:00.0" for domain in _TRAY_DOMAINS], _links(18, version=5)
    return tuple(
        _gpu(host, place, addresses, "NVIDIA GB300", fabric, links, per_processor=2)
        for place in range(len(addresses))
    )


def nvl72_rack(rack: str, *, trays: Sequence[str] = (), split_at: int | None = None) -> dict[str, Gpus]:
    """Return host -> GPUs of one rack, which is one NVLink domain.

    The hosts are called "RACK-trayNN", unless `trays` names them. `split_at`: the trays from this index on
    are in a second clique of the same cluster UUID.
    """
    hosts = trays or [f"{rack}-tray{number:02}" for number in range(1, TRAYS + 1)]
    cluster = cluster_uuid(rack)
    return {
        host: nvl72_tray(
            host,
            cluster,
            clique=CLIQUE if split_at is None else 1 + (place >= split_at),
        )
        for place, host in enumerate(hosts)
    }


def pcie_host(
    host: str, *, model: str = "NVIDIA A100 80GB PCIe", gpus: int = 8, bridges: bool = False
) -> Gpus:
    """Return the GPUs of a host of PCIe cards without a fabric.

    `bridges`: twelve links join each pair of cards.
    """
    addresses = [f"0000:{bus}:00.0" for bus in _HGX_BUSES[:gpus]]
    made = []
    for place in range(len(addresses)):
        other = addresses[place ^ 1] if bridges and place ^ 1 < len(addresses) else ""
        links = _links(12, version=3, remote_type="gpu", remote=other) if other else ()
        gpu = _gpu(host, place, addresses, model, NvlinkFabric("not-supported"), links)
        peers = tuple(replace(x, nvlinks=12 * (x.pci_address == other)) for x in gpu.peers)
        made.append(replace(gpu, nearest_nics=(f"mlx5_{place // 4}",), peers=peers))
    return tuple(made)


def gpu_uuid(host: str, place: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{place}.{host}')}"


def cluster_uuid(rack: str) -> str:
    """Return the UUID of the NVLink domain of a rack."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, rack))


# Faults. Each function takes the GPUs of a host and returns them with the fault. `which` counts GPUs from 0.


def dead_link(gpus: Sequence[Gpu], which: int, link: int) -> Gpus:
    """Return the GPUs with one link of one GPU down."""

    def kill(one: NvlinkLink) -> NvlinkLink:
        return NvlinkLink(one.link, active=False) if one.link == link else one

    return _changed(gpus, [which], lambda gpu: replace(gpu, links=tuple(map(kill, gpu.links))))


def erring_link(gpus: Sequence[Gpu], which: int, link: int, *, replays: int, ber_exponent: int) -> Gpus:
    """Return the GPUs with one link of one GPU active, but with errors."""

    def spoil(one: NvlinkLink) -> NvlinkLink:
        wrong = replace(one, replay_errors=replays, crc_errors=replays, ber_exponent=ber_exponent)
        return wrong if one.link == link else one

    return _changed(gpus, [which], lambda gpu: replace(gpu, links=tuple(map(spoil, gpu.links))))


def wrong_clique(gpus: Sequence[Gpu], which: int, clique: int) -> Gpus:
    """Return the GPUs with one GPU that reports another clique than the others."""
    return with_fabric(gpus, [which], clique_id=clique)


def in_progress(gpus: Sequence[Gpu], which: Iterable[int] | None = None) -> Gpus:
    """Return the GPUs with a fabric that is still in progress on these GPUs (all, if none are named)."""
    return with_fabric(gpus, which, state="in-progress", cluster_uuid="", clique_id=0)


def failed_fabric(gpus: Sequence[Gpu], status: str, which: Iterable[int] | None = None) -> Gpus:
    """Return the GPUs with a fabric that failed with `status` on these GPUs (all, if none are named)."""
    return with_fabric(gpus, which, state="completed", status=status, cluster_uuid="", clique_id=0)


def unhealthy(gpus: Sequence[Gpu], *health: str, which: Iterable[int] | None = None) -> Gpus:
    """Return the GPUs with the words of `NvlinkFabric.health` on these GPUs (all, if none are named)."""
    return with_fabric(gpus, which, health=tuple(health))


def with_mig(gpus: Sequence[Gpu], which: int, *profiles: str) -> Gpus:
    """Return the GPUs with one GPU divided into MIG instances of these profiles."""

    def cut(gpu: Gpu) -> Gpu:
        instances = tuple(
            MigInstance(f"MIG-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{number}.{gpu.uuid}')}", profile, number, 0)
            for number, profile in enumerate(profiles, 1)
        )
        return replace(gpu, mig_mode="enabled", mig_instances=instances)

    return _changed(gpus, [which], cut)


def with_fabric(gpus: Sequence[Gpu], which: Iterable[int] | None = None, **fields: object) -> Gpus:
    """Return the GPUs with changed fields of the `NvlinkFabric` of these GPUs (all, if none are named)."""

    def tell(gpu: Gpu) -> Gpu:
        return replace(gpu, fabric=replace(gpu.fabric or NvlinkFabric("completed"), **fields))  # type: ignore[arg-type]  # the caller passes field names

    return _changed(gpus, which, tell)


def _changed(gpus: Sequence[Gpu], which: Iterable[int] | None, change: Callable[[Gpu], Gpu]) -> Gpus:
    chosen = set(range(len(gpus)) if which is None else which)
    return tuple(change(gpu) if place in chosen else gpu for place, gpu in enumerate(gpus))


def _gpu(
    host: str,
    place: int,
    addresses: Sequence[str],
    model: str,
    fabric: NvlinkFabric,
    links: tuple[NvlinkLink, ...],
    *,
    per_processor: int = 4,
) -> Gpu:
    """Return the GPU at a place of a host whose GPUs have these PCI addresses."""
    return Gpu(
        uuid=gpu_uuid(host, place),
        model=model,
        pci_address=addresses[place],
        driver_version=DRIVER,
        mig_mode="disabled",
        links=links,
        fabric=fabric,
        numa_node=place // per_processor,
        nearest_nics=(f"mlx5_{place}",),
        peers=_peers(addresses, place, per_processor=per_processor),
    )


def _links(
    count: int, *, version: int, remote_type: str = "switch", remote: str = ""
) -> tuple[NvlinkLink, ...]:
    rate = _NVLINK_GBYTES_PER_S[version]
    return tuple(
        NvlinkLink(number, True, version, remote_type, remote, gbytes_per_s=rate) for number in range(count)
    )


def _peers(addresses: Sequence[str], place: int, *, per_processor: int) -> tuple[GpuPeer, ...]:
    """Return the peers of a GPU, each of which has its own host bridge.

    The ancestor is "node" for GPUs of the same processor, and "system" for those of the other one.
    """
    return tuple(
        GpuPeer(address, "node" if other // per_processor == place // per_processor else "system")
        for other, address in enumerate(addresses)
        if other != place
    )
