"""The committed reference, manual pages, completion scripts and examples are as the code writes them now."""

from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from hyperscout_cli.shared.options import collector_options
from support.modules import module_of
from support.real import ROOT

generated, reference, share, examples = (
    module_of(ROOT / "deploy" / f"{name}.py", f"deploy_{name}")
    for name in ("generated", "reference", "share", "examples")
)
EXAMPLES = {examples.FOLDER / name: text for name, text in examples.files().items()}


@pytest.mark.parametrize(
    ("target", "texts", "folder"),
    [
        ("docs-reference", reference.pages(), reference.FOLDER),
        ("man", share.files(), share.SHARE),
        ("docs-assets", EXAMPLES, examples.FOLDER),
    ],
)
def test_committed_files_are_current(target: str, texts: Mapping[Path, str], folder: Path) -> None:
    assert list(generated.stale(texts, folder)) == [], f"run `make {target}`"


@pytest.mark.parametrize("queries", [True, False])
def test_only_commands_with_the_options_of_a_collector_refer_to_them(*, queries: bool) -> None:
    option = click.option("--namespace", help="Its own.")
    command = click.command()((collector_options if queries else option)(lambda **_: None))
    text = "\n".join(reference._describe(command, "hyperscout one", click.Context(click.Group()), 2))
    assert ("common options" in text) is queries
    assert ("--namespace" in text) is not queries


def test_stale_files_are_written_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generated, "ROOT", tmp_path)
    folder = tmp_path / "out"
    texts = {folder / "same": "1", folder / "other": "2", folder / "new" / "file": "3"}
    folder.mkdir()
    for name, text in (("same", "1"), ("other", "old"), ("gone", "")):
        (folder / name).write_text(text)
    generated.run("it", texts, folder)
    assert capsys.readouterr().out == "it: 3 files, 3 changed: out/gone, out/new/file, out/other\n"
    assert {path: path.read_text() for path in folder.rglob("*") if path.is_file()} == texts
    assert list(generated.stale(texts, folder)) == []
