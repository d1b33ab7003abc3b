"""Writes the `ibnetdiscover` text of a three-tier fat tree, for benchmarks of readers.

With k = 64: 65,536 one-port hosts, 5,120 switches of 64 ports, 817,157 lines, 44 MB.
"""

from collections.abc import Iterator
from itertools import chain

SWITCH_BASE = 0xB8599F0300000000
HOST_BASE = 0x0C42A10300000000


def _switch_guid(number: int) -> int:
    return SWITCH_BASE + (number << 8)


def _host_guid(number: int) -> int:
    return HOST_BASE + (number << 4)


def _to_switch(port: int, number: int, name: str, peer_port: int) -> str:
    return f'[{port}]\t"S-{_switch_guid(number):016x}"[{peer_port}]\t\t# "{name}" lid {number + 1} 4xHDR\n'


def fat_tree_lines(k: int) -> Iterator[str]:
    """Lines of a fat tree of k-port switches: k pods of k/2 leaves and k/2 spines, k*k/4 cores."""
    half = k // 2
    leaves, spines = k * half, k * half
    names = [f"MF0;leaf-{n // half:02d}-{n % half:02d}:MQM8700/U1" for n in range(leaves)]
    names += [f"MF0;spine-{n // half:02d}-{n % half:02d}:MQM8700/U1" for n in range(spines)]
    names += [f"MF0;core-{n:04d}:MQM8700/U1" for n in range(half * half)]
    yield "#\n# Topology file: generated on Wed May 13 14:36:33 2020\n#\n"
    yield f"# Initiated from node {_host_guid(0):016x} port {_host_guid(0):016x}\n"
    for number, name in enumerate(names):
        guid = _switch_guid(number)
        yield f"\nvendid=0x2c9\ndevid=0xd2f0\nsysimgguid=0x{guid:x}\nswitchguid=0x{guid:x}({guid:x})\n"
        yield f'Switch\t{k} "S-{guid:016x}"\t\t# "{name}" base port 0 lid {number + 1} lmc 0\n'
        for port in range(1, k + 1):
            up = port - half - 1
            if number < leaves:
                pod, index = divmod(number, half)
                if up < 0:
                    host = number * half + port - 1
                    guid = _host_guid(host)
                    yield f'[{port}]\t"H-{guid:016x}"[1]({guid:x}) \t\t# "node-{host:05d} mlx5_0" '
                    yield f"lid {host + 8000} 4xHDR\n"
                else:
                    yield _to_switch(
                        port, leaves + pod * half + up, names[leaves + pod * half + up], index + 1
                    )
            elif number < leaves + spines:
                pod, index = divmod(number - leaves, half)
                if up < 0:
                    yield _to_switch(
                        port, pod * half + port - 1, names[pod * half + port - 1], half + index + 1
                    )
                else:
                    core = leaves + spines + index * half + up
                    yield _to_switch(port, core, names[core], pod + 1)
            else:
                group, place = divmod(number - leaves - spines, half)
                spine = leaves + (port - 1) * half + group
                yield _to_switch(port, spine, names[spine], half + place + 1)
    for host in range(leaves * half):
        guid, leaf = _host_guid(host), host // half
        yield f"\nvendid=0x2c9\ndevid=0x101b\nsysimgguid=0x{guid:x}\ncaguid=0x{guid:x}\n"
        yield f'Ca\t1 "H-{guid:016x}"\t\t# "node-{host:05d} mlx5_0"\n'
        yield (
            f'[1]({guid:x}) \t"S-{_switch_guid(leaf):016x}"[{host % half + 1}]\t\t'
            f'# lid {host + 8000} lmc 0 "{names[leaf]}" lid {leaf + 1} 4xHDR\n'
        )


def fat_tree_dump(k: int = 64) -> bytes:
    """The whole text. A last blank line makes it 817,157 lines at k = 64."""
    return "".join(chain(fat_tree_lines(k), ["\n"])).encode()
