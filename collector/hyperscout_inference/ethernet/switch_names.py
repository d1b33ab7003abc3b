"""What switches are called: a name that several have is told apart by their chassis ids."""

from collections.abc import Collection, Mapping, Sequence

from hyperscout_topology.topology import Anomaly, Endpoint

_SHORT = 6  # characters of a chassis id that are added, at least
_NAMED = 3  # of many, how many a message names


def distinct_names(
    names: Mapping[str, str], silent: Collection[str], sources: Collection[str]
) -> tuple[dict[str, str], list[Anomaly]]:
    """The names of switches by chassis id, each name once; and what several of them share.

    One that was put in another's place keeps the name: nobody speaks of the former any more (`silent`).
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
        shown = [f"{found[chassis]} ({chassis})" for chassis in mine[:_NAMED]]
        more = f" and {len(mine) - _NAMED} more" if len(mine) > _NAMED else ""
        text = f"{len(mine)} switches call themselves {name}: they are {', '.join(shown)}{more} here"
        subject = Endpoint(mine[0], found[mine[0]])
        anomalies.append(Anomaly("SourcesDisagree", subject, None, None, tuple(sorted(sources)), 0.9, text))
    return found, anomalies


def _short_ids(chassis_ids: Sequence[str]) -> dict[str, str]:
    """The ends of these ids, as long as it takes to tell them apart."""
    plain = {c: "".join(ch for ch in c.rpartition("@")[2].lower() if ch.isalnum()) or c for c in chassis_ids}
    if len(set(plain.values())) < len(plain):
        return {c: c for c in chassis_ids}
    size = _SHORT
    while len({text[-size:] for text in plain.values()}) < len(plain):
        size += 1
    return {c: text[-size:] for c, text in plain.items()}
