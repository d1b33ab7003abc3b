"""Every metric that one of the processes shows, as it is declared."""

from typing import Any

from hyperscout_formats.text.prometheus_text import Family

from support.modules import module_of
from support.real import ROOT

_reference: Any = module_of(ROOT / "deploy" / "reference.py", "deploy_reference")
FAMILIES: list[Family] = _reference.families()
