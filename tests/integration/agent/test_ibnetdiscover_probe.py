"""How the sweep probe judges what a tool gave it. The tool here is a shell script."""

import itertools
import zlib
from pathlib import Path

import pytest
from hyperscout.v1.discovery_pb2 import SweepLease
from hyperscout.v1.finding_pb2 import Outcome, Sweep
from hyperscout_agent.probes.ibnetdiscover import IbnetdiscoverProbe, _Reader
from hyperscout_formats.facts.facts import InfinibandPort
from hypothesis import given
from hypothesis import strategies as st

HEAD = "#\n# Topology file: generated on Sat Nov 21 07:31:13 2026\n#\n"
FROM = "# Initiated from node 0000000000000101 port 0000000000000102\n\n"


def fabric(hosts: int, *, date: str = HEAD, switches: int = 1) -> str:
    blocks = [date + FROM]
    for number in range(switches):
        blocks.append(f'switchguid=0x{number + 1:x}000\nSwitch\t40 "S-{number + 1:x}000"\t\t# "leaf"\n')
        if number == 0:
            blocks += [f'[{host + 1}]\t"H-{host:x}"[1]\t# "n"\n' for host in range(hosts)]
    blocks += [
        f'\ncaguid=0x{host:x}\nCa\t1 "H-{host:x}"\t\t# "n"\n[1](1) \t"S-1000"[1]\n' for host in range(hosts)
    ]
    return "".join(blocks)


ALONE = HEAD + FROM + 'Ca\t1 "H-0"\t\t# "node"\n'


def port(state: str) -> InfinibandPort:
    return InfinibandPort("mlx5_0", 1, 1, 0x102, 1, state, "LinkUp", 400.0, 1, 1, "node", "InfiniBand")


class Tool:
    """A script that answers as its n-th turn says, and counts its turns."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "tool"
        self.path.write_text(
            "#!/bin/sh\n"
            f"cd {folder}\n"
            'n=$(cat turns 2>/dev/null || echo 0); n=$((n + 1)); echo $n > turns; echo "$@" > args\n'
            "[ -e out.$n ] || n=last\n"
            "[ -e out.$n ] && cat out.$n\n[ -e err.$n ] && cat err.$n >&2\n"
            "[ -e code.$n ] && exit $(cat code.$n)\nexit 0\n"
        )
        self.path.chmod(0o755)

    def says(self, *turns: str, stderr: str = "", code: int = 0) -> None:
        for number, text in enumerate(turns, 1):
            turn = number if number < len(turns) else "last"
            (self.folder / f"out.{turn}").write_text(text)
            (self.folder / f"err.{turn}").write_text(stderr if turn == "last" else "")
            (self.folder / f"code.{turn}").write_text(str(code if turn == "last" else 0))

    @property
    def turns(self) -> int:
        return int((self.folder / "turns").read_text())


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


def leased(path: Path | str, state: str | None = "ACTIVE", **options: float) -> IbnetdiscoverProbe:
    async def port_of(_device: str, _port: int) -> InfinibandPort | None:
        return port(state) if state else None

    probe = IbnetdiscoverProbe(command=[str(path)], port_of=port_of, **options)  # type: ignore[arg-type]
    probe.take_lease(SweepLease(lease_id="L1", device="mlx5_0", port=1, interval_s=30.0))
    return probe


async def sweep_of(probe: IbnetdiscoverProbe) -> Sweep:
    sample = (await probe.observe()).samples["mlx5_0/1"]
    assert sample.outcome == Outcome.OUTCOME_DATA, sample.reason
    assert isinstance(sample.payload, Sweep)
    assert sample.reason == sample.payload.partial_reason
    return sample.payload


async def test_runs_from_the_leased_port(tool: Tool) -> None:
    tool.says(fabric(2))
    probe = leased(tool.path)
    sweep = await sweep_of(probe)
    assert (tool.folder / "args").read_text().split() == ["-C", "mlx5_0", "-P", "1"]
    assert (sweep.partial, sweep.port_guid, sweep.lease_id) == (False, 0x102, "L1")
    assert probe.interval_s == 30.0


async def test_a_host_may_hold_a_lease_for_each_rail(tool: Tool) -> None:
    tool.says(fabric(2))
    probe = leased(tool.path)
    probe.take_lease(SweepLease(lease_id="L2", device="mlx5_1", port=1, interval_s=20.0))
    samples = (await probe.observe()).samples
    leases = {subject: sample.payload.lease_id for subject, sample in samples.items()}  # type: ignore[union-attr]
    assert leases == {"mlx5_0/1": "L1", "mlx5_1/1": "L2"}
    assert probe.interval_s == 20.0
    probe.revoke("L2")
    assert list((await probe.observe()).samples) == ["mlx5_0/1"]
    probe.revoke("L1")
    assert (await probe.observe()).samples == {}


async def test_without_a_lease_nothing_runs(tool: Tool) -> None:
    probe = leased(tool.path)
    probe.drop()
    assert (await probe.observe()).samples == {}
    assert not (tool.folder / "turns").exists()


@pytest.mark.parametrize(
    ("text", "stderr", "code", "state", "reason"),
    [
        pytest.param(fabric(2), "", 0, "ACTIVE", "", id="whole"),
        pytest.param(fabric(2), "", 0, None, "", id="whole, and the port's state is not known"),
        pytest.param(fabric(2), "libx: a new version is out\n", 0, "ACTIVE", "", id="chatter"),
        pytest.param(
            fabric(2), "x.c; umad (DR path) bad status 110; Connection timed out\n" * 3, 0, "ACTIVE",
            "x.c; umad (DR path) bad status 110; Connection timed out (and 2 more like it)", id="mute node",
        ),
        pytest.param(fabric(2), "ibwarn: [1] no\n", 0, "ACTIVE", "ibwarn: [1] no", id="a warning"),
        pytest.param(fabric(2), "gone\n", 3, "ACTIVE", "exit 3: gone", id="an exit code with devices"),
        pytest.param(fabric(2), "", 0, "DOWN", "the port of the sweep, mlx5_0/1, is DOWN", id="port down"),
        pytest.param(
            ALONE, "", 0, None,
            "the sweep found only its own adapter: the port is down or its cable is unplugged",
            id="alone",
        ),
    ],
)  # fmt: skip
async def test_whole_or_partial(
    tool: Tool, text: str, stderr: str, code: int, state: str | None, reason: str
) -> None:
    tool.says(text, stderr=stderr, code=code)
    sweep = await sweep_of(leased(tool.path, state))
    assert (sweep.partial_reason, sweep.partial) == (reason, bool(reason))


@pytest.mark.parametrize(
    ("after", "sweeps", "hosts_seen", "partial"),
    [
        pytest.param([fabric(19)], 1, 19, False, id="a little smaller: no second look"),
        pytest.param([fabric(10), fabric(10)], 2, 10, False, id="much smaller, twice the same: the truth"),
        pytest.param([fabric(10), fabric(20)], 2, 20, False, id="a hiccup"),
        pytest.param([fabric(10), fabric(5)], 2, 5, True, id="two sweeps that disagree"),
        pytest.param([fabric(20, switches=1)], 2, 20, False, id="switches gone count too"),
    ],
)
async def test_a_shrunken_sweep_needs_a_second_look(
    tool: Tool, after: list[str], sweeps: int, hosts_seen: int, partial: bool
) -> None:
    tool.says(fabric(20, switches=2 if len(after) == 1 and sweeps == 2 else 1), *after)
    probe = leased(tool.path)
    await sweep_of(probe)
    observation = await probe.observe()
    assert tool.turns == 1 + sweeps
    payload = observation.samples["mlx5_0/1"].payload
    assert isinstance(payload, Sweep)
    assert payload.partial is partial, payload.partial_reason
    text = zlib.decompress(observation.bulks[0].compressed)
    assert text.count(b"\nCa\t") == hosts_seen


@pytest.mark.parametrize(
    ("text", "stderr", "code", "reason"),
    [
        pytest.param(
            "", "mad.c; can't open UMAD port (mlx5_0:1)\n", 255, "exit 255: mad.c; can't open", id="no device"
        ),
        pytest.param("", "", 0, "exit 0: no device in its output", id="silence"),
        pytest.param("no fabric at all\n" * 1000, "", 0, "no device in its output", id="something else"),
    ],
)
async def test_failed(tool: Tool, text: str, stderr: str, code: int, reason: str) -> None:
    tool.says(text, stderr=stderr, code=code)
    observation = await leased(tool.path).observe()
    sample = observation.samples["mlx5_0/1"]
    assert sample.outcome == Outcome.OUTCOME_FAILED
    assert reason in sample.reason
    assert isinstance(sample.payload, Sweep)
    assert sample.payload.lease_id == "L1", "the collector learns which lease fails"
    assert observation.bulks == ()
    assert not observation.complete


async def test_a_missing_tool_says_what_to_install(tmp_path: Path) -> None:
    sample = (await leased(tmp_path / "nowhere").observe()).samples["mlx5_0/1"]
    assert sample.outcome == Outcome.OUTCOME_FAILED
    assert "infiniband-diags" in sample.reason


async def test_limits_on_output_and_time(tool: Tool) -> None:
    tool.says(fabric(2000))
    sample = (await leased(tool.path, max_output_bytes=10_000).observe()).samples["mlx5_0/1"]
    assert "more than 10000 bytes of output" in sample.reason
    tool.path.write_text("#!/bin/sh\nwhile :; do echo junk; echo junk >&2; done\n")
    sample = (await leased(tool.path, timeout_s=60.0, max_output_bytes=100_000).observe()).samples["mlx5_0/1"]
    assert "more than 100000 bytes" in sample.reason
    tool.path.write_text("#!/bin/sh\ntrap '' TERM INT\nsleep 1000 & wait\n")
    sample = (await leased(tool.path, timeout_s=0.2).observe()).samples["mlx5_0/1"]
    assert "still running after 0.2 s" in sample.reason


async def test_the_date_does_not_change_the_digest(tool: Tool) -> None:
    tool.says(fabric(2), fabric(2, date=HEAD.replace("07:31:13", "09:00:00")))
    probe = leased(tool.path)
    assert (await sweep_of(probe)).sha256 == (await sweep_of(probe)).sha256


@given(st.lists(st.integers(0, len(fabric(3))), max_size=8))
def test_the_pieces_in_which_output_comes_do_not_matter(cuts: list[int]) -> None:
    text = fabric(3).encode()
    whole = _Reader()
    whole.take(text)
    pieces = _Reader()
    edges = [0, *sorted(cuts), len(text)]
    for start, end in itertools.pairwise(edges):
        pieces.take(text[start:end])
    assert pieces.finish().sha256 == whole.finish().sha256
    assert (pieces.size, pieces.port_guid) == (whole.size, 0x102)


@given(st.binary(max_size=300))
def test_any_output_can_be_counted(junk: bytes) -> None:
    reader = _Reader()
    reader.take(junk)
    assert reader.finish().size_bytes <= len(junk) + 16
