"""Settings of PostgreSQL: what is refused, and that no message contains a password."""

import sys
from pathlib import Path

import psycopg
import pytest
from hyperscout_collector.app.settings.settings import load_settings
from hyperscout_collector.store.errors import StoreError
from hyperscout_collector.store.server import PostgresqlServer
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
        # As libpq parses them, which differs from other URLs.
        ("postgresql://c@db/topology?sslmode=require&sslmode=", "db is not on this machine"),
        ("postgresql://c@localhost/topology?host=db", "db is not on this machine"),
        ("postgresql://c@localhost/topology?h%6Fst=db", "db is not on this machine"),
        ("postgresql://c@db/topology?sslmode=require&p%61ssword=secret", "name it in store_password_file"),
        ("postgresql://c@db/topology?sslmode=require&sslpassword=secret", "name it in store_password_file"),
        ("postgresql://c@db/topology?sslmode=require&service=x", "service is not supported"),
        ("postgresql://c:the#secret@db/topology?sslmode=require", "write them as %23"),
        ("postgresql://c:the/secret@db/topology?sslmode=require", "write them as %23"),
        ("postgresql://c:the?secret@db/topology?sslmode=require", "write them as %23"),
        ("postgresql://c:the@secret@db/topology?sslmode=require", "write them as %23"),
        ("postgresql://c:secret/topology", "a port that is a number"),
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


@pytest.mark.parametrize("has_psycopg", [False, True])
def test_psycopg_is_asked_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, *, has_psycopg: bool
) -> None:
    """The same URLs are refused without it."""
    if not has_psycopg:
        monkeypatch.setitem(sys.modules, "psycopg", None)
    for store in ("postgresql://c@/topology?host=db", "postgresql://c@db/topology?ssl=false"):
        with pytest.raises(SettingsError, match="db is not on this machine"):
            load_settings(flags={"store": store})
    if has_psycopg:
        load_settings(flags={"store": "postgresql://c@db/topology?ssl=true"})  # libpq: sslmode=require


def test_a_url_that_libpq_does_not_understand_is_not_cited() -> None:
    with pytest.raises(StoreError, match="expected postgresql://user@host/database") as caught:
        PostgresqlServer("postgresql://c@localhost/topology?secret")
    assert "secret" not in str(caught.value)


def test_plaintext_on_a_trusted_network() -> None:
    load_settings(flags={"store": "postgresql://c@db/topology", "insecure": True})


def test_a_password_file_without_a_store() -> None:
    with pytest.raises(SettingsError, match="store_password_file: set store too"):
        load_settings(flags={"store_password_file": Path("/etc/password")})


@pytest.mark.parametrize(
    ("parameter", "said"),
    [
        ("nosuch=1", 'invalid URI query parameter: "nosuch"'),
        ("connect_timeout=abc", "bad value for connect_timeout: 'abc'"),
    ],
)
def test_a_parameter_that_libpq_does_not_understand_is_named(parameter: str, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        PostgresqlServer(f"postgresql://c@localhost/topology?{parameter}")


@pytest.mark.parametrize(
    ("state", "step"),
    [
        ("25P03", "this machine is slow, or the collector was suspended"),
        (
            "42P01",
            "database topology: there are no tables of hyperscout yet: a leader creates them when it starts",
        ),
    ],
)
def test_the_next_step_after_an_error_of_the_server(state: str, step: str) -> None:
    server = PostgresqlServer("postgresql://c@localhost/topology")
    assert step in str(server.error(psycopg.errors.lookup(state)("failed")))
