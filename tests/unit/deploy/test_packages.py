"""The Debian packages: what their scripts delete, and the version of Python that they are built with."""

from typing import Any

import pytest
from support.modules import module_of
from support.real import ROOT

packages: Any = module_of(ROOT / "deploy" / "packages.py", "deploy_packages")


def test_a_purge_deletes_the_folder_of_the_collector_alone() -> None:
    found = {package.part: packages.script("postrm", package) for package in packages.PACKAGES}
    assert 'rm -rf "/var/lib/hyperscout"' in found["collector"]
    assert "/var" not in found["agent"]
    assert "@" not in "".join(found.values())


def test_another_version_of_python_is_refused() -> None:
    packages.check_python("3.11")
    with pytest.raises(
        packages.PackagesError, match=r"is Python 3\.13: .* resolved for Python 3\.11: build on"
    ):
        packages.check_python("3.13")
