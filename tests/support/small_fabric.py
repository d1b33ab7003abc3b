"""A fabric of two switches and two hosts as ibnetdiscover prints it, for tests of readers."""

from hyperscout_formats.infiniband.ibnetdiscover import Sweep

LEAF, SPINE, HOST, OTHER = 0x200000, 0x200010, 0x100000, 0x100010
TEXT = b"""#
# Topology file: generated on Sat Nov 21 07:09:00 2026
#
# Initiated from node 0000000000100000 port 0000000000100001

vendid=0x2c9
devid=0xd2f0
sysimgguid=0x200011
switchguid=0x200010(200010)
Switch\t40 "S-0000000000200010"\t\t# "MF0;spine1:MQM8700/U1" enhanced port 0 lid 3 lmc 0
[1]\t"S-0000000000200000"[3]\t\t# "MF0;leaf1:MQM8700/U1" lid 4 4xHDR
[2]\t"H-0000000000100010"[2](100012) \t\t# "node-0002 mlx5_0" lid 5 4xEDR

vendid=0x2c9
devid=0xd2f0
sysimgguid=0x200001
switchguid=0x200000(200000)
Switch\t40 "S-0000000000200000"\t\t# "MF0;leaf1:MQM8700/U1" base port 0 lid 4 lmc 0
[1]\t"H-0000000000100000"[1](100001) \t\t# "node-0001 mlx5_0" lid 6 4xHDR
[2]\t"H-0000000000100010"[1](100011) \t\t# "node-0002 mlx5_0" lid 7 4xHDR
[3]\t"S-0000000000200010"[1]\t\t# "MF0;spine1:MQM8700/U1" lid 3 4xHDR

vendid=0x2c9
devid=0x1017
sysimgguid=0x100019
caguid=0x100010
Ca\t2 "H-0000000000100010"\t\t# "node-0002 mlx5_0"
[1](100011) \t"S-0000000000200000"[2]\t\t# lid 7 lmc 0 "MF0;leaf1:MQM8700/U1" lid 4 4xHDR
[2](100012) \t"S-0000000000200010"[2]\t\t# lid 5 lmc 0 "MF0;spine1:MQM8700/U1" lid 3 4xEDR

vendid=0x2c9
devid=0x1017
sysimgguid=0x100009
caguid=0x100000
Ca\t1 "H-0000000000100000"\t\t# "node-0001 mlx5_0"
[1](100001) \t"S-0000000000200000"[1]\t\t# lid 6 lmc 0 "MF0;leaf1:MQM8700/U1" lid 4 4xHDR
"""
RECORDS = [  # device, port, port GUID, peer, peer port, Gbit/s
    (SPINE, 1, 0, LEAF, 3, 200.0),
    (SPINE, 2, 0, OTHER, 2, 100.0),
    (LEAF, 1, 0, HOST, 1, 200.0),
    (LEAF, 2, 0, OTHER, 1, 200.0),
    (LEAF, 3, 0, SPINE, 1, 200.0),
    (OTHER, 1, 0x100011, LEAF, 2, 200.0),
    (OTHER, 2, 0x100012, SPINE, 2, 100.0),
    (HOST, 1, 0x100001, LEAF, 1, 200.0),
]


def records(sweep: Sweep) -> list[tuple[int, int, int, int, int, float]]:
    """Records by GUID, so that the numbering of devices does not matter."""
    columns = (
        sweep.guid[sweep.device],
        sweep.port,
        sweep.port_guid,
        sweep.guid[sweep.peer],
        sweep.peer_port,
        sweep.rate_gbps,
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


def without_lines(text: bytes, *numbers: int) -> bytes:
    return b"".join(line for i, line in enumerate(text.splitlines(True), 1) if i not in numbers)
