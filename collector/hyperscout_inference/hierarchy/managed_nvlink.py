"""Add the NVLink domains that a manager reports, for hosts without an agent's report.

The manager's names for domain and partition may differ from the drivers' cluster and clique. Hosts that both
report map one to the other. A host becomes a `SourcesDisagree` finding if its own GPUs report another domain
than the other hosts of its managed domain; the host's own report wins.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hyperscout_formats.facts.facts import Gpu, NvlinkFabric
from hyperscout_topology.topology import Endpoint

from hyperscout_inference.fabric.accelerators import Fault

SOURCE = "nmx"
_Key = tuple[str, int]  # cluster UUID and clique, or the manager's domain and partition
_All = Mapping[str, tuple[Gpu, ...]]


def with_managed(
    own: _All, managed: _All, known: frozenset[str] | None, share: float = 0.0
) -> tuple[_All, Sequence[Fault]]:
    """Return `own` plus the hosts that only the manager reports, with the drivers' names for domains, and one
    fault per host on which the two sources disagree.

    `known`: the hosts that exist, None = any. A host of the manager that is not in `known` is ignored.
    `share`: the manager's domain is that of hosts with reports if more than this share of them is in both.
    """
    if not managed:
        return own, ()
    theirs = {host: key for host, gpus in managed.items() if (key := _most(gpus)) is not None}
    votes: dict[_Key, Counter[_Key]] = {}
    for host in sorted(theirs.keys() & own.keys()):
        if (mine := _most(own[host])) is not None and mine[0]:
            votes.setdefault(theirs[host], Counter())[mine] += 1
    names = {managed_key: min(n, key=lambda key: (-n[key], key)) for managed_key, n in votes.items()}
    hosts_in = Counter(map(_most, own.values())) if share else Counter[_Key | None]()
    names = {theirs: key for theirs, key in names.items() if votes[theirs][key] > share * hosts_in[key]}
    found = dict(own)
    faults: list[Fault] = []
    for host in sorted(theirs):
        if host not in own:
            if known is None or host in known:
                found[host] = tuple(_renamed(gpu, names) for gpu in managed[host])
        elif (mine := _most(own[host])) is not None and mine != (usual := names.get(theirs[host], mine)):
            faults.append(_disagreement(host, mine, usual, votes[theirs[host]]))
    return found, faults


def _most(gpus: Sequence[Gpu]) -> _Key | None:
    """Return the domain that most of a host's GPUs are in, or None where no GPU reports one."""
    keys = Counter(
        (gpu.fabric.cluster_uuid, gpu.fabric.clique_id)
        for gpu in gpus
        if gpu.fabric is not None and gpu.fabric.state == "completed" and not gpu.fabric.status
    )
    return min(keys, key=lambda key: (-keys[key], key)) if keys else None


def _renamed(gpu: Gpu, names: Mapping[_Key, _Key]) -> Gpu:
    fabric = gpu.fabric or NvlinkFabric("not-supported")
    cluster, clique = names.get(
        (fabric.cluster_uuid, fabric.clique_id), (fabric.cluster_uuid, fabric.clique_id)
    )
    return replace(gpu, fabric=replace(fabric, cluster_uuid=cluster, clique_id=clique))


def _disagreement(host: str, mine: _Key, usual: _Key, votes: Mapping[_Key, int]) -> Fault:
    sure = 0.9 if votes[usual] > votes[mine] else 0.5
    text = (
        f"the manager reports {host} in one NVLink domain with {votes[usual]} other hosts; its own GPUs "
        f"report clique {mine[1]} of {mine[0] or 'this host alone'}, those of the others clique {usual[1]} "
        f"of {usual[0]}"
    )
    return Fault(host, "SourcesDisagree", Endpoint(host, host), sure, text)
