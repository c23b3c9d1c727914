"""Parse the URL of ``[database] connection`` and add default drivers and timeouts."""

from itertools import zip_longest
from pathlib import Path
from urllib.parse import quote, unquote

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from nodetracker.model.errors import ConfigError

_DEFAULT_DRIVERS = {"mysql": "pymysql", "postgresql": "psycopg"}
_MYSQL = {"charset": "utf8mb4", "connect_timeout": "5", "read_timeout": "30", "write_timeout": "30"}
_PSYCOPG2 = {"connect_timeout": "5", "tcp_user_timeout": "30000"}
_PSYCOPG = {**_PSYCOPG2, "read_timeout": "30"}  # ours, see `psycopg_connection`
_ADDED: dict[str, dict[str, str]] = {
    "sqlite": {},
    "sqlite+pysqlite": {},
    "mysql+pymysql": _MYSQL,
    "postgresql+psycopg": _PSYCOPG,
    "postgresql+psycopg2": _PSYCOPG2,
}
_REFUSED = {
    "mysql+mysqldb": "with ssl_ca, mysqlclient also connects to servers without TLS, and its calls "
    "cannot be interrupted; use mysql+pymysql",
}
_OPTION = "[database] connection"
_SECONDS = ("connect_timeout", "read_timeout", "write_timeout")


def parse_connection(connection: str) -> URL:
    """Parse a connection URL and add missing driver, character set and timeouts.

    Values in the operator's URL take precedence.

    Raises:
        ConfigError: empty, not a URL, an unsupported database, a driver that is
            unsupported or not installed, or an invalid timeout. The message
            never contains the password.

    >>> parse_connection("mysql://nt:s3cret@db/nodetracker").drivername
    'mysql+pymysql'
    """
    if not connection:
        raise ConfigError(f"{_OPTION} is not set")
    try:
        url = make_url(connection)
    except (ArgumentError, ValueError):
        # The exception's own text may contain the password.
        raise ConfigError(
            f"invalid value for {_OPTION}: "
            "expected dialect+driver://user:password@host:port/database"
        ) from None
    backend, _, driver = url.drivername.partition("+")
    if backend == "mariadb":
        backend = "mysql"
    driver = driver or _DEFAULT_DRIVERS.get(backend, "")
    name = f"{backend}+{driver}" if driver else backend
    if name not in _ADDED:
        reason = _REFUSED.get(name, "expected sqlite, mysql+pymysql or postgresql+psycopg")
        raise ConfigError(f"{_OPTION}: {url.drivername} is not supported: {reason}")
    url = url.set(drivername=name)
    _require_driver(url, backend, driver)
    for key in _SECONDS:
        value = url.query.get(key, "1")
        if not (isinstance(value, str) and value.isascii() and value.isdigit() and int(value)):
            raise ConfigError(
                f"{_OPTION}: invalid value for {key}: expected a whole number of seconds above 0"
            )
    added = {key: value for key, value in _ADDED[name].items() if key not in url.query}
    return url.update_query_dict(added)


def _require_driver(url: URL, backend: str, driver: str) -> None:
    """Import the driver, so that a missing one is reported before the first connection."""
    try:
        url.get_dialect().import_dbapi()
    except ImportError:
        raise ConfigError(
            f"{_OPTION} needs the Python module {driver}, which is not installed: "
            f"pip install nodetracker[{backend}]"
        ) from None


def sqlite_path(url: URL) -> Path | None:
    """Return the file of an SQLite URL, None for a database in memory.

    >>> sqlite_path(make_url("sqlite:///file:/srv/a%20b.sqlite?mode=ro&uri=true"))
    PosixPath('/srv/a b.sqlite')
    """
    name = url.database
    if not name or ":memory:" in name:
        return None
    return Path(unquote(name.removeprefix("file:")) if "uri" in url.query else name)


def read_only(url: URL) -> URL:
    """Return a URL with which SQLite writes no file; URLs of other databases are unchanged.

    Even reading an SQLite database may write: SQLite creates a missing file and
    the files of its journal, owned by the reader. Without a journal no program
    has the file open, and it can be read as immutable.

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
    """Return whether `read_only` built this URL of an SQLite file."""
    return url.query.get("mode") == "ro"


def describe(url: URL) -> str:
    """Describe a database for a message, without user, password and query.

    >>> describe(make_url("postgresql+psycopg://nt:s3cret@db:5432/nodetracker?password=x"))
    'postgresql database nodetracker at db:5432'
    """
    backend = url.get_backend_name()
    if backend == "sqlite":
        return f"SQLite file {sqlite_path(url) or ':memory:'}"
    return f"{backend} database {url.database} at {_name_servers(url)}"


def _name_servers(url: URL) -> str:
    """Return host and port of each server that libpq tries."""
    if url.host:
        return f"{url.host}:{url.port}" if url.port else url.host
    hosts, ports = (
        ",".join(url.normalized_query.get(name, ())).split(",") for name in ("host", "port")
    )
    places = [
        "the local socket" if not host or host.startswith("/") else f"{host}:{port}".rstrip(":")
        for host, port in zip_longest(hosts, ports, fillvalue="")
    ]
    return ", ".join(places)


def list_secrets(url: URL) -> list[str]:
    """Return the parts of a URL that must never appear in a message."""
    secrets = [str(url.password)] if url.password else []
    for key, value in url.query.items():
        if "password" in key or key == "passwd":
            secrets.extend([value] if isinstance(value, str) else value)
    return [secret for secret in secrets if secret]
