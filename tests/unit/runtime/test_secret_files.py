"""One rule for files that hold a secret; and no message that holds any of it."""

from pathlib import Path

import pytest
from hyperscout_runtime.credentials import SecretError, read_secret


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"s3cret", "s3cret"),
        (b"s3cret\n", "s3cret"),
        (b"s3cret\r\n", "s3cret"),
        (b" s3cret \n", " s3cret "),
        ("Geheimnis-ü".encode(), "Geheimnis-ü"),
        (b"x" * 16 + b"\n", "x" * 16),
    ],
)
def test_a_secret_is_one_line(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "f").write_bytes(content)
    assert read_secret(tmp_path / "f", 16) == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"s3\ncret", "not one line of text"),
        (b"s3\x00cret", "not one line of text"),
        (b"s3\xffcret", "not one line of text"),
        (b"s3" * 9, "larger than 16 bytes"),
        (b"s3" * 4000, "larger than 16 bytes"),
    ],
)
def test_what_is_none_is_said_without_it(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(SecretError) as caught:
        read_secret(tmp_path / "f", 16)
    assert caught.value.reason == reason
    assert str(caught.value) == f"{tmp_path / 'f'}: {reason}"
    assert caught.value.__cause__ is None


def test_a_file_that_is_not_there_is_the_system_s_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_secret(tmp_path / "none", 16)
