"""What the listener keeps and says, and the messages in which it says it."""

import pytest
from hyperscout_agent.lldp.listener import GROUP, Hearing, main
from hyperscout_agent.lldp.messages import (
    MAX_FRAME_BYTES,
    MAX_MESSAGE_BYTES,
    Heard,
    MessageError,
    decode,
    encode,
)
from hypothesis import given
from hypothesis import strategies as st

A, B = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")


def frame(sender: bytes = A, body: bytes = b"hello", to: bytes = GROUP) -> bytes:
    return to + sender + b"\x88\xcc" + body


def test_a_frame_is_passed_on_once_and_then_only_mentioned() -> None:
    hearing = Hearing("eth0")
    assert hearing.hear(frame(), 1) == Heard("eth0", A, 1, frame())
    assert hearing.hear(frame(), 2) == Heard("eth0", A, 2, None)
    assert hearing.hear(frame(B), 3) == Heard("eth0", B, 3, frame(B)), "a second sender on the cable"
    assert hearing.hear(frame(), 4) == Heard("eth0", A, 4, None)
    assert hearing.hear(frame(body=b"bye"), 5) == Heard("eth0", A, 5, frame(body=b"bye"))
    assert hearing.so_far() == [Heard("eth0", B, 3, frame(B)), Heard("eth0", A, 5, frame(body=b"bye"))]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(b"", id="empty"),
        pytest.param(frame()[:14], id="nothing in it"),
        pytest.param(frame(to=b"\xff" * 6), id="broadcast"),
        pytest.param(frame(to=bytes.fromhex("0180c2000003")), id="a group that bridges forward"),
        pytest.param(frame(body=bytes(MAX_FRAME_BYTES)), id="oversized"),
    ],
)
def test_what_is_none_of_ours(other: bytes) -> None:
    hearing = Hearing("eth0")
    assert hearing.hear(other, 1) is None
    assert hearing.so_far() == []


def test_senders_are_bounded_and_the_longest_silent_goes() -> None:
    hearing = Hearing("eth0")
    for number in range(1000):
        hearing.hear(frame(A), number)
        hearing.hear(frame(number.to_bytes(6, "big")), number)
    senders = [heard.sender for heard in hearing.so_far()]
    assert len(senders) == 16
    assert A in senders


def test_a_storm_is_cut_and_quiet_senders_are_not() -> None:
    quiet = Hearing("eth0")
    assert all(quiet.within_budget(second) for second in range(0, 1000, 1))
    storm = Hearing("eth0")
    heard = sum(storm.within_budget(1000 + number / 10_000) for number in range(1000))
    assert heard <= 17


@given(
    st.text(st.characters(codec="ascii", exclude_characters="/"), min_size=1, max_size=15),
    st.binary(min_size=6, max_size=6),
    st.integers(0, 2**63),
    st.one_of(st.none(), st.binary(min_size=1, max_size=300)),
)
def test_messages_come_back_as_they_went(port: str, sender: bytes, at_ns: int, body: bytes | None) -> None:
    heard = Heard(port, sender, at_ns, body)
    assert decode(encode(heard)) == heard


@given(st.binary(max_size=100))
def test_any_other_message_is_one_named_error(junk: bytes) -> None:
    for data in (junk, encode(Heard("eth0", A, 1, b"x"))[: len(junk)], b"\x01\x01" + junk):
        try:
            decode(data)
        except MessageError:
            continue


def test_the_largest_message_fits() -> None:
    assert len(encode(Heard("x" * 64, A, 1, bytes(MAX_FRAME_BYTES)))) == MAX_MESSAGE_BYTES
    with pytest.raises(MessageError):
        decode(encode(Heard("eth0", A, 1, bytes(MAX_FRAME_BYTES + 1))))
    with pytest.raises(MessageError, match="version 9"):
        decode(b"\x09" + encode(Heard("eth0", A, 1, b"x"))[1:])


@pytest.mark.parametrize("arguments", [[], ["--socket", "/x", "--ports", "("]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "lldp-listener" in capsys.readouterr().err
