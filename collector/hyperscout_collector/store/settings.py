"""Defines the settings of PostgreSQL. They are checked without psycopg, which may not be installed."""

import re
from pathlib import Path
from urllib.parse import unquote

from hyperscout_runtime.connections import is_loopback
from pydantic import BaseModel, Field

_ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_ELSEWHERE = ("service", "servicefile")  # a file of them may name another host, and has passwords
_HOST = re.compile(r"(?:\[([^]]*)\]|([^:]*))(?::\d*)?")  # host or host:port
_HAS_PASSWORD = "store: it has a password: write that into a file, and name it in store_password_file"  # noqa: S105


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
    scheme, colon, rest = store.partition("://")
    if not colon or scheme not in ("postgresql", "postgres"):
        return "store: expected postgresql://user@host/database"
    # As libpq parses a URL, which differs from RFC 3986: fe-connect.c, conninfo_uri_parse_options.
    user, _, after = rest.rpartition("@")
    if "#" in rest or re.search("[@/?]", user):
        return (
            "store: it has a # or @, or a user with a / or ?, which libpq takes for another part of the URL: "
            "write them as %23, %40, %2F and %3F"
        )
    if ":" in user:
        return _HAS_PASSWORD
    before, _, query = after.partition("?")
    hosts = [_HOST.fullmatch(one) for one in before.partition("/")[0].split(",")]
    given = {"host": ",".join(unquote(one[1] or one[2]) for one in hosts if one is not None)}
    if None in hosts:
        return "store: expected host or host:port after the user, and a port that is a number"
    for parameter in filter(None, query.split("&")):
        name, _, value = parameter.partition("=")
        given[unquote(name)] = unquote(value)
    given = _as_libpq(store, given)
    if any(name in given for name in _SECRETS):
        return _HAS_PASSWORD
    for name in _ELSEWHERE:
        if name in given:
            return f"store: {name} is not supported: write host, user and database into the URL"
    names = [x for key in ("host", "hostaddr") for x in given.get(key, "").split(",") if x]
    beyond = [name for name in names if not (name.startswith("/") or is_loopback(name))]
    if beyond and given.get("sslmode") not in _ENCRYPTED and not insecure:
        return (
            f"store: {beyond[0]} is not on this machine, and the connection may be plaintext: add "
            "?sslmode=verify-full&sslrootcert=FILE, or set insecure: true on a trusted network"
        )
    return None


def _as_libpq(store: str, given: dict[str, str]) -> dict[str, str]:
    """Returns the parameters as libpq itself finds them, where psycopg is installed and accepts the URL."""
    try:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        return given
    try:
        return {name: str(value) for name, value in conninfo_to_dict(store).items() if value is not None}
    except Error:
        return given  # `PostgresqlServer` reports that
