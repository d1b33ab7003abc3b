"""Which starts are take-overs: those for whose topology the evidence on disk does not suffice."""

from pathlib import Path
from typing import cast

import pytest
from hyperscout_collector.app.build.context import Context
from hyperscout_collector.app.build.inference import takeover_of
from hyperscout_collector.app.build.ingest import Storage
from hyperscout_collector.app.placing.reservations import Reservations
from hyperscout_collector.evidence.store import EvidenceStore, Loaded
from hyperscout_collector.history.opening import HistoryOpening
from hyperscout_collector.store.writer import StoreWriter
from hyperscout_topology.topology import Topology
from support.collectors import collector_settings
from support.topologies import two_leaves

SHARED = "postgresql:///topology"


@pytest.mark.parametrize(
    ("published", "store", "leader_election", "is_takeover", "lacks_evidence", "waits"),
    [
        pytest.param(two_leaves(), "", False, False, False, False, id="a restart with its evidence"),
        pytest.param(two_leaves(), "", False, False, True, True, id="a snapshot was loaded"),
        pytest.param(two_leaves(), "", False, True, False, True, id="read from the cluster"),
        pytest.param(two_leaves(), "", True, False, False, True, id="a replica that leads again"),
        pytest.param(two_leaves(), SHARED, True, False, False, False, id="its evidence is of all"),
        pytest.param(two_leaves(), SHARED, True, False, True, True, id="the one before had waited too"),
        pytest.param(two_leaves(), SHARED, True, True, False, True, id="the first start on PostgreSQL"),
        pytest.param(Topology(3), "", False, False, True, False, id="an empty snapshot"),
        pytest.param(None, "", False, False, True, False, id="nothing"),
    ],
)
def test_which_starts_wait_for_agents(
    tmp_path: Path,
    published: Topology | None,
    store: str,
    leader_election: bool,
    is_takeover: bool,
    lacks_evidence: bool,
    waits: bool,
) -> None:
    storage = Storage(
        cast(StoreWriter, None),
        cast(EvidenceStore, None),
        Loaded(lacks_evidence=lacks_evidence),
        cast(Reservations, None),
        cast(HistoryOpening, None),
        published,
        is_takeover,
        (),
        (),
        0,
    )
    context = Context(collector_settings(tmp_path, store=store, leader_election=leader_election), None)
    takeover = takeover_of(context, storage)
    assert (takeover is not None) == waits
    if takeover is not None:
        assert takeover.active
        assert takeover.waits_for() == "agents of 4 nodes (n01, n02, n03 and 1 more) and a sweep of ib"
