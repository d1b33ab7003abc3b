"""Name switches. Switches that share a name are distinguished by their chassis ids."""

from collections.abc import Collection, Mapping, Sequence

from hyperscout_formats.text.counts import first_few
from hyperscout_topology.topology import Anomaly, Endpoint

_SHORT = 6  # characters of a chassis id that are added, at least
_NAMED = 3  # switches that a message names at most


def distinct_names(
    names: Mapping[str, str], silent: Collection[str], sources: Collection[str]
) -> tuple[dict[str, str], list[Anomaly]]:
    """Return switch names by chassis id, each name once, and one finding per name that several switches
    share.

    If only one of those switches is not in `silent`, it is taken as the replacement of the others: it keeps
    the name, and there is no finding.
    """
    by_name: dict[str, list[str]] = {}
    for chassis in sorted(names):
        by_name.setdefault(names[chassis] or chassis, []).append(chassis)
    found: dict[str, str] = {}
    anomalies = []
    for name, mine in sorted(by_name.items()):
        if len(mine) == 1:
            found[mine[0]] = name
            continue
        short = _short_ids(mine)
        found |= {chassis: f"{name}-{short[chassis]}" for chassis in mine}
        if len(live := [chassis for chassis in mine if chassis not in silent]) == 1:
            found[live[0]] = name
            continue
        shown = first_few([f"{found[chassis]} ({chassis})" for chassis in mine], _NAMED)
        text = f"{len(mine)} switches announce the name {name}: here they are {shown}"
        subject = Endpoint(mine[0], found[mine[0]])
        anomalies.append(Anomaly("SourcesDisagree", subject, None, None, tuple(sorted(sources)), 0.9, text))
    return found, anomalies


def _short_ids(chassis_ids: Sequence[str]) -> dict[str, str]:
    """Return the shortest endings of these ids that differ."""
    plain = {c: "".join(ch for ch in c.rpartition("@")[2].lower() if ch.isalnum()) or c for c in chassis_ids}
    if len(set(plain.values())) < len(plain):
        return {c: c for c in chassis_ids}
    size = _SHORT
    while len({text[-size:] for text in plain.values()}) < len(plain):
        size += 1
    return {c: text[-size:] for c, text in plain.items()}
