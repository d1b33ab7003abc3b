"""The house keeps its promises: what the docs name exists, and nothing leaks that must not be published."""

import pytest
from support import real


@pytest.mark.parametrize("component", sorted(real.COMPONENTS))
def test_every_component_is_there_or_says_what_to_do(component: str) -> None:
    lack = real.lack_of(component)
    assert lack is None or ":" in lack


@pytest.mark.parametrize(("required", "outcome"), [("0", "Skipped"), ("1", "Failed")])
def test_a_missing_component_skips_or_fails_when_required(
    monkeypatch: pytest.MonkeyPatch, required: str, outcome: str
) -> None:
    monkeypatch.setitem(real.COMPONENTS, "warp-drive", lambda: "warp-drive not found: install starship-utils")
    monkeypatch.setenv(real.REQUIRE_VARIABLE, required)
    with pytest.raises(BaseException, match="install starship-utils") as caught:
        real.require_real("warp-drive")
    assert type(caught.value).__name__ == outcome
