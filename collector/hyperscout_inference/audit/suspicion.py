"""An anomaly before its domain has a name."""

from dataclasses import dataclass

from hyperscout_topology.topology import Endpoint


@dataclass(frozen=True, slots=True)
class Suspicion:
    """`layer`, `domain`: the domain it counts against, by index; -1 = none. The rest as in `Anomaly`."""

    kind: str
    subject: Endpoint
    peer: Endpoint | None
    layer: int
    domain: int
    confidence: float
    message: str
    sources: tuple[str, ...]
    nodes: tuple[str, ...] = ()

    @property
    def ends(self) -> frozenset[tuple[str, str | None]]:
        """Both ends, whichever is named first."""
        ends = [(self.subject.device, self.subject.port)]
        return frozenset(ends + ([(self.peer.device, self.peer.port)] if self.peer else []))
