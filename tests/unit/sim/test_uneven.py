"""Generated uneven fabrics are well formed, the same for a seed, and contain every trait, cause and fault."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from hyperscout_sim.uneven.case import KINDS, Uneven, healthy
from hyperscout_sim.uneven.faults import FAULTS, faulty
from hyperscout_sim.uneven.files import files_of, truth_of, write_case
from support.uneven_cases import inputs_of

HEALTHY = range(len(KINDS))
FAULTY = range(2 * len(FAULTS))


@cache
def a_healthy(seed: int) -> Uneven:
    return healthy(seed)


@cache
def a_faulty(seed: int) -> Uneven:
    return faulty(seed)


def cases() -> list[Uneven]:
    return [*map(a_healthy, HEALTHY), *map(a_faulty, FAULTY)]


def what(case: Uneven) -> str:
    return f"seed {case.seed}: {case.traits}, {[d.what for d in case.defects]}"


@pytest.mark.slow
def test_a_seed_gives_the_same_files_again() -> None:
    for seed in (0, 9, 25, 31, 39):
        assert files_of(healthy(seed)) == files_of(healthy(seed))
        assert files_of(faulty(seed)) == files_of(faulty(seed))


def test_seeds_differ() -> None:
    assert files_of(healthy(3)) != files_of(healthy(3 + len(KINDS)))


@pytest.mark.slow
def test_no_port_is_used_twice_and_none_is_beyond_the_device() -> None:
    for case in cases():
        fabric = case.fabric
        ports = {x.guid: x.port_count for x in (*fabric.switches, *fabric.adapters)}
        used = Counter(end for cable in fabric.cables for end in cable.ends)
        assert max(used.values()) == 1, what(case)
        assert all(1 <= port <= ports[guid] for guid, port in used), what(case)


def test_names_are_unique_but_those_of_the_factory() -> None:
    for case in cases():
        fabric = case.fabric
        adapters = Counter((x.host, x.device) for x in fabric.adapters)
        assert max(adapters.values()) == 1, what(case)
        if "factory names" not in case.traits:
            assert max(Counter(x.name for x in fabric.switches).values()) == 1, what(case)


def test_every_tier_of_every_truth_is_a_partition_of_the_hosts() -> None:
    for case in cases():
        stray = case.may_be_missing if "host only on a spine" in {d.what for d in case.defects} else set()
        for truth in (case.fabric.truth, *case.alternatives):
            for tier in truth.tiers:
                placed = Counter(host for domain in tier for host in domain)
                assert set(placed) == set(case.fabric.hosts) - stray, what(case)
                assert max(placed.values()) == 1, what(case)


def test_a_tier_is_made_of_whole_domains_of_the_tier_below() -> None:
    for case in cases():
        for truth in (case.fabric.truth, *case.alternatives):
            for below, above in zip(truth.tiers, truth.tiers[1:], strict=False):
                assert all(sum(lower <= upper for upper in above) == 1 for lower in below), what(case)


def test_every_kind_and_every_cause_occurs() -> None:
    traits = {trait for seed in HEALTHY for trait in a_healthy(seed).traits}
    causes = {cause for seed in HEALTHY for cause in a_healthy(seed).causes}
    assert traits == set(KINDS)
    assert causes == set(range(1, 21)) - {11, 16}  # these are faults


@pytest.mark.slow
def test_every_cause_occurs_in_15_of_500_fabrics() -> None:
    causes = Counter(cause for seed in range(500) for cause in healthy(seed).causes)
    assert all(causes[cause] >= 15 for cause in range(1, 21) if cause not in (11, 16)), causes


def test_every_fault_is_planted_and_changes_the_cables() -> None:
    planted = {d.what for seed in FAULTY for d in a_faulty(seed).defects}
    assert planted == set(FAULTS)
    for seed in FAULTY:
        case = a_faulty(seed)
        assert 1 <= len({d.what for d in case.defects}) <= 3, what(case)


def test_every_host_of_a_faulty_fabric_keeps_a_cable() -> None:
    for seed in FAULTY:
        case = a_faulty(seed)
        cabled = {cable.a for cable in case.fabric.cables}
        hosts = {x.host for x in case.fabric.adapters if x.guid in cabled and not x.foreign}
        assert hosts == set(case.fabric.hosts), what(case)


def test_a_wrong_cable_is_there_and_a_missing_one_is_not() -> None:
    for seed in FAULTY:
        case = a_faulty(seed)
        ends = {frozenset(cable.ends) for cable in case.fabric.cables}
        cables = {frozenset(cable) for pair in ends for cable in [(guid for guid, _ in pair)]}
        for defect in case.defects:
            exact = frozenset((guid, 1 if port is None else port) for guid, port in defect.ends)
            if defect.kind == "MissingLink":
                assert exact not in ends, what(case)
            elif defect.kind in ("Miswired", "SlowLink"):
                assert exact in ends, what(case)
            else:
                assert not any(defect.ends[0][0] in pair for pair in cables), what(case)


@pytest.mark.slow
def test_the_files_contain_every_host() -> None:
    for seed in HEALTHY[::5]:
        case = a_healthy(seed)
        inputs = inputs_of(files_of(case))
        text = b"".join(data for files in files_of(case).values() for data in files.values())
        assert inputs.sweeps or inputs.tables
        assert all(host.encode() in text for host in case.fabric.hosts), what(case)


def test_a_case_on_disk_describes_itself(tmp_path: Path) -> None:
    for seed in (4, 25):
        case = a_faulty(seed)
        folder = tmp_path / str(seed)
        write_case(case, folder)
        found = json.loads((folder / "case.json").read_text())
        assert {key: found[key] for key in truth_of(case)} == json.loads(json.dumps(truth_of(case)))
        assert str(seed) in found["note"] or case.seed != seed
        options = [argument for argument in found["args"] if argument.startswith("--")]
        assert set(options) == set(files_of(case))
