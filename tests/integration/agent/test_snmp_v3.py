"""SNMPv3 by a real snmpd: the same rows as over v2c; and what answers nothing that can be read."""

import asyncio
import logging
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hyperscout_agent.snmp.access import Community, Credential, Secret, User
from hyperscout_agent.snmp.client import SnmpClient
from hyperscout_agent.snmp.outcomes import ClientStats, SwitchError
from hyperscout_agent.snmp.walk import Oid, Walk
from support.real import require_real
from support.waiting import TIMEOUT_S

COMMUNITY, AUTH, PRIV = "open-sesame-3f9a", "auth-password-3f9a", "priv-password-3f9a"
OPEN = Community(Secret(COMMUNITY), "127.0.0.0/8")
# What stays as it is: the system's name and kind, its own users and views.
PARTS: tuple[Oid, ...] = ((1, 3, 6, 1, 2, 1, 1, 2), (1, 3, 6, 1, 2, 1, 1, 5), (1, 3, 6, 1, 6, 3, 16))
# (authentication, encryption) as the settings and as snmpd name them
KINDS = {("SHA", "AES"): "SHA {} AES {}", ("SHA-256", "AES"): "SHA-256 {} AES {}"}


def user(auth: str, priv: str, password: str = AUTH) -> User:
    return User(f"{auth}-{priv}", auth, Secret(password), priv, Secret(PRIV), "127.0.0.0/8")


@contextmanager
def snmpd(folder: Path) -> Iterator[int]:
    """Its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    lines = [f"agentaddress udp:127.0.0.1:{port}", f"rocommunity {COMMUNITY}", "sysName leaf-a1"]
    for (auth, priv), how in KINDS.items():
        lines += [f"createUser {auth}-{priv} {how.format(AUTH, PRIV)}", f"rouser {auth}-{priv} authpriv"]
    conf = folder / "snmpd.conf"
    conf.write_text("\n".join(lines) + "\n")
    env = {**os.environ, "SNMP_PERSISTENT_DIR": str(folder), "MIBS": ""}
    with subprocess.Popen(
        ["/usr/sbin/snmpd", "-f", "-C", "-c", str(conf), "-Lf", str(folder / "log")], env=env
    ) as process:
        try:
            yield port
        finally:
            process.terminate()


async def walked(port: int, credential: Credential, stats: ClientStats, timeout_s: float = 1.0) -> Walk:
    client = SnmpClient(port=port, timeout_s=timeout_s, retries=2, stats=stats)
    try:
        found = await client.walk("127.0.0.1", credential, PARTS, lambda _: True)
        assert found is not None
        return found
    finally:
        await client.close()


async def until_it_answers(port: int) -> Walk:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await walked(port, OPEN, ClientStats())
            except SwitchError:
                continue


async def test_a_user_sees_what_a_community_sees(tmp_path: Path) -> None:
    require_real("snmpd")
    with snmpd(tmp_path) as port:
        clear = await until_it_answers(port)
        assert len(clear) > 20
        for auth, priv in KINDS:
            stats = ClientStats()
            walk = await walked(port, user(auth, priv), stats, 20.0)
            assert list(walk.rows) == list(clear.rows)
            assert (stats.rows, stats.garbage, walk.problems) == (len(walk), 0, [])
        with pytest.raises(SwitchError, match="the switch has another authentication password or protocol"):
            await walked(port, user("SHA", "AES", "another-password"), ClientStats(), 20.0)
        with pytest.raises(SwitchError, match="the switch does not know the user"):
            await walked(port, user("SHA", "AES-256"), ClientStats(), 20.0)


class Garbage(asyncio.DatagramProtocol):
    """Answers each datagram with several that pysnmp cannot read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        secret = b"\x30\x15\x02\x01\x01\x04\x10" + COMMUNITY.encode()
        for answer in (b"", b"\x30\x84\xff\xff\xff\xff", b"\xbf\x1f" + data[2:], data[:-1], secret, data):
            self.transport.sendto(answer, address)  # type: ignore[attr-defined]


async def test_datagrams_that_pysnmp_cannot_read_are_counted_and_in_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The event loop logs a callback's arguments with its exception."""
    caplog.set_level(logging.DEBUG)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(Garbage, local_addr=("127.0.0.1", 0))
    stats = ClientStats()
    try:
        with pytest.raises(SwitchError, match="no answer"):
            await walked(transport.get_extra_info("sockname")[1], user("SHA", "AES"), stats, 0.2)
    finally:
        transport.close()
    assert stats.garbage >= 3  # for each of the requests
    assert [r for r in caplog.records if r.levelno > logging.DEBUG] == []
    assert COMMUNITY not in caplog.text
