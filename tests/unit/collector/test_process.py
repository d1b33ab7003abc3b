"""A replica says where it is reached, or why it cannot."""

from pathlib import Path
from typing import Any

import pytest
from hyperscout_collector.configured import StartError
from hyperscout_collector.process import advertised
from hyperscout_collector.settings import CollectorSettings, load_settings


def settings(tmp_path: Path, **more: Any) -> CollectorSettings:
    """One that takes certificates only."""
    files = {name: tmp_path / name for name in ("tls_cert", "tls_key", "tls_client_ca")}
    return load_settings(flags={**files, "listen": "", "mtls_listen": "0.0.0.0:50054", **more})


def test_a_replica_for_certificates_only_is_told_to_say_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="set advertise"):
        advertised(settings(tmp_path))
    assert advertised(settings(tmp_path, advertise="a:50051")) == "a:50051"
