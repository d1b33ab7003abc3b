"""What may stand in a topic, where a broker may be, and settings that go together."""

from pathlib import Path

import pytest
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_mqtt.topics import Broker, Topics, broker_of, checked_prefix, device_of
from hyperscout_runtime.settings import SettingsError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mqtt://broker", Broker("broker", 1883, False)),
        ("mqtts://broker.example/", Broker("broker.example", 8883, True)),
        ("mqtt://10.0.0.1:2000", Broker("10.0.0.1", 2000, False)),
        ("mqtts://[2001:db8::1]:8884", Broker("2001:db8::1", 8884, True)),
    ],
)
def test_where_a_broker_is(text: str, expected: Broker) -> None:
    assert broker_of(text) == expected
    assert broker_of(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("broker", "tcp://broker", "mqtt://", "mqtt://user:secret@broker", "mqtt://b:0", "mqtt://b:65536"),
        *("mqtt://2001:db8::1", "mqtt://b/path", "mqtt://b:1:2", "mqtt://b ", "wss://b"),
    ],
)
def test_where_none_can_be(text: str) -> None:
    with pytest.raises(ValueError, match="mqtt"):
        broker_of(text)


@pytest.mark.parametrize("prefix", ["hyperscout", "site/hall-1/hyperscout", "a b"])
def test_prefixes(prefix: str) -> None:
    assert checked_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["", "/a", "a/", "a//b", "+", "a/+", "a/#", "$SYS/a", "a\x00", "a\nb"])
def test_what_no_topic_begins_with(prefix: str) -> None:
    with pytest.raises(ValueError):
        checked_prefix(prefix)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("leaf-1=switch/leaf-1", ("leaf-1", "switch/leaf-1")),
        ("bf2-17=node-17", ("bf2-17", "node-17")),
        ("a.b_c=n", ("a.b_c", "n")),
    ],
)
def test_devices(text: str, expected: tuple[str, str]) -> None:
    assert device_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "leaf-1",
        "=n",
        "a=",
        "a=switch/",
        "a=fabric/x",
        "a=switch/b/c",
        "a/b=n",
        "+=n",
        "a b=n",
        "a=" + "n" * 254,
    ],
)
def test_what_is_no_device(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        device_of(text)


@given(st.text(min_size=1))
def test_a_name_is_one_level_whatever_is_in_it(name: str) -> None:
    topics = Topics("a/b")
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    topic = topics.hypernode(name)
    assert topic.count("/") == 3
    assert not set("+#\x00") & set(topic)
    assert topics.hypernode_in(topic) == name
    assert topics.device_in(topic) is None


@given(st.text())
def test_topics_of_others_belong_to_no_device(topic: str) -> None:
    topics = Topics("a/b")
    assert topics.device_in(topic) is None or topic.startswith("a/b/findings/")
    assert topics.device_in("a/b/findings/" + topic) is None or "/" not in topic


# Settings


MQTTS = {"mqtt_broker": "mqtts://broker"}


@pytest.mark.parametrize(
    "flags",
    [
        {"mqtt_broker": "mqtt://broker"},
        {"mqtt_broker": "mqtt://127.0.0.1", "mqtt_user": "u", "mqtt_password_file": "p"},
        {"mqtt_broker": "mqtt://[::1]", "mqtt_devices": ("a=n",)},
        {"mqtt_broker": "mqtt://broker", "mqtt_devices": ("a=n",), "insecure": True},
        MQTTS | {"mqtt_tls_ca": "ca", "mqtt_tls_cert": "c", "mqtt_tls_key": "k"},
        MQTTS | {"mqtt_user": "u", "mqtt_password_file": "p", "mqtt_devices": ("a=n", "b=switch/n")},
    ],
)
def test_settings_that_go_together(flags: dict[str, object]) -> None:
    load_settings(flags=flags)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"mqtt_user": "u"}, "mqtt_user: set mqtt_broker too"),
        ({"mqtt_devices": ("a=n",)}, "mqtt_devices: set mqtt_broker too"),
        ({"mqtt_broker": "broker"}, "expected mqtt://host"),
        (MQTTS | {"mqtt_tls_cert": "c"}, "give both or neither"),
        (MQTTS | {"mqtt_password_file": "p"}, "set mqtt_user"),
        ({"mqtt_broker": "mqtt://127.0.0.1", "mqtt_tls_ca": "ca"}, "expected mqtts:// in mqtt_broker"),
        (
            {"mqtt_broker": "mqtt://broker", "mqtt_user": "u", "mqtt_password_file": "p"},
            "a password needs an encrypted connection",
        ),
        ({"mqtt_broker": "mqtt://broker", "mqtt_devices": ("a=n",)}, "findings need an encrypted connection"),
        (MQTTS | {"mqtt_devices": ("a=n", "a=m")}, "the topic a is listed twice"),
        (MQTTS | {"mqtt_devices": ("a=n", "b=n")}, "n has two topics"),
        (MQTTS | {"mqtt_devices": ("a",)}, "expected TOPIC="),
        (MQTTS | {"mqtt_topic_prefix": "a/#"}, "not allowed in a topic"),
        (MQTTS | {"mqtt_qos": 3}, "mqtt_qos"),
        (MQTTS | {"mqtt_findings_per_s": 0}, "mqtt_findings_per_s"),
    ],
)
def test_settings_that_do_not(flags: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags=flags)
    assert words in str(caught.value)


def test_settings_of_a_file_and_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "collector.yaml"
    path.write_text("mqtt_broker: mqtts://broker\nmqtt_devices: [leaf-1=switch/leaf-1]\n")
    monkeypatch.setenv("HYPERSCOUT_COLLECTOR_MQTT_QOS", "2")
    found = load_settings(path)
    assert (found.mqtt_devices, found.mqtt_qos) == (("leaf-1=switch/leaf-1",), 2)
