"""An anomaly whose domain is an index, before domains are named."""

from dataclasses import dataclass

from hyperscout_topology.topology import Endpoint, Figure


@dataclass(frozen=True, slots=True)
class Suspicion:
    """`layer`, `domain`: indexes of the domain it counts against, -1 = none. Other fields: see `Anomaly`."""

    kind: str
    subject: Endpoint
    peer: Endpoint | None
    layer: int
    domain: int
    confidence: float
    message: str
    sources: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    clears_ns: int = 0

    @property
    def ends(self) -> frozenset[tuple[str, str | None]]:
        """(device, port) of both ends, in no order."""
        return frozenset((end.device, end.port) for end in (self.subject, self.peer) if end is not None)
