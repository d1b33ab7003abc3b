"""What `status --wait` and `--for` wait for: a table of states, and the loop with a clock of its own."""

import click
import grpc
import pytest
from hyperscout_cli.remote.waiting import Progress, _wanted_state, wait, wanted_states
from hyperscout_cli.shared.errors import CliError
from support.topologies import two_leaves

PARAMETER = click.Option(["--for"])
CONTEXT = click.Context(click.Command("status"))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("ready", ["something", "else"]),
        ("generation=7", []),
        ("generation=8", ["generation 7 is published"]),
        ("node/n01", []),
        ("node/n[01-04]", []),
        ("node/n[01-04,09,11],x", ["no evidence of n[09,11],x"]),
        ("hypernode/leaf-a", []),
        ("hypernode/leaf-[a]", None),
        ("hypernode/leaf-a,leaf-c", ["not published: leaf-c"]),
        ("hypernode/leaf-a=Ready", []),
        ("hypernode/leaf-a=ready", []),
        ("hypernode/leaf-a=Degraded", []),
        ("hypernode/leaf-a=Degraded=true", ["leaf-a: Degraded is False (LinksUp): 4 of 4 links up"]),
        ("hypernode/leaf-b=Ready=False", []),
        ("hypernode/leaf-b=Ready", ["leaf-b: Ready is False (NodeDown): 1 of 2 nodes ready: n03 is cut off"]),
        ("hypernode/leaf-a,leaf-b,core=Consistent", ["leaf-a has no condition", "core has no condition"]),
        ("hypernode/x=Ready", ["not published: x"]),
        ("hypernode/leaf-a=Happy", None),
        ("hypernode/leaf-a=Ready=maybe", None),
        ("node/n01=Ready", None),
        ("node/", None),
        ("generation=latest", None),
        ("well", None),
        ("node/n[1-9999999]", None),
    ],
)
def test_a_wanted_state(text: str, missing: list[str] | None) -> None:
    if missing is None:
        with pytest.raises(click.BadParameter):
            wanted_states(CONTEXT, PARAMETER, [text])
        return
    (state,) = wanted_states(CONTEXT, PARAMETER, [text])
    found = state.lacking(two_leaves(), ["something", "else"])
    assert len(found) == len(missing)
    assert all(line.startswith(part) for line, part in zip(found, missing, strict=True))


def test_many_names_are_not_all_told() -> None:
    (line,) = _wanted_state("node/x[01-30]").lacking(two_leaves(), [])
    assert line == "no evidence of x[01-10] and 20 more"


class Unreachable(grpc.RpcError, grpc.Call):
    """As gRPC raises it."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


def broken(code: grpc.StatusCode) -> CliError:
    error = CliError(str(code))
    error.__cause__ = Unreachable(code)
    return error


class Looks:
    """What is seen at each look; the clock goes on by a second at each pause."""

    def __init__(self, *seen: object) -> None:
        self._seen = iter(seen)
        self.now_s = 0.0
        self.said: list[str] = []

    def look(self) -> list[str]:
        found = next(self._seen)
        if isinstance(found, CliError):
            raise found
        assert isinstance(found, list)
        return found

    def pause(self) -> None:
        self.now_s += 1

    def wait(self, limit_s: float) -> tuple[list[str], list[str]]:
        return wait(
            self.look,
            lambda seen: seen,
            limit_s=limit_s,
            clock=lambda: self.now_s,
            pause=self.pause,
            say=self.said.append,
        )


def test_waiting_ends_as_soon_as_nothing_is_lacking() -> None:
    looks = Looks(["down", "away"], ["down"], [], ["down again"])
    assert looks.wait(60) == ([], [])
    assert looks.now_s == 2
    assert looks.said == ["down (and 1 more)", "down"]


def test_waiting_ends_when_the_time_is_over_after_a_last_look() -> None:
    looks = Looks(["a"], ["b"], ["c"], [])
    assert looks.wait(2) == (["c"], ["c"])
    assert Looks(["a"]).wait(0) == (["a"], ["a"])


def test_a_collector_that_starts_is_waited_for() -> None:
    down = broken(grpc.StatusCode.UNAVAILABLE)
    looks = Looks(down, broken(grpc.StatusCode.DEADLINE_EXCEEDED), ["a"], [])
    assert looks.wait(10) == ([], [])
    assert looks.said[0] == "StatusCode.UNAVAILABLE"
    with pytest.raises(CliError, match="UNAVAILABLE"):
        Looks(*[down] * 4).wait(2)
    assert Looks(["a"], down, down, ["b"]).wait(2) == (["a"], ["a"])
    with pytest.raises(CliError, match="UNAUTHENTICATED"):
        Looks(["a"], broken(grpc.StatusCode.UNAUTHENTICATED), []).wait(10)


def test_progress_is_one_line_that_goes_away(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(30, shown=True)
    progress.say("a very long\nstory of what is lacking")
    progress.done()
    assert capsys.readouterr().err == "\rwaiting 0 s: a very long\\nst…\x1b[K\r\x1b[K"
    Progress(30).say("not for a pipe")
    assert capsys.readouterr().err == ""
