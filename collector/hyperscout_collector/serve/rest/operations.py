"""Defines the operations of REST: the source of its routes, rights, parameters and OpenAPI document."""

from dataclasses import dataclass
from typing import Literal

from google.protobuf.message import Message
from hyperscout.v1 import measurement_pb2, placement_pb2, topology_pb2

from hyperscout_collector.serve.rest.kinds import KINDS, Kind, cluster_parameter
from hyperscout_collector.serve.rest.pages import PAGING, paging
from hyperscout_collector.serve.rest.parameters import Parameter
from hyperscout_collector.serve.rest.rendered import OUTPUTS

Body = type[Message]

_TOPOLOGY = "/hyperscout.v1.TopologyService/"
_PLACEMENT = "/hyperscout.v1.PlacementService/"
_MEASUREMENT = "/hyperscout.v1.MeasurementService/"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    `name`: the handler's name and the operationId. `path`: in Starlette's form. `rpc`: the gRPC method whose
    right the caller needs. `message`: the response's message in proto/, or for a list that of its `items`.
    `cached`: responses have an ETag, and can be 304.
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
_UNTIL = Parameter("until", "End of the period, exclusive; without it now.", "time", "2026-01-31T14:00:00Z")
_ABOUT = Parameter(
    "about", "Only changes of this node, HyperNode, switch, device or link end.", example="leaf-03/p17"
)
_CLUSTER = cluster_parameter(
    "changes of nodes, and of HyperNodes that contain nodes (a page may have fewer of them), of"
)

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "get_topology",
        "GET",
        "/v1/topology",
        _TOPOLOGY + "GetTopology",
        "The whole topology as JSON, as HyperNodes for Kubernetes, or as a file for Slurm.",
        "Topology",
        (
            Parameter(
                "at",
                "The topology that was published at this time; without it the current one.",
                "time",
                "2026-01-31T14:03:07Z",
            ),
            Parameter(
                "links", "`false` omits links and adapters, which are most of the response.", "flag", False
            ),
            Parameter(
                "output",
                "The format; it takes precedence over `Accept`.",
                example="json",
                choices=tuple(OUTPUTS),
            ),
        ),
        cached=True,
    ),
    _list("hypernodes", "HyperNodes (network domains) with their conditions."),
    _one("hypernodes", "One HyperNode.", "hypernode", "Name of the HyperNode.", "leaf-03-1f2e"),
    _list("nodes", "Nodes with the HyperNodes that contain them."),
    _one("nodes", "One node.", "node", "Name of the node.", "gpu-01"),
    _list("switches", "Switches with their HyperNodes."),
    _one(
        "switches",
        "One switch.",
        "switch",
        "Id of the switch, or its name if no other switch has it.",
        "leaf-03",
    ),
    _list("links", "Links with their ends."),
    _list("anomalies", "Anomalies: contradictions and faults in the topology."),
    Operation(
        "list_findings",
        "GET",
        "/v1/findings",
        _TOPOLOGY + "ListFindings",
        "Findings of the probes, as stored by the collector.",
        "StoredFinding",
        (
            Parameter("node", "Only findings of this node.", example="gpu-01"),
            Parameter("probe", "Only findings of this probe.", example="lldp"),
            *PAGING,
        ),
    ),
    Operation(
        "explain",
        "GET",
        "/v1/explain",
        _TOPOLOGY + "Explain",
        "How two nodes are connected: their lowest common HyperNode, a shortest path, and its anomalies.",
        "ExplainResponse",
        (
            Parameter("a", "Name of a node.", example="gpu-01", required=True),
            Parameter("b", "Name of the other node.", example="gpu-77", required=True),
        ),
    ),
    Operation(
        "list_history",
        "GET",
        "/v1/history",
        _TOPOLOGY + "ListHistory",
        "Changes of the topology, newest first, and counts of flapping.",
        "HistoryEvent",
        (
            Parameter(
                "since",
                "Start of the period, inclusive; without it the oldest change that is stored.",
                "time",
                "2026-01-31T12:00:00Z",
            ),
            _UNTIL,
            _ABOUT,
            _CLUSTER,
            Parameter("kind", "Only events of this kind.", example="ConditionChanged", repeated=True),
            Parameter("net", "`true` omits changes that were reversed within the period.", "flag", True),
            *paging(200, 1000),
        ),
    ),
    Operation(
        "list_differences",
        "GET",
        "/v1/diff",
        _TOPOLOGY + "ListHistory",
        "What differs between two times: the changes that were not reversed between them.",
        "HistoryEvent",
        (
            Parameter("since", "The earlier time.", "time", "2026-01-31T12:00:00Z", required=True),
            _UNTIL,
            _ABOUT,
            _CLUSTER,
            *paging(200, 1000),
        ),
    ),
    Operation(
        "get_status",
        "GET",
        "/v1/status",
        _TOPOLOGY + "GetStatus",
        "State of the collector: agents, sweeps, a held generation, problems.",
        "GetStatusResponse",
        (Parameter("agents", "`false` omits `agents`, which are most of the response.", "flag", False),),
    ),
    Operation(
        "list_placements",
        "GET",
        "/v1/placements",
        _PLACEMENT + "ListPlacements",
        "Placements: gangs and their reserved nodes.",
        "Placement",
        (*(one.parameter for one in _PLACEMENTS.filters), *PAGING),
        kind=_PLACEMENTS,
    ),
    Operation(
        "place",
        "POST",
        "/v1/placements",
        _PLACEMENT + "Place",
        "Selects nodes for a gang, and reserves them unless `dryRun` is true.",
        "Placement",
        body=placement_pb2.PlaceRequest,
    ),
    Operation(
        "get_queue",
        "GET",
        "/v1/queue",
        _PLACEMENT + "ListQueue",
        "The gangs of pods that wait for nodes, in the order in which they are tried.",
        "ListQueueResponse",
    ),
    Operation(
        "release",
        "DELETE",
        "/v1/placements/{gang:path}",
        _PLACEMENT + "Release",
        "Releases the reserved nodes of a gang.",
        parameters=(Parameter("gang", "Name of the gang.", example="train-7", required=True),),
    ),
    Operation(
        "explain_placement",
        "POST",
        "/v1/explain-placement",
        _PLACEMENT + "ExplainPlacement",
        "The candidates for a gang, and why each was not chosen. Changes nothing.",
        "ExplainPlacementResponse",
        body=placement_pb2.ExplainPlacementRequest,
    ),
    Operation(
        "repair",
        "POST",
        "/v1/repair",
        _PLACEMENT + "Repair",
        "Moves the workers of a reserved gang from failed nodes to others, unless `dryRun` is true.",
        "RepairResponse",
        body=placement_pb2.RepairRequest,
    ),
    Operation(
        "resize",
        "POST",
        "/v1/resize",
        _PLACEMENT + "Resize",
        "Grows or shrinks a reserved gang within the limits of its request, unless `dryRun` is true.",
        "ResizeResponse",
        body=placement_pb2.ResizeRequest,
    ),
    Operation(
        "get_measuring",
        "GET",
        "/v1/measuring",
        _MEASUREMENT + "GetMeasuring",
        "The state of measurements between nodes.",
        "GetMeasuringResponse",
    ),
    Operation(
        "set_measuring",
        "POST",
        "/v1/measuring",
        _MEASUREMENT + "SetMeasuring",
        "Pauses or resumes measurements between nodes.",
        body=measurement_pb2.SetMeasuringRequest,
    ),
    Operation(
        "run_nccl",
        "POST",
        "/v1/measuring/nccl",
        _MEASUREMENT + "RunNccl",
        "Runs NCCL within a node or between two, and waits for the result. Closing the connection ends it.",
        "RunNcclResponse",
        body=measurement_pb2.RunNcclRequest,
    ),
    Operation(
        "approve",
        "POST",
        "/v1/approve",
        _TOPOLOGY + "Approve",
        "Publishes a held generation; for the published generation, accepts its wiring.",
        "ApproveResponse",
        body=topology_pb2.ApproveRequest,
    ),
    Operation(
        "stream",
        "GET",
        "/v1/stream",
        _TOPOLOGY + "WatchTopology",
        "The topology, then each change of it, as server-sent events.",
        "TopologyDelta",
        (
            Parameter(
                "since",
                "`id` of the last event that the reader has, as in `Last-Event-ID`. The stream continues "
                "after it if the collector still has the changes since then, else it starts with a snapshot.",
                example="42",
            ),
        ),
    ),
    Operation(
        "openapi",
        "GET",
        "/v1/openapi.json",
        _TOPOLOGY + "GetTopology",
        "This OpenAPI document.",
        cached=True,
    ),
)
