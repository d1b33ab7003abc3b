"""The manual pages as `make man` writes them."""

import sys
from functools import cache

from support.real import ROOT


@cache
def pages() -> dict[str, str]:
    sys.path.insert(0, str(ROOT / "deploy"))
    try:
        import man
    finally:
        sys.path.pop(0)
    found: dict[str, str] = man.pages()
    return found
