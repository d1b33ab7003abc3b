"""Connects to a PostgreSQL server, and turns its errors into those of the store.

Messages name host and database. They never contain a password: it is read from a file for each connection,
and neither the URL nor a message of the server has it.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hyperscout_runtime.errors import install_extra

from hyperscout_collector.store.errors import StoreError, StoreFullError, StoreUnfitError

if TYPE_CHECKING:
    import psycopg

SCHEMA = "hyperscout"
_STATEMENT_S = 60  # a statement that takes longer is an error of its batch
_IDLE_S = 5  # in a transaction: a leader that was suspended must not keep the next one waiting
_MARGIN_S = 5  # for the names of the hosts, and the first statement
_LOCK_S = 20  # longer than _IDLE_S
CLAIM_S = _STATEMENT_S + 15  # for the lock of a former leader, which a statement of it can keep so long
# Parameters of libpq that apply unless the URL has them. A connection that is lost without a word is noticed
# in half a minute. Of several hosts, and at a failover, the one that takes writes is used.
_PARAMETERS: dict[str, Any] = {
    "application_name": "hyperscout-collector",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
    "target_session_attrs": "read-write",
}
# By SQLSTATE (PostgreSQL documentation, appendix A), or the first two characters of it.
_STEPS = {
    "42501": f"let its user create and write the schema {SCHEMA!r}",
    "25006": "the server takes no writes, as a standby does: name the primary in the URL",
    "25P03": "this machine is slow, or the collector was suspended: check its load",
    "57014": f"a statement took longer than {_STATEMENT_S} s: check the load of the server",
    "55P03": "another collector keeps a lock: check which of them leads",
    "57P": "the server ends or starts: the collector connects again",
}
_NO_TABLE = "42P01"
_FULL = frozenset({"53100"})
# libpq passes no SQLSTATE of a refused connection. If the server's messages are translated, nothing matches.
# Whole messages of libpq and psycopg about the parameters of a URL.
_PARAMETER = re.compile(r"""invalid URI query parameter: "\w+"|bad value for \w+: '[^']*'""")
_NO_DATABASE = re.compile('database "(.+)" does not exist')


class PostgresqlServer:
    """`url`: postgresql://..., without a password. `password_file`: None = none is needed, or libpq has it.

    `connect_s`: how long a connection attempt takes at most, with all hosts of the URL, in s.

    The constructor raises StoreError if psycopg is not installed or does not understand the URL.
    """

    def __init__(self, url: str, password_file: Path | None = None) -> None:
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict, timeout_from_conninfo
        except ImportError as error:
            raise StoreError(
                f"store: psycopg is missing, which PostgreSQL needs: {install_extra('postgresql')}"
            ) from error
        self.url = url
        self._password_file = password_file
        try:
            self._given = conninfo_to_dict(url)
            each_s = timeout_from_conninfo({**_PARAMETERS, **self._given})
        except psycopg.Error as error:
            raise StoreError(
                "store: libpq does not understand the URL: expected postgresql://user@host/database, with "
                f"parameters of libpq after a ?, and special characters as %40{_parameter_in(error)}"
            ) from None
        host = str(self._given.get("host") or self._given.get("hostaddr") or "this machine")
        self.connect_s = each_s * (host.count(",") + 1) + _MARGIN_S
        self.name = f"PostgreSQL at {host}, database {self._given.get('dbname') or 'of the user'}"

    def parameters(self) -> dict[str, Any]:
        """Returns the parameters of a new connection beside the URL. Raises StoreError."""
        found = {name: value for name, value in _PARAMETERS.items() if name not in self._given}
        if self._password_file is not None:
            try:
                found["password"] = self._password_file.read_text("utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "is no UTF-8"
                raise StoreError(
                    f"the password file {self._password_file}: {reason}: name a file that can be read"
                ) from error
            if not found["password"]:
                raise StoreError(
                    f"the password file {self._password_file} is empty: write the password into it"
                )
        return found

    def connect(self) -> "psycopg.Connection[Any]":
        """Returns a new connection in autocommit mode. Blocks for seconds at most. Raises StoreError."""
        import psycopg

        try:
            found = psycopg.connect(self.url, autocommit=True, **self.parameters())
        except psycopg.Error as error:
            raise self.error(error) from error
        try:
            found.execute(
                f"SET search_path = {SCHEMA}, pg_temp; SET statement_timeout = '{_STATEMENT_S}s';"
                f"SET lock_timeout = '{_LOCK_S}s'; SET idle_in_transaction_session_timeout = '{_IDLE_S}s';"
                "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
            )
        except psycopg.Error as error:
            found.close()
            raise self.error(error) from error
        return found

    def no_leader_row(self) -> StoreError:
        return StoreError(
            f"{self.name}: the table {SCHEMA}.leader has no row: restore a back-up, or name an empty database"
        )

    def error(self, error: "psycopg.Error") -> StoreError:
        """Returns the store's error for an error of psycopg."""
        state = error.sqlstate or ""
        text = f"{self.name}: {' '.join(str(error).split())}"
        if not state and (found := _NO_DATABASE.search(text)) is not None:
            owner = self._given.get("user") or "USER"
            return StoreUnfitError(f"{text}: create it: createdb --owner {owner} {found[1]}")
        if state == _NO_TABLE:
            return StoreError(
                f"{self.name}: there are no tables of hyperscout yet: a leader creates them when it starts; "
                "if one has, restore a back-up"
            )
        if state in _FULL:
            return StoreFullError(f"{text}: no space is left: free space on the disk of the server")
        for key in (state, state[:3], state[:2]):
            if key and (step := _STEPS.get(key)) is not None:
                return StoreError(f"{text}: {step}")
        if "read-only" in text:  # libpq says so of a host that does not have the session attributes
            return StoreError(f"{text}: {_STEPS['25006']}")
        if not state:
            # The server's reason for a refused connection has no SQLSTATE in psycopg, and may be translated.
            return StoreError(f"{text}: check the server, the URL and the password file")
        return StoreError(text)


def _parameter_in(error: "psycopg.Error") -> str:
    """Returns what libpq says of a parameter by its name; "" = of another part.

    Its other messages cite the URL, which may have a password in the wrong place.
    """
    found = _PARAMETER.search(str(error))
    return f": {found[0]}" if found is not None else ""
