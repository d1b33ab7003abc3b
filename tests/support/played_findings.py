"""What the agents of a player hold, to be compared with what a collector has stored."""

from hyperscout_sim.agents.player import Player

Held = dict[tuple[str, str, str], bytes]


def held_by(player: Player, *, acked_only: bool = False) -> Held:
    """What the agents hold, by key; `acked_only`: of those that have nothing that is not acknowledged."""
    found: Held = {}
    for agent in player.agents.values():
        if acked_only and (agent.store.dirty or not agent.uplink.stats.batches_acked):
            continue
        for probe in ("lldp", "infiniband", "nvlink"):
            for subject in agent.store.subjects(probe):
                finding = agent.store.get(probe, subject)
                assert finding is not None
                found[agent.host, probe, subject] = finding.SerializeToString()
    return found
