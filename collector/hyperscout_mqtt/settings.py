"""Settings of MQTT: what is published, and the devices that report."""

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, Field, field_validator

from hyperscout_mqtt.topics import Broker, broker_of, checked_prefix, device_of


class MqttSettings(BaseModel):
    """MQTT fields of `CollectorSettings`."""

    mqtt_broker: str = Field(
        "", description='mqtt://host[:1883] or mqtts://host[:8883] (TLS) of the broker; "" = no MQTT'
    )
    mqtt_user: str = Field("", description="user name at the broker")
    mqtt_password_file: Path | None = Field(
        None, description="file with the password; read at each connection"
    )
    mqtt_tls_ca: Path | None = Field(
        None, description="CA certificates (PEM) for the broker (default: those of the system)"
    )
    mqtt_tls_cert: Path | None = Field(None, description="client certificate (PEM) for the broker")
    mqtt_tls_key: Path | None = Field(None, description="private key (PEM) of mqtt_tls_cert")
    mqtt_client_id: str = Field(
        "", max_length=128, description='client id; "" = "hyperscout-" and the identity'
    )
    mqtt_qos: int = Field(
        1,
        ge=0,
        le=2,
        description="quality of service of published messages; raise it to 2 if subscribers must not get a "
        "message twice, lower it to 0 if the broker must not confirm each message",
    )
    mqtt_topic_prefix: str = Field(
        "hyperscout",
        min_length=1,
        max_length=200,
        description="first levels of all topics; each cluster at a broker needs its own",
    )
    mqtt_devices: tuple[str, ...] = Field(
        (),
        description="devices that may report findings: TOPIC=switch/NAME or TOPIC=NODE, where TOPIC is the "
        "last level of PREFIX/findings/TOPIC; the broker must allow each device only its own topic",
    )
    mqtt_findings_per_s: float = Field(
        10.0,
        gt=0,
        description="maximum messages per second of a device (others are dropped and counted); raise it for "
        "a switch that reports many ports in separate messages",
    )

    @field_validator("mqtt_broker")
    @classmethod
    def _broker(cls, value: str) -> str:
        if value:
            broker_of(value)
        return value

    @field_validator("mqtt_topic_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        return checked_prefix(value)

    @field_validator("mqtt_devices")
    @classmethod
    def _devices(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            device_of(text)
        return value


def mqtt_problem(settings: MqttSettings, *, trusted: Callable[[Broker], bool]) -> str | None:
    """Return the first problem with the combination of settings; None if there is none.

    `trusted`: whether plaintext may be sent to this broker.
    """
    needs_broker = {
        "mqtt_user": bool(settings.mqtt_user),
        "mqtt_password_file": settings.mqtt_password_file is not None,
        "mqtt_tls_ca": settings.mqtt_tls_ca is not None,
        "mqtt_tls_cert": settings.mqtt_tls_cert is not None,
        "mqtt_tls_key": settings.mqtt_tls_key is not None,
        "mqtt_devices": bool(settings.mqtt_devices),
    }
    given = [name for name, is_given in needs_broker.items() if is_given]
    if not settings.mqtt_broker:
        return f"{', '.join(given)}: set mqtt_broker too" if given else None
    broker = broker_of(settings.mqtt_broker)
    if (settings.mqtt_tls_cert is None) != (settings.mqtt_tls_key is None):
        return "mqtt_tls_cert and mqtt_tls_key: give both or neither"
    if settings.mqtt_password_file is not None and not settings.mqtt_user:
        return "mqtt_password_file: set mqtt_user too"
    if not broker.tls:
        if tls := [name for name in given if name.startswith("mqtt_tls_")]:
            return f"{', '.join(tls)}: expected mqtts:// in mqtt_broker, which is {broker}"
        if not trusted(broker):
            if settings.mqtt_password_file is not None:
                return (
                    f"mqtt_broker {broker}: a password needs an encrypted connection; "
                    "use mqtts://, or insecure: true on a trusted network"
                )
            if settings.mqtt_devices:
                return (
                    f"mqtt_broker {broker}: findings need an encrypted connection; "
                    "use mqtts://, or insecure: true on a trusted network"
                )
    return _devices_problem(settings.mqtt_devices)


def _devices_problem(devices: tuple[str, ...]) -> str | None:
    topics: set[str] = set()
    reporters: set[str] = set()
    for topic, reporter in map(device_of, devices):
        if topic in topics:
            return f"mqtt_devices: the topic {topic} is listed twice"
        if reporter in reporters:
            return f"mqtt_devices: {reporter} has two topics; expected one for each reporter"
        topics.add(topic)
        reporters.add(reporter)
    return None
