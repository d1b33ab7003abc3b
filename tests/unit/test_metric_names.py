"""Names of metrics follow the conventions of Prometheus."""

import re

import pytest
from hyperscout_formats.text.prometheus_text import Family
from support.metric_families import FAMILIES


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_names_follow_the_conventions(family: Family) -> None:
    assert re.fullmatch(r"hyperscout_(node_info|(agent|collector)_[a-z][a-z0-9_]*)", family.name)
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.help.endswith(".")
    for unit, word in (("seconds", "second"), ("bytes", "ytes")):
        assert unit not in family.name or word in family.help, "HELP says the unit"
    assert not {"le", "quantile", "job", "instance"} & set(family.labels)


def test_no_name_is_declared_twice() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
