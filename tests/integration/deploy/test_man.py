"""Manual pages: one a command, with the sections that readers look for, and nothing that groff warns of."""

import subprocess
from pathlib import Path

from support.man_pages import pages
from support.real import require_real, tool


def test_groff_has_nothing_to_say(tmp_path: Path) -> None:
    require_real("groff")
    for name, text in pages().items():
        (tmp_path / name).write_text(text, "utf-8")
    groff = [str(tool("groff")), "-man", "-Tutf8", "-Kutf8", "-ww", "-z"]
    ran = subprocess.run([*groff, *pages()], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
