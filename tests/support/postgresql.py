"""A real PostgreSQL on a Unix socket of its own, to be killed, filled and started again."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hyperscout_collector.store.server import PostgresqlServer

from support.real import postgresql_program, require_real
from support.waiting import TIMEOUT_S, until_seen

_OVERFLOW_UID = 65534  # of a user without rights, on each Linux
USER, PASSWORD = "hyperscout", "a secret of the test"
# Durability against a power cut is the server's, and takes most of the time of a test.
_OPTIONS = {"listen_addresses": "", "fsync": "off", "max_connections": "40", "shared_buffers": "16MB"}


class Postgresql:
    """A server. It refuses to run as root, and the folder of a test is closed to other users.

    `password_file` contains the password of its only user, a superuser. `copy_of`: be its standby.
    """

    def __init__(self, folder: Path, *, copy_of: "Postgresql | None" = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.password_file = folder / "password"
        self._databases = count()
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _plain_user() if os.geteuid() == 0 else None
        # Not the `user` of `Popen`: that forks, and gRPC's threads make the child crash now and then.
        self._run_as: list[str] = []
        if self._user is not None:
            ids = f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}"
            self._run_as = ["setpriv", *ids, "--clear-groups", "--"]
        self.give(folder)
        self.password_file.write_text(f"{PASSWORD}\n")
        self.password_file.chmod(0o644)
        if copy_of is None:
            options = ["-U", USER, "-A", "scram-sha-256", "-N", "-E", "UTF8", "--no-locale"]
            self._run("initdb", "-D", self.data, *options, f"--pwfile={self.password_file}")
        else:
            source = f"host={copy_of.folder} user={USER} password='{PASSWORD}'"
            self._run("pg_basebackup", "-D", self.data, "-d", source, "-R", "-c", "fast")

    @property
    def pid(self) -> int:
        """Of the first process of the server, the parent of the others."""
        assert self._process is not None
        return self._process.pid

    def give(self, folder: Path) -> None:
        """Let the server write a folder."""
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)

    def start(self, **options: str) -> None:
        """And wait until it takes connections."""
        settings = {**_OPTIONS, "unix_socket_directories": str(self.folder), **options}
        command: list[Any] = [*self._run_as, postgresql_program("postgres"), "-D", self.data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        until_seen(self._answers, "PostgreSQL takes connections")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with contextlib.suppress(psycopg.OperationalError), self.session():
            return True
        return False

    def end(self, how: int = signal.SIGINT) -> None:
        """SIGINT: disconnect all clients; SIGQUIT: as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(TIMEOUT_S)
            self._process = None

    def restart(self) -> None:
        self.end()
        self.start()

    @contextlib.contextmanager
    def standby(self) -> Iterator["Postgresql"]:
        """A server that follows this one, and answers reads."""
        with _folder() as folder, _ended(Postgresql(folder, copy_of=self)) as found:
            found.start()
            yield found

    def promote(self) -> None:
        """Make a standby the primary, and wait for that."""
        self.execute("postgres", "SELECT pg_promote()")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{USER}@/{database}?host={self.folder}"

    def server(self, database: str) -> PostgresqlServer:
        """As the collector connects to it."""
        return PostgresqlServer(self.url(database), self.password_file)

    def new_database(self) -> str:
        """Returns the name of a new, empty database."""
        name = f"test_{next(self._databases)}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return name

    @contextlib.contextmanager
    def session(self, database: str = "postgres") -> Iterator["psycopg.Connection[Any]"]:
        """A connection of the test's own, in autocommit mode."""
        with psycopg.connect(self.url(database), password=PASSWORD, autocommit=True) as found:
            yield found

    def execute(self, database: str, statement: str) -> list[Any]:
        """Returns the rows of a statement; its names are those of the collector's schema."""
        with self.session(database) as session:
            session.execute("SET search_path = hyperscout")
            cursor = session.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def break_connections(self, database: str) -> None:
        """End the sessions of all clients of a database."""
        statement = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{}'"
        self.execute("postgres", statement.format(database))

    def _run(self, program: str, *arguments: object) -> None:
        command = [*self._run_as, postgresql_program(program), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr.decode()


def _plain_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwuid(_OVERFLOW_UID)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Not the folder of the test: the path of a socket has at most 107 bytes."""
    found = Path(tempfile.mkdtemp(prefix="hyperscout-pg-"))
    try:
        yield found
    finally:
        shutil.rmtree(found)


@contextlib.contextmanager
def _ended(server: Postgresql) -> Iterator[Postgresql]:
    try:
        yield server
    finally:
        server.end(signal.SIGQUIT)


@contextlib.contextmanager
def postgresql() -> Iterator[Postgresql]:
    """A server that runs."""
    require_real("postgresql")
    with _folder() as folder, _ended(Postgresql(folder)) as server:
        server.start()
        yield server


@pytest.fixture(scope="session")
def shared_postgresql() -> Iterator[Postgresql]:
    """A server that tests share. Each makes a database of its own; none stops the server."""
    with postgresql() as server:
        yield server


@pytest.fixture
def own_postgresql() -> Iterator[Postgresql]:
    """A server that this test may stop."""
    with postgresql() as server:
        yield server
