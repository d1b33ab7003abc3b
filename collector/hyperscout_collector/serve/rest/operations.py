"""What REST offers, as a table: routes, rights, parameters and the OpenAPI document go by it.

`rpc` names the method of gRPC that an operation stands for: what a caller must be allowed to is asked it.
"""

from dataclasses import dataclass
from typing import Literal

from hyperscout.v1 import placement_pb2, topology_pb2

from hyperscout_collector.serve.rest.kinds import KINDS, Kind
from hyperscout_collector.serve.rest.pages import PAGING, paging
from hyperscout_collector.serve.rest.parameters import Parameter
from hyperscout_collector.serve.rest.rendered import OUTPUTS

Body = type[placement_pb2.PlaceRequest] | type[topology_pb2.ApproveRequest]

_TOPOLOGY = "/hyperscout.v1.TopologyService/"
_PLACEMENT = "/hyperscout.v1.PlacementService/"


@dataclass(frozen=True, slots=True)
class Operation:
    """`name`: of the handler, and operationId. `path`: Starlette's; a parameter in it may hold slashes.

    `message`: what it answers with, by its name in proto/; of a list, what `items` are. `cached`: it has an
    ETag, and answers 304.
    """

    name: str
    http: Literal["GET", "POST", "DELETE"]
    path: str
    rpc: str
    summary: str
    message: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    kind: Kind | None = None
    cached: bool = False


def _list(name: str, summary: str) -> Operation:
    kind = KINDS[name]
    filters = tuple(one.parameter for one in kind.filters)
    return Operation(
        f"list_{name}",
        "GET",
        f"/v1/{name}",
        _TOPOLOGY + "GetTopology",
        summary,
        kind.message,
        (*filters, *PAGING),
        kind=kind,
        cached=True,
    )


def _one(name: str, summary: str, key: str, about: str, example: str) -> Operation:
    return Operation(
        f"get_{key}",
        "GET",
        f"/v1/{name}/{{{key}:path}}",
        _TOPOLOGY + "GetTopology",
        summary,
        KINDS[name].message,
        (Parameter(key, about, example=example, required=True),),
        kind=KINDS[name],
        cached=True,
    )


_PLACEMENTS = KINDS["placements"]

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "get_topology",
        "GET",
        "/v1/topology",
        _TOPOLOGY + "GetTopology",
        "The whole picture, as JSON, or as HyperNodes for Kubernetes or a file for Slurm.",
        "Topology",
        (
            Parameter("at", "As it was published at this time.", "time", "2026-01-31T14:03:07Z"),
            Parameter("links", "`false` leaves links and adapters out: most of the bytes.", "flag", False),
            Parameter(
                "output",
                "The format, where `Accept` does not say enough.",
                example="json",
                choices=tuple(OUTPUTS),
            ),
        ),
        cached=True,
    ),
    _list("hypernodes", "HyperNodes: domains of the network, with their conditions."),
    _one("hypernodes", "One HyperNode.", "hypernode", "Its name.", "leaf-03-1f2e"),
    _list("nodes", "Nodes, with the HyperNodes that hold them."),
    _one("nodes", "One node.", "node", "Its name.", "gpu-01"),
    _list("switches", "Switches, with the HyperNodes that they serve."),
    _one("switches", "One switch.", "switch", "Its id, or its name where only one has it.", "leaf-03"),
    _list("links", "Cables, by their ends."),
    _list("anomalies", "What does not fit."),
    Operation(
        "list_findings",
        "GET",
        "/v1/findings",
        _TOPOLOGY + "ListFindings",
        "What the probes saw, as the collector keeps it.",
        "StoredFinding",
        (
            Parameter("node", "Only those of this node.", example="gpu-01"),
            Parameter("probe", "Only those of this probe.", example="lldp"),
            *PAGING,
        ),
    ),
    Operation(
        "explain",
        "GET",
        "/v1/explain",
        _TOPOLOGY + "Explain",
        "How two nodes are connected: their lowest common HyperNode, a path, what is wrong on it.",
        "ExplainResponse",
        (
            Parameter("a", "A node.", example="gpu-01", required=True),
            Parameter("b", "Another one.", example="gpu-77", required=True),
        ),
    ),
    Operation(
        "list_history",
        "GET",
        "/v1/history",
        _TOPOLOGY + "ListHistory",
        "What changed, newest first, and what flapped.",
        "HistoryEvent",
        (
            Parameter(
                "since", "From this time on; without it all that is kept.", "time", "2026-01-31T12:00:00Z"
            ),
            Parameter("until", "Up to this time; without it now.", "time", "2026-01-31T14:00:00Z"),
            Parameter(
                "about",
                "Only what is about this node, HyperNode, switch or device, or this end of a link.",
                example="leaf-03/p17",
            ),
            Parameter("kind", "Only events of this kind.", example="ConditionChanged", repeated=True),
            Parameter("net", "Only what differs in the end.", "flag", True),
            *paging(200, 1000),
        ),
    ),
    Operation(
        "get_status",
        "GET",
        "/v1/status",
        _TOPOLOGY + "GetStatus",
        "The collector's state: agents, sweeps, what is held back, what is wrong.",
        "GetStatusResponse",
        (Parameter("agents", "`false` leaves `agents` out: nearly all of the bytes.", "flag", False),),
    ),
    Operation(
        "list_placements",
        "GET",
        "/v1/placements",
        _PLACEMENT + "ListPlacements",
        "Gangs that hold nodes.",
        "Placement",
        (*(one.parameter for one in _PLACEMENTS.filters), *PAGING),
        kind=_PLACEMENTS,
    ),
    Operation(
        "place",
        "POST",
        "/v1/placements",
        _PLACEMENT + "Place",
        "Find nodes for a gang, and reserve them unless `dryRun` is true.",
        "Placement",
        body=placement_pb2.PlaceRequest,
    ),
    Operation(
        "release",
        "DELETE",
        "/v1/placements/{gang:path}",
        _PLACEMENT + "Release",
        "Give back what a gang holds.",
        parameters=(Parameter("gang", "Its name.", example="train-7", required=True),),
    ),
    Operation(
        "approve",
        "POST",
        "/v1/approve",
        _TOPOLOGY + "Approve",
        "Publish a generation that is held back; of the published one, accept the wiring.",
        "ApproveResponse",
        body=topology_pb2.ApproveRequest,
    ),
    Operation(
        "stream",
        "GET",
        "/v1/stream",
        _TOPOLOGY + "WatchTopology",
        "The picture, and then what changes in it, as server-sent events.",
        "TopologyDelta",
        (
            Parameter(
                "since",
                "`id` of the last event that is known, as in `Last-Event-ID`: go on from there if that is "
                "still at hand, else begin with a snapshot.",
                example="42",
            ),
        ),
    ),
    Operation(
        "openapi",
        "GET",
        "/v1/openapi.json",
        _TOPOLOGY + "GetTopology",
        "This description.",
        cached=True,
    ),
)
