"""Publishers: the newest topology gets out, trouble is shown and tried again, and files are never torn."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import yaml
from hyperscout_publish.file.publisher import FilePublisher
from hyperscout_publish.publisher.base import Publisher, PublishError
from hyperscout_publish.publisher.runner import PublisherRunner
from hyperscout_topology.topology import Topology
from support.topologies import two_leaves
from support.waiting import TIMEOUT_S, until


def generation(number: int) -> Topology:
    return replace(two_leaves(), generation=number)


class Flaky(Publisher):
    """Fails as often as it is told, and remembers what it got out."""

    name = "flaky"

    def __init__(self, failures: int = 0, *, retry: bool = True, error: Exception | None = None) -> None:
        super().__init__()
        self.failures = failures
        self.error = error or PublishError("the disk is on fire", retry=retry)
        self.out: list[int] = []
        self.tried = asyncio.Event()

    async def publish(self, topology: Topology) -> None:
        self.tried.set()
        if self.failures:
            self.failures -= 1
            raise self.error
        self.out.append(topology.generation)


async def running(runner: PublisherRunner, until: int) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(runner.run(state)) for state in runner.states]
            while any(state.generation < until for state in runner.states):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()


async def test_the_newest_gets_out() -> None:
    flaky = Flaky()
    runner = PublisherRunner([flaky], rng=Random(0))
    runner.offer(generation(1))
    runner.offer(generation(2))
    await running(runner, 2)
    assert flaky.out == [2]
    assert runner.problems == []


async def test_trouble_is_shown_until_it_is_over_and_a_newer_generation_is_tried_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hyperscout_publish.publisher.runner._RETRY_BASE_S", 1e6)
    monkeypatch.setattr("hyperscout_publish.publisher.runner._RETRY_CAP_S", 1e6)
    flaky, healthy = Flaky(1), Flaky()
    runner = PublisherRunner([flaky, healthy], rng=Random(0))
    runner.offer(generation(1))
    task = asyncio.create_task(runner.run(runner.states[0]))
    await flaky.tried.wait()
    await asyncio.sleep(0)
    assert runner.problems == ["publisher flaky: the disk is on fire"]
    assert runner.states[0].errors == 1
    runner.offer(generation(2))
    await until(lambda: runner.states[0].generation == 2)
    assert runner.problems == []
    assert (runner.states[0].errors, runner.states[0].retries) == (1, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_any_exception_of_a_publisher_is_its_problem_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hyperscout_publish.publisher.runner._RETRY_BASE_S", 0.0)
    flaky, healthy = Flaky(3, error=IndexError("planted")), Flaky()
    runner = PublisherRunner([flaky, healthy], rng=Random(0))
    seen: list[str] = []
    failed = runner._failed
    monkeypatch.setattr(runner, "_failed", lambda *args: (failed(*args), seen.extend(runner.problems)))
    runner.offer(generation(1))
    await running(runner, 1)
    assert seen == ["publisher flaky: an internal error: IndexError: planted"] * 3
    assert (flaky.out, healthy.out, runner.problems) == ([1], [1], [])
    assert (runner.states[0].errors, runner.states[0].retries) == (3, 3)
    assert [record.getMessage() for record in caplog.records] == [
        "publisher flaky: an internal error: IndexError: planted"
    ], "once, with its traceback"


async def test_another_problem_of_a_publisher_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    flaky = Flaky()
    runner = PublisherRunner([flaky], rng=Random(0))
    for error in (PublishError("the disk is full"), IndexError("planted"), IndexError("planted")):
        runner._failed(runner.states[0], error)
    assert [(record.getMessage(), bool(record.exc_info)) for record in caplog.records] == [
        ("publisher flaky: the disk is full", False),
        ("publisher flaky: an internal error: IndexError: planted", True),
    ]


async def test_what_cannot_be_helped_waits_for_the_next_generation() -> None:
    flaky = Flaky(1, retry=False)
    runner = PublisherRunner([flaky], rng=Random(0))
    task = asyncio.create_task(runner.run(runner.states[0]))
    runner.offer(generation(1))
    await flaky.tried.wait()
    runner.offer(generation(2))
    await until(lambda: flaky.out)
    assert flaky.out == [2]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_publisher_that_wakes_gets_the_newest_again() -> None:
    flaky = Flaky()
    runner = PublisherRunner([flaky], rng=Random(0))
    runner.offer(generation(1))
    await running(runner, 1)
    flaky.wake()
    task = asyncio.create_task(runner.run(runner.states[0]))
    await until(lambda: len(flaky.out) >= 2)
    assert flaky.out == [1, 1]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_file_is_yaml_that_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "hypernodes.yaml"
    publisher = FilePublisher(str(path))
    await publisher.publish(generation(1))
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(path.read_text())]
    assert sorted(names) == ["core", "leaf-a", "leaf-b"]
    with path.open("rb", buffering=0) as reader:  # a reader that is half through
        begun = reader.read(10)
        await publisher.publish(replace(two_leaves(), hypernodes=two_leaves().hypernodes[:1]))
        rest = reader.read()
    assert len(list(yaml.safe_load_all(begun + rest))) == 3
    assert len(list(yaml.safe_load_all(path.read_text()))) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["hypernodes.yaml"]


async def test_the_same_text_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "hypernodes.yaml"
    publisher = FilePublisher(str(path))
    await publisher.publish(generation(1))
    before = path.stat().st_ino
    await publisher.publish(generation(1))
    assert path.stat().st_ino == before


async def test_a_folder_that_is_not_there_is_said_and_can_be_helped(tmp_path: Path) -> None:
    publisher = FilePublisher(str(tmp_path / "none" / "hypernodes.yaml"))
    with pytest.raises(PublishError, match="No such file") as caught:
        await publisher.publish(generation(1))
    assert caught.value.retry
    (tmp_path / "none").mkdir()
    await publisher.publish(generation(1))


async def test_standard_output_is_one_stream_of_documents(capsys: pytest.CaptureFixture[str]) -> None:
    publisher = FilePublisher("-")
    await publisher.publish(two_leaves())
    await publisher.publish(replace(two_leaves(), hypernodes=two_leaves().hypernodes[:1]))
    assert len(list(yaml.safe_load_all(capsys.readouterr().out))) == 4


async def test_a_publisher_in_trouble_is_woken_when_it_may_be_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyperscout_publish.publisher.runner._RETRY_BASE_S", 1e6)
    monkeypatch.setattr("hyperscout_publish.publisher.runner._RETRY_CAP_S", 1e6)
    flaky, healthy = Flaky(1), Flaky()
    runner = PublisherRunner([flaky, healthy], rng=Random(0))
    runner.offer(generation(1))
    tasks = [asyncio.create_task(runner.run(state)) for state in runner.states]
    async with asyncio.timeout(TIMEOUT_S):
        while not (runner.problems and healthy.out):
            await asyncio.sleep(0)
        runner.wake()
        while not flaky.out:
            await asyncio.sleep(0)
    assert (flaky.out, healthy.out) == ([1], [1])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
