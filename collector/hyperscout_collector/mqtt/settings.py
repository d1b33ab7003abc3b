"""Settings of MQTT, out and in."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field


class MqttSettings(BaseModel):
    """As `CollectorSettings` has them."""

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
    mqtt_qos: Literal[0, 1, 2] = Field(1, description="quality of service of what is published")
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
