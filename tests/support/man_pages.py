"""The manual pages as `make man` writes them."""

from functools import cache

from support.modules import module_of
from support.real import ROOT


@cache
def pages() -> dict[str, str]:
    found: dict[str, str] = module_of(ROOT / "deploy" / "man.py", "deploy_man").pages()
    return found
