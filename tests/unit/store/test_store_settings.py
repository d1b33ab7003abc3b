"""Settings of PostgreSQL: what is refused, and that no message contains a password."""

from pathlib import Path

import pytest
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_runtime.settings import SettingsError


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("mysql://c@db/topology", "expected postgresql://"),
        ("host=db dbname=topology", "expected postgresql://"),
        ("postgresql://c:secret@db/topology?sslmode=verify-full", "name it in store_password_file"),
        ("postgresql://c@db/topology?sslmode=verify-full&password=secret", "name it in store_password_file"),
        ("postgresql://c@db/topology", "db is not on this machine"),
        ("postgresql://c@127.0.0.1:5433,db:5432/topology", "db is not on this machine"),
        ("postgresql://c@/topology?host=127.0.0.1,10.0.0.7", "10.0.0.7 is not on this machine"),
        ("postgresql://c@db/topology?sslmode=prefer", "db is not on this machine"),
    ],
)
def test_what_is_refused(store: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(flags={"store": store})
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "store",
    [
        "",
        "postgresql:///topology",
        "postgresql://c@/topology?host=%2Frun%2Fpostgresql",
        "postgresql://c@[::1]:5432/topology",
        "postgres://c@db1,db2/topology?sslmode=verify-full&sslrootcert=/etc/ca.pem",
    ],
)
def test_what_is_accepted(store: str) -> None:
    assert load_settings(flags={"store": store}).store == store


def test_plaintext_on_a_trusted_network() -> None:
    load_settings(flags={"store": "postgresql://c@db/topology", "insecure": True})


def test_a_password_file_without_a_store() -> None:
    with pytest.raises(SettingsError, match="store_password_file: set store too"):
        load_settings(flags={"store_password_file": Path("/etc/password")})
