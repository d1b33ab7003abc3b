"""What each agent adds to replicas, from sizes of the benchmark, and the bytes that `ss` tells of."""

from collections.abc import Mapping
from typing import Any

import pytest
from hyperscout_cli.loadtest.agents_process import content_digest
from support.findings import T0, lldp
from support.modules import module_of
from support.process_usage import Traffic, traffic_in
from support.real import ROOT
from support.replica_figures import line, table

SS = """
0      0      127.0.0.1:52894 127.0.0.1:31818
\t bbr rto:204 bytes_sent:1000 bytes_received:500 segs_out:10 segs_in:20 data_segs_out:5 data_segs_in:5
0      0      127.0.0.1:52895 127.0.0.1:31818
\t bbr rto:204 bytes_received:7 segs_out:1 segs_in:2 data_segs_in:1
"""


def figures(agents: int) -> Mapping[str, Any]:
    """They are linear: each agent adds 64 KiB to the leader, 25 us/s of its time, and 0.125 rows/s."""
    rates = ("walBytes", "toReplicasBytes", "toReplicasWithHeadersBytes", "fromReplicasBytes")
    return {
        "agents": agents,
        "memoryMib": {"leader": 100 + agents / 16, "standby": 100 + agents / 32, "postgresql": 50.0},
        "cores": {"leader": agents * 25e-6, "standby": agents * 10e-6, "postgresql": agents * 5e-6},
        "databaseBytes": 2**23 + 9 * 2**10 * agents,
        "rowsPerS": agents / 8,
        **{f"{name}PerS": 20.0 * agents for name in (*rates, "fromReplicasWithHeadersBytes")},
    }


def test_a_line_goes_through_points_that_are_on_one() -> None:
    found = line([(1, 12), (2, 14), (4, 18)])
    assert found == pytest.approx((10, 2))
    assert found.at(100) == pytest.approx(210)


def test_a_line_is_near_points_that_are_on_none() -> None:
    assert line([(0, 0), (1, 3), (2, 3)]) == pytest.approx((0.5, 1.5))


def test_what_100000_nodes_need_follows_from_the_slopes() -> None:
    rows = table([figures(500), figures(2000), figures(8000)]).splitlines()
    assert "| memory of the leader | 64 KiB | 0.098 GiB | 6.2 GiB |" in rows
    assert "| size of the database | 9 KiB | 0.0078 GiB | 0.87 GiB |" in rows
    assert "| processor time of the leader at rest | 25 us/s | 0 cores | 2.5 cores |" in rows
    assert "| rows written at rest | 0.12 /s | 0 /s | 12,500 /s |" in rows


def test_the_bytes_of_all_connections_are_added_with_the_headers_of_their_segments() -> None:
    assert traffic_in(SS) == Traffic(1000, 507, 1000 + 66 * 11, 507 + 66 * 22)


@pytest.mark.parametrize(
    ("stored_after_ns", "neighbour", "is_lost"),
    [
        (0, "before", False),
        (-5, "before", False),  # newer in its time alone
        (0, "other", True),
        (-5, "other", True),
        (5, "other", False),  # a newer one was stored meanwhile
    ],
)
def test_an_acknowledged_finding_must_be_stored_or_a_newer_one(
    stored_after_ns: int, neighbour: str, *, is_lost: bool
) -> None:
    bench = module_of(ROOT / "tests" / "bench" / "bench_replicas.py", "bench_replicas")
    key = ("n1", "lldp", "eth0")
    held = [(*key, T0, content_digest(lldp("n1", "eth0", T0, neighbour="before")))]
    encoded = lldp("n1", "eth0", T0 + stored_after_ns, neighbour=neighbour).SerializeToString()
    rows = [(*key, T0 + stored_after_ns, encoded)]
    if is_lost:
        with pytest.raises(AssertionError, match="1 acknowledged findings are not in the database"):
            bench.checked(held, rows)
    else:
        assert bench.checked(held, rows) == 1
    with pytest.raises(AssertionError, match="not in the database"):
        bench.checked(held, [])
