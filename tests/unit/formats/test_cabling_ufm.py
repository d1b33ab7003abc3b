"""UFM's cable validation: topology files, point-to-point files as spreadsheets and CSV, and their errors."""

import io
import zipfile

import pytest
from hyperscout_formats.cabling import ufm_p2p, ufm_topo, xlsx
from hyperscout_formats.text.errors import FormatError
from hypothesis import given
from hypothesis import strategies as st
from support.cabling_files import P2P_COLUMNS, P2P_SAMPLE, rows, sheet_xml
from support.cabling_files import xlsx as written

# UFM Cable Validation Tool 1.5.0, Topo File.
TOPO = b"""\
MQM8700 sw-ufm-hdr01
    P2 -4x-50G-> HCA_mlx5_3 swx-ufm3-04 mlx5_0/P1
    P3 -4x-50G-> HCA_mlx5_3 swx-ufm3-04 mlx5_1/P2
    P40 -4x-50G-> MQM9700 sw-ufm-ndr05 P62

MQM9700 sw-ufm-ndr05
    P61 -4x-50G-> MQM8700 sw-ufm-hdr01 P39
    P62 -4x-50G-> MQM8700 sw-ufm-hdr01 P40
"""
# ibdm-topo-file(1).
OLD = b"MTS2400 S-1\n P1 -> MT23108 H-1 P1\n P24 -> MTS9600 S-2 L1/P3\n"
HOSTS = "A-Node Name,A-Type,A-Port,Z-Node Name,Z-Type,Z-Port\n"


def test_the_documented_topologies_are_read() -> None:
    assert ufm_topo.matches(TOPO)
    assert rows(ufm_topo.parse(TOPO)) == [
        ("sw-ufm-hdr01", "2", "swx-ufm3-04", "mlx5_0"),
        ("sw-ufm-hdr01", "3", "swx-ufm3-04", "mlx5_1/2"),
        ("sw-ufm-hdr01", "40", "sw-ufm-ndr05", "62"),
        ("sw-ufm-ndr05", "61", "sw-ufm-hdr01", "39"),
    ]
    assert ufm_topo.matches(OLD)
    assert rows(ufm_topo.parse(OLD)) == [("S-1", "1", "H-1", "1"), ("S-1", "24", "S-2", "L1/P3")]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("X s\n", 0, "no cable between two network ports"),
        (" P1 -> X s P2\n", 1, "found a link, expected a system before it"),
        ("X s\n\n P1 -> X s\n", 3, "4 words: expected PORT -> TYPE NAME PORT"),
        ("X s\n P1 -4x-> X s P2 P3\n", 2, "6 words: expected"),
        ("X s\nX s t\n", 2, "found 'X s t', expected TYPE NAME or PORT -> TYPE NAME PORT"),
        ("X s\n P1 --- X\n", 2, "found 'P1 --- X', expected"),
        ("X s\n P1 -> X s\x07 P2\n", 2, "name: found 's\\x07'"),
        (f"X s\n P1 -> X s {'p' * 254}\n", 2, "port: found 'ppp"),
    ],
)
def test_an_error_of_a_topology_has_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        ufm_topo.parse(text.encode(), "x.topo")
    assert reason in caught.value.reason
    assert (caught.value.source, caught.value.line) == ("x.topo", line)


def test_a_sheet_saved_as_csv_is_read() -> None:
    text = f"{HOSTS}gpu-1,Host,2,leaf-1,Switch,1/2\nleaf-1,Switch,9,spine-1,Switch,1\n,,,,,\n"
    for data in (text.encode(), text.replace(",", ";").encode(), text.replace(",", "\t").encode()):
        assert ufm_p2p.matches(data)
        assert rows(ufm_p2p.parse(data)) == [
            ("gpu-1", "mlx5_1", "leaf-1", "1/2"),
            ("leaf-1", "9", "spine-1", "1"),
        ]


def test_columns_of_the_sample_belong_to_the_next_port() -> None:
    """The sample has the heading Name twice on the side of the switch; the second one is the name."""
    text = "Rack,U,Name,HCA/Port,Rack,Name,Name,Port\n316,22,host-1,1,R113,22,leaf-1,sw1p1\nsum,1,,,,,,\n"
    assert rows(ufm_p2p.parse(text.encode())) == [("host-1", "mlx5_0", "leaf-1", "sw1p1")]


def test_a_column_of_numbers_is_no_comment() -> None:
    text = "# Rails\n#,A-Node Name,A-Port,Z-Node Name,Z-Port\n1,h,eth0,l,swp1\n"
    assert ufm_p2p.matches(text.encode())
    assert rows(ufm_p2p.parse(text.encode())) == [("h", "eth0", "l", "swp1")]


def test_a_type_is_not_needed() -> None:
    text = "A-Node Name,A-Port,Z-Node Name,Z-Port\nh,eth0,l,swp1\n"
    assert rows(ufm_p2p.parse(text.encode())) == [("h", "eth0", "l", "swp1")]


def test_texts_that_cells_share_are_found() -> None:
    cell = '<c t="s"><v>{}</v></c>'.format
    strings = "<sst><si><t>A-Node Name</t></si><si><t>A-</t><rPh><t>x</t></rPh><r><t>Port</t></r></si></sst>"
    data = written(
        "<worksheet><row>" + cell(0) + cell(1) + '<c r="D1" t="inlineStr"><is><t>Z-Node Name</t></is></c>'
        '<c t="str"><f>1</f><v>Z-Port</v></c></row><row r="7"><c><v>h</v></c><c><v>2</v></c><c/>'
        "<c><v>l</v></c><c><v>3</v></c></row></worksheet>",
        sharedStrings=strings,
    )
    found = ufm_p2p.parse(data)
    assert rows(found) == [("h", "2", "l", "3")]
    assert str(found.cables[0].place) == "sheet 'S1' row 7"
    with pytest.raises(FormatError, match="row 1: found the text number '1', expected 0 to 0"):
        ufm_p2p.parse(written(f"<w><row>{cell(0)}{cell(1)}</row></w>", sharedStrings="<sst><si/></sst>"))


ROW = ("h", "Host", "1", "l", "Switch", "2")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HOSTS.encode(), "no cable between two network ports"),
        (f"{HOSTS}h,Host,0,l,Switch,2".encode(), "A-Port: found 0, expected an adapter from 1 to 1000"),
        (f"{HOSTS}h,Host,1,,Switch,2".encode(), "Z-Node Name: found ''"),
        (f"{HOSTS}h,Host,1,l".encode(), "Z-Port: found ''"),
        (f"{HOSTS}h\x01,Host,1,l,Switch,2".encode(), "A-Node Name: found 'h\\x01'"),
        (b"\n" * 3, "the first 10 rows of no sheet have A-Node Name"),
        (b"PK\x03\x04", "not a spreadsheet (.xlsx)"),
        (written(sheet_xml(*[("x",)] * 10, P2P_COLUMNS, ROW)), "the first 10 rows of no sheet"),
        (written(sheet_xml(P2P_COLUMNS, (*ROW[:5], "2\x7f"))), "sheet 'S1' row 2: Z-Port: found '2\\x7f'"),
        (written(sheet_xml(P2P_SAMPLE, ("", "", "h", "", "", "", "l", "1"))), "row 2: HCA/Port: found ''"),
        (written("<w><row>"), "xl/worksheets/sheet1.xml: not XML"),
        (written('<!DOCTYPE w [<!ENTITY a "b">]><w/>'), "found UTF-16 or a document type"),
        (written("<w/>", **{"worksheets/sheet1": "<w>"}), "xl/worksheets/sheet1.xml: not XML"),
        (written('<w><row><c t="s"><v>0</v></c></row></w>'), "it has no part 'xl/sharedStrings.xml'"),
        (written('<?xml version="1.0" encoding="x"?><w/>'), "xl/worksheets/sheet1.xml: not XML"),
        (written('<?xml version="1.0" encoding="utf-7"?><w/>'), "xl/worksheets/sheet1.xml: not XML"),
        (b"PK\x03\x04PK\x05\x06" + b"\xff" * 18, "not a spreadsheet (.xlsx)"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_error_of_a_p2p_file_has_its_place(data: bytes, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        ufm_p2p.parse(data, "p2p")
    assert reason in caught.value.reason
    assert caught.value.source == "p2p"


def test_a_file_is_unpacked_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(sheet_xml(*[("x",)] * 10_000))
    monkeypatch.setattr(xlsx, "MAX_UNPACKED", 100_000)
    with pytest.raises(FormatError, match="more than 100000 bytes when unpacked"):
        ufm_p2p.parse(data)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compression_that_is_unpacked_whole_is_refused(compression: int) -> None:
    data = io.BytesIO(written(sheet_xml(P2P_COLUMNS, ROW)))
    found = io.BytesIO()
    with zipfile.ZipFile(data) as source, zipfile.ZipFile(found, "w", compression) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
    with pytest.raises(FormatError, match=r"xl/_rels/workbook\.xml\.rels: expected deflate"):
        ufm_p2p.parse(found.getvalue())


@pytest.mark.parametrize(
    ("sheet", "reason"),
    [
        ("<w>" + "<a>" * 30 + "</a>" * 30 + "</w>", r"^p2p: xl/worksheets/sheet1\.xml: more than 20 levels"),
        ("<w><row>" + "<c/>" * 60 + "</row></w>", "or 50 elements in one"),
        ("<w>" + "<a/>" * 600 + "</w>", "more than 500 tags"),
        ('<w a="' + "x" * 100_000 + '"/>', "or one of more than 100000 bytes"),
    ],
)
def test_elements_are_bounded(sheet: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "_MAX_INSIDE", 50)
    monkeypatch.setattr(xlsx, "_MAX_TAGS", 500)
    with pytest.raises(FormatError, match=reason):
        ufm_p2p.parse(written(sheet))


def test_sheets_are_bounded_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "_MAX_SHEETS", 1)
    one = sheet_xml(P2P_COLUMNS, ROW)
    assert len(ufm_p2p.parse(written(one)).cables) == 1
    with pytest.raises(FormatError, match="more than 1 sheets"):
        ufm_p2p.parse(written(one, one))


def test_cells_far_to_the_right_and_long_texts_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "_MAX_TEXT", 20)
    far = '<c r="IW2"><v>x</v></c>'
    data = sheet_xml((*P2P_COLUMNS, "x" * 21), ROW).replace("</row>", f"{far}</row>", 2)
    sheets = [list(sheet) for sheet in xlsx.sheets(written(data), "p2p")]
    assert [row for _, row in sheets[0]] == [[*P2P_COLUMNS, "x" * 20], list(ROW)]


def test_an_encrypted_part_is_refused() -> None:
    data = bytearray(written(sheet_xml(P2P_COLUMNS, ROW)))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        directory = archive.start_dir
    at = data.index(b"PK\x01\x02", directory)
    data[at + 8] |= 1  # APPNOTE 4.4.4: bit 0 of the general purpose flags
    data[data.index(b"PK\x03\x04") + 6] |= 1
    with pytest.raises(FormatError, match="damaged or encrypted"):
        ufm_p2p.parse(bytes(data))


XML = sheet_xml(P2P_COLUMNS, ROW)
EDIT = st.tuples(st.integers(0, len(XML) - 1), st.text(st.characters(codec="utf-8"), max_size=4))


@given(st.lists(EDIT, min_size=1, max_size=5))
def test_a_damaged_sheet_is_read_or_refused(edits: list[tuple[int, str]]) -> None:
    text = XML
    for at, new in edits:
        text = text[:at] + new + text[at + 1 :]
    try:
        found = ufm_p2p.parse(written(text), "x")
    except FormatError as error:
        assert error.source == "x"  # noqa: PT017 - either outcome is right
    else:
        assert found.cables
