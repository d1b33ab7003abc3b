"""Python files that are in no package, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of(path: Path, name: str) -> ModuleType:
    """Run the file and return it as the module `name`. It may import modules of its folder."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
