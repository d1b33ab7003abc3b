"""Defines the settings of PostgreSQL. They are checked without psycopg, which may not be installed."""

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from hyperscout_runtime.connections import is_loopback
from pydantic import BaseModel, Field

_ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})


class StoreSettings(BaseModel):
    """Where the collector stores; `CollectorSettings` inherits it."""

    store: str = Field(
        "",
        description="postgresql://user@host/database: PostgreSQL stores evidence, reservations and history "
        'for all replicas, with parameters of libpq such as sslrootcert; "" = files in data_dir',
    )
    store_password_file: Path | None = Field(
        None, description="file of the password of the user in store; read for each connection"
    )


def store_problem(settings: StoreSettings, *, insecure: bool) -> str | None:
    """Returns the first problem of the settings; None = there is none. The text has no password.

    `insecure`: plaintext may be sent beyond this machine.
    """
    store = settings.store
    if not store:
        return "store_password_file: set store too" if settings.store_password_file is not None else None
    scheme, colon, _ = store.partition("://")
    if not colon or scheme not in ("postgresql", "postgres"):
        return "store: expected postgresql://user@host/database, or nothing for files in data_dir"
    try:
        parts = urlsplit(store)
        parameters = parse_qs(parts.query)
    except ValueError:
        return "store: it is no URL: expected postgresql://user@host/database"
    user, _, hosts = parts.netloc.rpartition("@")
    if ":" in user or "password" in parameters:
        return "store: it has a password: write that into a file, and name it in store_password_file"
    sslmode = parameters.get("sslmode", [""])[-1]
    names = [*(x.rpartition(":")[0] or x for x in hosts.split(",") if x)]
    for key in ("host", "hostaddr"):
        names += [name for value in parameters.get(key, ()) for name in value.split(",")]
    names = [unquote(name).strip("[]") for name in names]
    beyond = [name for name in names if not (name.startswith("/") or is_loopback(name))]
    if beyond and sslmode not in _ENCRYPTED and not insecure:
        return (
            f"store: {beyond[0]} is not on this machine, and the connection may be plaintext: add "
            "?sslmode=verify-full&sslrootcert=FILE, or set insecure: true on a trusted network"
        )
    return None
