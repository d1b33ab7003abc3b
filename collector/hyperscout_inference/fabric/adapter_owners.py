"""Decide which node an adapter belongs to where the agents of several nodes report its GUID.

An agent may report any GUID as its own. Where current agents disagree, the adapter belongs to the first of
these that is one of the claimants: the host that the node map names, the host that the sweep's description
names, the node under which the adapter was published. Without such a witness it stays where it was published.
A stale agent has no claim where a current agent has one.

A single claim moves an adapter that was published under another node, so that an adapter may move to a
replacement host. It does not while a witness names the other node: the sweep still describes the adapter as
that node's, or the node map names that node and its agent reports no adapters now.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from hyperscout_formats.facts.facts import InfinibandPort
from hyperscout_formats.infiniband.ibnetdiscover import SWITCH
from hyperscout_formats.text.counts import count, first_few
from hyperscout_topology.link_changes import contains
from hyperscout_topology.memo import MemoByNode, memoized
from hyperscout_topology.topology import Adapter, Anomaly, Endpoint, Topology

from hyperscout_inference.fabric.identify import claims
from hyperscout_inference.fabric.inputs import FabricInputs, InferOptions, SweepSeen
from hyperscout_inference.fabric.manager_sweeps import by_authority
from hyperscout_inference.fabric.network import distinct
from hyperscout_inference.fabric.part import Guids

SOURCE: Final = "infiniband"
_NAMED = 3  # adapters that a message names at most
_GUID_DIGITS = 16


@dataclass(slots=True)
class AdapterOwners:
    """`node`: the node of each GUID that an agent reports. `label`: the name of the adapter on that node.
    `disputed`: GUIDs that several agents report and that count for none of them; they are in no `node`.
    `anomalies`: one for each node with claims that do not count."""

    node: dict[int, str] = field(default_factory=dict)
    label: dict[int, str] = field(default_factory=dict)
    disputed: set[int] = field(default_factory=set)
    anomalies: list[Anomaly] = field(default_factory=list)


def adapter_owners(inputs: FabricInputs, options: InferOptions, previous: Topology | None) -> AdapterOwners:
    """Return the owners of all GUIDs that agents report. The order of the evidence does not matter."""
    reported = _reported(inputs.infiniband)
    node, label, rivals = _claimed(reported, frozenset(filter(reported.__contains__, inputs.silent)))
    published = published_nodes(previous)
    moved = _moved(published, node)
    if not (rivals or moved):
        return AdapterOwners(node, label)
    owners = AdapterOwners(dict(node), dict(label))
    _Dispute(inputs, options, published, owners).settle(rivals, moved - rivals.keys())
    return owners


def _guids_of(node: str, ports: Iterable[InfinibandPort]) -> dict[int, str]:
    """Return the GUIDs that an agent reports, with the names of their adapters."""
    return {
        guid: port.device
        for port in ports
        if port.link_layer == "InfiniBand"
        for guid in (port.node_guid, port.port_guid)
    }


_reported = MemoByNode(_guids_of)


def reporters(infiniband: Mapping[str, Iterable[InfinibandPort]]) -> Mapping[int, Sequence[str]]:
    """Return the nodes whose agents report each GUID of an InfiniBand adapter or port."""
    return _reporters(_reported(infiniband))


@memoized
def _reporters(reported: Mapping[str, Mapping[int, str]]) -> Mapping[int, Sequence[str]]:
    found: dict[int, list[str]] = {}
    for node, guids in reported.items():
        alone = [node]  # one list for all GUIDs that no other node reports
        for guid in guids:
            nodes = found.setdefault(guid, alone)
            if len(nodes) > 1:
                nodes.append(node)
            elif nodes is not alone:
                found[guid] = [*nodes, node]
    return found


@memoized
def _claimed(
    reported: Mapping[str, Mapping[int, str]], silent: Collection[str]
) -> tuple[dict[int, str], dict[int, str], dict[int, set[str]]]:
    """Return the node and the label of each GUID, and the claimants of GUIDs with several.

    Claims of `silent` nodes count where no current node has one.
    """
    node_of: dict[int, str] = {}
    label: dict[int, str] = {}
    rivals: dict[int, set[str]] = {}
    for is_silent in (False, True):
        claimed: dict[int, str] = {}
        for node in sorted(reported):
            if (node in silent) is not is_silent:
                continue
            for guid, device in reported[node].items():
                first = claimed.get(guid)
                if first is not None:
                    rivals.setdefault(guid, {first}).add(node)
                elif guid and guid not in node_of:  # else a current agent has it, and this one is stale
                    claimed[guid] = node_of[guid] = node
                    label[guid] = device
    return node_of, label, rivals


@memoized
def adapters_by_id(adapters: Iterable[Adapter]) -> Mapping[str, Adapter]:
    return {adapter.id: adapter for adapter in adapters}


def published_nodes(previous: Topology | None) -> dict[int, str]:
    """Return the nodes of the published InfiniBand adapters, by GUID."""
    return _published(previous.adapters if previous is not None else ())


@memoized
def still_reported(published: Mapping[int, str], node_of: Mapping[int, str]) -> Guids:
    """Return the published adapters that the agent of their node reports. `node_of`: the node of each GUID
    that an agent reports."""
    return np.array([guid for guid, node in published.items() if node_of.get(guid) == node], np.uint64)


@memoized
def of_shown_hosts(adapters: Guids, sweeps: tuple[SweepSeen, ...], node: Mapping[int, str]) -> Guids:
    """Return the adapters whose host has one that sweeps show. A host without any must not seem to be there.

    `node`: of each adapter.
    """
    if not len(adapters):
        return adapters
    swept = distinct(np.concatenate([seen.sweep.guid for seen in sweeps]))
    hidden = ~contains(swept, adapters)
    if not hidden.any():
        return adapters
    hosts = set(map(node.get, swept.tolist()))
    hidden[hidden] = [node.get(guid) not in hosts for guid in adapters[hidden].tolist()]
    return adapters[~hidden]


@memoized
def _published(adapters: Iterable[Adapter]) -> dict[int, str]:
    return {guid: adapter.node for adapter in adapters if (guid := guid_of(adapter.id))}


def guid_of(text: str) -> int:
    """Return the GUID that is the id of a device, 0 for a device of another kind of fabric."""
    try:
        return int(text, 16) if len(text) == _GUID_DIGITS else 0
    except ValueError:
        return 0  # a host's Ethernet side or a GPU


@memoized
def _moved(published: Mapping[int, str], node_of: Mapping[int, str]) -> set[int]:
    """Return the GUIDs that were published under another node than that which reports them."""
    now = list(map(node_of.get, published, published.values()))
    if now == list(published.values()):  # the common case
        return set()
    return {guid for guid, node in published.items() if node_of.get(guid, node) != node}


class _Dispute:
    """Settles the claims that need a witness, in place."""

    def __init__(
        self,
        inputs: FabricInputs,
        options: InferOptions,
        published: Mapping[int, str],
        owners: AdapterOwners,
    ) -> None:
        self._inputs = inputs
        self._published = published
        self._owners = owners
        self._described = _described(inputs)  # of all devices
        known = {*inputs.infiniband, *inputs.lldp, *inputs.gpus, *inputs.answering}
        self._nodes: Collection[str] = known if options.cluster_nodes is None else options.cluster_nodes
        self._refused: dict[str, dict[int, set[str]]] = {}  # by claimant and GUID: the other nodes

    def settle(self, rivals: Mapping[int, set[str]], moved: Collection[int]) -> None:
        """`rivals`: the claimants of GUIDs with several. `moved`: GUIDs with one claimant that were published
        under another node."""
        for guid in sorted(rivals):
            if guid in self._described or guid in self._published:
                self._give(guid, self._winner(guid, rivals[guid]), rivals[guid])
            else:  # no device, such as the GUID of a port: nothing belongs to it
                self._owners.node.pop(guid, None)
        for guid in sorted(moved):
            if self._stays(guid):
                claimant = self._owners.node[guid]
                self._give(guid, self._published[guid], {claimant})
        for node in sorted(self._refused):
            refused = self._refused[node]
            label = next(
                p.device for p in self._inputs.infiniband[node] if {p.node_guid, p.port_guid} & refused.keys()
            )
            self._owners.anomalies.append(_anomaly(Endpoint(node, node, label), refused))

    def _winner(self, guid: int, claimants: Collection[str]) -> str | None:
        published = self._published.get(guid)
        witnesses = self._inputs.node_map.get(guid), self._described.get(guid), published
        return next((node for node in witnesses if node in claimants), published)

    def _stays(self, guid: int) -> bool:
        """Return whether a witness denies the only claim."""
        was = self._published[guid]
        if was not in self._nodes:
            return False  # a name that only a description or an old map had
        reports = was in self._inputs.infiniband and was not in self._inputs.silent
        return self._described.get(guid) == was or (self._inputs.node_map.get(guid) == was and not reports)

    def _give(self, guid: int, winner: str | None, claimants: Collection[str]) -> None:
        owners = self._owners
        del owners.node[guid], owners.label[guid]
        if winner is None:
            owners.disputed.add(guid)
        else:
            owners.node[guid] = winner
            for port in self._inputs.infiniband.get(winner, ()):
                if guid in (port.node_guid, port.port_guid):
                    owners.label[guid] = port.device
        for node in claimants:
            if node != winner:
                others = {*claimants, *([winner] if winner else ())} - {node}
                self._refused.setdefault(node, {})[guid] = others


def _described(inputs: FabricInputs) -> dict[int, str]:
    """Return the hosts that descriptions name, by the GUID of each endpoint; "" where one names none."""
    found: dict[int, str] = {}
    for seen in sorted(inputs.sweeps, key=by_authority):
        sweep = seen.sweep
        ends = (sweep.kind != SWITCH).nonzero()[0].tolist()
        names = claims([sweep.descriptions[i] for i in ends], inputs.node_names)
        for guid, claim in zip(sweep.guid[ends].tolist(), names, strict=True):
            found[guid] = claim.host or found.get(guid, "")
    return found


def _anomaly(claimant: Endpoint, refused: Mapping[int, Collection[str]]) -> Anomaly:
    """`claimant`: a node and the first adapter in its report that does not count as its own."""
    texts = [f"{guid:016x} of {' and '.join(sorted(refused[guid]))}" for guid in sorted(refused)]
    text = (
        f"{claimant.name} reports {count(len(refused), 'adapter')} of other nodes as its own: "
        f"{first_few(texts, _NAMED)}; no node map, sweep or earlier topology supports its claim"
    )
    nodes = tuple(sorted({claimant.name}.union(*refused.values())))
    return Anomaly("SourcesDisagree", claimant, None, None, (SOURCE,), 0.9, text, nodes=nodes)


def owners_of(guids: Collection[int], previous: Topology | None) -> dict[int, str]:
    """Return the nodes of these adapters, as published."""
    adapters = adapters_by_id(previous.adapters if previous is not None else ())
    found = ((guid, adapters.get(f"{guid:016x}")) for guid in guids)
    return {guid: adapter.node for guid, adapter in found if adapter is not None}
