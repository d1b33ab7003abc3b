"""What is shown to a collector: files that are read each time, and what is wrong with some of them."""

from pathlib import Path

import pytest
from hyperscout_agent.credentials import Credentials, CredentialsError, bearer, tls_hint
from support.identities import Family


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(tmp_path_factory.mktemp("certificates"))


def test_a_token_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    credentials = Credentials(token_file=file)
    for text in ("a.b.c\n", "d.e.f"):
        file.write_text(text)
        assert credentials.metadata() == (("authorization", f"Bearer {text.strip()}"),)
    assert Credentials().metadata() == ()


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two words", b"two\nlines", b"\xff\xfe", b"x\0y", b"x" * 20_000]
)
def test_a_file_that_holds_no_token(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(CredentialsError, match=str(file)) as refused:
        Credentials(token_file=file).metadata()
    assert "words" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="nowhere: No such file"):
        Credentials(token_file=tmp_path / "nowhere").metadata()
    with pytest.raises(CredentialsError, match="nowhere: No such file"):
        Credentials(ca=tmp_path / "nowhere").for_channel()


def test_without_a_ca_there_is_no_tls() -> None:
    assert Credentials().for_channel() is None
    assert Credentials(server_name="x").options() == ()


def test_a_name_to_look_for(family: Family) -> None:
    assert family.client().options() == ()
    named = family.client(server_name="collector.hyperscout.svc")
    assert named.options() == (("grpc.ssl_target_name_override", "collector.hyperscout.svc"),)


def test_pairs_that_do_not_fit(family: Family, tmp_path: Path) -> None:
    one, other = family.client("node/a"), family.client("node/b")
    assert one.for_channel() is not None
    with pytest.raises(CredentialsError, match="are no certificate and its key"):
        Credentials(ca=family.ca, cert=one.cert, key=other.key).for_channel()
    junk = tmp_path / "ca.crt"
    for content in ("junk", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "ä"):
        junk.write_text(content)
        with pytest.raises(CredentialsError, match=r"ca.crt: no certificates in PEM"):
            Credentials(ca=junk).for_channel()


async def test_an_address_learnt_later_is_checked_too(family: Family, tmp_path: Path) -> None:
    token = tmp_path / "token"
    for credentials, words in (
        (Credentials(), "not encrypted"),
        (Credentials(token_file=token), "never sent in the clear"),
        (Credentials(token_file=token, insecure=True), "never sent in the clear"),
    ):
        with pytest.raises(CredentialsError, match=words):
            credentials.connect("10.0.0.1:50051", ())
    for credentials in (family.client(token_file=token), Credentials(insecure=True)):
        await credentials.connect("10.0.0.1:50051", ()).close()


@pytest.mark.parametrize("token", ["", " ", "a b", "a\n", "ä", "a\x7f"])
def test_what_cannot_be_a_token(token: str) -> None:
    with pytest.raises(CredentialsError, match="HYPERSCOUT_TOKEN: not a token"):
        bearer(token, "HYPERSCOUT_TOKEN")


@pytest.mark.parametrize(
    ("details", "hint"),
    [
        (
            "... SSL: CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate",
            "not signed",
        ),
        ("... CERTIFICATE_VERIFY_FAILED: certificate has expired: ...", "has expired"),
        ("... UNAUTHENTICATED: Hostname Verification Check failed.", "tls_server_name"),
        ("... WRONG_VERSION_NUMBER: ...", "speaks no TLS"),
        ("Socket closed", ""),
    ],
)
def test_hints(details: str, hint: str) -> None:
    assert hint in tls_hint(details)
    assert bool(hint) == bool(tls_hint(details))
