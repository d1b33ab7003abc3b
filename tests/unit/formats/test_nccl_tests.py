"""What nccl-tests write: times and bandwidths by size, and what of it is not to be believed."""

import json
from typing import Any

import pytest
from hyperscout_formats.facts.facts import NcclResult
from hyperscout_formats.nvidia.nccl_tests import MAX_BYTES, MAX_RESULTS, nccl_version, parse
from hyperscout_formats.text.errors import FormatError


def body(time_us: Any = 10.0, alg: Any = 1.0, bus: Any = 1.75, wrong: Any = 0.0) -> dict[str, Any]:
    return {"time": time_us, "alg_bw": alg, "bus_bw": bus, "nwrong": wrong}


def row(size: Any = 8, out: Any = None, inside: Any = None) -> dict[str, Any]:
    return {
        "size": size,
        "count": 2,
        "type": "float",
        "redop": "sum",
        "root": "    -1",
        "out_of_place": body() if out is None else out,
        "in_place": body(20.0) if inside is None else inside,
        "actual_iterations": 20,
        "experiment_name": "",
    }


def document(*rows: Any, **more: Any) -> bytes:
    return json.dumps(
        {
            "version": 3,
            "start_time": "2026-11-21 10:00:00",
            "args": ["all_reduce_perf", "-J", "out.json"],
            "env": ["PASSWORD=hunter2"],
            "nccl_version": 22903,
            "config": {"nthreads": 1, "ngpus": 8, "devices": [{"rank": 0}]},
            "results": list(rows),
            "out_of_bounds": {"count": 0, "okay": "true"},
            "errors": [],
            **more,
        }
    ).encode()


# As nccl-tests 2.19 print it: on one line, no spaces, numbers as %lf, errors at the end.
GENUINE = (
    b'{"version":3,"start_time":"2026-11-21 10:00:00","args":["all_reduce_perf","-b","8"],"env":["A=\\/b"],'
    b'"nccl_version":22807,"config":{"nthreads":1,"ngpus":2,"minimum_bytes":8,"maximum_bytes":16,"step_factor":2,'
    b'"warmup_iters":1,"iterations":20,"aggregated_iterations":1,"validation":1,"graph":0,'
    b'"blocking_collectives":"false","per_iter_timing":"false","per_iter_skip":0,"parallel_init":"false",'
    b'"devices":[{"rank":0,"group":0,"pid":7,"hostname":"a","device":0,"device_hex":"0000:1b:00",'
    b'"device_info":"NVIDIA H100"}]},"results":[{"size":8,"count":2,"type":"float","redop":"sum",'
    b'"root":"    -1","out_of_place":{"time":11.534000,"alg_bw":0.000694,"bus_bw":0.000694,"nwrong":0.000000}'
    b',"in_place":{"time":11.420000,"alg_bw":0.000701,"bus_bw":0.000701,"nwrong":0.000000},'
    b'"actual_iterations":20,"experiment_name":""},{"size":16,"count":4,"type":"float","redop":"sum",'
    b'"root":"    -1","out_of_place":null,"in_place":{"time":12.000000,"alg_bw":0.001333,"bus_bw":0.001333,'
    b'"nwrong":null},"actual_iterations":20,"experiment_name":""}],"out_of_bounds":{"count":0,"okay":"true"},'
    b'"average_bus_bandwidth":{"bandwidth":0.001014,"okay":"unchecked"},"errors":[""],"end_time":"x"}'
)


def test_a_genuine_file() -> None:
    told, problems = parse(GENUINE, "all_reduce", "out.json")
    assert problems == ()
    assert (told.nccl_version, told.ranks, told.wrong) == ("2.28.7", 2, ())
    assert told.results == (
        NcclResult("all_reduce", 8, 11.534, 0.000694, 0.000694),
        NcclResult("all_reduce", 16, 12.0, 0.001333, 0.001333),  # shared buffers, where there is nothing else
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (22903, "2.29.3"),
        (20900, "2.9.0"),
        (2708, "2.7.8"),
        (True, ""),
        ("22903", ""),
        (0, ""),
        (-22903, ""),
        (10**12, ""),
        (None, ""),
    ],
)
def test_versions(code: object, text: str) -> None:
    assert nccl_version(code) == text


@pytest.mark.parametrize(
    ("config", "ranks"),
    [
        ({"nthreads": 2, "ngpus": 4}, 8),
        ({"nthreads": 1, "ngpus": 1, "devices": [{}] * 16}, 16),  # MPI: the devices of all processes
        ({"nthreads": "2", "ngpus": 4}, 0),
        ({"nthreads": -1, "ngpus": 4}, 0),
        (None, 0),
        ([], 0),
    ],
)
def test_ranks(config: object, ranks: int) -> None:
    assert parse(document(row(), config=config))[0].ranks == ranks


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (7, "not an object"),
        (row(size=None), "no size"),
        (row(size=True), "no size"),
        (row(size=0), "no size"),
        (row(size=10**30), "no size"),
        (row(out="x"), "neither"),
        ({"size": 8, "out_of_place": None, "in_place": None}, "neither"),
        (row(out={"cpu_time": 1.0, "alg_bw": 1.0, "bus_bw": 1.0}), "CPU"),
        (row(out=body(time_us="nan")), "time is not a number"),
        (row(out=body(time_us=0.0)), "time is out of range"),
        (row(out=body(time_us=-1)), "time is out of range"),
        (row(out=body(time_us=10**400)), "time is out of range"),
        (row(out=body(bus=float("nan"))), "bus_bw is out of range"),
        (row(out=body(alg=float("inf"))), "alg_bw is out of range"),
        (row(out=body(wrong="many")), "nwrong is not a number"),
    ],
)
def test_a_result_that_tells_nothing_is_passed_over(bad: object, words: str) -> None:
    told, problems = parse(document(bad, row(16)), "sendrecv", "f")
    assert [(x.operation, x.size_bytes) for x in told.results] == [("sendrecv", 16)]
    assert len(problems) == 1
    assert words in str(problems[0])
    assert "result 1" in str(problems[0])


@pytest.mark.parametrize("bad", [row(out=body(wrong=3.0)), row(inside=body(wrong=3.0))])
def test_data_that_came_out_wrong_is_no_result(bad: object) -> None:
    told, problems = parse(document(bad, row(16)))
    assert told.wrong == (8,)
    assert [x.size_bytes for x in told.results] == [16]
    assert "3 elements are wrong" in str(problems[0])


def test_a_size_that_comes_twice_counts_once_and_sizes_are_in_order() -> None:
    told, problems = parse(document(row(64), row(8, out=body(1.0)), row(8, out=body(2.0))))
    assert [(x.size_bytes, x.time_us) for x in told.results] == [(8, 1.0), (64, 10.0)]
    assert "precedes it" in str(problems[0])


def test_results_are_bounded() -> None:
    told, problems = parse(document(*(row(8 + i) for i in range(MAX_RESULTS + 5))))
    assert len(told.results) == MAX_RESULTS
    assert "only" in str(problems[0])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"# nccl-tests version 2.19\n", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not an object"),
        (b"{}", "no list of results"),
        (b'{"results": {}}', "no list of results"),
        (b'{"results": [' + b"9" * 5000 + b"]}", "not JSON"),
        (b" " * (MAX_BYTES + 1), "at most"),
        (GENUINE[:-200], "not JSON"),  # killed while it wrote
    ],
)
def test_no_file_of_nccl_tests(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        parse(data, source="out.json")
    assert str(caught.value).startswith("out.json")


def test_nothing_of_the_environment_is_kept() -> None:
    told, problems = parse(document(row(), 5))
    assert "hunter2" not in f"{told} {problems}"
