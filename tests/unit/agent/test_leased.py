"""Work under a sweep lease, and its cancellation."""

import asyncio

import pytest
from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout_agent.probes.ibnetdiscover import IbnetdiscoverProbe
from hyperscout_agent.probes.ibqueryerrors import IbqueryerrorsProbe
from hyperscout_agent.sweeps.leased import LeasedProbe, Swept
from support.fake_time import settle


class SlowToEnd(LeasedProbe):
    """Its sweep never ends, and its clean-up neither unless it is cancelled."""

    name = "slow"
    interval_s = 60.0
    timeout_s = 60.0

    async def _sweep(self, lease: SweepLease) -> Swept:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def test_a_run_is_cancelled_while_the_sweep_of_a_revoked_lease_ends() -> None:
    probe = SlowToEnd(command=("true",))
    probe.take_lease(SweepLease(lease_id="L1", device="mlx5_0", port=1))
    run = asyncio.create_task(probe.observe())
    await settle()
    probe.revoke("L1")
    await settle()
    assert not run.done()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def no_port(_device: str, _number: int) -> None:
    return None


def test_a_lease_that_is_granted_again_asks_for_a_sweep_and_for_no_counters() -> None:
    ran: list[str] = []
    probes: list[LeasedProbe] = [
        IbnetdiscoverProbe(port_of=no_port, command=("true",), trigger=lambda: ran.append("sweep")),
        IbqueryerrorsProbe(command=("true",), trigger=lambda: ran.append("counters")),
    ]
    for interval_s in (60.0, 30.0):
        for probe in probes:
            probe.take_lease(SweepLease(lease_id="L1", device="mlx5_0", port=1, interval_s=interval_s))
    assert ran == ["sweep", "counters", "sweep"]
