"""Settings of the role `fabric`: what is asked for, what is refused, and that no secret is among them."""

from pathlib import Path
from typing import Any

import pytest
from hyperscout_agent.settings.settings import AgentSettings, load_settings
from hyperscout_runtime.settings import SettingsError

OPEN = {"ranges": ["10.20.0.0/16"], "community_file": "/etc/hyperscout/community"}
USER = {"ranges": ["10.20.0.0/16"], "user": "hyperscout"}


def load(snmp: dict[str, Any], **more: object) -> AgentSettings:
    return load_settings(None, {"role": "fabric", "node": "switches", "snmp": snmp, **more})


def test_an_address_range_and_a_community_are_enough() -> None:
    settings = load({"access": [OPEN]})
    assert settings.reporter == "fabric/switches"
    assert settings.snmp.on
    assert [name for name, group in settings.fabric_groups.items() if group.on] == ["snmp"]


@pytest.mark.parametrize("ranges", ["10.20.0.0/16,fd00:20::/64", "10.20.0.0/16, fd00:20::/64"])
def test_ranges_as_one_text(ranges: str) -> None:
    (access,) = load({"access": [{**OPEN, "ranges": ranges}]}).snmp.access
    assert [str(network) for network in access.ranges] == ["10.20.0.0/16", "fd00:20::/64"]


def test_in_flags_and_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    flag = '{"ranges": ["10.20.0.0/16"], "community_file": "/etc/hyperscout/community"}'
    assert (
        load({"access": (flag,), "seeds": "10.20.0.1, 10.20.0.2"}).snmp
        == load({"access": [OPEN], "seeds": ["10.20.0.1", "10.20.0.2"]}).snmp
    )
    for name, value in {"ROLE": "fabric", "SNMP__ACCESS": f"[{flag}]", "SNMP__SEEDS": "10.20.0.1"}.items():
        monkeypatch.setenv(f"HYPERSCOUT_AGENT_{name}", value)
    settings = load_settings()
    assert settings.snmp.access == load({"access": [OPEN]}).snmp.access
    assert [str(seed) for seed in settings.snmp.seeds] == ["10.20.0.1"]


@pytest.mark.parametrize(
    ("snmp", "why"),
    [
        ({}, "role: fabric has no probe"),
        ({"access": [{**OPEN, "ranges": []}]}, "snmp.access.0.ranges"),
        ({"access": [{**OPEN, "ranges": ["10.20.0.1/16"]}]}, "has host bits set"),
        ({"access": [{**OPEN, "ranges": ["0.0.0.0/0"]}]}, "contains every address"),
        ({"access": [{**OPEN, "ranges": ["::/0"]}]}, "contains every address"),
        ({"access": [{"ranges": ["10.20.0.0/16"]}]}, "expected either community_file"),
        ({"access": [{**OPEN, **USER}]}, "expected either community_file"),
        ({"access": [USER]}, "messages must be encrypted"),
        ({"access": [{**USER, "auth_password_file": "/a"}]}, "messages must be encrypted"),
        ({"access": [{**OPEN, "priv_password_file": "/p"}]}, "need user"),
        ({"access": [{**USER, "auth": "MD5"}]}, "snmp.access.0.auth"),
        ({"access": [{**USER, "priv": "DES"}]}, "snmp.access.0.priv"),
        ({"access": ["no json"]}, "expected JSON"),
        ({"access": [OPEN], "seeds": "leaf-01"}, "names are not resolved"),
    ],
)
def test_what_is_refused(snmp: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(snmp)
    assert why in str(caught.value)


def test_a_secret_in_the_settings_is_refused_and_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"access": [{**OPEN, "community": "open-sesame"}]})
    assert "community: no such setting" in str(caught.value)
    assert "open-sesame" not in str(caught.value)


@pytest.mark.parametrize("role", ["node", "switch"])
def test_credentials_are_in_one_place(role: str) -> None:
    with pytest.raises(SettingsError, match="snmp: needs role: fabric"):
        load_settings(None, {"role": role, "snmp": {"access": [OPEN]}})


@pytest.mark.parametrize(
    "group",
    ["lldp", "infiniband", "ibnetdiscover", "ibqueryerrors", "nvlink", "xgmi", "ascend", "latency", "nccl"],
)
def test_nothing_of_this_machine_is_looked_at(group: str) -> None:
    setting = {
        "lldp": {"interval_s": 5},
        "infiniband": {"root": "/x"},
        "ibnetdiscover": {"timeout_s": 5},
        "ibqueryerrors": {"timeout_s": 5},
        "nvlink": {"library": "/x"},
        "xgmi": {"read_errors": False},
        "ascend": {"npu_smi": "/x"},
        "latency": {"port": 5},
        "nccl": {"enabled": True},
    }[group]
    with pytest.raises(SettingsError, match=f"{group}: has no effect with role fabric"):
        load({"access": [OPEN]}, **{group: setting})


def test_a_name_leaves_room_for_what_it_is() -> None:
    load({"access": [OPEN]}, node="n" * 246)
    with pytest.raises(SettingsError, match="at most 246 characters"):
        load({"access": [OPEN]}, node="n" * 247)


def test_a_token_is_shown_by_a_fabric_agent(tmp_path: Path) -> None:
    settings = load({"access": [OPEN]}, token_file=tmp_path / "token")
    assert settings.credentials.token_file == tmp_path / "token"
