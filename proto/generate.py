"""Writes the Python stubs beside the .proto files; with --check, fails if they are stale."""

import argparse
import filecmp
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def generate(target: Path) -> list[Path]:
    """Generate all stubs below `target`; return their paths relative to it."""
    from grpc_tools import protoc

    sources = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("hyperscout/v1/*.proto"))
    scripts = Path(sysconfig.get_path("scripts"))
    plugins = [f"--plugin={name}={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    includes = [f"-I{ROOT}", f"-I{Path(protoc.__file__).parent / '_proto'}"]
    outputs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    if protoc.main(["protoc", *includes, *plugins, *outputs, *sources]) != 0:
        sys.exit("protoc failed")
    for package in ("hyperscout", "hyperscout/v1"):
        (target / package / "__init__.py").touch()
    (target / "hyperscout" / "py.typed").touch()
    return sorted(
        p.relative_to(target)
        for p in (target / "hyperscout").rglob("*")
        if p.is_file() and p.suffix != ".proto"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 when the stubs are stale"
    )
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        stale = [
            path
            for path in generate(fresh)
            if not (ROOT / path).exists() or not filecmp.cmp(fresh / path, ROOT / path, shallow=False)
        ]
        if check and stale:
            sys.exit("stale: " + ", ".join(map(str, stale)) + "; run `make proto`")
        for path in stale:
            shutil.copyfile(fresh / path, ROOT / path)
            print(f"wrote proto/{path}")  # noqa: T201 - a command line prints


if __name__ == "__main__":
    main()
