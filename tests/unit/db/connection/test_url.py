"""Accepted values of ``[database] connection``, and the errors for invalid ones."""

import sys

import pytest

from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.connection.url import describe, list_secrets, parse_connection
from nodetracker.db.store import open_store
from nodetracker.model.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:////var/lib/nt.sqlite", "sqlite"),
        ("mysql://u:p@h/d", "mysql+pymysql"),
        ("mariadb://u:p@h/d", "mysql+pymysql"),
        ("mariadb+pymysql://u:p@h/d", "mysql+pymysql"),
        ("postgresql://u:p@h/d", "postgresql+psycopg"),
        ("postgresql+psycopg://u:p@h/d", "postgresql+psycopg"),
    ],
)
def test_the_driver_is_completed(given: str, driver: str) -> None:
    assert parse_connection(given).drivername == driver


def test_timeouts_and_character_set_are_added_unless_given() -> None:
    query = parse_connection("mysql://u:p@h/d?charset=latin1&read_timeout=3").query
    assert query == {
        "charset": "latin1", "read_timeout": "3", "connect_timeout": "5", "write_timeout": "30",
    }  # fmt: skip
    assert parse_connection("postgresql://h/d").query["connect_timeout"] == "5"
    assert parse_connection("postgresql://h/d?connect_timeout=1").query["connect_timeout"] == "1"
    assert parse_connection("postgresql://h/d").query["read_timeout"] == "30"
    assert parse_connection("postgresql://h/d?read_timeout=7").query["read_timeout"] == "7"
    assert parse_connection("sqlite://").query == {}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "nonsense",
        "mysql://u:s3cret@h:port/d",
        "mysql:/u:s3cret@h/d",
        "oracle://u:s3cret@h/d",
        "foobar://u:s3cret@h/d",
        "postgresql+asyncpg://u:s3cret@h/d",
        "mysql+aiomysql://u:s3cret@h/d",
        "mysql://u:s3cret@h/d?read_timeout=soon",
        "mysql://u:s3cret@h/d?connect_timeout=0",
        "postgresql://u:s3cret@h/d?read_timeout=-1",
        "postgresql://u:s3cret@h/d?read_timeout=1&read_timeout=2",
    ],
)
def test_the_error_of_an_invalid_url_is_one_line_without_the_password(given: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_connection(given)
    text = str(caught.value)
    assert "[database] connection" in text
    assert "s3cret" not in text
    assert "\n" not in text
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("driver", ["mysql+mysqldb", "mariadb+mysqldb"])
def test_mysqlclient_is_refused_with_the_reason_and_the_driver_to_use(driver: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_connection(f"{driver}://u:s3cret@h/d?ssl_ca=/ca")
    assert str(caught.value) == (
        f"[database] connection: {driver} is not supported: with ssl_ca, mysqlclient also "
        "connects to servers without TLS, and its calls cannot be interrupted; use mysql+pymysql"
    )


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("mysql://u:s3cret@h/d", "pymysql", "nodetracker[mysql]"),
        ("postgresql://u:s3cret@h/d", "psycopg", "nodetracker[postgresql]"),
    ],
)
def test_a_missing_driver_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as caught:
        open_store(DatabaseSettings(url))
    assert module in str(caught.value)
    assert f"pip install {extra}" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_description_has_no_user_and_no_password() -> None:
    url = parse_connection("mysql://user:s3cret@db.example:3307/nt?ssl_ca=/ca&passwd=other")
    assert describe(url) == "mysql database nt at db.example:3307"
    assert list_secrets(url) == ["s3cret", "other"]
    assert describe(parse_connection("postgresql:///nt")) == (
        "postgresql database nt at the local socket"
    )
    assert describe(parse_connection("sqlite:////srv/nt.sqlite")) == "SQLite file /srv/nt.sqlite"


@pytest.mark.parametrize(
    ("query", "servers"),
    [
        ("host=a:5432&host=b:5433", "a:5432, b:5433"),
        ("host=a,b&port=5432,5433", "a:5432, b:5433"),
        ("host=a,b&target_session_attrs=read-write", "a, b"),
        ("host=/run/postgresql", "the local socket"),
    ],
)
def test_a_description_names_all_servers(query: str, servers: str) -> None:
    url = parse_connection(f"postgresql://u:s3cret@/nt?{query}")
    assert describe(url) == f"postgresql database nt at {servers}"


def test_opening_connects_to_nothing_and_shows_no_password() -> None:
    settings = DatabaseSettings("postgresql://u:s3cret@192.0.2.1/d", {"max_pool_size": 1})
    store = open_store(settings)
    assert store.engine.pool.size() == 1  # type: ignore[attr-defined]
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in repr(store.engine)
    store.close()


def test_options_of_the_first_connect_and_unset_ones_are_ignored() -> None:
    options = {"max_retries": 10, "retry_interval": 10, "max_pool_size": None, "max_overflow": 1}
    store = open_store(DatabaseSettings("mysql://u:p@192.0.2.1/d", options))
    assert store.engine.pool.size() == 2  # type: ignore[attr-defined]
    assert store.engine.pool._max_overflow == 1  # type: ignore[attr-defined]
