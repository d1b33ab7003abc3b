"""Credentials by range of addresses, out of files; secrets that are not in any text."""

import copy
import pickle
from pathlib import Path

import pytest
from hyperscout_agent.settings.fabric_settings import SnmpAccess
from hyperscout_agent.snmp.access import Community, Secret, Unreadable, User, read_credentials


def file(folder: Path, name: str, content: bytes = b"opensesame\n") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def entry(*ranges: str, **more: object) -> SnmpAccess:
    return SnmpAccess.model_validate({"ranges": ranges, **more})


def test_the_narrowest_range_counts_whatever_the_order(tmp_path: Path) -> None:
    wide, narrow, one = (file(tmp_path, n, n.encode()) for n in ("wide", "narrow", "one"))
    found = read_credentials(
        [
            entry("10.0.0.0/8", "fd00::/8", community_file=wide),
            entry("10.1.0.0/16", community_file=narrow),
            entry("10.1.2.3", community_file=one),
        ]
    )

    def opens(address: str) -> str | None:
        credential = found.of(address)
        return credential.community.reveal() if isinstance(credential, Community) else None

    assert {a: opens(a) for a in ("10.9.9.9", "10.1.9.9", "10.1.2.3", "fd00::1")} == {
        "10.9.9.9": "wide",
        "10.1.9.9": "narrow",
        "10.1.2.3": "one",
        "fd00::1": "wide",
    }


@pytest.mark.parametrize(
    "address",
    ["11.0.0.1", "9.255.255.255", "fe80::1", "::ffff:10.0.0.1", "fd00::1%eth0", "leaf-01", "", "10.1"],
)
def test_nothing_else_is_asked(tmp_path: Path, address: str) -> None:
    found = read_credentials([entry("10.0.0.0/8", "fd00::/8", community_file=file(tmp_path, "c"))])
    assert found.of(address) is None


def test_a_user_and_both_passwords(tmp_path: Path) -> None:
    auth, priv = file(tmp_path, "a", b"authpassword"), file(tmp_path, "p", b"privpassword\r\n")
    found = read_credentials(
        [entry("10.0.0.0/8", user="u", auth="SHA", auth_password_file=auth, priv_password_file=priv)]
    ).of("10.0.0.1")
    assert found == User("u", "SHA", Secret("authpassword"), "AES", Secret("privpassword"), "10.0.0.0/8")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"short", "under the 8 characters that SNMPv3 demands"),
        (b"two\nlines of it", "not one line of text"),
        (b"\xff\xfe\x00", "not one line of text"),
        (b"x" * 2000, "larger than 1024 bytes"),
    ],
)
def test_a_file_that_is_not_as_it_should_be(tmp_path: Path, content: bytes, why: str) -> None:
    good, bad = file(tmp_path, "good"), file(tmp_path, "bad", content)
    found = read_credentials([entry("10.0.0.0/8", user="u", auth_password_file=good, priv_password_file=bad)])
    assert found.of("10.0.0.1") == Unreadable(f"its credentials (10.0.0.0/8): {bad}: {why}")


def test_one_bad_file_is_the_trouble_of_its_ranges_alone(tmp_path: Path) -> None:
    found = read_credentials(
        [
            entry("10.0.0.0/8", community_file=file(tmp_path, "c")),
            entry("10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", community_file=tmp_path / "none"),
        ]
    )
    assert isinstance(found.of("10.9.0.1"), Community)
    assert found.of("10.3.0.1") == Unreadable(
        f"its credentials (10.1.0.0/16, 10.2.0.0/16, ...): {tmp_path}/none: No such file or directory"
    )


def test_a_renewed_file_is_another_credential(tmp_path: Path) -> None:
    path = file(tmp_path, "c", b"old")
    before, same = (read_credentials([entry("10.0.0.0/8", community_file=path)]) for _ in range(2))
    path.write_bytes(b"new")
    assert before == same
    assert before != read_credentials([entry("10.0.0.0/8", community_file=path)])


def test_a_secret_is_not_written_anywhere() -> None:
    secret = Secret("opensesame")
    assert "opensesame" not in f"{secret} {secret!r} {[secret]} {vars(Secret)}"
    for write in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="not written"):
            write(secret)
