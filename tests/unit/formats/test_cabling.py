"""What all readers of cabling plans have in common: found by content, bounded, or FormatError."""

import pytest
from hyperscout_formats.cabling import plan
from hyperscout_formats.cabling.readers import READERS, reader_of
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st
from support.blueprint_files import HOLDS
from support.cabling_files import CABLES, PLANS, rows

EACH = pytest.mark.parametrize("kind", PLANS)
EDIT = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.binary(max_size=4))


def read(data: bytes) -> plan.Plan:
    reader = reader_of(data)
    assert reader is not None
    return reader.parse(data, "plan")


@EACH
def test_a_plan_is_found_by_its_content_and_read(kind: str) -> None:
    data = PLANS[kind]
    assert [reader.kind for reader in READERS if reader.matches(data)] == [kind]
    assert {frozenset((x[:2], x[2:])) for x in rows(read(data))} == {
        frozenset((x[:2], x[2:])) for x in CABLES
    }
    assert len(read(data).cables) == len(CABLES)
    assert dict(read(data).left_out) == {}


def test_each_reader_has_an_example() -> None:
    assert [reader.kind for reader in READERS] == list(PLANS)


@pytest.mark.parametrize("text", [HOLDS, "", "{}", "[]", '{"links": ["graph {"]}', "# graph {\nversion: 1\n"])
def test_a_blueprint_is_none_of_them(text: str) -> None:
    assert reader_of(text.encode()) is None


@EACH
def test_windows_files_are_read(kind: str) -> None:
    if not PLANS[kind].startswith(b"PK"):
        windows = b"\xef\xbb\xbf" + PLANS[kind].replace(b"\n", b"\r\n")
        assert rows(read(windows)) == rows(read(PLANS[kind]))


@EACH
def test_it_is_bounded(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MAX_CABLES", 4)
    with pytest.raises(FormatError, match="more than 4 cables"):
        read(PLANS[kind])
    monkeypatch.setattr(plan, "MAX_BYTES", 10)
    with pytest.raises(FormatError, match="a file has at most 10"):
        read(PLANS[kind])


@EACH
@given(edits=st.lists(EDIT, min_size=1, max_size=6))
def test_a_damaged_plan_is_read_or_refused(kind: str, edits: list[tuple[float, int, bytes]]) -> None:
    data = PLANS[kind]
    for share, removed, new in edits:
        at = int(share * len(data))
        data = data[:at] + new + data[at + removed :]
    _read_or_refused(kind, data)


@EACH
@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(kind: str, data: bytes) -> None:
    _read_or_refused(kind, data)


def _read_or_refused(kind: str, data: bytes) -> None:
    for reader in READERS:
        reader.matches(data)
    (own,) = [reader for reader in READERS if reader.kind == kind]
    try:
        found = own.parse(data, "x")
    except FormatError as error:
        assert error.source == "x"  # noqa: PT017 - either outcome is right
    else:
        names = [name for row in rows(found) for name in row]
        assert names
        assert all(name.isprintable() and len(name) <= 253 for name in names)
        assert all(row[0] and row[2] for row in rows(found))
