"""The settings of the estimator for Karmada's scheduler."""

from collections.abc import Sequence

from hyperscout_runtime.connections import host_port, is_loopback
from pydantic import BaseModel, Field, field_validator

from hyperscout_collector.app.settings.publisher_settings import ObjectName, cluster_file


class EstimatorSettings(BaseModel):
    """Where the estimator listens, and what it serves; `CollectorSettings` inherits it."""

    estimator_listen: str = Field(
        "",
        description="host:port of the estimator of replicas for Karmada's scheduler, which requires client "
        'certificates if tls_client_ca is set; "" = none',
    )
    estimator_cluster: ObjectName = Field(
        "", description='name of the collector\'s own cluster in Karmada; "" = it is not asked about'
    )

    @field_validator("estimator_listen")
    @classmethod
    def _estimator_address(cls, value: str) -> str:
        if value:
            host_port(value)
        return value


def estimator_problem(settings: EstimatorSettings, clusters: Sequence[str], *, trusted: bool) -> str | None:
    """Return what is wrong with the settings of the estimator.

    `clusters`: the other ones, NAME=FILE. `trusted`: whether callers show client certificates, or
    the network is trusted.
    """
    address = settings.estimator_listen
    if not address:
        return "estimator_cluster: set estimator_listen too" if settings.estimator_cluster else None
    if not (settings.estimator_cluster or clusters):
        return "estimator_listen: set estimator_cluster, the name of this cluster in Karmada"
    if (own := settings.estimator_cluster) in {cluster_file(entry)[0] for entry in clusters}:
        return (
            f"estimator_cluster {own}: an entry of clusters has this name; give the name of the collector's "
            "own cluster in Karmada"
        )
    if not trusted and not is_loopback(host_port(address)[0]):
        return (
            f"estimator_listen {address}: every client could read what is free; give tls_cert, tls_key and "
            "tls_client_ca, or set insecure: true on a trusted network"
        )
    return None
