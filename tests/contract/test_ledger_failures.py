"""A connection that breaks around a claim's commit leaves the whole claim or nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from nodetracker.db.store import SqlStore
from nodetracker.model.errors import StoreError
from tests.builders import ask, claim, make_guest, make_node, node
from tests.contract.stores import SQL_BACKENDS
from tests.oracle import check_usage

pytestmark = pytest.mark.parametrize("stores", SQL_BACKENDS, indirect=True)
GUEST = make_guest("web", vcpu_milli=2000, memory_mb=1024, disk_mb=10240)
CLAIM = "0b9c6c2e-0d5f-4c0e-9f5b-0a3d5e7f1a2b"


@contextmanager
def breaking_at_commit(store: SqlStore, *, is_committed: bool) -> Iterator[None]:
    """Break the connection at the next commit, before or after the server receives it."""

    def break_off(connection: sa.Connection) -> None:
        driver_connection = connection.connection.dbapi_connection
        assert driver_connection is not None
        if is_committed:
            driver_connection.commit()
        raise sa.exc.OperationalError("COMMIT", None, OSError("the line went dead"))

    sa.event.listen(store.engine, "commit", break_off)
    try:
        yield
    finally:
        sa.event.remove(store.engine, "commit", break_off)


def test_a_claim_that_was_not_committed_left_nothing(store: SqlStore) -> None:
    make_node(store, (GUEST,))
    before = node(store)
    request = ask(GUEST.uuid, CLAIM, VCPU=2)
    with breaking_at_commit(store, is_committed=False), pytest.raises(StoreError):
        claim(store, request)
    assert node(store) == before
    assert store.list_claims() == []
    assert claim(store, request).uuid == CLAIM


def test_a_committed_claim_without_an_answer_is_returned_by_its_uuid(
    store: SqlStore,
) -> None:
    make_node(store)
    request = ask(GUEST.uuid, CLAIM, VCPU=7)
    with breaking_at_commit(store, is_committed=True), pytest.raises(StoreError):
        claim(store, request)
    (kept,) = store.list_claims()
    after = node(store)
    assert claim(store, request) == kept
    assert node(store) == after
    check_usage(store, "alpha")


@pytest.mark.parametrize("is_committed", [False, True])
def test_an_abort_without_an_answer_is_atomic_and_can_be_repeated(
    store: SqlStore, is_committed: bool
) -> None:
    make_node(store)
    before = node(store)
    claim(store, ask(GUEST.uuid, CLAIM, VCPU=7))
    with breaking_at_commit(store, is_committed=is_committed), pytest.raises(StoreError):
        store.abort_claim(CLAIM)
    check_usage(store, "alpha")
    assert store.abort_claim(CLAIM).reason == "aborted"
    assert node(store).values == before.values
