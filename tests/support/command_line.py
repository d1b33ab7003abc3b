"""Run the command line in this process and see what came out."""

import io
import os
import sys
from dataclasses import dataclass

import pytest
from hyperscout_cli.main import main


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str


class CommandLine:
    """Calls `main` as the shell would."""

    def __init__(self, capture: "pytest.CaptureFixture[bytes]", monkeypatch: pytest.MonkeyPatch) -> None:
        self._capture = capture
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Ran:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([str(a) for a in arguments])
        out, err = self._capture.readouterr()
        return Ran(code, out.decode(), err.decode())


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line, without the caller's environment."""
    for name in list(os.environ):
        if name.startswith("HYPERSCOUT_") or name == "NO_COLOR":
            monkeypatch.delenv(name)
    return CommandLine(capsysbinary, monkeypatch)
