"""The server's certificates: when files are looked at, and which are taken."""

import logging
from pathlib import Path

import pytest
from hyperscout_collector.identity.certificates import CertificateError, ServerCertificates
from kube.pki import Pair
from support.identities import Family


class Files:
    """A pair in files whose content a test exchanges; counts how often they are read."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.family = Family(folder / "ca")
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.now_s = 0.0
        self.reads = 0
        self.put(self.family.server)
        self.used = ServerCertificates(self.cert, self.key, clock=lambda: self.now_s)
        read = self.used._read

        def counted() -> tuple[bytes, bytes, bytes | None]:
            self.reads += 1
            return read()

        monkeypatch.setattr(self.used, "_read", counted)

    def put(self, pair: Pair) -> None:
        self.cert.write_bytes(pair.cert.read_bytes())
        self.key.write_bytes(pair.key.read_bytes())

    def ask(self, times: int = 1) -> list[bool]:
        """Whether there was something new."""
        return [self.used.renewed() is not None for _ in range(times)]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(tmp_path, monkeypatch)


def test_whatever_connects_the_disk_is_looked_at_once_a_second(files: Files) -> None:
    files.put(files.family.pair("DNS:new"))
    assert files.ask(1000) == [False] * 1000
    assert files.reads == 0
    for second in (1.0, 2.0, 3.0):
        files.now_s = second
        assert files.ask(1000) == [second == 1.0] + [False] * 999
    assert files.reads == 3


def test_half_of_a_new_pair_is_passed_over_and_said_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    new = files.family.pair("DNS:new")
    with caplog.at_level(logging.INFO):
        files.cert.write_bytes(new.cert.read_bytes())
        for files.now_s in (1.0, 2.0, 3.0):
            assert files.ask() == [False]
        files.cert.unlink()
        files.now_s = 4.0
        assert files.ask() == [False]
        files.put(new)
        files.now_s = 5.0
        assert files.ask() == [True]
    said = [record.message for record in caplog.records]
    assert [("stay" in line, "new certificates" in line) for line in said] == [
        (True, False),
        (True, False),
        (False, True),
    ]


def test_files_that_come_to_be_what_they_were_are_nothing_new(files: Files) -> None:
    files.cert.write_bytes(b"junk")
    files.now_s = 1.0
    assert files.ask() == [False]
    files.put(files.family.server)
    files.now_s = 2.0
    assert files.ask() == [False]


@pytest.mark.parametrize("content", [b"", b"junk", b"x" * 1_100_000])
def test_at_the_start_they_must_be_good(files: Files, content: bytes) -> None:
    files.cert.write_bytes(content)
    with pytest.raises(CertificateError, match=r"tls\.crt"):
        ServerCertificates(files.cert, files.key)
