"""The URL in ``[database] connection``: what may stand there, and what is added to it."""

from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from nodetracker.errors import ConfigError

_DEFAULT_DRIVERS = {"mysql": "pymysql", "postgresql": "psycopg"}
_MYSQL = {"charset": "utf8mb4", "connect_timeout": "5", "read_timeout": "30", "write_timeout": "30"}
_PSYCOPG2 = {"connect_timeout": "5", "tcp_user_timeout": "30000"}
_PSYCOPG = {**_PSYCOPG2, "read_timeout": "30"}  # ours, see `psycopg_connection`
_ADDED: dict[str, dict[str, str]] = {
    "sqlite": {},
    "sqlite+pysqlite": {},
    "mysql+pymysql": _MYSQL,
    "mysql+mysqldb": _MYSQL,
    "postgresql+psycopg": _PSYCOPG,
    "postgresql+psycopg2": _PSYCOPG2,
}
_OPTION = "[database] connection"
_SECONDS = ("connect_timeout", "read_timeout", "write_timeout")


def parse_connection(connection: str) -> URL:
    """Read a connection URL, complete its driver, character set and timeouts.

    What the operator wrote in the URL stands; only what is not there is added.

    Raises:
        ConfigError: empty, not a URL, for a database or driver that is not
            supported or not installed, or with a timeout that is none. The message
            never has the password.

    >>> parse_connection("mysql://nt:s3cret@db/nodetracker").drivername
    'mysql+pymysql'
    """
    if not connection:
        raise ConfigError(f"{_OPTION} is not set")
    try:
        url = make_url(connection)
    except (ArgumentError, ValueError):
        # The exception's own text may hold the password.
        raise ConfigError(
            f"{_OPTION} cannot be read: expected dialect+driver://user:password@host:port/database"
        ) from None
    backend, _, driver = url.drivername.partition("+")
    if backend == "mariadb":
        backend = "mysql"
    driver = driver or _DEFAULT_DRIVERS.get(backend, "")
    name = f"{backend}+{driver}" if driver else backend
    if name not in _ADDED:
        known = "sqlite, mysql+pymysql and postgresql+psycopg"
        raise ConfigError(f"{_OPTION}: {url.drivername} is not supported, only {known} are")
    url = url.set(drivername=name)
    _require_driver(url, backend, driver)
    for key in _SECONDS:
        value = url.query.get(key, "1")
        if not (isinstance(value, str) and value.isascii() and value.isdigit() and int(value)):
            raise ConfigError(f"{_OPTION}: {key} is not a whole number of seconds above 0")
    added = {key: value for key, value in _ADDED[name].items() if key not in url.query}
    return url.update_query_dict(added)


def _require_driver(url: URL, backend: str, driver: str) -> None:
    """Import the driver now, so that a missing one is told before anything is tried."""
    try:
        url.get_dialect().import_dbapi()
    except ImportError:
        raise ConfigError(
            f"{_OPTION} needs the Python module {driver}, which is not installed: "
            f"pip install nodetracker[{backend}]"
        ) from None


def sqlite_path(url: URL) -> Path | None:
    """Return the file of an SQLite URL, None when the database is in memory.

    >>> sqlite_path(make_url("sqlite:///file:/srv/a%20b.sqlite?mode=ro&uri=true"))
    PosixPath('/srv/a b.sqlite')
    """
    name = url.database
    if not name or ":memory:" in name:
        return None
    return Path(unquote(name.removeprefix("file:")) if "uri" in url.query else name)


def read_only(url: URL) -> URL:
    """Return a URL by which SQLite makes and writes no file; other databases' stay.

    An SQLite file is written even by reading it: it is made when it is not
    there, and so are the files of its journal, with the reader as their owner.
    Without a journal no program has it open, and it is read as it lies there.

    >>> str(read_only(make_url("sqlite:////nowhere/db.sqlite")))
    'sqlite:///file%3A/nowhere/db.sqlite?immutable=1&mode=ro&uri=true'
    """
    path = sqlite_path(url) if url.get_backend_name() == "sqlite" else None
    if path is None or "uri" in url.query:
        return url
    query = {"mode": "ro", "uri": "true"}
    if not path.with_name(path.name + "-wal").exists():
        query["immutable"] = "1"
    return url.set(database=f"file:{quote(str(path.absolute()))}").update_query_dict(query)


def is_read_only(url: URL) -> bool:
    """Tell whether `read_only` made this URL of an SQLite file."""
    return url.query.get("mode") == "ro"


def describe(url: URL) -> str:
    """Name a database for a message: no user, no password, no query.

    >>> describe(make_url("postgresql+psycopg://nt:s3cret@db:5432/nodetracker?password=x"))
    'postgresql database nodetracker at db:5432'
    """
    backend = url.get_backend_name()
    if backend == "sqlite":
        return f"SQLite file {sqlite_path(url) or ':memory:'}"
    host = url.host or "the local socket"
    place = f"{host}:{url.port}" if url.port else host
    return f"{backend} database {url.database} at {place}"


def list_secrets(url: URL) -> list[str]:
    """Return what must never appear in a message."""
    secrets = [str(url.password)] if url.password else []
    for key, value in url.query.items():
        if "password" in key or key == "passwd":
            secrets.extend([value] if isinstance(value, str) else value)
    return [secret for secret in secrets if secret]
