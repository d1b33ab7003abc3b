"""What is shown to a collector: files that are read each time, and what is wrong with some of them."""

from pathlib import Path

import pytest
from hyperscout_runtime.credentials import Credentials, CredentialsError, bearer, tls_hint


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
        ("... WRONG_VERSION_NUMBER: ...", "does not use TLS"),
        ("Socket closed", ""),
    ],
)
def test_hints(details: str, hint: str) -> None:
    assert hint in tls_hint(details)
    assert bool(hint) == bool(tls_hint(details))
