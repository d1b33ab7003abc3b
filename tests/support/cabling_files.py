"""Cabling plans of other systems for the five cables of `support.topologies.two_leaves`."""

import io
import json
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape

from hyperscout_formats.cabling.plan import Plan

CABLES = [
    ("n01", "mlx5_0", "leaf-a", "1"),
    ("n02", "mlx5_0", "leaf-a", "2"),
    ("n04", "mlx5_0", "leaf-b", "2"),
    ("leaf-a", "9", "spine", "1"),
    ("leaf-b", "9", "spine", "2"),
]


def rows(plan: Plan) -> list[tuple[str, ...]]:
    """The cables of a plan: device and port of both ends."""
    return [(*cable.a, *cable.b) for cable in plan.cables]


def _dot(cables: Iterable[tuple[str, ...]]) -> bytes:
    edges = "".join(f'    "{a}":"{p}" -- "{b}":"{q}";\n' for a, p, b, q in cables)
    return f"// Hall 1\ngraph G {{\n{edges}}}\n".encode()


def netbox_end(device: str, port: str, kind: str = "dcim.interface") -> dict[str, Any]:
    """An end of a cable, as NetBox 4.6 writes it."""
    found = {"id": 5, "display": port, "device": {"id": 3, "display": device, "name": device}, "name": port}
    return {"object_type": kind, "object_id": 5, "object": found}


def netbox_cable(ident: int, *ends: Any, status: str = "connected") -> dict[str, Any]:
    """A cable as NetBox 4.6 writes it. `ends`: one of side A, then those of side B."""
    return {
        "id": ident,
        "display": f"#{ident}",
        "type": "aoc",
        "a_terminations": list(ends[:1]),
        "b_terminations": list(ends[1:]),
        "status": {"value": status, "label": status.title()},
        "profile": None,
    }


def netbox_json(*cables: Any) -> bytes:
    """The answer to `GET /api/dcim/cables/`."""
    page = {"count": len(cables), "next": None, "previous": None, "results": list(cables)}
    return json.dumps(page).encode()


NETBOX_HEADER = "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name"


def _netbox_csv(cables: Iterable[tuple[str, ...]]) -> bytes:
    lines = (f"{a},dcim.interface,{p},{b},dcim.interface,{q}\n" for a, p, b, q in cables)
    return f"{NETBOX_HEADER}\n{''.join(lines)}".encode()


_TOPO = b"""\
# Hall 1
MQM8700 leaf-a
    P1 -4x-50G-> HCA_mlx5_0 n01 mlx5_0/P1
    P2 -> HCA_mlx5_0 n02 mlx5_0/P1
    P9 -4x-50G-> MQM9700 spine P1

MQM8700 leaf-b
    P2 -4x-50G-> HCA_mlx5_0 n04 mlx5_0/P1
    P9 -4x-50G-> MQM9700 spine P2

MQM9700 spine CFG: leaf3=R
    P1 -4x-50G-> MQM8700 leaf-a P9
    P2 -4x-50G-> MQM8700 leaf-b P9
"""
P2P_SAMPLE = ("Rack", "U", "Name", "HCA/Port", "Rack", "U", "Name", "Port")
P2P_COLUMNS = ("A-Node Name", "A-Type", "A-Port", "Z-Node Name", "Z-Type", "Z-Port")
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def sheet_xml(*table: Sequence[str]) -> str:
    """A sheet with texts in its cells."""
    cells = [
        "".join(
            f'<c r="{chr(65 + i)}{n}" t="inlineStr"><is><t>{escape(x)}</t></is></c>'
            for i, x in enumerate(row)
            if x
        )
        for n, row in enumerate(table, 1)
    ]
    lines = "".join(f'<row r="{n}">{row}</row>' for n, row in enumerate(cells, 1))
    return f'<?xml version="1.0"?><worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>'


def xlsx(*sheets: str, **parts: str) -> bytes:
    """A spreadsheet with these sheets, and more parts in the folder xl."""
    numbers = range(1, len(sheets) + 1)
    listed = "".join(f'<sheet name="S{n}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers)
    related = "".join(
        f'<Relationship Id="rId{n}" Type="{_OFFICE}/worksheet" Target="worksheets/sheet{n}.xml"/>'
        for n in numbers
    )
    files = {
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}">{listed}</workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}">{related}</Relationships>',
        **{f"xl/worksheets/sheet{n}.xml": text for n, text in zip(numbers, sheets, strict=True)},
        **{f"xl/{name}.xml": text for name, text in parts.items()},
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def _p2p(cables: Sequence[tuple[str, ...]]) -> bytes:
    hosts = [("316", "22", a, str(int(p[-1]) + 1), "R1", "2", b, q) for a, p, b, q in cables[:3]]
    switches = [(a, "Switch", p, b, "Switch", q) for a, p, b, q in cables[3:]]
    return xlsx(
        sheet_xml(("", "", "Source", "", "", "", "Destination"), P2P_SAMPLE, *hosts),
        sheet_xml(("Racks of hall 1",), ("316", "R1")),
        sheet_xml(P2P_COLUMNS, *switches),
    )


PLANS = {
    "Graphviz DOT": _dot(CABLES),
    "NetBox JSON": netbox_json(
        *(netbox_cable(i, netbox_end(a, p), netbox_end(b, q)) for i, (a, p, b, q) in enumerate(CABLES, 1))
    ),
    "NetBox CSV": _netbox_csv(CABLES),
    "topology file of UFM": _TOPO,
    "P2P file of UFM": _p2p(CABLES),
}
