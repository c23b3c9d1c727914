"""Requests while no connection is free, or SQLite's file is unusable, and afterwards."""

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodetracker.api.call import Backend
from nodetracker.db.connection import sessions
from nodetracker.db.connection.engine import DatabaseSettings
from nodetracker.db.store import SqlStore, open_store
from tests.builders import register
from tests.contract.stores import StoreMaker
from tests.unit.api.conftest import Api, api, backend  # noqa: F401 - fixtures, on this store

POOL = {"max_pool_size": 1, "max_overflow": 0, "pool_timeout": 1}


def send(service: Api, method: str, path: str, **options: Any) -> tuple[int, str | None, str]:
    """Return status, Retry-After and code of a request."""
    found = service.request(method, path, **options)
    code = found.json["errors"][0]["code"] if found.status_code >= 400 else ""
    return found.status_code, found.headers.get("Retry-After"), code


@pytest.mark.parametrize("stores", ["mariadb", "postgresql"], indirect=True)
def test_a_request_that_finds_no_free_connection_says_so(
    stores: StoreMaker,
    backend: Backend,  # noqa: F811
) -> None:
    assert stores.url is not None
    store = open_store(DatabaseSettings(stores.url, POOL))
    service = Api(dataclasses.replace(backend, store=store))
    with store.engine.connect():
        assert send(service, "GET", "/v1/nodes") == (503, "5", "nodetracker.busy")
        found = service.request("GET", "/v2.1/os-services")
    message = found.json["serviceUnavailable"]["message"]
    assert message.startswith("All connections to the database are in use")
    assert send(service, "GET", "/v1/nodes") == (200, None, "")
    store.close()


@contextlib.contextmanager
def removed(path: Path) -> Iterator[None]:
    moved = path.rename(path.with_suffix(".away"))
    yield
    moved.rename(path)


@contextlib.contextmanager
def unreadable(path: Path) -> Iterator[None]:
    with removed(path):
        path.mkdir()  # a file without permissions is readable for root
        yield
        path.rmdir()


@contextlib.contextmanager
def overwritten(path: Path) -> Iterator[None]:
    with removed(path):
        path.write_bytes(b"no database" * 1000)
        yield


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    yield
    connection.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores that are opened from now on wait for no lock, not even as they connect."""
    monkeypatch.setattr(sessions, "LOCK_WAIT_SECONDS", 0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("stores", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (removed, "schema"), (unreadable, "unavailable"), (overwritten, "unavailable"),
        (locked, "unavailable"),
    ],
)  # fmt: skip
def test_an_unusable_file_is_503_until_it_is_back(
    store: SqlStore,
    api: Api,  # noqa: F811
    tmp_path: Path,
    spoil: Callable[[Path], contextlib.AbstractContextManager[None]],
    reason: str,
) -> None:
    change = "PATCH", f"/v1/services/{register(store).service_uuid}"
    if spoil is locked:
        store.close()  # or the other program could not lock the file
    with spoil(tmp_path / "nt.sqlite"):
        away = (503, "5", f"nodetracker.database.{reason}")
        assert send(api, "GET", "/v1/services") == away
        assert send(api, *change, json={"maintenance": True}) == away
    assert send(api, *change, json={"maintenance": True}) == (200, None, "")
    assert [item["maintenance"] for item in api.get("/v1/services")["services"]] == [True]
