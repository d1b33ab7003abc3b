"""Settings of MQTT, outbound and inbound."""

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, Field, field_validator

from hyperscout_mqtt.topics import Broker, broker_of, checked_prefix, device_of


class MqttSettings(BaseModel):
    """MQTT fields of `CollectorSettings`."""

    mqtt_broker: str = Field(
        "", description='mqtt://host[:1883] or mqtts://host[:8883] (TLS); "" = nothing is published by MQTT'
    )
    mqtt_user: str = Field("", description="user name at the broker")
    mqtt_password_file: Path | None = Field(None, description="file with its password, read at each connect")
    mqtt_tls_ca: Path | None = Field(
        None, description="CA certificates (PEM) that sign the broker's (default: those of the system)"
    )
    mqtt_tls_cert: Path | None = Field(None, description="client certificate (PEM) to show to the broker")
    mqtt_tls_key: Path | None = Field(None, description="its private key (PEM)")
    mqtt_client_id: str = Field(
        "", max_length=128, description='client id; "" = "hyperscout-" and the identity'
    )
    mqtt_qos: int = Field(1, ge=0, le=2, description="quality of service of what is published")
    mqtt_topic_prefix: str = Field(
        "hyperscout",
        min_length=1,
        max_length=200,
        description="first levels of all topics; of two clusters at one broker each needs its own",
    )
    mqtt_devices: tuple[str, ...] = Field(
        (),
        description="who may report findings: TOPIC=switch/NAME or TOPIC=NODE, where TOPIC is the last level "
        "of PREFIX/findings/TOPIC; the broker must let each device write to its own topic only",
    )
    mqtt_findings_per_s: float = Field(
        10.0, gt=0, description="messages a second that are taken of one device; more are dropped and counted"
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


def about_mqtt(settings: MqttSettings, *, trusted: Callable[[Broker], bool]) -> str | None:
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
        return f"{', '.join(given)}: of no use without mqtt_broker" if given else None
    broker = broker_of(settings.mqtt_broker)
    if (settings.mqtt_tls_cert is None) != (settings.mqtt_tls_key is None):
        return "mqtt_tls_cert and mqtt_tls_key: give both or neither"
    if settings.mqtt_password_file is not None and not settings.mqtt_user:
        return "mqtt_password_file: a password is of a user; set mqtt_user"
    if not broker.tls:
        if tls := [name for name in given if name.startswith("mqtt_tls_")]:
            return f"{', '.join(tls)}: certificates need mqtts://, and mqtt_broker is {broker}"
        if not trusted(broker):
            if settings.mqtt_password_file is not None:
                return (
                    f"mqtt_broker {broker}: a password is never sent in the clear beyond this machine; "
                    "use mqtts://, or insecure: true if the network is trusted"
                )
            if settings.mqtt_devices:
                return (
                    f"mqtt_broker {broker}: findings that came in the clear could be anyone's; "
                    "use mqtts://, or insecure: true if the network is trusted"
                )
    return _about_devices(settings.mqtt_devices)


def _about_devices(devices: tuple[str, ...]) -> str | None:
    topics: set[str] = set()
    reporters: set[str] = set()
    for topic, reporter in map(device_of, devices):
        if topic in topics:
            return f"mqtt_devices: {topic} is there twice"
        if reporter in reporters:
            return f"mqtt_devices: two topics are of {reporter}; each would take the other's findings away"
        topics.add(topic)
        reporters.add(reporter)
    return None
